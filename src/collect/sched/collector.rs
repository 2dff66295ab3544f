//! The collector.

use std::collections::HashMap;
use std::time::Duration;

use super::parse;
use crate::collect::hot::HotFile;
use crate::collect::tasks::{Thread, ThreadScan};
use crate::collect::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::parse::limiting_cgroup;
use crate::sample::sched::{SchedSample, ThreadSched};
use crate::sample::subject::{CpuId, TaskId};
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Signal};

/// Share of one core for reading threads.
const BUDGET: f64 = 0.002;
/// Descriptors that stay open.
const MAX_FILES: usize = 256;
/// Affinity and cgroup are read for threads that wait this share of the time, ...
const WAITS_MUCH: f64 = 0.1;
/// ... and for those that run or wait so much: who waits asks who runs.
const ACTIVE: f64 = 0.5;
/// Processes below this are of no interest when memory is short ...
const LEAST_RSS: u64 = 16 << 20;
/// ... and from this on it is of interest what limits them.
const MUCH_RSS_MIB: u32 = 64;
/// Kernel workers that ran or waited for this part of the time are named with their work: 1 ms a
/// second.
const WORKS_MUCH: f64 = 0.001;
/// Times of threads are kept in steps of 10 us.
const GRAIN_NS: u64 = 10_000;
/// They are read again after this time while the thread still waits, and forgotten after
/// this time when it does not.
const DETAIL_AGE: Duration = Duration::from_secs(10);
/// Threads whose details are read in one tick.
const MAX_DETAILS: usize = 64;

/// Reads it. See the module head.
pub struct SchedCollector {
    host: HostFs,
    loadavg: HotFile,
    schedstat: Option<HotFile>,
    scan: ThreadScan,
    /// This process, as that `/proc` numbers it; captured files have none.
    own: Option<u32>,
    details: HashMap<TaskId, Detail>,
    page_size: u64,
    /// Of the last round.
    unread: u32,
}

/// What is read only for threads that wait or run much.
#[derive(Debug)]
struct Detail {
    allowed: Option<String>,
    cgroup: Option<String>,
    memory_cgroup: Option<String>,
    read_at: MonoNs,
}

impl Collector for SchedCollector {
    type Sample = SchedSample;
    const ID: CollectorId = CollectorId::Sched;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        let mut loadavg = HotFile::record(host, "proc/loadavg");
        loadavg
            .read()
            .map_err(|e| Unavailable::because("/proc/loadavg", &e, "mount the host's /proc"))?;
        let mut schedstat = HotFile::new(host, "proc/schedstat");
        let has_cpus = schedstat.read().is_ok_and(|b| !parse::parse_schedstat_cpus(b).is_empty());
        Ok(Self {
            host: host.clone(),
            loadavg,
            schedstat: has_cpus.then_some(schedstat),
            scan: ThreadScan::new(host, MAX_FILES),
            own: host.link("proc/self").ok().and_then(|pid| pid.parse().ok()),
            details: HashMap::new(),
            page_size: rustix::param::page_size() as u64,
            unread: 0,
        })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<SchedSample, CollectError> {
        let load = self.loadavg.read().ok().and_then(parse::parse_loadavg);
        let cpus = self.schedstat.as_mut().and_then(|f| f.read().ok());
        let mut out = SchedSample {
            load: load.map(|l| l.0),
            tasks: load.map(|l| l.1),
            cpus: cpus.map(parse::parse_schedstat_cpus).unwrap_or_default(),
            ..SchedSample::default()
        };
        if !self.scan.probe() {
            return Ok(out);
        }
        let budget = cx.interval.mul_f64(BUDGET).max(Duration::from_micros(500));
        let existing = out.tasks.map(|t| t.1);
        let mut rows: Vec<(ThreadSched, Option<f64>)> = Vec::with_capacity(64);
        let (own, page_size) = (self.own, self.page_size);
        let round = self
            .scan
            .round(cx.at, budget, existing, |t| {
                if t.moved && Some(t.task.pid) != own {
                    rows.push((row(t, page_size), wish(t)));
                }
            })
            .map_err(|e| CollectError::read("proc", e))?;
        (out.unread_threads, self.unread) = (round.unread, round.unread);
        // Always in the same order: the next sample is a small difference to this one.
        rows.sort_unstable_by_key(|r| r.0.task);
        once_per_process(&mut rows);
        let wanted = rows.iter().enumerate().filter_map(|(i, r)| Some((i, r.1?))).collect();
        out.threads = rows.into_iter().map(|r| r.0).collect();
        self.add_details(cx.at, wanted, &mut out.threads);
        Ok(out)
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        const NAME: &str = "run-queue delay per thread";
        const FALLBACK: &str = "run-queue latency";
        const SOURCE: &str = "schedstat";
        if !self.scan.has_schedstat {
            let why = "no /proc/PID/schedstat (CONFIG_SCHED_INFO is off)";
            let remedy = "use a kernel with CONFIG_SCHED_INFO";
            out.push(Signal::missing(NAME, SOURCE, why, remedy));
            out.push(Signal::missing(FALLBACK, SOURCE, why, remedy));
            return;
        }
        out.push(if self.scan.is_behind() {
            let why = format!("{} threads are read in rotation", self.unread);
            Signal::degraded(NAME, SOURCE, why, "")
        } else {
            Signal::ok(NAME, SOURCE)
        });
        out.push(Signal::degraded(FALLBACK, SOURCE, "means per thread, no distribution", ""));
    }
}

impl SchedCollector {
    /// Reads affinity and cgroup of those that are wanted most, and puts what is known of any thread
    /// into its row.
    fn add_details(
        &mut self,
        at: MonoNs,
        mut wanted: Vec<(usize, f64)>,
        threads: &mut [ThreadSched],
    ) {
        wanted.sort_by(|a, b| b.1.total_cmp(&a.1));
        wanted.truncate(MAX_DETAILS);
        for (i, _) in wanted {
            let Some(t) = threads.get(i) else { continue };
            let fresh = |d: &Detail| at.since(d.read_at) < DETAIL_AGE;
            if !self.details.get(&t.task).is_some_and(fresh) {
                let detail = read_detail(&self.host, t.task, at);
                self.details.insert(t.task, detail);
            }
        }
        if self.details.is_empty() {
            return;
        }
        self.details.retain(|_, d| at.since(d.read_at) < 2 * DETAIL_AGE);
        for t in threads {
            if let Some(d) = self.details.get(&t.task) {
                (t.allowed, t.cgroup) = (d.allowed.clone(), d.cgroup.clone());
                t.memory_cgroup.clone_from(&d.memory_cgroup);
            }
        }
    }
}

/// The size of a process is that of each of its threads: one row has it. The details of big ones are
/// wanted a little.
fn once_per_process(rows: &mut [(ThreadSched, Option<f64>)]) {
    let mut before = None;
    for (t, wish) in rows {
        if before.replace(t.task.pid) == Some(t.task.pid) {
            t.rss_mib = None;
        }
        if t.rss_mib.is_some_and(|mib| mib >= MUCH_RSS_MIB) {
            *wish = wish.or(Some(0.0));
        }
    }
}

/// How much the details of a thread are wanted: whoever waits goes before whoever runs.
fn wish(t: &Thread) -> Option<f64> {
    let (waits, active) = (t.wait_share(), t.active_share());
    if waits >= WAITS_MUCH { Some(1.0 + waits) } else { (active >= ACTIVE).then_some(active) }
}

fn read_detail(host: &HostFs, task: TaskId, at: MonoNs) -> Detail {
    let file = |name| host.read(format!("proc/{}/task/{}/{name}", task.pid, task.tid)).ok();
    let groups = file("cgroup").unwrap_or_default();
    let cgroup = parse::parse_task_cgroup(&groups);
    let memory_cgroup = limiting_cgroup(&groups, "memory").filter(|p| Some(p) != cgroup.as_ref());
    Detail {
        allowed: file("status").and_then(|b| parse::parse_cpus_allowed(&b)),
        cgroup,
        memory_cgroup,
        read_at: at,
    }
}

/// The name of a kernel worker without the work at hand, which the kernel appends, unless it did
/// much of it: of an idle host most workers do something else each second.
fn own_name(comm: &str, active_share: f64) -> &str {
    let worker = comm.strip_prefix("kworker/").filter(|_| active_share < WORKS_MUCH);
    // A rescuer (`kworker/R-name`) has no other name.
    let pool = worker.filter(|w| w.starts_with(|c: char| c == 'u' || c.is_ascii_digit()));
    let end = pool.and_then(|w| w.find(['-', '+'])).map(|at| "kworker/".len() + at);
    end.and_then(|n| comm.get(..n)).unwrap_or(comm)
}

fn row(t: &Thread, page_size: u64) -> ThreadSched {
    // Below that is nothing that any rate shows, and half of what a recording would hold.
    let whole = |ns: u64| ns - ns % GRAIN_NS;
    let rss = t.rss.map(|pages| pages.saturating_mul(page_size)).filter(|n| *n >= LEAST_RSS);
    ThreadSched {
        task: t.task,
        comm: own_name(&t.comm, t.active_share()).to_owned(),
        state: t.state,
        run_ns: whole(t.sched.run_ns),
        run_delay_ns: whole(t.sched.run_delay_ns),
        slices: t.sched.slices,
        still_ms: t.still.map_or(0, |d| u32::try_from(d.as_millis()).unwrap_or(u32::MAX)),
        last_cpu: t.last_cpu.map(CpuId),
        allowed: None,
        cgroup: None,
        memory_cgroup: None,
        rss_mib: rss.and_then(|n| u32::try_from(n >> 20).ok()),
        nice: t.nice,
        policy: t.policy,
        kind: t.kind,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::collect::testing::fixtures;
    use crate::sample::Interest;

    fn open(host: &HostFs) -> SchedCollector {
        SchedCollector::open(host, &CollectOptions::default()).unwrap()
    }

    fn sample(c: &mut SchedCollector, at: MonoNs) -> SchedSample {
        let interest = Interest::default();
        c.sample(&SampleContext { at, interval: Duration::from_secs(1), interest: &interest })
            .unwrap()
    }

    fn fixture() -> HostFs {
        HostFs::at(fixtures().join("tasks"))
    }

    #[test]
    fn threads_of_the_fixture_carry_their_fields() {
        let mut c = open(&fixture());
        let first = sample(&mut c, MonoNs(0));
        let s = sample(&mut c, MonoNs(1_000_000_000));
        assert_eq!((s.load, s.tasks), (Some([1.5, 0.5, 0.25]), Some((2, 5))));
        let tids = |s: &SchedSample| s.threads.iter().map(|t| t.task.tid).collect::<Vec<_>>();
        assert_eq!((tids(&first).len(), tids(&s).len()), (3, 2), "only what is new or moved");
        assert!(tids(&first).is_sorted() && tids(&s).is_sorted());
        let w = s.threads.iter().find(|t| t.task.tid == 101).unwrap();
        assert_eq!((w.task.pid, w.task.start), (100, 4200));
        assert_eq!((w.comm.as_str(), w.state), ("w) S (x\n", 'R'));
        assert_eq!((w.run_ns, w.run_delay_ns, w.slices), (2_000_000, 9_000_000, 12));
        assert_eq!((w.last_cpu, w.nice, w.policy), (Some(CpuId(1)), Some(-5), Some(0)));
        assert_eq!(w.allowed, None);
        assert_eq!(s.cpus.len(), 2);
        assert_eq!(s.cpus[1].run_delay_ns, 8_000_000);
    }

    #[test]
    fn a_worker_is_named_with_its_work_when_it_does_much() {
        assert_eq!(own_name("kworker/u8:2+flush-254:0", 0.0009), "kworker/u8:2");
        assert_eq!(own_name("kworker/u8:2+flush-254:0", 0.001), "kworker/u8:2+flush-254:0");
        assert_eq!(own_name("kworker/1:0H-kblockd", 0.0), "kworker/1:0H");
        assert_eq!(own_name("kworker/R-slub_flushwq", 0.0), "kworker/R-slub_flushwq");
        assert_eq!(own_name("my-program", 0.0), "my-program");
        assert_eq!(own_name("kworker/0:0", 0.0), "kworker/0:0");
    }

    /// Two spinners share CPU 0: each waits half of the time.
    #[test]
    fn live_spinners_on_one_cpu_wait_for_each_other() {
        let spin = || {
            std::process::Command::new("taskset")
                .args(["-c", "0", "sh", "-c", "while :; do :; done"])
                .spawn()
        };
        let (Ok(mut a), Ok(mut b)) = (spin(), spin()) else {
            return crate::collect::testing::skip("no spinner could be started");
        };
        let host = HostFs::live();
        let mut c = open(&host);
        let deadline = clock::mono() + Duration::from_secs(20);
        let found = loop {
            clock::sleep_until(clock::mono() + Duration::from_millis(200));
            let s = sample(&mut c, clock::mono());
            let own = std::process::id();
            assert!(s.threads.iter().all(|t| t.task.pid != own), "the reader is not in it");
            let of = |pid| s.threads.iter().find(|t| t.task.pid == pid && t.allowed.is_some());
            if let (Some(x), Some(_)) = (of(a.id()), of(b.id())) {
                break Some(x.clone());
            }
            if clock::mono() > deadline {
                break None;
            }
        };
        for child in [&mut a, &mut b] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let x = found.expect("no spinner waited 10% of its time");
        assert_eq!(x.allowed.as_deref(), Some("0"));
        assert!(x.run_delay_ns > 0);
        assert!(x.cgroup.unwrap().starts_with('/'));
    }
}
