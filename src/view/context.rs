//! `Cx`: one moment as panes see it. While a collector is late, its last sample stays, with its
//! age; a collector that is off says why.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::panes::processes::Studies;
use super::panes::resources::{self, Resource};
use super::state::ViewState;
use super::vitals;
use crate::analysis::{Analysis, TickView};
use crate::diagnose::{Aspect, Findings, Severity};
use crate::metrics::bpf::{BlockFigures, EventRow, IrqFigures, NetFigures, RunqFigures};
use crate::metrics::cpu::{CpuFigures, PsiFigures, SchedFigures, SoftirqFigures};
use crate::metrics::disks::DiskFigures;
use crate::metrics::history::Snapshot;
use crate::metrics::netdev::SpaceFigures;
use crate::metrics::processes::{ProcessFigures, by_process};
use crate::metrics::sockets::SocketFigures;
use crate::sample::sockets::NetnsTable;
use crate::sample::subject::{CgroupId, CpuId, DiskId, Endpoint, NetnsId, SockId, Subject, TaskId};
use crate::sample::tick::HealthState;
use crate::sample::time::{MonoNs, Seq, WallNs};
use crate::sample::{CollectorId, Shared};

/// How many ticks to look back for a missing sample.
const LOOK_BACK: usize = 20;

/// Last digits of cookies that are told apart.
const DIGITS: usize = 1024;

/// A value with the time that it stands for.
#[derive(Clone, Copy, Debug)]
pub struct Dated<T> {
    /// The value.
    pub value: T,
    /// When it was read.
    pub at: MonoNs,
}

/// Marks that findings put on rows.
#[derive(Debug, Default)]
pub struct Marks {
    /// By identity: every row of a frame is looked up, and a few are marked.
    sockets: Vec<(SockId, Severity)>,
    /// Last digits of their cookies, a bit for each: tells at once of nearly every other socket that
    /// it is none of them.
    digits: [u64; DIGITS / 64],
    listeners: Vec<(NetnsId, Endpoint, Severity)>,
    disks: Vec<(DiskId, Severity)>,
    cpus: Vec<(CpuId, Severity)>,
    tasks: Vec<(TaskId, Severity)>,
}

impl Marks {
    fn of(findings: &Findings) -> Self {
        let mut m = Self::default();
        for f in findings.all() {
            let s = findings.severity(f);
            m.sockets.extend(f.fire.sockets.iter().map(|id| (*id, s)));
            m.tasks.extend(f.fire.tasks.iter().map(|t| (*t, s)));
            match &f.subject {
                Subject::Disk { dev, .. } => m.disks.push((*dev, s)),
                // It is a thread that waits for a CPU; what the CPU does may be fine.
                Subject::Cpu { .. } if f.fire.aspect == Aspect::RunQueue => {}
                Subject::Cpu { cpu } => m.cpus.push((*cpu, s)),
                Subject::Task { task, .. } => m.tasks.push((*task, s)),
                Subject::Listener { local, netns } => m.listeners.push((*netns, *local, s)),
                _ => {}
            }
        }
        m.sockets.sort_unstable_by_key(|(id, s)| (*id, Reverse(*s)));
        m.sockets.dedup_by_key(|(id, _)| *id);
        for (id, _) in &m.sockets {
            let (word, bit) = digit(*id);
            m.digits[word] |= bit;
        }
        m
    }
    /// Of a socket.
    #[must_use]
    pub fn socket(&self, id: SockId) -> Option<Severity> {
        let (word, bit) = digit(id);
        if self.digits[word] & bit == 0 {
            return None;
        }
        let at = self.sockets.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.sockets[at].1)
    }
    /// Of a listening endpoint.
    #[must_use]
    pub fn listener(&self, netns: NetnsId, local: impl FnOnce() -> Endpoint) -> Option<Severity> {
        if self.listeners.is_empty() {
            return None;
        }
        let local = local();
        let hit = self.listeners.iter().filter(|(n, e, _)| *n == netns && *e == local);
        hit.map(|(_, _, s)| *s).max()
    }
    /// Of a disk.
    #[must_use]
    pub fn disk(&self, id: DiskId) -> Option<Severity> {
        worst(&self.disks, id)
    }
    /// Of a CPU.
    #[must_use]
    pub fn cpu(&self, id: CpuId) -> Option<Severity> {
        worst(&self.cpus, id)
    }
    /// Of a process: the worst of its threads.
    #[must_use]
    pub fn process(&self, pid: u32) -> Option<Severity> {
        self.tasks.iter().filter(|(t, _)| t.pid == pid).map(|(_, s)| *s).max()
    }
    /// Of a thread.
    #[must_use]
    pub fn task(&self, id: TaskId) -> Option<Severity> {
        worst(&self.tasks, id)
    }
}

/// Where [`Marks::digits`] has the cookie: cookies are numbers that count up.
fn digit(id: SockId) -> (usize, u64) {
    let at = id.cookie as usize % DIGITS;
    (at / 64, 1 << (at % 64))
}

fn worst<T: PartialEq + Copy>(list: &[(T, Severity)], id: T) -> Option<Severity> {
    list.iter().filter(|(i, _)| *i == id).map(|(_, s)| *s).max()
}

/// One moment as panes see it.
pub struct Cx<'a> {
    /// The run.
    pub analysis: &'a Analysis,
    /// The moment.
    pub now: TickView<'a>,
    /// Socket tables of all namespaces.
    pub tables: Vec<&'a NetnsTable>,
    /// Followed sockets.
    pub suspects: &'a SocketFigures,
    /// Disks.
    pub disks: Option<Dated<&'a [DiskFigures]>>,
    /// CPU shares.
    pub cpu: Option<Dated<&'a CpuFigures>>,
    /// SoftIRQ rates.
    pub softirq: Option<Dated<&'a SoftirqFigures>>,
    /// Run-queue waits.
    pub sched: Option<Dated<&'a SchedFigures>>,
    /// Run-queue waits, by eBPF.
    pub runq_bpf: Option<Dated<&'a RunqFigures>>,
    /// Time in interrupts, by eBPF.
    pub irq_bpf: Option<Dated<&'a IrqFigures>>,
    /// Block requests, by eBPF.
    pub block_bpf: Option<Dated<&'a BlockFigures>>,
    /// TCP events and drops, by eBPF.
    pub net_bpf: Option<Dated<&'a NetFigures>>,
    /// Network events of the last minutes.
    pub events: Option<Dated<&'a [Arc<EventRow>]>>,
    /// Marks from findings.
    pub marks: Marks,
    /// Network devices by namespace, the host's own first: those read lately, each as of its latest
    /// reading.
    pub spaces: Vec<&'a SpaceFigures>,
    /// Gathered when somebody asks.
    resources: OnceCell<Vec<Resource>>,
    /// Summed up when somebody asks.
    processes: OnceCell<Vec<ProcessFigures>>,
    /// What was worked out for the page of a process.
    pub studies: &'a Studies,
    /// Time zone for times of day.
    pub tz: &'a TimeZone,
}

impl<'a> Cx<'a> {
    /// The moment `seq`, if it is in memory.
    #[must_use]
    pub fn at(analysis: &'a Analysis, seq: Seq, view: &'a ViewState) -> Option<Self> {
        Self::of(analysis, seq, &view.studies, &view.tz)
    }

    /// Another moment, seen by the same person.
    pub(super) fn earlier(&self, seq: Seq) -> Option<Self> {
        Self::of(self.analysis, seq, self.studies, self.tz)
    }

    fn of(
        analysis: &'a Analysis,
        seq: Seq,
        studies: &'a Studies,
        tz: &'a TimeZone,
    ) -> Option<Self> {
        let now = analysis.at(seq)?;
        let back = || analysis.history().back_from(seq).take(LOOK_BACK);
        let spaces = |f: fn(&crate::sample::Samples) -> Option<&Shared<_>>| {
            back()
                .find_map(|m| f(&m.tick.samples))
                .into_iter()
                .flat_map(|s: &Shared<crate::sample::sockets::SocketsSample>| &s.data.spaces)
        };
        let mut tables: Vec<&NetnsTable> = spaces(|s| s.sockets.as_ref()).map(|t| &**t).collect();
        for t in spaces(|s| s.netns_sockets.as_ref()) {
            if !tables.iter().any(|o| o.netns == t.netns) {
                tables.push(t);
            }
        }
        // The latest figures. The time of their sample is gone with the sample in thinned moments.
        macro_rules! dated {
            ($sample:ident, $figures:ident, |$f:ident| $value:expr) => {
                back().find_map(|m| {
                    let at = m.tick.samples.$sample.as_ref().map_or(m.tick.mono, |s| s.span.mid());
                    let $f = m.derived.$figures.as_ref()?;
                    Some(Dated { value: $value, at })
                })
            };
        }
        let marks = Marks::of(now.findings);
        let suspects = &*now.derived.sockets;
        let mut by_netns = BTreeMap::new();
        for s in back().filter_map(|m| m.derived.netdev.as_deref()).flatten() {
            by_netns.entry(s.netns).or_insert(s);
        }
        let mut spaces: Vec<&SpaceFigures> = by_netns.into_values().collect();
        spaces.sort_by_key(|s| Some(s.netns) != analysis.host().netns);
        Some(Self {
            analysis,
            now,
            tables,
            suspects,
            disks: dated!(disks, disks, |f| f.as_slice()),
            cpu: dated!(cpu, cpu, |f| &**f),
            softirq: dated!(softirq, softirq, |f| &**f),
            sched: dated!(sched, sched, |f| &**f),
            runq_bpf: dated!(runq_bpf, runq_bpf, |f| &**f),
            irq_bpf: dated!(irq_bpf, irq_bpf, |f| &**f),
            block_bpf: dated!(block_bpf, block_bpf, |f| &**f),
            net_bpf: dated!(net_bpf, net_bpf, |f| &**f),
            events: dated!(net_bpf, events, |f| f.as_slice()),
            marks,
            spaces,
            resources: OnceCell::new(),
            processes: OnceCell::new(),
            studies,
            tz,
        })
    }

    /// Processes of which a thread ran, waited for a CPU, was in uninterruptible sleep or moved bytes
    /// to or from a disk, by number.
    pub fn processes(&self) -> &[ProcessFigures] {
        self.processes.get_or_init(|| {
            let mut back = self.analysis.history().back_from(self.now.tick.seq).take(LOOK_BACK);
            let sample = back.find_map(|m| m.tick.samples.processes.as_ref());
            let blocked = sample.map_or(&[][..], |s| &s.data.blocked);
            let mut back = self.analysis.history().back_from(self.now.tick.seq).take(LOOK_BACK);
            let io = back.find_map(|m| m.derived.process_io.as_deref());
            by_process(self.sched.map(|s| s.value), blocked, io)
        })
    }

    /// Without processes, for whoever does not show them: summing up thousands of threads takes
    /// longer than all the rest.
    #[must_use]
    pub fn without_processes(self) -> Self {
        Self { processes: OnceCell::from(Vec::new()), ..self }
    }

    /// Where work waits.
    pub fn resources(&self) -> &[Resource] {
        self.resources.get_or_init(|| resources::gather(self))
    }

    /// Moments from the one shown back, as far as a sample may be missing.
    fn back(&self) -> impl Iterator<Item = &'a Snapshot> + use<'a> {
        self.analysis.history().back_from(self.now.tick.seq).take(LOOK_BACK)
    }

    /// When the latest of the network devices were read.
    #[must_use]
    pub fn spaces_at(&self) -> Option<MonoNs> {
        self.back().find_map(|m| m.tick.samples.netdev.as_ref()).map(|s| s.span.mid())
    }

    /// The host's own network namespace.
    #[must_use]
    pub fn own_space(&self) -> Option<&'a SpaceFigures> {
        let own = self.analysis.host().netns?;
        self.spaces.first().filter(|s| s.netns == own).copied()
    }

    /// Bytes per second that the NICs of the host receive and send; without NICs, all devices but
    /// `lo`.
    #[must_use]
    pub fn network(&self) -> Option<(f64, f64)> {
        Some(vitals::moved(&self.own_space()?.links))
    }

    /// A value of `/proc/meminfo` or `/proc/vmstat`, as [`MemorySample`] names them.
    ///
    /// [`MemorySample`]: crate::sample::memory::MemorySample
    #[must_use]
    pub fn memory(&self, name: &str) -> Option<u64> {
        self.back().find_map(|m| m.tick.samples.memory.as_ref())?.data.get(name)
    }

    /// Pressure; nothing where the kernel does not tell.
    #[must_use]
    pub fn psi(&self) -> PsiFigures {
        self.back().find_map(|m| m.derived.psi).unwrap_or_default()
    }

    /// Time of this moment.
    #[must_use]
    pub fn mono(&self) -> MonoNs {
        self.now.tick.mono
    }

    /// Why a collector has no data, as text; `None` if there is no known reason.
    #[must_use]
    pub fn why_missing(&self, id: CollectorId) -> Option<String> {
        let h = self.now.tick.health.iter().find(|h| h.id == id)?;
        match &h.state {
            HealthState::Off { reason, remedy } if remedy.is_empty() => {
                Some(format!("off: {reason}"))
            }
            HealthState::Off { reason, remedy } => Some(format!("off: {reason} ({remedy})")),
            HealthState::Failed { error } => Some(format!("failed: {error}")),
            HealthState::Late { age } => Some(format!("late: {}", super::units::duration(*age))),
            HealthState::Fresh | HealthState::Thinned { .. } => None,
        }
    }

    /// The same for a pane that has nothing to show. A recording by another version may have no
    /// data of a collector at all.
    #[must_use]
    pub fn why_empty(&self, id: CollectorId) -> String {
        let health = &self.now.tick.health;
        if !health.is_empty() && health.iter().all(|h| h.id != id) {
            return "not in this recording".to_owned();
        }
        self.why_missing(id).unwrap_or_else(|| "collecting".to_owned())
    }

    /// `no eBPF: no CAP_BPF (run as root)`: why a better source is missing.
    #[must_use]
    pub fn no_ebpf(&self, id: CollectorId) -> Option<String> {
        let why = self.why_missing(id)?;
        let why = why.strip_prefix("off: ").unwrap_or(&why);
        Some(format!("no eBPF: {}", super::text::clean(why)))
    }

    /// `netlink 0.9s`: a source with the age of its sample, marked when it is stale.
    #[must_use]
    pub fn source_note(&self, source: &str, id: CollectorId, at: Option<MonoNs>) -> (String, bool) {
        let Some(at) = at else {
            return (self.why_missing(id).map_or_else(|| source.to_owned(), short_reason), true);
        };
        let age = self.mono().since(at);
        let interval = self.analysis.host().interval.max(Duration::from_millis(100));
        let stale = age > interval * 3;
        let state = match self.now.tick.health.iter().find(|h| h.id == id).map(|h| &h.state) {
            Some(HealthState::Thinned { every }) => format!(" 1/{every}"),
            Some(HealthState::Failed { .. }) => " failed".to_owned(),
            Some(HealthState::Late { .. }) if stale => " late".to_owned(),
            _ => String::new(),
        };
        (format!("{source}{state} {:.1}s", age.as_secs_f64().min(999.0)), stale)
    }

    /// Path of a cgroup in the cpu controller's hierarchy, if a recent walk found it.
    #[must_use]
    pub fn cgroup_path(&self, id: CgroupId) -> Option<&'a str> {
        // The root of every hierarchy is number 1; walks leave it out.
        if id.0 == 1 {
            return Some("/");
        }
        let back = self.analysis.history().back_from(self.now.tick.seq).take(LOOK_BACK);
        let groups = back.filter_map(|m| m.derived.cgroups.as_ref()).flat_map(|g| g.iter());
        // In other v1 hierarchies the same inode number may be another cgroup.
        let mut same = groups.filter(|g| g.id == id && g.cpu.is_some());
        same.next().map(|g| &*g.path)
    }

    /// `14:17:43`, local time.
    #[must_use]
    pub fn clock(&self, wall: WallNs) -> String {
        clock(wall, self.tz)
    }

    /// Wall time of a moment of this run, for display.
    #[must_use]
    pub fn wall_of(&self, at: MonoNs) -> WallNs {
        let back = i128::from(self.mono().0) - i128::from(at.0);
        let wall = i128::from(self.now.tick.wall.0) - back;
        WallNs(i64::try_from(wall).unwrap_or(self.now.tick.wall.0))
    }
}

fn short_reason(s: String) -> String {
    s.split(':').next().unwrap_or_default().to_owned()
}

/// `14:17:43`, local time.
#[must_use]
pub fn clock(wall: WallNs, tz: &TimeZone) -> String {
    time_of_day(wall, tz).map_or_else(
        || "--:--:--".to_owned(),
        |t| format!("{:02}:{:02}:{:02}", t.hour(), t.minute(), t.second()),
    )
}

/// `2026-05-01`, local time.
#[must_use]
pub fn day(wall: WallNs, tz: &TimeZone) -> String {
    let at = jiff::Timestamp::from_nanosecond(i128::from(wall.0));
    at.map_or_else(|_| String::new(), |t| tz.to_datetime(t).date().to_string())
}

/// `14:17`, local time.
#[must_use]
pub fn clock_minutes(wall: WallNs, tz: &TimeZone) -> String {
    time_of_day(wall, tz)
        .map_or_else(|| "--:--".to_owned(), |t| format!("{:02}:{:02}", t.hour(), t.minute()))
}

fn time_of_day(wall: WallNs, tz: &TimeZone) -> Option<jiff::civil::Time> {
    let at = jiff::Timestamp::from_nanosecond(i128::from(wall.0)).ok()?;
    Some(tz.to_datetime(at).time())
}
