//! Limits that count things: open files of a process, threads and open files of the host.
//!
//! Since Linux 6.2 the size of the directory `/proc/PID/fd` is the number of descriptors, so that
//! one `stat` counts them. Before, every one would have to be listed: nobody is counted there.
//! Processes are looked at in turn within a CPU budget, those that are near their limit, and those
//! that somebody asked about, in every round.

use std::collections::VecDeque;
use std::time::Duration;

use super::sched::parse_loadavg;
use super::{
    CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable, task_owners,
};
use crate::clock;
use crate::parse::{fields, lines, number, whole_lines};
use crate::sample::limits::{LimitsSample, OpenFiles, TaskOwners};
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Signal};

/// Share of one core for looking at processes.
const BUDGET: f64 = 0.0003;
/// All are looked at again after this time.
const ROUND: Duration = Duration::from_secs(2);
/// So few descriptors are near no limit that matters.
const FEW: u64 = 48;
/// Part of the limit from which on a process is told, and looked at in every round.
const NEAR: f64 = 0.7;
/// Most processes that are told.
const MAX_ROWS: usize = 64;
/// Looked at in every round, whatever the budget.
const MIN_READS: usize = 8;

const NAME: &str = "limits";
const SOURCE: &str = "/proc/PID/{fd,limits}";

/// Reads it. See the module head.
pub struct LimitsCollector {
    host: HostFs,
    counts_files: bool,
    todo: VecDeque<u32>,
    listed_at: Option<MonoNs>,
    near: Vec<OpenFiles>,
    maxima: (Option<u64>, Option<u64>),
    tasks: Option<TaskOwners>,
}

impl Collector for LimitsCollector {
    type Sample = LimitsSample;
    const ID: CollectorId = CollectorId::Limits;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        let this = Self {
            host: host.clone(),
            counts_files: descriptors(host, "self").is_some_and(|n| n > 0),
            todo: VecDeque::new(),
            listed_at: None,
            near: Vec::new(),
            maxima: (None, None),
            tasks: None,
        };
        let pid_max = host.read_number::<u64>("proc/sys/kernel/pid_max");
        pid_max.map_err(|e| {
            Unavailable::because("/proc/sys/kernel/pid_max", &e, "mount the host's /proc")
        })?;
        Ok(this)
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<LimitsSample, CollectError> {
        if self.listed_at.is_none_or(|t| cx.at.since(t) >= ROUND) && self.todo.is_empty() {
            self.listed_at = Some(cx.at);
            let most = |name: &str| self.host.read_number(format!("proc/sys/kernel/{name}")).ok();
            self.maxima = (most("pid_max"), most("threads-max"));
            let is_full = self.is_nearly_full();
            if self.counts_files || is_full {
                let all = self.host.list("proc").map_err(|e| CollectError::read("proc", e))?;
                let pids: Vec<u32> = all.iter().filter_map(|n| n.parse().ok()).collect();
                self.tasks = is_full.then(|| task_owners::of(&self.host, &pids));
                self.todo = if self.counts_files { pids.into() } else { VecDeque::new() };
            } else {
                self.tasks = None;
            }
        }
        let budget = cx.interval.mul_f64(BUDGET).max(Duration::from_micros(100));
        self.look(budget, &cx.interest.processes);
        Ok(LimitsSample {
            pid_max: self.maxima.0,
            threads_max: self.maxima.1,
            counts_files: self.counts_files,
            processes: self.near.clone(),
            tasks: self.tasks.clone(),
        })
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        out.push(if self.counts_files {
            Signal::ok(NAME, SOURCE)
        } else {
            let why = "no count of open files per process (needs Linux 6.2)";
            Signal::degraded(NAME, SOURCE, why, "")
        });
    }
}

impl LimitsCollector {
    /// Are there nearly as many tasks as there may be?
    fn is_nearly_full(&self) -> bool {
        let (pid_max, threads_max) = self.maxima;
        let tasks = self.host.read("proc/loadavg").ok().and_then(|b| Some(parse_loadavg(&b)?.1));
        let most = pid_max.into_iter().chain(threads_max).min();
        most.zip(tasks).is_some_and(|(most, (_, all))| task_owners::is_near(all.into(), most))
    }

    fn look(&mut self, budget: Duration, asked: &[u32]) {
        let start = clock::thread_cpu();
        let asked = if self.counts_files { asked } else { &[] };
        let Self { host, near, .. } = self;
        let mut known: Vec<u32> = near.iter().map(|p| p.pid).collect();
        known.retain(|pid| !asked.contains(pid));
        *near = known.iter().filter_map(|pid| look_at(host, *pid).filter(is_near)).collect();
        let room = MAX_ROWS.saturating_sub(near.len());
        near.extend(asked.iter().take(room).filter_map(|pid| look_at(host, *pid)));
        for n in 0.. {
            if n >= MIN_READS && clock::thread_cpu().saturating_sub(start) > budget {
                return;
            }
            let Some(pid) = self.todo.pop_front() else { return };
            if self.near.len() < MAX_ROWS
                && !self.near.iter().any(|p| p.pid == pid)
                && descriptors(&self.host, pid).is_some_and(|n| n >= FEW)
                && let Some(row) = look_at(&self.host, pid).filter(is_near)
            {
                self.near.push(row);
            }
        }
    }
}

/// The process; `None` for one that is gone, not ours to see, or without a limit.
fn look_at(host: &HostFs, pid: u32) -> Option<OpenFiles> {
    let open = descriptors(host, pid)?;
    let (soft, hard) = parse_limits(&host.read(format!("proc/{pid}/limits")).ok()?)?;
    let comm = host.read_trimmed(format!("proc/{pid}/comm")).ok()?;
    Some(OpenFiles { pid, comm, open, soft, hard })
}

fn is_near(p: &OpenFiles) -> bool {
    p.open >= FEW && p.open as f64 >= NEAR * p.soft as f64
}

fn descriptors(host: &HostFs, pid: impl std::fmt::Display) -> Option<u64> {
    let stat = rustix::fs::stat(host.path(format!("proc/{pid}/fd"))).ok()?;
    u64::try_from(stat.st_size).ok()
}

/// Soft and hard limit of open files in `/proc/PID/limits`; `None` for no soft limit.
#[must_use]
pub fn parse_limits(bytes: &[u8]) -> Option<(u64, Option<u64>)> {
    let line = lines(whole_lines(bytes)).find_map(|l| l.strip_prefix(b"Max open files"))?;
    let mut f = fields(line);
    Some((number(f.next()?)?, f.next().and_then(number)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sample::Interest;
    use proptest::prelude::*;

    const TEXT: &[u8] =
        b"Limit                     Soft Limit           Hard Limit           Units     \n\
        Max processes             96365                96365                processes \n\
        Max open files            1024                 524288               files     \n\
        Max locked memory         8388608              8388608              bytes     \n";

    fn round(c: &mut LimitsCollector) -> LimitsSample {
        asked(c, Vec::new())
    }

    fn asked(c: &mut LimitsCollector, processes: Vec<u32>) -> LimitsSample {
        let interest = Interest { processes, ..Interest::default() };
        let (at, interval) = (clock::mono(), Duration::from_secs(1));
        c.sample(&SampleContext { at, interval, interest: &interest }).unwrap()
    }

    #[test]
    fn limits_are_found_by_name() {
        assert_eq!(parse_limits(TEXT), Some((1024, Some(524_288))));
        assert_eq!(parse_limits(b"Max open files  unlimited unlimited files\n"), None);
        assert_eq!(parse_limits(b""), None);
    }

    /// Descriptors of a child, counted by the kernel and by us.
    #[test]
    fn a_live_process_near_its_limit_is_told() {
        let host = HostFs::live();
        let mut c = LimitsCollector::open(&host, &CollectOptions::default()).unwrap();
        if !c.counts_files {
            return crate::collect::testing::skip("before Linux 6.2");
        }
        let null = || std::fs::File::open("/dev/null").unwrap();
        let script = "ulimit -Sn 64; i=3; while [ $i -lt 63 ]; do \
            eval \"exec $i</dev/null\"; i=$((i+1)); done; echo; read x";
        let mut child = std::process::Command::new("bash")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(null())
            .spawn()
            .unwrap();
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let pid = child.id();
        let listed = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
        let found = (0..10_000)
            .find_map(|_| round(&mut c).processes.iter().find(|p| p.pid == pid).cloned());
        drop(child.stdin.take());
        child.wait().unwrap();
        let found = found.unwrap();
        assert_eq!((found.open, found.soft, found.comm.as_str()), (listed, 64, "bash"));
        assert!(found.open >= 60);
        // It has ended.
        assert!(round(&mut c).processes.iter().all(|p| p.pid != pid));
    }

    /// However far it is from it.
    #[test]
    fn a_live_process_that_is_asked_about_is_told() {
        let mut c = LimitsCollector::open(&HostFs::live(), &CollectOptions::default()).unwrap();
        if !c.counts_files {
            return crate::collect::testing::skip("before Linux 6.2");
        }
        let me = std::process::id();
        let rows = |s: &LimitsSample| s.processes.iter().filter(|p| p.pid == me).count();
        for _ in 0..2 {
            let s = asked(&mut c, vec![me]);
            assert_eq!(rows(&s), 1);
            assert!(s.processes.iter().any(|p| p.pid == me && p.open > 0 && p.soft > p.open));
        }
        assert_eq!(rows(&round(&mut c)), 0, "nobody asks any more");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_limits(&bytes);
        }
    }
}
