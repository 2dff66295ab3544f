//! `tcp-zero-window-stall`: the peer advertises a zero window: its application does not read.

use std::collections::BTreeMap;

use super::common::by_owner::by_owner;
use super::common::evidence;
use super::common::peers::{Group, by_peer, enter, on_peer, ss_dst};
use super::common::sockets::{Cause, STORM_RTOS, ZERO_WINDOW, ZERO_WINDOW_EARLY, cases};
use super::common::text::{bytes, time};
use crate::diagnose::culprit::Culprit;
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::Suspect;

/// Critical after this.
const CRIT: Duration = Duration::from_secs(60);

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-zero-window-stall"),
    title: "the peer advertises a zero window: its application does not read",
    condition: "The persist timer runs, bytes wait in the send queue, snd_wnd is 0 and \
        bytes_acked is flat for 5 s; critical at 60 s, info from 3 s. Before Linux 5.4 there is \
        no snd_wnd: rwnd_limited must then grow by 90% of the time. For a stall that began \
        before observation did, the duration is inferred from the probes: each doubles their \
        interval. Clears when the window opens.",
    look_alikes: "A persist timer with an open window is a packet that this host refuses to \
        send: tcp-local-egress-drop. A window that opens slightly now and then moves \
        bytes_acked: slow, not stalled. Three or more unanswered probes mean that the peer's \
        kernel is silent too: check the path.",
    remedy: "Look at the peer: ss -tnm shows Recv-Q at rb; find out what its reader waits for \
        (stack, lock, disk, its own peer). On this side, set TCP_USER_TIMEOUT: a connection \
        with a zero window and a live peer stays open forever.",
    sources: "net/ipv4/tcp_timer.c, tcp_probe_timer(). Measured on 6.18 against a peer that \
        accepts and never reads: persist, backoff 5, rto constant at 212 ms, next probe after \
        6.8 s, rwnd_limited 99.5%.",
    hold: Hold::events(4),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Sockets],
    explains: &[Explains::new("tcp-mem-pressure", Scope::Same)],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let closed = cases(w, t).filter(|c| matches!(c.cause, Cause::ZeroWindow { .. }));
    for g in by_peer(closed, w) {
        out.fire(g.subject.clone(), fire(w, &g));
    }
}

fn fire(w: &Window<'_>, g: &Group<'_>) -> Fire {
    let s = g.first().socket;
    let longest = g.cases.iter().filter_map(|c| match c.cause {
        Cause::ZeroWindow { stalled } => Some(stalled),
        _ => None,
    });
    let stalled = longest.max().unwrap_or(ZERO_WINDOW);
    let waiting: u64 = g.cases.iter().map(|c| u64::from(c.socket.wqueue)).sum();
    let severity = if stalled >= CRIT {
        Severity::Crit
    } else if stalled >= ZERO_WINDOW {
        Severity::Warn
    } else {
        Severity::Info
    };
    let mut f = Fire::new(
        severity,
        format!(
            "{} stalled for {}: the peer's window is 0, {} queued",
            g.who(),
            time(stalled),
            bytes(waiting)
        ),
    );
    g.fill(&mut f, w);
    let limit = match severity {
        Severity::Crit => CRIT,
        Severity::Warn => ZERO_WINDOW,
        Severity::Info => ZERO_WINDOW_EARLY,
    };
    let text = format!("no progress for {} with snd_wnd 0", time(stalled));
    f.evidence
        .push(Evidence::new("stall", stalled.as_secs_f64(), "s", text).over(limit.as_secs_f64()));
    if let (Some(gap), Some(b)) = (s.probe_interval(), s.info.and_then(|i| i.backoff())) {
        let text = format!("persist timer, backoff {b}: probes up to {} apart", time(gap));
        f.evidence.push(Evidence::new("backoff", b.into(), "", text));
    }
    if let Some((us, dt)) = s.rwnd_limited.filter(|(_, dt)| !dt.is_zero()) {
        let pct = 100.0 * us.as_secs_f64() / dt.as_secs_f64();
        let text = format!("rwnd_limited {pct:.0}% of the last interval");
        f.evidence.push(Evidence::new("rwnd_limited", pct, "%", text));
    }
    f.evidence.extend(evidence::last_ack(s));
    let unanswered = s.unanswered_probes();
    if unanswered >= STORM_RTOS {
        let text =
            format!("{unanswered} probes without an answer: the peer's kernel is silent too");
        f.evidence.push(Evidence::new("probes", unanswered.into(), "", text));
    } else {
        f.ruled_out.push(RuledOut::new("dead-peer", "the peer's kernel answers the probes"));
    }
    if s.info.and_then(|i| i.snd_wnd()) == Some(0) {
        f.ruled_out.push(RuledOut::new("tcp-local-egress-drop", "snd_wnd is 0, not open"));
    }
    if s.acked_flat_since.is_some() {
        let because = "bytes_acked +0: a window that opens by a little would move it";
        f.ruled_out.push(RuledOut::new("slow-reader", because));
    }
    f.by = readers(w, g);
    f.ruled_out.push(RuledOut::new("tcp-rto-storm", "timer is persist: nothing is in flight"));
    let enter = enter(w, g.netns());
    f.next.push(format!("{enter}ss -tinmo dst {}", ss_dst(s)));
    let ss = format!("ss -tnmp sport = :{}  # Recv-Q against rb, and its reader", s.remote.port);
    f.next.push(on_peer(w, s, &ss));
    f
}

/// The processes of this host that do not read, where the other end is here as well.
fn readers(w: &Window<'_>, g: &Group<'_>) -> Vec<Culprit> {
    let mut all: BTreeMap<_, Option<&Suspect>> = BTreeMap::new();
    for s in w.derived.sockets.suspects.iter().filter(|s| s.rqueue > 0) {
        // Two namespaces may use the same addresses: which of them it is nobody can tell.
        all.entry((s.local, s.remote)).and_modify(|one| *one = None).or_insert(Some(s));
    }
    let other_end = |s: &Suspect| *all.get(&(s.remote, s.local))?;
    let unread = g.cases.iter().filter_map(|c| other_end(c.socket));
    let unread = unread.map(|s| (s.owner.as_ref(), f64::from(s.rqueue)));
    by_owner(unread, 0.0, &Resource::Unread)
}
