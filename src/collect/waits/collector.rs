//! The collector: which threads are looked at, and how often.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::everyone::Everyone;
use super::locks;
use super::sleep::Readable;
use super::watched::{Pass, Watched};
use crate::clock;
use crate::collect::hot::HotFile;
use crate::collect::permission::{self, Right};
use crate::collect::sched::parse_loadavg;
use crate::collect::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::sample::waits::WaitsSample;
use crate::sample::{CollectorId, Signal};

/// Time between two passes, while the budget allows.
const EVERY: Duration = Duration::from_millis(100);
/// The same while no thread that is worth a look runs, or changes from sleep to sleep.
const CALM: Duration = Duration::from_millis(200);
/// Share of one core for the passes.
const BUDGET: f64 = 0.01;
/// The same where only walks over all threads are made, for each of them; but not below that of a
/// thousand.
const BUDGET_PER_THREAD: f64 = 3e-6;
/// Descriptors that stay open, at most an eighth of our limit.
const MAX_FILES: usize = 4096;
/// Threads that are watched; more are counted as unread.
const MAX_THREADS: usize = 32_768;

/// Reads it. See the module head.
pub struct WaitsCollector {
    host: HostFs,
    /// By process; one that is gone has none.
    watched: BTreeMap<u32, HashMap<u32, Watched>>,
    buf: Vec<u8>,
    max_files: usize,
    unread: u32,
    /// All other threads of the host, or why not.
    everyone: Result<Everyone, Unavailable>,
    /// CPU time of the last pass.
    cost: Duration,
    loadavg: HotFile,
    /// Threads of the host at the last reading.
    all_threads: u32,
    /// What could be read of the sleeps of the last second or so; `None`: there was none to read.
    readable: Option<Readable>,
}

impl Collector for WaitsCollector {
    type Sample = WaitsSample;
    const ID: CollectorId = CollectorId::Waits;

    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let share = limit.map_or(MAX_FILES, |n| (n / 8) as usize);
        Ok(Self {
            host: host.clone(),
            watched: BTreeMap::new(),
            buf: Vec::new(),
            max_files: share.min(MAX_FILES),
            unread: 0,
            everyone: Everyone::open(host, opts),
            cost: Duration::ZERO,
            loadavg: HotFile::record(host, "proc/loadavg"),
            all_threads: 0,
            readable: None,
        })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<WaitsSample, CollectError> {
        let asked = &cx.interest.processes;
        let queues = self.everyone.iter().flat_map(Everyone::queues);
        let wanted: BTreeSet<u32> = asked.iter().copied().chain(queues).collect();
        self.watched.retain(|pid, _| wanted.contains(pid));
        for pid in &wanted {
            self.watched.entry(*pid).or_default();
        }
        self.list();
        let load = self.loadavg.read().ok().and_then(parse_loadavg);
        self.all_threads = load.map_or(0, |(_, (_, threads))| threads);
        self.pass();
        Ok(self.take(asked))
    }

    /// A pass between two readings.
    fn relieve(&mut self) {
        self.pass();
    }

    fn relief(&self) -> Option<Duration> {
        let is_watching = self.watched.values().any(|t| !t.is_empty());
        let budget = if is_watching {
            BUDGET
        } else {
            (BUDGET_PER_THREAD * f64::from(self.all_threads.max(1000))).min(BUDGET)
        };
        let everyone = self.everyone.as_ref().ok();
        let is_calm = !is_watching && everyone.is_some_and(Everyone::is_calm);
        let every = if is_calm { CALM } else { EVERY };
        (is_watching || everyone.is_some()).then(|| every.max(self.cost.div_f64(budget)))
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        const NAME: &str = "waits of a process";
        const SOURCE: &str = "/proc/PID/task";
        const EVERYONE: &str = "waits of all processes";
        let refusal = || permission::refusal(&self.host, Right::Ptrace);
        out.push(match self.readable {
            Some(Readable { wchan: false, syscall: false }) => {
                let r = refusal();
                let why = format!("wchan and syscall are not readable{}", r.why);
                Signal::degraded(NAME, SOURCE, why, r.remedy)
            }
            _ if self.unread > 0 => {
                let why = format!("{} threads are too many to watch", self.unread);
                Signal::degraded(NAME, SOURCE, why, "")
            }
            _ => Signal::ok(NAME, SOURCE),
        });
        match &self.everyone {
            Ok(e) if e.has_calls() => out.push(Signal::ok(EVERYONE, "ebpf")),
            Ok(_) => out.push(Signal::degraded(
                EVERYONE,
                "ebpf",
                "this kernel does not tell programs the system call of a thread: sleeps shorter \
                 than 0.2 s are not told apart",
                "use Linux 5.15 or newer",
            )),
            Err(e) => {
                let why = "only of processes that somebody asks about";
                out.push(Signal::degraded(EVERYONE, SOURCE, why, ""));
                out.push(Signal::missing(EVERYONE, "ebpf", e.reason.clone(), e.remedy.clone()));
            }
        }
    }
}

impl WaitsCollector {
    /// Finds the threads of the processes.
    fn list(&mut self) {
        self.unread = 0;
        let mut room = MAX_THREADS;
        let mut files: usize = self.open_files();
        for (pid, threads) in &mut self.watched {
            let names = self.host.list(format!("proc/{pid}/task")).unwrap_or_default();
            let tids: HashSet<u32> = names.iter().filter_map(|n| n.parse().ok()).collect();
            threads.retain(|tid, _| tids.contains(tid));
            self.unread += tids.len().saturating_sub(room) as u32;
            for tid in tids.into_iter().take(room) {
                if threads.contains_key(&tid) {
                    continue;
                }
                let keep_open = files < self.max_files;
                let mut pass = Pass { host: &self.host, buf: &mut self.buf, keep_open };
                if let Ok(new) = Watched::new(*pid, tid, &mut pass) {
                    files += 1;
                    threads.insert(tid, new);
                }
            }
            room = room.saturating_sub(threads.len());
        }
    }

    fn open_files(&self) -> usize {
        self.watched.values().flat_map(HashMap::values).filter(|t| t.is_open()).count()
    }

    /// Looks at every thread once.
    fn pass(&mut self) {
        let begun = clock::thread_cpu();
        if let Ok(e) = &mut self.everyone
            && let Err(why) = e.pass()
        {
            self.everyone = Err(Unavailable::because("walking over all threads", &why, ""));
        }
        let mut files = self.open_files();
        let mut seen: Option<Readable> = None;
        for threads in self.watched.values_mut() {
            threads.retain(|_, thread| {
                let keep_open = thread.is_open() || files < self.max_files;
                files += usize::from(keep_open && !thread.is_open());
                let mut pass = Pass { host: &self.host, buf: &mut self.buf, keep_open };
                let looked = thread.look(&mut pass);
                if let Ok(Some(r)) = looked {
                    let old = seen.unwrap_or_default();
                    seen = Some(Readable {
                        wchan: old.wchan || r.wchan,
                        syscall: old.syscall || r.syscall,
                    });
                }
                looked.is_ok()
            });
        }
        self.readable = seen.or(self.readable);
        self.cost = clock::thread_cpu().saturating_sub(begun);
    }

    /// What was seen since the last time.
    fn take(&mut self, asked: &[u32]) -> WaitsSample {
        let mut out =
            WaitsSample { asked: asked.to_vec(), unread: self.unread, ..WaitsSample::default() };
        if let Ok(e) = &mut self.everyone {
            e.take(|pid| self.watched.contains_key(&pid), &mut out);
            let others = self.watched.keys().filter(|pid| !asked.contains(pid));
            out.queues.extend(others);
        }
        for (pid, threads) in &mut self.watched {
            threads.retain(|_, thread| {
                let keep_open = thread.is_open();
                let mut pass = Pass { host: &self.host, buf: &mut self.buf, keep_open };
                match thread.take(&mut pass) {
                    Ok(t) => out.threads.push(t),
                    Err(_) => return false,
                }
                true
            });
            if threads.is_empty() && asked.contains(pid) {
                out.gone.push(*pid);
            }
        }
        out.threads.sort_unstable_by_key(|t| t.task);
        locks::name_holders(&self.host, &mut out.threads);
        out
    }
}
