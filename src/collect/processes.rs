//! Processes: how many, and the tasks in uninterruptible sleep (D) with the kernel function they
//! wait in, from `/proc/PID/task/TID/{stat,wchan}`.
//!
//! Threads are visited within a CPU budget; the rest is counted as unread. CPU time and run-queue
//! waits of threads are in `sched`.

use std::time::Duration;

use super::hot::HotFile;
use super::permission::{self, Right};
use super::sched::parse_loadavg;
use super::tasks::ThreadScan;
use super::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::sample::processes::{BlockedTask, MAX_BLOCKED, ProcessesSample};
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Extent, Signal};

/// Share of one core for reading threads.
const BUDGET: f64 = 0.0005;
/// Descriptors that stay open.
const MAX_FILES: usize = 128;
/// A refusal stands for so long: who was refused is tried again when processes are listed anew,
/// every ten seconds.
const DENIED_AGE: Duration = Duration::from_secs(25);

/// Reads it. See the module head.
pub struct ProcessesCollector {
    host: HostFs,
    loadavg: HotFile,
    scan: ThreadScan,
    /// Of the last round.
    unread: u32,
    wchan_readable: bool,
    /// `/proc` is mounted so that it lists our own processes only.
    hidden: bool,
    /// When a file of a process was last refused.
    denied_at: Option<MonoNs>,
    /// Of the last round.
    at: MonoNs,
}

impl Collector for ProcessesCollector {
    type Sample = ProcessesSample;
    const ID: CollectorId = CollectorId::Processes;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        host.list("proc")
            .map_err(|e| Unavailable::because("/proc", &e, "mount the host's /proc"))?;
        Ok(Self {
            host: host.clone(),
            loadavg: HotFile::record(host, "proc/loadavg"),
            scan: ThreadScan::new(host, MAX_FILES),
            unread: 0,
            wchan_readable: true,
            // Every pid namespace has a process 1: not to see it is the mark of hidepid=2.
            hidden: !host.path("proc/1").exists(),
            denied_at: None,
            at: MonoNs(0),
        })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<ProcessesSample, CollectError> {
        let budget = cx.interval.mul_f64(BUDGET).max(Duration::from_micros(250));
        let load = self.loadavg.read().ok().and_then(parse_loadavg);
        let mut blocked = Vec::new();
        let counted = self.scan.probe();
        let round = self
            .scan
            .round(cx.at, budget, load.map(|l| l.1.1), |t| {
                if t.state == 'D' && blocked.len() < MAX_BLOCKED {
                    blocked.push(BlockedTask {
                        task: t.task,
                        comm: t.comm.clone(),
                        wchan: None,
                        slices: counted.then_some(t.sched.slices),
                        kind: t.kind,
                    });
                }
            })
            .map_err(|e| CollectError::read("proc", e))?;
        for b in &mut blocked {
            let file = format!("proc/{}/task/{}/wchan", b.task.pid, b.task.tid);
            let text = self.host.read_trimmed(file).ok();
            // 0: running by now, or not for our eyes.
            b.wchan = text.filter(|w| !w.is_empty() && w != "0");
        }
        if !blocked.is_empty() {
            self.wchan_readable = blocked.iter().any(|b| b.wchan.is_some());
        }
        self.unread = round.unread;
        self.at = cx.at;
        if round.denied > 0 {
            self.denied_at = Some(cx.at);
        }
        Ok(ProcessesSample { total: round.processes, blocked, unread: round.unread })
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        const NAME: &str = "processes";
        const SOURCE: &str = "/proc/PID";
        // A blocked task that runs by now has no wait channel: that is no refusal.
        let lacking =
            (!self.wchan_readable).then(|| permission::refusal(&self.host, Right::Ptrace));
        let lacking = lacking.map(|r| r.remedy).unwrap_or_default();
        out.push(if self.hidden {
            let why = "/proc shows only our own processes (hidepid)";
            Signal::degraded(NAME, SOURCE, why, "run as root")
                .unseen("other users' processes", Extent::Whole)
        } else if self.denied_at.is_some_and(|t| self.at.since(t) < DENIED_AGE) {
            let r = permission::refusal(&self.host, Right::Ptrace);
            let why = format!("/proc shows only our own processes' files (hidepid){}", r.why);
            Signal::degraded(NAME, SOURCE, why, r.remedy)
                .unseen("other users' processes", Extent::Whole)
        } else if !lacking.is_empty() {
            let why = "wchan is hidden: no reason for blocked tasks";
            Signal::degraded(NAME, SOURCE, why, lacking)
        } else if self.scan.is_behind() {
            let why = format!("{} threads are read in rotation", self.unread);
            Signal::degraded(NAME, SOURCE, why, "")
        } else {
            Signal::ok(NAME, SOURCE)
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::collect::testing::fixtures;
    use crate::sample::Interest;

    fn open(host: &HostFs) -> ProcessesCollector {
        ProcessesCollector::open(host, &CollectOptions::default()).unwrap()
    }

    fn sample(c: &mut ProcessesCollector, at: MonoNs) -> ProcessesSample {
        let interest = Interest::default();
        c.sample(&SampleContext { at, interval: Duration::from_secs(1), interest: &interest })
            .unwrap()
    }

    #[test]
    fn blocked_threads_name_what_they_wait_in() {
        let host = HostFs::at(fixtures().join("tasks"));
        let mut c = open(&host);
        sample(&mut c, MonoNs(0));
        let s = sample(&mut c, MonoNs(1_000_000_000));
        assert_eq!((s.total, s.unread), (3, 0));
        let mut found: Vec<_> =
            s.blocked.iter().map(|b| (b.comm.as_str(), b.wchan.as_deref())).collect();
        found.sort_unstable();
        let want =
            [("jbd2/vda-8", Some("jbd2_log_wait_commit")), ("writer", Some("submit_bio_wait"))];
        assert_eq!(found, want);
    }

    #[test]
    fn hidden_processes_are_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let status = |pid: &str| {
            std::fs::create_dir_all(dir.path().join("proc").join(pid)).unwrap();
            let mut out = Vec::new();
            open(&HostFs::at(dir.path())).signals(&mut out);
            out.remove(0).status
        };
        assert!(matches!(status("77"), crate::sample::SignalStatus::Degraded { .. }));
        assert_eq!(status("1"), crate::sample::SignalStatus::Ok);
    }

    #[test]
    fn live_processes_are_counted() {
        let host = HostFs::live();
        let mut c = open(&host);
        let s = sample(&mut c, clock::mono());
        let listed = host.list("proc").unwrap();
        let n = listed.iter().filter(|n| n.bytes().all(|b| b.is_ascii_digit())).count() as u32;
        // Others start and end processes meanwhile.
        assert!(s.total.abs_diff(n) < 20, "{} {n}", s.total);
    }
}
