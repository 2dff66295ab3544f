//! Who fills a connection table: a dump over ctnetlink (`IPCTNL_MSG_CT_GET`, since 2.6.14), which
//! needs CAP_NET_ADMIN. Only a table that is nearly full, or in which flows clash, is dumped, and of
//! that one only the first entries: the kernel walks it in the order of a keyed hash over both ends,
//! so that these are as good a sample as any.
//!
//! Where ctnetlink is a module, asking for it makes the kernel load it, as `conntrack -L` does.

use std::collections::BTreeMap;
use std::io;

use super::walk;
use crate::collect::sockets::netlink::{self, Buffers, DumpError, NlSocket};
use crate::collect::sockets::nlmsg::{self, Attrs, Message, Messages, Step};
use crate::sample::netdev::{Conntrack, Flow, Origin, Origins, Selection, Target, Unread};
use crate::sample::sockets::map_v4;
use crate::sample::time::MonoNs;

/// Part of the table from which on it is asked for, %. Below what the rule warns at: who filled
/// it is known by then.
const WORTH: u64 = 70;
/// Entries that are read.
const MAX_ENTRIES: usize = 4096;
/// Sources that are kept.
const MAX_SOURCES: usize = 8;
/// Entries that are kept to look for their sockets, of all sources together.
const MAX_FLOWS: usize = 64;

/// `NFNL_SUBSYS_CTNETLINK` in the upper byte, `IPCTNL_MSG_CT_NEW` or `IPCTNL_MSG_CT_GET` below.
const NEW: u16 = 0x100;
const GET: u16 = 0x101;
/// Length of `struct nfgenmsg`.
const NFGENMSG: usize = 4;
const TUPLE_ORIG: u16 = 1;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const IP_V4_SRC: u16 = 1;
const IP_V4_DST: u16 = 2;
const IP_V6_SRC: u16 = 3;
const IP_V6_DST: u16 = 4;
const PROTO_NUM: u16 = 1;
const PROTO_SRC_PORT: u16 = 2;
const PROTO_DST_PORT: u16 = 3;

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
/// Offset of `rtm_type` in `struct rtmsg`.
const RTM_TYPE: usize = 7;
const RTN_LOCAL: u8 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

const EPERM: i32 = 1;
const EINVAL: i32 = 22;
const EPROTONOSUPPORT: i32 = 93;

const IPPROTO_TCP: u8 = 6;

/// How often entries could not be inserted, and when that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed(MonoNs, u32);

/// Which entries to look at: all of a table that is nearly full, or what may clash in one in which a
/// flow per second does. `failed` remembers the reading before.
pub(super) fn wanted(c: &Conntrack, at: MonoNs, failed: &mut Option<Failed>) -> Option<Selection> {
    let now = c.insert_failed.map(|n| Failed(at, n));
    let before = std::mem::replace(failed, now);
    if c.max > 0 && c.count.saturating_mul(100) >= c.max.saturating_mul(WORTH) {
        return Some(Selection::All);
    }
    let (Failed(then, old), Failed(at, new)) = before.zip(now)?;
    // A counter that went backwards is that of another namespace.
    let grown = new.checked_sub(old).filter(|n| *n > 0)?;
    (f64::from(grown) >= at.since(then).as_secs_f64()).then_some(Selection::NotTcp)
}

/// Reads the table of the namespace that the calling thread is in.
pub(super) fn read(selection: Selection, buffers: &mut Buffers, bad: &mut u32) -> Origins {
    let mut entries: Vec<Entry> = Vec::new();
    let mut socket = match NlSocket::open(netlink::NETFILTER) {
        Ok(socket) => socket,
        Err(e) => return Origins { selection, unread: Some(reason(&e)), ..Origins::default() },
    };
    let asked = socket.dump(buffers, put_dump, |bytes, seq| take(bytes, seq, &mut entries, bad));
    // The rest of the dump goes with the socket.
    drop(socket);
    let unread = asked.err().map(|e| match e {
        DumpError::NoModule(_) => Unread::NoModule,
        e => reason(&e.into_io()),
    });
    if selection == Selection::NotTcp {
        entries.retain(|e| e.flow.proto != IPPROTO_TCP);
    }
    let mut route = NlSocket::open(netlink::ROUTE).ok();
    let local = |addr: &[u8; 16]| is_local(&mut route, buffers, addr);
    Origins { selection, unread, ..summary(&entries, local) }
}

fn reason(e: &io::Error) -> Unread {
    match e.raw_os_error() {
        Some(EPERM) => Unread::NotPermitted,
        // nfnetlink has no subsystem of that number; or there is no nfnetlink.
        Some(EINVAL | EPROTONOSUPPORT) => Unread::NoModule,
        Some(errno) => Unread::Errno(errno),
        None => Unread::Errno(0),
    }
}

fn put_dump(tx: &mut Vec<u8>, seq: u32) {
    nlmsg::put_message(tx, GET, nlmsg::F_REQUEST | nlmsg::F_DUMP, seq, |body| {
        // AF_UNSPEC: both families.
        body.extend_from_slice(&[0; NFGENMSG]);
    });
}

fn take(bytes: &[u8], seq: u32, entries: &mut Vec<Entry>, bad: &mut u32) -> Step {
    let step = walk(bytes, seq, NEW, bad, |payload| {
        let Some(entry) = Entry::parse(payload) else { return false };
        if entries.len() < MAX_ENTRIES {
            entries.push(entry);
        }
        true
    });
    if entries.len() < MAX_ENTRIES { step } else { Step::Done }
}

/// An entry as its first packet had it. IPv4 as v4-mapped v6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Address of the source.
    pub source: [u8; 16],
    /// The rest.
    pub flow: Flow,
}

impl Entry {
    /// Reads a payload. `None` without both addresses and the protocol.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let tuple = nested(payload.get(NFGENMSG..)?, TUPLE_ORIG)?;
        let (mut source, mut addr) = (None, None);
        for (kind, body) in Attrs(nested(tuple, TUPLE_IP)?) {
            match kind {
                IP_V4_SRC => source = body.first_chunk().map(|b| map_v4(*b)),
                IP_V4_DST => addr = body.first_chunk().map(|b| map_v4(*b)),
                IP_V6_SRC => source = body.first_chunk().copied(),
                IP_V6_DST => addr = body.first_chunk().copied(),
                _ => {}
            }
        }
        let mut flow = Flow { addr: addr?, ..Flow::default() };
        let mut proto = None;
        for (kind, body) in Attrs(nested(tuple, TUPLE_PROTO)?) {
            // Ports have the byte order of the network.
            let port = || body.first_chunk().map_or(0, |b| u16::from_be_bytes(*b));
            match kind {
                PROTO_NUM => proto = body.first().copied(),
                PROTO_SRC_PORT => flow.from = port(),
                PROTO_DST_PORT => flow.port = port(),
                _ => {}
            }
        }
        flow.proto = proto?;
        Some(Self { source: source?, flow })
    }
}

fn nested(attrs: &[u8], wanted: u16) -> Option<&[u8]> {
    Attrs(attrs).find(|(kind, _)| *kind == wanted).map(|(_, body)| body)
}

/// Who opened these entries.
fn summary(entries: &[Entry], mut local: impl FnMut(&[u8; 16]) -> bool) -> Origins {
    let mut by: BTreeMap<[u8; 16], Vec<Flow>> = BTreeMap::new();
    for e in entries {
        by.entry(e.source).or_default().push(e.flow);
    }
    let addresses = by.len() as u32;
    let mut largest: Vec<([u8; 16], Vec<Flow>)> = by.into_iter().collect();
    // Equals stay in the order of their addresses.
    largest.sort_by_key(|(_, flows)| std::cmp::Reverse(flows.len()));
    largest.truncate(MAX_SOURCES);
    let sum: usize = largest.iter().map(|(_, flows)| flows.len()).sum();
    let sources = largest.into_iter().map(|(addr, flows)| Origin {
        addr,
        local: local(&addr),
        entries: flows.len() as u32,
        target: target(&flows),
        flows: spread(&flows, (MAX_FLOWS * flows.len() / sum.max(1)).max(1)),
    });
    Origins {
        read: entries.len() as u32,
        addresses,
        sources: sources.collect(),
        target: target(entries.iter().map(|e| &e.flow)),
        ..Origins::default()
    }
}

/// `n` of them, evenly spread.
fn spread(flows: &[Flow], n: usize) -> Vec<Flow> {
    let n = n.min(flows.len());
    (0..n).filter_map(|k| flows.get(k * flows.len() / n)).copied().collect()
}

/// Where most of them go.
fn target<'a>(flows: impl IntoIterator<Item = &'a Flow>) -> Target {
    let mut to: BTreeMap<([u8; 16], u16, u8), u32> = BTreeMap::new();
    for f in flows {
        *to.entry((f.addr, f.port, f.proto)).or_insert(0) += 1;
    }
    let most = to.into_iter().max_by_key(|(_, n)| *n);
    most.map_or_else(Target::default, |((addr, port, proto), entries)| Target {
        addr,
        port,
        proto,
        entries,
    })
}

/// Does the kernel take packets for this address in, rather than send them on? False when it does
/// not say.
fn is_local(socket: &mut Option<NlSocket>, buffers: &mut Buffers, addr: &[u8; 16]) -> bool {
    let Some(link) = socket else { return false };
    let mut local = false;
    let asked = link.dump(
        buffers,
        |tx, seq| put_route(tx, seq, addr),
        |bytes, seq| {
            for message in Messages::new(bytes) {
                match message {
                    Message::Data(RTM_NEWROUTE, s, payload) if s == seq => {
                        local = payload.get(RTM_TYPE) == Some(&RTN_LOCAL);
                        return Step::Done;
                    }
                    Message::Error(s, errno) | Message::Done(s, errno) if s == seq => {
                        return if errno == 0 { Step::Done } else { Step::Failed(errno) };
                    }
                    _ => {}
                }
            }
            Step::More
        },
    );
    if matches!(asked, Err(DumpError::Transport(_))) {
        *socket = None;
    }
    local
}

fn put_route(tx: &mut Vec<u8>, seq: u32, addr: &[u8; 16]) {
    let v4 = std::net::Ipv6Addr::from(*addr).to_ipv4_mapped().map(|a| a.octets());
    let (family, octets) = match &v4 {
        Some(v4) => (AF_INET, &v4[..]),
        None => (AF_INET6, &addr[..]),
    };
    nlmsg::put_message(tx, RTM_GETROUTE, nlmsg::F_REQUEST, seq, |body| {
        let bits = 8 * octets.len() as u8;
        body.extend_from_slice(&[family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        nlmsg::put_attr(body, RTA_DST, octets);
    });
}

#[cfg(test)]
mod tests;
