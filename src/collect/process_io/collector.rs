//! The collector.

use std::collections::HashMap;
use std::time::Duration;

use super::looks::Looks;
use super::parse::parse_io_cgroup;
use super::process::Process;
use super::scan::{ProcessScan, Round};
use crate::clock;
use crate::collect::permission::{self, Right};
use crate::collect::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::sample::process_io::{ProcessIo, ProcessIoSample};
use crate::sample::subject::TaskId;
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Signal};

/// Share of one core for reading processes.
const BUDGET: f64 = 0.001;
/// Part of that for looks at open files; more where the readings leave some.
const LOOKS: f64 = 0.25;
/// The cgroup is read, and open files are looked at, for those that moved so many bytes since the
/// reading before ...
const MUCH: u64 = 16 << 10;
/// ... at most of so many in a round, ...
const MAX_BUSY: usize = 8;
/// ... and the cgroup is read again after this time.
const CGROUP_AGE: Duration = Duration::from_secs(10);
/// Rounds in a row that left processes out: the budget does not suffice for this host.
const BEHIND: u32 = 10;

const NAME: &str = "disk bytes per process";
const SOURCE: &str = "/proc/PID/io";

/// Reads it. See the module head.
pub struct ProcessIoCollector {
    host: HostFs,
    scan: ProcessScan,
    cgroups: HashMap<TaskId, (Option<String>, MonoNs)>,
    looks: Looks,
    /// The last round.
    round: Round,
    behind: u32,
}

impl Collector for ProcessIoCollector {
    type Sample = ProcessIoSample;
    const ID: CollectorId = CollectorId::ProcessIo;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        host.read("proc/self/io").map_err(|e| {
            if e.kind() == std::io::ErrorKind::NotFound {
                Unavailable::new(
                    "no /proc/PID/io (CONFIG_TASK_IO_ACCOUNTING is off)",
                    "use a kernel with CONFIG_TASK_IO_ACCOUNTING",
                )
            } else {
                Unavailable::because("/proc/self/io", &e, "mount the host's /proc")
            }
        })?;
        Ok(Self {
            host: host.clone(),
            scan: ProcessScan::new(host),
            cgroups: HashMap::new(),
            looks: Looks::default(),
            round: Round::default(),
            behind: 0,
        })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<ProcessIoSample, CollectError> {
        let budget = cx.interval.mul_f64(BUDGET).max(Duration::from_micros(250));
        let start = clock::thread_cpu();
        let mut rows: Vec<(ProcessIo, u64)> = Vec::new();
        self.round = self
            .scan
            .round(cx.at, budget.mul_f64(1.0 - LOOKS), |p| rows.push((row(p), moved(p))))
            .map_err(|e| CollectError::read("proc", e))?;
        self.behind = if self.round.unread > 0 { self.behind.saturating_add(1) } else { 0 };
        // Those that moved most come first.
        rows.sort_unstable_by_key(|r| std::cmp::Reverse(r.1));
        self.read_cgroups(cx.at, &mut rows);
        let spent = clock::thread_cpu().saturating_sub(start);
        self.look(cx.at, budget.saturating_sub(spent).max(budget.mul_f64(LOOKS)), &mut rows);
        // Always in the same order: the next sample is a small difference to this one.
        rows.sort_unstable_by_key(|r| r.0.task);
        Ok(ProcessIoSample {
            processes: rows.into_iter().map(|r| r.0).collect(),
            unread: self.round.unread,
            denied: self.round.denied,
        })
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        out.push(if self.round.denied > 0 {
            let r = permission::refusal(&self.host, Right::Ptrace);
            let n = self.round.denied;
            let what = if n == 1 { "process" } else { "processes" };
            let why = format!("{n} {what} not ours to read{}", r.why);
            Signal::degraded(NAME, SOURCE, why, r.remedy)
        } else if self.behind >= BEHIND {
            let why = format!("{} processes are read in rotation", self.round.unread);
            Signal::degraded(NAME, SOURCE, why, "")
        } else {
            Signal::ok(NAME, SOURCE)
        });
    }
}

impl ProcessIoCollector {
    /// Reads the cgroups of the first ones, and puts what is known of any process into its row.
    fn read_cgroups(&mut self, at: MonoNs, rows: &mut [(ProcessIo, u64)]) {
        for (row, _) in busy(rows) {
            let fresh = |(_, read_at): &(_, MonoNs)| at.since(*read_at) < CGROUP_AGE;
            if !self.cgroups.get(&row.task).is_some_and(fresh) {
                let bytes = self.host.read(format!("proc/{}/cgroup", row.task.pid)).ok();
                self.cgroups.insert(row.task, (bytes.and_then(|b| parse_io_cgroup(&b)), at));
            }
        }
        self.cgroups.retain(|_, (_, read_at)| at.since(*read_at) < 2 * CGROUP_AGE);
        for (row, _) in rows {
            row.cgroup = self.cgroups.get(&row.task).and_then(|(path, _)| path.clone());
        }
    }

    /// The same of where their open files are.
    fn look(&mut self, at: MonoNs, budget: Duration, rows: &mut [(ProcessIo, u64)]) {
        self.looks.round(&self.host, at, budget, busy(rows).map(|r| r.0.task));
        for (row, _) in rows {
            row.open = self.looks.of(row.task);
        }
    }
}

/// Of rows with those in front that moved most, the ones that more is asked about.
fn busy(rows: &[(ProcessIo, u64)]) -> impl Iterator<Item = &(ProcessIo, u64)> {
    rows.iter().take_while(|r| r.1 >= MUCH).take(MAX_BUSY)
}

/// Bytes that it moved since the reading before.
fn moved(p: &Process) -> u64 {
    let io = p.grown.or(p.zero.map(|_| p.io)).unwrap_or_default();
    io.read_bytes.saturating_add(io.write_bytes)
}

fn row(p: &Process) -> ProcessIo {
    let ms = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
    ProcessIo {
        task: p.task,
        comm: p.comm.clone(),
        read_bytes: p.io.read_bytes,
        write_bytes: p.io.write_bytes,
        cancelled_write_bytes: p.io.cancelled_write_bytes,
        syscr: p.io.syscr,
        syscw: p.io.syscw,
        children_read_bytes: p.of_children.0,
        children_write_bytes: p.of_children.1,
        still_ms: p.still.map_or(0, ms),
        zero_ms: p.zero.map(ms),
        cgroup: None,
        open: None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
