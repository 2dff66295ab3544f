//! Who moves most bytes through TCP: the ports that are listened on, and the peers of the other
//! connections. What stays on the host is left out, and so is UDP, of which no socket counts bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::sample::sockets::{NetnsTable, Owner, SockState};
use crate::sample::subject::{Endpoint, NetnsId};

/// Talkers that are told of a namespace, in either direction.
const MAX_TALKERS: usize = 4;
/// Less than this, bytes/s, fills no link.
const LEAST: f64 = 10_000.0;

/// One end that connections have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// A port that is listened on.
    Port(u16),
    /// Where we connected to.
    Peer(Endpoint),
}

/// What the connections with a common end move.
#[derive(Clone, Debug, PartialEq)]
pub struct Talker {
    /// Where.
    pub netns: NetnsId,
    /// What they have in common.
    pub end: End,
    /// The process that has one of them; `None` if unknown.
    pub owner: Option<(u32, String)>,
    /// Bytes received per second.
    pub rx: f64,
    /// Bytes sent and acknowledged per second.
    pub tx: f64,
}

/// Adds up.
pub(super) struct Talk<'a> {
    space: &'a NetnsTable,
    /// Ports that are listened on, and addresses of this host: looked for when something moves.
    here: Option<(BTreeSet<u16>, BTreeSet<IpAddr>)>,
    ends: BTreeMap<End, Talker>,
}

impl<'a> Talk<'a> {
    pub(super) fn new(space: &'a NetnsTable) -> Self {
        Self { space, here: None, ends: BTreeMap::new() }
    }

    /// What the socket of a row moved per second.
    pub(super) fn add(&mut self, row: usize, rx: f64, tx: f64) {
        if rx + tx < LEAST {
            return;
        }
        let rows = &self.space.inet;
        let (local, remote) = (rows.local_endpoint(row), rows.remote_endpoint(row));
        let (ports, addresses) = self.here.get_or_insert_with(|| here(self.space));
        if remote.addr.is_loopback() || addresses.contains(&remote.addr) {
            return;
        }
        let end =
            if ports.contains(&local.port) { End::Port(local.port) } else { End::Peer(remote) };
        let owner = |o: &Owner| (o.pid, o.comm.clone());
        let netns = self.space.netns;
        let new = || Talker { netns, end, owner: None, rx: 0.0, tx: 0.0 };
        let t = self.ends.entry(end).or_insert_with(new);
        t.rx += rx;
        t.tx += tx;
        if t.owner.is_none() {
            t.owner = rows.inode.get(row).and_then(|i| self.space.owner(*i)).map(owner);
        }
    }

    /// Those that receive or send most, in the order of their ends.
    pub(super) fn most(self) -> Vec<Talker> {
        let mut all: Vec<Talker> = self.ends.into_values().collect();
        let mut least = |of: fn(&Talker) -> f64| {
            all.sort_by(|a, b| of(b).total_cmp(&of(a)));
            all.get(MAX_TALKERS - 1).map_or(0.0, of)
        };
        let (rx, tx) = (least(|t| t.rx), least(|t| t.tx));
        all.retain(|t| t.rx > 0.0 && t.rx >= rx || t.tx > 0.0 && t.tx >= tx);
        all.sort_by_key(|t| t.end);
        all.truncate(2 * MAX_TALKERS);
        all
    }
}

fn here(space: &NetnsTable) -> (BTreeSet<u16>, BTreeSet<IpAddr>) {
    let rows = &space.inet;
    let (mut ports, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for i in 0..rows.len() {
        let local = rows.local_endpoint(i);
        if rows.state.get(i) == Some(&SockState::LISTEN) {
            ports.insert(local.port);
        }
        addresses.insert(local.addr);
    }
    (ports, addresses)
}
