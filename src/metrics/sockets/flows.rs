//! What `tcp_info` says over seconds, of sockets that are not in trouble: what limits those
//! that move much data, and to which peers segments are retransmitted.
//!
//! Only sockets whose `tcp_info` was read take part, and what is remembered per socket is a
//! small record in a sorted list; rings of readings exist for the busiest few.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use super::super::rate::{grown, grown32};
use super::talkers::{Talk, Talker};
use crate::sample::heap::block;
use crate::sample::sockets::{NetnsTable, Proto, TcpInfo, unmap};
use crate::sample::subject::NetnsId;
use crate::sample::time::MonoNs;

/// Readings of one socket are compared over this time.
const SPAN: Duration = Duration::from_secs(10);
/// A reading is remembered so long: the collector reads some sockets in turn.
const KEEP: Duration = Duration::from_secs(15);
/// Sockets with a ring of readings, per namespace.
const MAX_FLOWS: usize = 256;
/// Less than this, bytes/s, is not worth a ring.
const MIN_RATE: f64 = 500_000.0;
/// But this is, of one with more to send on a long path: the smaller the window, the less passes.
const MIN_RATE_HELD: f64 = 10_000.0;
/// A path is long from this round trip on, us.
const LONG_US: u32 = 5000;
/// Rings that slow connections may take.
const MAX_SLOW_FLOWS: usize = MAX_FLOWS / 2;
/// Readings in a ring at most.
const MAX_READINGS: usize = 128;
/// Peers with retransmissions that are remembered per reading.
const MAX_PEERS: usize = 64;

/// How a connection that moves data spent the last seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Over which time.
    pub dt: Duration,
    /// Bytes acknowledged.
    pub acked: u64,
    /// us with data outstanding.
    pub busy_us: u64,
    /// Of these limited by the peer's window, us.
    pub rwnd_limited_us: u64,
    /// Of these limited by our send buffer, us.
    pub sndbuf_limited_us: u64,
    /// Segments retransmitted.
    pub retrans: u32,
    /// Segments sent.
    pub segs_out: u32,
    /// Smallest `snd_wnd` at the moments of looking; `None` before 5.4.
    pub least_wnd: Option<u32>,
}

impl Flow {
    /// Bytes acknowledged per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        super::super::rate::per_second(self.acked as f64, self.dt).unwrap_or(0.0)
    }
    /// Part of the busy time in which the peer's window was the limit, 0 to 1.
    #[must_use]
    pub fn by_window(&self) -> f64 {
        super::super::rate::ratio(self.rwnd_limited_us as f64, self.busy_us as f64).unwrap_or(0.0)
    }
    /// Part of the busy time in which our send buffer was the limit, 0 to 1.
    #[must_use]
    pub fn by_sndbuf(&self) -> f64 {
        super::super::rate::ratio(self.sndbuf_limited_us as f64, self.busy_us as f64).unwrap_or(0.0)
    }
}

/// Segments retransmitted to one peer in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLoss {
    /// Namespace of the sockets.
    pub netns: NetnsId,
    /// The peer.
    pub peer: IpAddr,
    /// Segments retransmitted.
    pub retrans: u32,
    /// Segments sent by the sockets that retransmitted.
    pub segs_out: u32,
    /// Duplicates that the peer reported: retransmissions that were not needed.
    pub dsack_dups: u32,
    /// Reordering events.
    pub reordered: u32,
}

/// The part of `tcp_info` that is compared.
#[derive(Clone, Copy, Debug)]
struct Reading {
    cookie: u64,
    at: MonoNs,
    acked: Option<u64>,
    received: Option<u64>,
    busy_us: Option<u64>,
    rwnd_us: Option<u64>,
    sndbuf_us: Option<u64>,
    retrans: Option<u32>,
    segs_out: Option<u32>,
    dsack_dups: Option<u32>,
    reordered: Option<u32>,
    snd_wnd: Option<u32>,
    /// Bytes/s from which on it is worth a ring.
    worth: f64,
    row: u32,
}

/// The flows of one namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowTracker {
    /// The latest reading of each socket, sorted by cookie.
    last: Vec<Reading>,
    next: Vec<Reading>,
    rings: HashMap<u64, VecDeque<Reading>>,
    /// Who moved most between the last two readings.
    talkers: Vec<Talker>,
    /// Rows that were read both times: bytes received and sent per second, in row order.
    moved: Vec<(u32, f64, f64)>,
}

impl FlowTracker {
    /// Bytes that it holds, about.
    pub(super) fn bytes(&self) -> usize {
        let ring = |r: &VecDeque<Reading>| block(r.len() * size_of::<Reading>());
        block(self.last.len() * size_of::<Reading>())
            + block(self.next.len() * size_of::<Reading>())
            + block(self.moved.len() * size_of::<(u32, f64, f64)>())
            + self.rings.values().map(ring).sum::<usize>()
    }

    /// Takes in a reading of the namespace. Adds what was retransmitted to `losses`, and the
    /// rows whose flow a buffer limits, or whose round trip is far above its shortest, to
    /// `notable`, in row order.
    pub(super) fn read(
        &mut self,
        space: &NetnsTable,
        at: MonoNs,
        losses: &mut Vec<PeerLoss>,
        notable: &mut Vec<u32>,
    ) {
        self.gather(space, at, notable);
        let mut by_peer: BTreeMap<[u8; 16], PeerLoss> = BTreeMap::new();
        let mut merged = Vec::with_capacity(self.next.len());
        let mut old = self.last.iter().peekable();
        let mut talk = Talk::new(space);
        self.moved.clear();
        for now in &self.next {
            while let Some(gone) = old.next_if(|o| o.cookie < now.cookie) {
                if at.since(gone.at) < KEEP {
                    merged.push(*gone);
                }
            }
            merged.push(*now);
            let Some(before) = old.next_if(|o| o.cookie == now.cookie) else { continue };
            if let Some(remote) = space.inet.remote.get(now.row as usize) {
                lose(&mut by_peer, space.netns, *remote, before, now);
            }
            let moved = |a: Option<u64>, b: Option<u64>| {
                let n = a.zip(b).and_then(|(a, b)| grown(a, b)).unwrap_or(0);
                super::super::rate::per_second(n as f64, now.at.since(before.at)).unwrap_or(0.0)
            };
            let rx = moved(before.received, now.received);
            let tx = moved(before.acked, now.acked);
            talk.add(now.row as usize, rx, tx);
            self.moved.push((now.row, rx, tx));
            ring(&mut self.rings, before, now);
        }
        self.talkers = talk.most();
        self.moved.sort_unstable_by_key(|m| m.0);
        merged.extend(old.filter(|o| at.since(o.at) < KEEP).copied());
        self.next.clear();
        self.last = merged;
        self.rings.retain(|_, r| r.back().is_some_and(|n| at.since(n.at) < KEEP));
        notable.extend(self.rings.values().filter_map(|ring| {
            let f = window(ring).filter(|f| f.rate() >= worth(ring))?;
            let limited = f.by_window() >= 0.4 || f.by_sndbuf() >= 0.25;
            ring.back().filter(|r| limited && r.at == at).map(|r| r.row)
        }));
        notable.sort_unstable();
        notable.dedup();
        losses.extend(by_peer.into_values());
    }

    /// Fills `next` with the sockets whose `tcp_info` is there.
    fn gather(&mut self, space: &NetnsTable, at: MonoNs, notable: &mut Vec<u32>) {
        let rows = &space.inet;
        self.next.clear();
        if rows.infos.is_empty() {
            return;
        }
        for i in 0..rows.len() {
            let Some(info) = rows.tcp_info(i) else { continue };
            if rows.proto[i] != Proto::Tcp || !rows.state[i].may_send() {
                continue;
            }
            if is_bloated(info.rtt_us(), info.min_rtt_us()) && rows.skmem[i][2] > 0 {
                notable.push(i as u32);
            }
            self.next.push(Reading {
                cookie: rows.cookie[i],
                at,
                acked: info.bytes_acked(),
                received: info.bytes_received(),
                busy_us: info.busy_us(),
                rwnd_us: info.rwnd_limited_us(),
                sndbuf_us: info.sndbuf_limited_us(),
                retrans: info.total_retrans(),
                segs_out: info.segs_out(),
                dsack_dups: info.dsack_dups(),
                reordered: info.reord_seen(),
                snd_wnd: info.snd_wnd(),
                worth: if is_held_back(info) { MIN_RATE_HELD } else { MIN_RATE },
                row: i as u32,
            });
        }
        self.next.sort_unstable_by_key(|r| r.cookie);
        self.next.dedup_by_key(|r| r.cookie);
    }

    /// Who moved most between the last two readings.
    pub(super) fn talkers(&self) -> &[Talker] {
        &self.talkers
    }

    /// Rows that were read both times: bytes received and sent per second, in row order.
    pub(super) fn moved(&self) -> &[(u32, f64, f64)] {
        &self.moved
    }

    /// How the socket with this cookie spent the last seconds, where it moves data.
    pub(super) fn of(&self, cookie: u64) -> Option<Flow> {
        window(self.rings.get(&cookie)?)
    }
}

/// Remembers the reading of a socket that moves data.
fn ring(rings: &mut HashMap<u64, VecDeque<Reading>>, before: &Reading, now: &Reading) {
    let acked = before.acked.zip(now.acked).and_then(|(a, b)| grown(a, b)).unwrap_or(0);
    let dt = now.at.since(before.at);
    let fast = super::super::rate::per_second(acked as f64, dt).is_some_and(|r| r >= now.worth);
    let room = rings.len() < if now.worth < MIN_RATE { MAX_SLOW_FLOWS } else { MAX_FLOWS };
    let ring = match rings.get_mut(&now.cookie) {
        Some(ring) => ring,
        None if fast && room => {
            let ring = rings.entry(now.cookie).or_default();
            ring.push_back(*before);
            ring
        }
        None => return,
    };
    ring.push_back(*now);
    // One reading that is old enough to compare with stays.
    while ring.len() > 2
        && (ring.len() > MAX_READINGS || ring.get(1).is_some_and(|r| now.at.since(r.at) >= SPAN))
    {
        ring.pop_front();
    }
    let slow = window(ring).is_some_and(|f| f.dt >= SPAN && f.rate() < worth(ring) / 2.0);
    if slow {
        rings.remove(&now.cookie);
    }
}

/// From which rate on a ring is kept: one look without anything to send changes nothing.
fn worth(ring: &VecDeque<Reading>) -> f64 {
    ring.iter().map(|r| r.worth).fold(MIN_RATE, f64::min)
}

/// Has it more to send, on a long path?
fn is_held_back(info: &TcpInfo) -> bool {
    info.notsent_bytes().is_some_and(|n| n > 0) && info.min_rtt_us().is_some_and(|n| n >= LONG_US)
}

/// Far above the shortest round trip; the rule decides with the numbers.
fn is_bloated(rtt: Option<u32>, min: Option<u32>) -> bool {
    rtt.zip(min)
        .is_some_and(|(rtt, min)| min > 0 && rtt / 2 >= min && rtt.saturating_sub(min) >= 50_000)
}

/// Adds what one socket retransmitted.
fn lose(
    all: &mut BTreeMap<[u8; 16], PeerLoss>,
    netns: NetnsId,
    remote: [u8; 16],
    before: &Reading,
    now: &Reading,
) {
    let delta = |a: Option<u32>, b: Option<u32>| a.zip(b).map_or(0, |(a, b)| grown32(a, b));
    let retrans = delta(before.retrans, now.retrans);
    let dsack_dups = delta(before.dsack_dups, now.dsack_dups);
    let reordered = delta(before.reordered, now.reordered);
    if retrans == 0 && dsack_dups == 0 && reordered == 0 {
        return;
    }
    if all.len() >= MAX_PEERS && !all.contains_key(&remote) {
        return;
    }
    let none = PeerLoss {
        netns,
        peer: unmap(remote),
        retrans: 0,
        segs_out: 0,
        dsack_dups: 0,
        reordered: 0,
    };
    let p = all.entry(remote).or_insert(none);
    p.retrans = p.retrans.saturating_add(retrans);
    p.segs_out = p.segs_out.saturating_add(delta(before.segs_out, now.segs_out));
    p.dsack_dups = p.dsack_dups.saturating_add(dsack_dups);
    p.reordered = p.reordered.saturating_add(reordered);
}

/// The figures from the oldest reading of a ring to its newest.
fn window(ring: &VecDeque<Reading>) -> Option<Flow> {
    let (first, last) = (ring.front()?, ring.back()?);
    let d64 = |a: Option<u64>, b: Option<u64>| a.zip(b).and_then(|(a, b)| grown(a, b));
    let dt = last.at.since(first.at);
    (!dt.is_zero()).then_some(())?;
    Some(Flow {
        dt,
        acked: d64(first.acked, last.acked)?,
        busy_us: d64(first.busy_us, last.busy_us)?,
        rwnd_limited_us: d64(first.rwnd_us, last.rwnd_us)?,
        sndbuf_limited_us: d64(first.sndbuf_us, last.sndbuf_us)?,
        retrans: first.retrans.zip(last.retrans).map_or(0, |(a, b)| grown32(a, b)),
        segs_out: first.segs_out.zip(last.segs_out).map_or(0, |(a, b)| grown32(a, b)),
        least_wnd: ring.iter().map(|r| r.snd_wnd).min().flatten(),
    })
}
