//! The collector: our own namespace each tick, the others in turn.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::time::Duration;

use super::budget::{self, Budget};
use super::parse;
use super::turns::{Trouble, Turns};
use crate::clock;
use crate::collect::enter::{Enter, inside};
use crate::collect::hot::{HotFile, read_record};
use crate::collect::names::NameTable;
use crate::collect::namespaces::{self, MountDirs, Namespace};
use crate::collect::permission::{self, Right};
use crate::collect::{
    CollectError, CollectOptions, Collector, HostFs, NetnsScope, SampleContext, Unavailable,
};
use crate::parse::{fields, number};
use crate::sample::net_counters::{NetCountersSample, NetnsCounters};
use crate::sample::subject::NetnsId;
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Extent, Signal};

/// The files, in the order in which their names are walked.
const FILES: [&str; 5] = ["netstat", "snmp", "snmp6", "sockstat", "sockstat6"];
/// The list of namespaces and the limits are read again after this time, or later when that
/// would cost more than the budget.
const LIST_AGE: Duration = Duration::from_secs(10);
/// After a namespace could not be read, the list is read again this soon.
const RETRY: Duration = Duration::from_secs(2);

/// Reads it. See the module head.
pub struct NetCountersCollector {
    host: HostFs,
    own: NetnsId,
    own_files: [HotFile; 5],
    names: NameTable,
    foreign: Foreign,
    /// A file is there and does not hold what it should.
    own_is_empty: bool,
    tcp_mem: Option<[u64; 3]>,
    tcp_max_orphans: Option<u64>,
    slow_at: Option<MonoNs>,
}

/// The namespaces that are not ours.
struct Foreign {
    wanted: Wanted,
    turns: Turns,
    budget: Budget,
    /// Our own namespace, to come back to; `None` when we may not leave it.
    home: Option<File>,
    /// Namespaces without a process that may not be entered.
    refused: BTreeSet<NetnsId>,
    next_list: Option<MonoNs>,
    mounts: MountDirs,
    list_cost: Duration,
    listed: Option<MonoNs>,
    bufs: [Vec<u8>; 5],
}

/// Which of them are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    None,
    All,
    /// The one behind the path that the user named.
    Only(NetnsId),
}

impl Wanted {
    fn from_scope(scope: &NetnsScope) -> Self {
        match scope {
            NetnsScope::All => Self::All,
            NetnsScope::Own => Self::None,
            NetnsScope::Path(p) => {
                rustix::fs::stat(p).map_or(Self::None, |s| Self::Only(NetnsId(s.st_ino)))
            }
        }
    }

    fn includes(self, id: NetnsId) -> bool {
        self == Self::All || self == Self::Only(id)
    }
}

/// One of them.
pub(super) struct Space {
    pub(super) ns: Namespace,
    names: NameTable,
    pub(super) trouble: Trouble,
}

impl Space {
    pub(super) fn new(ns: Namespace) -> Self {
        Self { ns, names: NameTable::default(), trouble: Trouble::default() }
    }
}

impl Collector for NetCountersCollector {
    type Sample = NetCountersSample;
    const ID: CollectorId = CollectorId::NetCounters;

    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let mut own_files = FILES.map(|f| HotFile::record(host, format!("proc/net/{f}")));
        let [netstat, ..] = &mut own_files;
        netstat
            .read()
            .map_err(|e| Unavailable::because("/proc/net/netstat", &e, "mount the host's /proc"))?;
        Ok(Self {
            host: host.clone(),
            own: namespaces::own(host).unwrap_or_default(),
            own_files,
            names: NameTable::default(),
            foreign: Foreign {
                wanted: Wanted::from_scope(&opts.netns),
                turns: Turns::default(),
                budget: Budget::default(),
                home: File::open(host.path("proc/self/ns/net")).ok().filter(|_| host.is_live()),
                refused: BTreeSet::new(),
                next_list: None,
                mounts: MountDirs::default(),
                list_cost: Duration::ZERO,
                listed: None,
                bufs: Default::default(),
            },
            own_is_empty: false,
            tcp_mem: None,
            tcp_max_orphans: None,
            slow_at: None,
        })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<NetCountersSample, CollectError> {
        self.read_limits(cx.at);
        let own = self.read_own()?;
        // One of each table that every kernel has.
        let known = ["TcpRetransSegs", "TcpExtTCPTimeouts"];
        self.own_is_empty = known.iter().any(|name| own.get(name).is_none());
        let mut spaces = vec![own];
        self.foreign.read_some(&self.host, self.own, cx, &mut spaces);
        Ok(NetCountersSample {
            spaces,
            tcp_mem: self.tcp_mem,
            tcp_max_orphans: self.tcp_max_orphans,
        })
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        const NAME: &str = "protocol counters";
        const SOURCE: &str = "/proc/net";
        let why = "counts only: no connection, no reason";
        out.push(Signal::degraded("TCP events", SOURCE, why, ""));
        let blind = self.foreign.refused.len();
        out.push(if self.own_is_empty {
            let why = "/proc/net/netstat or /proc/net/snmp lacks its counters";
            Signal::degraded(NAME, SOURCE, why, "mount the host's /proc")
                .unseen("protocol counters", Extent::Whole)
        } else if blind == 0 {
            Signal::ok(NAME, SOURCE)
        } else {
            let r = permission::refusal(&self.host, Right::Admin);
            Signal::degraded(
                NAME,
                SOURCE,
                format!("namespaces held only by a mount are not read: {blind}{}", r.why),
                r.remedy,
            )
            .unseen("network namespace", Extent::Exactly(blind as u32))
        });
    }
}

impl NetCountersCollector {
    fn read_limits(&mut self, at: MonoNs) {
        if self.slow_at.is_some_and(|t| at.since(t) < LIST_AGE) {
            return;
        }
        self.slow_at = Some(at);
        let mem = self.host.read("proc/sys/net/ipv4/tcp_mem").ok();
        self.tcp_mem = mem.and_then(|b| {
            let mut f = fields(&b).map(number);
            Some([f.next()??, f.next()??, f.next()??])
        });
        self.tcp_max_orphans = self.host.read_number("proc/sys/net/ipv4/tcp_max_orphans").ok();
    }

    fn read_own(&mut self) -> Result<NetnsCounters, CollectError> {
        let [netstat, rest @ ..] = &mut self.own_files;
        let netstat = netstat.read().map_err(|e| CollectError::read("proc/net/netstat", e))?;
        // The others may be absent: snmp6 and sockstat6 without IPv6.
        let [snmp, snmp6, sockstat, sockstat6] = rest;
        let texts = [
            netstat,
            snmp.read().unwrap_or_default(),
            snmp6.read().unwrap_or_default(),
            sockstat.read().unwrap_or_default(),
            sockstat6.read().unwrap_or_default(),
        ];
        Ok(counters(self.own, &texts, &mut self.names))
    }
}

impl Foreign {
    fn read_some(
        &mut self,
        host: &HostFs,
        own: NetnsId,
        cx: &SampleContext<'_>,
        out: &mut Vec<NetnsCounters>,
    ) {
        if self.wanted == Wanted::None {
            return;
        }
        if self.mounts.changed(host) {
            self.list_soon(cx.at);
        }
        if self.next_list.is_none_or(|t| cx.at >= t) {
            let before = clock::thread_cpu();
            self.list(host, own);
            self.list_cost = clock::thread_cpu().saturating_sub(before);
            self.listed = Some(cx.at);
            self.next_list =
                Some(cx.at + LIST_AGE.max(self.list_cost.mul_f64(1.0 / budget::SHARE)));
        }
        let budget = self.budget.of_tick(cx.interval);
        let before = clock::thread_cpu();
        let is_spent = |part| clock::thread_cpu().saturating_sub(before) > budget.mul_f64(part);
        let mut turns = std::mem::take(&mut self.turns);
        turns.round(cx.at, is_spent, |space| {
            let read = self.read(host, space);
            if let Ok(row) = read {
                space.trouble.look(&row, cx.at);
                out.push(row);
                return true;
            }
            // The member is gone or moved: find another.
            self.list_soon(cx.at + RETRY);
            false
        });
        self.turns = turns;
        self.budget.keep(budget, clock::thread_cpu().saturating_sub(before));
    }

    /// At `at`, or later when that would cost more than the budget.
    fn list_soon(&mut self, at: MonoNs) {
        let cheap = self.listed.map_or(at, |t| t + self.list_cost.mul_f64(0.2 / budget::SHARE));
        self.next_list = self.next_list.map(|t| t.min(at.max(cheap)));
    }

    fn list(&mut self, host: &HostFs, own: NetnsId) {
        let mut found = namespaces::list(host);
        found.retain(|n| n.id != own && self.wanted.includes(n.id));
        self.refused.retain(|id| found.iter().any(|n| n.id == *id));
        self.turns.list(found);
    }

    fn read(&mut self, host: &HostFs, space: &mut Space) -> io::Result<NetnsCounters> {
        match space.ns.member {
            Some(pid) => self.read_of(host, &format!("proc/{pid}/net"))?,
            None => self.read_inside(host, &space.ns)?,
        }
        // Only now: a process that moved or died since the first file spoils the row.
        if !namespaces::still_there(host, &space.ns) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let texts = self.bufs.each_ref().map(Vec::as_slice);
        Ok(counters(space.ns.id, &texts, &mut space.names))
    }

    /// Files of other namespaces are closed again: an open one would keep the namespace.
    fn read_of(&mut self, host: &HostFs, dir: &str) -> io::Result<()> {
        for (i, (name, buf)) in FILES.iter().zip(&mut self.bufs).enumerate() {
            match File::open(host.path(format!("{dir}/{name}"))).and_then(|f| read_record(&f, buf))
            {
                Ok(()) => {}
                Err(e) if i == 0 => return Err(e),
                Err(_) => buf.clear(),
            }
        }
        Ok(())
    }

    /// A namespace that only a mount holds has no `/proc/PID/net`: this thread goes in and
    /// reads its own. Everything else that it reads belongs to the process, not the thread.
    fn read_inside(&mut self, host: &HostFs, ns: &Namespace) -> io::Result<()> {
        let home = self.home.take().ok_or(io::ErrorKind::PermissionDenied)?;
        let handle = host.path(&ns.handle);
        let entered = inside(&home, &handle, || self.read_of(host, "proc/thread-self/net"));
        if !matches!(entered, Err(Enter::Lost(_))) {
            self.home = Some(home);
        }
        match entered {
            Ok(read) => {
                self.refused.remove(&ns.id);
                read
            }
            Err(Enter::Gone) => Err(io::ErrorKind::NotFound.into()),
            Err(Enter::Refused(why) | Enter::Lost(why)) => {
                self.refused.insert(ns.id);
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
        }
    }
}

fn counters(netns: NetnsId, texts: &[&[u8]; 5], table: &mut NameTable) -> NetnsCounters {
    let [netstat, snmp, snmp6, sockstat, sockstat6] = *texts;
    let (names, values) = table.collect(
        |emit| {
            parse::walk_tables(netstat, emit);
            parse::walk_tables(snmp, emit);
            parse::walk_snmp6(snmp6, emit);
            parse::walk_sockstat(sockstat, emit);
            parse::walk_sockstat(sockstat6, emit);
        },
        shown_name,
    );
    NetnsCounters { netns, names, values }
}

/// `TcpExtTCPTimeouts` as nstat has it; `sockstat.TCP.inuse` where nstat has nothing.
fn shown_name(group: &[u8], name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    match group {
        [g @ .., b':'] => format!("sockstat.{}.{name}", String::from_utf8_lossy(g)),
        g => format!("{}{name}", String::from_utf8_lossy(g)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::collect::testing::{fixtures, skip};
    use crate::sample::Interest;
    use std::path::PathBuf;
    use std::sync::Arc;

    fn fixture(kernel: &str) -> HostFs {
        HostFs::at(fixtures().join(kernel))
    }

    fn sample(c: &mut NetCountersCollector) -> NetCountersSample {
        let interest = Interest::default();
        let interval = Duration::from_secs(1);
        c.sample(&SampleContext { at: clock::mono(), interval, interest: &interest }).unwrap()
    }

    fn open(host: &HostFs) -> NetCountersCollector {
        NetCountersCollector::open(host, &CollectOptions::default()).unwrap()
    }

    #[test]
    fn a_file_without_its_counters_degrades_the_signal() {
        let dir = tempfile::tempdir().unwrap();
        let net = dir.path().join("proc/net");
        std::fs::create_dir_all(&net).unwrap();
        let (ext, tcp) = ("TcpExt: TCPTimeouts\nTcpExt: 1\n", "Tcp: RetransSegs\nTcp: 1\n");
        for (netstat, snmp, whole) in
            [("", tcp, false), ("\0x\n", tcp, false), (ext, "", false), (ext, tcp, true)]
        {
            std::fs::write(net.join("netstat"), netstat).unwrap();
            std::fs::write(net.join("snmp"), snmp).unwrap();
            let mut c = open(&HostFs::at(dir.path()));
            sample(&mut c);
            let mut signals = Vec::new();
            c.signals(&mut signals);
            let s = signals.iter().find(|s| s.signal == "protocol counters").unwrap();
            assert_eq!(s.unseen.is_none(), whole, "{netstat:?} {snmp:?}: {s:?}");
        }
    }

    #[test]
    fn names_are_those_of_nstat() {
        let s = sample(&mut open(&fixture("4.19")));
        let [own] = &s.spaces[..] else { panic!("{} namespaces", s.spaces.len()) };
        assert_eq!(own.netns, NetnsId(4_026_531_993));
        assert_eq!(own.get("TcpExtTCPWqueueTooBig"), Some(6));
        assert_eq!(own.get("TcpRetransSegs"), Some(150));
        assert_eq!(own.get("TcpMaxConn"), Some(-1));
        assert_eq!(own.get("UdpRcvbufErrors"), Some(1997));
        assert_eq!(own.get("IpExtInOctets"), Some(123_456_789_012));
        assert_eq!(own.get("sockstat.TCP.orphan"), Some(1));
        assert_eq!(own.get("sockstat.TCP6.inuse"), Some(4));
        // snmp6 is absent, and TCPTimeoutRehash is newer than this kernel.
        assert_eq!(own.get("Ip6InReceives"), None);
        assert_eq!(own.get("TcpExtTcpTimeoutRehash"), None);
        assert_eq!(s.tcp_mem, Some([190_000, 253_334, 380_000]));
        assert_eq!(s.tcp_max_orphans, Some(65_536));
    }

    #[test]
    fn every_counter_of_the_captured_files_is_there() {
        let host = fixture("6.18");
        let s = sample(&mut open(&host));
        let own = &s.spaces[0];
        assert!(own.names.is_sorted());
        for (file, prefix) in [("netstat", "TcpExt:"), ("snmp", "Udp:")] {
            let text = host.read_trimmed(format!("proc/net/{file}")).unwrap();
            let mut rows = text.lines().filter_map(|l| l.strip_prefix(prefix));
            let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
            for (n, v) in names.split_whitespace().zip(values.split_whitespace()) {
                let full = format!("{}{n}", prefix.trim_end_matches(':'));
                assert_eq!(own.get(&full), v.parse().ok(), "{full}");
            }
        }
        let used = own.get("Ip6InReceives");
        assert!(used.is_some());
    }

    #[test]
    fn live_names_are_shared_between_ticks() {
        let mut c = open(&HostFs::live());
        let (a, b) = (sample(&mut c), sample(&mut c));
        assert!(Arc::ptr_eq(&a.spaces[0].names, &b.spaces[0].names));
        assert!(a.spaces[0].get("TcpRetransSegs") <= b.spaces[0].get("TcpRetransSegs"));
        assert!(a.spaces[0].get("sockstat.sockets.used").unwrap() > 0);
        assert!(a.tcp_mem.is_some_and(|m| m[0] <= m[2]));
    }

    #[test]
    fn another_namespace_is_read_through_its_member_and_let_go() {
        if !rustix::process::geteuid().is_root() {
            return skip("namespaces: not root");
        }
        let mut unshare = std::process::Command::new("unshare");
        let mut child = match unshare.args(["-n", "sleep", "60"]).spawn() {
            Ok(c) => c,
            Err(e) => return skip(&format!("unshare: {e}")),
        };
        let host = HostFs::live();
        let deadline = clock::mono() + Duration::from_secs(5);
        let link = format!("proc/{}/ns/net", child.id());
        let own = host.link("proc/self/ns/net").unwrap();
        while host.link(&link).unwrap() == own {
            assert!(clock::mono() < deadline, "unshare did nothing");
        }
        let theirs = host.link(&link).unwrap();
        let in_child = |s: &NetCountersSample| {
            let found = s.spaces.iter().find(|n| theirs == format!("net:[{}]", n.netns));
            found.map(|n| n.get("TcpActiveOpens"))
        };
        let mut c = open(&host);
        while in_child(&sample(&mut c)).is_none() {
            assert!(clock::mono() < deadline, "namespace not found");
        }
        assert_eq!(in_child(&sample(&mut c)), Some(Some(0)));
        child.kill().unwrap();
        child.wait().unwrap();
        while in_child(&sample(&mut c)).is_some() {
            assert!(clock::mono() < deadline, "namespace still shown");
        }
    }

    #[test]
    fn a_namespace_that_only_a_mount_holds_is_entered() {
        let name = format!("stallscope-counters-{}", std::process::id());
        let ip = |args: &[&str]| {
            std::process::Command::new("ip").args(args).output().is_ok_and(|o| o.status.success())
        };
        if !rustix::process::geteuid().is_root() || !ip(&["netns", "add", &name]) {
            return skip("`ip netns add` needs root");
        }
        let host = HostFs::live();
        let handle = PathBuf::from(format!("/run/netns/{name}"));
        let id = namespaces::of_path(&handle);
        let deadline = clock::mono() + Duration::from_secs(5);
        let mut c = open(&host);
        let found = loop {
            let s = sample(&mut c);
            if let Some(n) = s.spaces.iter().find(|n| Some(n.netns) == id) {
                break n.get("TcpActiveOpens");
            }
            assert!(clock::mono() < deadline, "never read");
        };
        let at_home = namespaces::own(&host) == Some(c.own);
        assert!(ip(&["netns", "del", &name]));
        assert_eq!(found, Some(0));
        assert!(at_home, "the thread came back");
    }
}
