//! Sockets over time: timer events, how long nothing moved, and which sockets are in trouble.
//!
//! A healthy socket costs one look at its row per tick. A socket whose timer, queue or window
//! looks odd is followed: its `tcp_info` from tick to tick, and the last few timer events with
//! what left the host at each. RTOs may be two minutes apart, so the events are remembered
//! here and not searched in the history.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::rate::{grown, grown32};
use crate::collect::sockets::{
    InetRows, NetnsTable, Owner, Proto, RouteOutcome, SockState, SockTimer, TcpInfo,
};
use crate::model::subject::{Endpoint, NetnsId, SockId};
use crate::model::time::MonoNs;

/// Timer events remembered per socket.
pub const MAX_EVENTS: usize = 8;
/// Sockets followed at most; the worst are kept.
pub const MAX_SUSPECTS: usize = 5000;
/// How long a socket is followed after its last trouble, and after it vanished.
const KEEP: Duration = Duration::from_secs(60);

/// Which timer fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerKind {
    /// Retransmission timeout: `retransmits` grew.
    Rto,
    /// Zero-window probe.
    Probe,
}

/// One firing (or several between two ticks) of a socket's timer, with what left the host in
/// the same interval. `None`: this kernel does not report the field, or it was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerEvent {
    /// Tick in which it was seen.
    pub at: MonoNs,
    /// Which timer.
    pub kind: TimerKind,
    /// How often it fired since the tick before.
    pub count: u32,
    /// Growth of `segs_out`.
    pub segs_out: Option<u32>,
    /// Growth of `data_segs_out`.
    pub data_segs_out: Option<u32>,
    /// Growth of `total_retrans`.
    pub total_retrans: Option<u32>,
    /// Growth of `bytes_acked`.
    pub bytes_acked: Option<u64>,
    /// `t` of skmem at that moment.
    pub t: Option<u32>,
}

/// A socket that is followed, as of one tick.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// The socket.
    pub id: SockId,
    /// Protocol.
    pub proto: Proto,
    /// Local endpoint.
    pub local: Endpoint,
    /// Remote endpoint.
    pub remote: Endpoint,
    /// State.
    pub state: SockState,
    /// Timer.
    pub timer: SockTimer,
    /// `idiag_retrans`.
    pub retrans: u8,
    /// ms to the next firing.
    pub expires_ms: u32,
    /// Receive queue.
    pub rqueue: u32,
    /// Send queue.
    pub wqueue: u32,
    /// Socket inode.
    pub inode: u32,
    /// Owner's uid.
    pub uid: u32,
    /// cgroup2 id, 0 when unknown.
    pub cgroup: u64,
    /// skmem words, in the kernel's order; empty when not sent.
    pub skmem: SkMemWords,
    /// `tcp_info` of this tick, or the last one read.
    pub info: Option<TcpInfo>,
    /// Process that holds it, where known.
    pub owner: Option<Owner>,
    /// Route lookup, where made.
    pub route: Option<RouteOutcome>,
    /// When it was first followed.
    pub first_seen: MonoNs,
    /// `tcp_info` was last read then.
    pub info_at: Option<MonoNs>,
    /// `bytes_acked` has not moved since.
    pub acked_flat_since: Option<MonoNs>,
    /// `segs_out` has not moved since.
    pub segs_out_flat_since: Option<MonoNs>,
    /// The persist timer has been running since.
    pub persist_since: Option<MonoNs>,
    /// The persist timer has been running with `snd_wnd` 0 since.
    pub zero_window_since: Option<MonoNs>,
    /// The receive queue has been non-empty and not falling since.
    pub unread_since: Option<MonoNs>,
    /// Timer events since `bytes_acked` last moved, oldest first.
    pub events: Vec<TimerEvent>,
    /// us limited by the peer's window in the last interval, with that interval.
    pub rwnd_limited: Option<(Duration, Duration)>,
    /// Drops of this socket (`d`) in the last interval.
    pub drops: Option<u32>,
    /// It was not in the last dump: gone, or missed between two chunks.
    pub missing_since: Option<MonoNs>,
}

/// skmem words with their count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkMemWords {
    /// r rb t tb f w o bl d.
    pub words: [u32; 9],
    /// How many of them were sent.
    pub len: u8,
}

macro_rules! words {
    ($( $(#[$doc:meta])* $name:ident = $i:literal; )+) => {
        impl SkMemWords { $( $(#[$doc])* #[must_use] pub fn $name(&self) -> Option<u32> {
            ($i < self.len).then(|| self.words[$i])
        } )+ }
    };
}
words! {
    /// Receive queue.
    r = 0;
    /// Receive limit.
    rb = 1;
    /// Handed to qdisc or driver.
    t = 2;
    /// Send limit.
    tb = 3;
    /// Forward allocation.
    f = 4;
    /// Write and retransmit queue.
    w = 5;
    /// Options.
    o = 6;
    /// Backlog.
    bl = 7;
    /// Drops.
    d = 8;
}

impl Suspect {
    /// Firings of `kind` since data was last acknowledged.
    #[must_use]
    pub fn fired(&self, kind: TimerKind) -> u32 {
        self.events.iter().filter(|e| e.kind == kind).map(|e| e.count).sum()
    }
    /// Real distance of two zero-window probes: `rto` does not grow with `backoff` there.
    #[must_use]
    pub fn probe_interval(&self) -> Option<Duration> {
        let i = self.info?;
        let us = u64::from(i.rto_us()?).checked_shl(u32::from(i.backoff()?)).unwrap_or(u64::MAX);
        Some(Duration::from_micros(us.min(120_000_000)))
    }
    /// RTO before backoff, us: `rto >> backoff`.
    #[must_use]
    pub fn base_rto_us(&self) -> Option<u32> {
        let i = self.info?;
        i.rto_us()?.checked_shr(u32::from(i.backoff()?))
    }
}

/// Counts over the sockets of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketTotals {
    /// The namespace.
    pub netns: NetnsId,
    /// TCP sockets of any state.
    pub tcp: u32,
    /// Established.
    pub established: u32,
    /// Listening.
    pub listening: u32,
    /// TIME_WAIT.
    pub time_wait: u32,
    /// CLOSE_WAIT.
    pub close_wait: u32,
    /// SYN_SENT.
    pub syn_sent: u32,
    /// SYN_RECV.
    pub syn_recv: u32,
    /// Connections with bytes in the send queue.
    pub sending: u32,
    /// UDP sockets.
    pub udp: u32,
    /// UNIX sockets.
    pub unix: u32,
}

/// Sockets over one interval.
#[derive(Clone, Debug, Default)]
pub struct SocketFigures {
    /// The sockets that are followed, by id.
    pub suspects: Vec<Arc<Suspect>>,
    /// Counts per namespace.
    pub totals: Vec<SocketTotals>,
}

impl SocketFigures {
    /// A followed socket.
    #[must_use]
    pub fn get(&self, id: SockId) -> Option<&Arc<Suspect>> {
        self.suspects.binary_search_by_key(&id, |s| s.id).ok().map(|i| &self.suspects[i])
    }
}

/// How odd one row looks, 0 for healthy; more is worse. A row above 0 is followed.
#[must_use]
pub fn trouble(rows: &InetRows, i: usize) -> u32 {
    let (state, timer, retrans) = (rows.state[i], rows.timer[i], u32::from(rows.retrans[i]));
    if rows.proto[i] == Proto::Udp {
        return u32::from(rows.rqueue[i] > 0);
    }
    match state {
        SockState::LISTEN => {
            let (len, limit) = (rows.rqueue[i], rows.wqueue[i]);
            if len > 0 && len >= limit { 900 } else { u32::from(len > 0) }
        }
        SockState::TIME_WAIT => 0,
        _ => {
            let timer_part = match timer {
                SockTimer::ON if retrans > 0 => 1000 + 100 * retrans,
                SockTimer::PERSIST => 800 + 10 * retrans,
                _ => 0,
            };
            timer_part + u32::from(rows.rqueue[i] > 0) * 2 + u32::from(rows.wqueue[i] > 0)
        }
    }
}

/// Follows odd sockets from tick to tick.
#[derive(Clone, Debug, Default)]
pub struct SocketTracker {
    followed: HashMap<SockId, Suspect>,
    last_space: HashMap<NetnsId, MonoNs>,
    totals: HashMap<NetnsId, SocketTotals>,
}

impl SocketTracker {
    /// Takes in the namespaces that were read since the last call.
    pub fn push<'a>(&mut self, spaces: impl Iterator<Item = &'a Arc<NetnsTable>>) -> SocketFigures {
        let mut present = Vec::new();
        let mut latest = MonoNs(0);
        for space in spaces {
            present.push(space.netns);
            latest = latest.max(space.span.end);
            if self.last_space.insert(space.netns, space.span.end) != Some(space.span.end) {
                self.read(space);
            }
        }
        // A namespace that is gone takes its sockets with it; one whose collector was late
        // this tick is absent too, so wait before forgetting.
        self.followed.retain(|_, s| {
            latest.since(s.info_at.unwrap_or(s.first_seen).max(s.first_seen)) < KEEP * 4
        });
        self.totals.retain(|id, _| present.contains(id) || present.is_empty());
        let mut suspects: Vec<Arc<Suspect>> =
            self.followed.values().map(|s| Arc::new(s.clone())).collect();
        suspects.sort_by_key(|s| s.id);
        let mut totals: Vec<SocketTotals> = self.totals.values().copied().collect();
        totals.sort_by_key(|t| t.netns);
        SocketFigures { suspects, totals }
    }

    fn read(&mut self, space: &NetnsTable) {
        let at = space.span.mid();
        let rows = &space.inet;
        let mut seen: Vec<SockId> = Vec::new();
        let mut totals = SocketTotals {
            netns: space.netns,
            unix: space.unix.len() as u32,
            ..SocketTotals::default()
        };
        for i in 0..rows.len() {
            count(&mut totals, rows, i);
            let id = space.id(i);
            if trouble(rows, i) < 2 && !(self.followed.contains_key(&id) && rows.cookie[i] != 0) {
                continue;
            }
            if self.followed.len() >= MAX_SUSPECTS && !self.followed.contains_key(&id) {
                continue;
            }
            seen.push(id);
            let before = self.followed.remove(&id);
            if let Some(s) = advance(before, space, i, at) {
                self.followed.insert(id, s);
            }
        }
        seen.sort_unstable();
        for s in self.followed.values_mut().filter(|s| s.id.netns == space.netns) {
            if seen.binary_search(&s.id).is_err() {
                s.missing_since.get_or_insert(at);
            }
        }
        self.followed.retain(|_, s| s.missing_since.is_none_or(|m| at.since(m) < KEEP));
        self.totals.insert(space.netns, totals);
    }
}

fn count(t: &mut SocketTotals, rows: &InetRows, i: usize) {
    if rows.proto[i] == Proto::Udp {
        t.udp += 1;
        return;
    }
    t.tcp += 1;
    match rows.state[i] {
        SockState::ESTAB => t.established += 1,
        SockState::LISTEN => t.listening += 1,
        SockState::TIME_WAIT => t.time_wait += 1,
        SockState::CLOSE_WAIT => t.close_wait += 1,
        SockState::SYN_SENT => t.syn_sent += 1,
        SockState::SYN_RECV | SockState::NEW_SYN_RECV => t.syn_recv += 1,
        _ => {}
    }
    if rows.state[i].may_send() && rows.wqueue[i] > 0 {
        t.sending += 1;
    }
}

/// The socket as of now, given what was known before. `None` when it is healthy again and has
/// nothing to remember.
fn advance(before: Option<Suspect>, space: &NetnsTable, i: usize, at: MonoNs) -> Option<Suspect> {
    let rows = &space.inet;
    let fresh = rows.tcp_info(i).copied();
    let zero_window = |info: Option<TcpInfo>| info.and_then(|i| i.snd_wnd()) == Some(0);
    let mut now = Suspect {
        id: space.id(i),
        proto: rows.proto[i],
        local: rows.local_endpoint(i),
        remote: rows.remote_endpoint(i),
        state: rows.state[i],
        timer: rows.timer[i],
        retrans: rows.retrans[i],
        expires_ms: rows.expires_ms[i],
        rqueue: rows.rqueue[i],
        wqueue: rows.wqueue[i],
        inode: rows.inode[i],
        uid: rows.uid[i],
        cgroup: rows.cgroup[i],
        skmem: SkMemWords { words: rows.skmem[i], len: rows.skmem_words[i].min(9) },
        info: fresh,
        owner: space.owner(rows.inode[i]).cloned(),
        route: space.route(rows.cookie[i]).cloned(),
        first_seen: at,
        info_at: fresh.map(|_| at),
        acked_flat_since: fresh.map(|_| at),
        segs_out_flat_since: fresh.map(|_| at),
        persist_since: (rows.timer[i] == SockTimer::PERSIST).then_some(at),
        zero_window_since: (rows.timer[i] == SockTimer::PERSIST && zero_window(fresh))
            .then_some(at),
        unread_since: (rows.rqueue[i] > 0 && rows.state[i] != SockState::LISTEN).then_some(at),
        events: Vec::new(),
        rwnd_limited: None,
        drops: None,
        missing_since: None,
    };
    let Some(p) = before else { return Some(now) };
    now.first_seen = p.first_seen;
    now.owner = now.owner.or(p.owner.clone());
    now.route = now.route.or(p.route.clone());
    now.drops = p.skmem.d().zip(now.skmem.d()).map(|(a, b)| grown32(a, b));
    now.persist_since = now.persist_since.map(|t| p.persist_since.unwrap_or(t));
    now.unread_since = match (p.unread_since, now.unread_since) {
        (Some(old), Some(_)) if now.rqueue >= p.rqueue => Some(old),
        (_, new) => new,
    };
    now.zero_window_since = match (now.timer == SockTimer::PERSIST, fresh) {
        (true, Some(_)) => now.zero_window_since.map(|t| p.zero_window_since.unwrap_or(t)),
        (true, None) => p.zero_window_since,
        (false, _) => None,
    };
    let progressed = compare_infos(&p, &mut now, at);
    if !progressed {
        now.events = p.events;
        if let Some(e) = timer_event(&p.info, p.retrans, p.timer, p.expires_ms, &now, at) {
            if now.events.len() == MAX_EVENTS {
                now.events.remove(0);
            }
            now.events.push(e);
        }
    }
    let calm = trouble(rows, i) < 2 && now.events.is_empty();
    (!calm || at.since(now.first_seen) < KEEP).then_some(now)
}

/// Fills what follows from two `tcp_info` blocks; true when data was acknowledged in between.
fn compare_infos(p: &Suspect, now: &mut Suspect, at: MonoNs) -> bool {
    let (Some(old), Some(new)) = (p.info, now.info) else {
        // Not read this time: what was known stays known.
        if now.info.is_none() {
            now.info = p.info;
            now.info_at = p.info_at;
            now.acked_flat_since = p.acked_flat_since;
            now.segs_out_flat_since = p.segs_out_flat_since;
            return now.wqueue < p.wqueue;
        }
        return false;
    };
    let flat = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| a == b);
    if flat(old.bytes_acked(), new.bytes_acked()) {
        now.acked_flat_since = p.acked_flat_since;
    }
    if flat(old.segs_out().map(u64::from), new.segs_out().map(u64::from)) {
        now.segs_out_flat_since = p.segs_out_flat_since;
    }
    if let (Some(a), Some(b), Some(then)) =
        (old.rwnd_limited_us(), new.rwnd_limited_us(), p.info_at)
    {
        now.rwnd_limited = grown(a, b).map(|us| (Duration::from_micros(us), at.since(then)));
    }
    match (old.bytes_acked(), new.bytes_acked()) {
        (Some(a), Some(b)) => b != a,
        _ => new.retransmits() < old.retransmits(),
    }
}

fn timer_event(
    old_info: &Option<TcpInfo>,
    old_retrans: u8,
    old_timer: SockTimer,
    old_expires: u32,
    now: &Suspect,
    at: MonoNs,
) -> Option<TimerEvent> {
    // Inside one tcp_info block retransmits and segs_out belong together; the dump's header
    // may be older than the block by some ms.
    let infos = (*old_info).zip(now.info).filter(|_| now.info_at == Some(at));
    let rise = |a: Option<u8>, b: Option<u8>| Some(u32::from(b?.saturating_sub(a?)));
    let (kind, count) = match now.timer {
        SockTimer::ON => {
            let by_total = infos
                .and_then(|(a, b)| Some(u32::from(b.total_rto()?.wrapping_sub(a.total_rto()?))));
            let by_info = infos.and_then(|(a, b)| rise(a.retransmits(), b.retransmits()));
            let by_header = u32::from(now.retrans.saturating_sub(if old_timer == SockTimer::ON {
                old_retrans
            } else {
                0
            }));
            (TimerKind::Rto, by_total.filter(|n| *n > 0).or(by_info).unwrap_or(by_header))
        }
        SockTimer::PERSIST if old_timer == SockTimer::PERSIST => {
            let by_backoff = infos.and_then(|(a, b)| rise(a.backoff(), b.backoff())).unwrap_or(0);
            let by_probes = u32::from(now.retrans.saturating_sub(old_retrans));
            let restarted = u32::from(now.expires_ms > old_expires);
            (TimerKind::Probe, by_backoff.max(by_probes).max(restarted))
        }
        _ => return None,
    };
    let d32 =
        |f: fn(&TcpInfo) -> Option<u32>| infos.and_then(|(a, b)| Some(grown32(f(&a)?, f(&b)?)));
    (count > 0).then(|| TimerEvent {
        at,
        kind,
        count,
        segs_out: d32(TcpInfo::segs_out),
        data_segs_out: d32(TcpInfo::data_segs_out),
        total_retrans: d32(TcpInfo::total_retrans),
        bytes_acked: infos.and_then(|(a, b)| grown(a.bytes_acked()?, b.bytes_acked()?)),
        t: now.skmem.t(),
    })
}
