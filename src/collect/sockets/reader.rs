//! One reading of one network namespace: dumps, detail for suspects, route checks, and the
//! `/proc/net` fallback. Both collectors use it; it reads whatever namespace the calling
//! thread is in when it opens the netlink sockets.

use std::io;
use std::sync::Arc;

use super::cookies::CookieMap;
use super::diag::{self, ExactId, InetRequest, InetSink};
use super::netlink::{self, Buffers, DumpError, Lookup, NlSocket};
use super::sockstat::SockStat;
use super::suspects::Suspects;
use super::unix_diag::UnixSink;
use super::{procnet, route};
use crate::collect::{CollectError, HostFs};
use crate::sample::Interest;
use crate::sample::sockets::{InetRows, NetnsTable, Proto, SocketSource};
use crate::sample::subject::NetnsId;
use crate::sample::time::Span;
use crate::{clock, parse};

/// Below this many inet sockets the dump itself asks for `tcp_info`.
const INFO_IN_DUMP: usize = 1000;
/// Where a thread finds the files of the namespace it is in. `/proc/net` would be the
/// namespace of the process's first thread.
const THREAD_NET: &str = "proc/thread-self/net";
/// What the kernel answers here depends on the namespace of the thread that asks.
const PORT_RANGE: &str = "proc/sys/net/ipv4/ip_local_port_range";
/// With fewer sockets nobody runs out of ports, so the range does not matter.
const PORTS_MATTER: usize = 50;

/// The inet dumps of one reading, with the file that replaces each.
const DUMPS: [(Proto, u8, &str, &str); 6] = [
    (Proto::Tcp, diag::AF_INET, "tcp4", "tcp"),
    (Proto::Tcp, diag::AF_INET6, "tcp6", "tcp6"),
    (Proto::Udp, diag::AF_INET, "udp4", "udp"),
    (Proto::Udp, diag::AF_INET6, "udp6", "udp6"),
    (Proto::Mptcp, diag::AF_INET, "mptcp4", ""),
    (Proto::Mptcp, diag::AF_INET6, "mptcp6", ""),
];
/// Index of the UNIX dump among the modules, after [`DUMPS`].
const UNIX: usize = DUMPS.len();

/// Which diag modules the kernel lacks. Asked for once: the kernel runs `modprobe` for each
/// request that it has no handler for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    missing: [bool; DUMPS.len() + 1],
    /// v4 and v6 do not come in one dump.
    apart: bool,
}

impl Modules {
    /// What to expect of this kernel; MPTCP is only asked for where it exists (since 5.6).
    #[must_use]
    pub fn probe(host: &HostFs) -> Self {
        let mut out = Self::default();
        if !host.path("proc/sys/net/mptcp").exists() {
            for (missing, (proto, ..)) in out.missing.iter_mut().zip(DUMPS) {
                *missing = proto == Proto::Mptcp;
            }
        }
        out
    }
    /// Has the kernel no diag module for `proto`?
    #[must_use]
    pub fn lacks(&self, proto: Proto) -> bool {
        self.missing.iter().zip(DUMPS).any(|(missing, (p, ..))| *missing && p == proto)
    }
    /// Has the kernel no diag module for UNIX sockets?
    #[must_use]
    pub fn lacks_unix(&self) -> bool {
        self.missing[UNIX]
    }
    /// Pretends that no module is there, to exercise the fallback.
    #[must_use]
    pub fn none() -> Self {
        Self { missing: [true; DUMPS.len() + 1], apart: true }
    }
}

/// Memory that outlives namespaces: one set per thread.
#[derive(Debug)]
pub struct Scratch {
    /// Sockets that one reading asks for in detail.
    cap: usize,
    buffers: Buffers,
    file: Vec<u8>,
    marks: Vec<(u64, u32)>,
    /// Did this reading see a subflow of an MPTCP socket?
    subflows: bool,
    picked: Vec<u32>,
    wanted: Vec<(ExactId, Option<usize>)>,
    named: Vec<u32>,
    suspects: Suspects,
}

impl Scratch {
    /// At most `cap` sockets of a namespace are asked for in detail.
    #[must_use]
    pub fn new(cap: usize) -> Self {
        Self {
            cap,
            buffers: Buffers::default(),
            file: Vec::new(),
            marks: Vec::new(),
            subflows: false,
            picked: Vec::new(),
            wanted: Vec::new(),
            named: Vec::new(),
            suspects: Suspects::default(),
        }
    }
    /// What the latest reading found suspicious.
    #[must_use]
    pub fn suspects(&self) -> &Suspects {
        &self.suspects
    }
}

/// The netlink sockets of one namespace.
#[derive(Debug)]
pub struct Links {
    diag: NlSocket,
    route: Option<NlSocket>,
}

impl Links {
    /// Opens them in the namespace of the calling thread.
    ///
    /// # Errors
    /// When there is no `NETLINK_SOCK_DIAG`.
    pub fn open() -> io::Result<Self> {
        Ok(Self { diag: NlSocket::open(netlink::SOCK_DIAG)?, route: None })
    }
}

/// Which namespace is read, for the table's head.
#[derive(Clone, Debug)]
pub struct Place {
    /// The namespace.
    pub netns: NetnsId,
    /// Its name.
    pub label: String,
    /// A member process.
    pub member: Option<u32>,
}

/// What a namespace's previous reading left behind.
#[derive(Debug, Default)]
pub struct NetnsReader {
    prev: Option<Arc<NetnsTable>>,
    prev_map: CookieMap,
    map: CookieMap,
    unix_seen: CookieMap,
    turn: usize,
}

impl NetnsReader {
    /// The previous reading.
    #[must_use]
    pub fn latest(&self) -> Option<&Arc<NetnsTable>> {
        self.prev.as_ref()
    }

    /// Keeps a finished table for comparison with the next.
    pub fn keep(&mut self, table: Arc<NetnsTable>) {
        self.prev = Some(table);
        std::mem::swap(&mut self.map, &mut self.prev_map);
        self.turn = self.turn.wrapping_add(1);
    }

    /// Reads the namespace. `links` is emptied when an exchange failed: the socket is spent
    /// and the next reading opens another.
    ///
    /// # Errors
    /// When no family could be read at all.
    pub fn read(
        &mut self,
        host: &HostFs,
        links: &mut Option<Links>,
        modules: &mut Modules,
        scratch: &mut Scratch,
        place: &Place,
        interest: &Interest,
    ) -> Result<NetnsTable, CollectError> {
        let start = clock::mono();
        let mut table = NetnsTable {
            netns: place.netns,
            label: place.label.clone(),
            member: place.member,
            ..NetnsTable::default()
        };
        let stat = SockStat::read(host, THREAD_NET, &mut scratch.file);
        let expected = match (&self.prev, stat) {
            (Some(prev), _) => prev.inet.len(),
            (None, Some(stat)) => stat.total().min(1 << 24) as usize,
            (None, None) => 0,
        };
        let unix_expected = self.prev.as_ref().map_or(64, |p| p.unix.len());
        table.inet.reserve(expected + expected / 16 + 16);
        self.map.reset(expected);
        scratch.marks.clear();
        scratch.subflows = false;
        let ext = if expected < INFO_IN_DUMP {
            diag::EXT_SKMEMINFO | diag::EXT_INFO
        } else {
            diag::EXT_SKMEMINFO
        };
        let mut failed = None;
        let together = self.dump_together(links, modules, scratch, ext, stat.as_ref(), &mut table);
        for (n, (proto, family, name, file)) in DUMPS.into_iter().enumerate() {
            if stat.is_some_and(|s| is_empty(&s, proto, family)) {
                continue;
            }
            if proto == Proto::Tcp && together {
                continue;
            }
            // Its dump takes 0.7 ms even when there is none (6.18), more than the rest of a
            // small host. The TCP dumps, which come first, tell whether there are any.
            if proto == Proto::Mptcp && !scratch.subflows {
                continue;
            }
            if !modules.missing[n] {
                let asked = InetRequest {
                    family,
                    proto,
                    ext: if proto == Proto::Tcp { ext } else { diag::EXT_SKMEMINFO },
                    states: diag::ALL_STATES,
                };
                match self.dump(links, scratch, asked, &mut table) {
                    Ok(()) => continue,
                    Err(DumpError::NoModule(_)) => modules.missing[n] = true,
                    Err(e) => {
                        table.holes.push(format!("{name}: {}", e.text()));
                        failed = Some(e);
                        continue;
                    }
                }
            }
            let from = table.inet.len();
            fallback(host, scratch, proto, name, file, &mut table);
            for i in from..table.inet.len() {
                let (before, rest) = table.inet.cookie.split_at(i);
                if let Some(cookie) = rest.first() {
                    self.map.insert(*cookie, before);
                }
            }
        }
        if table.inet.len() >= PORTS_MATTER {
            table.ports = port_range(host, &mut scratch.file);
        }
        self.detail(links, scratch, interest, &mut table);
        self.unix(host, links, modules, scratch, unix_expected, &mut table);
        table.span = Span::between(start, clock::mono());
        match failed {
            Some(e) if table.inet.is_empty() && table.unix.is_empty() => {
                Err(CollectError::Netlink { what: "sock_diag".to_owned(), source: e.into_io() })
            }
            _ => Ok(table),
        }
    }

    /// TCP of both families in one dump. False when they must be dumped one by one: the kernel
    /// refuses, or only one family has sockets, whose own dump is as cheap.
    fn dump_together(
        &mut self,
        links: &mut Option<Links>,
        modules: &mut Modules,
        scratch: &mut Scratch,
        ext: u8,
        stat: Option<&SockStat>,
        table: &mut NetnsTable,
    ) -> bool {
        let none = |family| stat.is_some_and(|s| is_empty(s, Proto::Tcp, family));
        let lacks = modules.missing.iter().zip(DUMPS).any(|(m, (p, ..))| *m && p == Proto::Tcp);
        if modules.apart || lacks || none(diag::AF_INET) || none(diag::AF_INET6) {
            return false;
        }
        let states = diag::ALL_STATES;
        let asked = InetRequest { family: diag::BOTH_FAMILIES, proto: Proto::Tcp, ext, states };
        match self.dump(links, scratch, asked, table) {
            Ok(()) => true,
            // What it did yield stands: the second copies are dropped by their cookies.
            Err(DumpError::NoModule(_) | DumpError::Kernel(_)) => {
                modules.apart = true;
                false
            }
            Err(DumpError::Transport(_)) => false,
        }
    }

    fn dump(
        &mut self,
        links: &mut Option<Links>,
        scratch: &mut Scratch,
        request: InetRequest,
        table: &mut NetnsTable,
    ) -> Result<(), DumpError> {
        let link = open(links).map_err(DumpError::Transport)?;
        let mut sink = InetSink {
            rows: &mut table.inet,
            seen: &mut self.map,
            marks: &mut scratch.marks,
            subflows: false,
            proto: request.proto,
            bad: 0,
            twice: 0,
        };
        let result = link.diag.dump_inet(&mut scratch.buffers, request, &mut sink);
        scratch.subflows |= sink.subflows;
        table.bad_rows = table.bad_rows.saturating_add(sink.bad);
        if matches!(result, Err(DumpError::Transport(_))) {
            *links = None;
        }
        result
    }

    /// Fetches `tcp_info` for suspects, looks for named sockets that the dump missed, and
    /// checks routes.
    fn detail(
        &mut self,
        links: &mut Option<Links>,
        scratch: &mut Scratch,
        interest: &Interest,
        table: &mut NetnsTable,
    ) {
        let prev = self.prev.as_deref();
        scratch.wanted.clear();
        scratch.named.clear();
        for id in interest.sockets.iter().filter(|id| id.netns == table.netns) {
            if let Some(row) = self.map.find(id.cookie, &table.inet.cookie) {
                scratch.named.push(row as u32);
            } else {
                let id = prev.and_then(|p| missed(p, &self.prev_map, id.cookie));
                scratch.wanted.extend(id);
            }
        }
        let before = prev.map(|p| (&p.inet, &self.prev_map));
        scratch.suspects.find(&table.inet, before, &scratch.named);
        if table.source == SocketSource::ProcNet {
            return;
        }
        scratch.suspects.pick(scratch.cap, self.turn, &mut scratch.picked);
        let rows = &table.inet;
        scratch.wanted.extend(
            scratch
                .picked
                .iter()
                .map(|i| *i as usize)
                .filter(|i| rows.tcp_info(*i).is_none())
                .filter_map(|i| Some((ExactId::of(rows, i)?, Some(i)))),
        );
        if let Err(e) = self.lookups(links, scratch, table) {
            *links = None;
            table.holes.push(format!("tcp_info: {e}"));
        }
        if let Err(e) = routes(links, scratch, table) {
            *links = None;
            table.holes.push(format!("routes: {e}"));
        }
    }

    fn lookups(
        &mut self,
        links: &mut Option<Links>,
        scratch: &mut Scratch,
        table: &mut NetnsTable,
    ) -> io::Result<()> {
        if scratch.wanted.is_empty() {
            return Ok(());
        }
        let link = open(links)?;
        let mut sink = InetSink {
            rows: &mut table.inet,
            seen: &mut self.map,
            marks: &mut scratch.marks,
            subflows: false,
            proto: Proto::Tcp,
            bad: 0,
            twice: 0,
        };
        let ext = diag::EXT_SKMEMINFO | diag::EXT_INFO;
        let mut failed = 0u32;
        let done = link.diag.lookup(
            &mut scratch.buffers,
            ext,
            &scratch.wanted,
            &mut sink,
            |_, outcome| failed += u32::from(matches!(outcome, Lookup::Failed(_))),
        );
        table.bad_rows = table.bad_rows.saturating_add(sink.bad);
        if failed > 0 {
            table.holes.push(format!("tcp_info: {failed} lookups failed"));
        }
        done
    }

    fn unix(
        &mut self,
        host: &HostFs,
        links: &mut Option<Links>,
        modules: &mut Modules,
        scratch: &mut Scratch,
        expected: usize,
        table: &mut NetnsTable,
    ) {
        table.unix.reserve(expected + expected / 16 + 16);
        self.unix_seen.reset(expected);
        if !modules.missing[UNIX] {
            let result = open(links).map_err(DumpError::Transport).and_then(|link| {
                let mut sink =
                    UnixSink { rows: &mut table.unix, seen: &mut self.unix_seen, bad: 0 };
                let result = link.diag.dump_unix(&mut scratch.buffers, &mut sink);
                table.bad_rows = table.bad_rows.saturating_add(sink.bad);
                result
            });
            match result {
                Ok(()) => return,
                Err(DumpError::NoModule(_)) => modules.missing[UNIX] = true,
                Err(e) => {
                    if matches!(e, DumpError::Transport(_)) {
                        *links = None;
                    }
                    table.holes.push(format!("unix: {}", e.text()));
                    return;
                }
            }
        }
        table.holes.push(match host.read_into(format!("{THREAD_NET}/unix"), &mut scratch.file) {
            Ok(()) => {
                let bad = procnet::unix(&scratch.file, &mut table.unix);
                table.bad_rows = table.bad_rows.saturating_add(bad);
                "unix: no diag module; /proc/net/unix has no queues and no peers".to_owned()
            }
            Err(e) => format!("unix: no diag module, and /proc/net/unix: {e}"),
        });
    }
}

fn port_range(host: &HostFs, buf: &mut Vec<u8>) -> Option<(u16, u16)> {
    host.read_into(PORT_RANGE, buf).ok()?;
    let mut ports = parse::fields(buf).map(|f| parse::number(f)?.try_into().ok());
    Some((ports.next()??, ports.next()??))
}

fn open(links: &mut Option<Links>) -> io::Result<&mut Links> {
    if links.is_none() {
        *links = Some(Links::open()?);
    }
    links.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// A dump that `sockstat` says would find nothing.
fn is_empty(stat: &SockStat, proto: Proto, family: u8) -> bool {
    match (proto, family) {
        (Proto::Tcp, diag::AF_INET) => stat.tcp4 == 0 && stat.tw == 0,
        (Proto::Tcp, _) => stat.tcp6 == 0 && stat.tw == 0,
        (Proto::Udp, diag::AF_INET) => stat.udp4 == 0,
        (Proto::Udp, _) => stat.udp6 == 0,
        (Proto::Mptcp, _) => false,
    }
}

/// The id of a socket that the previous reading had and this one has not: the dump may have
/// skipped it, an exact lookup tells.
fn missed(prev: &NetnsTable, map: &CookieMap, cookie: u64) -> Option<(ExactId, Option<usize>)> {
    let row = map.find(cookie, &prev.inet.cookie)?;
    if prev.inet.proto.get(row) != Some(&Proto::Tcp) {
        return None;
    }
    Some((ExactId::of(&prev.inet, row)?, None))
}

fn routes(
    links: &mut Option<Links>,
    scratch: &mut Scratch,
    table: &mut NetnsTable,
) -> io::Result<()> {
    let found = &scratch.suspects;
    let rows = || found.stalled.iter().chain(&found.queued).chain(&found.loaded).copied();
    if !rows().any(|i| route::is_candidate(&table.inet, i as usize)) {
        return Ok(());
    }
    let link = open(links)?;
    if link.route.is_none() {
        link.route = Some(NlSocket::open(netlink::ROUTE)?);
    }
    let Some(socket) = link.route.as_mut() else { return Ok(()) };
    let marks = &scratch.marks;
    table.routes = route::answers(socket, &mut scratch.buffers, &table.inet, rows(), marks)?;
    Ok(())
}

fn fallback(
    host: &HostFs,
    scratch: &mut Scratch,
    proto: Proto,
    name: &str,
    file: &str,
    table: &mut NetnsTable,
) {
    if proto == Proto::Mptcp {
        // No file lists them, and most hosts have none: said once, in the signals.
        return;
    }
    if proto == Proto::Tcp {
        table.source = SocketSource::ProcNet;
    }
    match host.read_into(format!("{THREAD_NET}/{file}"), &mut scratch.file) {
        Ok(()) => {
            let bad = procnet::inet(&scratch.file, proto, &mut table.inet);
            table.bad_rows = table.bad_rows.saturating_add(bad);
            table.holes.push(format!(
                "{name}: no diag module; /proc/net/{file} has no skmem and no tcp_info"
            ));
        }
        // A kernel without IPv6 has neither.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => table.holes.push(format!("{name}: no diag module, and /proc/net/{file}: {e}")),
    }
}

/// The rows of `rows` whose inode is in `inodes` (sorted), by inode; for owner lookups.
#[must_use]
pub fn inodes_in(rows: &InetRows, unix: &[u32], inodes: &[u32]) -> Vec<u32> {
    if inodes.is_empty() {
        return Vec::new();
    }
    // One bit per inode modulo 1024 passes over the many rows that nobody asked for.
    let mut filter = [0u64; 16];
    for inode in inodes {
        if let Some(word) = filter.get_mut((inode >> 6) as usize & 15) {
            *word |= 1 << (inode & 63);
        }
    }
    let hit = |i: &&u32| {
        filter.get((**i >> 6) as usize & 15).is_some_and(|w| w >> (**i & 63) & 1 == 1)
            && inodes.binary_search(i).is_ok()
    };
    rows.inode.iter().chain(unix).filter(hit).copied().collect()
}
