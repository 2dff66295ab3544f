//! `tcp-silent-rto`: the retransmission timer fires, but nothing leaves this host.

use super::common::peers::{Group, by_peer, device, enter, ss_dst};
use super::common::sockets::{Cause, Silence, cases};
use super::common::{evidence, text::sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::TimerKind;
use crate::sample::sockets::RouteOutcome;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-silent-rto"),
    title: "the retransmission timer fires, but nothing leaves this host",
    condition: "2 or more consecutive RTOs with data_segs_out and total_retrans flat, and not \
        tcp-tb-lt-w-stall. The cause is no-route when the kernel's route lookup for the peer \
        fails; stuck-in-qdisc-or-nic when t > 0 or TCPSpuriousRtxHostQueues grew with the RTOs \
        (the original is still queued below TCP, so it is not sent twice); otherwise unknown. \
        With fewer than two RTOs seen it is suspected when last_data_sent is older than the \
        RTO. Clears when a retransmission leaves or data is acknowledged.",
    look_alikes: "A dead peer or path: retransmissions leave, total_retrans grows by one with \
        each RTO (tcp-rto-storm). A full local queue that refuses a segment keeps the RTO \
        constant. A closed window runs the persist timer (tcp-zero-window-stall).",
    remedy: "no-route: fix the route, address or policy rule; OutNoRoutes does not count this \
        case. stuck-in-qdisc-or-nic: look for a shaper with far too low a rate, a NIC with a \
        stopped transmit queue (tx_timeout, BQL inflight at its limit), a paused vhost or veth \
        peer. unknown: check eBPF programs on the socket, mark-based policy routing, IPsec \
        policies without a state.",
    sources: "net/ipv4/tcp_timer.c: tcp_retransmit_timer() doubles the RTO when \
        tcp_retransmit_skb() returns an error, as if it had sent. Measured on 6.18 with a \
        deleted route (data_segs_out 12 over 7 s, backoff 3 to 5) and with a 1 kbit/s token \
        bucket (t 27360, TCPSpuriousRtxHostQueues +4).",
    hold: Hold::events(4),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Sockets],
    explains: &[
        Explains::new("tcp-retrans-rate", Scope::Netns),
        Explains::new("tcp-connect-stuck", Scope::Same),
    ],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let silent = cases(w, t).filter(|c| matches!(c.cause, Cause::Silent(_)));
    for g in by_peer(silent, w) {
        out.fire(g.subject.clone(), fire(w, &g));
    }
}

fn fire(w: &Window<'_>, g: &Group<'_>) -> Fire {
    let first = g.first();
    let s = first.socket;
    let why = match first.cause {
        Cause::Silent(why) => why,
        _ => Silence::Unknown,
    };
    let reason = match why {
        Silence::NoRoute(errno) => format!("no route ({})", errno_name(errno)),
        Silence::QdiscOrNic => "packets stuck in qdisc or NIC".to_owned(),
        Silence::Unknown => "cause unknown".to_owned(),
    };
    let sure = first.confidence == Confidence::Confirmed;
    let mut f = Fire::new(
        if sure { Severity::Crit } else { Severity::Warn },
        format!("{}: RTOs fire but nothing leaves this host: {reason}", g.who()),
    );
    g.fill(&mut f, w);
    f.evidence.push(Evidence::text("cause", name(why)));
    f.evidence.extend(evidence::rto(s));
    f.evidence.extend(evidence::sent(s, TimerKind::Rto));
    ladder(&mut f, g, why);
    f.evidence.extend(evidence::outstanding(s));
    rule_out(&mut f, g);
    next(&mut f, w, g, why);
    f
}

/// Stable names of the causes.
fn name(why: Silence) -> &'static str {
    match why {
        Silence::NoRoute(_) => "no-route",
        Silence::QdiscOrNic => "stuck-in-qdisc-or-nic",
        Silence::Unknown => "unknown",
    }
}

/// Adds evidence of where the packet is stuck.
fn ladder(f: &mut Fire, g: &Group<'_>, why: Silence) {
    let s = g.first().socket;
    match why {
        Silence::NoRoute(e) => {
            let text = format!("the route lookup for {} returns {}", s.remote.addr, errno_name(e));
            f.evidence.push(Evidence::new("route", e.into(), "errno", text));
        }
        Silence::QdiscOrNic => {
            let t = s.skmem.t().unwrap_or(0);
            let text = format!("t {t}: handed to the qdisc or driver and not freed");
            f.evidence.push(Evidence::new("t", t.into(), "bytes", text).over(0.0));
        }
        Silence::Unknown => {}
    }
    let queues = s.events.iter().filter_map(|e| e.net.host_queues).max();
    if let Some(n) = queues.filter(|n| *n > 0) {
        let text = format!("TCPSpuriousRtxHostQueues +{n} with the RTOs");
        f.evidence.push(Evidence::new("TCPSpuriousRtxHostQueues", n as f64, "", text));
    }
    if let (Some(RouteOutcome::Via { dev, .. }), true) = (&s.route, why != Silence::Unknown) {
        f.evidence.push(Evidence::text("route", format!("a route exists through {dev}")));
    }
}

fn rule_out(f: &mut Fire, g: &Group<'_>) {
    let s = g.first().socket;
    if let Some(n) = s.info.and_then(|i| i.total_retrans()) {
        let because = format!("no retransmission left: total_retrans stays at {n}");
        f.ruled_out.push(RuledOut::new("tcp-rto-storm", because));
    }
    let too_big = s.events.iter().filter_map(|e| e.net.wqueue_too_big).max();
    match (s.skmem.w(), s.skmem.tb()) {
        (Some(w), Some(tb)) if w / 2 <= tb => {
            let because = format!("w/2 {} <= tb {tb}", w / 2);
            f.ruled_out.push(RuledOut::new("tcp-tb-lt-w-stall", because));
        }
        _ if too_big == Some(0) => {
            f.ruled_out.push(RuledOut::new("tcp-tb-lt-w-stall", "TCPWqueueTooBig +0"));
        }
        _ => {}
    }
    let because = evidence::open_window(s).unwrap_or_else(|| "timer is on, not persist".into());
    f.ruled_out.push(RuledOut::new("tcp-zero-window-stall", because));
    if let Some(n) = s.info.and_then(|i| i.backoff()).filter(|n| *n > 0) {
        let because =
            format!("backoff {n}: a full queue that refuses packets keeps the RTO constant");
        f.ruled_out.push(RuledOut::new("local-congestion", because));
    }
}

fn next(f: &mut Fire, w: &Window<'_>, g: &Group<'_>, why: Silence) {
    let s = g.first().socket;
    let enter = enter(w, g.netns());
    let (peer, local) = (sh(&s.remote.addr.to_string()), sh(&s.local.addr.to_string()));
    let route = format!("{enter}ip route get {peer} from {local}");
    let dev = device(s);
    let qdisc = if dev == "any" {
        format!("{enter}tc -s qdisc show")
    } else {
        format!("{enter}tc -s qdisc show dev {dev}")
    };
    match why {
        Silence::NoRoute(_) => f.next.extend([route, format!("{enter}ip rule; {enter}ip route")]),
        Silence::QdiscOrNic => {
            f.next.push(qdisc);
            f.next.push(if dev == "any" {
                format!("{enter}ip -s link")
            } else {
                format!("{enter}ip -s link show dev {dev}; {enter}ethtool -S {dev}")
            });
        }
        Silence::Unknown => {
            f.next.extend([route, qdisc, format!("{enter}bpftool net; bpftool cgroup tree")]);
        }
    }
    f.next.push(format!("{enter}ss -tinmo dst {}", ss_dst(s)));
}

/// Names of the errnos that a route lookup returns.
fn errno_name(e: i32) -> String {
    match e {
        1 => "EPERM".to_owned(),
        13 => "EACCES".to_owned(),
        22 => "EINVAL".to_owned(),
        99 => "EADDRNOTAVAIL".to_owned(),
        100 => "ENETDOWN".to_owned(),
        101 => "ENETUNREACH".to_owned(),
        113 => "EHOSTUNREACH".to_owned(),
        n => format!("errno {n}"),
    }
}
