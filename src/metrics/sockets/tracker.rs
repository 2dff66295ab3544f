//! Which sockets are followed, and the counts per namespace.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::advance::advance;
use super::drops::{DropTracker, Dropper};
use super::flows::{FlowTracker, PeerLoss};
use super::groups::GroupTracker;
use super::services::{ServiceTracker, Still};
use super::talkers::Talker;
use super::tally::{ClosingTracker, SpaceFigures, Tally};
use super::{KEEP, MAX_SUSPECTS, NetGrowth, SocketFigures, SocketTotals, Suspect, TimerEvent};
use crate::sample::Stamped;
use crate::sample::net_counters::NetCountersSample;
use crate::sample::sockets::{InetRows, NetnsTable, Proto, SockState, SockTimer};
use crate::sample::subject::{NetnsId, SockId};
use crate::sample::time::MonoNs;

/// First port that Linux hands out to clients by default (`ip_local_port_range`).
const EPHEMERAL: u16 = 32_768;

/// How odd one row looks, 0 for healthy; more is worse. Each frame asks it of every socket.
#[inline]
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
                // A lost probe may be the path's; after two the peer is not there.
                SockTimer::KEEPALIVE if retrans > 1 => 800 + 10 * retrans,
                _ => 0,
            };
            timer_part + u32::from(rows.rqueue[i] > 0) * 2 + u32::from(rows.wqueue[i] > 0)
        }
    }
}

/// A row that is followed from tick to tick: its timer, accept queue or unread bytes look odd.
/// Unread bytes count once they fill a quarter of the receive buffer: a reader that is a
/// moment late is normal, and a busy server has thousands of those.
fn odd(rows: &InetRows, i: usize) -> bool {
    let worth = trouble(rows, i);
    if worth >= 800 {
        // Half-open connections are counted by listener; a flood of them is no crowd of cases.
        return !matches!(rows.state[i], SockState::SYN_RECV | SockState::NEW_SYN_RECV);
    }
    let unread = rows.rqueue[i] > 0 && rows.state[i] != SockState::LISTEN;
    worth >= 2
        && unread
        && match (rows.skmem(i).r(), rows.skmem(i).rb()) {
            (Some(r), Some(rb)) => r >= rb / 4,
            _ => rows.rqueue[i] >= 16 * 1024,
        }
}

/// Follows odd sockets from tick to tick.
#[derive(Clone, Debug, Default)]
pub struct SocketTracker {
    followed: BTreeMap<SockId, Arc<Suspect>>,
    last_space: HashMap<NetnsId, MonoNs>,
    totals: BTreeMap<NetnsId, SocketTotals>,
    counters: HashMap<NetnsId, Counters>,
    spaces: BTreeMap<NetnsId, SpaceMemory>,
    /// Of the namespaces read in this tick.
    droppers: Vec<Dropper>,
    losses: Vec<PeerLoss>,
    talkers: Vec<Talker>,
    still: BTreeMap<NetnsId, Vec<Still>>,
    /// TCP memory of the host runs short: who holds it matters.
    memory_short: bool,
}

/// What is remembered of a namespace as a whole.
#[derive(Clone, Debug, Default)]
struct SpaceMemory {
    flows: FlowTracker,
    drops: DropTracker,
    services: ServiceTracker,
    closing: ClosingTracker,
    groups: GroupTracker,
    figures: Arc<SpaceFigures>,
}

/// Readings of [`NetGrowth::NAMES`], oldest first.
type Counters = VecDeque<(MonoNs, [Option<i64>; 4])>;

/// From this part of `tcp_mem`'s second limit on, the sockets that hold most are looked for.
const MEMORY_SHORT: f64 = 0.7;

/// Readings are remembered for so long: a budgeted walker looks at a namespace that often.
const KEEP_COUNTERS: Duration = Duration::from_secs(60);

impl SocketTracker {
    /// Bytes that it holds beside the followed sockets, which are those of ticks.
    pub(in crate::metrics) fn bytes(&self) -> usize {
        let space = |m: &SpaceMemory| {
            m.flows.bytes()
                + m.drops.bytes()
                + m.closing.bytes()
                + m.services.bytes()
                + m.groups.bytes()
        };
        let counters = |c: &Counters| c.len() * size_of::<(MonoNs, [Option<i64>; 4])>();
        self.spaces.values().map(space).sum::<usize>()
            + self.counters.values().map(counters).sum::<usize>()
            + self.followed.len() * 2 * size_of::<(SockId, Arc<Suspect>)>()
    }

    /// Takes in counters; before the sockets of the same tick.
    pub fn counters(&mut self, now: &Stamped<NetCountersSample>) {
        let at = now.span.mid();
        let mem = now.data.spaces.iter().find_map(|s| s.get("sockstat.TCP.mem"));
        self.memory_short = mem
            .zip(now.data.tcp_mem)
            .is_some_and(|(mem, [_, pressure, _])| mem as f64 >= MEMORY_SHORT * pressure as f64);
        for space in &now.data.spaces {
            let past = self.counters.entry(space.netns).or_default();
            past.push_back((at, NetGrowth::NAMES.map(|name| space.get(name))));
            while past.front().is_some_and(|r| at.since(r.0) > KEEP_COUNTERS) {
                past.pop_front();
            }
        }
        self.counters.retain(|_, p| p.back().is_some_and(|r| at.since(r.0) <= KEEP_COUNTERS));
    }

    /// Takes in the namespaces that are known, of which those read since the last call count.
    pub fn push<'a>(&mut self, spaces: impl Iterator<Item = &'a Arc<NetnsTable>>) -> SocketFigures {
        let mut spaces: Vec<&Arc<NetnsTable>> = spaces.collect();
        spaces.sort_by_key(|s| s.netns);
        self.droppers.clear();
        self.losses.clear();
        self.talkers.clear();
        let mut latest = MonoNs(0);
        for space in &spaces {
            latest = latest.max(space.span.end);
            if self.last_space.insert(space.netns, space.span.end) != Some(space.span.end) {
                self.read(space);
            }
        }
        let known = |id: NetnsId| spaces.binary_search_by_key(&id, |s| s.netns).is_ok();
        if !spaces.is_empty() {
            // A namespace that is gone takes its sockets with it.
            self.last_space.retain(|id, _| known(*id));
            self.totals.retain(|id, _| known(*id));
            self.spaces.retain(|id, _| known(*id));
            self.still.retain(|id, _| known(*id));
            for s in self.followed.values_mut() {
                if s.missing_since.is_none() && !known(s.id.netns) {
                    Arc::make_mut(s).missing_since = Some(latest);
                }
            }
        }
        self.followed.retain(|_, s| latest.since(s.missing_since.unwrap_or(latest)) < KEEP);
        self.drop_excess();
        for s in self.followed.values_mut() {
            if s.events.iter().any(|e| !e.net.settled)
                && let Some(past) = self.counters.get(&s.id.netns)
            {
                let s = Arc::make_mut(s);
                for e in s.events.iter_mut().filter(|e| !e.net.settled) {
                    settle(e, past);
                }
            }
        }
        SocketFigures {
            suspects: self.followed.values().cloned().collect(),
            totals: self.totals.values().copied().collect(),
            spaces: self.spaces.values().map(|s| s.figures.clone()).collect(),
            droppers: std::mem::take(&mut self.droppers),
            losses: std::mem::take(&mut self.losses),
            talkers: std::mem::take(&mut self.talkers),
            still: self.still.values().flatten().cloned().collect(),
        }
    }

    fn read(&mut self, space: &NetnsTable) {
        let at = space.span.mid();
        let rows = &space.inet;
        let mut totals = SocketTotals {
            netns: space.netns,
            unix: space.unix.len() as u32,
            ..SocketTotals::default()
        };
        let mut listening = BTreeSet::new();
        let mut picked: Vec<(bool, bool, u32, usize)> = Vec::new();
        let mut memory = self.spaces.remove(&space.netns).unwrap_or_default();
        let mut notable = Vec::new();
        memory.flows.read(space, at, &mut self.losses, &mut notable);
        self.talkers.extend_from_slice(memory.flows.talkers());
        let mut still = Vec::new();
        memory.services.read(space, at, &mut still, &mut notable);
        self.still.insert(space.netns, still);
        let mut notable_rows = notable.iter().map(|i| *i as usize).peekable();
        let mut tally = Tally::new(self.memory_short);
        for i in 0..rows.len() {
            count(&mut totals, rows, i);
            if rows.proto[i] != Proto::Udp {
                tally.row(rows, i);
            }
            memory.drops.row(rows.cookie[i], rows.skmem[i][8], i);
            if rows.state[i] == SockState::LISTEN {
                listening.insert(rows.lport[i]);
            }
            let odd = odd(rows, i) | notable_rows.next_if_eq(&i).is_some();
            let followed = !self.followed.is_empty() && self.followed.contains_key(&id(space, i));
            if odd || followed {
                picked.push((odd, followed, trouble(rows, i), i));
            }
        }
        // When half the host is in trouble, the worst are followed, and of those the ones that
        // are followed already: their events must not be lost to newcomers.
        picked.sort_by_key(|(odd, followed, worth, i)| {
            Reverse((*odd && *worth >= 800, *followed, *worth, Reverse(*i)))
        });
        picked.truncate(MAX_SUSPECTS);
        let mut seen = HashSet::new();
        for (odd, _, _, i) in picked {
            let id = id(space, i);
            // A dump may show a socket twice: the kernel resumes it by bucket and index.
            if !seen.insert(id) {
                continue;
            }
            let before = self.followed.remove(&id);
            let inbound = inbound(rows, i, &listening);
            if let Some(mut s) = advance(before.as_deref(), space, i, (id, at), odd, inbound) {
                s.flow = memory.flows.of(rows.cookie[i]);
                self.followed.insert(id, Arc::new(s));
            }
        }
        memory.drops.finish(space, &mut self.droppers);
        let (groups, groups_left_out) = memory.groups.read(space, memory.flows.moved());
        let figures = tally.finish(space, at, &mut memory.closing);
        memory.figures = Arc::new(SpaceFigures { groups, groups_left_out, ..figures });
        self.spaces.insert(space.netns, memory);
        for s in self.followed.values_mut().filter(|s| s.id.netns == space.netns) {
            if s.missing_since.is_none() && !seen.contains(&s.id) {
                Arc::make_mut(s).missing_since = Some(at);
            }
        }
        self.totals.insert(space.netns, totals);
    }

    /// Keeps the worst over all namespaces.
    fn drop_excess(&mut self) {
        let excess = self.followed.len().saturating_sub(MAX_SUSPECTS);
        if excess == 0 {
            return;
        }
        let mut by_worth: Vec<(bool, usize, u8, SockId)> = self
            .followed
            .values()
            .map(|s| (s.missing_since.is_none(), s.events.len(), s.retrans, s.id))
            .collect();
        by_worth.sort_unstable();
        for (_, _, _, id) in by_worth.into_iter().take(excess) {
            self.followed.remove(&id);
        }
    }
}

/// Fills in the growth of the counters around an event.
fn settle(e: &mut TimerEvent, past: &Counters) {
    let Some(last) = past.back() else { return };
    // One reading before the look before: that look may have been a little before its counters.
    let until = past.iter().rposition(|r| r.0 <= e.after).unwrap_or(0);
    let Some(first) = past.get(until.saturating_sub(1)).filter(|f| f.0 < last.0) else { return };
    let grown = |i: usize| u64::try_from(last.1[i]?.checked_sub(first.1[i]?)?).ok();
    e.net = NetGrowth {
        wqueue_too_big: grown(0),
        retrans_fail: grown(1),
        host_queues: grown(2),
        retrans_segs: grown(3),
        settled: last.0 > e.at,
    };
}

/// The socket's id. Rows of `/proc/net/tcp` have no cookie: their tuple stands in for it.
fn id(space: &NetnsTable, i: usize) -> SockId {
    let rows = &space.inet;
    if rows.cookie[i] != 0 {
        return space.id(i);
    }
    // FNV-1a, with the top bit set: real cookies count up from 1.
    let mut h = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |bytes: &[u8]| {
        for b in bytes {
            h = (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    eat(&[rows.proto[i] as u8]);
    eat(&rows.local[i]);
    eat(&rows.remote[i]);
    eat(&rows.lport[i].to_ne_bytes());
    eat(&rows.rport[i].to_ne_bytes());
    SockId { netns: space.netns, cookie: h | 1 << 63 }
}

/// Did the peer connect to us? Certain while the listener is there, else by port number.
fn inbound(rows: &InetRows, i: usize, listening: &BTreeSet<u16>) -> bool {
    let (local, remote) = (rows.lport[i], rows.rport[i]);
    if rows.state[i] == SockState::SYN_SENT {
        return false;
    }
    listening.contains(&local) || (local < EPHEMERAL && remote >= EPHEMERAL)
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
