//! The programs of `net` and `net_perf`: TCP retransmits and resets, full receive queues, dropped
//! packets and who sent the bad ones, and who connects.
//!
//! Every event is counted per CPU and never lost. TCP events are also handed to the reader
//! with the socket they are about; a rate limit and a full buffer cost records, which are
//! counted. One CPU runs these programs in process and in softirq context, so counters are
//! atomic. Two contexts that claim a free row of the table of places at once can mix up one
//! drop.

use core::ffi::c_void;

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::{btf_tracepoint, map};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::BtfTracePointContext;
use stallscope_bpf::layout::net::{
    BAD_FILLED, BAD_PACKET, BAD_TOKENS, CONNECT, CONNECT_FILLED, CONNECT_TOKENS, DROP_SUBSYS,
    DROPS, Event, FILLED, KIND, LIMITED, PLACE, PLACE_FULL, PLACE_WORDS, PLACES, PROBES, RATE,
    RCVQUEUE_FULL, REASON, REASONS, RECEIVE_RESET, RETRANSMIT, RETRANSMIT_FAILED, RING_FULL,
    SAMPLED_RATE, SEND_RESET, TOKENS, WORDS,
};
use stallscope_bpf::{Kernel, MMAPABLE, Place, Stripe, arg, at, bounded, cpu, now, offsets};

#[map]
static NET: Array<[u64; WORDS]> = Array::with_max_entries(1, MMAPABLE);

offsets! {
    /// Fields of `sock.__sk_common`.
    SK_FAMILY,
    SK_STATE,
    SK_NUM,
    SK_DPORT,
    SK_DADDR,
    SK_RCV_SADDR,
    SK_V6_DADDR,
    SK_V6_RCV_SADDR,
    SK_NET,
    SK_COOKIE,
    /// `net.ns.inum`.
    NET_INUM,
    /// Not 0: the kernel has IPv6 addresses in sockets.
    SK_HAS_V6,
    /// Not 0: `tcp_retransmit_skb` tells the error.
    RETRANSMIT_HAS_ERR,
    /// Not 0: `tcp_send_reset` tells the reason.
    RESET_HAS_REASON,
    /// Not 0: read with the helper what is read seldom, see `stallscope_bpf::Address`.
    BY_HELPER,
    /// Not 0: `kfree_skb` tells the reason.
    DROP_HAS_REASON,
    /// Not 0: the headers of a packet can be read, with the helper.
    SKB_KNOWN,
    SKB_DEV,
    SKB_HEAD,
    SKB_NETWORK_HEADER,
    /// `net_device.nd_net.net`.
    DEV_NET,
    /// Reasons for which the sender is told, as this kernel numbers them; 0: it has none such.
    BAD_REASON_0,
    BAD_REASON_1,
    BAD_REASON_2,
    BAD_REASON_3,
    BAD_REASON_4,
}

const TCP_SYN_SENT: u64 = 2;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

#[btf_tracepoint(function = "tcp_retransmit_skb")]
pub fn tcp_retransmit(ctx: BtfTracePointContext) -> i32 {
    let err = if RETRANSMIT_HAS_ERR.load() != 0 { arg(ctx.as_ptr(), 2) as i32 } else { 0 };
    let kind = if err == 0 { RETRANSMIT } else { RETRANSMIT_FAILED };
    event(ctx.as_ptr(), kind, err);
    0
}

#[btf_tracepoint(function = "tcp_send_reset")]
pub fn tcp_send_reset(ctx: BtfTracePointContext) -> i32 {
    let reason = if RESET_HAS_REASON.load() != 0 { arg(ctx.as_ptr(), 2) as i32 } else { 0 };
    event(ctx.as_ptr(), SEND_RESET, reason);
    0
}

#[btf_tracepoint(function = "tcp_receive_reset")]
pub fn tcp_receive_reset(ctx: BtfTracePointContext) -> i32 {
    event(ctx.as_ptr(), RECEIVE_RESET, 0);
    0
}

#[btf_tracepoint(function = "sock_rcvqueue_full")]
pub fn rcvqueue_full(ctx: BtfTracePointContext) -> i32 {
    event(ctx.as_ptr(), RCVQUEUE_FULL, 0);
    0
}

/// Who calls `connect()` is the current task when the socket goes to SYN-SENT.
#[btf_tracepoint(function = "inet_sock_set_state")]
pub fn connect(ctx: BtfTracePointContext) -> i32 {
    if arg(ctx.as_ptr(), 2) & 0xffff_ffff == TCP_SYN_SENT {
        event(ctx.as_ptr(), CONNECT, (bpf_get_current_pid_tgid() >> 32) as i32);
    }
    0
}

#[btf_tracepoint(function = "kfree_skb")]
pub fn drop_skb(ctx: BtfTracePointContext) -> i32 {
    let Some(s) = Stripe::of(&NET, cpu()) else { return 0 };
    let place = arg(ctx.as_ptr(), 1);
    let reason = if DROP_HAS_REASON.load() != 0 { arg(ctx.as_ptr(), 2) & 0xffff_ffff } else { 0 };
    s.add_shared(DROPS, 1);
    // The high half names a subsystem with reasons of its own.
    let mut index = reason;
    if reason >= 1 << 16 {
        s.add_shared(DROP_SUBSYS, 1);
        index = REASONS as u64 - 1;
    }
    if index >= REASONS as u64 {
        index = REASONS as u64 - 1;
    }
    let index = bounded::<255>(index);
    if index >= REASONS {
        return 0;
    }
    s.add_shared(REASON + index, 1);
    if SKB_KNOWN.load() != 0 && is_bad(reason as u32) {
        bad_packet(ctx.as_ptr(), s, reason as i32);
    }
    count_place(s, (index as u64) << 48 | place & 0xffff_ffff_ffff);
    0
}

#[inline(always)]
fn is_bad(reason: u32) -> bool {
    reason != 0
        && (reason == BAD_REASON_0.load()
            || reason == BAD_REASON_1.load()
            || reason == BAD_REASON_2.load()
            || reason == BAD_REASON_3.load()
            || reason == BAD_REASON_4.load())
}

/// Hands over where a packet comes from.
#[inline(always)]
fn bad_packet(ctx: *mut c_void, s: Stripe, reason: i32) {
    s.add_shared(KIND + BAD_PACKET, 1);
    let t = now();
    if !allowed::<SAMPLED_RATE>(s, BAD_TOKENS, BAD_FILLED, t) {
        return;
    }
    let mut e = Event { at: t, kind: BAD_PACKET as u16, detail: reason, cpu: cpu(), ..EMPTY };
    let skb = Kernel::arg(ctx, 0).untyped();
    let header: u16 = skb.read(at!(SKB_NETWORK_HEADER));
    let ip = skb.follow(at!(SKB_HEAD)).at(header as usize);
    let version = ip.read::<u8>(0) >> 4;
    if version == 4 {
        e.family = AF_INET;
        copy4(&mut e.daddr, ip.read(12));
        copy4(&mut e.saddr, ip.read(16));
    } else if version == 6 {
        e.family = AF_INET6;
        copy16(&mut e.daddr, ip, 8);
        copy16(&mut e.saddr, ip, 24);
    }
    e.netns = skb.follow(at!(SKB_DEV)).follow(at!(DEV_NET)).read(at!(NET_INUM));
    if !crate::emit(ctx, &e) {
        s.add_shared(RING_FULL, 1);
    }
}

const EMPTY: Event = Event {
    at: 0,
    cookie: 0,
    kind: 0,
    family: 0,
    sport: 0,
    dport: 0,
    netns: 0,
    detail: 0,
    saddr: [0; 16],
    daddr: [0; 16],
    state: 0,
    cpu: 0,
};

#[inline(always)]
fn count_place(s: Stripe, key: u64) {
    let first = key ^ (key >> 4) ^ (key >> 13) ^ (key >> 48);
    let mut i = 0;
    while i < PROBES as u64 {
        let row = PLACE + bounded::<{ PLACES as u64 - 1 }>(first.wrapping_add(i)) * PLACE_WORDS;
        let have = s.get(row);
        if have == 0 || have == key {
            if have == 0 {
                s.set(row, key);
            }
            s.add_shared(row + 1, 1);
            return;
        }
        i += 1;
    }
    s.add_shared(PLACE_FULL, 1);
}

#[inline(always)]
fn event(ctx: *mut c_void, kind: usize, detail: i32) {
    let sk = Kernel::arg(ctx, 0);
    let cpu = cpu();
    let Some(s) = Stripe::of(&NET, cpu) else { return };
    s.add_shared(KIND + kind, 1);
    let t = now();
    if kind == CONNECT {
        if !allowed::<SAMPLED_RATE>(s, CONNECT_TOKENS, CONNECT_FILLED, t) {
            return;
        }
    } else if !allowed::<RATE>(s, TOKENS, FILLED, t) {
        s.add_shared(LIMITED, 1);
        return;
    }
    let mut e = Event { at: t, kind: kind as u16, detail, cpu, ..EMPTY };
    if !sk.is_null() {
        describe(sk, &mut e);
    }
    if !crate::emit(ctx, &e) {
        s.add_shared(RING_FULL, 1);
    }
}

#[inline(always)]
fn describe(sk: Kernel, e: &mut Event) {
    e.family = sk.read(at!(SK_FAMILY));
    e.state = u32::from(sk.read::<u8>(at!(SK_STATE)));
    e.sport = sk.read(at!(SK_NUM));
    e.dport = sk.read(at!(SK_DPORT));
    e.cookie = sk.read(at!(SK_COOKIE));
    e.netns = if BY_HELPER.load() != 0 { netns(sk.untyped()) } else { netns(sk) };
    if e.family == AF_INET {
        copy4(&mut e.saddr, sk.read(at!(SK_RCV_SADDR)));
        copy4(&mut e.daddr, sk.read(at!(SK_DADDR)));
    } else if e.family == AF_INET6 && SK_HAS_V6.load() != 0 {
        copy16(&mut e.saddr, sk, at!(SK_V6_RCV_SADDR));
        copy16(&mut e.daddr, sk, at!(SK_V6_DADDR));
    }
}

#[inline(always)]
fn netns(sk: impl Place) -> u32 {
    sk.follow(at!(SK_NET)).read(at!(NET_INUM))
}

#[inline(always)]
fn copy4(to: &mut [u8; 16], v: u32) {
    let b = v.to_ne_bytes();
    to[0] = b[0];
    to[1] = b[1];
    to[2] = b[2];
    to[3] = b[3];
}

#[inline(always)]
fn copy16(to: &mut [u8; 16], from: impl Place, offset: usize) {
    let words: [u32; 4] =
        [from.read(offset), from.read(offset + 4), from.read(offset + 8), from.read(offset + 12)];
    // SAFETY: same size.
    *to = unsafe { core::mem::transmute::<[u32; 4], [u8; 16]>(words) };
}

/// A token bucket of this CPU. Contexts that meet here may spend one token twice: harmless.
#[inline(always)]
fn allowed<const RATE: u64>(s: Stripe, left: usize, filled: usize, t: u64) -> bool {
    let mut tokens = s.get(left);
    let since = t.wrapping_sub(s.get(filled));
    // 2^30 ns stand for a second.
    if since >= 1 << 20 {
        let earned = if since >= 1 << 30 { RATE } else { (since * RATE) >> 30 };
        if earned > 0 {
            tokens = if tokens + earned > RATE { RATE } else { tokens + earned };
            s.set(filled, t);
        }
    }
    if tokens == 0 {
        return false;
    }
    s.set(left, tokens - 1);
    true
}
