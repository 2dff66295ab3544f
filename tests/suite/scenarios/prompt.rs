//! How long a rule takes to speak once its evidence is there.
//!
//! The evidence of a rule is there when the fault has lasted as long as the rule asks for: its
//! hold, or the time that it counts over. A fault begins with the last thing that happens in the
//! scenario before the rule speaks, or with the scenario.

use std::collections::BTreeMap;
use std::time::Duration;

use stallscope::diagnose::RULES;

use super::runs;
use crate::support::incident::{Incident, Times};

/// From the evidence to the verdict, at most.
const GOAL: Duration = Duration::from_secs(5);

/// Moments at which something happens.
fn changes(i: &Incident) -> Vec<f64> {
    let mut out = vec![0.0];
    for s in &i.steps {
        out.extend(s.from.into_iter().chain(s.to));
        match &s.at {
            Some(Times::One(t)) => out.push(*t),
            Some(Times::Many(all)) => out.extend(all),
            None => {}
        }
    }
    out
}

/// What the rule asks for, by its documentation.
fn asked(rule: &str) -> Duration {
    let doc = RULES.iter().map(|r| r.doc).find(|d| d.id.0 == rule).unwrap();
    if doc.hold.need == 0 { doc.needs_time } else { Duration::from_secs(doc.hold.need.into()) }
}

#[test]
fn verdicts_come_within_five_seconds_of_their_evidence() {
    let mut slowest: BTreeMap<String, (f64, String)> = BTreeMap::new();
    let mut late = Vec::new();
    for (i, run) in runs() {
        let (name, interval, fired) = (&run.file, run.interval, run.fired());
        for e in i.expect.iter().filter(|e| e.is_wanted()) {
            let Some(t) = fired.get(e.rule.as_str()).copied() else { continue };
            let begun = changes(i).into_iter().filter(|c| *c <= t).fold(0.0, f64::max);
            let after = t - begun - asked(&e.rule).as_secs_f64();
            let whence = format!("{name} at {interval} s");
            if after > GOAL.as_secs_f64() {
                late.push(format!("{}: {after:.1} s late in {whence}", e.rule));
            }
            let slot = slowest.entry(e.rule.clone()).or_insert((f64::MIN, String::new()));
            if after > slot.0 {
                *slot = (after, whence);
            }
        }
    }
    println!("{:<32} {:>7} {:>10}  slowest in", "rule", "asks", "after that");
    for (rule, (after, whence)) in &slowest {
        println!("{rule:<32} {:>5} s {after:>8.1} s  {whence}", asked(rule).as_secs());
    }
    assert_eq!(slowest.len(), RULES.len(), "a rule never fired");
    assert!(late.is_empty(), "{}", late.join("\n"));
}
