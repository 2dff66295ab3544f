//! `tcp-spurious-rto`: delay or reordering is mistaken for loss.

use super::common::counters::{SPAN, SURE, grown, spaces, sum, watched};
use super::common::peers::enter;
use super::common::text::count;
use crate::diagnose::rules::prelude::*;
use crate::metrics::rate::ratio;
use crate::sample::subject::{NetnsId, Subject};

/// Fraction of timeouts and recoveries that were undone.
const SHARE: f64 = 0.3;
/// Undone in 10 s.
const LEAST: u64 = 10;
/// Undone in 10 s from which it is a warning ...
const WARN: u64 = 100;
/// ... if at least this fraction of all segments were retransmissions. Two CPUs that serve one veth
/// reorder a little: 2087 of 12.9 million segments at 1.7 GB/s cost nothing.
const WARN_PART: f64 = 0.01;
/// On a path with few segments fewer are enough, if this fraction were retransmissions: each flight
/// is sent twice, and the window is closed in between.
const WARN_FEW: u64 = 20;
const WARN_FEW_PART: f64 = 0.1;

/// Undo after a timeout. Each spurious RTO found by F-RTO counts in both, so they are not added.
const LOSS_UNDO: [&str; 2] = ["TcpExtTCPLossUndo", "TcpExtTCPSpuriousRTOs"];
/// Undo because the peer reported duplicates.
const DSACK_UNDO: &str = "TcpExtTCPDSACKUndo";
/// TCP assumed loss.
const BELIEVED: [&str; 3] = ["TcpExtTCPTimeouts", "TcpExtTCPSackRecovery", "TcpExtTCPRenoRecovery"];

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-spurious-rto"),
    title: "delay or reordering is mistaken for loss: needless retransmissions",
    condition: "TCPLossUndo (which includes TCPSpuriousRTOs) + TCPDSACKUndo grew by 10 or more \
        in 10 s, and by 30% or more of the timeouts and recoveries (TCPTimeouts + \
        TCPSackRecovery + TCPRenoRecovery), after at least 5 s of observation. Info; a warning \
        at 100 in 10 s if 1% or more of the segments were retransmissions, or at 20 if 10% \
        were.",
    look_alikes: "Real loss is not undone (tcp-retrans-rate). Duplicate ACKs from a peer \
        without timestamps and DSACK cannot be told apart: nothing is undone then.",
    remedy: "Look for what delays whole flights: a queue on this host (tcp-egress-bufferbloat), \
        CPU steal or throttling here or at the peer, a path that reorders (LACP or ECMP hashing \
        per packet, rehash in tcp_info). A larger rto_min on the route hides the problem.",
    sources: "net/ipv4/tcp_input.c, tcp_try_undo_loss(), tcp_process_loss() (F-RTO). Measured \
        on 6.18 with a token bucket that is switched on and off.",
    hold: Hold::events(10),
    needs_time: Duration::from_secs(6),
};

/// Timeouts and recoveries in 10 s, and how many of them were undone.
pub(super) struct Spurious {
    undone: u64,
    believed: u64,
}

impl Spurious {
    /// Fraction that was undone, 0 to 1.
    pub(super) fn share(&self) -> f64 {
        (self.undone as f64 / self.believed.max(1) as f64).min(1.0)
    }
    /// Upper bound of that fraction with 99% confidence (Wilson score); 0 if none was undone.
    pub(super) fn share_at_most(&self) -> f64 {
        if self.undone == 0 {
            return 0.0;
        }
        let (n, p, z2) = (self.believed.max(1) as f64, self.share(), SURE * SURE);
        let spread = SURE * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
        ((p + z2 / (2.0 * n) + spread) / (1.0 + z2 / n)).min(1.0)
    }
}

/// For a network namespace; `None` if no loss was assumed, or the counters do not exist.
pub(super) fn spurious(w: &Window<'_>, netns: NetnsId) -> Option<Spurious> {
    let believed = sum(w, netns, &BELIEVED).filter(|n| *n > 0)?;
    let after_rto = LOSS_UNDO.iter().filter_map(|n| grown(w, netns, n)).max();
    let by_dsack = grown(w, netns, DSACK_UNDO);
    let undone = [after_rto, by_dsack].into_iter().flatten().reduce(u64::saturating_add)?;
    Some(Spurious { undone, believed })
}

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::NetCounters], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for netns in spaces(w) {
        let Some(s) = spurious(w, netns).filter(|_| watched(w, netns, BELIEVED[0])) else {
            continue;
        };
        let subject = Subject::Netns { netns };
        if s.undone >= LEAST && s.share() >= SHARE {
            out.fire(subject, fire(w, netns, &s));
        } else if s.undone.saturating_mul(10) >= LEAST * 7 && s.share() >= 0.7 * SHARE {
            out.linger(subject);
        }
    }
}

fn fire(w: &Window<'_>, netns: NetnsId, s: &Spurious) -> Fire {
    let part = part_retransmitted(w, netns);
    let at_least = |n, least| s.undone >= n && part.is_some_and(|p| p >= least);
    let costly = at_least(WARN, WARN_PART) || at_least(WARN_FEW, WARN_FEW_PART);
    let severity = if costly { Severity::Warn } else { Severity::Info };
    let pct = 100.0 * s.share();
    let mut f = Fire::new(
        severity,
        format!(
            "{} undone in 10 s: {pct:.0}% of what TCP took for lost was late or out of order",
            count(s.undone as usize, "retransmission")
        ),
    );
    let text = format!("{} undone of {} timeouts and recoveries", s.undone, s.believed);
    f.evidence.push(Evidence::new("undone", pct, "%", text).over(100.0 * SHARE));
    for name in LOSS_UNDO.into_iter().chain([DSACK_UNDO]) {
        if let Some(n) = grown(w, netns, name).filter(|n| *n > 0) {
            let short = name.trim_start_matches("TcpExt");
            f.evidence.push(Evidence::new(short, n as f64, "", format!("{short} +{n}")));
        }
    }
    if let Some(p) = part {
        let text = format!("{:.2}% of the segments were retransmissions", 100.0 * p);
        f.evidence.push(Evidence::new("retransmitted", 100.0 * p, "%", text));
    }
    peers(&mut f, w, netns);
    let real = s.believed.saturating_sub(s.undone);
    let because = format!("{real} of {} were not undone", s.believed);
    f.ruled_out.push(RuledOut::new("tcp-retrans-rate", because));
    let enter = enter(w, netns);
    f.next.push(format!("{enter}nstat -az | grep -E 'Undo|Spurious|Reorder|DSACK'"));
    f.next.push(format!("{enter}ss -tin | grep -E 'reord_seen|dsack_dups|rehash'"));
    f.next.push(format!("{enter}tc -s qdisc show"));
    f
}

/// Retransmissions as a fraction of all segments sent in 10 s.
fn part_retransmitted(w: &Window<'_>, netns: NetnsId) -> Option<f64> {
    // OutSegs does not count a segment again when it is sent again.
    let (first, again) = (grown(w, netns, "TcpOutSegs")?, grown(w, netns, "TcpRetransSegs")?);
    ratio(again as f64, first.saturating_add(again) as f64)
}

/// Adds the peers with duplicates and reordering.
fn peers(f: &mut Fire, w: &Window<'_>, netns: NetnsId) {
    let mut all: std::collections::BTreeMap<std::net::IpAddr, (u32, u32, u32)> =
        std::collections::BTreeMap::new();
    let moments = w.history.back_from(w.tick.seq);
    for m in moments.take_while(|m| w.tick.mono.since(m.tick.mono) < SPAN) {
        for l in m.derived.sockets.losses.iter().filter(|l| l.netns == netns) {
            let p = all.entry(l.peer).or_default();
            p.0 = p.0.saturating_add(l.dsack_dups);
            p.1 = p.1.saturating_add(l.retrans);
            p.2 = p.2.saturating_add(l.reordered);
        }
    }
    let mut list: Vec<_> = all.into_iter().filter(|p| p.1.0 > 0 || p.1.2 > 0).collect();
    list.sort_by(|a, b| (b.1.0, b.1.2).cmp(&(a.1.0, a.1.2)).then(a.0.cmp(&b.0)));
    for (peer, (dups, again, reordered)) in list.into_iter().take(3) {
        let text = format!(
            "{peer}: dsack_dups +{dups} of {again} retransmissions, reord_seen +{reordered}"
        );
        f.evidence.push(Evidence::new("dsack_dups", dups.into(), "", text));
    }
}
