//! `tcp-rto-storm`: retransmissions leave this host and no answer comes back.

use super::common::peers::{Group, by_peer, device, enter, on_peer, ss_dst};
use super::common::sockets::{Cause, STORM_RTOS, cases, retrans_fail_ever};
use super::common::{evidence, text::sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::rate::median;
use crate::metrics::sockets::TimerKind;
use crate::sample::sockets::SockState;

/// This many connections are critical ...
const CRIT_SOCKETS: usize = 10;
/// ... or this fraction of those with a send queue, once there are a few.
const CRIT_SHARE: f64 = 0.05;
/// A SYN-ACK plus its retransmissions (net.ipv4.tcp_synack_retries 5).
const MAX_SYNACKS: u32 = 6;
/// Minimum number of connections for the other critical conditions.
const FEW: usize = 3;
/// TCPTimeouts per second, and as a multiple of the median of the last minute.
const CRIT_TIMEOUTS_S: f64 = 10.0;
const CRIT_TIMES_MEDIAN: f64 = 5.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-rto-storm"),
    title: "retransmissions leave this host and no answer comes back",
    condition: "3 or more consecutive RTOs on a connection, each with total_retrans + 1 or more, \
        and bytes_acked flat. Critical with 10 or more connections to the peer, or with 3 or more \
        that are 5% of all connections with a send queue in the namespace, or that retransmit \
        while TCPTimeouts runs at 10/s and 5 times its median of the last minute. More than 8 \
        peers at the same time become one finding: the cause is on this side. Clears when data is \
        acknowledged.",
    look_alikes: "RTOs that send nothing (data_segs_out flat): tcp-silent-rto, \
        tcp-tb-lt-w-stall. Retransmissions that this host's own firewall refuses \
        (TCPRetransFail grows with each): tcp-local-egress-drop. A closed window runs the \
        persist timer: tcp-zero-window-stall. A long local queue shows an rto of seconds but \
        backoff 0: the RTT is long, nothing is lost.",
    remedy: "One peer: is it up, does its firewall or conntrack drop our packets, does the path \
        (mtr with TCP to the same port)? All peers of one device: cable, bond, switch port, \
        security group. Set TCP_USER_TIMEOUT so that applications notice before 15 minutes have \
        passed.",
    sources: "net/ipv4/tcp_timer.c. Measured on 6.18 against a peer that drops: rto 3264 to \
        6528 ms, backoff 4 to 5, data_segs_out 15 to 16, retransmissions 4 to 5. No widely used \
        alert set has a per-connection rule to compare with.",
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
    for g in by_peer(cases(w, t).filter(|c| c.cause == Cause::Storm), w) {
        out.fire(g.subject.clone(), fire(w, &g));
    }
}

/// Why a group is critical, if it is.
fn critical(w: &Window<'_>, g: &Group<'_>) -> Option<Evidence> {
    let n = g.cases.iter().filter(|c| c.confidence == Confidence::Confirmed).count();
    if n >= CRIT_SOCKETS {
        let text = format!("{n} connections at the same time");
        return Some(Evidence::new("connections", n as f64, "", text).over(CRIT_SOCKETS as f64));
    }
    if n < FEW {
        return None;
    }
    let totals = w.derived.sockets.totals.iter().find(|t| t.netns == g.netns());
    let sending = totals.map_or(0, |t| t.sending) as usize;
    if sending > 0 && n as f64 >= CRIT_SHARE * sending as f64 {
        let pct = 100.0 * n as f64 / sending as f64;
        let text = format!("{pct:.0}% of the {sending} connections with a send queue");
        return Some(Evidence::new("share", pct, "%", text).over(100.0 * CRIT_SHARE));
    }
    let rate = |d: &crate::metrics::Derived| d.net(g.netns())?.rate("TcpExtTCPTimeouts");
    let now = rate(w.derived)?;
    let usual = median(&mut w.recent(60).skip(1).filter_map(rate).collect::<Vec<_>>())?;
    let limit = CRIT_TIMEOUTS_S.max(CRIT_TIMES_MEDIAN * usual);
    (now >= limit).then(|| {
        let text = format!("TCPTimeouts {now:.0}/s, median of the last minute {usual:.1}/s");
        Evidence::new("TCPTimeouts", now, "/s", text).over(limit)
    })
}

fn fire(w: &Window<'_>, g: &Group<'_>) -> Fire {
    let s = g.first().socket;
    let critical = critical(w, g);
    let severity = if critical.is_some() { Severity::Crit } else { Severity::Warn };
    let verb = if g.cases.len() == 1 { "retransmits" } else { "retransmit" };
    let mut f = Fire::new(severity, format!("{} {verb} without an answer", g.who()));
    g.fill(&mut f, w);
    let rto = evidence::rto(s).map(|e| {
        // The threshold is on the number of RTOs; the rto value is what people look for.
        Evidence { threshold: None, ..e }
    });
    f.evidence.push(rto.unwrap_or_else(|| evidence::retransmits(s)));
    f.evidence.extend(evidence::sent(s, TimerKind::Rto));
    f.evidence.extend(evidence::last_ack(s));
    f.evidence.extend(evidence::outstanding(s));
    f.evidence.extend(critical);
    if matches!(g.subject, Subject::Netns { .. }) {
        let text = format!("{} peers at the same time: check this host's link first", g.peers);
        f.evidence.push(Evidence::new("peers", g.peers as f64, "", text));
    }
    let minute = Duration::from_secs(60);
    for (name, what) in [
        ("TcpExtTCPAbortOnTimeout", "connections given up in the last minute"),
        ("TcpExtOutOfWindowIcmps", "ICMP errors that match no connection in the last minute"),
    ] {
        if let Some(n) = w.counter(g.netns(), name, minute).map(|c| c.delta).filter(|n| *n > 0) {
            let short = name.trim_start_matches("TcpExt");
            f.evidence.push(Evidence::new(short, n as f64, "", format!("{n} {what} ({short})")));
        }
    }
    rule_out(&mut f, w, g);
    let enter = enter(w, g.netns());
    let peer = sh(&s.remote.addr.to_string());
    if let Some(e) = unaccepted(g) {
        f.evidence.push(e);
        let ss = format!("ss -ltn sport = :{}  # is Recv-Q above Send-Q?", s.remote.port);
        f.next.push(on_peer(w, s, &ss));
    }
    f.next.push(format!("{enter}tcpdump -ni {} host {peer} -c 20", device(s)));
    if s.inbound {
        f.next.push(format!("{enter}mtr -n {peer}"));
    } else {
        f.next.push(format!("{enter}mtr -n -T -P {} {peer}", s.remote.port));
    }
    f.next.push(format!("{enter}ss -tinmo dst {}", ss_dst(s)));
    f
}

/// Connections that were opened but never had data acknowledged: a server whose accept queue is
/// full drops the last ACK of the handshake and everything after it. It repeats its SYN-ACK, so a
/// few segments did arrive.
fn unaccepted(g: &Group<'_>) -> Option<Evidence> {
    let all = g.cases.iter().all(|c| {
        let s = c.socket;
        let new = s.info.and_then(|i| {
            let came = i.segs_in()?;
            let acked = i.bytes_acked()? <= 1 && i.bytes_received()? == 0;
            Some(acked && (1..=MAX_SYNACKS).contains(&came))
        });
        s.state == SockState::ESTAB && !s.inbound && new == Some(true)
    });
    all.then(|| {
        let again = g.cases.iter().filter_map(|c| c.socket.info?.segs_in()).max().unwrap_or(0);
        let text = format!(
            "opened, but nothing acknowledged since (segs_in {again}): the peer's accept queue may \
             be full"
        );
        Evidence::new("bytes_acked", 1.0, "bytes", text)
    })
}

fn rule_out(f: &mut Fire, w: &Window<'_>, g: &Group<'_>) {
    let s = g.first().socket;
    let because = evidence::open_window(s).unwrap_or_else(|| "timer is on, not persist".into());
    f.ruled_out.push(RuledOut::new("tcp-zero-window-stall", because));
    let Some(i) = s.info else { return };
    if let Some(n) = i.total_retrans() {
        let because = format!("retransmissions leave: total_retrans {n}");
        f.ruled_out.push(RuledOut::new("tcp-silent-rto", because));
    }
    if let (Some(w), Some(tb)) = (s.skmem.w(), s.skmem.tb())
        && w > tb
    {
        let because = format!("w {w} > tb {tb} is normal while retransmissions leave");
        f.ruled_out.push(RuledOut::new("tcp-tb-lt-w-stall", because));
    }
    // Only counters that were read after an RTO say anything about it.
    let read = s.events.iter().filter(|e| e.net.is_settled());
    let failed = read.filter_map(|e| e.net.retrans_fail).max();
    if failed == Some(0) {
        let newest = s.events.last().is_some_and(|e| e.net.is_settled());
        let since = if newest { "" } else { ", but for the last RTO: not read since" };
        let because = format!("TCPRetransFail +0{since}");
        f.ruled_out.push(RuledOut::new("tcp-local-egress-drop", because));
    } else if s.events.is_empty() && retrans_fail_ever(w, s) == Some(0) {
        let because = "TCPRetransFail 0 since boot";
        f.ruled_out.push(RuledOut::new("tcp-local-egress-drop", because));
    }
    if let Some(n) = i.backoff().filter(|n| *n >= STORM_RTOS) {
        let because = format!("backoff {n}, not 0: timeouts raised the RTO, not the RTT");
        f.ruled_out.push(RuledOut::new("long-own-queue", because));
    }
}
