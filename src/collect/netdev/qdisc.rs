//! `RTM_NEWQDISC` and `RTM_NEWTCLASS`: counters of queueing disciplines and classes, and the
//! rates of `tbf` and `htb`.

use super::{text_of, u32_at, u32_of, u64_at};
use crate::collect::sockets::nlmsg::{self, Attrs};
use crate::sample::netdev::{QdiscRow, Shape};

/// The type of an answer about a qdisc.
pub const NEWQDISC: u16 = 36;
/// The type of an answer about a class.
pub const NEWTCLASS: u16 = 40;
const GETQDISC: u16 = 38;
const GETTCLASS: u16 = 42;
/// Length of `struct tcmsg`.
const TCMSG: usize = 20;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const STATS2: u16 = 7;
const STATS_BASIC: u16 = 1;
const STATS_QUEUE: u16 = 3;
const STATS_PKT64: u16 = 8;
const TBF_PARMS: u16 = 1;
const TBF_RATE64: u16 = 4;
const HTB_PARMS: u16 = 1;
const HTB_RATE64: u16 = 6;
const HTB_CEIL64: u16 = 7;
/// u32 words of `struct tc_ratespec`; the rate is the last.
const RATESPEC: usize = 3;
/// Scheduler ticks are 64 ns long (`PSCHED_SHIFT` is 6).
const PSCHED_NS: u64 = 64;

/// A qdisc or class as one message tells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TcMsg<'a> {
    /// The device.
    pub ifindex: u32,
    /// Handle of a qdisc, id of a class.
    pub handle: u32,
    /// What it hangs on.
    pub parent: u32,
    /// `tbf`, `htb`, `fq_codel`.
    pub kind: &'a [u8],
    /// Bytes that left.
    pub bytes: u64,
    /// Packets that left.
    pub packets: u64,
    /// qlen, backlog, drops, requeues, overlimits.
    pub queue: [u32; 5],
    /// Its rate.
    pub shape: Option<Shape>,
}

/// Asks for the qdiscs of all devices.
pub fn put_qdiscs(tx: &mut Vec<u8>, seq: u32) {
    put(tx, GETQDISC, seq, 0);
}

/// Asks for the classes of one device: the kernel has no dump over all.
pub fn put_classes(tx: &mut Vec<u8>, seq: u32, ifindex: u32) {
    put(tx, GETTCLASS, seq, ifindex);
}

fn put(tx: &mut Vec<u8>, kind: u16, seq: u32, ifindex: u32) {
    nlmsg::put_message(tx, kind, nlmsg::F_REQUEST | nlmsg::F_DUMP, seq, |body| {
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&ifindex.to_ne_bytes());
        body.extend_from_slice(&[0; 12]);
    });
}

impl<'a> TcMsg<'a> {
    /// From the payload of a message; `None` without a kind or counters.
    #[must_use]
    pub fn parse(payload: &'a [u8], class: bool) -> Option<Self> {
        let mut out = Self {
            ifindex: u32_at(payload, 1)?,
            handle: u32_at(payload, 2)?,
            parent: u32_at(payload, 3)?,
            ..Self::default()
        };
        let (mut counted, mut options) = (false, &[][..]);
        for (kind, body) in Attrs(payload.get(TCMSG..)?) {
            match kind {
                KIND => out.kind = text_of(body),
                OPTIONS => options = body,
                STATS2 => counted = out.counters(body),
                _ => {}
            }
        }
        out.shape = match (out.kind, class) {
            (b"tbf", false) => tbf(options),
            (b"htb", true) => htb(options),
            _ => None,
        };
        (counted && !out.kind.is_empty()).then_some(out)
    }

    /// `TCA_STATS2`, since 2.6.11. True when the basic counters are there.
    fn counters(&mut self, stats: &[u8]) -> bool {
        let mut basic = false;
        let mut wide = None;
        for (kind, body) in Attrs(stats) {
            match kind {
                STATS_BASIC => {
                    if let (Some(bytes), Some(packets)) = (u64_at(body, 0), u32_at(body, 2)) {
                        (self.bytes, self.packets) = (bytes, packets.into());
                        basic = true;
                    }
                }
                STATS_QUEUE => {
                    for (i, slot) in self.queue.iter_mut().enumerate() {
                        *slot = u32_at(body, i).unwrap_or(0);
                    }
                }
                // Only sent when the packets do not fit into 32 bits.
                STATS_PKT64 => wide = u64_at(body, 0),
                _ => {}
            }
        }
        self.packets = wide.unwrap_or(self.packets);
        basic
    }

    /// As a row.
    #[must_use]
    pub fn row(&self, class: bool, kind: std::sync::Arc<str>) -> QdiscRow {
        let [qlen, backlog, drops, requeues, overlimits] = self.queue;
        QdiscRow {
            ifindex: self.ifindex,
            handle: self.handle,
            parent: self.parent,
            class,
            kind,
            bytes: self.bytes,
            packets: self.packets,
            qlen,
            backlog,
            drops,
            requeues,
            overlimits,
            shape: self.shape,
        }
    }
}

/// `struct tc_tbf_qopt`: rate, peakrate, limit, buffer, mtu.
fn tbf(options: &[u8]) -> Option<Shape> {
    let (mut parms, mut wide) = (None, None);
    for (kind, body) in Attrs(options) {
        match kind {
            TBF_PARMS => parms = Some(body),
            TBF_RATE64 => wide = u64_at(body, 0),
            _ => {}
        }
    }
    let parms = parms?;
    let rate = wide.or(u32_at(parms, RATESPEC - 1).map(u64::from))?;
    let buffer = u32_at(parms, 2 * RATESPEC + 1)?;
    Some(Shape {
        rate,
        ceil: None,
        burst: burst(rate, buffer),
        limit: u32_of(parms.get(8 * RATESPEC..)?),
    })
}

/// `struct tc_htb_opt`: rate, ceil, buffer, cbuffer, quantum, level, prio.
fn htb(options: &[u8]) -> Option<Shape> {
    let (mut parms, mut rate64, mut ceil64) = (None, None, None);
    for (kind, body) in Attrs(options) {
        match kind {
            HTB_PARMS => parms = Some(body),
            HTB_RATE64 => rate64 = u64_at(body, 0),
            HTB_CEIL64 => ceil64 = u64_at(body, 0),
            _ => {}
        }
    }
    let parms = parms?;
    let rate = rate64.or(u32_at(parms, RATESPEC - 1).map(u64::from))?;
    let ceil = ceil64.or(u32_at(parms, 2 * RATESPEC - 1).map(u64::from));
    Some(Shape { rate, ceil, burst: burst(rate, u32_at(parms, 2 * RATESPEC)?), limit: None })
}

/// The kernel keeps a bucket as the time that its tokens last.
fn burst(rate: u64, buffer: u32) -> Option<u64> {
    let ns = u128::from(buffer) * u128::from(PSCHED_NS);
    u64::try_from(ns * u128::from(rate) / 1_000_000_000).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::{datagrams, mangled, witness};
    use super::super::walk;
    use super::*;
    use crate::collect::sockets::nlmsg::Step;
    use proptest::prelude::*;
    use serde_json::Value;

    fn rows(file: &str, kind: u16, class: bool) -> Vec<QdiscRow> {
        let (mut out, mut bad, mut last) = (Vec::new(), 0, Step::More);
        for d in datagrams(file) {
            last = walk(&d, 9, kind, &mut bad, |p| {
                let m = TcMsg::parse(p, class);
                out.extend(
                    m.iter().map(|m| m.row(class, String::from_utf8_lossy(m.kind).as_ref().into())),
                );
                m.is_some()
            });
        }
        assert_eq!((last, bad), (Step::Done, 0));
        out
    }

    /// `1:10` of tc: hexadecimal, without a minor number of 0.
    fn handle(text: &str) -> u32 {
        let (major, minor) = text.split_once(':').unwrap();
        let hex = |t: &str| u32::from_str_radix(t, 16).unwrap_or(0);
        hex(major) << 16 | hex(minor)
    }

    /// `tc -s -j qdisc` of the same qdiscs a moment later; nothing was sent meanwhile.
    #[test]
    fn captured_qdiscs_are_those_that_tc_shows() {
        let rows = rows("qdisc.bin", NEWQDISC, false);
        let shown: Value = serde_json::from_str(&witness("tc-qdisc.json")).unwrap();
        let shown = shown.as_array().unwrap();
        assert_eq!(rows.len(), shown.len());
        let mut shapers = 0;
        for (r, s) in rows.iter().zip(shown) {
            assert_eq!(&*r.kind, s["kind"].as_str().unwrap());
            assert_eq!(r.handle, handle(s["handle"].as_str().unwrap()));
            assert_eq!(r.parent == QdiscRow::ROOT, s["root"].as_bool() == Some(true));
            for (name, value) in [
                ("bytes", r.bytes),
                ("packets", r.packets),
                ("drops", r.drops.into()),
                ("overlimits", r.overlimits.into()),
                ("requeues", r.requeues.into()),
                ("qlen", r.qlen.into()),
            ] {
                assert_eq!(s[name], value, "{} {name}", r.kind);
            }
            if &*r.kind == "tbf" {
                let (shape, o) = (r.shape.unwrap(), &s["options"]);
                assert_eq!(o["rate"], shape.rate);
                assert!(shape.burst.unwrap().abs_diff(o["burst"].as_u64().unwrap()) <= 1);
                shapers += 1;
            } else {
                assert_eq!(r.shape, None);
            }
        }
        assert_eq!(shapers, 2);
        // What tc calls the latency is limit and rate: (limit - burst) / rate.
        let fast = rows.iter().find(|r| r.shape.is_some_and(|s| s.rate == 1_000_000)).unwrap();
        assert_eq!(fast.shape.unwrap().limit, Some(1_000_000 / 20 + 10_240));
        assert!(fast.drops > 100_000 && fast.overlimits > fast.drops);
        let stuck = rows.iter().find(|r| r.shape.is_some_and(|s| s.rate == 125)).unwrap();
        assert!(stuck.backlog > 10_000 && stuck.qlen > 10);
        assert!(rows.iter().any(|r| r.parent == QdiscRow::INGRESS && &*r.kind == "clsact"));
    }

    /// `class htb 1:10 parent 1:1 prio 0 rate 5Mbit ceil 10Mbit burst 1600b`.
    #[test]
    fn captured_classes_have_rate_and_ceiling() {
        let rows = rows("class.bin", NEWTCLASS, true);
        let text = witness("tc-class.txt");
        assert_eq!(rows.len(), text.matches("class htb").count());
        let leaf = rows.iter().find(|r| r.handle == handle("1:10")).unwrap();
        assert_eq!(leaf.parent, handle("1:1"));
        let shape = leaf.shape.unwrap();
        assert_eq!((shape.rate, shape.ceil), (625_000, Some(1_250_000)));
        assert_eq!(shape.burst, Some(1600));
        let line = format!(
            "Sent {} bytes {} pkt (dropped {}, overlimits {} requeues {})",
            leaf.bytes, leaf.packets, leaf.drops, leaf.overlimits, leaf.requeues
        );
        assert!(text.contains(&line), "{line}");
        let root = rows.iter().find(|r| r.handle == handle("1:1")).unwrap();
        assert_eq!(root.parent, QdiscRow::ROOT);
        assert_eq!(root.shape.unwrap().rate, 2_500_000);
    }

    #[test]
    fn wide_counters_and_rates_win_over_narrow_ones() {
        let mut body = vec![0; 20];
        let put = |out: &mut Vec<u8>, kind, v: &[u8]| nlmsg::put_attr(out, kind, v);
        put(&mut body, KIND, b"tbf\0");
        let mut parms = vec![0; 36];
        parms[8..12].copy_from_slice(&u32::MAX.to_ne_bytes());
        let mut options = Vec::new();
        put(&mut options, TBF_PARMS, &parms);
        put(&mut options, TBF_RATE64, &12_500_000_000_u64.to_ne_bytes());
        put(&mut body, OPTIONS, &options);
        let mut stats = Vec::new();
        put(&mut stats, STATS_PKT64, &5_000_000_000_u64.to_ne_bytes());
        put(&mut stats, STATS_BASIC, &[7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0]);
        put(&mut body, STATS2, &stats);
        let m = TcMsg::parse(&body, false).unwrap();
        assert_eq!(m.packets, 5_000_000_000);
        assert_eq!(m.shape.unwrap().rate, 12_500_000_000);
        assert_eq!(m.queue, [0; 5]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = TcMsg::parse(&bytes, false);
            let _ = TcMsg::parse(&bytes, true);
            let _ = (tbf(&bytes), htb(&bytes));
        }

        #[test]
        fn mangled_datagrams_are_survived(cut: usize, at: usize, byte: u8) {
            for (file, kind, class) in
                [("qdisc.bin", NEWQDISC, false), ("class.bin", NEWTCLASS, true)]
            {
                for d in datagrams(file) {
                    let d = mangled(&d, cut, at, byte);
                    let (mut bad, mut n) = (0, 0);
                    walk(&d, 9, kind, &mut bad, |p| {
                        n += 1;
                        TcMsg::parse(p, class).is_some()
                    });
                    prop_assert!(n <= d.len() / 16);
                }
            }
        }

        #[test]
        fn bursts_do_not_overflow(rate: u64, buffer: u32) {
            let _ = burst(rate, buffer);
        }
    }
}
