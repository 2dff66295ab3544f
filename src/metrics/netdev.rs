//! Rates of network devices, queueing disciplines and connection tracking, per namespace.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::origins::OriginFigures;
use super::rate::{Readings, grown, grown32, grown32_unless_reset, per_second, ratio};
use crate::sample::Stamped;
use crate::sample::netdev::{
    Conntrack, LinkAttrs, LinkRow, NetdevSample, NetdevSpace, Origins, QdiscRow, Shape,
};
use crate::sample::subject::NetnsId;
use crate::sample::time::MonoNs;

/// One namespace over one interval.
#[derive(Clone, Debug, Default)]
pub struct SpaceFigures {
    /// Which.
    pub netns: NetnsId,
    /// `host`, a mount's name, or what a member process is called; raw.
    pub label: String,
    /// A process inside.
    pub member: Option<u32>,
    /// Measured interval.
    pub dt: Duration,
    /// Devices that both readings have.
    pub links: Vec<LinkFigures>,
    /// Qdiscs and classes that both readings have.
    pub qdiscs: Vec<QdiscFigures>,
    /// Connection tracking.
    pub conntrack: Option<ConntrackFigures>,
    /// Who opened the entries of its table, as of the last reading of it.
    pub origins: Option<OriginFigures>,
}

impl SpaceFigures {
    /// A device by name.
    #[must_use]
    pub fn link(&self, dev: &str) -> Option<&LinkFigures> {
        self.links.iter().find(|l| l.attrs.name == dev)
    }
    /// A device by index.
    #[must_use]
    pub fn link_at(&self, ifindex: u32) -> Option<&LinkFigures> {
        self.links.iter().find(|l| l.ifindex == ifindex)
    }
    /// Qdiscs and classes of a device.
    pub fn qdiscs_of(&self, ifindex: u32) -> impl Iterator<Item = &QdiscFigures> {
        self.qdiscs.iter().filter(move |q| q.ifindex == ifindex)
    }
    /// The root qdisc of a device; it sums up what waits below it.
    #[must_use]
    pub fn root(&self, ifindex: u32) -> Option<&QdiscFigures> {
        self.qdiscs_of(ifindex).find(|q| q.is_root())
    }
}

/// A device over one interval, per second.
#[derive(Clone, Debug, Default)]
pub struct LinkFigures {
    /// Index in its namespace.
    pub ifindex: u32,
    /// Name, kind, speed, queues.
    pub attrs: Arc<LinkAttrs>,
    /// Packets received.
    pub rx_pps: f64,
    /// Packets sent.
    pub tx_pps: f64,
    /// Bytes received.
    pub rx_bytes_s: f64,
    /// Bytes sent.
    pub tx_bytes_s: f64,
    /// Bad packets received.
    pub rx_errors_s: f64,
    /// Packets that could not be sent.
    pub tx_errors_s: f64,
    /// Received and dropped by the kernel, for whatever reason.
    pub rx_dropped_s: f64,
    /// Dropped on the way out.
    pub tx_dropped_s: f64,
    /// Lost by the NIC: no receive buffer, or its FIFO was full.
    pub rx_lost_s: f64,
    /// Of the bad packets, those with a wrong CRC.
    pub rx_crc_s: Option<f64>,
    /// Of the bad packets, those that are no whole number of bytes.
    pub rx_frame_s: Option<f64>,
    /// How often the link came or went, since the device exists.
    pub carrier_changes: Option<u32>,
    /// Held back by a provider's limit, by the driver's name of it. They are read every few
    /// ticks only, and are 0 between.
    pub exceeded_s: Vec<(Arc<str>, f64)>,
}

/// A qdisc or class over one interval.
#[derive(Clone, Debug, Default)]
pub struct QdiscFigures {
    /// The device.
    pub ifindex: u32,
    /// `major << 16 | minor`.
    pub handle: u32,
    /// Handle of what it hangs on.
    pub parent: u32,
    /// A class, not a qdisc.
    pub class: bool,
    /// `tbf`, `htb`, `fq_codel`.
    pub kind: Arc<str>,
    /// Its rate.
    pub shape: Option<Shape>,
    /// Bytes that left per second.
    pub bytes_s: f64,
    /// Packets that left per second.
    pub packets_s: f64,
    /// Packets dropped per second.
    pub drops_s: f64,
    /// Packets that the driver gave back per second.
    pub requeues_s: f64,
    /// Times per second that it had to wait for its rate.
    pub overlimits_s: f64,
    /// It has had to wait for its rate, ever.
    pub overlimits_ever: bool,
    /// Packets waiting now.
    pub qlen: u32,
    /// Bytes waiting now.
    pub backlog: u32,
}

impl QdiscFigures {
    /// The root qdisc of its device.
    #[must_use]
    pub fn is_root(&self) -> bool {
        !self.class && self.parent == QdiscRow::ROOT
    }
    /// What it may not exceed, bytes per second.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        let s = self.shape?;
        Some(s.ceil.map_or(s.rate, |c| c.max(s.rate))).filter(|r| *r > 0)
    }
    /// How long what waits now will take to leave, at the granted rate.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        let s = ratio(f64::from(self.backlog), self.limit()? as f64)?;
        // Below 2^32 seconds: a backlog has 32 bits, a rate is 1 at least.
        Some(Duration::from_secs_f64(s))
    }
    /// Part of the packets that were dropped, 0 to 1.
    #[must_use]
    pub fn drop_share(&self) -> Option<f64> {
        ratio(self.drops_s, self.drops_s + self.packets_s)
    }
    /// As `tc` names it: `8001:`, `1:10`.
    #[must_use]
    pub fn id(&self) -> String {
        match self.handle & 0xffff {
            0 => format!("{:x}:", self.handle >> 16),
            minor => format!("{:x}:{minor:x}", self.handle >> 16),
        }
    }
}

/// Connection tracking of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConntrackFigures {
    /// Connections now and at most.
    pub now: Conntrack,
    /// Packets dropped per second for want of an entry; `None` where it is not counted.
    pub drop_s: Option<f64>,
    /// Entries per second that could not be inserted.
    pub insert_failed_s: Option<f64>,
    /// Entries per second evicted to make room.
    pub early_drop_s: Option<f64>,
}

impl ConntrackFigures {
    /// Part of the table that is used, 0 to 1; `None` without a limit.
    #[must_use]
    pub fn used(&self) -> Option<f64> {
        ratio(self.now.count as f64, self.now.max as f64)
    }
}

/// Remembers the last readings of each namespace: not all are read in every tick.
#[derive(Clone, Debug, Default)]
pub struct NetdevTracker {
    last: HashMap<NetnsId, Readings<Arc<NetdevSpace>>>,
    /// The last ones of each, and when they were read.
    origins: HashMap<NetnsId, (MonoNs, Arc<Origins>)>,
}

/// A namespace that was not read for so long is forgotten.
const FORGET: Duration = Duration::from_secs(120);
/// Who fills a table is asked every five seconds, and not known any more after this time.
const REMEMBER: Duration = Duration::from_secs(15);

impl NetdevTracker {
    /// Figures of the namespaces in this sample that were read before.
    pub fn push(&mut self, now: &Stamped<NetdevSample>) -> Vec<SpaceFigures> {
        let mut out = Vec::new();
        for space in &now.data.spaces {
            let past = self.last.entry(space.netns).or_default();
            out.extend(past.push(space.span.mid(), space.clone(), |p, n, dt| figures(p, n, dt)));
            if let Some(o) = &space.origins {
                self.origins.insert(space.netns, (space.span.mid(), o.clone()));
            }
        }
        let at = now.span.end;
        self.origins.retain(|_, (read, _)| at.since(*read) < REMEMBER);
        self.last.retain(|_, r| r.last_at().is_some_and(|t: MonoNs| at.since(t) < FORGET));
        out
    }

    /// Who filled the connection table of a namespace lately.
    #[must_use]
    pub fn origins(&self, netns: NetnsId) -> Option<&Origins> {
        self.origins.get(&netns).map(|(_, o)| &**o)
    }
}

fn figures(p: &NetdevSpace, n: &NetdevSpace, dt: Duration) -> SpaceFigures {
    let links = n.links.iter().enumerate().filter_map(|(i, l)| {
        let same = |o: &&LinkRow| o.ifindex == l.ifindex;
        let old = p.links.get(i).filter(same).or_else(|| p.links.iter().find(same))?;
        link(old, l, dt)
    });
    let qdiscs = n.qdiscs.iter().enumerate().filter_map(|(i, q)| {
        let same = |o: &&QdiscRow| {
            (o.ifindex, o.handle, o.parent, o.class) == (q.ifindex, q.handle, q.parent, q.class)
                && o.kind == q.kind
        };
        let old = p.qdiscs.get(i).filter(same).or_else(|| p.qdiscs.iter().find(same))?;
        qdisc(old, q, dt)
    });
    SpaceFigures {
        netns: n.netns,
        label: n.label.clone(),
        member: n.member,
        dt,
        links: links.collect(),
        qdiscs: qdiscs.collect(),
        origins: None,
        conntrack: n.conntrack.map(|now| {
            let old = p.conntrack.unwrap_or_default();
            // Another namespace may have the number of one that is gone.
            let rate = |a: Option<u32>, b: Option<u32>| {
                per_second(grown32_unless_reset(a?, b?)?.into(), dt)
            };
            ConntrackFigures {
                now,
                drop_s: rate(old.drop, now.drop),
                insert_failed_s: rate(old.insert_failed, now.insert_failed),
                early_drop_s: rate(old.early_drop, now.early_drop),
            }
        }),
    }
}

/// `None` when a counter of bytes fell: another device has the number now.
fn link(p: &LinkRow, n: &LinkRow, dt: Duration) -> Option<LinkFigures> {
    let (a, b) = (&p.stats, &n.stats);
    let s = |from: u64, to: u64| per_second(grown(from, to)? as f64, dt);
    // Drivers take some of these back (a ring that is set up anew): that part counts 0.
    let soft = |from: u64, to: u64| s(from, to).unwrap_or(0.0);
    Some(LinkFigures {
        ifindex: n.ifindex,
        attrs: n.attrs.clone(),
        rx_pps: s(a.rx_packets, b.rx_packets)?,
        tx_pps: s(a.tx_packets, b.tx_packets)?,
        rx_bytes_s: s(a.rx_bytes, b.rx_bytes)?,
        tx_bytes_s: s(a.tx_bytes, b.tx_bytes)?,
        rx_errors_s: soft(a.rx_errors, b.rx_errors),
        tx_errors_s: soft(a.tx_errors, b.tx_errors),
        rx_dropped_s: soft(a.rx_dropped, b.rx_dropped),
        tx_dropped_s: soft(a.tx_dropped, b.tx_dropped),
        rx_lost_s: soft(a.rx_missed, b.rx_missed) + soft(a.rx_fifo, b.rx_fifo),
        rx_crc_s: a.rx_crc.zip(b.rx_crc).and_then(|(a, b)| s(a, b)),
        rx_frame_s: a.rx_frame.zip(b.rx_frame).and_then(|(a, b)| s(a, b)),
        carrier_changes: b.carrier_changes,
        exceeded_s: n
            .exceeded
            .iter()
            .filter_map(|(name, now)| {
                let (_, old) = p.exceeded.iter().find(|(o, _)| o == name)?;
                Some((name.clone(), soft(*old, *now)))
            })
            .collect(),
    })
}

/// `None` when the bytes fell: it was replaced by another of the same name.
fn qdisc(p: &QdiscRow, n: &QdiscRow, dt: Duration) -> Option<QdiscFigures> {
    let s = |d: f64| per_second(d, dt);
    let s32 = |from: u32, to: u32| s(grown32(from, to).into());
    let bytes = grown(p.bytes, n.bytes)?;
    // Before 5.5 packets have 32 bits and wrap; bytes tell that nothing was reset.
    let packets = grown(p.packets, n.packets)
        .or_else(|| Some(grown32(u32::try_from(p.packets).ok()?, n.packets as u32).into()))?;
    Some(QdiscFigures {
        ifindex: n.ifindex,
        handle: n.handle,
        parent: n.parent,
        class: n.class,
        kind: n.kind.clone(),
        shape: n.shape,
        bytes_s: s(bytes as f64)?,
        packets_s: s(packets as f64)?,
        drops_s: s32(p.drops, n.drops)?,
        requeues_s: s32(p.requeues, n.requeues)?,
        overlimits_s: s32(p.overlimits, n.overlimits)?,
        overlimits_ever: n.overlimits > 0,
        qlen: n.qlen,
        backlog: n.backlog,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::time::Span;

    fn space(ms: u64, q: QdiscRow, l: LinkRow) -> Stamped<NetdevSample> {
        let span = Span::at(MonoNs(ms * 1_000_000));
        let space = NetdevSpace {
            netns: NetnsId(7),
            span,
            qdiscs: vec![q],
            links: vec![l],
            ..NetdevSpace::default()
        };
        let data = NetdevSample { spaces: vec![Arc::new(space)] };
        Stamped { span, cpu: Duration::ZERO, data }
    }

    fn over(p: &QdiscRow, n: &QdiscRow, ms: u64) -> Option<QdiscFigures> {
        let mut t = NetdevTracker::default();
        assert!(t.push(&space(0, p.clone(), LinkRow::default())).is_empty());
        t.push(&space(ms, n.clone(), LinkRow::default())).pop()?.qdiscs.pop()
    }

    fn tbf() -> QdiscRow {
        QdiscRow {
            kind: "tbf".into(),
            handle: 0x8001_0000,
            parent: QdiscRow::ROOT,
            shape: Some(Shape { rate: 1_000_000, burst: Some(10_240), ..Shape::default() }),
            ..QdiscRow::default()
        }
    }

    /// The kernel gives the number of a namespace to the next one.
    #[test]
    fn a_table_that_begins_anew_has_no_rates() {
        let at = |ms: u64, drops: u32| {
            let span = Span::at(MonoNs(ms * 1_000_000));
            let (drop, insert_failed) = (Some(drops), Some(drops));
            let conntrack = Some(Conntrack { drop, insert_failed, ..Conntrack::default() });
            let space =
                NetdevSpace { netns: NetnsId(7), span, conntrack, ..NetdevSpace::default() };
            let data = NetdevSample { spaces: vec![Arc::new(space)] };
            Stamped { span, cpu: Duration::ZERO, data }
        };
        let mut t = NetdevTracker::default();
        t.push(&at(0, 500));
        let rates = |f: Vec<SpaceFigures>| {
            let c = f[0].conntrack.unwrap();
            (c.drop_s, c.insert_failed_s)
        };
        assert_eq!(rates(t.push(&at(1000, 520))), (Some(20.0), Some(20.0)));
        let (drops, failed) = rates(t.push(&at(2000, 0)));
        assert!(drops.is_none() && failed.is_none(), "{drops:?} {failed:?}");
    }

    /// Measured: tbf of 8 Mbit/s under a UDP flood of two seconds.
    #[test]
    fn a_flooded_shaper_sends_at_its_rate_and_drops_the_rest() {
        let now = QdiscRow {
            bytes: 2_012_192,
            packets: 1932,
            drops: 575_464,
            overlimits: 581_288,
            backlog: 57_310,
            qlen: 55,
            ..tbf()
        };
        let f = over(&tbf(), &now, 2002).unwrap();
        assert!((f.bytes_s / 1e6 - 1.0).abs() < 0.01, "{}", f.bytes_s);
        assert!(f.drop_share().unwrap() > 0.99);
        assert_eq!(f.delay(), Some(Duration::from_micros(57_310)));
        assert_eq!((f.id().as_str(), f.limit()), ("8001:", Some(1_000_000)));
        assert!(f.is_root());
    }

    #[test]
    fn narrow_counters_wrap_and_a_new_qdisc_is_no_fall() {
        let old = QdiscRow { bytes: 100, packets: u64::from(u32::MAX), drops: u32::MAX, ..tbf() };
        let now = QdiscRow { bytes: 300, packets: 1, drops: 1, ..tbf() };
        let f = over(&old, &now, 1000).unwrap();
        assert_eq!((f.packets_s, f.drops_s), (2.0, 2.0));
        let replaced = QdiscRow { bytes: 5, ..tbf() };
        assert!(over(&old, &replaced, 1000).is_none());
        let other = QdiscRow { bytes: 500, kind: "htb".into(), ..tbf() };
        assert!(over(&old, &other, 1000).is_none(), "another kind is another qdisc");
    }

    #[test]
    fn classes_may_borrow_up_to_their_ceiling() {
        let shape = Shape { rate: 625_000, ceil: Some(1_250_000), ..Shape::default() };
        let q = QdiscFigures {
            handle: 0x1_0010,
            class: true,
            shape: Some(shape),
            ..QdiscFigures::default()
        };
        assert_eq!((q.limit(), q.id().as_str()), (Some(1_250_000), "1:10"));
        assert_eq!(QdiscFigures::default().delay(), None);
        let never = QdiscFigures { shape: Some(Shape::default()), ..q };
        assert_eq!(never.delay(), None, "a rate of nothing is no rate");
    }

    #[test]
    fn a_device_whose_bytes_fell_is_another() {
        let row = |rx_bytes, rx_missed| LinkRow {
            exceeded: vec![("pps_allowance_exceeded".into(), rx_bytes)],
            stats: crate::sample::netdev::LinkStats { rx_bytes, rx_missed, ..Default::default() },
            ..LinkRow::default()
        };
        let mut t = NetdevTracker::default();
        t.push(&space(0, tbf(), row(1000, 5)));
        let f = t.push(&space(1000, tbf(), row(3000, 25)));
        assert_eq!((f[0].links[0].rx_bytes_s, f[0].links[0].rx_lost_s), (2000.0, 20.0));
        assert_eq!(f[0].links[0].exceeded_s, [("pps_allowance_exceeded".into(), 2000.0)]);
        let f = t.push(&space(2000, tbf(), row(10, 0)));
        assert!(f[0].links.is_empty());
    }
}
