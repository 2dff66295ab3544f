//! `RTM_NEWLINK`: names, kinds, queues and counters of devices.

use super::{text_of, u32_of, u64_at};
use crate::collect::sockets::nlmsg::{self, Attrs};
use crate::sample::netdev::{LinkAttrs, LinkStats};

/// The type of an answer.
pub const NEWLINK: u16 = 16;
const GETLINK: u16 = 18;
/// Length of `struct ifinfomsg`.
const IFINFOMSG: usize = 16;
const IFNAME: u16 = 3;
const MTU: u16 = 4;
const QDISC: u16 = 6;
const TXQLEN: u16 = 13;
const LINKINFO: u16 = 18;
const STATS64: u16 = 23;
const EXT_MASK: u16 = 29;
const NUM_TX_QUEUES: u16 = 31;
const NUM_RX_QUEUES: u16 = 32;
const CARRIER_CHANGES: u16 = 35;
const INFO_KIND: u16 = 1;
const IFF_UP: u32 = 1;
const ARPHRD_ETHER: u16 = 1;

/// A device as one message tells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkMsg<'a> {
    /// Index.
    pub ifindex: u32,
    /// Hardware type (`ARPHRD_*`).
    pub arphrd: u16,
    /// `IFF_*`.
    pub flags: u32,
    /// Name.
    pub name: &'a [u8],
    /// Kind, for devices that are made of software.
    pub kind: Option<&'a [u8]>,
    /// Root qdisc.
    pub qdisc: &'a [u8],
    /// Bytes.
    pub mtu: u32,
    /// Packets.
    pub txqlen: u32,
    /// Transmit and receive queues.
    pub queues: (u32, u32),
    /// Counters; `None` before 2.6.35.
    pub stats: Option<LinkStats>,
}

/// A counter that comes as an attribute of its own.
fn carrier(stats: Option<LinkStats>, changes: Option<u32>) -> Option<LinkStats> {
    Some(LinkStats { carrier_changes: changes, ..stats? })
}

/// Asks for all devices, without the parts that are long and of no use here.
pub fn put_dump(tx: &mut Vec<u8>, seq: u32) {
    nlmsg::put_message(tx, GETLINK, nlmsg::F_REQUEST | nlmsg::F_DUMP, seq, |body| {
        body.extend_from_slice(&[0; IFINFOMSG]);
        // No virtual functions: a NIC may have hundreds.
        nlmsg::put_attr(body, EXT_MASK, &0_u32.to_ne_bytes());
    });
}

impl<'a> LinkMsg<'a> {
    /// From the payload of a message; `None` when it is too short or has no name.
    #[must_use]
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let head = payload.first_chunk::<IFINFOMSG>()?;
        let mut out = Self {
            arphrd: u16::from_ne_bytes([head[2], head[3]]),
            ifindex: u32::from_ne_bytes([head[4], head[5], head[6], head[7]]),
            flags: u32::from_ne_bytes([head[8], head[9], head[10], head[11]]),
            ..Self::default()
        };
        let mut changes = None;
        for (kind, body) in Attrs(payload.get(IFINFOMSG..)?) {
            match kind {
                CARRIER_CHANGES => changes = u32_of(body),
                IFNAME => out.name = text_of(body),
                MTU => out.mtu = u32_of(body)?,
                QDISC => out.qdisc = text_of(body),
                TXQLEN => out.txqlen = u32_of(body)?,
                NUM_TX_QUEUES => out.queues.0 = u32_of(body)?,
                NUM_RX_QUEUES => out.queues.1 = u32_of(body)?,
                LINKINFO => {
                    let kind = Attrs(body).find(|(k, _)| *k == INFO_KIND);
                    out.kind = kind.map(|(_, body)| text_of(body));
                }
                STATS64 => out.stats = stats(body),
                _ => {}
            }
        }
        out.stats = carrier(out.stats, changes);
        (!out.name.is_empty()).then_some(out)
    }

    /// What rarely changes.
    #[must_use]
    pub fn attrs(&self) -> LinkAttrs {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        LinkAttrs {
            name: text(self.name),
            kind: self.kind.map(text),
            physical: self.kind.is_none() && self.arphrd == ARPHRD_ETHER,
            up: self.flags & IFF_UP != 0,
            mtu: self.mtu,
            txqlen: self.txqlen,
            tx_queues: self.queues.0,
            rx_queues: self.queues.1,
            qdisc: text(self.qdisc),
            speed_mbit: None,
            channels: None,
        }
    }
}

/// `rtnl_link_stats64`, whose head never changed.
fn stats(body: &[u8]) -> Option<LinkStats> {
    let n = |i| u64_at(body, i);
    Some(LinkStats {
        rx_packets: n(0)?,
        tx_packets: n(1)?,
        rx_bytes: n(2)?,
        tx_bytes: n(3)?,
        rx_errors: n(4)?,
        tx_errors: n(5)?,
        rx_dropped: n(6)?,
        tx_dropped: n(7)?,
        rx_over: n(11)?,
        rx_fifo: n(14)?,
        rx_missed: n(15)?,
        rx_crc: n(12),
        rx_frame: n(13),
        carrier_changes: None,
    })
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

    fn all(datagrams: &[Vec<u8>]) -> (Vec<(LinkAttrs, u32, Option<LinkStats>)>, u32) {
        let (mut out, mut bad, mut last) = (Vec::new(), 0, Step::More);
        for d in datagrams {
            last = walk(d, 9, NEWLINK, &mut bad, |p| {
                let m = LinkMsg::parse(p);
                out.extend(m.iter().map(|m| (m.attrs(), m.ifindex, m.stats)));
                m.is_some()
            });
        }
        assert_eq!(last, Step::Done);
        (out, bad)
    }

    /// `ip -s -d -j link` of the same devices a moment later.
    #[test]
    fn captured_devices_are_those_that_ip_shows() {
        let (links, bad) = all(&datagrams("link.bin"));
        let shown: Value = serde_json::from_str(&witness("ip-link.json")).unwrap();
        let shown = shown.as_array().unwrap();
        assert_eq!((links.len(), bad), (shown.len(), 0));
        for s in shown {
            let name = s["ifname"].as_str().unwrap();
            let (a, index, stats) = links.iter().find(|l| l.0.name == name).unwrap();
            let stats = stats.unwrap();
            assert_eq!(u64::from(*index), s["ifindex"], "{name}");
            assert_eq!(a.kind.as_deref(), s["linkinfo"]["info_kind"].as_str(), "{name}");
            assert_eq!(u64::from(a.mtu), s["mtu"], "{name}");
            assert_eq!(u64::from(a.txqlen), s["txqlen"], "{name}");
            assert_eq!(a.qdisc, s["qdisc"].as_str().unwrap(), "{name}");
            assert_eq!(u64::from(a.tx_queues), s["num_tx_queues"], "{name}");
            assert_eq!(u64::from(a.rx_queues), s["num_rx_queues"], "{name}");
            let (rx, tx) = (&s["stats64"]["rx"], &s["stats64"]["tx"]);
            assert_eq!(rx["bytes"], stats.rx_bytes, "{name}");
            assert_eq!(rx["packets"], stats.rx_packets, "{name}");
            assert_eq!(rx["dropped"], stats.rx_dropped, "{name}");
            assert_eq!(rx["missed_errors"], stats.rx_missed, "{name}");
            assert_eq!(rx["fifo_errors"], stats.rx_fifo, "{name}");
            assert_eq!(rx["over_errors"], stats.rx_over, "{name}");
            assert_eq!(rx["crc_errors"].as_u64(), stats.rx_crc, "{name}");
            assert_eq!(rx["frame_errors"].as_u64(), stats.rx_frame, "{name}");
            assert_eq!(
                tx["carrier_changes"].as_u64(),
                stats.carrier_changes.map(u64::from),
                "{name}"
            );
            assert_eq!(tx["bytes"], stats.tx_bytes, "{name}");
            assert_eq!(tx["dropped"], stats.tx_dropped, "{name}");
            assert!(!a.physical, "{name} is made of software");
        }
        assert!(links.iter().any(|l| l.2.unwrap().rx_bytes > 1_000_000));
    }

    #[test]
    fn a_nic_is_known_by_its_driver() {
        let (links, _) = all(&datagrams("link-eth0.bin"));
        let physical: Vec<&str> =
            links.iter().filter(|l| l.0.physical).map(|l| l.0.name.as_str()).collect();
        assert_eq!(physical, ["eth0"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = LinkMsg::parse(&bytes);
            let mut bad = 0;
            walk(&bytes, 9, NEWLINK, &mut bad, |p| LinkMsg::parse(p).is_some());
        }

        #[test]
        fn mangled_datagrams_are_survived(cut: usize, at: usize, byte: u8) {
            for d in datagrams("link.bin") {
                let d = mangled(&d, cut, at, byte);
                let (mut bad, mut n) = (0, 0);
                walk(&d, 9, NEWLINK, &mut bad, |p| {
                    n += 1;
                    LinkMsg::parse(p).is_some()
                });
                prop_assert!(n <= d.len() / 16);
            }
        }
    }
}
