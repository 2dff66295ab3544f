//! Servers that stand still: requests lie unread on several connections, and no connection of
//! that process moves a byte either way.
//!
//! A request is small, so no buffer fills and no window closes; only that nothing happens tells.
//! A connection moves when bytes are taken from its receive queue, when it is given bytes to
//! send, and when it is accepted: until then it has no inode. Bytes that merely arrive do not
//! count, for the kernel takes those in by itself. Remembered are the connections of ports that
//! have several with the same bytes unread as before; on a healthy host there are none.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::sample::heap::block;
use crate::sample::sockets::{MANY_UNREAD, NetnsTable, Owner, Proto, SockState, TcpInfo};
use crate::sample::subject::{Endpoint, NetnsId, SockId};
use crate::sample::time::MonoNs;

/// A request that waits this long to be read waits for a process that has no time for it: one that
/// has leaves nothing unread for more than some ms.
pub const LATE: Duration = Duration::from_millis(50);
/// Sockets that are followed of one service.
const FOLLOWED: usize = 64;

/// Connections of one service, or of one of its processes, of which none moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Still {
    /// Namespace.
    pub netns: NetnsId,
    /// The listener where it is known, else the local end of one connection.
    pub local: Endpoint,
    /// The process, where known: the holder of the connections, else of the listener.
    pub owner: Option<Owner>,
    /// Connections with unread bytes.
    pub unread: Vec<SockId>,
    /// Of these not accepted yet.
    pub waiting: u32,
    /// Bytes unread.
    pub bytes: u64,
    /// Connections whose unread bytes have waited for [`LATE`] or longer: nothing came on them
    /// since, and something is still there.
    pub late: u32,
    /// How long the one that waited longest has waited, at least.
    pub longest: Duration,
    /// All connections of the process, as far as they were looked at.
    pub connections: u32,
    /// Nothing has moved since, as far as anybody looked.
    pub since: MonoNs,
    /// When it was looked at last.
    pub at: MonoNs,
    /// Bytes were taken or sent on one of them, at some time: this server does read.
    pub worked: bool,
    /// Bytes given to the kernel and not acknowledged.
    pub unsent: u64,
}

/// One connection as of its last look.
#[derive(Clone, Copy, Debug)]
struct Conn {
    /// Bytes that the process took; `None` without `tcp_info` (< 4.1).
    taken: Option<u64>,
    /// Bytes that the process gave.
    given: Option<u64>,
    rqueue: u32,
    wqueue: u32,
    accepted: bool,
    /// When it last moved, or when this was first looked at.
    moved: MonoNs,
}

/// By inode.
type Owners<'a> = HashMap<u32, &'a Owner>;

/// Remembers connections of services with unread requests.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceTracker {
    /// The look before, if it was of this port.
    ports: BTreeMap<u16, HashMap<u64, Conn>>,
    /// The rows of the reading before that had bytes to read.
    queued: HashMap<u64, Conn>,
}

impl ServiceTracker {
    /// Bytes that it holds, about.
    pub(super) fn bytes(&self) -> usize {
        let conns = self.ports.values().map(|c| c.len() * 2 * size_of::<(u64, Conn)>());
        conns.sum::<usize>() + block(self.queued.len() * 2 * size_of::<(u64, Conn)>())
    }

    /// Takes in a reading. Adds what stands still to `out`, and the rows that are worth
    /// following to `notable`.
    pub(super) fn read(
        &mut self,
        space: &NetnsTable,
        at: MonoNs,
        out: &mut Vec<Still>,
        notable: &mut Vec<u32>,
    ) {
        let (ports, queued) = self.unread_ports(space, at);
        self.ports.retain(|p, _| ports.contains_key(p));
        if !ports.is_empty() {
            let mut by_port: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
            for i in (0..space.inet.len()).filter(|i| is_open(space, *i)) {
                if ports.contains_key(&space.inet.lport[i]) {
                    by_port.entry(space.inet.lport[i]).or_default().push(i);
                }
            }
            for (port, rows) in by_port {
                self.service(space, at, port, &rows);
                self.judge(space, (at, port), &rows, out, notable);
            }
            notable.sort_unstable();
            notable.dedup();
        }
        self.queued = queued;
    }

    /// Ports with [`MANY_UNREAD`] connections whose queue is as it was, and all rows with one.
    fn unread_ports(
        &self,
        space: &NetnsTable,
        at: MonoNs,
    ) -> (BTreeMap<u16, usize>, HashMap<u64, Conn>) {
        let rows = &space.inet;
        let mut ports: BTreeMap<u16, usize> = BTreeMap::new();
        let mut queued = HashMap::new();
        for i in 0..rows.len() {
            if rows.rqueue[i] == 0 || !is_open(space, i) {
                continue;
            }
            let cookie = rows.cookie[i];
            if self.queued.get(&cookie).is_some_and(|c| c.rqueue == rows.rqueue[i]) {
                *ports.entry(rows.lport[i]).or_default() += 1;
            }
            queued.insert(cookie, conn(space, i, at));
        }
        ports.retain(|_, n| *n >= MANY_UNREAD);
        (ports, queued)
    }

    /// What moved among the connections of one port.
    fn service(&mut self, space: &NetnsTable, at: MonoNs, port: u16, rows: &[usize]) {
        let old = self.ports.remove(&port);
        let mut new = HashMap::with_capacity(rows.len());
        for i in rows {
            let cookie = space.inet.cookie[*i];
            let mut now = conn(space, *i, at);
            let before = old.as_ref().and_then(|o| o.get(&cookie)).or(self.queued.get(&cookie));
            now.moved = match before {
                Some(p) if moved(p, &now) => at,
                Some(p) => p.moved,
                // Accepted since the look before: somebody works.
                None if old.is_some() && now.accepted => at,
                None => told(space, *i, at),
            };
            // Without an answer to a lookup the earlier one stands.
            if let Some(p) = before.filter(|_| now.taken.is_none()) {
                (now.taken, now.given) = (p.taken, p.given);
            }
            new.insert(cookie, now);
        }
        self.ports.insert(port, new);
    }

    /// Which process of a port stands still, if any.
    fn judge(
        &self,
        space: &NetnsTable,
        (at, port): (MonoNs, u16),
        rows: &[usize],
        out: &mut Vec<Still>,
        notable: &mut Vec<u32>,
    ) {
        let Some(conns) = self.ports.get(&port) else { return };
        let listener = listener(space, port, rows);
        let owners: Owners<'_> = space.owners.iter().map(|o| (o.inode, o)).collect();
        let door = listener.and_then(|l| owners.get(&space.inet.inode[l]).copied());
        let mut by_pid: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
        for i in rows {
            let inode = space.inet.inode[*i];
            let owner = if inode == 0 { door } else { owners.get(&inode).copied() };
            let pid = owner.map(|o| o.pid);
            by_pid.entry(pid).or_default().push(*i);
        }
        // Whoever holds connections that nobody was asked for is not known apart from the others.
        let strangers = by_pid.len() > 1 && by_pid.contains_key(&None);
        let groups: Vec<Vec<usize>> =
            if strangers { vec![rows.to_vec()] } else { by_pid.into_values().collect() };
        for group in groups {
            let holder = group.iter().find_map(|i| owners.get(&space.inet.inode[*i]).copied());
            let still = gather(space, listener, holder.or(door), &group, (at, conns));
            if still.unread.len() >= MANY_UNREAD {
                let unread = group.iter().filter(|i| space.inet.rqueue[**i] > 0);
                notable.extend(unread.take(FOLLOWED).map(|i| *i as u32));
                out.push(still);
            }
        }
    }
}

fn gather(
    space: &NetnsTable,
    listener: Option<usize>,
    owner: Option<&Owner>,
    group: &[usize],
    (at, conns): (MonoNs, &HashMap<u64, Conn>),
) -> Still {
    let rows = &space.inet;
    let local = listener.or(group.first().copied()).map(|i| rows.local_endpoint(i));
    let mut s = Still {
        netns: space.netns,
        local: local.unwrap_or(Endpoint { addr: std::net::Ipv4Addr::UNSPECIFIED.into(), port: 0 }),
        owner: owner.cloned(),
        unread: Vec::new(),
        waiting: 0,
        bytes: 0,
        late: 0,
        longest: Duration::ZERO,
        connections: group.len() as u32,
        since: MonoNs(0),
        at,
        worked: false,
        unsent: 0,
    };
    for i in group {
        let Some(c) = conns.get(&rows.cookie[*i]) else { continue };
        s.since = s.since.max(c.moved);
        s.worked |= c.taken.is_some_and(|n| n > 0) || c.given.is_some_and(|n| n > 1);
        s.unsent = s.unsent.saturating_add(c.wqueue.into());
        if c.rqueue > 0 {
            s.unread.push(space.id(*i));
            s.bytes = s.bytes.saturating_add(c.rqueue.into());
            s.waiting += u32::from(!c.accepted);
            let waited = unread_for(space, *i).unwrap_or_else(|| at.since(c.moved));
            s.late += u32::from(waited >= LATE);
            s.longest = s.longest.max(waited);
        }
    }
    s
}

/// How long the last bytes that came on a connection with unread ones have been there.
fn unread_for(space: &NetnsTable, i: usize) -> Option<Duration> {
    let ms = space.inet.tcp_info(i)?.last_data_recv_ms()?;
    Some(Duration::from_millis(ms.into()))
}

fn is_open(space: &NetnsTable, i: usize) -> bool {
    let rows = &space.inet;
    rows.proto[i] == Proto::Tcp && rows.state[i] == SockState::ESTAB && rows.cookie[i] != 0
}

fn conn(space: &NetnsTable, i: usize, at: MonoNs) -> Conn {
    let rows = &space.inet;
    let info = rows.tcp_info(i);
    let (rqueue, wqueue) = (rows.rqueue[i], rows.wqueue[i]);
    Conn {
        taken: info.and_then(TcpInfo::bytes_received).map(|n| n.saturating_sub(rqueue.into())),
        given: info.and_then(TcpInfo::bytes_acked).map(|n| n.saturating_add(wqueue.into())),
        rqueue,
        wqueue,
        accepted: rows.inode[i] != 0,
        moved: at,
    }
}

/// When a connection that nobody looked at before last moved, as far as its own clocks tell: it
/// sent, or it received what is not there to be read any more.
fn told(space: &NetnsTable, i: usize, at: MonoNs) -> MonoNs {
    let ago = |ms: u32| at.back(Duration::from_millis(ms.into()));
    let Some(info) = space.inet.tcp_info(i) else { return at };
    let sent = info.last_data_sent_ms().map_or(at, ago);
    if space.inet.rqueue[i] > 0 { sent } else { sent.max(info.last_data_recv_ms().map_or(at, ago)) }
}

/// Has the process done something with it? Without `tcp_info` a queue that got shorter tells.
fn moved(before: &Conn, now: &Conn) -> bool {
    let grown = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| b > a);
    now.rqueue < before.rqueue
        || (now.accepted && !before.accepted)
        || grown(before.taken, now.taken)
        || grown(before.given, now.given)
        || (now.given.is_none() && now.wqueue > before.wqueue)
}

/// The row of the listener that connections of this port came through: bound to their address,
/// or to none.
fn listener(space: &NetnsTable, port: u16, group: &[usize]) -> Option<usize> {
    let rows = &space.inet;
    let address = group.first().map(|i| rows.local[*i]);
    let mut all: Vec<usize> = (0..rows.len())
        .filter(|i| rows.state[*i] == SockState::LISTEN && rows.lport[*i] == port)
        .collect();
    all.sort_by_key(|i| Some(rows.local[*i]) != address);
    all.first().copied()
}
