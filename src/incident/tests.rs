//! Incidents by ticks of one second.

use super::*;
use crate::diagnose::Fire;
use crate::sample::time::WallNs;

const S: Duration = Duration::from_secs(1);

fn finding(rule: &'static str, severity: Severity, cause: Option<&'static str>) -> Arc<Finding> {
    Arc::new(Finding {
        rule: RuleId(rule),
        subject: Subject::Host,
        fire: Fire::new(severity, rule),
        since: MonoNs(0),
        first_seen: WallNs(0),
        last_seen: WallNs(0),
        active: true,
        cause: cause.map(|c| (RuleId(c), Subject::Host)),
    })
}

fn warn(rule: &'static str) -> Arc<Finding> {
    finding(rule, Severity::Warn, None)
}

/// All of these, sorted into causes and consequences.
fn findings(all: &[Arc<Finding>]) -> Findings {
    let (active, folded) = all.iter().cloned().partition(|f| f.cause.is_none());
    Findings { active, folded, ..Findings::default() }
}

fn watch(trigger: Trigger) -> Watch {
    Watch::new(Settings { trigger, after: 120 * S, longest: 1800 * S, quiet: 600 * S })
}

fn at_warn() -> Watch {
    watch(Trigger::Severity(Severity::Warn))
}

/// What happens at each second from `from` to `to` while these last, each with its second.
fn run(w: &mut Watch, from: u64, to: u64, all: &[Arc<Finding>]) -> Vec<(u64, String)> {
    let all = findings(all);
    let mut out = Vec::new();
    for second in from..to {
        let step = w.push(MonoNs(second * 1_000_000_000), &all);
        out.extend(step.end.map(|why| (second, format!("end {}", why.name()))));
        if let Some((f, suppressed)) = step.begin {
            w.kept();
            out.push((second, format!("begin {} {suppressed}", f.rule)));
        }
        out.extend(step.joined.iter().map(|f| (second, format!("join {}", f.rule))));
    }
    out
}

fn said(at: u64, what: &str) -> (u64, String) {
    (at, what.to_owned())
}

#[test]
fn a_finding_begins_an_incident_that_ends_after_its_time() {
    let mut w = at_warn();
    assert!(run(&mut w, 0, 10, &[]).is_empty());
    assert_eq!(run(&mut w, 10, 60, &[warn("a")]), [said(10, "begin a 0")]);
    assert_eq!(w.ends_at(), Some(MonoNs(130_000_000_000)));
    // It lasts, which is no new beginning.
    assert_eq!(run(&mut w, 60, 5000, &[warn("a")]), [said(130, "end over")]);
    assert_eq!(w.ends_at(), None);
}

#[test]
fn it_must_be_of_the_severity_that_was_asked_for() {
    let mut w = at_warn();
    let info = finding("a", Severity::Info, None);
    assert!(run(&mut w, 0, 50, &[info]).is_empty());
    // It has become worse.
    assert_eq!(run(&mut w, 50, 60, &[warn("a")]), [said(50, "begin a 0")]);
    let mut w = watch(Trigger::Rules(vec![RuleId("a")]));
    let info = finding("a", Severity::Info, None);
    let other = finding("b", Severity::Crit, None);
    assert_eq!(run(&mut w, 0, 50, &[other, info]), [said(0, "begin a 0")]);
}

#[test]
fn further_findings_prolong_it_up_to_the_longest_time() {
    let mut w = at_warn();
    assert_eq!(run(&mut w, 0, 100, &[warn("a")]), [said(0, "begin a 0")]);
    let two = [warn("a"), warn("b")];
    assert_eq!(run(&mut w, 100, 230, &two), [said(100, "join b"), said(220, "end over")]);
    // One that comes and goes every 100 s keeps it open.
    let mut w = at_warn();
    let mut all = Vec::new();
    for n in 0..20 {
        all.extend(run(&mut w, n * 100, n * 100 + 50, &[warn("a")]));
        all.extend(run(&mut w, n * 100 + 50, n * 100 + 100, &[]));
    }
    assert_eq!(all.first(), Some(&said(0, "begin a 0")));
    let joins = (1..18).map(|n| said(n * 100, "join a"));
    assert!(all[1..18].iter().cloned().eq(joins), "{all:?}");
    // At 1800 it ended; what began then is the same, and is not told again.
    assert_eq!(all[18..], [said(1800, "end longest")]);
    assert_eq!(w.suppressed(), 2, "at 1800 and 1900");
}

#[test]
fn a_cause_begins_no_other_incident_while_it_is_quiet() {
    let mut w = at_warn();
    run(&mut w, 0, 200, &[warn("a")]);
    // Its end was at 120: quiet until 720.
    run(&mut w, 200, 300, &[]);
    assert!(run(&mut w, 300, 310, &[warn("a")]).is_empty());
    run(&mut w, 310, 400, &[]);
    assert_eq!(w.suppressed(), 1);
    // Another cause is not meant, and its file says what was left out.
    assert_eq!(run(&mut w, 400, 410, &[warn("b")]), [said(400, "begin b 1")]);
    assert_eq!(w.suppressed(), 0);
    // Within an incident it is a part of it, quiet or not.
    assert_eq!(run(&mut w, 410, 500, &[warn("a"), warn("b")]), [said(410, "join a")]);
    assert_eq!(run(&mut w, 500, 600, &[]), [said(530, "end over")]);
    assert!(run(&mut w, 720, 730, &[warn("a")]).is_empty(), "from the end of the last one");
    run(&mut w, 730, 1129, &[]);
    assert!(run(&mut w, 1129, 1130, &[warn("a")]).is_empty());
    run(&mut w, 1130, 1131, &[]);
    assert_eq!(run(&mut w, 1131, 1132, &[warn("a")]), [said(1131, "begin a 2")]);
}

#[test]
fn another_subject_is_another_cause() {
    let mut w = at_warn();
    run(&mut w, 0, 200, &[warn("a")]);
    let mut other = (*warn("a")).clone();
    other.subject = Subject::Cpu { cpu: crate::sample::subject::CpuId(3) };
    let two = [warn("a"), Arc::new(other)];
    assert_eq!(run(&mut w, 200, 201, &two), [said(200, "begin a 0")]);
}

#[test]
fn a_consequence_begins_nothing_of_its_own() {
    let mut w = at_warn();
    let cause = warn("disk-hung");
    run(&mut w, 0, 1000, std::slice::from_ref(&cause));
    let folded = finding("fs-flush-bound", Severity::Crit, Some("disk-hung"));
    assert!(run(&mut w, 1000, 1010, &[cause.clone(), folded.clone()]).is_empty());
    assert_eq!(w.suppressed(), 0, "it is not one that quiet kept out");
    // When its cause has gone, it has been active for long.
    let alone = warn("fs-flush-bound");
    assert!(run(&mut w, 1010, 1020, &[alone]).is_empty());
    // Under a cause that is only worth knowing, it is what makes the group one of warn.
    let mut w = at_warn();
    let info = finding("disk-hung", Severity::Info, None);
    assert!(run(&mut w, 0, 10, std::slice::from_ref(&info)).is_empty());
    assert_eq!(run(&mut w, 10, 20, &[info, folded.clone()]), [said(10, "begin disk-hung 0")]);
    // Who asked for it by name gets it, under its cause.
    let mut w = watch(Trigger::Rules(vec![RuleId("fs-flush-bound")]));
    run(&mut w, 0, 10, std::slice::from_ref(&cause));
    assert_eq!(run(&mut w, 10, 20, &[cause, folded]), [said(10, "begin disk-hung 0")]);
}

#[test]
fn a_cause_that_is_found_later_is_another_beginning() {
    let mut w = at_warn();
    assert_eq!(run(&mut w, 0, 10, &[warn("a")]), [said(0, "begin a 0")]);
    let folded = finding("a", Severity::Warn, Some("b"));
    assert_eq!(run(&mut w, 10, 20, &[warn("b"), folded]), [said(10, "join b")]);
    assert_eq!(w.ends_at(), Some(MonoNs(130_000_000_000)));
}

#[test]
fn several_at_once_are_one_incident_of_the_first_that_is_not_quiet() {
    let mut w = at_warn();
    run(&mut w, 0, 200, &[warn("a")]);
    run(&mut w, 200, 300, &[]);
    let got = run(&mut w, 300, 301, &[warn("a"), warn("b"), warn("c")]);
    assert_eq!(got, [said(300, "begin b 0"), said(300, "join a"), said(300, "join c")]);
    assert_eq!(w.suppressed(), 0);
}

#[test]
fn what_could_not_be_written_does_not_silence_the_next_one() {
    let mut w = at_warn();
    assert!(w.push(MonoNs(0), &findings(&[warn("a")])).begin.is_some());
    w.end(MonoNs(1));
    assert!(w.push(MonoNs(2), &findings(&[])).begin.is_none());
    assert!(w.push(MonoNs(3), &findings(&[warn("a")])).begin.is_some());
    w.kept();
    w.end(MonoNs(4));
    assert!(w.push(MonoNs(5), &findings(&[])).begin.is_none());
    assert!(w.push(MonoNs(6), &findings(&[warn("a")])).begin.is_none());
    assert_eq!(w.suppressed(), 1);
    let again = w.push(MonoNs(7), &findings(&[warn("b"), warn("a")]));
    assert!(again.begin.is_some() && again.quiet.is_empty());
}

#[test]
fn causes_are_found_again_when_they_have_cleared() {
    let mut all = findings(&[warn("a")]);
    all.cleared.push(warn("b"));
    let of = |rule| Cause { rule: RuleId(rule), subject: Subject::Host };
    assert_eq!(of("a").in_findings(&all).map(|f| f.rule), Some(RuleId("a")));
    assert_eq!(of("b").in_findings(&all).map(|f| f.rule), Some(RuleId("b")));
    assert!(of("c").in_findings(&all).is_none());
}
