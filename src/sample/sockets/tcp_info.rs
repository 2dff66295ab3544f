//! `struct tcp_info` as the kernel sent it: parsed by length, never by kernel version,
//! because distributions backport fields. A field that the block is too short for is `None`:
//! a missing `snd_wnd` must not read as a closed window.

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::sample::heap::flat;
use crate::sample::packed::Packed;

/// Largest `tcp_info` that is kept; a newer kernel's extra bytes are cut.
pub const TCP_INFO_MAX: usize = 304;

/// A `tcp_info` block as the kernel sent it, read by offset and length: a field exists when
/// the block is long enough for it, whatever the kernel's version says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo {
    len: u16,
    raw: [u8; TCP_INFO_MAX],
}
flat!(TcpInfo);

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
        d.deserialize_bytes(Block)
    }
}

/// A block as bytes, or as a list of numbers.
struct Block;

impl<'de> Visitor<'de> for Block {
    type Value = TcpInfo;
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the bytes of a tcp_info")
    }
    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<TcpInfo, E> {
        Ok(TcpInfo::from_bytes(bytes))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TcpInfo, A::Error> {
        let mut bytes = Vec::new();
        while let Some(b) = seq.next_element()? {
            bytes.push(b);
        }
        Ok(TcpInfo::from_bytes(&bytes))
    }
}

impl Packed for TcpInfo {
    const NAME: &'static str = "packed blocks";
    fn all(bytes: &[u8]) -> Option<Vec<Self>> {
        let (len, blocks) = bytes.split_first_chunk()?;
        let len = u32::from_le_bytes(*len) as usize;
        let stride = len.checked_next_multiple_of(4).filter(|s| *s > 0)?;
        if !blocks.len().is_multiple_of(stride) {
            return None;
        }
        let one = |b: &[u8]| Self::from_bytes(b.get(..len).unwrap_or(b));
        Some(blocks.chunks_exact(stride).map(one).collect())
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
