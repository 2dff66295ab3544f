//! What a socket dump becomes: columns, one entry per socket, and `tcp_info` blocks for the
//! sockets that deserve them.
//!
//! Struct of arrays: a dump of 100k sockets fills some twenty vectors and allocates nothing
//! per socket. Everything is raw: what the kernel sent, in host byte order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::columns::columns;
use super::{Owner, RouteAnswer, RouteOutcome, TcpInfo, UnixRows};
use crate::sample::heap::{flat, owns};
use crate::sample::packed::{self, Packed, split};
use crate::sample::subject::{Endpoint, NetnsId, SockId};
use crate::sample::time::Span;

/// All sockets of the namespaces that one collector reads. A namespace that was not due this
/// time is carried over with its old stamps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SocketsSample {
    /// One entry per namespace.
    pub spaces: Vec<std::sync::Arc<NetnsTable>>,
    /// Namespaces known but not read, with the reason.
    pub unread: Vec<UnreadNetns>,
}
owns!(SocketsSample { spaces, unread } flat {});

/// A namespace that was not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadNetns {
    /// The namespace.
    pub netns: NetnsId,
    /// Name of a member: container, mount name, or process.
    pub label: String,
    /// Why it was not read.
    pub reason: String,
}
owns!(UnreadNetns { label, reason } flat { netns });

/// Where the rows of a namespace came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketSource {
    /// `NETLINK_SOCK_DIAG`.
    #[default]
    Netlink,
    /// `/proc/net/tcp`, `/proc/net/tcp6`, ...: no skmem, no tcp_info, no cookie.
    ProcNet,
}

/// The sockets of one network namespace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NetnsTable {
    /// The namespace.
    pub netns: NetnsId,
    /// Name of a member: `host`, container, mount name, or process.
    pub label: String,
    /// A member process, for `/proc/PID/net`; `None` for a namespace held by a mount alone.
    pub member: Option<u32>,
    /// When it was read.
    pub span: Span,
    /// How it was read.
    pub source: SocketSource,
    /// TCP, MPTCP and UDP sockets.
    pub inet: InetRows,
    /// UNIX sockets.
    pub unix: UnixRows,
    /// Owners of socket inodes that were asked for.
    pub owners: Vec<Owner>,
    /// Paths of cgroup ids that rows name, as far as they are known: id, path below the
    /// cgroup2 mount. Raw.
    pub cgroups: Vec<(u64, String)>,
    /// Route lookups for sockets that retransmit.
    pub routes: Vec<RouteAnswer>,
    /// Families or protocols that could not be read, such as `mptcp: no diag module`.
    pub holes: Vec<String>,
    /// Rows that the parser had to leave out.
    pub bad_rows: u32,
    /// `net.ipv4.ip_local_port_range` of the namespace: first and last port for connections
    /// without a bound one. Not read for a handful of sockets.
    pub ports: Option<(u16, u16)>,
}
owns!(NetnsTable { label, inet, unix, owners, cgroups, routes, holes } flat {
    netns, member, span, source, bad_rows, ports
} same by |a, b| (a.netns, a.span) == (b.netns, b.span));

/// Protocol of an inet row.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Proto {
    /// IPPROTO_TCP.
    #[default]
    Tcp,
    /// IPPROTO_MPTCP (262).
    Mptcp,
    /// IPPROTO_UDP.
    Udp,
}
flat!(Proto);

/// `idiag_state`: the TCP states of `include/net/tcp_states.h`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SockState(pub u8);
flat!(SockState);

impl SockState {
    /// ESTABLISHED.
    pub const ESTAB: Self = Self(1);
    /// SYN_SENT.
    pub const SYN_SENT: Self = Self(2);
    /// SYN_RECV.
    pub const SYN_RECV: Self = Self(3);
    /// FIN_WAIT1.
    pub const FIN_WAIT1: Self = Self(4);
    /// FIN_WAIT2.
    pub const FIN_WAIT2: Self = Self(5);
    /// TIME_WAIT.
    pub const TIME_WAIT: Self = Self(6);
    /// CLOSE: an unconnected UDP socket.
    pub const CLOSE: Self = Self(7);
    /// CLOSE_WAIT.
    pub const CLOSE_WAIT: Self = Self(8);
    /// LAST_ACK.
    pub const LAST_ACK: Self = Self(9);
    /// LISTEN.
    pub const LISTEN: Self = Self(10);
    /// CLOSING.
    pub const CLOSING: Self = Self(11);
    /// NEW_SYN_RECV.
    pub const NEW_SYN_RECV: Self = Self(12);

    /// The name that `ss` prints.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            1 => "ESTAB",
            2 => "SYN-SENT",
            3 | 12 => "SYN-RECV",
            4 => "FIN-WAIT-1",
            5 => "FIN-WAIT-2",
            6 => "TIME-WAIT",
            7 => "UNCONN",
            8 => "CLOSE-WAIT",
            9 => "LAST-ACK",
            10 => "LISTEN",
            11 => "CLOSING",
            _ => "UNKNOWN",
        }
    }

    /// States in which data may still be on its way to the peer.
    #[must_use]
    pub fn may_send(self) -> bool {
        matches!(
            self,
            Self::ESTAB | Self::CLOSE_WAIT | Self::FIN_WAIT1 | Self::CLOSING | Self::LAST_ACK
        )
    }
}

/// `idiag_timer`: which timer runs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SockTimer(pub u8);
flat!(SockTimer);

impl SockTimer {
    /// No timer.
    pub const OFF: Self = Self(0);
    /// Retransmission: RTO, RACK reordering or TLP.
    pub const ON: Self = Self(1);
    /// Keepalive.
    pub const KEEPALIVE: Self = Self(2);
    /// TIME_WAIT.
    pub const TIMEWAIT: Self = Self(3);
    /// Zero-window probe.
    pub const PERSIST: Self = Self(4);
    /// Delayed ACK (headers of 2026-03).
    pub const DELACK: Self = Self(5);

    /// The name that `ss` prints; empty when off.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "",
            1 => "on",
            2 => "keepalive",
            3 => "timewait",
            4 => "persist",
            5 => "delack",
            _ => "unknown",
        }
    }
}

/// A number that means "no cgroup id was sent".
pub const NO_CGROUP: u64 = 0;
/// A number that means "no tcp_info was read for this row".
pub const NO_INFO: u32 = u32::MAX;

/// TCP, MPTCP and UDP rows. All columns have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, remote = "Self")]
pub struct InetRows {
    /// `idiag_cookie`.
    #[serde(deserialize_with = "packed::column")]
    pub cookie: Vec<u64>,
    /// Protocol.
    pub proto: Vec<Proto>,
    /// State.
    #[serde(deserialize_with = "packed::column")]
    pub state: Vec<SockState>,
    /// Timer.
    #[serde(deserialize_with = "packed::column")]
    pub timer: Vec<SockTimer>,
    /// `idiag_retrans`: `icsk_retransmits` (timer on) or `icsk_probes_out` (keepalive, persist).
    #[serde(deserialize_with = "packed::column")]
    pub retrans: Vec<u8>,
    /// `idiag_expires`, ms to the next firing; 0 when overdue.
    #[serde(deserialize_with = "packed::column")]
    pub expires_ms: Vec<u32>,
    /// Receive queue: unread bytes; LISTEN: accept queue length.
    #[serde(deserialize_with = "packed::column")]
    pub rqueue: Vec<u32>,
    /// Send queue: unacknowledged and unsent bytes; LISTEN: accept queue limit.
    #[serde(deserialize_with = "packed::column")]
    pub wqueue: Vec<u32>,
    /// Local address, v4 as v4-mapped v6.
    #[serde(deserialize_with = "packed::column")]
    pub local: Vec<[u8; 16]>,
    /// Remote address, v4 as v4-mapped v6.
    #[serde(deserialize_with = "packed::column")]
    pub remote: Vec<[u8; 16]>,
    /// Local port.
    #[serde(deserialize_with = "packed::column")]
    pub lport: Vec<u16>,
    /// Remote port.
    #[serde(deserialize_with = "packed::column")]
    pub rport: Vec<u16>,
    /// Bound interface, 0 for none.
    #[serde(deserialize_with = "packed::column")]
    pub ifindex: Vec<u32>,
    /// Owner's uid.
    #[serde(deserialize_with = "packed::column")]
    pub uid: Vec<u32>,
    /// Socket inode, 0 for orphans and TIME_WAIT.
    #[serde(deserialize_with = "packed::column")]
    pub inode: Vec<u32>,
    /// cgroup2 directory inode, [`NO_CGROUP`] when not sent (before 5.8).
    #[serde(deserialize_with = "packed::column")]
    pub cgroup: Vec<u64>,
    /// `SK_MEMINFO_*`: r rb t tb f w o bl d in the kernel's order (see [`SkMem`]).
    #[serde(deserialize_with = "packed::column")]
    pub skmem: Vec<[u32; 9]>,
    /// How many of the nine words the kernel sent; 0 for no skmem.
    #[serde(deserialize_with = "packed::column")]
    pub skmem_words: Vec<u8>,
    /// Index into `infos`, [`NO_INFO`] when none was read.
    #[serde(deserialize_with = "packed::column")]
    pub info: Vec<u32>,
    /// `tcp_info` blocks.
    #[serde(deserialize_with = "packed::column")]
    pub infos: Vec<TcpInfo>,
}
owns!(InetRows {
    cookie, proto, state, timer, retrans, expires_ms, rqueue, wqueue, local, remote, lport, rport,
    ifindex, uid, inode, cgroup, skmem, skmem_words, info, infos
} flat {});

columns!(InetRows {
    cookie, proto, state, timer, retrans, expires_ms, rqueue, wqueue, local, remote, lport, rport,
    ifindex, uid, inode, cgroup, skmem, skmem_words, info,
} beside { infos });

impl InetRows {
    /// The row with this cookie.
    #[must_use]
    pub fn find(&self, cookie: u64) -> Option<usize> {
        self.cookie.iter().position(|c| *c == cookie)
    }
    /// Local endpoint of a row.
    #[must_use]
    pub fn local_endpoint(&self, i: usize) -> Endpoint {
        Endpoint { addr: unmap(self.local[i]), port: self.lport[i] }
    }
    /// Remote endpoint of a row.
    #[must_use]
    pub fn remote_endpoint(&self, i: usize) -> Endpoint {
        Endpoint { addr: unmap(self.remote[i]), port: self.rport[i] }
    }
    /// Socket memory of a row.
    #[must_use]
    pub fn skmem(&self, i: usize) -> SkMem<'_> {
        SkMem { words: &self.skmem[i][..usize::from(self.skmem_words[i]).min(9)] }
    }
    /// `tcp_info` of a row, where it was read.
    #[must_use]
    pub fn tcp_info(&self, i: usize) -> Option<&TcpInfo> {
        self.infos.get(self.info[i] as usize)
    }
}

impl Packed for SockState {
    const NAME: &'static str = <u8 as Packed>::NAME;
    fn all(bytes: &[u8]) -> Option<Vec<Self>> {
        split(bytes, |b: [u8; 1]| Self(b[0]))
    }
}
impl Packed for SockTimer {
    const NAME: &'static str = <u8 as Packed>::NAME;
    fn all(bytes: &[u8]) -> Option<Vec<Self>> {
        split(bytes, |b: [u8; 1]| Self(b[0]))
    }
}

/// A v4-mapped address becomes a v4 address.
#[must_use]
pub fn unmap(a: [u8; 16]) -> IpAddr {
    let v6 = Ipv6Addr::from(a);
    v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
}

/// A v4 address as v4-mapped v6.
#[must_use]
pub fn map_v4(a: [u8; 4]) -> [u8; 16] {
    Ipv4Addr::from(a).to_ipv6_mapped().octets()
}

/// Socket memory by the names that `ss` prints. `None` where the kernel sent fewer words.
/// All are truesize, not payload.
#[derive(Clone, Copy, Debug)]
pub struct SkMem<'a> {
    words: &'a [u32],
}

macro_rules! skmem_words {
    ($( $(#[$doc:meta])* $name:ident = $index:literal; )+) => {
        impl SkMem<'_> { $( $(#[$doc])* #[must_use] pub fn $name(&self) -> Option<u32> { self.words.get($index).copied() } )+ }
    };
}
skmem_words! {
    /// `sk_rmem_alloc`: bytes in the receive queue.
    r = 0;
    /// `sk_rcvbuf`: its limit.
    rb = 1;
    /// `sk_wmem_alloc`: handed to IP, qdisc or driver and not freed yet.
    t = 2;
    /// `sk_sndbuf`: send limit.
    tb = 3;
    /// `sk_forward_alloc`.
    f = 4;
    /// `sk_wmem_queued`: write queue and retransmit queue.
    w = 5;
    /// `sk_omem_alloc`.
    o = 6;
    /// Backlog length.
    bl = 7;
    /// Drops (since 4.7).
    d = 8;
}

impl NetnsTable {
    /// The id of inet row `i`.
    #[must_use]
    pub fn id(&self, i: usize) -> SockId {
        SockId { netns: self.netns, cookie: self.inet.cookie[i] }
    }
    /// The known owner of a socket inode.
    #[must_use]
    pub fn owner(&self, inode: u32) -> Option<&Owner> {
        if inode == 0 {
            return None;
        }
        self.owners.iter().find(|o| o.inode == inode)
    }
    /// The path of a cgroup id below the cgroup2 mount, where it is known.
    #[must_use]
    pub fn cgroup_path(&self, id: u64) -> Option<&str> {
        self.cgroups.iter().find(|(known, _)| *known == id).map(|(_, path)| path.as_str())
    }
    /// The route lookup made for a socket.
    #[must_use]
    pub fn route(&self, cookie: u64) -> Option<&RouteOutcome> {
        self.routes.iter().find(|r| r.cookie == cookie).map(|r| &r.outcome)
    }
}
