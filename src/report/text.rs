//! `check` as text, to be pasted into an incident channel: plain, narrow, no colour.

use std::fmt::Write as _;

use super::{CheckReport, clock_time};
use crate::diagnose::{Confidence, Finding, NotJudged, Severity, blind, limits};
use crate::sample::SignalStatus;
use crate::sample::subject::Subject;
use crate::text::sanitize;

/// How much is said of the rules that did not judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unjudged {
    /// How many they are.
    #[default]
    Counted,
    /// Which, and why.
    Listed,
}

/// The whole report; ends with a newline.
#[must_use]
pub fn render(r: &CheckReport, unjudged: Unjudged) -> String {
    let mut out = String::new();
    let (ok, all) = r.coverage_counts();
    let _ = writeln!(
        out,
        "stallscope check  {}  {}  {:.0} s  {} tick{}  {ok}/{all} signals{}",
        sanitize(&r.host.hostname),
        sanitize(&r.host.kernel),
        r.duration.as_secs_f64(),
        r.ticks,
        if r.ticks == 1 { "" } else { "s" },
        missing(r)
    );
    if let Some(rules) = limits::configured(&r.host.rules) {
        let _ = writeln!(out, "configured thresholds: {rules}");
    }
    for earlier in &r.earlier_rules {
        let rules = limits::configured(earlier).unwrap_or_else(|| "none".to_owned());
        let _ = writeln!(out, "configured thresholds earlier in this recording: {rules}");
    }
    for f in &r.findings {
        if f.cause.is_some() {
            consequence(&mut out, f);
        } else {
            finding(&mut out, f, r.severity(f));
        }
    }
    for n in &r.annotations {
        let _ = writeln!(out, "-  {:<21} {}", n.rule.0, sanitize(&n.fire.summary));
    }
    if let Some([first, rest @ ..]) = r.unread.as_deref() {
        let more =
            if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
        let _ = writeln!(out, "?  unreadable: {}{more}", sanitize(first));
    }
    out.push_str(&summary(r, unjudged));
    out
}

fn missing(r: &CheckReport) -> String {
    let missing: Vec<String> = r
        .coverage
        .iter()
        .filter_map(|s| match &s.status {
            SignalStatus::Missing { reason, .. } => {
                Some(format!("{}: {}", sanitize(&s.signal), sanitize(reason)))
            }
            _ => None,
        })
        .collect();
    if missing.is_empty() { String::new() } else { format!(" ({})", missing.join("; ")) }
}

/// A consequence of the finding before it, in one line. JSON has the numbers.
fn consequence(out: &mut String, f: &Finding) {
    let _ = writeln!(
        out,
        "   so: {:<2} {}  {}, since {}",
        f.fire.severity.mark(),
        f.rule.0,
        sanitize(&f.fire.summary),
        clock_time(f.first_seen)
    );
}

/// One finding: summary, evidence, who causes it, what was ruled out, next commands. Its mark includes its
/// consequences.
pub(super) fn finding(out: &mut String, f: &Finding, severity: Severity) {
    let suspected = match f.fire.confidence {
        Confidence::Confirmed => "",
        Confidence::Suspected => " (suspected)",
    };
    let ended =
        if f.active { String::new() } else { format!(", ended {}", clock_time(f.last_seen)) };
    // Pasted text has no clock.
    let when = match (f.last_seen.0 > 0, f.active) {
        (true, _) => format!(", since {}{ended}", clock_time(f.first_seen)),
        (false, true) => String::new(),
        (false, false) => ", not in the last samples".to_owned(),
    };
    let _ = writeln!(
        out,
        "{:<2} {:<21} {}{suspected}{when}",
        severity.mark(),
        f.rule.0,
        sanitize(&f.fire.summary),
    );
    let scope = scope(f);
    if !scope.is_empty() {
        let _ = writeln!(out, "   {}", sanitize(&scope));
    }
    for e in &f.fire.evidence {
        let _ = writeln!(out, "   {}", sanitize(&e.text));
    }
    for c in &f.fire.by {
        let _ = writeln!(out, "   by: {}", sanitize(&c.to_string()));
    }
    if !f.fire.ruled_out.is_empty() {
        let not: Vec<String> = f
            .fire
            .ruled_out
            .iter()
            .map(|r| format!("{} ({})", sanitize(&r.rule), sanitize(&r.because)))
            .collect();
        let _ = writeln!(out, "   not: {}", not.join(", "));
    }
    for m in &f.fire.missing {
        let _ = writeln!(out, "   cannot tell: {}", sanitize(m));
    }
    for n in &f.fire.next {
        let _ = writeln!(out, "   next: {}", sanitize(n));
    }
}

/// Where it is, and what of it is affected by name. Raw.
pub(super) fn scope(f: &Finding) -> String {
    let mut parts = Vec::new();
    if let Subject::Peer { netns, .. }
    | Subject::Listener { netns, .. }
    | Subject::Process { netns, .. }
    | Subject::UnixListener { netns, .. }
    | Subject::Link { netns, .. } = f.subject
        && netns.0 != 0
    {
        parts.push(format!("netns {netns}"));
    }
    if !f.fire.examples.is_empty() {
        let more = f.fire.count as usize - f.fire.examples.len().min(f.fire.count as usize);
        let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
        parts.push(format!("{}{tail}", f.fire.examples.join(", ")));
    }
    parts.join("  ")
}

/// What was found, in a few words. "No findings" covers only what was checked.
pub(super) fn verdict(r: &CheckReport, most: usize) -> String {
    let folded = r.findings.iter().filter(|f| f.cause.is_some()).count();
    let mut out = match r.findings.len() - folded {
        0 => return blind::all_clear(&r.blind, most),
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    match folded {
        0 => {}
        1 => out.push_str(" and 1 consequence"),
        n => {
            let _ = write!(out, " and {n} consequences");
        }
    }
    if !r.blind.is_empty() {
        let _ = write!(out, "; not checked: {}", blind::clause(&r.blind, most));
    }
    out
}

fn summary(r: &CheckReport, unjudged: Unjudged) -> String {
    let mut out = verdict(r, blind::SHOWN);
    out.get_mut(..1).map(str::make_ascii_uppercase);
    out.push('.');
    match (r.not_judged.len(), unjudged) {
        (0, _) => {}
        (_, Unjudged::Listed) => {
            let _ = write!(out, " Not judged: {}.", not_judged(&r.not_judged));
        }
        (_, Unjudged::Counted) => {
            let mut rules: Vec<&str> = r.not_judged.iter().map(|n| n.rule.0).collect();
            rules.sort_unstable();
            rules.dedup();
            let s = if rules.len() == 1 { "" } else { "s" };
            let _ = write!(out, " Not judged: {} rule{s}; --verbose says why.", rules.len());
        }
    }
    out.push('\n');
    out
}

/// The rules by the reason they share: in a short run it is the same for nearly all of them.
pub(super) fn not_judged(all: &[NotJudged]) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for n in all {
        match groups.iter_mut().find(|g| g.0 == n.why) {
            Some(g) if g.1.contains(&n.rule.0) => {}
            Some(g) => g.1.push(n.rule.0),
            None => groups.push((&n.why, vec![n.rule.0])),
        }
    }
    let texts: Vec<String> = groups
        .iter()
        .map(|(why, rules)| format!("{} ({})", rules.join(", "), sanitize(why)))
        .collect();
    texts.join("; ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::diagnose::culprit::{Culprit, Resource, Sched, Share, Who};
    use crate::diagnose::{Evidence, Fire, RuleId, RuledOut};
    use crate::sample::time::{MonoNs, WallNs};

    /// A name that a process gave itself is shown and not obeyed.
    #[test]
    fn who_causes_it_comes_after_the_evidence() {
        let share = Share::new(61.25, 100.0, Resource::AllCpus).unwrap();
        let who = Who::Process { pid: 7, comm: Some("a\x1b[2J\u{202e}".to_owned()) };
        let cgroup = Some("/x\n".to_owned());
        let mut fire = Fire::new(Severity::Warn, "busy");
        fire.evidence.push(Evidence::text("e", "evidence"));
        fire.by.push(Culprit { who, share, sched: Sched::default(), cgroup });
        fire.ruled_out.push(RuledOut::new("other", "a number"));
        let f = Finding {
            rule: RuleId("x"),
            subject: Subject::Host,
            fire,
            since: MonoNs(0),
            first_seen: WallNs(0),
            last_seen: WallNs(0),
            active: true,
            cause: None,
        };
        let mut out = String::new();
        finding(&mut out, &f, Severity::Warn);
        let want = "!  x                     busy\n   evidence\n   \
            by: a\u{FFFD}[2J\u{FFFD}/7 with 61% of the CPU time, in /x\u{FFFD}\n   \
            not: other (a number)\n";
        assert_eq!(out, want);
    }

    #[test]
    fn rules_that_lack_the_same_are_named_together() {
        let n = |rule, why: &str| NotJudged { rule: RuleId(rule), why: why.to_owned() };
        let all =
            [n("a", "needs 5 s"), n("b", "no \x1b"), n("c", "needs 5 s"), n("a", "needs 5 s")];
        assert_eq!(not_judged(&all), "a, c (needs 5 s); b (no \u{FFFD})");
    }
}
