//! `tcp-receiver-not-reading`: a local process does not read from its socket.

use super::common::by_owner::by_owner;
use super::common::counters::{grown, is_udp, losers};
use super::common::doing;
use super::common::peers::{Group, by_service, enter, ss_dst};
use super::common::sockets::{Case, Cause, is_gone};
use super::common::text::{bytes, time};
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::Suspect;
use crate::sample::sockets::{Owner, SockState};
use crate::sample::subject::{SockId, Subject};

/// Fraction of the receive buffer from which the queue counts as full.
const FULL: f64 = 0.8;
/// A window that closes below this fraction is closed for another reason.
const SOME: f64 = 0.25;
/// An active finding clears below this fraction.
const CLEAR: f64 = 0.5;

/// Counters of received data that was dropped because nothing read it.
const DROPS: [&str; 2] = ["TcpExtTCPZeroWindowDrop", "TcpExtTCPRcvQDrop"];

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-receiver-not-reading"),
    title: "a local process does not read what its peers send",
    condition: "An established socket has unread bytes, none was read since the last sample, \
        and its receive queue is full: r at 80% of rb or more, or at 25% or more with the \
        advertised window closed (rcv_wnd 0 since 6.2; before, TCPToZeroWindowAdv grew since \
        the queue stopped moving), for 4 of 5 s. Critical when the kernel drops what still \
        arrives (TCPZeroWindowDrop, TCPRcvQDrop; the socket's own count d grows too). Clears \
        below 50% of rb.",
    look_alikes: "A bursty reader: more bytes arrive than the queue grows by, so some were \
        read. A reader that waits for a whole message (SO_RCVLOWAT) leaves little unread. On \
        the sender's side this is tcp-zero-window-stall.",
    remedy: "Find out what the process waits for: its stack and wchan, a lock, a disk, a \
        debugger, a CPU (is it throttled or waiting to run?), or its own peer. A larger buffer \
        only delays the problem.",
    sources: "net/ipv4/tcp_output.c, __tcp_select_window(). Measured on 6.18 with a peer that \
        accepts and never reads: r stays, rcv_wnd 0. netdata watches the same counters without \
        naming the process.",
    hold: Hold { need: 4, of: 5, clear: 3 },
    needs_time: Duration::from_secs(7),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Sockets],
    explains: &[
        Explains::new("tcp-zero-window-stall", Scope::OtherEnd),
        Explains::new("tcp-mem-pressure", Scope::Same),
    ],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let waits = |s: &&Suspect| {
        s.state == SockState::ESTAB && s.rqueue > 0 && !is_gone(w, s) && share(s).is_some()
    };
    let suspects = w.derived.sockets.suspects.iter().map(|s| &**s);
    let (full, rest): (Vec<_>, Vec<_>) =
        suspects.filter(waits).partition(|s| stands_still(s) && full(w, s).is_some());
    for g in by_service(full.into_iter().map(|s| Case::sure(s, Cause::Unread)), w) {
        out.fire(g.subject.clone(), fire(w, &g));
    }
    // A half-empty queue does not count as drained yet.
    let half = rest.into_iter().filter(|s| share(s).is_some_and(|x| x >= CLEAR));
    for g in by_service(half.map(|s| Case::sure(s, Cause::Unread)), w) {
        out.linger(g.subject);
    }
}

/// Data dropped because nothing read it. The counters cover the whole network namespace, so if any
/// sockets counted drops, one of these must be among them. The sockets' own counts are not used:
/// they include zero-window probes.
fn dropped(w: &Window<'_>, g: &Group<'_>) -> u64 {
    let counted: u64 =
        DROPS.iter().filter_map(|n| grown(w, g.netns(), n)).fold(0, u64::saturating_add);
    let lost = losers(w, g.netns(), |d| !is_udp(d));
    let own = lost.iter().any(|l| g.cases.iter().any(|c| c.socket.id == l.socket.id));
    if own || lost.is_empty() { counted } else { 0 }
}

/// r / rb.
fn share(s: &Suspect) -> Option<f64> {
    let (r, rb) = (s.skmem.r()?, s.skmem.rb()?);
    (rb > 0).then(|| f64::from(r) / f64::from(rb))
}

/// Nothing was read between two samples.
fn stands_still(s: &Suspect) -> bool {
    s.unread_since.is_some_and(|t| t < s.seen_at)
}

/// Did this socket have a lot of unread data at any time within `span`?
pub(super) fn lay_unread(w: &Window<'_>, id: SockId, span: Duration) -> bool {
    let moments = w.history.back_from(w.tick.seq);
    moments.take_while(|m| w.tick.mono.since(m.tick.mono) <= span).any(|m| {
        let s = m.derived.sockets.get(id);
        s.is_some_and(|s| s.rqueue > 0 && stands_still(s) && share(s).is_some_and(|x| x >= CLEAR))
    })
}

/// Why the queue counts as full.
fn full(w: &Window<'_>, s: &Suspect) -> Option<Evidence> {
    let (r, rb) = (s.skmem.r()?, s.skmem.rb()?);
    let pct = 100.0 * share(s)?;
    if pct >= 100.0 * FULL {
        let text = format!("r {r} of rb {rb}: {pct:.0}% of the receive buffer is unread");
        return Some(Evidence::new("r", pct, "%", text).over(100.0 * FULL));
    }
    if pct < 100.0 * SOME {
        return None;
    }
    match s.info.and_then(|i| i.rcv_wnd()) {
        Some(0) => {
            let text = format!("rcv_wnd 0: the window is closed at r {r} of rb {rb}");
            Some(Evidence::new("rcv_wnd", 0.0, "bytes", text))
        }
        Some(_) => None,
        None => {
            let still = w.tick.mono.since(s.unread_since?) + Duration::from_secs(2);
            let closed = w.counter(s.id.netns, "TcpExtTCPToZeroWindowAdv", still)?.delta;
            let text = format!("TCPToZeroWindowAdv +{closed} since the queue stopped moving");
            (closed > 0)
                .then(|| Evidence::new("TCPToZeroWindowAdv", closed as f64, "", text).over(1.0))
        }
    }
}

fn fire(w: &Window<'_>, g: &Group<'_>) -> Fire {
    let s = g.first().socket;
    let drops = dropped(w, g);
    let severity = if drops > 0 { Severity::Crit } else { Severity::Warn };
    let still = s.unread_since.map(|t| w.tick.mono.since(t)).unwrap_or_default();
    let unread: u64 = g.cases.iter().map(|c| u64::from(c.socket.rqueue)).sum();
    let owner = g.cases.iter().find_map(|c| c.socket.owner.as_ref());
    let who = owner.map_or_else(
        || format!("a process of uid {} does not read", s.uid),
        |o| match doing::halted(o) {
            Some(state) => format!("{}/{} is {state} and does not read", o.comm, o.pid),
            None => format!("{}/{} does not read", o.comm, o.pid),
        },
    );
    let mut f = Fire::new(
        severity,
        format!("{who}: {} with {} unread for {}", g.who(), bytes(unread), time(still)),
    );
    g.fill(&mut f, w);
    f.evidence.extend(full(w, s));
    let text = format!("Recv-Q {}, nothing read for {}", bytes(s.rqueue.into()), time(still));
    f.evidence.push(Evidence::new("recvq", s.rqueue.into(), "bytes", text));
    if let Some(ms) = s.info.and_then(|i| i.last_data_recv_ms()) {
        let text = format!("last data arrived {} ago", time(Duration::from_millis(ms.into())));
        f.evidence.push(Evidence::new("lastrcv", ms.into(), "ms", text));
    }
    if drops > 0 {
        let text = format!("+{drops} segments dropped in 10 s for lack of space");
        f.evidence.push(Evidence::new("TCPZeroWindowDrop", drops as f64, "", text).over(1.0));
    }
    if let Some(o) = owner {
        f.evidence.extend(doing::evidence(w, o));
    } else {
        f.missing.push("which process (its descriptors cannot be read)".to_owned());
    }
    let parts = g.cases.iter().map(|c| (c.socket.owner.as_ref(), f64::from(c.socket.rqueue)));
    f.by = by_owner(parts, 0.0, &Resource::Unread);
    rule_out(&mut f, s, g);
    next(&mut f, w, g, owner);
    f
}

fn rule_out(f: &mut Fire, s: &Suspect, g: &Group<'_>) {
    let because = match s.info.and_then(|i| i.bytes_received()) {
        Some(n) => format!("bytes_received {n}: all that arrived since is still queued"),
        None => format!("Recv-Q {} did not fall", s.rqueue),
    };
    f.ruled_out.push(RuledOut::new("bursty-reader", because));
    if let (Subject::Listener { .. }, Some(wq)) = (&g.subject, Some(s.wqueue).filter(|n| *n == 0)) {
        f.ruled_out.push(RuledOut::new("blocked-writer", format!("Send-Q {wq}")));
    }
}

fn next(f: &mut Fire, w: &Window<'_>, g: &Group<'_>, owner: Option<&Owner>) {
    let enter = enter(w, g.netns());
    if let Some(o) = owner {
        f.next.push(format!("cat /proc/{0}/wchan /proc/{0}/stack; strace -fp {0}", o.pid));
    }
    let filter = match &g.subject {
        Subject::Listener { local, .. } => format!("sport = :{}", local.port),
        _ => format!("dst {}", ss_dst(g.first().socket)),
    };
    f.next.push(format!("{enter}ss -tnmpi {filter}  # Recv-Q against rb"));
}
