//! Whose sockets opened the entries of a connection table: entries are looked for in the socket
//! tables of the host.
//!
//! A source that is an address of the namespace itself has its sockets there. Another one may be a
//! container's, whose packets the namespace forwards: its sockets are in a namespace of its own.
//! An entry has the addresses before any translation, and so has the socket.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::sample::netdev::{Flow, Origin, Origins, Selection, Target, Unread};
use crate::sample::sockets::{InetRows, NetnsTable, Owner, Proto, unmap};
use crate::sample::subject::{Endpoint, NetnsId};

/// Who opened the entries of a connection table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginFigures {
    /// Which entries were counted.
    pub selection: Selection,
    /// Their number.
    pub read: u32,
    /// Addresses that they come from.
    pub addresses: u32,
    /// Where most of them go.
    pub target: Option<TargetFigures>,
    /// Where most of them come from, most first.
    pub sources: Vec<SourceFigures>,
    /// Why not all could be read.
    pub unread: Option<Unread>,
}

/// The entries that one address opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFigures {
    /// The address.
    pub addr: IpAddr,
    /// Entries, of those that were read.
    pub entries: u32,
    /// Where most of them go.
    pub target: Option<TargetFigures>,
    /// Entries whose sockets were looked for.
    pub asked: u32,
    /// Those of them that have an open socket on this host.
    pub open: u32,
    /// Inodes of these sockets.
    pub inodes: Vec<u32>,
    /// Processes that opened entries, with their number, of `asked`.
    pub holders: Vec<(Owner, u32)>,
}

/// Where entries go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetFigures {
    /// The address and port.
    pub to: Endpoint,
    /// Number of the protocol.
    pub proto: u8,
    /// Entries.
    pub entries: u32,
}

impl TargetFigures {
    fn of(t: &Target) -> Option<Self> {
        let to = Endpoint { addr: unmap(t.addr), port: t.port };
        (t.entries > 0).then_some(Self { to, proto: t.proto, entries: t.entries })
    }
}

/// An open socket of an entry.
#[derive(Clone, Copy)]
struct Found<'a> {
    inode: u32,
    owner: Option<&'a Owner>,
    /// The socket is connected: no other can have the entry.
    connected: bool,
}

/// The entries of the table of `netns`, with the sockets that opened them.
pub(super) fn join(
    origins: &Origins,
    netns: NetnsId,
    tables: &BTreeMap<NetnsId, Arc<NetnsTable>>,
) -> OriginFigures {
    let mut wanted: BTreeMap<u16, Vec<(usize, usize)>> = BTreeMap::new();
    for (s, source) in origins.sources.iter().enumerate() {
        for (f, flow) in source.flows.iter().enumerate() {
            wanted.entry(flow.from).or_default().push((s, f));
        }
    }
    let none = |s: &Origin| vec![None; s.flows.len()];
    let mut found: Vec<Vec<Option<Found<'_>>>> = origins.sources.iter().map(none).collect();
    for table in tables.values() {
        for (row, port) in table.inet.lport.iter().enumerate() {
            for (s, f) in wanted.get(port).into_iter().flatten() {
                let (Some(source), Some(cell)) =
                    (origins.sources.get(*s), found.get_mut(*s).and_then(|c| c.get_mut(*f)))
                else {
                    continue;
                };
                let at_home = table.netns == netns;
                if source.local && !at_home || cell.is_some_and(|c| c.connected) {
                    continue;
                }
                let flow = source.flows.get(*f);
                let own = source.local && at_home;
                *cell = flow.and_then(|f| socket(table, row, source.addr, f, own)).or(*cell);
            }
        }
    }
    let sources = origins.sources.iter().zip(found);
    OriginFigures {
        selection: origins.selection,
        read: origins.read,
        addresses: origins.addresses,
        target: TargetFigures::of(&origins.target),
        sources: sources.map(|(s, found)| figures(s, &found)).collect(),
        unread: origins.unread,
    }
}

/// The socket of a row, if it can have opened this entry. `own`: the source is an address of the
/// namespace, so that a socket of UDP that is bound to none may have sent from it.
fn socket<'a>(
    table: &'a NetnsTable,
    row: usize,
    source: [u8; 16],
    flow: &Flow,
    own: bool,
) -> Option<Found<'a>> {
    let rows: &InetRows = &table.inet;
    let inode = *rows.inode.get(row).filter(|i| **i != 0)?;
    let udp = *rows.proto.get(row)? == Proto::Udp;
    let (local, remote) = (*rows.local.get(row)?, (*rows.remote.get(row)?, *rows.rport.get(row)?));
    let any = |a: [u8; 16]| unmap(a).is_unspecified();
    let connected = remote == (flow.addr, flow.port);
    let fits = flow.proto == (if udp { 17 } else { 6 })
        && (local == source || udp && own && any(local))
        && (connected || udp && any(remote.0));
    fits.then(|| Found { inode, owner: table.owner(inode), connected })
}

fn figures(s: &Origin, found: &[Option<Found<'_>>]) -> SourceFigures {
    let mut inodes: Vec<u32> = found.iter().flatten().map(|f| f.inode).collect();
    inodes.sort_unstable();
    inodes.dedup();
    SourceFigures {
        addr: unmap(s.addr),
        entries: s.entries,
        target: TargetFigures::of(&s.target),
        asked: s.flows.len() as u32,
        open: found.iter().flatten().count() as u32,
        inodes,
        holders: holders(&s.flows, found),
    }
}

/// Whose the entries are. One whose socket is closed by now is of the process that has all open
/// sockets to the same destination: entries outlive their connections by minutes.
fn holders(flows: &[Flow], found: &[Option<Found<'_>>]) -> Vec<(Owner, u32)> {
    let to = |f: &Flow| (f.addr, f.port, f.proto);
    // `None` where there is more than one, or one that is not known.
    let mut alone: BTreeMap<_, Option<&Owner>> = BTreeMap::new();
    for (flow, found) in flows.iter().zip(found) {
        let Some(found) = found else { continue };
        let one = alone.entry(to(flow)).or_insert(found.owner);
        if one.map(|o| o.pid) != found.owner.map(|o| o.pid) {
            *one = None;
        }
    }
    let mut out: BTreeMap<u32, (Owner, u32)> = BTreeMap::new();
    for (flow, found) in flows.iter().zip(found) {
        let owner = match found {
            Some(found) => found.owner,
            None => alone.get(&to(flow)).copied().flatten(),
        };
        if let Some(owner) = owner {
            out.entry(owner.pid).or_insert_with(|| (owner.clone(), 0)).1 += 1;
        }
    }
    out.into_values().collect()
}

#[cfg(test)]
mod tests;
