//! The threads of the processes that nobody asked about, by walks in the kernel.
//!
//! A walk tells who runs or is in a new sleep; all others go on as they were. Kept is who does not
//! only wait for work. Where the row of a sleep does not tell enough, `/proc` is asked, once for each
//! sleep that two walks have found.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};

use super::thread::{Asleep, Spot, Thread};
use super::{groups, place, sleep};
use crate::clock;
use crate::collect::bpf::symbols;
use crate::collect::bpf::tasks::{self, Row, State, TaskWalk};
use crate::collect::{CollectOptions, HostFs, Unavailable};
use crate::metrics::waits::class::{Class, class_of};
use crate::rights::{self, Duty};
use crate::sample::subject::TaskId;
use crate::sample::time::MonoNs;
use crate::sample::waits::{Sleep, ThreadWaits, WaitsSample};

/// Threads that are recorded; more are counted as unread.
const MOST_THREADS: usize = 4096;
/// Sleeps that `/proc` is asked about after one walk.
const MOST_READ: usize = 64;
/// Threads of one process that wait for a mutex at the same time: it is looked at as if somebody had
/// asked about it, since what its other threads do tells a convoy from workers that take turns.
const QUEUE: u32 = 4;
/// Processes that are looked at for that.
const MOST_QUEUES: usize = 4;
/// Walks for which a process is looked at after its threads queued last.
const LINGER: u32 = 100;
/// All symbols of the kernel are read no more often than this: a tenth of a second of a core.
const NAMES_EVERY: Duration = Duration::from_secs(10);
/// Of a clock tick, as `/proc` counts time (USER_HZ).
const TICK_NS: u64 = 10_000_000;

/// What is kept between walks.
pub(super) struct Everyone {
    host: HostFs,
    walk: TaskWalk,
    threads: HashMap<u32, Thread>,
    /// Processes with a queue, each with the walks for which it stays one.
    queues: BTreeMap<u32, u32>,
    names: Names,
    /// This process.
    own: u32,
    /// There was a reading.
    is_begun: bool,
}

impl Everyone {
    /// # Errors
    /// Why there are no walks here.
    pub(super) fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let walk = rights::lend(Duty::Waits.row().lent, || TaskWalk::open(host, opts))?;
        Ok(Self {
            host: host.clone(),
            walk,
            threads: HashMap::new(),
            queues: BTreeMap::new(),
            names: Names::default(),
            own: std::process::id(),
            is_begun: false,
        })
    }

    /// Do walks tell system calls?
    pub(super) fn has_calls(&self) -> bool {
        self.walk.has_calls()
    }

    /// Is nothing to be seen that walks half as often would not see?
    pub(super) fn is_calm(&self) -> bool {
        self.threads.values().all(Thread::is_calm)
    }

    /// Processes whose threads queue for a mutex.
    pub(super) fn queues(&self) -> impl Iterator<Item = u32> + '_ {
        self.queues.keys().copied()
    }

    /// One walk.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn pass(&mut self) -> io::Result<()> {
        let Self { walk, threads, own, .. } = self;
        for row in walk.walk()?.filter(|r| r.pid != *own) {
            hear(threads, row);
        }
        let mut queued: BTreeMap<u32, u32> = BTreeMap::new();
        let mut unread = Vec::new();
        threads.retain(|tid, t| {
            if t.is_queued() {
                *queued.entry(t.row.pid).or_default() += 1;
            }
            let stays = t.count();
            if stays && unread.len() < MOST_READ && t.wants_reading() {
                unread.push(*tid);
            }
            stays
        });
        self.read(&unread);
        self.queue(queued);
        Ok(())
    }

    /// Asks `/proc` what these sleep in.
    fn read(&mut self, tids: &[u32]) {
        for tid in tids {
            let Some(t) = self.threads.get_mut(tid) else { continue };
            let (State::Sleeps(state), pid) = (t.row.state, t.row.pid) else { continue };
            let dir = format!("proc/{pid}/task/{tid}");
            let (sleep, _) = sleep::read(&self.host, pid, &dir, state);
            // Whether a socket owes an answer is for others to say: it counts as a wait here.
            let is_idle = class_of(&sleep, |_| None) == Class::Idle;
            if !t.tell(sleep, is_idle) {
                self.threads.remove(tid);
            }
        }
    }

    fn queue(&mut self, queued: BTreeMap<u32, u32>) {
        self.queues.retain(|_, left| {
            *left -= 1;
            *left > 0
        });
        let mut queued: Vec<_> = queued.into_iter().filter(|(_, n)| *n >= QUEUE).collect();
        queued.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        for (pid, _) in queued {
            if self.queues.len() < MOST_QUEUES || self.queues.contains_key(&pid) {
                self.queues.insert(pid, LINGER);
            }
        }
    }

    /// What was seen since the last time of threads whose process is not `watched` otherwise.
    pub(super) fn take(&mut self, watched: impl Fn(u32) -> bool, out: &mut WaitsSample) {
        // Not at the first reading: others may still need what opening has read.
        if std::mem::replace(&mut self.is_begun, true) {
            tasks::forget_kernel();
        }
        out.everyone = true;
        self.threads.retain(|tid, t| t.is_heard || exists(*tid));
        let stacks = self.threads.values().flat_map(|t| &t.sleeps).map(|s| &s.spot.stack);
        self.names.learn(&self.host, stacks.flatten().copied().filter(|a| *a != 0));
        let mut files = HashMap::new();
        let has_delays = self.walk.has_delays();
        let mut room = MOST_THREADS;
        for t in self.threads.values_mut() {
            let is_wanted = t.is_recorded() && t.samples > 0 && !watched(t.row.pid);
            if is_wanted && room == 0 {
                out.unread += 1;
            } else if is_wanted {
                room -= 1;
                if !std::mem::replace(&mut t.is_listed, true) {
                    t.groups = groups::read(&self.host, t.row.pid, t.row.tid);
                }
                let delay = has_delays.then_some(t.row.delay_ns);
                let mut sleep = |s: &Asleep| as_sleep(&self.host, t, s, &self.names, &mut files);
                out.threads.push(waits(t, delay, &mut sleep));
            }
            t.begin();
        }
    }
}

fn hear(threads: &mut HashMap<u32, Thread>, row: Row) {
    if row.state == State::Ended {
        threads.remove(&row.tid);
        return;
    }
    if let Some(known) = threads.get_mut(&row.tid).filter(|t| t.row.start_ns == row.start_ns) {
        known.hear(row);
        return;
    }
    // The number may have been another's.
    threads.remove(&row.tid);
    if let Some(new) = Thread::new(row) {
        threads.insert(row.tid, new);
    }
}

/// Walks have no row of a thread that has ended and is reaped.
fn exists(tid: u32) -> bool {
    let pid = i32::try_from(tid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

fn waits(t: &Thread, delay: Option<u64>, sleep: impl FnMut(&Asleep) -> Sleep) -> ThreadWaits {
    let Row { pid, tid, comm, .. } = &t.row;
    let comm = comm.split(|b| *b == 0).next().unwrap_or_default();
    ThreadWaits {
        task: TaskId { pid: *pid, tid: *tid, start: t.row.start_ns / TICK_NS },
        comm: String::from_utf8_lossy(comm).into_owned(),
        run_ns: t.row.run_ns,
        run_delay_ns: delay,
        utime: t.row.user_ns / TICK_NS,
        stime: t.row.sys_ns / TICK_NS,
        samples: t.samples,
        sleeps: t.sleeps.iter().filter(|s| s.samples > 0).map(sleep).collect(),
        ..t.groups.clone()
    }
}

/// What descriptors are, by process and number.
type Files = HashMap<(u32, u32), (Option<String>, Option<u64>)>;

fn as_sleep(host: &HostFs, t: &Thread, s: &Asleep, names: &Names, files: &mut Files) -> Sleep {
    if let Some(read) = &s.read {
        return Sleep { samples: s.samples, ..read.clone() };
    }
    let Spot { state, call, futex, fd, stack } = s.spot;
    let pid = t.row.pid;
    let mut known = |fd| {
        let file = files.entry((pid, fd)).or_insert_with(|| sleep::descriptor(host, pid, fd));
        file.clone()
    };
    let (file, inode) = fd.map_or((None, None), &mut known);
    Sleep {
        state,
        wchan: names.place(&stack),
        syscall: call.map(str::to_owned),
        futex,
        inode,
        file,
        holder: None,
        samples: s.samples,
    }
}

/// Names of functions of the kernel.
#[derive(Default)]
struct Names {
    known: BTreeMap<u64, Arc<str>>,
    /// When they were read last.
    read: Option<MonoNs>,
}

impl Names {
    /// Looks up those that are new, unless that was done a moment ago.
    fn learn(&mut self, host: &HostFs, addresses: impl Iterator<Item = u64>) {
        let new: BTreeSet<u64> = addresses.filter(|a| !self.known.contains_key(a)).collect();
        let now = clock::mono();
        if new.is_empty() || self.read.is_some_and(|at| now.since(at) < NAMES_EVERY) {
            return;
        }
        self.read = Some(now);
        let new: Vec<u64> = new.into_iter().collect();
        rights::lend(Duty::Waits.row().lent, || symbols::resolve(host, &new, &mut self.known));
    }

    /// The first function that is no helper; `None` while it is not known.
    fn place(&self, stack: &[u64]) -> Option<String> {
        for address in stack.iter().take_while(|a| **a != 0) {
            let name = self.known.get(address)?;
            // Clones that the compiler made: `do_wait.part.0`.
            let name = name.split('.').next().unwrap_or_default();
            if !name.is_empty() && !name.starts_with("0x") && !place::is_helper(name) {
                return Some(name.to_owned());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_function_that_is_no_helper_is_the_place() {
        let known = [(1, "schedule"), (2, "rwsem_down_read_slowpath.part.0"), (3, "down_read")];
        let known = known.map(|(at, name)| (at, Arc::from(name)));
        let names = Names { known: known.into(), read: None };
        assert_eq!(names.place(&[1, 2, 3, 0]).as_deref(), Some("rwsem_down_read_slowpath"));
        assert_eq!(names.place(&[1, 9, 3]), None, "one before it is not known yet");
        assert_eq!(names.place(&[0, 3]), None);
    }

    #[test]
    fn a_number_that_is_another_threads_begins_anew() {
        let mut threads = HashMap::new();
        let row = |start_ns, state| Row { tid: 5, start_ns, state, ..Row::default() };
        hear(&mut threads, row(1, State::Runs));
        threads.get_mut(&5).map(Thread::count);
        hear(&mut threads, row(2, State::Runs));
        assert_eq!(threads.get(&5).map(|t| (t.row.start_ns, t.samples)), Some((2, 0)));
        hear(&mut threads, row(2, State::Ended));
        assert!(threads.is_empty());
    }
}
