//! Incidents in virtual time: each file under `tests/scenarios/` is played through the real analysis
//! at several sampling intervals, and the findings are compared with what the file expects.
//! A finding that no file asked for is a failure, so each scenario is also a false-alarm test
//! of all other rules.
//!
//! `cargo test --test suite scenarios:: -- --nocapture` prints the table of rules.

mod prompt;
mod properties;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use stallscope::analysis::Analysis;
use stallscope::diagnose::culprit::{MAX_CULPRITS, Who};
use stallscope::diagnose::{Engine, Finding, Findings, RULES};
use stallscope::recording::tools::redact::Redactor;

use crate::support::incident::{Expect, Incident, Step, incidents, play, run_of};

/// What is checked of one file at one interval.
struct Run {
    file: String,
    interval: f64,
    /// Time and findings.
    moments: Vec<(f64, Arc<Findings>)>,
}

fn files() -> &'static [(String, Incident)] {
    static FILES: OnceLock<Vec<(String, Incident)>> = OnceLock::new();
    FILES.get_or_init(|| incidents().iter().flat_map(with_and_without_ebpf).collect())
}

/// An incident that eBPF sees is played a second time without.
fn with_and_without_ebpf((name, incident): &(String, Incident)) -> Vec<(String, Incident)> {
    let mut out = vec![(name.clone(), incident.clone())];
    if incident.ebpf {
        out.push((format!("{name} without eBPF"), Incident { ebpf: false, ..incident.clone() }));
    }
    for (_, i) in &mut out {
        i.expect.retain(|e| e.ebpf.is_none_or(|on| on == i.ebpf));
    }
    out
}

fn run(file: &str, incident: &Incident, interval: f64) -> Run {
    let engine = if incident.pasted { Engine::single_sample() } else { Engine::default() };
    let (host, ticks) = run_of(incident, interval);
    let mut analysis = Analysis::new(host, engine, 64 << 20);
    let mut moments = Vec::new();
    for tick in ticks {
        let t = tick.seq.0 as f64 * interval;
        analysis.push(tick);
        moments.push((t, analysis.latest().unwrap().findings.clone()));
    }
    Run { file: file.to_owned(), interval, moments }
}

/// Each file at each of its intervals. Several tests look at the same runs.
fn runs() -> &'static [(&'static Incident, Run)] {
    static RUNS: OnceLock<Vec<(&Incident, Run)>> = OnceLock::new();
    RUNS.get_or_init(|| {
        let each = |(name, i): &'static (String, Incident)| {
            i.intervals.iter().map(move |interval| (i, run(name, i, *interval)))
        };
        files().iter().flat_map(each).collect()
    })
}

impl Run {
    fn at(&self, t: f64) -> &Findings {
        &self.moments.iter().rev().find(|(m, _)| *m <= t + 1e-9).unwrap().1
    }
    /// Rules that fired at any time, with the first moment.
    fn fired(&self) -> BTreeMap<&'static str, f64> {
        let mut out = BTreeMap::new();
        for (t, f) in &self.moments {
            for f in everything(f) {
                out.entry(f.rule.0).or_insert(*t);
            }
        }
        out
    }
    /// What is wrong, in words.
    fn problems(&self, i: &Incident) -> Vec<String> {
        let mut out = Vec::new();
        let mut say = |what: String| {
            out.push(format!("{} at {} s: {what}", self.file, self.interval));
        };
        for e in &i.expect {
            if let Some(problem) = unmet(e, self.at(e.at)) {
                say(problem);
            }
        }
        let may: BTreeSet<&str> = i
            .expect
            .iter()
            .filter(|e| e.is_wanted())
            .map(|e| e.rule.as_str())
            .chain(i.allow.iter().map(String::as_str))
            .collect();
        for (rule, t) in self.fired() {
            if i.quiet.iter().any(|q| q == rule) {
                say(format!("{rule} must stay quiet, fired at {t} s: {}", self.first(rule)));
            } else if !may.contains(rule) {
                say(format!("{rule} was not asked for, fired at {t} s: {}", self.first(rule)));
            }
        }
        for (what, spells) in self.spells() {
            if spells > i.spells {
                say(format!("{what} came and went {spells} times"));
            }
        }
        for f in self.moments.iter().flat_map(|(_, f)| everything(f)) {
            if let Some(problem) = malformed(f) {
                say(format!("{}: {problem}", f.rule));
                break;
            }
        }
        out
    }
    /// How often each finding began: more than once is flapping.
    fn spells(&self) -> BTreeMap<String, u32> {
        let mut out = BTreeMap::new();
        let mut before = BTreeSet::new();
        for (_, f) in &self.moments {
            let now: BTreeSet<String> =
                everything(f).map(|f| format!("{} on {}", f.rule, f.subject)).collect();
            for new in now.difference(&before) {
                *out.entry(new.clone()).or_insert(0) += 1;
            }
            before = now;
        }
        out
    }
    fn first(&self, rule: &str) -> String {
        let mut all = self.moments.iter().flat_map(|(_, f)| everything(f));
        all.find(|f| f.rule.0 == rule).map(|f| text(f)).unwrap_or_default()
    }
}

/// Causes, consequences and remarks: how they are sorted is no matter here.
fn everything(f: &Findings) -> impl Iterator<Item = &Arc<Finding>> {
    f.all().chain(&f.annotations)
}

/// Everything a finding says, one line each.
fn text(f: &Finding) -> String {
    let x = &f.fire;
    let mut out = vec![format!(
        "[{} {:?}] {} count {} {}",
        x.severity.name(),
        x.confidence,
        f.subject,
        x.count,
        x.summary
    )];
    out.push(x.examples.join(", "));
    out.extend(x.evidence.iter().map(|e| format!("{}: {}", e.field, e.text)));
    out.extend(x.by.iter().map(|c| format!("by: {c}")));
    out.extend(x.ruled_out.iter().map(|r| format!("not {}: {}", r.rule, r.because)));
    out.extend(x.missing.iter().map(|m| format!("cannot tell: {m}")));
    out.extend(x.next.iter().map(|n| format!("next: {n}")));
    out.join("\n    ")
}

fn unmet(e: &Expect, findings: &Findings) -> Option<String> {
    if let Some(why) = &e.unknown {
        let mut all = findings.not_judged.iter().filter(|n| n.rule.0 == e.rule);
        let said = all.any(|n| n.why.contains(why));
        return (!said).then(|| {
            let all = &findings.not_judged;
            format!("{} at {} s: not judged for {why:?} wanted, not {all:?}", e.rule, e.at)
        });
    }
    let found: Vec<&Arc<Finding>> = everything(findings)
        .filter(|f| f.rule.0 == e.rule && f.subject.to_string().contains(&e.subject))
        .collect();
    let Some(f) = found.first() else {
        return (!e.absent)
            .then(|| format!("{} on {:?} is not active at {} s", e.rule, e.subject, e.at));
    };
    let all = text(f);
    let mut wrong = Vec::new();
    if e.absent {
        wrong.push("should be over".to_owned());
    }
    if e.severity.as_ref().is_some_and(|s| *s != f.fire.severity.name()) {
        wrong.push(format!("severity {:?} wanted", e.severity));
    }
    let confidence = format!("{:?}", f.fire.confidence).to_lowercase();
    if e.confidence.as_ref().is_some_and(|c| *c != confidence) {
        wrong.push(format!("confidence {:?} wanted", e.confidence));
    }
    if e.count.is_some_and(|c| c != f.fire.count) {
        wrong.push(format!("count {:?} wanted", e.count));
    }
    let cause = f.cause.as_ref().map_or("", |c| c.0.0);
    if e.cause.as_ref().is_some_and(|c| c != cause) {
        wrong.push(format!("cause {:?} wanted, not {cause:?}", e.cause));
    }
    wrong.extend(e.says.iter().filter(|s| !all.contains(*s)).map(|s| format!("says no {s:?}")));
    wrong.extend(e.says_not.iter().filter(|s| all.contains(*s)).map(|s| format!("says {s:?}")));
    (!wrong.is_empty())
        .then(|| format!("{} at {} s: {}\n    {all}", e.rule, e.at, wrong.join(", ")))
}

/// What any finding of any rule must be like.
fn malformed(f: &Finding) -> Option<String> {
    let x = &f.fire;
    let checks = [
        (
            x.summary.is_empty() || x.summary.ends_with('.'),
            "a summary is one sentence, no full stop",
        ),
        (x.evidence.is_empty(), "no evidence"),
        (x.ruled_out.is_empty(), "nothing was ruled out"),
        (x.next.is_empty(), "no next command"),
        (x.examples.len() > 5, "too many examples"),
        (x.by.len() > MAX_CULPRITS, "too many culprits"),
        (
            x.by.iter().map(|c| c.share.percent()).sum::<f64>() > 100.0,
            "culprits with more than there is",
        ),
        (x.by.iter().any(|c| c.share.percent() < 1.0), "a culprit with nothing"),
        (x.sockets.len() > 1000, "too many sockets"),
        (x.count == 0, "count 0"),
        (f.first_seen > f.last_seen, "begins after it ends"),
        (
            x.confidence == stallscope::diagnose::Confidence::Suspected
                && x.missing.is_empty()
                && !x.evidence.iter().any(|e| e.field == "kernel"),
            "suspected, but nothing is missing",
        ),
        (
            x.evidence.iter().any(|e| e.value.is_some_and(|v| !v.is_finite())),
            "evidence that is no number",
        ),
    ];
    let wrong = checks.iter().find(|(bad, _)| *bad).map(|(_, what)| *what)?;
    Some(format!("{wrong}\n    {}", text(f)))
}

#[test]
fn findings_are_as_expected_at_every_interval() {
    let mut problems = Vec::new();
    for (incident, run) in runs() {
        problems.extend(run.problems(incident));
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn files_name_rules_that_exist_and_say_where_their_numbers_are_from() {
    let known: BTreeSet<&str> = RULES.iter().map(|r| r.id().0).collect();
    for (name, i) in files() {
        let rules = i.expect.iter().map(|e| &e.rule).chain(&i.quiet).chain(&i.allow);
        for r in rules {
            assert!(known.contains(r.as_str()), "{name}: no rule {r}");
        }
        let origin = ["measured", "field", "made up"];
        assert!(origin.iter().any(|o| i.source.starts_with(o)), "{name}: source {}", i.source);
        assert!(!i.title.is_empty(), "{name}");
    }
}

#[test]
fn the_same_incident_gives_the_same_findings() {
    for (name, i) in files() {
        let said = |r: &Run| -> Vec<String> {
            r.moments.iter().flat_map(|(_, f)| everything(f).map(|f| text(f))).collect()
        };
        assert_eq!(said(&run(name, i, 1.0)), said(&run(name, i, 1.0)), "{name}");
    }
}

/// Of a redacted recording the culprits are the same ones, under the names that it has.
#[test]
fn culprits_are_redacted_with_the_threads_that_they_are() {
    let mut named = 0;
    for (name, i) in files()
        .iter()
        .filter(|(name, _)| name.starts_with("cpu-") || name.starts_with("disk-loaded"))
    {
        let (host, ticks) = run_of(i, 1.0);
        let mut redactor = Redactor::default();
        let mut runs = [Analysis::new(host.clone(), Engine::default(), 64 << 20), {
            Analysis::new(redactor.host(&host), Engine::default(), 64 << 20)
        }];
        for tick in ticks {
            runs[1].push(Arc::new(redactor.tick(&tick).unwrap()));
            runs[0].push(tick);
            let [open, redacted] = &runs;
            let [open, redacted] = [open, redacted].map(|r| r.latest().unwrap().findings.clone());
            for (a, b) in open.all().zip(redacted.all()) {
                assert_eq!(a.fire.by.len(), b.fire.by.len(), "{name}: {}", a.rule);
                for (a, b) in a.fire.by.iter().zip(&b.fire.by) {
                    named += 1;
                    assert_eq!(a.share.percent(), b.share.percent(), "{name}");
                    assert_eq!((a.who.pid(), a.sched), (b.who.pid(), b.sched), "{name}");
                    let common = matches!(&a.who, Who::Kernel { .. });
                    let kept = common || a.to_string().contains("kworker");
                    assert_eq!(a.who == b.who, kept, "{name}: {a}, {b}");
                }
            }
        }
    }
    assert!(named > 100, "{named}");
}

/// Numbers that no kernel should give, and collectors that come and go, in the middle of any
/// incident: findings may be wrong then, but nothing panics and each is well-formed.
#[test]
fn nonsense_from_the_kernel_is_survived() {
    let files = files();
    let value = prop::sample::select(&[0.0, 1.0, 4_294_967_295.0, 1e15, 1e19][..]);
    let hit = (any::<prop::sample::Index>(), value, 0.0..8.0_f64);
    let strategy = (
        any::<prop::sample::Index>(),
        prop::collection::vec(hit, 1..8),
        prop::collection::vec(0..20_usize, 0..3),
        prop::sample::select(&[0.1, 0.5, 1.0, 5.0][..]),
    );
    let names = [
        "sockets",
        "netns-sockets",
        "disks",
        "cpu",
        "softirq",
        "sched",
        "net-counters",
        "psi",
        "cgroups",
        "processes",
        "runq-bpf",
        "irq-bpf",
        "block-bpf",
        "net-bpf",
        "netdev",
        "memory",
        "filesystems",
        "limits",
        "kmsg",
        "process-io",
    ];
    let mut runner =
        TestRunner::new(Config { cases: 96, failure_persistence: None, ..Config::default() });
    let result = runner.run(&strategy, |(file, hits, without, interval)| {
        let (name, incident) = &files[file.index(files.len())];
        let mut i: Incident = incident.clone();
        i.duration = i.duration.min(10.0);
        i.without.extend(without.iter().map(|n| names[*n].to_owned()));
        let keys: Vec<String> = play(&i, 1.0)
            .last()
            .map(|(_, s)| s.keys().map(ToString::to_string).collect())
            .unwrap_or_default();
        for (key, value, at) in hits {
            if !keys.is_empty() {
                i.steps.push(Step::set(
                    (at * 10.0).round() / 10.0,
                    &keys[key.index(keys.len())],
                    value,
                ));
            }
        }
        let r = run(name, &i, interval);
        for f in r.moments.iter().flat_map(|(_, f)| everything(f)) {
            let problem = malformed(f).filter(|p| !p.starts_with("nothing was ruled out"));
            prop_assert!(problem.is_none(), "{:?}", problem);
        }
        Ok(())
    });
    result.unwrap();
}

/// Rule by scenario: did it fire where it should, and was it quiet elsewhere?
#[test]
fn table_of_rules() {
    #[derive(Default)]
    struct Row {
        fired: u32,
        missed: u32,
        falsely: u32,
        quiet: u32,
        near_misses: u32,
        detail: Vec<String>,
    }
    let mut rows: BTreeMap<&str, Row> = RULES.iter().map(|r| (r.id().0, Row::default())).collect();
    for (i, run) in runs() {
        let (name, interval) = (&run.file, run.interval);
        let fired = run.fired();
        for (rule, row) in &mut rows {
            let expected = i.expect.iter().any(|e| e.is_wanted() && e.rule == *rule);
            let may = i.allow.iter().any(|a| a == rule);
            let near = i.quiet.iter().any(|q| q == rule);
            match (expected, fired.contains_key(rule)) {
                (true, true) => row.fired += 1,
                (true, false) => {
                    row.missed += 1;
                    row.detail.push(format!("missed {name} at {interval} s"));
                }
                (false, true) if !may => {
                    row.falsely += 1;
                    row.detail.push(format!("false in {name} at {interval} s"));
                }
                _ => {
                    row.quiet += 1;
                    row.near_misses += u32::from(near);
                }
            }
        }
    }
    println!("{} runs", runs().len());
    println!(
        "{:<32} {:>6} {:>6} {:>6} {:>6} {:>9} {:>9} {:>7}",
        "rule", "fired", "missed", "false", "quiet", "near miss", "precision", "recall"
    );
    for (rule, r) in &rows {
        let share = |a: u32, b: u32| f64::from(a) / f64::from((a + b).max(1));
        println!(
            "{rule:<32} {:>6} {:>6} {:>6} {:>6} {:>9} {:>9.2} {:>7.2}  {}",
            r.fired,
            r.missed,
            r.falsely,
            r.quiet,
            r.near_misses,
            share(r.fired, r.falsely),
            share(r.fired, r.missed),
            r.detail.join(", ")
        );
    }
    for (rule, r) in rows {
        assert!(r.fired > 0, "{rule} has no scenario in which it fires");
        assert!(r.near_misses > 0, "{rule} has no scenario in which it must stay quiet");
        assert_eq!((r.missed, r.falsely), (0, 0), "{rule}: {:?}", r.detail);
    }
}
