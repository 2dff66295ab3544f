//! `tcp-retrans-rate`: a path loses packets.

use super::common::counters::{SPAN, SURE, grown, spaces, watched, watched_in_full};
use super::common::peers::enter;
use super::common::text::sh;
use super::tcp_spurious_rto::{Spurious, spurious};
use crate::diagnose::limits::{Levels, Limit};
use crate::diagnose::rules::prelude::*;
use crate::sample::subject::{NetnsId, Subject};
use std::collections::BTreeMap;
use std::net::IpAddr;

pub(in crate::diagnose) static LIMIT: Limit = Limit {
    rule: RuleId("tcp-retrans-rate"),
    of: "segments retransmitted, %",
    warn: 2.0,
    clear: 1.0,
    crit: 5.0,
    range: (0.1, 50.0),
};
/// Minimum number of segments in 10 s.
const MIN_SEGS: u64 = 1000;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-retrans-rate"),
    title: "a path loses packets: many segments are retransmitted",
    condition: "Of 1000 or more segments sent by a network namespace in 10 s, 2% or more \
        (critical: 5%) are retransmissions, after at least 5 s of observation. Not counted: \
        retransmitted SYNs, loss probes that found no loss, and the larger of two shares: \
        recoveries that proved needless, or segments that peers report as duplicates \
        (TCPDSACKRecv). Estimates must reach the threshold with 99% confidence: the rate before \
        the 10 s are full, and the needless share when there were few recoveries. Clears below \
        1%.",
    look_alikes: "Delay or reordering mistaken for loss: the kernel undoes it \
        (tcp-spurious-rto). Tail loss probes (TLP) at the end of a burst are retransmissions \
        without loss. A peer that is gone causes few retransmissions (tcp-rto-storm); \
        unanswered SYNs are tcp-connect-stuck.",
    remedy: "One peer: its path (mtr with TCP), its NIC. Many peers: this host's link: device \
        errors and drops, duplex, a full ring, a policer. Timeouts instead of fast retransmits \
        mean lost tails or whole windows. Only large segments lost: path MTU.",
    sources: "RetransSegs and OutSegs of /proc/net/snmp; the thresholds are operating \
        experience: TCP throughput falls with the square root of loss, at 2% to a few segments \
        per round trip. No widely used alert set has a threshold to compare with.",
    hold: Hold::events(10),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::NetCounters], explains: &[], check };

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let at = t.levels(&LIMIT);
    for netns in spaces(w) {
        let Some(loss) = Loss::of(w, netns) else { continue };
        let subject = Subject::Netns { netns };
        if loss.sure_pct() >= at.warn {
            out.fire(subject, fire(w, netns, &loss, at));
        } else if loss.pct() >= at.clear {
            out.linger(subject);
        }
    }
}

/// Retransmissions in 10 s, by kind.
struct Loss {
    sent: u64,
    again: u64,
    syns: u64,
    /// Probes that found no loss.
    probes: u64,
    /// Fraction of recoveries that were undone, 0 to 1 ...
    needless: f64,
    /// ... and its upper confidence bound.
    needless_at_most: f64,
    /// Whether the full 10 s were observed.
    full: bool,
    /// Duplicates reported by peers: the original had arrived.
    twice: u64,
}

impl Loss {
    fn of(w: &Window<'_>, netns: NetnsId) -> Option<Self> {
        let n = |name: &str| grown(w, netns, name);
        let sent = n("TcpOutSegs").filter(|n| *n >= MIN_SEGS)?;
        watched(w, netns, "TcpOutSegs").then_some(())?;
        let probes = n("TcpExtTCPLossProbes").unwrap_or(0);
        let spurious = spurious(w, netns);
        Some(Self {
            sent,
            again: n("TcpRetransSegs")?,
            syns: n("TcpExtTCPSynRetrans").unwrap_or(0),
            probes: probes.saturating_sub(n("TcpExtTCPLossProbeRecovery").unwrap_or(0)),
            twice: n("TcpExtTCPDSACKRecv").unwrap_or(0),
            needless: spurious.as_ref().map_or(0.0, Spurious::share),
            needless_at_most: spurious.as_ref().map_or(0.0, Spurious::share_at_most),
            full: watched_in_full(w, netns, "TcpOutSegs"),
        })
    }
    /// Retransmissions of segments that were really lost, given the needless fraction.
    fn lost(&self, needless: f64) -> f64 {
        let real = self.again.saturating_sub(self.syns).saturating_sub(self.probes);
        let arrived_once = real.saturating_sub(self.twice) as f64;
        arrived_once.min(real as f64 * (1.0 - needless))
    }
    fn pct(&self) -> f64 {
        100.0 * self.lost(self.needless) / self.sent.max(1) as f64
    }
    /// Lower confidence bound. Counters are exact, so the full 10 s need no margin; a shorter
    /// time predicts the whole only as well as its number of events allows.
    fn sure_pct(&self) -> f64 {
        let lost = self.lost(self.needless_at_most);
        let less = if self.full { 0.0 } else { SURE * lost.sqrt() };
        100.0 * (lost - less).max(0.0) / self.sent.max(1) as f64
    }
}

fn fire(w: &Window<'_>, netns: NetnsId, loss: &Loss, at: Levels) -> Fire {
    let pct = loss.pct();
    let severity = if loss.sure_pct() >= at.crit { Severity::Crit } else { Severity::Warn };
    let peers = by_peer(w, netns);
    let all: u64 = peers.iter().map(|p| u64::from(p.1)).sum();
    let worst = peers.first().filter(|p| u64::from(p.1) * 2 > all);
    let mut f = Fire::new(
        severity,
        match worst {
            Some((peer, ..)) => {
                format!("{pct:.1}% of the segments are retransmitted, most of them to {peer}")
            }
            None => format!("{pct:.1}% of the segments are retransmitted"),
        },
    );
    let text = format!("{} of {} segments in 10 s", loss.again, loss.sent);
    f.evidence.push(Evidence::new("RetransSegs", pct, "%", text).over(at.over(loss.sure_pct())));
    for (peer, again, segs) in peers.iter().take(3) {
        let text = format!("{peer}: {again} of {segs} segments");
        f.evidence.push(Evidence::new("peer", f64::from(*again), "segments", text));
    }
    if peers.is_empty() {
        f.missing.push("to which peers (tcp_info of those sockets was not read)".to_owned());
    }
    let n = |name: &str| grown(w, netns, name);
    if let (Some(fast), Some(late)) = (n("TcpExtTCPFastRetrans"), n("TcpExtTCPTimeouts")) {
        let text = format!("TCPFastRetrans +{fast}, TCPTimeouts +{late}");
        f.evidence.push(Evidence::new("TCPTimeouts", late as f64, "", text));
    }
    let because = format!(
        "{:.0}% of the recoveries were undone, peers saw {} segments twice",
        100.0 * loss.needless,
        loss.twice
    );
    f.ruled_out.push(RuledOut::new("tcp-spurious-rto", because));
    let because = format!("{} of {} were probes that found no loss", loss.probes, loss.again);
    f.ruled_out.push(RuledOut::new("tail-loss-probes", because));
    f.ruled_out.push(RuledOut::new("tcp-connect-stuck", format!("{} were SYNs", loss.syns)));
    let enter = enter(w, netns);
    f.next.push(format!("{enter}ip -s link; {enter}tc -s qdisc show"));
    if let Some((peer, ..)) = peers.first() {
        f.next.push(format!("{enter}mtr -n -T {}", sh(&peer.to_string())));
        f.next.push(format!("{enter}ss -tinmo dst {}  # lost, sacked, pmtu", bracketed(*peer)));
    }
    f.next.push(format!("{enter}nstat -az | grep -E 'Retrans|Timeouts|Loss'"));
    f
}

/// An address in the form that `ss` accepts.
fn bracketed(a: IpAddr) -> String {
    match a {
        IpAddr::V4(a) => a.to_string(),
        IpAddr::V6(a) => sh(&format!("[{a}]")),
    }
}

/// Segments retransmitted and sent in 10 s by peer, most retransmitted first.
pub(super) fn by_peer(w: &Window<'_>, netns: NetnsId) -> Vec<(IpAddr, u32, u32)> {
    let mut all: BTreeMap<IpAddr, (u32, u32)> = BTreeMap::new();
    let moments = w.history.back_from(w.tick.seq);
    for m in moments.take_while(|m| w.tick.mono.since(m.tick.mono) < SPAN) {
        for l in m.derived.sockets.losses.iter().filter(|l| l.netns == netns && l.retrans > 0) {
            let (again, segs) = all.entry(l.peer).or_insert((0, 0));
            *again = again.saturating_add(l.retrans);
            *segs = segs.saturating_add(l.segs_out);
        }
    }
    let mut out: Vec<_> = all.into_iter().map(|(a, (n, s))| (a, n, s)).collect();
    out.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    out
}
