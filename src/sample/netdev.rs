//! Network devices, their queueing disciplines and connection tracking, per network namespace.
//! An entry in the sample has always been read for this sample.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::heap::{flat, owns};
use super::subject::NetnsId;
use super::time::Span;

/// The namespaces that were read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetdevSample {
    /// One entry per namespace.
    pub spaces: Vec<Arc<NetdevSpace>>,
}
owns!(NetdevSample { spaces } flat {});

/// One namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetdevSpace {
    /// Which.
    pub netns: NetnsId,
    /// `host`, a mount's name, or what a member process is called; raw.
    pub label: String,
    /// A process inside.
    pub member: Option<u32>,
    /// When it was read: the namespaces of a sample are read one after the other.
    pub span: Span,
    /// Devices, by index.
    pub links: Vec<LinkRow>,
    /// Queueing disciplines and classes with counters; the children of `mq` are in its own.
    pub qdiscs: Vec<QdiscRow>,
    /// Connection tracking; `None` without the module.
    pub conntrack: Option<Conntrack>,
    /// Who opened the entries of its table; `None` when that was not asked this time: the table has
    /// room and no flows clash, or it was asked less than 5 s before.
    pub origins: Option<Arc<Origins>>,
    /// What could not be read, and why.
    pub holes: Vec<String>,
}
owns!(NetdevSpace { label, links, qdiscs, origins, holes } flat {
    netns, member, span, conntrack
} same by |a, b| (a.netns, a.span) == (b.netns, b.span));

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkRow {
    /// Index, unique in the namespace.
    pub ifindex: u32,
    /// What rarely changes; shared between ticks.
    pub attrs: Arc<LinkAttrs>,
    /// Counters since the device exists.
    pub stats: LinkStats,
    /// Packets that a provider's limits held back, by the driver's names of the limits; empty
    /// where they are not counted or not known.
    pub exceeded: Vec<(Arc<str>, u64)>,
}
owns!(LinkRow { attrs, exceeded } flat { ifindex, stats });

/// What rarely changes of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkAttrs {
    /// Name, raw.
    pub name: String,
    /// `veth`, `bridge`, `vxlan`; `None` for what a driver of a bus provides, and for `lo`.
    pub kind: Option<String>,
    /// An Ethernet device of a driver: a NIC, real or of a VM.
    pub physical: bool,
    /// `IFF_UP`.
    pub up: bool,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// `txqueuelen`, packets.
    pub txqlen: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// Name of the root qdisc as the link has it.
    pub qdisc: String,
    /// Mbit/s; `None` when unknown, as on virtio.
    pub speed_mbit: Option<u32>,
    /// Queues that the driver has set up, and could; `None` when not told.
    pub channels: Option<Channels>,
}
owns!(LinkAttrs { name, kind, qdisc } flat {
    physical, up, mtu, txqlen, tx_queues, rx_queues, speed_mbit, channels
} same by |a, b| a == b);

/// Queues of a NIC as `ethtool -l` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Channels {
    /// Receive queues in use, combined ones included.
    pub rx: u32,
    /// Receive queues that the hardware has, combined ones included.
    pub rx_max: u32,
}

/// Counters of a device (`rtnl_link_stats64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bad packets received.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Received and dropped by the kernel; unknown protocols and VLANs count here too.
    pub rx_dropped: u64,
    /// Dropped on the way out.
    pub tx_dropped: u64,
    /// Receiver overruns.
    pub rx_over: u64,
    /// Dropped in the device's FIFO.
    pub rx_fifo: u64,
    /// Dropped for lack of a receive buffer.
    pub rx_missed: u64,
    /// Of the bad packets, those with a wrong CRC; `None` where it was not recorded.
    pub rx_crc: Option<u64>,
    /// Of the bad packets, those that are no whole number of bytes.
    pub rx_frame: Option<u64>,
    /// How often the link came or went, since the device exists (since 3.15).
    pub carrier_changes: Option<u32>,
}

/// A queueing discipline, or a class of one. Queue counters are 32 bits in the kernel and wrap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QdiscRow {
    /// The device.
    pub ifindex: u32,
    /// `major << 16 | minor`.
    pub handle: u32,
    /// Handle of what it hangs on; see [`QdiscRow::ROOT`], [`QdiscRow::INGRESS`].
    pub parent: u32,
    /// A class, not a qdisc.
    pub class: bool,
    /// `fq_codel`, `tbf`, `htb`.
    pub kind: Arc<str>,
    /// Bytes that left it.
    pub bytes: u64,
    /// Packets that left it; 32 bits before 5.5.
    pub packets: u64,
    /// Packets waiting now.
    pub qlen: u32,
    /// Bytes waiting now.
    pub backlog: u32,
    /// Packets dropped.
    pub drops: u32,
    /// Packets that the driver gave back.
    pub requeues: u32,
    /// Times that it had to wait for its rate.
    pub overlimits: u32,
    /// Its limits, for `tbf` and the classes of `htb`.
    pub shape: Option<Shape>,
}
owns!(QdiscRow { kind } flat {
    ifindex, handle, parent, class, bytes, packets, qlen, backlog, drops, requeues, overlimits, shape
});

/// The rate of a shaper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    /// Bytes per second that are granted.
    pub rate: u64,
    /// Bytes per second that may be borrowed up to (`htb`).
    pub ceil: Option<u64>,
    /// Bytes that may leave at once.
    pub burst: Option<u64>,
    /// Bytes that may wait (`tbf`).
    pub limit: Option<u32>,
}

/// Connection tracking of a namespace. The counters are the sums of 32-bit counters per CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conntrack {
    /// Connections now.
    pub count: u64,
    /// Connections at most; 0 is no limit.
    pub max: u64,
    /// Packets dropped because no entry could be made.
    pub drop: Option<u32>,
    /// Entries that could not be inserted: a clash, or a full chain.
    pub insert_failed: Option<u32>,
    /// Entries evicted to make room.
    pub early_drop: Option<u32>,
}

/// Who opened the entries of a connection table, by ctnetlink (since 2.6.14): the source address of
/// the first packet, before any translation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origins {
    /// Which entries were counted.
    pub selection: Selection,
    /// Their number: of the first ones, in the order of their hash.
    pub read: u32,
    /// Addresses that they come from.
    pub addresses: u32,
    /// Where most of them go.
    pub target: Target,
    /// Where most of them come from, most first.
    pub sources: Vec<Origin>,
    /// Why not all that were asked for could be read.
    pub unread: Option<Unread>,
}
owns!(Origins { sources } flat { selection, read, addresses, target, unread } same by |a, b| a == b);

/// Entries of a connection table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// All, because the table is nearly full.
    #[default]
    All,
    /// Those of other protocols than TCP, because new flows clash: two packets of a new TCP
    /// connection do not come at the same time.
    NotTcp,
}

/// Why the entries of a table could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unread {
    /// It needs CAP_NET_ADMIN.
    NotPermitted,
    /// The kernel has no ctnetlink.
    NoModule,
    /// Another error, by its number; 0 for an answer that was cut short.
    Errno(i32),
}

/// The entries that one address opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// The address; IPv4 as v4-mapped v6.
    pub addr: [u8; 16],
    /// It is one of this namespace's own.
    pub local: bool,
    /// Entries, of those that were read.
    pub entries: u32,
    /// Where most of them go.
    pub target: Target,
    /// Some of them, spread evenly over all of its entries.
    pub flows: Vec<Flow>,
}
owns!(Origin { flows } flat { addr, local, entries, target });

/// Where entries go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// The address, likewise.
    pub addr: [u8; 16],
    /// The port; 0 for a protocol without ports.
    pub port: u16,
    /// Number of the protocol: 6 is TCP, 17 is UDP.
    pub proto: u8,
    /// Entries that go there.
    pub entries: u32,
}

/// An entry of a connection table, as its first packet had it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flow {
    /// Port of the source; 0 for a protocol without ports.
    pub from: u16,
    /// Address of the destination, likewise.
    pub addr: [u8; 16],
    /// Port of the destination.
    pub port: u16,
    /// Number of the protocol.
    pub proto: u8,
}
flat!(Flow, Selection);

impl QdiscRow {
    /// `parent` of a root qdisc (`TC_H_ROOT`).
    pub const ROOT: u32 = u32::MAX;
    /// `parent` of `ingress` and `clsact` (`TC_H_INGRESS`).
    pub const INGRESS: u32 = 0xffff_fff1;
}
