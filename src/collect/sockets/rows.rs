//! What a socket dump becomes: columns, one entry per socket, and `tcp_info` blocks for the
//! sockets that deserve them.
//!
//! Struct of arrays: a dump of 100k sockets fills some twenty vectors and allocates nothing
//! per socket. Everything is raw: what the kernel sent, in host byte order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::model::subject::{Endpoint, NetnsId, SockId};
use crate::model::time::Span;

/// All sockets of the namespaces that one collector reads. A namespace that was not due this
/// time is carried over with its old stamps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SocketsSample {
    /// One entry per namespace.
    pub spaces: Vec<std::sync::Arc<NetnsTable>>,
    /// Namespaces known but not read, with the reason.
    pub unread: Vec<UnreadNetns>,
}

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
    /// Route lookups for sockets that retransmit.
    pub routes: Vec<RouteAnswer>,
    /// Families or protocols that could not be read, such as `mptcp: no diag module`.
    pub holes: Vec<String>,
    /// Rows that the parser had to leave out.
    pub bad_rows: u32,
}

/// The process that holds a socket inode open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Socket inode.
    pub inode: u32,
    /// Process id.
    pub pid: u32,
    /// Its `comm`, raw.
    pub comm: String,
}

/// What `RTM_GETROUTE` said of a socket's destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteAnswer {
    /// Cookie of the socket that was asked for.
    pub cookie: u64,
    /// The output interface, or the errno (positive), such as 101 `ENETUNREACH`.
    pub outcome: RouteOutcome,
}

/// Result of a route lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteOutcome {
    /// A route exists through this interface.
    Via {
        /// Interface index.
        ifindex: u32,
        /// Interface name, raw.
        dev: String,
    },
    /// The kernel refused, with this errno.
    Errno(i32),
}

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

/// `idiag_state`: the TCP states of `include/net/tcp_states.h`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SockState(pub u8);

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
#[serde(default)]
pub struct InetRows {
    /// `idiag_cookie`.
    pub cookie: Vec<u64>,
    /// Protocol.
    pub proto: Vec<Proto>,
    /// State.
    pub state: Vec<SockState>,
    /// Timer.
    pub timer: Vec<SockTimer>,
    /// `idiag_retrans`: `icsk_retransmits` (timer on) or `icsk_probes_out` (keepalive, persist).
    pub retrans: Vec<u8>,
    /// `idiag_expires`, ms to the next firing; 0 when overdue.
    pub expires_ms: Vec<u32>,
    /// Receive queue: unread bytes; LISTEN: accept queue length.
    pub rqueue: Vec<u32>,
    /// Send queue: unacknowledged and unsent bytes; LISTEN: accept queue limit.
    pub wqueue: Vec<u32>,
    /// Local address, v4 as v4-mapped v6.
    pub local: Vec<[u8; 16]>,
    /// Remote address, v4 as v4-mapped v6.
    pub remote: Vec<[u8; 16]>,
    /// Local port.
    pub lport: Vec<u16>,
    /// Remote port.
    pub rport: Vec<u16>,
    /// Bound interface, 0 for none.
    pub ifindex: Vec<u32>,
    /// Owner's uid.
    pub uid: Vec<u32>,
    /// Socket inode, 0 for orphans and TIME_WAIT.
    pub inode: Vec<u32>,
    /// cgroup2 directory inode, [`NO_CGROUP`] when not sent (before 5.8).
    pub cgroup: Vec<u64>,
    /// `SK_MEMINFO_*`: r rb t tb f w o bl d in the kernel's order (see [`SkMem`]).
    pub skmem: Vec<[u32; 9]>,
    /// How many of the nine words the kernel sent; 0 for no skmem.
    pub skmem_words: Vec<u8>,
    /// Index into `infos`, [`NO_INFO`] when none was read.
    pub info: Vec<u32>,
    /// `tcp_info` blocks.
    pub infos: Vec<TcpInfo>,
}

impl InetRows {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cookie.len()
    }
    /// No rows?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cookie.is_empty()
    }
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
    /// Bytes of memory that the columns hold, for the history budget.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len() * (8 + 5 + 4 * 6 + 32 + 4 + 8 + 36 + 1 + 4)
            + self.infos.len() * size_of::<TcpInfo>()
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

/// Largest `tcp_info` that is kept; a newer kernel's extra bytes are cut.
pub const TCP_INFO_MAX: usize = 304;

/// A `tcp_info` block as the kernel sent it, read by offset and length: a field exists when
/// the block is long enough for it, whatever the kernel's version says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo {
    len: u16,
    raw: [u8; TCP_INFO_MAX],
}

impl TcpInfo {
    /// Keeps the first [`TCP_INFO_MAX`] bytes of an `INET_DIAG_INFO` attribute.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let len = bytes.len().min(TCP_INFO_MAX);
        let mut raw = [0; TCP_INFO_MAX];
        raw[..len].copy_from_slice(&bytes[..len]);
        Self { len: len as u16, raw }
    }
    /// The bytes the kernel sent.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.raw[..usize::from(self.len)]
    }
    fn read<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.as_bytes().get(at..at + N)?.try_into().ok()
    }
    /// Overwrites a field, lengthening the block when needed: for tests and scripted sources.
    #[must_use]
    pub fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        let end = (at + bytes.len()).min(TCP_INFO_MAX);
        if at < end {
            self.raw[at..end].copy_from_slice(&bytes[..end - at]);
            self.len = self.len.max(end as u16);
        }
        self
    }
}

impl std::fmt::Debug for TcpInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TcpInfo({} bytes)", self.len)
    }
}

impl Serialize for TcpInfo {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for TcpInfo {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let bytes: Vec<u8> = Vec::deserialize(d)?;
        Ok(Self::from_bytes(&bytes))
    }
}

macro_rules! tcp_info_fields {
    ($( $(#[$doc:meta])* $name:ident: $ty:ident @ $off:literal; )+) => {
        impl TcpInfo {
            $( $(#[$doc])* #[must_use] pub fn $name(&self) -> Option<$ty> { self.read($off).map($ty::from_ne_bytes) } )+
            /// Name, offset and size of every field, for tests and scripted sources.
            pub const FIELDS: &'static [(&'static str, usize, usize)] = &[ $( (stringify!($name), $off, size_of::<$ty>()) ),+ ];
        }
    };
}
tcp_info_fields! {
    /// TCP state.
    state: u8 @ 0;
    /// Congestion-avoidance state: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    ca_state: u8 @ 1;
    /// RTOs since the last progress.
    retransmits: u8 @ 2;
    /// Unanswered zero-window or keepalive probes.
    probes: u8 @ 3;
    /// Exponential backoff, shared by RTO and zero-window probes.
    backoff: u8 @ 4;
    /// `TCPI_OPT_*` bits.
    options: u8 @ 5;
    /// Window scales: low nibble ours to send, high nibble to receive.
    wscale: u8 @ 6;
    /// Bit 0: the application limits the rate.
    app_limited: u8 @ 7;
    /// Retransmission timeout, us, backoff included (not for zero-window probes).
    rto_us: u32 @ 8;
    /// Delayed-ACK timeout, us.
    ato_us: u32 @ 12;
    /// Maximum segment size to send.
    snd_mss: u32 @ 16;
    /// Maximum segment size seen.
    rcv_mss: u32 @ 20;
    /// Segments sent and not acknowledged; LISTEN: accept queue length.
    unacked: u32 @ 24;
    /// SACKed segments; LISTEN: accept queue limit.
    sacked: u32 @ 28;
    /// Segments taken for lost.
    lost: u32 @ 32;
    /// Retransmitted segments that are still out.
    retrans: u32 @ 36;
    /// ms since data was last sent.
    last_data_sent_ms: u32 @ 44;
    /// ms since data was last received.
    last_data_recv_ms: u32 @ 52;
    /// ms since an ACK was last received.
    last_ack_recv_ms: u32 @ 56;
    /// Path MTU.
    pmtu: u32 @ 60;
    /// Receive slow-start threshold.
    rcv_ssthresh: u32 @ 64;
    /// Smoothed round-trip time, us.
    rtt_us: u32 @ 68;
    /// Its mean deviation, us.
    rttvar_us: u32 @ 72;
    /// Slow-start threshold, segments.
    snd_ssthresh: u32 @ 76;
    /// Congestion window, segments.
    snd_cwnd: u32 @ 80;
    /// Advertised MSS.
    advmss: u32 @ 84;
    /// Reordering metric.
    reordering: u32 @ 88;
    /// Receiver-side RTT estimate, us.
    rcv_rtt_us: u32 @ 92;
    /// Receive space.
    rcv_space: u32 @ 96;
    /// Segments retransmitted over the lifetime, SYN and TLP included.
    total_retrans: u32 @ 100;
    /// Pacing rate, bytes/s.
    pacing_rate: u64 @ 104;
    /// Limit of the pacing rate, bytes/s.
    max_pacing_rate: u64 @ 112;
    /// Bytes acknowledged (since 4.1).
    bytes_acked: u64 @ 120;
    /// Bytes received in order (since 4.1).
    bytes_received: u64 @ 128;
    /// Segments sent (since 4.2).
    segs_out: u32 @ 136;
    /// Segments received (since 4.2).
    segs_in: u32 @ 140;
    /// Bytes in the write queue that were never sent (since 4.6).
    notsent_bytes: u32 @ 144;
    /// Smallest RTT seen, us (since 4.6).
    min_rtt_us: u32 @ 148;
    /// Segments with data received (since 4.6).
    data_segs_in: u32 @ 152;
    /// Segments with data sent (since 4.6).
    data_segs_out: u32 @ 156;
    /// Delivery rate, bytes/s (since 4.9).
    delivery_rate: u64 @ 160;
    /// us with data outstanding (since 4.10).
    busy_us: u64 @ 168;
    /// us limited by the peer's window (since 4.10).
    rwnd_limited_us: u64 @ 176;
    /// us limited by our send buffer (since 4.10).
    sndbuf_limited_us: u64 @ 184;
    /// Segments delivered (since 4.18).
    delivered: u32 @ 192;
    /// Bytes sent, retransmissions included (since 4.19).
    bytes_sent: u64 @ 200;
    /// Bytes retransmitted (since 4.19).
    bytes_retrans: u64 @ 208;
    /// Duplicate SACKs received (since 4.19).
    dsack_dups: u32 @ 216;
    /// Reordering events seen (since 4.19).
    reord_seen: u32 @ 220;
    /// Out-of-order packets received (since 5.4).
    rcv_ooopack: u32 @ 224;
    /// Peer's advertised window, bytes (since 5.4).
    snd_wnd: u32 @ 228;
    /// Our advertised window, bytes (since 6.2).
    rcv_wnd: u32 @ 232;
    /// Path rehash attempts (since 6.2).
    rehash: u32 @ 236;
    /// RTOs over the lifetime (since 6.7).
    total_rto: u16 @ 240;
    /// Recoveries from RTO over the lifetime (since 6.7).
    total_rto_recoveries: u16 @ 242;
    /// ms spent in RTO recovery over the lifetime (since 6.7).
    total_rto_time_ms: u32 @ 244;
}

/// UNIX rows. All columns have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnixRows {
    /// `udiag_cookie`.
    pub cookie: Vec<u64>,
    /// Inode.
    pub inode: Vec<u32>,
    /// `SOCK_STREAM` 1, `SOCK_DGRAM` 2, `SOCK_SEQPACKET` 5.
    pub kind: Vec<u8>,
    /// TCP state numbers: 1 connected, 7 unconnected, 10 listening.
    pub state: Vec<SockState>,
    /// Bytes (or connections, when listening) that wait to be read.
    pub rqueue: Vec<u32>,
    /// Bytes that wait to be taken by the peer; listening: backlog limit.
    pub wqueue: Vec<u32>,
    /// Inode of the peer, 0 for none.
    pub peer: Vec<u32>,
    /// End of the row's name in `names`.
    pub name_end: Vec<u32>,
    /// All names, one after the other, raw; an abstract name begins with NUL.
    pub names: Vec<u8>,
}

impl UnixRows {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inode.len()
    }
    /// No rows?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inode.is_empty()
    }
    /// The raw name of a row.
    #[must_use]
    pub fn name(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.name_end[i - 1] as usize };
        self.names.get(start..self.name_end[i] as usize).unwrap_or_default()
    }
    /// Bytes of memory that the columns hold, for the history budget.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len() * (8 + 4 * 5 + 2) + self.names.len()
    }
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
    /// The route lookup made for a socket.
    #[must_use]
    pub fn route(&self, cookie: u64) -> Option<&RouteOutcome> {
        self.routes.iter().find(|r| r.cookie == cookie).map(|r| &r.outcome)
    }
    /// Bytes of memory, for the history budget.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.inet.bytes() + self.unix.bytes() + self.owners.len() * 48
    }
}
