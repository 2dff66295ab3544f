//! Healthy TCP connections by what they have in common: the port that is listened on, or the peer.
//! A host has thousands of them, and nobody reads them one by one.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::talkers::End;
use super::trouble;
use crate::sample::sockets::{NetnsTable, Owner, Proto, SockState};
use crate::sample::subject::NetnsId;

/// Groups that are told of a namespace: those that move most, and of those that move the same, the
/// largest.
const MAX_GROUPS: usize = 24;
/// Ends that are told apart in one reading.
const MAX_ENDS: usize = 4096;
/// From this much trouble on a connection is no healthy one: its timer or its queue says so.
pub const STUCK: u32 = 800;
/// From this much on it has bytes that nobody has read yet.
pub const UNREAD: u32 = 2;

/// Healthy connections with a common end.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Where.
    pub netns: NetnsId,
    /// What they have in common.
    pub end: End,
    /// The process that listens, or has one of them; `None` if unknown.
    pub owner: Option<Owner>,
    /// How many; none for a port that nobody is connected to.
    pub connections: u32,
    /// Bytes received and bytes sent and acknowledged per second; `None` unless `tcp_info` of each was
    /// read twice: on a host with more than 1,000 sockets it is read of some.
    pub moved: Option<(f64, f64)>,
    /// Inode of the listener, or of one of them: whoever owns it is asked for.
    pub inode: u32,
}

impl Group {
    /// Both ways, bytes/s.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.moved.map_or(0.0, |(rx, tx)| rx + tx)
    }
    /// A place in the order of groups that a little more or less does not change: powers of two of
    /// the bytes per second, then of the connections.
    #[must_use]
    pub fn weight(&self) -> u32 {
        let steps = |n: f64| (1.0 + n).log2() as u32;
        steps(self.rate()) * 64 + steps(self.connections.into())
    }
}

/// What a row belongs to while rows are counted.
#[derive(Clone, Copy, Debug)]
struct Sum {
    /// The listener, or the first connection.
    row: u32,
    connections: u32,
    /// Those that were read twice.
    read: u32,
    moved: (f64, f64),
}

impl Sum {
    fn of(row: usize) -> Self {
        Self { row: row as u32, connections: 0, read: 0, moved: (0.0, 0.0) }
    }
}

/// Counts the connections of a namespace. Its memory is used again for the next reading.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupTracker {
    sums: HashMap<End, Sum>,
}

impl GroupTracker {
    /// Bytes that it holds, about.
    pub(super) fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<(End, Sum)>()
    }

    /// The groups of a reading, and the number of those that are left out. `moved`: rows with the
    /// bytes that they received and sent per second, in the order of rows.
    pub(super) fn read(&mut self, space: &NetnsTable, moved: &[(u32, f64, f64)]) -> Groups {
        let rows = &space.inet;
        self.sums.clear();
        let mut ports = Ports::default();
        for i in (0..rows.len()).filter(|i| rows.state[*i] == SockState::LISTEN) {
            ports.insert(rows.lport[i]);
            self.sums.entry(End::Port(rows.lport[i])).or_insert(Sum::of(i));
        }
        let mut moved = moved.iter().peekable();
        for i in 0..rows.len() {
            let of_row = moved.next_if(|m| m.0 as usize == i).map(|m| (m.1, m.2));
            if !is_connection(space, i) || trouble(rows, i) >= STUCK {
                continue;
            }
            let end = if ports.has(rows.lport[i]) {
                End::Port(rows.lport[i])
            } else {
                End::Peer(rows.remote_endpoint(i))
            };
            if self.sums.len() >= MAX_ENDS && !self.sums.contains_key(&end) {
                continue;
            }
            let sum = self.sums.entry(end).or_insert(Sum::of(i));
            sum.connections += 1;
            if let Some((rx, tx)) = of_row {
                sum.read += 1;
                sum.moved = (sum.moved.0 + rx, sum.moved.1 + tx);
            }
        }
        self.most(space)
    }

    fn most(&self, space: &NetnsTable) -> Groups {
        let group = |(end, sum): (&End, &Sum)| Group {
            netns: space.netns,
            end: *end,
            owner: None,
            connections: sum.connections,
            moved: (sum.read > 0 && sum.read == sum.connections).then_some(sum.moved),
            inode: space.inet.inode.get(sum.row as usize).copied().unwrap_or(0),
        };
        let mut all: Vec<Group> = self.sums.iter().map(group).collect();
        let order = |g: &Group| (Reverse(g.weight()), g.end);
        let left_out = all.len().saturating_sub(MAX_GROUPS) as u32;
        if all.len() > MAX_GROUPS {
            all.select_nth_unstable_by_key(MAX_GROUPS, order);
            all.truncate(MAX_GROUPS);
        }
        all.sort_unstable_by_key(order);
        // A list of its own: that of all ends would stay in memory with each tick.
        let named = |g: &Group| Group { owner: space.owner(g.inode).cloned(), ..g.clone() };
        (all.iter().map(named).collect(), left_out)
    }
}

/// Groups, and how many more there are.
type Groups = (Vec<Group>, u32);

/// A connection that both ends have opened and none has closed.
fn is_connection(space: &NetnsTable, i: usize) -> bool {
    space.inet.proto[i] != Proto::Udp && space.inet.state[i] == SockState::ESTAB
}

/// A set of ports: one bit for each, since it is asked once for every socket.
struct Ports([u64; 1024]);

impl Default for Ports {
    fn default() -> Self {
        Self([0; 1024])
    }
}

impl Ports {
    fn insert(&mut self, port: u16) {
        if let Some(word) = self.0.get_mut(usize::from(port >> 6)) {
            *word |= 1 << (port & 63);
        }
    }
    fn has(&self, port: u16) -> bool {
        self.0.get(usize::from(port >> 6)).is_some_and(|w| w >> (port & 63) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;

    use super::*;
    use crate::sample::subject::Endpoint;

    #[test]
    fn weights_change_by_doubling() {
        let g = |connections, rx: f64| Group {
            netns: NetnsId(1),
            end: End::Peer(Endpoint { addr: Ipv4Addr::LOCALHOST.into(), port: 80 }),
            owner: None,
            connections,
            moved: Some((rx, 0.0)),
            inode: 0,
        };
        assert_eq!(g(3, 1000.0).weight(), g(3, 1020.0).weight());
        assert!(g(3, 2100.0).weight() > g(30, 1000.0).weight());
        assert!(g(9, 0.0).weight() > g(2, 0.0).weight());
        assert!(Group { moved: None, ..g(u32::MAX, 0.0) }.weight() < 8192);
        assert!(g(1, f64::MAX).weight() < 1 << 17);
    }

    #[test]
    fn ports_are_told_apart() {
        let mut p = Ports::default();
        for n in [0, 1, 63, 64, 65_535] {
            p.insert(n);
        }
        let all: Vec<u16> = (0..=u16::MAX).filter(|n| p.has(*n)).collect();
        assert_eq!(all, [0, 1, 63, 64, 65_535]);
    }
}
