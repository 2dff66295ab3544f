//! Sockets of the other network namespaces, on a thread of their own that uses `setns`.
//!
//! A netlink socket keeps its namespace alive, and with it a container that should be gone.
//! So no socket outlives its reading: enter, open, dump, close, return; all of it takes less
//! time than the dump itself. A namespace is entered only while a process is in it or a
//! mount holds it, which is checked right before.
//!
//! Not every namespace is read in every tick ([`Schedule`]); one that was not due is carried
//! over as it was read, with its old stamps. One whose `sockstat` counts no TCP and no UDP
//! socket costs two small files instead of a dump.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Names;
use super::reader::{Modules, NetnsReader, Place, Scratch};
use super::schedule::Schedule;
use crate::clock;
use crate::collect::enter::{Enter, NOT_PERMITTED, inside};
use crate::collect::namespaces::{self, MountDirs, Namespace};
use crate::collect::permission::{self, Right};
use crate::collect::{
    CollectError, CollectOptions, Collector, HostFs, NetnsScope, SampleContext, Unavailable,
};
use crate::sample::sockets::{NetnsTable, SocketsSample, UnreadNetns};
use crate::sample::subject::NetnsId;
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Extent, LOOK_AGAIN, Signal};

/// How often all processes are asked for their namespace, if no mount of one comes or goes.
const ENUMERATE: Duration = Duration::from_secs(5);
/// Namespaces that are kept at most; the rest is listed as unread.
const MAX_SPACES: usize = 1024;

const ONLY_OWN: &str = "only our own network namespace is read";
/// What undoes the user's own choice.
pub(super) const WITHOUT_NETNS: &str = "start without --netns";

/// Reads them. See the module head.
pub struct NetnsSocketsCollector {
    host: HostFs,
    scope: Scope,
    home: File,
    own: Option<NetnsId>,
    modules: Modules,
    scratch: Scratch,
    names: Names,
    schedule: Schedule,
    known: Vec<Namespace>,
    enumerated: Option<MonoNs>,
    mounts: MountDirs,
    readers: BTreeMap<NetnsId, NetnsReader>,
    refused: BTreeMap<NetnsId, String>,
    /// What of the host the latest list does not cover.
    closed: BTreeSet<u64>,
    unreadable: u32,
    hidden: bool,
    /// [`namespaces::net_file`] of the namespaces that only a mount leads to.
    files: BTreeMap<NetnsId, u64>,
    /// Set when the thread could not go back to its own namespace: it reads no more.
    lost: Option<String>,
}

enum Scope {
    /// All but our own.
    Others,
    /// Only this one, in every tick, whatever it costs: the user asked for it.
    One(PathBuf),
}

impl Collector for NetnsSocketsCollector {
    type Sample = SocketsSample;
    const ID: CollectorId = CollectorId::NetnsSockets;

    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        if !host.is_live() {
            return Err(Unavailable::new("captured files have no sockets", ""));
        }
        let own = namespaces::own(host);
        let scope = match &opts.netns {
            NetnsScope::All => Scope::Others,
            NetnsScope::Own => {
                return Err(Unavailable::new(ONLY_OWN, WITHOUT_NETNS));
            }
            NetnsScope::Path(path) => match namespaces::of_path(path) {
                None => {
                    return Err(Unavailable::new(
                        format!("{} is not a network namespace", path.display()),
                        "give a file such as /run/netns/NAME or /proc/PID/ns/net",
                    ));
                }
                id if id == own => {
                    return Err(Unavailable::new(ONLY_OWN, WITHOUT_NETNS));
                }
                Some(_) => Scope::One(path.clone()),
            },
        };
        let home = File::open(host.path("proc/thread-self/ns/net"))
            .map_err(|e| Unavailable::because("this kernel has no network namespaces", &e, ""))?;
        Ok(Self {
            host: host.clone(),
            scope,
            home,
            own,
            modules: Modules::probe(host),
            scratch: Scratch::new(super::suspects::CAP_OTHERS),
            names: Names::new(host),
            schedule: Schedule::new(opts.netns_budget),
            known: Vec::new(),
            enumerated: None,
            mounts: MountDirs::default(),
            readers: BTreeMap::new(),
            refused: BTreeMap::new(),
            closed: BTreeSet::new(),
            unreadable: 0,
            hidden: false,
            files: BTreeMap::new(),
            lost: None,
        })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<Self::Sample, CollectError> {
        if let Some(why) = &self.lost {
            return Err(CollectError::Netlink {
                what: "setns".to_owned(),
                source: io::Error::other(why.clone()),
            });
        }
        let cpu = clock::thread_cpu();
        self.find(cx.at);
        self.schedule.charge(clock::thread_cpu().saturating_sub(cpu));
        let alive: Vec<NetnsId> = self.known.iter().map(|n| n.id).take(MAX_SPACES).collect();
        self.readers.retain(|id, _| alive.contains(id));
        self.refused.retain(|id, _| alive.contains(id));
        self.files.retain(|id, _| alive.contains(id));
        let unlimited = matches!(self.scope, Scope::One(_));
        for (id, turn) in self.schedule.begin(cx.at, &alive) {
            if !unlimited && !self.schedule.allows(id, turn) {
                continue;
            }
            let cpu = clock::thread_cpu();
            let urgent = self.visit(id, cx);
            let cost = clock::thread_cpu().saturating_sub(cpu);
            self.schedule.read(id, turn, cx.at, cost, urgent);
            if self.lost.is_some() {
                break;
            }
        }
        Ok(self.collect())
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        let source = "netlink";
        let name = match self.scope {
            Scope::Others => "other network namespaces",
            Scope::One(_) => "the chosen network namespace",
        };
        if let Some(why) = &self.lost {
            let all = self.known.len() as u32;
            let lost = Signal::missing(name, source, why.clone(), "restart");
            out.push(lost.unseen("network namespace", Extent::AtLeast(all.max(1))));
            return;
        }
        if let (Scope::One(path), true) = (&self.scope, self.known.is_empty()) {
            // Nothing is read then: silence would pass for health.
            let why = format!("{} is gone", path.display());
            out.push(Signal::missing(name, source, why, ""));
            return;
        }
        if matches!(self.scope, Scope::One(_)) {
            super::protocol_signals(self.modules, &self.host, out);
        }
        out.push(self.others(name, source));
    }
}

impl NetnsSocketsCollector {
    /// What of the namespaces is read, and why the rest is not.
    fn others(&self, name: &'static str, source: &'static str) -> Signal {
        let all = self.known.len();
        let unread = |n: &&Namespace| {
            !self.refused.contains_key(&n.id)
                && self.readers.get(&n.id).and_then(NetnsReader::latest).is_none()
        };
        let waiting = self.known.iter().filter(unread).count();
        // Into some of these we came by a mount.
        let closed = self.closed.iter().filter(|f| !self.files.values().any(|o| o == *f));
        let closed = closed.count() as u32;
        let mut why = Vec::new();
        let mut remedies = Vec::new();
        if let Some(first) = self.refused.values().next() {
            let refusal = permission::refusal(&self.host, Right::Admin);
            let held = if first == NOT_PERMITTED { &*refusal.why } else { "" };
            why.push(format!("{} of {all}: {first}{held}", self.refused.len()));
            remedies.push(refusal.remedy);
        }
        if closed + self.unreadable > 0 || self.hidden {
            let refusal = permission::refusal(&self.host, Right::Ptrace);
            why.push(format!("{}{}", self.out_of_reach(closed), refusal.why));
            remedies.push(refusal.remedy);
        }
        if waiting > 0 {
            let (due, remedy) = if all > MAX_SPACES {
                (format!("only {MAX_SPACES} are read"), "choose one with --netns")
            } else {
                ("CPU budget".to_owned(), LOOK_AGAIN)
            };
            why.push(format!("{waiting} of {all} not read yet: {due}"));
            remedies.push(remedy.to_owned());
        }
        if why.is_empty() {
            return Signal::ok(name, source);
        }
        let known = (self.refused.len() + waiting) as u32;
        let (what, extent) = self.extent(known, closed);
        let (why, read) = (why.join("; "), all > known as usize);
        let remedy = remedies.into_iter().find(|r| !r.is_empty()).unwrap_or_default();
        let signal = if read || extent == Extent::Unknown {
            Signal::degraded(name, source, why, remedy)
        } else {
            Signal::missing(name, source, why, remedy)
        };
        signal.unseen(what, extent)
    }

    /// Why there are processes whose namespaces are not among the known ones.
    fn out_of_reach(&self, closed: u32) -> String {
        let mut why = Vec::new();
        match closed {
            0 => {}
            1 => why.push("processes of another one cannot be inspected".to_owned()),
            n => why.push(format!("processes of {n} others cannot be inspected")),
        }
        match (self.hidden, self.unreadable) {
            (true, _) => why.push("/proc shows only our own processes (hidepid)".to_owned()),
            (_, 0) => {}
            (_, 1) => why.push("the namespace of one process is unknown".to_owned()),
            (_, n) => why.push(format!("the namespaces of {n} processes are unknown")),
        }
        why.join("; ")
    }

    /// How many namespaces are not read. One that a mount holds may be that of a process which
    /// may not be looked into: nothing tells.
    fn extent(&self, known: u32, closed: u32) -> (&'static str, Extent) {
        const ONE: &str = "network namespace";
        match known.max(closed) {
            0 => ("other network namespaces", Extent::Unknown),
            n if self.hidden || self.unreadable > 0 => (ONE, Extent::AtLeast(n)),
            n if known > 0 && closed > 0 => (ONE, Extent::AtLeast(n)),
            n => (ONE, Extent::Exactly(n)),
        }
    }

    /// Learns which namespaces there are: all of them now and then, in between only whether
    /// the known ones still live.
    fn find(&mut self, now: MonoNs) {
        if let Scope::One(path) = &self.scope {
            let id = namespaces::of_path(path);
            if id.is_none() || self.known.first().map(|n| n.id) != id {
                let found = id.map(|id| the_one(&self.host, id, path));
                self.known = found.into_iter().collect();
            }
            return;
        }
        let changed = self.mounts.changed(&self.host);
        let due = changed || self.enumerated.is_none_or(|t| now.since(t) >= ENUMERATE);
        if !due && self.known.iter().all(|n| namespaces::still_there(&self.host, n)) {
            return;
        }
        let survey = namespaces::survey(&self.host);
        self.known = survey.spaces;
        self.known.retain(|n| Some(n.id) != self.own);
        (self.closed, self.unreadable) = (survey.closed, survey.unreadable);
        self.hidden = survey.hidden;
        self.enumerated = Some(now);
    }

    /// Reads one namespace. True when it has sockets that stall.
    fn visit(&mut self, id: NetnsId, cx: &SampleContext<'_>) -> bool {
        let Some(space) = self.known.iter().find(|n| n.id == id) else { return false };
        let place = Place { netns: id, label: space.label.clone(), member: space.member };
        let reader = self.readers.entry(id).or_default();
        let (host, modules, scratch) = (&self.host, &mut self.modules, &mut self.scratch);
        let unknown = space.member.is_none() && !self.files.contains_key(&id);
        let mut file = None;
        let entered = inside(&self.home, &host.path(&space.handle), || {
            let mut links = None;
            if unknown {
                file = namespaces::net_file(host, "thread-self").ok();
            }
            reader.read(host, &mut links, modules, scratch, &place, cx.interest)
        });
        self.files.extend(file.map(|file| (id, file)));
        match entered {
            Ok(Ok(mut table)) => {
                self.names.fill(&mut table, &self.scratch, cx.interest);
                reader.keep(Arc::new(table));
                self.refused.remove(&id);
                !self.scratch.suspects().stalled.is_empty()
            }
            Ok(Err(e)) => {
                self.refused.insert(id, e.to_string());
                false
            }
            Err(Enter::Gone) => {
                // Ended between the list and the visit: nothing to report.
                self.known.retain(|n| n.id != id);
                self.readers.remove(&id);
                self.enumerated = None;
                false
            }
            Err(Enter::Refused(why)) => {
                self.readers.remove(&id);
                self.refused.insert(id, why);
                false
            }
            Err(Enter::Lost(why)) => {
                self.lost = Some(why);
                false
            }
        }
    }

    /// The sample: what was read now and what is carried over.
    fn collect(&self) -> SocketsSample {
        let mut out = SocketsSample::default();
        for (n, space) in self.known.iter().enumerate() {
            let table: Option<&Arc<NetnsTable>> =
                self.readers.get(&space.id).and_then(NetnsReader::latest);
            let reason = match (self.refused.get(&space.id), table) {
                (Some(why), _) => why.clone(),
                (None, Some(table)) => {
                    out.spaces.push(table.clone());
                    continue;
                }
                (None, None) if n >= MAX_SPACES => {
                    format!("only {MAX_SPACES} namespaces are read")
                }
                (None, None) => "not read yet: CPU budget".to_owned(),
            };
            out.unread.push(UnreadNetns { netns: space.id, label: space.label.clone(), reason });
        }
        out
    }
}

/// The namespace behind `path`, with the member and the name that it has among all.
fn the_one(host: &HostFs, id: NetnsId, path: &Path) -> Namespace {
    let known = namespaces::list(host).into_iter().find(|n| n.id == id);
    let label = known.as_ref().map_or_else(|| path.display().to_string(), |n| n.label.clone());
    Namespace { id, member: known.and_then(|n| n.member), handle: path.to_owned(), label }
}
