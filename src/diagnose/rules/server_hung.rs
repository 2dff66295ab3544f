//! `server-hung`: a server reads no requests and answers none.

use super::common::by_owner::all_by;
use super::common::doing::{evidence, halted, holder};
use super::common::peers::{enter, example};
use super::common::text::{bytes, count, time};
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::Still;
use crate::sample::sockets::Owner;

/// Minimum time without progress.
const STILL: Duration = Duration::from_secs(5);
/// The same for a stopped process, where the state is evidence enough.
const STILL_HALTED: Duration = Duration::from_secs(3);
/// Critical from here on: clients will have given up.
const CRIT: Duration = Duration::from_secs(15);
/// Maximum number of examples in a finding.
const EXAMPLES: usize = 5;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("server-hung"),
    title: "a server is hung: it reads no requests and answers none",
    condition: "On 3 or more established connections of one process, or of one listener that \
        nothing accepts from, the same bytes stay unread for 5 s (3 s if the process is \
        stopped), and no connection of that process makes progress: nothing is read from a \
        receive queue, nothing is queued for sending, nothing is accepted. The connections were \
        read or answered at some time before, or they wait to be accepted. Critical from 15 s. \
        Clears as soon as one connection makes progress.",
    look_alikes: "Backpressure, or one slow request: other connections of the process make \
        progress. A stalled reader of one large stream fills its buffer: \
        tcp-receiver-not-reading. A protocol that never reads what it is sent has never read a \
        byte.",
    remedy: "See what the process does instead. Stopped: `kill -CONT` it, or detach the \
        debugger. One thread at 100%: a long script or query blocks the event loop; end that \
        one. D state: the disk or remote file system that it waits for. Asleep: a lock, an \
        exhausted pool, or a server behind it; the stack shows which.",
    sources: "Recv-Q, tcpi_bytes_received and tcpi_bytes_acked of sock_diag (since 4.1); inode \
        0 marks a connection not accepted yet. Measured on 6.18: redis in a script of 30 s with \
        60 clients shows Recv-Q 48 on each, and no buffer fills.",
    hold: Hold::events(2),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Sockets],
    explains: &[
        Explains::new("tcp-receiver-not-reading", Scope::Same),
        Explains::new("tcp-listen-overflow", Scope::Same),
        Explains::new("tcp-zero-window-stall", Scope::OtherEnd),
        Explains::new("tcp-close-wait-leak", Scope::Same),
    ],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for s in &w.derived.sockets.still {
        let still = s.at.since(s.since);
        let halted = s.owner.as_ref().and_then(halted).is_some();
        let enough = if halted { STILL_HALTED } else { STILL };
        if still >= enough && (s.worked || s.waiting > 0) {
            let subject = Subject::Listener { local: s.local, netns: s.netns };
            out.fire(subject, fire(w, s, still));
        }
    }
}

fn fire(w: &Window<'_>, s: &Still, still: Duration) -> Fire {
    let severity = if still >= CRIT { Severity::Crit } else { Severity::Warn };
    let n = count(s.unread.len(), "connection");
    let for_ = time(still);
    let who = s.owner.as_ref().map_or_else(|| s.local.to_string(), holder);
    let state = s.owner.as_ref().and_then(halted);
    let does = state.map_or("does not answer".to_owned(), |state| format!("is {state}"));
    let mut f = Fire::new(
        severity,
        format!("{who} {does}: {n} on {} with unread requests, no progress for {for_}", s.local),
    );
    f.count = u32::try_from(s.unread.len()).unwrap_or(u32::MAX);
    f.since = Some(s.since);
    f.sockets.clone_from(&s.unread);
    let suspects = s.unread.iter().filter_map(|id| w.derived.sockets.get(*id));
    f.examples = suspects.take(EXAMPLES).map(|x| example(x)).collect();
    let text = format!("{} unread on {n}, none of it read for {for_}", bytes(s.bytes));
    f.evidence.push(Evidence::new("recvq", s.bytes as f64, "bytes", text));
    if s.waiting > 0 {
        let text = format!("{} of these waiting to be accepted", s.waiting);
        f.evidence.push(Evidence::new("waiting", s.waiting.into(), "", text));
    }
    match &s.owner {
        Some(o) => f.evidence.extend(evidence(w, o)),
        None => f.missing.push("which process (its descriptors cannot be read)".to_owned()),
    }
    f.by = all_by(s.owner.as_ref(), &Resource::Unread);
    if s.unsent > 0 {
        let text = format!("{} sent earlier, still not acknowledged", bytes(s.unsent));
        f.evidence.push(Evidence::new("sendq", s.unsent as f64, "bytes", text));
    }
    let all = count(s.connections as usize, "connection");
    let because = format!("none of its {all} was read from, written to or accepted for {for_}");
    f.ruled_out.push(RuledOut::new("one-slow-request", because));
    if s.worked {
        let because = "these connections were read or answered before".to_owned();
        f.ruled_out.push(RuledOut::new("protocol-that-never-reads", because));
    }
    next(&mut f, w, s);
    f
}

fn next(f: &mut Fire, w: &Window<'_>, s: &Still) {
    if let Some(o) = &s.owner {
        let Owner { pid, .. } = o;
        f.next.push(if halted(o).is_some() {
            format!("grep -E '^(State|TracerPid|PPid)' /proc/{pid}/status; kill -CONT {pid}")
        } else {
            format!("cat /proc/{pid}/wchan /proc/{pid}/stack; top -b -n 1 -H -p {pid}")
        });
    }
    f.next.push(format!("{}ss -tnmpi sport = :{}", enter(w, s.netns), s.local.port));
}
