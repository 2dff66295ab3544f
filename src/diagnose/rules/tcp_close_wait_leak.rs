//! `tcp-close-wait-leak`: a process does not close connections that its peers have closed.

use super::common::by_owner::by_owner;
use super::common::peers::enter;
use super::common::text::time;
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::{Closer, Closing, OLD, SpaceFigures};
use std::collections::BTreeMap;

/// Connections of one process in CLOSE-WAIT.
const MANY: f64 = 100.0;
/// 60 s, less the slack of a tick.
const STEADY: Duration = Duration::from_millis(58_500);
/// Fraction of the sampled connections that must be old and silent.
const MOST: f64 = 0.5;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-close-wait-leak"),
    title: "a process does not close connections that its peers have closed",
    condition: "One process has 100 or more connections in CLOSE-WAIT, their number has not \
        fallen for 60 s, and most of the oldest have been there for 60 s without sending \
        anything. Until it has been observed for 60 s it is suspected, from the time of the \
        last ACK. Beyond 128 of them, the oldest 128 stand for all.",
    look_alikes: "Protocols with a half-closed phase: the connections still send, and come and \
        go, so none gets old. A stuck process that will close them later does not read either \
        (tcp-receiver-not-reading).",
    remedy: "The code must close the socket after read() returns 0; check pools and error \
        paths. Until that is fixed descriptors run out: compare with the limit, restart the \
        process in time.",
    sources: "CLOSE_WAIT has no timeout in the kernel; tsar's tcpx shows the number per host. A \
        single one is normal.",
    hold: Hold::events(6),
    needs_time: Duration::from_secs(62),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Sockets],
    explains: &[Explains::new("tcp-mem-pressure", Scope::Same)],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for s in &w.derived.sockets.spaces {
        let Some(closing) = &s.closing else { continue };
        let netns = s.netns;
        let holders = holders(closing);
        // Once the process is known, it is the subject, not the namespace.
        if holders.iter().all(|h| h.owner.is_some() || h.estimate < 0.7 * MANY) {
            out.clear(Subject::Netns { netns });
        }
        for h in holders {
            let subject = match h.owner {
                Some((pid, comm)) => Subject::Process { pid, comm: comm.to_owned(), netns },
                None => Subject::Netns { netns },
            };
            if h.estimate < 0.7 * MANY {
                continue;
            }
            let leaks = h.estimate >= MANY && h.forgotten() >= MOST;
            if leaks {
                out.fire(subject, fire(w, s, closing, &h));
            } else {
                out.linger(subject);
            }
        }
    }
}

/// The sampled connections of one process.
struct Holder<'a> {
    owner: Option<(u32, &'a str)>,
    sampled: Vec<&'a Closer>,
    /// Estimated number of its connections, from its fraction of the sample.
    estimate: f64,
}

impl Holder<'_> {
    /// Fraction of its sampled connections that are old and silent.
    fn forgotten(&self) -> f64 {
        let old = |c: &&&Closer| c.age >= OLD && c.last_sent.is_none_or(|t| t >= OLD);
        self.sampled.iter().filter(old).count() as f64 / self.sampled.len().max(1) as f64
    }
}

fn holders(closing: &Closing) -> Vec<Holder<'_>> {
    let mut by_pid: BTreeMap<Option<u32>, Holder<'_>> = BTreeMap::new();
    for c in &closing.sampled {
        let owner = c.owner.as_ref().map(|o| (o.pid, o.comm.as_str()));
        by_pid
            .entry(owner.map(|o| o.0))
            .or_insert_with(|| Holder { owner, sampled: Vec::new(), estimate: 0.0 })
            .sampled
            .push(c);
    }
    let mut out: Vec<Holder<'_>> = by_pid.into_values().collect();
    let all = closing.sampled.len().max(1) as f64;
    for h in &mut out {
        h.estimate = f64::from(closing.count) * h.sampled.len() as f64 / all;
    }
    out
}

fn fire(w: &Window<'_>, s: &SpaceFigures, closing: &Closing, h: &Holder<'_>) -> Fire {
    let who = h.owner.map_or("some process".to_owned(), |(pid, comm)| format!("{comm}/{pid}"));
    let n = h.estimate.round();
    let mut f = Fire::new(
        Severity::Warn,
        format!("{who} does not close {n:.0} connections that its peers closed"),
    );
    f.count = (n as u32).max(1);
    f.examples = h.sampled.iter().take(5).map(|c| format!("{} -> {}", c.local, c.remote)).collect();
    f.sockets = h.sampled.iter().map(|c| c.id).collect();
    let sampled = closing.sampled.iter().map(|c| (c.owner.as_ref(), 1.0));
    f.by = by_owner(sampled, 0.0, &Resource::Unclosed);
    f.by.retain(|c| c.who.pid() == h.owner.map(|o| o.0));
    let text = format!("{n:.0} in CLOSE-WAIT ({} sampled)", h.sampled.len());
    f.evidence.push(Evidence::new("CLOSE-WAIT", n, "", text).over(MANY));
    let oldest = h.sampled.iter().map(|c| c.age).max().unwrap_or_default();
    let text = format!("the oldest for at least {}", time(oldest));
    f.evidence.push(Evidence::new("age", oldest.as_secs_f64(), "s", text).over(OLD.as_secs_f64()));
    let steady = w.tick.mono.since(closing.steady_since);
    let grown = i64::from(closing.count) - i64::from(closing.at_first);
    let per_min = grown as f64 / (steady.as_secs_f64() / 60.0).max(1.0 / 60.0);
    let text = format!("{grown:+} in {}: {per_min:+.0}/min", time(steady));
    f.evidence.push(Evidence::new("growth", per_min, "/min", text));
    if steady < STEADY {
        f.confidence = Confidence::Suspected;
        let why = format!("whether their number falls: watched for only {}", time(steady));
        f.missing.push(why);
    }
    if let Some((pid, _)) = h.owner {
        f.next.push(format!("ls /proc/{pid}/fd | wc -l; grep 'open files' /proc/{pid}/limits"));
    } else {
        f.confidence = Confidence::Suspected;
        f.missing.push("which process (its descriptors cannot be read)".to_owned());
    }
    if h.sampled.iter().all(|c| c.last_sent.is_none()) {
        f.confidence = Confidence::Suspected;
        f.missing.push("whether they still send (no tcp_info)".to_owned());
    }
    let pct = 100.0 * h.forgotten();
    let because = format!("{pct:.0}% of those sampled are that old and sent nothing for 60 s");
    f.ruled_out.push(RuledOut::new("half-closed-protocol", because));
    let enter = enter(w, s.netns);
    f.next.push(format!("{enter}ss -tnpo state close-wait"));
    f
}
