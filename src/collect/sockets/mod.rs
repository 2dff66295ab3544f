//! Sockets over `NETLINK_SOCK_DIAG`, with `/proc/net` as the fallback.
//!
//! Two tiers: a dump of headers and socket memory of all sockets, then exact lookups with
//! `tcp_info` for those that the header, the previous reading or the screen makes
//! interesting ([`suspects`]). Own namespace here, the others in [`netns`]; one reading of
//! one namespace is [`reader`], whichever thread it runs on.
//!
//! Nothing here decides what is wrong: rows are what the kernel said.

pub mod cgroup_names;
pub mod cookies;
pub mod diag;
mod fill;
mod holders;
pub mod netlink;
pub mod netns;
pub mod nlmsg;
pub mod owners;
pub mod procnet;
pub mod reader;
pub mod route;
pub mod schedule;
pub mod sockstat;
pub mod suspects;
pub mod unix_diag;

use std::sync::Arc;
use std::time::Duration;

use super::permission::{self, Right};
use super::{
    CollectError, CollectOptions, Collector, HostFs, NetnsScope, SampleContext, Unavailable,
    namespaces,
};
use crate::clock;
use crate::sample::sockets::{NetnsTable, Proto, SockState, SocketsSample, UnixRows};
use crate::sample::subject::NetnsId;
use crate::sample::{CollectorId, Extent, Interest, Signal};
use cgroup_names::CgroupNames;
use owners::{MAX_WANTED, OwnerResolver};
use reader::{Links, Modules, NetnsReader, Place, Scratch};

/// Time per reading for the search of owners, and for the walk over cgroups.
const NAMES_BUDGET: Duration = Duration::from_millis(5);

/// Listeners per reading whose holders are told apart.
const MAX_SHARED: usize = 16;

/// Reads the namespace that we started in. See the module head.
pub struct HostSockets {
    host: HostFs,
    place: Place,
    links: Option<Links>,
    modules: Modules,
    scratch: Scratch,
    reader: NetnsReader,
    names: Names,
}

impl Collector for HostSockets {
    type Sample = SocketsSample;
    const ID: CollectorId = CollectorId::Sockets;

    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        if !host.is_live() {
            return Err(Unavailable::new("captured files have no sockets", ""));
        }
        let own = namespaces::own(host);
        if let NetnsScope::Path(path) = &opts.netns {
            let asked = namespaces::of_path(path);
            if asked.is_none() || asked != own {
                return Err(Unavailable::new(
                    format!("only the network namespace {} is read", path.display()),
                    netns::WITHOUT_NETNS,
                ));
            }
        }
        let links = Links::open()
            .map_err(|e| Unavailable::because("no NETLINK_SOCK_DIAG socket", &e, ""))?;
        Ok(Self {
            host: host.clone(),
            place: Place {
                // Without /proc/self/ns (no CONFIG_NET_NS) there is one namespace only.
                netns: own.unwrap_or(NetnsId(0)),
                label: "host".to_owned(),
                member: Some(std::process::id()),
            },
            links: Some(links),
            modules: Modules::probe(host),
            scratch: Scratch::new(suspects::CAP),
            reader: NetnsReader::default(),
            names: Names::new(host),
        })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<Self::Sample, CollectError> {
        let mut table = self.reader.read(
            &self.host,
            &mut self.links,
            &mut self.modules,
            &mut self.scratch,
            &self.place,
            cx.interest,
        )?;
        self.names.fill(&mut table, &self.scratch, cx.interest);
        let table = Arc::new(table);
        self.reader.keep(table.clone());
        Ok(SocketsSample { spaces: vec![table], unread: Vec::new() })
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        protocol_signals(self.modules, &self.host, out);
        out.push(self.names.signal());
    }
}

impl HostSockets {
    /// Pretends that the kernel has no diag module, to exercise the `/proc/net` fallback.
    pub fn without_netlink(&mut self) {
        self.modules = Modules::none();
    }
}

/// Names that rows are given after the reading: owners and cgroup paths.
struct Names {
    host: HostFs,
    owners: OwnerResolver,
    cgroups: CgroupNames,
    /// May we read the descriptors of every process?
    all_readable: bool,
}

impl Names {
    fn new(host: &HostFs) -> Self {
        Self {
            host: host.clone(),
            owners: OwnerResolver::new(host.clone()),
            cgroups: CgroupNames::new(host),
            all_readable: std::fs::read_dir(host.path("proc/1/fd")).is_ok(),
        }
    }

    /// Fills in the owners of what was asked for and of what is suspicious, and the cgroups.
    fn fill(&mut self, table: &mut NetnsTable, scratch: &Scratch, interest: &Interest) {
        let mut asked = interest.inodes.clone();
        asked.sort_unstable();
        asked.dedup();
        let mut wanted = reader::inodes_in(&table.inet, &table.unix.inode, &asked);
        let found = scratch.suspects();
        wanted.extend(full_listeners(&table.unix));
        let rows = [
            &found.named,
            &found.dropping,
            &found.stalled,
            &found.closing,
            &found.queued,
            &found.loaded,
            &found.unread,
            &found.listening,
        ];
        wanted.extend(
            rows.into_iter()
                .flatten()
                .filter_map(|i| table.inet.inode.get(*i as usize))
                .filter(|inode| **inode != 0)
                .take(MAX_WANTED),
        );
        table.owners = self.owners.resolve(&wanted, NAMES_BUDGET);
        self.who_accepts(table);
        table.cgroups = self.cgroups.resolve(&table.inet, NAMES_BUDGET);
    }

    /// Of the listeners that connections wait at: which of their holders it is.
    fn who_accepts(&mut self, table: &mut NetnsTable) {
        let rows = &table.inet;
        let waited_at = |i: &usize| {
            rows.state.get(*i) == Some(&SockState::LISTEN)
                && rows.rqueue.get(*i).is_some_and(|n| *n > 0)
        };
        let inodes: Vec<u32> = (0..rows.len())
            .filter(waited_at)
            .filter_map(|i| rows.inode.get(i).copied())
            .take(MAX_SHARED)
            .collect();
        let deadline = clock::mono() + NAMES_BUDGET;
        for owner in table.owners.iter_mut().filter(|o| inodes.contains(&o.inode)) {
            self.owners.who_accepts(owner, deadline);
        }
    }

    fn signal(&self) -> Signal {
        let (name, source) = ("socket owners", "/proc/PID/fd");
        if !self.all_readable {
            let refusal = permission::refusal(&self.host, Right::Ptrace);
            let why = format!(
                "descriptors of other users' processes cannot be read: uid and cgroup only{}",
                refusal.why
            );
            return Signal::degraded(name, source, why, refusal.remedy);
        }
        match self.owners.denied() {
            0 => Signal::ok(name, source),
            n => {
                let refusal = permission::refusal(&self.host, Right::Ptrace);
                let why = format!("descriptors of {n} processes cannot be read{}", refusal.why);
                Signal::degraded(name, source, why, refusal.remedy)
            }
        }
    }
}

/// Inodes of UNIX listeners whose backlog is full.
fn full_listeners(rows: &UnixRows) -> impl Iterator<Item = u32> + '_ {
    let full = |i: &usize| {
        rows.state.get(*i) == Some(&SockState::LISTEN)
            && rows.rqueue.get(*i).is_some_and(|n| *n > 0 && rows.wqueue.get(*i) <= Some(n))
    };
    (0..rows.len()).filter(full).filter_map(|i| rows.inode.get(i).copied()).take(16)
}

/// What the kernel offers for each kind of socket, the same in every namespace.
fn protocol_signals(modules: Modules, host: &HostFs, out: &mut Vec<Signal>) {
    const NETLINK: &str = "netlink";
    const PROC: &str = "/proc/net";
    out.push(if modules.lacks(Proto::Tcp) {
        Signal::degraded(
            "TCP sockets",
            PROC,
            "no tcp_diag module: no tcp_info, no socket memory, no cookies",
            "modprobe tcp_diag",
        )
        .unseen("TCP details", Extent::Whole)
    } else {
        Signal::ok("TCP sockets", NETLINK)
    });
    out.push(if modules.lacks(Proto::Udp) {
        Signal::degraded(
            "UDP sockets",
            PROC,
            "no udp_diag module: no socket memory, no drops",
            "modprobe udp_diag",
        )
        .unseen("UDP drops", Extent::Whole)
    } else {
        Signal::ok("UDP sockets", NETLINK)
    });
    out.push(if modules.lacks_unix() {
        Signal::degraded(
            "UNIX sockets",
            PROC,
            "no unix_diag module: no queue lengths, no peers",
            "modprobe unix_diag",
        )
        .unseen("UNIX queues", Extent::Whole)
    } else {
        Signal::ok("UNIX sockets", NETLINK)
    });
    out.push(if !modules.lacks(Proto::Mptcp) {
        Signal::ok("MPTCP sockets", NETLINK)
    } else if host.path("proc/sys/net/mptcp").exists() {
        Signal::missing(
            "MPTCP sockets",
            NETLINK,
            "no mptcp_diag module; subflows are listed as TCP",
            "modprobe mptcp_diag",
        )
    } else {
        Signal::missing("MPTCP sockets", NETLINK, "this kernel has no MPTCP", "")
    });
}
