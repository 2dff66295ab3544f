//! TCP events and dropped packets: rates by kind, connection, peer, reason and place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Coverage, grown_missed};
use crate::metrics::rate::{grown, per_second};
use crate::sample::bpf::net::{
    BadSender, Connector, DropReason, FlowEvents, NetBpfSample, NetEventKind,
};
use crate::sample::subject::{Endpoint, NetnsId};
use crate::sample::{Shared, Stamped};

/// Events over one interval. A rate is `None` where its program is not attached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetFigures {
    /// Measured interval.
    pub dt: Duration,
    /// Segments sent again per second.
    pub retransmits_s: Option<f64>,
    /// Retransmits that the stack refused to send, per second (6.17).
    pub retransmits_failed_s: Option<f64>,
    /// Resets sent per second.
    pub resets_sent_s: Option<f64>,
    /// Resets received per second.
    pub resets_received_s: Option<f64>,
    /// Packets per second that found a receive queue full.
    pub rcvqueue_full_s: Option<f64>,
    /// Packets dropped per second.
    pub drops_s: Option<f64>,
    /// Drops by reason, most first.
    pub reasons: Vec<ReasonFigures>,
    /// Drops by reason and place, most first.
    pub places: Vec<PlaceFigures>,
    /// Events by connection, most first.
    pub flows: Vec<FlowEvents>,
    /// Events whose connections are not listed.
    pub unlisted: u64,
    /// Who connected where, by process. `None`: the program is not attached.
    pub connectors: Option<Vec<Connector>>,
    /// Calls of `connect()` that were recorded and are not listed.
    pub connects_unlisted: u64,
    /// Who sent the packets that came in bad, by reason. `None`: not told here.
    pub bad_senders: Option<Vec<BadSender>>,
    /// Such packets, recorded or not.
    pub bad_packets: u64,
    /// Such packets that were recorded and are not listed.
    pub bad_unlisted: u64,
    /// Records left out by the rate limit and for want of room, in the interval. They are
    /// counted in the rates, but belong to no connection.
    pub unrecorded: u64,
    /// How much of what happened is in `flows`.
    pub coverage: Coverage,
}

/// Drops for one reason.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReasonFigures {
    /// Number in this kernel.
    pub reason: u16,
    /// Name in this kernel, such as `NO_SOCKET`; empty when unknown.
    pub name: Arc<str>,
    /// Packets in the interval.
    pub count: u64,
    /// Packets per second.
    pub per_s: f64,
}

/// Drops for one reason at one place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlaceFigures {
    /// Number of the reason in this kernel.
    pub reason: u16,
    /// Its name; empty when unknown.
    pub name: Arc<str>,
    /// Function of the kernel, or its address where symbols are hidden.
    pub place: Arc<str>,
    /// Packets in the interval.
    pub count: u64,
    /// Packets per second.
    pub per_s: f64,
}

/// Events of one kind towards one peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerEvents {
    /// The kind.
    pub kind: NetEventKind,
    /// The remote end.
    pub remote: Endpoint,
    /// Network namespace.
    pub netns: NetnsId,
    /// Connections.
    pub connections: u32,
    /// Events in the interval.
    pub count: u64,
}

impl NetFigures {
    /// Events per second of a kind.
    #[must_use]
    pub fn rate(&self, kind: NetEventKind) -> Option<f64> {
        match kind {
            NetEventKind::Retransmit => self.retransmits_s,
            NetEventKind::RetransmitFailed => self.retransmits_failed_s,
            NetEventKind::SendReset => self.resets_sent_s,
            NetEventKind::ReceiveReset => self.resets_received_s,
            NetEventKind::RcvqueueFull => self.rcvqueue_full_s,
        }
    }
    /// Packets per second dropped for a reason, by its name in this kernel.
    #[must_use]
    pub fn dropped_s(&self, reason: &str) -> Option<f64> {
        self.drops_s?;
        Some(self.reasons.iter().filter(|r| &*r.name == reason).map(|r| r.per_s).sum())
    }
    /// Events by kind and peer, most events first.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerEvents> {
        let mut by: BTreeMap<(NetEventKind, NetnsId, Endpoint), (u32, u64)> = BTreeMap::new();
        for f in &self.flows {
            let Some((_, remote)) = f.ends else { continue };
            let sums = by.entry((f.kind, f.netns, remote)).or_default();
            sums.0 = sums.0.saturating_add(1);
            sums.1 = sums.1.saturating_add(f.count);
        }
        let mut out: Vec<PeerEvents> = by
            .into_iter()
            .map(|((kind, netns, remote), (connections, count))| PeerEvents {
                kind,
                remote,
                netns,
                connections,
                count,
            })
            .collect();
        out.sort_by_key(|p| std::cmp::Reverse(p.count));
        out
    }
}

/// Events between two readings. `later` are the readings after `prev` up to and with `now`,
/// which name the connections. `None` when the programs were attached anew in between.
#[must_use]
pub fn derive<'a>(
    prev: &Stamped<NetBpfSample>,
    now: &Stamped<NetBpfSample>,
    later: impl Iterator<Item = &'a Shared<NetBpfSample>>,
) -> Option<NetFigures> {
    let dt = now.span.mid().since(prev.span.mid());
    if dt.is_zero() {
        return None;
    }
    let (p, n) = (&prev.data, &now.data);
    let mut counted = 0u64;
    // The outer option is a reset, the inner one a program that is not attached.
    let mut rate = |before: Option<u64>, now: Option<u64>| -> Option<Option<f64>> {
        let (Some(before), Some(now)) = (before, now) else { return Some(None) };
        let d = grown(before, now)?;
        counted = counted.saturating_add(d);
        Some(per_second(d as f64, dt))
    };
    let mut out = NetFigures {
        dt,
        retransmits_s: rate(p.retransmits, n.retransmits)?,
        retransmits_failed_s: rate(p.retransmits_failed, n.retransmits_failed)?,
        resets_sent_s: rate(p.resets_sent, n.resets_sent)?,
        resets_received_s: rate(p.resets_received, n.resets_received)?,
        rcvqueue_full_s: rate(p.rcvqueue_full, n.rcvqueue_full)?,
        ..NetFigures::default()
    };
    out.unrecorded = grown(p.limited, n.limited)?.saturating_add(grown(p.ring_full, n.ring_full)?);
    let missed = grown_missed(p.missed, n.missed);
    let lost = out.unrecorded.saturating_add(missed);
    let counted = counted.saturating_sub(out.unrecorded);
    out.coverage = Coverage { counted, lost, unsure: 0 };
    if let (Some(before), Some(now)) = (p.drops, n.drops) {
        out.drops_s = per_second(grown(before, now)? as f64, dt);
    }
    drops(p, n, dt, &mut out);
    let mut flows: BTreeMap<_, FlowEvents> = BTreeMap::new();
    let mut connectors: BTreeMap<_, Connector> = BTreeMap::new();
    let mut senders: BTreeMap<_, BadSender> = BTreeMap::new();
    for s in later {
        out.connects_unlisted = out.connects_unlisted.saturating_add(s.data.connects_unlisted);
        for c in &s.data.connectors {
            let sum = connectors
                .entry((c.pid, c.netns, c.remote))
                .or_insert_with(|| Connector { count: 0, ..c.clone() });
            sum.count = sum.count.saturating_add(c.count);
        }
        out.bad_unlisted = out.bad_unlisted.saturating_add(s.data.bad_unlisted);
        for b in &s.data.bad_senders {
            let sum =
                senders.entry((b.reason, b.netns, b.addr)).or_insert(BadSender { count: 0, ..*b });
            sum.count = sum.count.saturating_add(b.count);
        }
        out.unlisted = out.unlisted.saturating_add(s.data.unlisted);
        for f in &s.data.flows {
            let key = (f.kind, f.netns, f.ends, f.ends.is_none().then_some(f.detail));
            let before = flows.get(&key).map_or(0, |o| o.count);
            flows.insert(key, FlowEvents { count: before.saturating_add(f.count), ..f.clone() });
        }
    }
    out.connectors = n.connects.map(|_| connectors.into_values().collect());
    out.bad_senders = n.bad_packets.map(|_| senders.into_values().collect());
    out.bad_packets =
        p.bad_packets.zip(n.bad_packets).and_then(|(p, n)| grown(p, n)).unwrap_or_default();
    out.flows = flows.into_values().collect();
    out.flows.sort_by_key(|f| std::cmp::Reverse(f.count));
    Some(out)
}

/// Name of a reason; empty when unknown.
pub(super) fn reason_name(reasons: &[DropReason], reason: u16) -> Arc<str> {
    reasons.iter().find(|r| r.reason == reason).map(|r| r.name.clone()).unwrap_or_default()
}

fn drops(p: &NetBpfSample, n: &NetBpfSample, dt: Duration, out: &mut NetFigures) {
    out.reasons = n
        .reasons
        .iter()
        .filter_map(|r| {
            let before = p.reasons.iter().find(|o| o.reason == r.reason).map_or(0, |o| o.count);
            let count = grown(before, r.count).filter(|c| *c > 0)?;
            let per_s = per_second(count as f64, dt)?;
            Some(ReasonFigures { reason: r.reason, name: r.name.clone(), count, per_s })
        })
        .collect();
    out.reasons.sort_by_key(|r| (std::cmp::Reverse(r.count), r.reason));
    for (reason, place, count) in new_drops(p, n) {
        let Some(per_s) = per_second(count as f64, dt) else { continue };
        let name = reason_name(&n.reasons, reason);
        out.places.push(PlaceFigures { reason, name, place, count, per_s });
    }
    out.places.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.place.cmp(&b.place)));
}

/// Drops by reason and place between two readings. Several addresses in one function are one
/// place.
pub(super) fn new_drops(p: &NetBpfSample, n: &NetBpfSample) -> Vec<(u16, Arc<str>, u64)> {
    let sums = |s: &NetBpfSample| {
        let mut by: BTreeMap<(u16, Arc<str>), u64> = BTreeMap::new();
        for d in &s.places {
            let sum = by.entry((d.reason, d.place.clone())).or_default();
            *sum = sum.saturating_add(d.count);
        }
        by
    };
    let before = sums(p);
    sums(n)
        .into_iter()
        .filter_map(|(key, now)| {
            let count = grown(before.get(&key).copied().unwrap_or(0), now).filter(|c| *c > 0)?;
            Some((key.0, key.1, count))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::bpf::net::DropPlace;
    use crate::sample::subject::CpuId;
    use crate::sample::time::{MonoNs, Span};

    fn at(ms: u64, data: NetBpfSample) -> Shared<NetBpfSample> {
        Arc::new(Stamped { span: Span::at(MonoNs(ms * 1_000_000)), cpu: Duration::ZERO, data })
    }

    fn flow(kind: NetEventKind, port: u16, count: u64) -> FlowEvents {
        let end = |last, port| Endpoint { addr: [10, 0, 3, last].into(), port };
        FlowEvents {
            kind,
            ends: Some((end(2, port), end(7, 3306))),
            netns: NetnsId(1),
            cookie: u64::from(port),
            state: 1,
            detail: 0,
            count,
            last: MonoNs(count),
            cpu: CpuId(0),
        }
    }

    #[test]
    fn rates_by_kind_peer_reason_and_place() {
        let reason = |count| DropReason { reason: 3, name: "NO_SOCKET".into(), count };
        let place = |place: &str, count| DropPlace { reason: 3, place: place.into(), count };
        let p = at(
            0,
            NetBpfSample {
                retransmits: Some(100),
                drops: Some(10),
                reasons: vec![reason(10)],
                places: vec![place("tcp_v4_rcv", 4), place("tcp_v4_rcv", 2)],
                ..Default::default()
            },
        );
        let n = at(
            2000,
            NetBpfSample {
                retransmits: Some(140),
                resets_sent: None,
                drops: Some(30),
                reasons: vec![reason(30)],
                places: vec![place("tcp_v4_rcv", 9), place("tcp_v4_rcv", 7)],
                flows: vec![
                    flow(NetEventKind::Retransmit, 51_322, 30),
                    flow(NetEventKind::Retransmit, 51_340, 9),
                ],
                unlisted: 1,
                limited: 4,
                ..Default::default()
            },
        );
        let f = derive(&p, &n, std::iter::once(&n)).unwrap();
        assert_eq!(f.rate(NetEventKind::Retransmit), Some(20.0));
        assert_eq!(f.rate(NetEventKind::SendReset), None, "not attached is not 0");
        assert_eq!((f.drops_s, f.dropped_s("NO_SOCKET")), (Some(10.0), Some(10.0)));
        assert_eq!((f.places.len(), f.places[0].per_s), (1, 5.0));
        assert_eq!((&*f.places[0].name, f.places[0].count), ("NO_SOCKET", 10));
        let peers = f.peers();
        assert_eq!((peers[0].connections, peers[0].count, peers[0].remote.port), (2, 39, 3306));
        assert_eq!((f.unlisted, f.unrecorded), (1, 4));
        assert_eq!(f.coverage.share(), Some(0.9), "36 of 40 have a record");
    }

    #[test]
    fn the_same_connection_in_several_readings_is_one() {
        let sample = |total, list| NetBpfSample {
            retransmits: Some(total),
            flows: list,
            ..Default::default()
        };
        let p = at(0, sample(0, vec![]));
        let a = at(500, sample(2, vec![flow(NetEventKind::Retransmit, 1, 2)]));
        let b = at(1000, sample(5, vec![flow(NetEventKind::Retransmit, 1, 3)]));
        let f = derive(&p, &b, [&a, &b].into_iter()).unwrap();
        assert_eq!((f.flows.len(), f.flows[0].count), (1, 5));
    }

    #[test]
    fn backwards_is_a_reset() {
        let s = |n| NetBpfSample { retransmits: Some(n), ..Default::default() };
        assert_eq!(derive(&at(0, s(5)), &at(1000, s(4)), std::iter::empty()), None);
    }
}
