//! Where the time of threads goes: exact times on a CPU and waiting for one, and samples for the
//! rest.

pub mod class;
pub(super) mod context;

use std::collections::HashMap;
use std::time::Duration;

use class::Question;
pub use class::{Class, Owed, is_file_lock};

use super::rate::ratio;
use crate::sample::Stamped;
use crate::sample::subject::{TaskId, is_within};
use crate::sample::waits::{Holder, Sleep, ThreadWaits, WaitsSample};

/// Threads over one interval.
#[derive(Clone, Debug, Default)]
pub struct WaitFigures {
    /// Threads that both readings have.
    pub threads: Vec<ThreadFigures>,
    /// Processes that somebody asked about.
    pub asked: Vec<u32>,
    /// Others of which all threads are here, because some of them queue for a mutex.
    pub queues: Vec<u32>,
    /// Threads of other processes are here too, but for those that only wait for work.
    pub everyone: bool,
    /// Processes that somebody asked about and that are not there.
    pub gone: Vec<u32>,
    /// Threads that are too many to watch.
    pub unread: u32,
}

impl WaitFigures {
    /// Are all threads of this process here? Of others, only those are that do not just wait for
    /// work.
    #[must_use]
    pub fn is_whole(&self, pid: u32) -> bool {
        self.is_asked(pid) || self.queues.contains(&pid)
    }

    /// Did somebody ask about this process?
    #[must_use]
    pub fn is_asked(&self, pid: u32) -> bool {
        !self.everyone || self.asked.contains(&pid)
    }
}

/// One thread over one interval.
#[derive(Clone, Debug, Default)]
pub struct ThreadFigures {
    /// The thread.
    pub task: TaskId,
    /// Its `comm`, raw.
    pub comm: String,
    /// Its cgroup.
    pub cgroup: Option<String>,
    /// That of its memory, where it is another one.
    pub memory_cgroup: Option<String>,
    /// That of its number among others, where it is another one.
    pub pids_cgroup: Option<String>,
    /// Measured interval.
    pub dt: Duration,
    /// Samples in it.
    pub samples: u32,
    /// Its parts, which together are `dt`.
    pub parts: Vec<Part>,
}

/// Time of a thread, of one kind and in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Of which kind.
    pub class: Class,
    /// Where; `None` for time on a CPU and waiting for one.
    pub place: Option<Place>,
    /// How long.
    pub time: Duration,
}

/// Where a thread sleeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Function of the kernel.
    pub wchan: Option<String>,
    /// System call.
    pub syscall: Option<String>,
    /// Inode of the socket or pipe.
    pub inode: Option<u64>,
    /// What its descriptor is.
    pub file: Option<String>,
    /// Address of the mutex that another thread holds, in the memory of the process.
    pub mutex: Option<u64>,
    /// It may as well be a condition variable: it looks the same.
    pub may_be_condition: bool,
    /// Who holds the lock of a file.
    pub holder: Option<Holder>,
}

impl Place {
    fn of(s: &Sleep) -> Self {
        Self {
            wchan: s.wchan.clone(),
            syscall: s.syscall.clone(),
            inode: s.inode,
            file: s.file.clone(),
            mutex: s.futex.filter(|f| class::is_mutex(*f)).and_then(|f| f.addr),
            may_be_condition: s.futex.is_some_and(class::may_be_condition),
            holder: s.holder.clone(),
        }
    }
}

/// What else is known, to tell waits apart that look the same from the thread.
pub trait Context {
    /// Whether the peer of the socket with this inode owes an answer.
    fn owed(&self, inode: u64) -> Owed;
    /// Whether this process has asynchronous requests in flight.
    fn has_requests(&self, pid: u32) -> Owed;
    /// Part of the time in which the quota of this cgroup, or of one above it, was used up, summed
    /// over CPUs.
    fn throttled(&self, cgroup: &str) -> f64;
}

/// Figures of the threads that both readings have.
#[must_use]
pub fn derive(
    before: &Stamped<WaitsSample>,
    now: &Stamped<WaitsSample>,
    context: &impl Context,
) -> WaitFigures {
    let dt = now.span.mid().since(before.span.mid());
    let old: HashMap<TaskId, &ThreadWaits> =
        before.data.threads.iter().map(|t| (t.task, t)).collect();
    // When all threads of a process begin to be looked at, the reading before has only some.
    let same = |pid: u32| before.data.is_whole(pid) == now.data.is_whole(pid);
    let new = now.data.threads.iter().filter(|t| same(t.task.pid));
    let pairs = new.filter_map(|t| Some((*old.get(&t.task)?, t)));
    let mut parts = Vec::new();
    WaitFigures {
        threads: pairs.map(|(old, new)| thread(old, new, dt, context, &mut parts)).collect(),
        asked: now.data.asked.clone(),
        queues: now.data.queues.clone(),
        everyone: now.data.everyone,
        gone: now.data.gone.clone(),
        unread: now.data.unread,
    }
}

/// A thread that so many samples did not find asleep did not sleep ...
const AWAKE: u32 = 5;
/// ... if its time on a CPU and waiting for one is nearly all: this is so much more than both.
const MISSING: f64 = 1.25;

fn thread(
    old: &ThreadWaits,
    new: &ThreadWaits,
    dt: Duration,
    context: &impl Context,
    parts: &mut Vec<Part>,
) -> ThreadFigures {
    let grown = |a: u64, b: u64| Duration::from_nanos(b.saturating_sub(a));
    let run = grown(old.run_ns, new.run_ns);
    let delay = old.run_delay_ns.zip(new.run_delay_ns);
    let delay = delay.map_or(Duration::ZERO, |(a, b)| grown(a, b));
    // Counters are brought up to date when the thread is switched: a stretch that began earlier
    // may end in this interval.
    let scale = ratio(dt.as_secs_f64(), (run + delay).as_secs_f64()).unwrap_or(1.0);
    // Of one that no sample found asleep, the stretch that is missing ends after the interval.
    let is_awake = new.sleeps.is_empty() && new.samples >= AWAKE;
    let scale = if is_awake && scale <= MISSING { scale } else { scale.min(1.0) };
    let (run, delay) = (run.mul_f64(scale), delay.mul_f64(scale));
    let user = run.mul_f64(user_share(old, new));
    let throttled = new.cgroup.as_deref().map_or(0.0, |c| context.throttled(c));
    let throttled = dt.mul_f64(throttled.max(0.0)).min(delay);
    for (class, time) in [
        (Class::User, user),
        (Class::Sys, run.saturating_sub(user)),
        (Class::RunQueue, delay.saturating_sub(throttled)),
        (Class::Throttled, throttled),
    ] {
        if !time.is_zero() {
            parts.push(Part { class, place: None, time });
        }
    }
    asleep(new, dt.saturating_sub(run + delay), context, parts);
    // With no room to spare: what is given back of a block that stays for minutes is a hole that the
    // next thread's does not fit into.
    let mut own = Vec::with_capacity(parts.len());
    own.append(parts);
    ThreadFigures {
        task: new.task,
        comm: new.comm.clone(),
        cgroup: new.cgroup.clone(),
        memory_cgroup: new.memory_cgroup.clone(),
        pids_cgroup: new.pids_cgroup.clone(),
        dt,
        samples: new.samples,
        parts: own,
    }
}

/// Part of the time on a CPU that it was in the program. Ticks are coarse: without one since the
/// reading before, as in all its life.
fn user_share(old: &ThreadWaits, new: &ThreadWaits) -> f64 {
    let share = |user: u64, sys: u64| ratio(user as f64, (user + sys) as f64);
    let (user, sys) = (new.utime.saturating_sub(old.utime), new.stime.saturating_sub(old.stime));
    share(user, sys).or_else(|| share(new.utime, new.stime)).unwrap_or(1.0)
}

/// Shares `rest` out by the samples that found it asleep; without one, nobody knows.
fn asleep(new: &ThreadWaits, rest: Duration, context: &impl Context, parts: &mut Vec<Part>) {
    if rest.is_zero() {
        return;
    }
    let all: u32 = new.sleeps.iter().map(|s| s.samples).sum();
    if all == 0 {
        parts.push(Part { class: Class::Other, place: None, time: rest });
    }
    for s in &new.sleeps {
        let class = class::class_of(s, |question| match question {
            Question::Socket(inode) => context.owed(inode),
            Question::Requests => context.has_requests(new.task.pid),
        });
        let time = rest.mul_f64(f64::from(s.samples) / f64::from(all));
        parts.push(Part { class, place: Some(Place::of(s)), time });
    }
}

/// The quota of a cgroup is that of those below it too: the largest part of those that a thread in
/// `cgroup` is under.
#[must_use]
pub fn throttled_above<'a>(cgroup: &str, groups: impl Iterator<Item = (&'a str, f64)>) -> f64 {
    let above = groups.filter(|(path, _)| is_within(cgroup, path));
    above.map(|(_, part)| part).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::time::{MonoNs, Span};

    struct Nothing;

    impl Context for Nothing {
        fn owed(&self, _: u64) -> Owed {
            None
        }
        fn has_requests(&self, _: u32) -> Owed {
            None
        }
        fn throttled(&self, cgroup: &str) -> f64 {
            if cgroup == "/limited" { 0.15 } else { 0.0 }
        }
    }

    fn stamped(at_ms: u64, threads: Vec<ThreadWaits>) -> Stamped<WaitsSample> {
        let at = MonoNs(at_ms * 1_000_000);
        let data = WaitsSample { threads, ..WaitsSample::default() };
        Stamped { span: Span::at(at), cpu: Duration::ZERO, data }
    }

    fn sleep(wchan: &str, samples: u32) -> Sleep {
        Sleep { state: 'S', wchan: Some(wchan.into()), samples, ..Sleep::default() }
    }

    fn one(old: ThreadWaits, new: ThreadWaits) -> ThreadFigures {
        let (before, now) = (stamped(1000, vec![old]), stamped(2000, vec![new]));
        derive(&before, &now, &Nothing).threads.remove(0)
    }

    fn ms(f: &ThreadFigures, class: Class) -> u128 {
        f.parts.iter().filter(|p| p.class == class).map(|p| p.time.as_millis()).sum()
    }

    /// 100 ms on a CPU, a quarter of them in the kernel, 200 ms waiting for one of which the quota
    /// took 150, and 700 asleep: 7 samples of 10 at a pipe.
    #[test]
    fn exact_times_come_first_and_samples_share_the_rest() {
        let old = ThreadWaits { run_delay_ns: Some(5), ..ThreadWaits::default() };
        let new = ThreadWaits {
            cgroup: Some("/limited".into()),
            run_ns: 100_000_000,
            run_delay_ns: Some(200_000_005),
            utime: 6,
            stime: 2,
            samples: 11,
            sleeps: vec![sleep("pipe_read", 7), sleep("ep_poll", 3)],
            ..ThreadWaits::default()
        };
        let f = one(old, new);
        for (class, want) in [
            (Class::User, 75),
            (Class::Sys, 25),
            (Class::RunQueue, 50),
            (Class::Throttled, 150),
            (Class::Peer, 490),
            (Class::Idle, 210),
            (Class::Other, 0),
        ] {
            assert_eq!(ms(&f, class), want, "{class}");
        }
        let sum: Duration = f.parts.iter().map(|p| p.time).sum();
        assert!(sum.abs_diff(f.dt) < Duration::from_micros(1), "{sum:?}");
        assert_eq!(f.parts.capacity(), f.parts.len(), "thousands of them stay for minutes");
    }

    #[test]
    fn more_than_the_interval_is_cut_to_it() {
        let new = ThreadWaits {
            run_ns: 900_000_000,
            run_delay_ns: Some(900_000_000),
            ..ThreadWaits::default()
        };
        let f = one(ThreadWaits { run_delay_ns: Some(0), ..ThreadWaits::default() }, new);
        assert_eq!((ms(&f, Class::User), ms(&f, Class::RunQueue)), (500, 500));
    }

    #[test]
    fn who_was_never_found_asleep_ran_or_waited_to() {
        let of = |run_ms: u64, samples| {
            let run_ns = run_ms * 1_000_000;
            let new = ThreadWaits {
                run_ns,
                run_delay_ns: Some(2 * run_ns),
                samples,
                ..ThreadWaits::default()
            };
            let f = one(ThreadWaits { run_delay_ns: Some(0), ..ThreadWaits::default() }, new);
            (ms(&f, Class::User), ms(&f, Class::RunQueue), ms(&f, Class::Other))
        };
        assert_eq!(of(300, 10), (333, 666, 0), "100 ms are not accounted for yet");
        assert_eq!(of(300, 4), (300, 600, 100));
        assert_eq!(of(200, 10), (200, 400, 400), "it slept between the samples");
    }

    #[test]
    fn what_no_sample_found_is_other() {
        let f = one(ThreadWaits::default(), ThreadWaits::default());
        assert_eq!(ms(&f, Class::Other), 1000);
    }

    #[test]
    fn a_process_that_is_only_now_looked_at_whole_has_no_figures_yet() {
        let thread = |pid| ThreadWaits {
            task: TaskId { pid, tid: pid, start: 1 },
            ..ThreadWaits::default()
        };
        let of = |asked: Vec<u32>, queues: Vec<u32>| {
            let mut s = stamped(1000, vec![thread(7), thread(8), thread(9)]);
            (s.data.everyone, s.data.asked, s.data.queues) = (true, asked, queues);
            s
        };
        let pids = |before: &Stamped<WaitsSample>, now: &Stamped<WaitsSample>| {
            let f = derive(before, now, &Nothing);
            assert!(f.is_asked(7) && f.is_whole(8) && !f.is_asked(8) && !f.is_whole(9));
            f.threads.iter().map(|t| t.task.pid).collect::<Vec<_>>()
        };
        let whole = of(vec![7], vec![8]);
        assert_eq!(pids(&of(vec![], vec![]), &whole), [9]);
        assert_eq!(pids(&of(vec![7], vec![]), &whole), [7, 9]);
        assert_eq!(pids(&of(vec![7, 8], vec![]), &whole), [7, 8, 9]);
    }

    #[test]
    fn the_tightest_quota_above_counts() {
        let groups = [("/a", 0.1), ("/a/b", 0.3), ("/ab", 0.9), ("/", 0.05)];
        assert_eq!(throttled_above("/a/b/c", groups.into_iter()), 0.3);
        assert_eq!(throttled_above("/c", groups.into_iter()), 0.05);
        assert_eq!(throttled_above("/c", std::iter::empty()), 0.0);
    }
}
