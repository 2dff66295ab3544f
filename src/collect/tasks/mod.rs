//! `ThreadScan`: visits the threads of the host within a CPU budget. Those that lately ran or
//! waited, and those in state D, are read in every round, the rest in turn; what is left over is
//! counted.
//!
//! A thread that has not run for 20 rounds is read in every fourth only.
//!
//! One read of `schedstat` (1 us on an open file) tells whether a thread was on a CPU since the
//! last round. Only then can its state, CPU or name have changed, so only then its `stat` is
//! read. The exceptions are runnable and blocked threads, which a wake-up may change without
//! running them.

pub(super) mod dir;
pub mod stat;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::time::Duration;

use self::dir::NumberDir;
use self::stat::{Schedstat, parse_schedstat, parse_stat};
use super::HostFs;
use super::hot::read_record;
use crate::clock;
use crate::sample::sched::TaskKind;
use crate::sample::subject::TaskId;
use crate::sample::time::MonoNs;

/// Threads that we keep track of; more are counted as unread.
const MAX_KNOWN: usize = 65_536;
/// Part of the wall time that a thread must run or wait to be read in every round.
const HOT_SHARE: f64 = 0.005;
/// Rounds that it stays so.
const HOT_ROUNDS: u8 = 10;
/// A process's list of threads is read again after this time.
const TASKS_AGE: Duration = Duration::from_secs(10);
/// A thread that did not run for this many rounds is asleep, and read in each of this many.
const QUIET_ROUNDS: u8 = 20;
const ASLEEP_ROUNDS: usize = 4;
/// CPU time that the first round may use: all is new then, and none of it in a cache.
const FIRST_ROUND: Duration = Duration::from_millis(20);
/// Read in every round and of every queue, whatever the budget.
const MIN_READS: usize = 16;

/// A thread and what was read of it last.
#[derive(Debug)]
pub(super) struct Thread {
    pub task: TaskId,
    pub comm: String,
    pub state: char,
    pub last_cpu: Option<u32>,
    pub nice: Option<i8>,
    pub policy: Option<u32>,
    pub kind: Option<TaskKind>,
    /// Pages of its process that are resident.
    pub rss: Option<u64>,
    pub sched: Schedstat,
    /// What the counters grew by since the reading before, and over what time.
    pub grown: Option<(Duration, Schedstat)>,
    /// It ran or waited since the reading before, or this is the first one.
    pub moved: bool,
    /// Time since the reading before, if that one found it unmoved.
    pub still: Option<Duration>,
    read_at: Option<MonoNs>,
    file: Option<File>,
    hot: u8,
    /// Readings since it last ran.
    quiet: u8,
}

/// Where a thread waits for its next reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// Read in every round.
    Hot,
    /// Read in every round that has the budget.
    Cold,
    /// Has not run for long: read in turn.
    Asleep,
}

/// What a round left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    pub processes: u32,
    /// Threads that were due and not read: no budget, no permission.
    pub unread: u32,
    /// Threads of these that we may not read.
    pub denied: u32,
}

/// See the module head.
#[derive(Debug)]
pub(super) struct ThreadScan {
    host: HostFs,
    dir: NumberDir,
    buf: Vec<u8>,
    processes: HashMap<u32, Process>,
    /// All processes; those whose list of threads is the oldest are in front.
    listing: VecDeque<u32>,
    /// Processes that were just found to have several threads.
    fresh: VecDeque<u32>,
    known: HashSet<u32>,
    hot: VecDeque<Thread>,
    cold: VecDeque<Thread>,
    asleep: VecDeque<Thread>,
    round: u32,
    /// Threads that we may not read, in this round.
    denied: u32,
    /// Files that may stay open, and how many do.
    max_files: usize,
    files: usize,
    list_due: MonoNs,
    /// False where `schedstat` is absent or all zero: then `stat` is read every time.
    pub has_schedstat: bool,
    /// Rounds in a row that left threads out.
    behind: u32,
}

#[derive(Debug)]
struct Process {
    seen: u32,
    listed_at: Option<MonoNs>,
    kernel: bool,
}

impl ThreadScan {
    /// `max_files` descriptors may stay open, but not more than an eighth of our limit.
    pub(super) fn new(host: &HostFs, max_files: usize) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let share = limit.map_or(max_files, |n| (n / 8) as usize);
        Self {
            host: host.clone(),
            dir: NumberDir::default(),
            buf: Vec::new(),
            processes: HashMap::new(),
            listing: VecDeque::new(),
            fresh: VecDeque::new(),
            known: HashSet::new(),
            hot: VecDeque::new(),
            cold: VecDeque::new(),
            asleep: VecDeque::new(),
            round: 0,
            denied: 0,
            max_files: max_files.min(share),
            files: 0,
            list_due: MonoNs(0),
            has_schedstat: counts_run_delay(host),
            behind: 0,
        }
    }

    /// Whether run delays are counted; looks again while they do not seem to be.
    pub(super) fn probe(&mut self) -> bool {
        self.has_schedstat = self.has_schedstat || counts_run_delay(&self.host);
        self.has_schedstat
    }

    /// The budget does not suffice for this host; one busy round is no sign of that.
    pub(super) fn is_behind(&self) -> bool {
        self.behind >= 10
    }

    /// One round of at most `budget` CPU time. `threads` is their number on the host, where
    /// known: when it equals what we know, no thread list is read. `visit` sees each thread
    /// that was read in this round, once.
    pub(super) fn round(
        &mut self,
        at: MonoNs,
        budget: Duration,
        threads: Option<u32>,
        mut visit: impl FnMut(&Thread),
    ) -> io::Result<Round> {
        self.probe();
        let budget = if self.known.is_empty() { budget.max(FIRST_ROUND) } else { budget };
        let meter = Meter { start: clock::thread_cpu(), budget };
        self.list_processes(at, budget)?;
        let complete = threads.is_some_and(|n| n as usize == self.known.len());
        self.list_tasks(at, &meter, complete);
        self.denied = 0;
        let mut read = 0u32;
        let mut left = 0usize;
        // Counted first: a thread that moves from one queue to another is read once only. Newly
        // found ones are cold. Of those asleep, a part is due.
        let passes = [
            (Queue::Hot, self.hot.len(), 0.75),
            (Queue::Cold, self.cold.len(), 1.0),
            (Queue::Asleep, self.asleep.len().div_ceil(ASLEEP_ROUNDS), 1.0),
        ];
        for (queue, due, part) in passes {
            for n in 0..due {
                // The rest gets a quarter of the budget even when much is hot.
                if n >= MIN_READS && n.is_multiple_of(4) && meter.over(part) {
                    left += due - n;
                    break;
                }
                let Some(thread) = self.queue(queue).pop_front() else { break };
                read += u32::from(self.read_and_queue(thread, at, &mut visit));
            }
        }
        let mut unread = (left as u32).saturating_add(self.denied);
        if self.known.len() >= MAX_KNOWN {
            unread = unread.max(threads.unwrap_or(0).saturating_sub(read));
        }
        self.behind = if unread > 0 { self.behind.saturating_add(1) } else { 0 };
        Ok(Round { processes: self.processes.len() as u32, unread, denied: self.denied })
    }

    fn queue(&mut self, queue: Queue) -> &mut VecDeque<Thread> {
        match queue {
            Queue::Hot => &mut self.hot,
            Queue::Cold => &mut self.cold,
            Queue::Asleep => &mut self.asleep,
        }
    }

    fn list_processes(&mut self, at: MonoNs, budget: Duration) -> io::Result<()> {
        if at < self.list_due {
            return Ok(());
        }
        let before = clock::thread_cpu();
        self.round = self.round.wrapping_add(1);
        let Self { dir, host, processes, listing, known, cold, round, .. } = self;
        dir.visit(&host.path("proc"), |pid| {
            if let Some(p) = processes.get_mut(&pid) {
                p.seen = *round;
                return;
            }
            if processes.len() >= MAX_KNOWN {
                return;
            }
            processes.insert(pid, Process { seen: *round, listed_at: None, kernel: false });
            listing.push_back(pid);
            // The list of its threads is read when its own line says that it has several.
            if known.len() < MAX_KNOWN && known.insert(pid) {
                cold.push_front(Thread::new(pid, pid));
            }
        })?;
        processes.retain(|_, p| p.seen == *round);
        if listing.len() > 2 * processes.len() + 64 {
            // Processes that ended stay in it until their turn comes, which may be never.
            listing.clear();
            listing.extend(processes.keys());
        }
        // At most a tenth of the budget goes into this.
        let cost = clock::thread_cpu().saturating_sub(before);
        let rounds = cost.as_secs_f64() / budget.as_secs_f64().max(1e-6) * 10.0;
        self.list_due =
            if rounds <= 1.0 { at } else { at + Duration::from_secs_f64(rounds.min(30.0)) };
        Ok(())
    }

    /// Looks for new threads: first in processes that were just found to have several, then in
    /// those whose list is old.
    fn list_tasks(&mut self, at: MonoNs, meter: &Meter, complete: bool) {
        while !meter.over(0.5) {
            let Some(pid) = self.fresh.pop_front() else { break };
            self.list_one(pid, at);
        }
        let mut left = self.listing.len() / 10 + 1;
        for _ in 0..self.listing.len() {
            if complete || left == 0 || meter.over(0.5) {
                return;
            }
            let Some(pid) = self.listing.pop_front() else { return };
            let Some(process) = self.processes.get(&pid) else { continue };
            let due = process.listed_at.is_some_and(|t| at.since(t) >= TASKS_AGE);
            self.listing.push_back(pid);
            if due && !process.kernel {
                left -= 1;
                self.list_one(pid, at);
            }
        }
    }

    fn list_one(&mut self, pid: u32, at: MonoNs) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.listed_at = Some(at);
        let Self { dir, host, known, cold, .. } = self;
        // A process that ended is noticed by the next listing.
        let _ = dir.visit_once(&host.path(format!("proc/{pid}/task")), |tid| {
            if known.len() < MAX_KNOWN && known.insert(tid) {
                cold.push_front(Thread::new(pid, tid));
            }
        });
    }

    /// True when the thread was read. One that is gone is forgotten.
    fn read_and_queue(
        &mut self,
        mut thread: Thread,
        at: MonoNs,
        visit: &mut impl FnMut(&Thread),
    ) -> bool {
        self.files = self.files.saturating_sub(usize::from(thread.file.is_some()));
        if let Err(e) = self.read(&mut thread, at) {
            let TaskId { pid, tid, .. } = thread.task;
            self.known.remove(&tid);
            self.denied += u32::from(e.kind() == io::ErrorKind::PermissionDenied);
            if pid == tid {
                // The next listing finds whoever has the number then.
                self.processes.remove(&pid);
            }
            return false;
        }
        visit(&thread);
        let keep = thread.hot > 0 || self.known.len() <= self.max_files;
        if !keep || self.files >= self.max_files {
            thread.file = None;
        }
        self.files += usize::from(thread.file.is_some());
        let queue = match &thread {
            t if t.hot > 0 => Queue::Hot,
            t if t.quiet >= QUIET_ROUNDS => Queue::Asleep,
            _ => Queue::Cold,
        };
        self.queue(queue).push_back(thread);
        true
    }

    fn read(&mut self, thread: &mut Thread, at: MonoNs) -> io::Result<()> {
        let TaskId { pid, tid, .. } = thread.task;
        let first = thread.read_at.is_none();
        let now = if self.has_schedstat {
            let file = match thread.file.take() {
                Some(f) => f,
                None => File::open(self.host.path(format!("proc/{pid}/task/{tid}/schedstat")))?,
            };
            read_record(&file, &mut self.buf)?;
            thread.file = Some(file);
            parse_schedstat(&self.buf).ok_or(io::ErrorKind::InvalidData)?
        } else {
            Schedstat::default()
        };
        let still = !first && now == thread.sched && !matches!(thread.state, 'R' | 'D');
        thread.quiet = if still { thread.quiet.saturating_add(1) } else { 0 };
        if !still || !self.has_schedstat {
            let file = File::open(self.host.path(format!("proc/{pid}/task/{tid}/stat")))?;
            read_record(&file, &mut self.buf)?;
            let stat = parse_stat(&self.buf).ok_or(io::ErrorKind::InvalidData)?;
            if !first && stat.start != thread.task.start {
                // The number was given to another thread.
                return Err(io::ErrorKind::NotFound.into());
            }
            thread.take(&stat);
            if tid == pid
                && let Some(p) = self.processes.get_mut(&pid)
            {
                p.kernel = stat.kernel_thread;
                if p.listed_at.is_none() {
                    p.listed_at = Some(at);
                    if stat.num_threads > 1 {
                        self.fresh.push_back(pid);
                    }
                }
            }
        }
        thread.grown = thread.read_at.and_then(|then| {
            let grown = Schedstat {
                run_ns: now.run_ns.checked_sub(thread.sched.run_ns)?,
                run_delay_ns: now.run_delay_ns.checked_sub(thread.sched.run_delay_ns)?,
                slices: now.slices.checked_sub(thread.sched.slices)?,
            };
            Some((at.since(then), grown))
        });
        thread.hot = match thread.grown {
            Some((dt, g)) if g.active_share(dt) >= HOT_SHARE => HOT_ROUNDS,
            // One look is enough for these: among thousands of sleepers the second, which
            // would show that it ran or waited, comes half a minute later.
            None if matches!(thread.state, 'R' | 'D') => HOT_ROUNDS,
            // It neither runs nor waits for a CPU, and how long that lasts is what is asked.
            _ if thread.state == 'D' => thread.hot.saturating_sub(1).max(1),
            _ => thread.hot.saturating_sub(1),
        };
        let unmoved = thread.read_at.filter(|_| !thread.moved);
        thread.still = unmoved.map(|then| at.since(then));
        thread.moved = first || now != thread.sched;
        (thread.sched, thread.read_at) = (now, Some(at));
        Ok(())
    }
}

/// Without CONFIG_SCHED_INFO the file is absent, or all zero. So it is for a thread that has
/// just started, hence two looks.
fn counts_run_delay(host: &HostFs) -> bool {
    let counts = |pid: &str| {
        let text = host.read(format!("proc/{pid}/schedstat")).ok();
        text.and_then(|b| parse_schedstat(&b)).is_some_and(|s| s != Schedstat::default())
    };
    !host.is_live() || counts("self") || counts("1")
}

impl Thread {
    fn new(pid: u32, tid: u32) -> Self {
        Self {
            task: TaskId { pid, tid, start: 0 },
            comm: String::new(),
            state: '?',
            last_cpu: None,
            nice: None,
            policy: None,
            kind: None,
            rss: None,
            sched: Schedstat::default(),
            grown: None,
            moved: true,
            still: None,
            read_at: None,
            file: None,
            hot: 0,
            quiet: 0,
        }
    }

    fn take(&mut self, stat: &stat::Stat<'_>) {
        self.task.start = stat.start;
        self.state = stat.state;
        self.rss = stat.rss;
        (self.last_cpu, self.nice, self.policy) = (stat.last_cpu, stat.nice, stat.policy);
        self.kind = Some(match (stat.kernel_thread, stat.bound) {
            (false, _) => TaskKind::User,
            (true, false) => TaskKind::Kernel,
            (true, true) => TaskKind::BoundKernel,
        });
        if self.comm.as_bytes() != stat.comm {
            self.comm = String::from_utf8_lossy(stat.comm).into_owned();
        }
    }

    /// Waiting for a CPU as part of the time since the reading before.
    pub(super) fn wait_share(&self) -> f64 {
        self.grown.map_or(0.0, |(dt, g)| g.run_delay_ns as f64 / (dt.as_nanos() as f64).max(1.0))
    }

    /// The same of running and waiting.
    pub(super) fn active_share(&self) -> f64 {
        self.grown.map_or(0.0, |(dt, g)| g.active_share(dt))
    }
}

impl Schedstat {
    fn active_share(self, dt: Duration) -> f64 {
        (self.run_ns.saturating_add(self.run_delay_ns)) as f64 / (dt.as_nanos() as f64).max(1.0)
    }
}

/// CPU time spent against a budget.
struct Meter {
    start: Duration,
    budget: Duration,
}

impl Meter {
    fn over(&self, part: f64) -> bool {
        clock::thread_cpu().saturating_sub(self.start) > self.budget.mul_f64(part)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
