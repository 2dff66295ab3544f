//! `netdev`: network devices of all namespaces, with what waits in their qdiscs.

use super::{OF_TICK, Rows, Table, columns};
use crate::metrics::netdev::{LinkFigures, QdiscFigures, SpaceFigures};

pub(super) static TABLE: Table = Table {
    name: "netdev",
    about: "network devices; namespaces take turns, and have rows in the ticks that read them",
    time: OF_TICK,
    own: COLUMNS,
    rows: Rows::OfTick(|m, out| {
        for s in m.now.derived.netdev.iter().flat_map(|n| n.iter()) {
            for l in &s.links {
                out.row(|line| put(line, &Device { s, l }));
            }
        }
    }),
};

struct Device<'a> {
    s: &'a SpaceFigures,
    l: &'a LinkFigures,
}

impl Device<'_> {
    /// Qdiscs without their classes, which would count the same again.
    fn qdiscs(&self) -> impl Iterator<Item = &QdiscFigures> {
        self.s.qdiscs_of(self.l.ifindex).filter(|q| !q.class)
    }
    fn speed(&self) -> Option<f64> {
        self.l.attrs.speed_mbit.filter(|s| *s > 0).map(|s| f64::from(s) * 125_000.0)
    }
}

columns! {
    |r: &Device<'_>|
    netns: text, "network namespace: host, or the name of a member" = r.s.label.as_str();
    netns_id: integer, "its inode" = r.s.netns.0;
    dev: text, "device" = r.l.attrs.name.as_str();
    ifindex: integer, "its number in the namespace" = r.l.ifindex;
    kind: text, "veth, bridge, ...; missing for what a driver provides, and for lo"
        = r.l.attrs.kind.as_deref();
    up: boolean, "whether it is up" = r.l.attrs.up;
    mtu: integer ("bytes"), "largest packet" = r.l.attrs.mtu;
    speed_bytes_per_s: float ("bytes/s"), "what it can carry each way, where known" = r.speed();
    busy_pct: float ("%"), "the busier direction, of that speed"
        = r.speed().map(|s| 100.0 * r.l.rx_bytes_s.max(r.l.tx_bytes_s) / s);
    rx_bytes_per_s: float ("bytes/s"), "received" = r.l.rx_bytes_s;
    tx_bytes_per_s: float ("bytes/s"), "sent" = r.l.tx_bytes_s;
    rx_packets_per_s: float ("1/s"), "packets received" = r.l.rx_pps;
    tx_packets_per_s: float ("1/s"), "packets sent" = r.l.tx_pps;
    rx_err_per_s: float ("1/s"), "bad packets received" = r.l.rx_errors_s;
    tx_err_per_s: float ("1/s"), "packets that could not be sent" = r.l.tx_errors_s;
    rx_drop_per_s: float ("1/s"), "received and dropped by the kernel" = r.l.rx_dropped_s;
    tx_drop_per_s: float ("1/s"), "dropped on the way out" = r.l.tx_dropped_s;
    rx_lost_per_s: float ("1/s"), "lost by the NIC: no receive buffer, or its FIFO was full"
        = r.l.rx_lost_s;
    carrier_changes: integer, "how often the link came or went, since the device exists"
        = r.l.carrier_changes;
    qdisc: text, "its root qdisc" = r.l.attrs.qdisc.as_str();
    backlog_bytes: integer ("bytes"), "waiting in the fullest of its qdiscs now"
        = r.qdiscs().map(|q| q.backlog).max();
    backlog: integer, "packets waiting in it now" = r.qdiscs().map(|q| q.qlen).max();
    qdrop_per_s: float ("1/s"), "packets its qdiscs dropped"
        = r.qdiscs().map(|q| q.drops_s).reduce(|a, b| a + b);
}
