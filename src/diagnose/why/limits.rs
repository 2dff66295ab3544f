//! Limits that hold a process back: open files, and what its cgroups may use of CPUs, memory and
//! tasks. From what was read last; what was not read is said with the reason.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::account::{Account, ThreadAccount};
use super::words::counted;
use crate::diagnose::rules::common::cgroups::of_v1;
use crate::diagnose::rules::common::text::bytes;
use crate::metrics::history::Window;
use crate::metrics::rate::ratio;
use crate::sample::CollectorId;
use crate::sample::cgroups::CgroupRow;
use crate::sample::tick::HealthState;

/// Not every cgroup is read in every tick: how far back to look for one.
const REMEMBER: Duration = Duration::from_secs(60);
/// Limits of one kind that are listed, those that are used up most.
const MOST: usize = 4;
/// Controllers that have hierarchies of their own in version 1.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuacct", "memory", "pids", "blkio"];

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limited {
    /// Descriptors of a process.
    OpenFiles,
    /// CPU time of a cgroup.
    Cpu,
    /// Memory of a cgroup.
    Memory,
    /// Tasks of a cgroup.
    Tasks,
}

impl Limited {
    /// What cgroups limit.
    const OF_CGROUPS: [Self; 3] = [Self::Cpu, Self::Memory, Self::Tasks];

    /// As people read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenFiles => "open files",
            Self::Cpu => "CPU quota",
            Self::Memory => "memory",
            Self::Tasks => "tasks",
        }
    }

    /// As programs read it.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::OpenFiles => "open-files",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Tasks => "tasks",
        }
    }

    /// Unit of both numbers; empty for a count.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::OpenFiles | Self::Tasks => "",
            Self::Cpu => "cores",
            Self::Memory => "bytes",
        }
    }

    fn number(self, n: f64) -> String {
        match self {
            Self::Cpu => format!("{n:.2}"),
            Self::Memory => bytes(n as u64),
            Self::OpenFiles | Self::Tasks => format!("{n:.0}"),
        }
    }
}

/// What is known of a limit.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// So much is used of what may be used.
    At {
        /// `None`: not measured.
        used: Option<f64>,
        /// What may be used.
        limit: f64,
        /// Whose it is: `process 700`, `cgroup /kube/pod7`. Names are raw.
        of: String,
    },
    /// There is none.
    Unlimited,
    /// It is not known, and why.
    Unknown(String),
}

/// A limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Of what.
    pub what: Limited,
    /// What is known of it.
    pub bound: Bound,
}

impl Limit {
    /// Part of it that is used, 0 to 1; `None` if that is not known, or nothing is limited.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        match &self.bound {
            Bound::At { used, limit, .. } => ratio((*used)?, *limit),
            Bound::Unlimited | Bound::Unknown(_) => None,
        }
    }

    /// `0.98 of 1.00 cores, cgroup /kube/pod7`.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.bound {
            Bound::At { used, limit, of } => {
                let number = |n| self.what.number(n);
                let used = used.map_or_else(|| "n/a".to_owned(), number);
                let unit = if self.what == Limited::Cpu { " cores" } else { "" };
                format!("{used} of {}{unit}, {of}", number(*limit))
            }
            Bound::Unlimited => "no limit".to_owned(),
            Bound::Unknown(why) => format!("n/a: {why}"),
        }
    }
}

/// The limits of the processes of an account: one line at least for each kind.
pub(super) fn limits(account: &Account, w: &Window<'_>) -> Vec<Limit> {
    let mut out = open_files(account, w);
    let cgroups = Cgroups::find(account, w);
    out.extend(Limited::OF_CGROUPS.into_iter().flat_map(|what| cgroups.limits(what, w)));
    out
}

fn unknown(what: Limited, why: impl Into<String>) -> Limit {
    Limit { what, bound: Bound::Unknown(why.into()) }
}

fn open_files(account: &Account, w: &Window<'_>) -> Vec<Limit> {
    let unknown = |why: String| vec![unknown(Limited::OpenFiles, why)];
    let mut back = w.history.back_from(w.tick.seq).take_while(|m| is_recent(w, m.tick.mono));
    let Some(sample) = back.find_map(|m| m.tick.samples.limits.as_ref()) else {
        return unknown(why_unread(w, CollectorId::Limits, "not read"));
    };
    if !sample.data.counts_files {
        return unknown("this kernel does not count them (needs Linux 6.2)".to_owned());
    }
    let processes = account.processes();
    let rows = &sample.data.processes;
    let of = |pid| rows.iter().find(|p| p.pid == pid);
    let bound = |pid| {
        let p = of(pid)?;
        let of = format!("process {pid}");
        Some(Bound::At { used: Some(p.open as f64), limit: p.soft as f64, of })
    };
    let known = processes.iter().filter_map(|p| bound(p.pid));
    let mut out = fullest(Limited::OpenFiles, known.collect());
    let unread = processes.iter().filter(|p| of(p.pid).is_none()).count();
    if unread > 0 {
        let what = match (unread, processes.len()) {
            (1, 1) => String::new(),
            (n, _) => format!("{n} of {}: ", counted(processes.len(), "process")),
        };
        out.extend(unknown(format!("{what}not read yet, or not ours to read")));
    }
    out
}

/// Those that are used up most come first.
fn fullest(what: Limited, all: Vec<Bound>) -> Vec<Limit> {
    let mut out: Vec<Limit> = all.into_iter().map(|bound| Limit { what, bound }).collect();
    let part = |l: &Limit| l.share().unwrap_or(-1.0);
    // The order before is that of equals.
    out.sort_by(|a, b| part(b).total_cmp(&part(a)));
    out.truncate(MOST);
    out
}

/// The cgroups of the threads and those above them, as read last.
struct Cgroups<'a> {
    rows: BTreeMap<(Limited, &'a str), Option<&'a CgroupRow>>,
    /// Threads whose cgroup is not known.
    hidden: bool,
}

impl<'a> Cgroups<'a> {
    fn find(account: &'a Account, w: &Window<'a>) -> Self {
        let mut this = Self { rows: BTreeMap::new(), hidden: false };
        for t in account.threads() {
            for what in Limited::OF_CGROUPS {
                match path(t, what) {
                    Some(path) => this.rows.extend(upwards(path).map(|p| ((what, p), None))),
                    None => this.hidden = true,
                }
            }
        }
        let mut open = this.rows.len();
        let moments = w.history.back_from(w.tick.seq).take_while(|m| is_recent(w, m.tick.mono));
        // The newest comes first.
        for row in
            moments.filter_map(|m| m.tick.samples.cgroups.as_ref()).flat_map(|s| &s.data.groups)
        {
            if open == 0 {
                break;
            }
            for what in Limited::OF_CGROUPS {
                if let Some(slot @ None) = this.rows.get_mut(&(what, &*row.path))
                    && answers(row, what)
                {
                    *slot = Some(row);
                    open -= 1;
                }
            }
        }
        this
    }

    fn limits(&self, what: Limited, w: &Window<'_>) -> Vec<Limit> {
        let mut own: Vec<_> = self.rows.iter().filter(|(k, _)| k.0 == what).collect();
        // From the inside out.
        own.sort_by_key(|((_, path), _)| Reverse(path.len()));
        let known = own.iter().filter_map(|(_, row)| bound(row.as_ref()?, what, w));
        let mut out = fullest(what, known.collect());
        // The root has no limit, unless there is a row that says so.
        let is_unread = |path: &str, row: Option<&CgroupRow>| row.is_none() && path.len() > 1;
        let unread: Vec<&str> =
            own.iter().filter(|((_, p), row)| is_unread(p, **row)).map(|((_, p), _)| *p).collect();
        match unread.as_slice() {
            [] if self.hidden => {
                out.push(unknown(what, "the cgroup of its threads is not readable"));
            }
            [] if out.is_empty() => out.push(Limit { what, bound: Bound::Unlimited }),
            [] => {}
            [path] => {
                let why = format!("cgroup {path} was not read");
                out.push(unknown(what, why_unread(w, CollectorId::Cgroups, &why)));
            }
            [path, rest @ ..] => {
                let why = format!("cgroup {path} and {} more were not read", rest.len());
                out.push(unknown(what, why_unread(w, CollectorId::Cgroups, &why)));
            }
        }
        out
    }
}

/// The path of a thread where this is limited.
fn path(t: &ThreadAccount, what: Limited) -> Option<&str> {
    let own = match what {
        Limited::Memory => t.memory_cgroup.as_deref(),
        Limited::Tasks => t.pids_cgroup.as_deref(),
        Limited::Cpu | Limited::OpenFiles => None,
    };
    own.or(t.cgroup.as_deref())
}

/// `/a/b`, `/a`, `/`.
fn upwards(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |p| match p.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (above, _) => Some(above),
    })
}

/// Does this row say whether there is a limit?
fn answers(row: &CgroupRow, what: Limited) -> bool {
    let counts = match what {
        Limited::Cpu => row.cpu.is_some(),
        Limited::Memory => row.memory_bytes.is_some(),
        Limited::Tasks => row.pids.is_some(),
        Limited::OpenFiles => false,
    };
    // In the unified hierarchy, a controller that is not enabled limits nothing.
    counts || !CONTROLLERS.iter().any(|c| of_v1(&row.mount, c))
}

fn bound(row: &CgroupRow, what: Limited, w: &Window<'_>) -> Option<Bound> {
    let (used, limit) = match what {
        Limited::OpenFiles => return None,
        Limited::Cpu => {
            let cpu = row.cpu.filter(|c| c.period_us > 0)?;
            (usage(row, w), cpu.quota_us? as f64 / cpu.period_us as f64)
        }
        Limited::Memory => {
            // The lower one of the two holds it back. On v1, no limit is a number larger than all
            // memory.
            let both = row.memory_limit_bytes.into_iter().chain(row.memory_high_bytes);
            let all = w.host.memory_bytes;
            let limit = both.min().filter(|most| all == 0 || *most <= all)?;
            (row.memory_bytes.map(|n| n as f64), limit as f64)
        }
        Limited::Tasks => {
            let pids = row.pids?;
            (Some(pids.current as f64), pids.max? as f64)
        }
    };
    let of = if &*row.path == "/" {
        "the root cgroup".to_owned()
    } else {
        format!("cgroup {}", row.path)
    };
    Some(Bound::At { used, limit, of })
}

/// Cores that it used in the latest interval over which it was measured.
fn usage(row: &CgroupRow, w: &Window<'_>) -> Option<f64> {
    let back = w.history.back_from(w.tick.seq).take_while(|m| is_recent(w, m.tick.mono));
    let mut all = back.filter_map(|m| m.derived.cgroups.as_deref()).flatten();
    all.find(|f| f.id == row.id && f.mount == row.mount)?.cpu?.usage_cores
}

fn is_recent(w: &Window<'_>, at: crate::sample::time::MonoNs) -> bool {
    w.tick.mono.since(at) <= REMEMBER
}

/// Why nothing was read: the collector's own reason if it does not run.
fn why_unread(w: &Window<'_>, id: CollectorId, otherwise: &str) -> String {
    match w.tick.health.iter().find(|h| h.id == id).map(|h| &h.state) {
        Some(HealthState::Off { reason, .. }) => reason.clone(),
        Some(HealthState::Failed { error }) => error.clone(),
        _ => otherwise.to_owned(),
    }
}
