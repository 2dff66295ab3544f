//! The collector: our own namespace each tick, the others in turn.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::pace::Pace;
use super::{conntrack, driver::DriverStats, ethtool, link, origins, qdisc, walk};
use crate::clock;
use crate::collect::enter::{Enter, inside};
use crate::collect::namespaces::{self, MountDirs, Namespace};
use crate::collect::permission::{self, Right};
use crate::collect::sockets::netlink::{self, Buffers, DumpError, NlSocket};
use crate::collect::sockets::nlmsg::{Message, Messages, Step};
use crate::collect::sockets::schedule::Schedule;
use crate::collect::{
    CollectError, CollectOptions, Collector, HostFs, NetnsScope, SampleContext, Unavailable,
};
use crate::sample::netdev::{
    Channels, LinkAttrs, LinkRow, NetdevSample, NetdevSpace, Origins, QdiscRow, Selection, Unread,
};
use crate::sample::subject::NetnsId;
use crate::sample::time::{MonoNs, Span};
use crate::sample::{CollectorId, Extent, Signal};

/// The part of the walker's budget for this.
const SHARE: f64 = 0.2;
/// The list of namespaces is read again after this time, or later when that would cost more
/// than the budget.
const LIST_AGE: Duration = Duration::from_secs(10);
/// It is read this soon when a member is gone, or a mount of a namespace comes or goes.
const SOON: Duration = Duration::from_secs(2);
/// Speed and channels are asked for again after this time: some drivers ask their firmware.
const SLOW_AGE: Duration = Duration::from_secs(60);
/// Who fills a connection table is asked again after this time.
const ORIGINS_AGE: Duration = Duration::from_secs(5);
/// Devices and qdiscs of a namespace that are kept at most.
const MAX_ROWS: usize = 4096;
/// Devices of a namespace whose classes are read.
const MAX_CLASSFUL: usize = 16;
/// Namespaces that are kept at most.
const MAX_SPACES: usize = 1024;

/// Reads it. See the module head.
pub struct NetdevCollector {
    host: HostFs,
    own: Own,
    wanted: Wanted,
    home: Option<File>,
    schedule: Schedule,
    budget: f64,
    known: Vec<Namespace>,
    next_list: Option<MonoNs>,
    mounts: MountDirs,
    memories: BTreeMap<NetnsId, Memory>,
    refused: BTreeMap<NetnsId, String>,
    shared: Shared,
    /// Set when the thread could not go back to its own namespace: it reads no more.
    lost: Option<String>,
}

/// Our own namespace.
struct Own {
    id: NetnsId,
    /// It is to be read.
    wanted: bool,
    socket: Option<NlSocket>,
    due: Option<MonoNs>,
    pace: Pace,
    /// Its NICs; those of other namespaces would need a process in there.
    driver: DriverStats,
    /// It has connection tracking.
    tracks: bool,
}

/// Which of the others are read.
enum Wanted {
    None,
    All,
    /// The one behind the path that the user named.
    Only(NetnsId),
}

/// What outlives namespaces.
struct Shared {
    buffers: Buffers,
    file: Vec<u8>,
    kinds: Vec<Arc<str>>,
    /// Number of the ethtool family; `None` where the kernel has none.
    ethtool: Option<u16>,
    ethtool_known: bool,
    /// The kernel has no ctnetlink, and was asked for it once: it runs `modprobe` each time.
    no_ctnetlink: bool,
}

/// What is remembered of a namespace.
#[derive(Default)]
struct Memory {
    attrs: BTreeMap<u32, Arc<LinkAttrs>>,
    slow: BTreeMap<u32, (Option<u32>, Option<Channels>)>,
    slow_at: Option<MonoNs>,
    /// When its connection table was read.
    origins_at: Option<MonoNs>,
    /// Entries that could not be inserted into it.
    failed: Option<origins::Failed>,
}

impl Collector for NetdevCollector {
    type Sample = NetdevSample;
    const ID: CollectorId = CollectorId::Netdev;

    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        if !host.is_live() {
            return Err(Unavailable::new("captured files have no network devices", ""));
        }
        NlSocket::open(netlink::ROUTE)
            .map_err(|e| Unavailable::because("no NETLINK_ROUTE socket", &e, ""))?;
        let own = namespaces::own(host).unwrap_or_default();
        let (wanted, own_wanted) = match &opts.netns {
            NetnsScope::All => (Wanted::All, true),
            NetnsScope::Own => (Wanted::None, true),
            NetnsScope::Path(p) => match namespaces::of_path(p) {
                Some(id) if id == own => (Wanted::None, true),
                Some(id) => (Wanted::Only(id), false),
                None => (Wanted::None, false),
            },
        };
        let budget = opts.netns_budget * SHARE;
        Ok(Self {
            host: host.clone(),
            own: Own {
                id: own,
                wanted: own_wanted,
                socket: None,
                due: None,
                pace: Pace::default(),
                driver: DriverStats::default(),
                tracks: false,
            },
            wanted,
            home: File::open(host.path("proc/thread-self/ns/net")).ok(),
            schedule: Schedule::new(budget),
            budget,
            known: Vec::new(),
            next_list: None,
            mounts: MountDirs::default(),
            memories: BTreeMap::new(),
            refused: BTreeMap::new(),
            shared: Shared {
                buffers: Buffers::default(),
                file: Vec::new(),
                kinds: Vec::new(),
                ethtool: None,
                ethtool_known: false,
                no_ctnetlink: false,
            },
            lost: None,
        })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<NetdevSample, CollectError> {
        if let Some(why) = &self.lost {
            return Err(failed("setns", io::Error::other(why.clone())));
        }
        let mut spaces = Vec::new();
        if self.own.wanted && self.own.due.is_none_or(|t| cx.at >= t) {
            spaces.push(self.read_own(cx.at)?);
        }
        self.read_others(cx.at, &mut spaces);
        Ok(NetdevSample { spaces })
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        const NAME: &str = "network devices, qdiscs";
        const SOURCE: &str = "rtnetlink";
        out.push(match (&self.lost, self.refused.values().next()) {
            (Some(why), _) => Signal::missing(NAME, SOURCE, why.clone(), "restart"),
            (None, Some(why)) => {
                let n = self.refused.len();
                let why = format!("namespaces not read: {n} ({why})");
                let refusal = permission::refusal(&self.host, Right::Admin);
                Signal::degraded(NAME, SOURCE, why, refusal.remedy)
                    .unseen("network namespace", Extent::Exactly(n as u32))
            }
            (None, None) => Signal::ok(NAME, SOURCE),
        });
        if self.shared.ethtool_known {
            out.push(match self.shared.ethtool {
                Some(_) => Signal::ok("NIC speed, channels", "ethtool netlink"),
                None => Signal::missing(
                    "NIC speed, channels",
                    "ethtool netlink",
                    "this kernel has no ethtool netlink (before 5.6)",
                    "",
                ),
            });
        }
        out.extend(self.own.driver.signal());
        if self.own.tracks {
            out.push(Signal::ok("connection tracking", "nf_conntrack"));
        }
    }
}

fn failed(what: &str, source: io::Error) -> CollectError {
    CollectError::Netlink { what: what.to_owned(), source }
}

impl NetdevCollector {
    fn read_own(&mut self, at: MonoNs) -> Result<Arc<NetdevSpace>, CollectError> {
        let before = clock::thread_cpu();
        let place = Place { net: "proc/net", host: &self.host, at };
        let memory = self.memories.entry(self.own.id).or_default();
        let mut space = read(&place, &mut self.own.socket, memory, &mut self.shared)
            .map_err(|e| failed("rtnetlink", e))?;
        (space.netns, space.label) = (self.own.id, "host".to_owned());
        self.own.tracks = space.conntrack.is_some();
        let nics = space.links.iter().filter(|l| l.attrs.physical);
        self.own.driver.poll(&self.host, at, nics.map(|l| &*l.attrs.name));
        for l in space.links.iter_mut().filter(|l| l.attrs.physical) {
            l.exceeded = self.own.driver.of(&l.attrs.name);
        }
        let cost = clock::thread_cpu().saturating_sub(before);
        self.own.due = Some(at + self.own.pace.after(cost));
        Ok(Arc::new(space))
    }

    fn read_others(&mut self, at: MonoNs, out: &mut Vec<Arc<NetdevSpace>>) {
        if matches!(self.wanted, Wanted::None) {
            return;
        }
        if self.mounts.changed(&self.host) {
            // Not more often than in case of a member that is gone.
            self.next_list = self.next_list.map(|t| t.min(at + SOON));
        }
        if self.next_list.is_none_or(|t| at >= t) {
            let before = clock::thread_cpu();
            self.list();
            let cost = clock::thread_cpu().saturating_sub(before);
            let pause = cost.mul_f64(1.0 / self.budget.max(1e-4));
            self.next_list = Some(at + LIST_AGE.max(pause));
        }
        let only = matches!(self.wanted, Wanted::Only(_));
        let alive: Vec<NetnsId> = self.known.iter().map(|n| n.id).take(MAX_SPACES).collect();
        for (id, turn) in self.schedule.begin(at, &alive) {
            if !only && !self.schedule.allows(id, turn) {
                continue;
            }
            let before = clock::thread_cpu();
            let space = self.visit(id, at);
            let urgent = space.as_ref().is_some_and(|s| is_urgent(s));
            let cost = clock::thread_cpu().saturating_sub(before);
            self.schedule.read(id, turn, at, cost, urgent);
            out.extend(space);
            if self.lost.is_some() {
                return;
            }
        }
    }

    fn list(&mut self) {
        let own = self.own.id;
        self.known = namespaces::list(&self.host);
        self.known.retain(|n| match self.wanted {
            Wanted::None => false,
            Wanted::All => n.id != own,
            Wanted::Only(id) => n.id == id,
        });
        let known = &self.known;
        self.memories.retain(|id, _| *id == own || known.iter().any(|n| n.id == *id));
        self.refused.retain(|id, _| known.iter().any(|n| n.id == *id));
    }

    /// Enter, open, read, close, return: a socket that outlives its reading would keep the
    /// namespace alive.
    fn visit(&mut self, id: NetnsId, at: MonoNs) -> Option<Arc<NetdevSpace>> {
        let ns = self.known.iter().find(|n| n.id == id)?;
        if !namespaces::still_there(&self.host, ns) {
            // Its member ended or moved; another may be found.
            self.known.retain(|n| n.id != id);
            self.next_list = self.next_list.map(|t| t.min(at + SOON));
            return None;
        }
        let Some(home) = self.home.as_ref() else {
            self.refused.insert(id, "this kernel has no network namespaces".to_owned());
            return None;
        };
        let memory = self.memories.entry(id).or_default();
        let place = Place { net: "proc/thread-self/net", host: &self.host, at };
        let shared = &mut self.shared;
        let entered =
            inside(home, &self.host.path(&ns.handle), || read(&place, &mut None, memory, shared));
        match entered {
            Ok(Ok(mut space)) => {
                (space.netns, space.label, space.member) = (id, ns.label.clone(), ns.member);
                self.refused.remove(&id);
                return Some(Arc::new(space));
            }
            Ok(Err(e)) => {
                self.refused.insert(id, e.to_string());
            }
            Err(Enter::Gone) => self.known.retain(|n| n.id != id),
            Err(Enter::Refused(why)) => {
                self.refused.insert(id, why);
            }
            Err(Enter::Lost(why)) => self.lost = Some(why),
        }
        None
    }
}

/// Worth another look soon: something waits or is nearly full.
fn is_urgent(s: &NetdevSpace) -> bool {
    s.qdiscs.iter().any(|q| q.backlog > 0)
        || s.conntrack.is_some_and(|c| c.max > 0 && c.count >= c.max / 2)
}

struct Place<'a> {
    host: &'a HostFs,
    /// Where the files of `/proc/net` are.
    net: &'static str,
    at: MonoNs,
}

/// Reads the namespace that the calling thread is in. `socket` is emptied when an exchange
/// failed: it is spent then.
fn read(
    place: &Place<'_>,
    socket: &mut Option<NlSocket>,
    memory: &mut Memory,
    shared: &mut Shared,
) -> io::Result<NetdevSpace> {
    let start = clock::mono();
    let mut link = match socket.take() {
        Some(s) => s,
        None => NlSocket::open(netlink::ROUTE)?,
    };
    let mut out = NetdevSpace::default();
    let mut bad = 0;
    if memory.slow_at.is_none_or(|t| place.at.since(t) >= SLOW_AGE) {
        memory.slow_at = Some(place.at);
        memory.slow = slow(shared);
    }
    read_links(&mut link, shared, memory, &mut out, &mut bad).map_err(DumpError::into_io)?;
    let tc = read_qdiscs(&mut link, shared, &mut out, &mut bad);
    let usable = !matches!(tc, Err(DumpError::Transport(_)));
    if let Err(e) = tc {
        out.holes.push(format!("qdiscs: {}", e.text()));
    }
    out.conntrack = conntrack::read(place.host, place.net, &mut shared.file);
    let wanted = |c| origins::wanted(&c, place.at, &mut memory.failed);
    if let Some(selection) = out.conntrack.and_then(wanted) {
        out.origins = read_origins(selection, place.at, memory, shared, &mut bad);
    }
    if bad > 0 {
        out.holes.push(format!("messages that could not be read: {bad}"));
    }
    out.span = Span::between(start, clock::mono());
    *socket = usable.then_some(link);
    Ok(out)
}

/// Who fills the connection table, unless that was asked just now.
fn read_origins(
    selection: Selection,
    at: MonoNs,
    memory: &mut Memory,
    shared: &mut Shared,
    bad: &mut u32,
) -> Option<Arc<Origins>> {
    if memory.origins_at.is_some_and(|t| at.since(t) < ORIGINS_AGE) {
        return None;
    }
    memory.origins_at = Some(at);
    let out = if shared.no_ctnetlink {
        Origins { selection, unread: Some(Unread::NoModule), ..Origins::default() }
    } else {
        origins::read(selection, &mut shared.buffers, bad)
    };
    shared.no_ctnetlink = out.unread == Some(Unread::NoModule);
    Some(Arc::new(out))
}

fn read_links(
    socket: &mut NlSocket,
    shared: &mut Shared,
    memory: &mut Memory,
    out: &mut NetdevSpace,
    bad: &mut u32,
) -> Result<(), DumpError> {
    let mut seen = BTreeMap::new();
    let links = &mut out.links;
    socket.dump(&mut shared.buffers, link::put_dump, |bytes, seq| {
        walk(bytes, seq, link::NEWLINK, bad, |payload| {
            let Some(m) = link::LinkMsg::parse(payload) else { return false };
            let Some(stats) = m.stats else { return true };
            if links.len() >= MAX_ROWS || seen.contains_key(&m.ifindex) {
                return true;
            }
            let mut attrs = m.attrs();
            if let Some((speed, channels)) = memory.slow.get(&m.ifindex) {
                (attrs.speed_mbit, attrs.channels) = (*speed, *channels);
            }
            let known = memory.attrs.get(&m.ifindex).filter(|a| ***a == attrs);
            let attrs = known.cloned().unwrap_or_else(|| Arc::new(attrs));
            seen.insert(m.ifindex, attrs.clone());
            links.push(LinkRow { ifindex: m.ifindex, attrs, stats, exceeded: Vec::new() });
            true
        })
    })?;
    memory.attrs = seen;
    links.sort_unstable_by_key(|l| l.ifindex);
    Ok(())
}

fn read_qdiscs(
    socket: &mut NlSocket,
    shared: &mut Shared,
    out: &mut NetdevSpace,
    bad: &mut u32,
) -> Result<(), DumpError> {
    let rows = &mut out.qdiscs;
    let kinds = &mut shared.kinds;
    let buffers = &mut shared.buffers;
    socket.dump(buffers, qdisc::put_qdiscs, |bytes, seq| {
        take_tc(bytes, seq, false, rows, kinds, bad)
    })?;
    let classful: Vec<u32> = rows.iter().filter(|q| &*q.kind == "htb").map(|q| q.ifindex).collect();
    for ifindex in classful.iter().take(MAX_CLASSFUL) {
        socket.dump(
            buffers,
            |tx, seq| qdisc::put_classes(tx, seq, *ifindex),
            |bytes, seq| take_tc(bytes, seq, true, rows, kinds, bad),
        )?;
    }
    drop_repeated(rows);
    if classful.len() > MAX_CLASSFUL {
        let n = classful.len() - MAX_CLASSFUL;
        out.holes.push(format!("devices whose classes are not read: {n}"));
    }
    Ok(())
}

fn take_tc(
    bytes: &[u8],
    seq: u32,
    class: bool,
    rows: &mut Vec<QdiscRow>,
    kinds: &mut Vec<Arc<str>>,
    bad: &mut u32,
) -> Step {
    let kind = if class { qdisc::NEWTCLASS } else { qdisc::NEWQDISC };
    walk(bytes, seq, kind, bad, |payload| {
        let Some(m) = qdisc::TcMsg::parse(payload, class) else { return false };
        // noqueue counts nothing.
        if rows.len() < MAX_ROWS && m.kind != b"noqueue" {
            rows.push(m.row(class, intern(kinds, m.kind)));
        }
        true
    })
}

/// The children of `mq` repeat what `mq` itself sums up; a NIC may have a hundred of them.
fn drop_repeated(rows: &mut Vec<QdiscRow>) {
    let multi: Vec<(u32, u32)> = rows
        .iter()
        .filter(|q| matches!(&*q.kind, "mq" | "mqprio"))
        .map(|q| (q.ifindex, q.handle >> 16))
        .collect();
    rows.retain(|q| {
        q.shape.is_some()
            || q.parent == QdiscRow::ROOT
            || !multi.contains(&(q.ifindex, q.parent >> 16))
    });
}

/// Names repeat from device to device and tick to tick.
fn intern(kinds: &mut Vec<Arc<str>>, name: &[u8]) -> Arc<str> {
    if let Some(known) = kinds.iter().find(|k| k.as_bytes() == name) {
        return known.clone();
    }
    let new: Arc<str> = String::from_utf8_lossy(name).into();
    if kinds.len() < 256 {
        kinds.push(new.clone());
    }
    new
}

/// Speed and channels by device; empty where the kernel or the drivers do not tell.
fn slow(shared: &mut Shared) -> BTreeMap<u32, (Option<u32>, Option<Channels>)> {
    let mut out: BTreeMap<u32, (Option<u32>, Option<Channels>)> = BTreeMap::new();
    if shared.ethtool_known && shared.ethtool.is_none() {
        return out;
    }
    let Ok(mut socket) = NlSocket::open(netlink::GENERIC) else { return out };
    if !shared.ethtool_known {
        let mut found = None;
        let asked = socket.dump(&mut shared.buffers, ethtool::put_family, |bytes, seq| {
            for message in Messages::new(bytes) {
                match message {
                    Message::Data(ethtool::CONTROL, s, payload) if s == seq => {
                        found = ethtool::family(payload);
                        return Step::Done;
                    }
                    Message::Error(s, errno) if s == seq => return Step::Failed(errno),
                    _ => {}
                }
            }
            Step::More
        });
        // Anything but an answer in words: ask again another time.
        shared.ethtool_known = matches!(asked, Ok(()) | Err(DumpError::NoModule(_)));
        shared.ethtool = found;
    }
    let Some(family) = shared.ethtool else { return out };
    let mut bad = 0;
    let speeds = socket.dump(
        &mut shared.buffers,
        |tx, seq| ethtool::put_linkmodes(tx, seq, family),
        |bytes, seq| {
            walk(bytes, seq, family, &mut bad, |payload| {
                out.extend(ethtool::speed(payload).map(|(i, speed)| (i, (speed, None))));
                true
            })
        },
    );
    if matches!(speeds, Err(DumpError::Transport(_))) {
        return out;
    }
    let _ = socket.dump(
        &mut shared.buffers,
        |tx, seq| ethtool::put_channels(tx, seq, family),
        |bytes, seq| {
            walk(bytes, seq, family, &mut bad, |payload| {
                if let Some((i, channels)) = ethtool::channels(payload) {
                    out.entry(i).or_default().1 = Some(channels);
                }
                true
            })
        },
    );
    out
}

#[cfg(test)]
mod tests;
