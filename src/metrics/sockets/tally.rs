//! What a namespace's sockets look like as a crowd: half-open connections per listener, ports
//! in use towards one destination, connections in CLOSE_WAIT, who holds most memory, UNIX
//! listeners with a full backlog.
//!
//! One pass over the rows, which another loop makes anyway; what needs a second look at many
//! rows is done only when the counts of the first make it possible.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::groups::Group;
use crate::sample::sockets::{
    InetRows, NetnsTable, Owner, Proto, SockState, SockTimer, TcpInfo, oldest_closing, unmap,
};
use crate::sample::subject::{Endpoint, NetnsId, SockId};
use crate::sample::time::MonoNs;

/// Listeners whose half-open connections are counted.
const MAX_LISTENERS: usize = 64;
/// Sources of half-open connections that are counted per listener.
const MAX_SOURCES: usize = 64;
/// Names given per list.
const NAMED: usize = 5;
/// UNIX listeners named per namespace.
const MAX_UNIX: usize = 16;
/// Below this part of the port range nobody runs out of ports.
const PORTS_FROM: f64 = 0.5;
/// Buckets of the first count by destination.
const BUCKETS: usize = 4096;
/// In CLOSE_WAIT for so long, a connection was forgotten.
pub const OLD: Duration = Duration::from_secs(60);
/// An orphan that was retransmitted so often waits for a peer that is gone.
const ORPHAN_RETRANS: u8 = 3;

/// The sockets of one namespace as a crowd.
#[derive(Clone, Debug, Default)]
pub struct SpaceFigures {
    /// The namespace.
    pub netns: NetnsId,
    /// Its name, as in the table. Raw.
    pub label: String,
    /// A process in it.
    pub member: Option<u32>,
    /// `ip_local_port_range`.
    pub ports: Option<(u16, u16)>,
    /// Destinations that use half of the range or more, fullest first.
    pub port_uses: Vec<PortUse>,
    /// Half-open connections per local port, most first.
    pub syn_queues: Vec<SynQueue>,
    /// Connections in CLOSE_WAIT, when there are many.
    pub closing: Option<Arc<Closing>>,
    /// TCP sockets with most memory, while the host's TCP memory runs short.
    pub fattest: Vec<Fat>,
    /// Orphans (inode 0, not TIME_WAIT) that retransmit to a peer that does not answer.
    pub stuck_orphans: u32,
    /// UNIX listeners whose backlog is full.
    pub unix_full: Vec<UnixFull>,
    /// Healthy TCP connections by port or peer, and listeners: first those that move most.
    pub groups: Vec<Group>,
    /// Ports and peers that have none of these.
    pub groups_left_out: u32,
}

/// Ports in use towards one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortUse {
    /// Source address.
    pub local: IpAddr,
    /// Destination.
    pub remote: Endpoint,
    /// Ports of the range in use.
    pub used: u32,
    /// Of these in TIME_WAIT.
    pub time_wait: u32,
    /// Some of the sockets.
    pub sockets: Vec<SockId>,
    /// Inodes of those of them that are open.
    pub inodes: Vec<u32>,
    /// The processes that hold these, where known.
    pub owners: Vec<Owner>,
}

/// Half-open connections of one local port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SynQueue {
    /// Local port.
    pub port: u16,
    /// Connections in SYN_RECV.
    pub waiting: u32,
    /// The listener, where it is in the same dump, and its backlog.
    pub listener: Option<(Endpoint, u32, SockId)>,
    /// Sources with most of them.
    pub sources: Vec<(IpAddr, u32)>,
    /// Distinct sources counted; at `MAX_SOURCES` there are more.
    pub distinct: usize,
}

/// Connections in CLOSE_WAIT: the peer has closed, the application here has not.
#[derive(Clone, Debug, Default)]
pub struct Closing {
    /// All of them.
    pub count: u32,
    /// The oldest ones, of which the rest is known.
    pub sampled: Vec<Closer>,
    /// The count has not fallen by more than a twentieth since.
    pub steady_since: MonoNs,
    /// How many there were then.
    pub at_first: u32,
}

/// One connection in CLOSE_WAIT.
#[derive(Clone, Debug)]
pub struct Closer {
    /// The socket.
    pub id: SockId,
    /// Local endpoint.
    pub local: Endpoint,
    /// Remote endpoint.
    pub remote: Endpoint,
    /// Process that holds it, where known.
    pub owner: Option<Owner>,
    /// For how long at least.
    pub age: Duration,
    /// Data was sent so long ago; `None` without `tcp_info`.
    pub last_sent: Option<Duration>,
}

/// A socket that holds much memory.
#[derive(Clone, Debug)]
pub struct Fat {
    /// The socket.
    pub id: SockId,
    /// Local endpoint.
    pub local: Endpoint,
    /// Remote endpoint.
    pub remote: Endpoint,
    /// State.
    pub state: SockState,
    /// Process that holds it, where known.
    pub owner: Option<Owner>,
    /// Bytes to read, truesize.
    pub r: u32,
    /// Bytes to send, truesize.
    pub w: u32,
}

/// A UNIX listener with a full backlog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixFull {
    /// Its name as people write it: a path, or `@name` for an abstract one. Raw.
    pub path: String,
    /// Inode.
    pub inode: u32,
    /// Connections that wait to be accepted.
    pub waiting: u32,
    /// The backlog.
    pub backlog: u32,
    /// Process that holds it, where known.
    pub owner: Option<Owner>,
}

/// Counts of the pass under way.
#[derive(Debug)]
pub(super) struct Tally {
    half_open: BTreeMap<u16, Sources>,
    fattest: Option<Vec<(u32, usize)>>,
    stuck_orphans: u32,
    close_wait: u32,
    tcp: u32,
}

#[derive(Debug, Default)]
struct Sources {
    waiting: u32,
    by_addr: BTreeMap<[u8; 16], u32>,
}

impl Tally {
    /// `memory`: is it wanted who holds most?
    pub(super) fn new(memory: bool) -> Self {
        Self {
            half_open: BTreeMap::new(),
            fattest: memory.then(Vec::new),
            stuck_orphans: 0,
            close_wait: 0,
            tcp: 0,
        }
    }

    /// Takes in a TCP row.
    #[inline]
    pub(super) fn row(&mut self, rows: &InetRows, i: usize) {
        self.tcp += 1;
        match rows.state[i] {
            SockState::SYN_RECV | SockState::NEW_SYN_RECV => self.half_open(rows, i),
            SockState::CLOSE_WAIT => self.close_wait += 1,
            SockState::FIN_WAIT1 | SockState::CLOSING | SockState::LAST_ACK => {
                let stuck = rows.inode[i] == 0
                    && rows.timer[i] != SockTimer::OFF
                    && rows.retrans[i] >= ORPHAN_RETRANS;
                self.stuck_orphans += u32::from(stuck);
            }
            _ => {}
        }
        if let Some(fattest) = &mut self.fattest {
            let [r, _, _, _, _, w, ..] = rows.skmem[i];
            let sum = r.saturating_add(w);
            if sum > 0 && (fattest.len() < NAMED || fattest.last().is_some_and(|f| f.0 < sum)) {
                let at = fattest.partition_point(|f| f.0 >= sum);
                fattest.insert(at, (sum, i));
                fattest.truncate(NAMED);
            }
        }
    }

    #[cold]
    fn half_open(&mut self, rows: &InetRows, i: usize) {
        let port = rows.lport[i];
        if self.half_open.len() >= MAX_LISTENERS && !self.half_open.contains_key(&port) {
            return;
        }
        let s = self.half_open.entry(port).or_default();
        s.waiting += 1;
        let known = s.by_addr.len() < MAX_SOURCES || s.by_addr.contains_key(&rows.remote[i]);
        if known {
            *s.by_addr.entry(rows.remote[i]).or_insert(0) += 1;
        }
    }

    /// Ends the pass.
    pub(super) fn finish(
        self,
        space: &NetnsTable,
        at: MonoNs,
        closing: &mut ClosingTracker,
    ) -> SpaceFigures {
        let named = |(_, i): (u32, usize)| fat(space, i);
        SpaceFigures {
            netns: space.netns,
            label: space.label.clone(),
            member: space.member,
            ports: space.ports,
            port_uses: port_uses(space, self.tcp),
            syn_queues: syn_queues(space, self.half_open),
            closing: closing.read(space, at, self.close_wait),
            fattest: self.fattest.into_iter().flatten().map(named).collect(),
            stuck_orphans: self.stuck_orphans,
            unix_full: unix_full(space),
            groups: Vec::new(),
            groups_left_out: 0,
        }
    }
}

fn fat(space: &NetnsTable, i: usize) -> Fat {
    let rows = &space.inet;
    Fat {
        id: space.id(i),
        local: rows.local_endpoint(i),
        remote: rows.remote_endpoint(i),
        state: rows.state[i],
        owner: space.owner(rows.inode[i]).cloned(),
        r: rows.skmem[i][0],
        w: rows.skmem[i][5],
    }
}

fn syn_queues(space: &NetnsTable, half_open: BTreeMap<u16, Sources>) -> Vec<SynQueue> {
    if half_open.is_empty() {
        return Vec::new();
    }
    let rows = &space.inet;
    let mut listeners: BTreeMap<u16, usize> = BTreeMap::new();
    for i in (0..rows.len()).filter(|i| rows.state[*i] == SockState::LISTEN) {
        listeners.entry(rows.lport[i]).or_insert(i);
    }
    let mut out: Vec<SynQueue> = half_open
        .into_iter()
        .map(|(port, s)| {
            let distinct = s.by_addr.len();
            let mut sources: Vec<(IpAddr, u32)> =
                s.by_addr.into_iter().map(|(a, n)| (unmap(a), n)).collect();
            sources.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
            sources.truncate(NAMED);
            let listener = listeners
                .get(&port)
                .map(|i| (rows.local_endpoint(*i), rows.wqueue[*i], space.id(*i)));
            SynQueue { port, waiting: s.waiting, listener, sources, distinct }
        })
        .collect();
    out.sort_by(|a, b| b.waiting.cmp(&a.waiting).then(a.port.cmp(&b.port)));
    out
}

/// A destination: what must be distinct beside the local port.
type Tuple = ([u8; 16], [u8; 16], u16);

fn tuple(rows: &InetRows, i: usize) -> Tuple {
    (rows.local[i], rows.remote[i], rows.rport[i])
}

/// Which bucket a destination falls into.
#[inline]
fn bucket(rows: &InetRows, i: usize) -> usize {
    let word = |a: &[u8; 16], at: usize| {
        a.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b))
    };
    let (l, r) = (&rows.local[i], &rows.remote[i]);
    let mut h = u64::from(rows.rport[i]);
    for w in [word(l, 0), word(l, 8), word(r, 0), word(r, 8)] {
        h = (h ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    (h >> 20) as usize % BUCKETS
}

/// Destinations that use much of the port range. The first count goes by bucket, which costs
/// no memory per destination; only a bucket that is full enough is counted by destination.
fn port_uses(space: &NetnsTable, tcp: u32) -> Vec<PortUse> {
    let Some((first, last)) = space.ports.filter(|(a, b)| a <= b) else { return Vec::new() };
    let range = f64::from(last - first) + 1.0;
    let enough = (PORTS_FROM * range).ceil() as u32;
    if tcp < enough {
        return Vec::new();
    }
    let rows = &space.inet;
    let in_range = |i: &usize| {
        (first..=last).contains(&rows.lport[*i])
            && rows.proto[*i] != Proto::Udp
            && !matches!(rows.state[*i], SockState::LISTEN | SockState::CLOSE)
    };
    let mut buckets = vec![0_u32; BUCKETS];
    for i in (0..rows.len()).filter(in_range) {
        buckets[bucket(rows, i)] += 1;
    }
    if buckets.iter().all(|n| *n < enough) {
        return Vec::new();
    }
    let mut uses: BTreeMap<Tuple, PortUse> = BTreeMap::new();
    for i in (0..rows.len()).filter(in_range).filter(|i| buckets[bucket(rows, *i)] >= enough) {
        let u = uses.entry(tuple(rows, i)).or_insert_with(|| PortUse {
            local: unmap(rows.local[i]),
            remote: rows.remote_endpoint(i),
            used: 0,
            time_wait: 0,
            sockets: Vec::new(),
            inodes: Vec::new(),
            owners: Vec::new(),
        });
        u.used += 1;
        u.time_wait += u32::from(rows.state[i] == SockState::TIME_WAIT);
        if u.sockets.len() < NAMED {
            u.sockets.push(space.id(i));
        }
        let inode = rows.inode[i];
        if inode != 0 && u.inodes.len() < NAMED {
            u.inodes.push(inode);
            u.owners.extend(space.owner(inode).cloned());
        }
    }
    let mut out: Vec<PortUse> = uses.into_values().filter(|u| u.used >= enough).collect();
    out.sort_by(|a, b| b.used.cmp(&a.used).then(a.remote.cmp(&b.remote)));
    out
}

fn unix_full(space: &NetnsTable) -> Vec<UnixFull> {
    let rows = &space.unix;
    (0..rows.len())
        .filter(|i| rows.state[*i] == SockState::LISTEN && rows.rqueue[*i] > 0)
        .filter(|i| rows.rqueue[*i] >= rows.wqueue[*i])
        .take(MAX_UNIX)
        .map(|i| UnixFull {
            path: match rows.name(i) {
                [0, rest @ ..] => format!("@{}", String::from_utf8_lossy(rest)),
                path => String::from_utf8_lossy(path).into_owned(),
            },
            inode: rows.inode[i],
            waiting: rows.rqueue[i],
            backlog: rows.wqueue[i],
            owner: space.owner(rows.inode[i]).cloned(),
        })
        .collect()
}

/// Remembers since when connections are in CLOSE_WAIT.
#[derive(Clone, Debug, Default)]
pub(super) struct ClosingTracker {
    since: BTreeMap<u64, MonoNs>,
    peak: u32,
    steady: Option<(MonoNs, u32)>,
    rows: Vec<u32>,
}

impl ClosingTracker {
    /// Bytes that it holds, about.
    pub(super) fn bytes(&self) -> usize {
        self.since.len() * 2 * size_of::<(u64, MonoNs)>() + self.rows.len() * size_of::<u32>()
    }

    fn read(&mut self, space: &NetnsTable, at: MonoNs, count: u32) -> Option<Arc<Closing>> {
        oldest_closing(&space.inet, &mut self.rows);
        if self.rows.is_empty() {
            self.since.clear();
            self.steady = None;
            return None;
        }
        // A twentieth may close at any time; a connection pool that empties is no leak.
        if self.steady.is_none() || count < self.peak - self.peak / 20 {
            self.steady = Some((at, count));
            self.peak = count;
        }
        self.peak = self.peak.max(count);
        let rows = &space.inet;
        let mut since = BTreeMap::new();
        let mut sampled = Vec::with_capacity(self.rows.len());
        for i in self.rows.iter().map(|i| *i as usize) {
            let cookie = rows.cookie[i];
            let seen = self.since.get(&cookie).copied().unwrap_or(at);
            since.insert(cookie, seen);
            let info = rows.tcp_info(i);
            let ms = |f: Option<u32>| f.map(|ms| Duration::from_millis(ms.into()));
            // Nothing came in since, so the FIN did not either.
            let silent = ms(info.and_then(TcpInfo::last_ack_recv_ms)).unwrap_or_default();
            sampled.push(Closer {
                id: space.id(i),
                local: rows.local_endpoint(i),
                remote: rows.remote_endpoint(i),
                owner: space.owner(rows.inode[i]).cloned(),
                age: at.since(seen).max(silent),
                last_sent: ms(info.and_then(TcpInfo::last_data_sent_ms)),
            });
        }
        self.since = since;
        let (steady_since, at_first) = self.steady.unwrap_or((at, count));
        Some(Arc::new(Closing { count, sampled, steady_since, at_first }))
    }
}
