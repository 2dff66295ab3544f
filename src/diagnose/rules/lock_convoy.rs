//! `lock-convoy`: the threads of a process queue for one lock.

use std::collections::BTreeMap;
use std::fmt;

use super::common::largest::largest;
use super::common::text::count;
use crate::diagnose::culprit::Culprit;
use crate::diagnose::rules::prelude::*;
use crate::metrics::rate::ratio;
use crate::metrics::waits::{Class, Part, ThreadFigures, is_file_lock};
use crate::sample::subject::NetnsId;
use crate::sample::waits::Holder;

/// Minimum number of threads that wait for the same lock.
const THREADS: usize = 4;
/// Part of its time that a thread waits for it.
const WAITING: f64 = 0.5;
/// A thread that is idle for a larger part than this takes no part.
const IDLE: f64 = 0.9;
/// CPUs that the process uses at most: with more, it gets on.
const RUNS: f64 = 1.5;
/// Below this nothing runs at all: it is a deadlock, or nobody has anything to do.
const NOTHING: f64 = 0.02;
/// System calls in which threads wait for work in turn, with a lock held.
const TURNS: [&str; 8] =
    ["accept", "accept4", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select"];
/// Maximum number of threads that a finding names, and that it marks.
const NAMED: usize = 3;
const MARKED: usize = 1000;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("lock-convoy"),
    title: "the threads of a process queue for one lock",
    condition: "4 or more threads of a process, and more than half of those that are not idle, \
        wait for the same mutex or in the same lock function of the kernel for half of their time \
        or longer, while the process uses less than 1.5 CPUs; for 4 of 5 s. Judges all processes \
        where eBPF can be used, and otherwise those whose threads are watched, by `stallscope why` \
        or by an open page of the console.",
    look_alikes: "Workers that wait for work: a condition variable is no mutex (its futex expects \
        another value; Rust's looks like a mutex after two notifications, but then none of its \
        threads runs). Workers that take turns to accept or poll with a lock held: nothing runs, \
        and one of them is in accept or poll. Short locks on many CPUs: threads wait less than \
        half of their time. Not seen are locks of Java and Go, which wait as condition variables \
        do, mutexes of Rust that are held for seconds, and most locks of the kernel, which wchan \
        leaves out.",
    remedy: "More threads or CPUs make it worse. The stacks show the lock and who holds it: do less \
        under it (no I/O, no logging), split it, or use fewer threads.",
    sources: "/proc/PID/task/TID/{syscall,wchan,stack,schedstat}, ten samples a second; a walk over \
        all threads in the kernel (iter/task) finds the processes to look at; /proc/locks has who \
        holds the lock of a file. A contended mutex of glibc, musl and Rust waits for the value 2. \
        Measured on 6.18: 16 threads that hold one mutex for 1 ms each wait for it 90% of their time at 1.0 CPUs, and 97% at 0.04 \
        CPUs if they sleep under it; with 20 us under it and 1 ms outside they wait 1% of it.",
    hold: Hold::of(4, 5),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Waits], explains: &[], check };

/// What threads wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lock<'a> {
    /// By its address in the memory of the process.
    Mutex(u64),
    /// A lock of the kernel, by the function that waits for it.
    Kernel(&'a str),
}

impl fmt::Display for Lock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mutex(address) => write!(f, "the mutex at {address:#x}"),
            Self::Kernel(function) => write!(f, "a lock of the kernel ({function})"),
        }
    }
}

impl<'a> Lock<'a> {
    fn of(part: &'a Part) -> Option<Self> {
        let place = part.place.as_ref().filter(|_| part.class == Class::Lock)?;
        if let Some(address) = place.mutex {
            return Some(Self::Mutex(address));
        }
        // A futex whose address was not noted is one of many.
        let is_futex = place.syscall.as_deref() == Some("futex");
        place.wchan.as_deref().filter(|_| !is_futex).map(Self::Kernel)
    }
}

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    // Without eBPF nobody is watched unless somebody asks: that is no blind spot of a box.
    let Some(figures) = w.derived.waits.as_deref() else { return };
    let mut processes: BTreeMap<u32, Vec<&ThreadFigures>> = BTreeMap::new();
    // Of a process of which only some threads are known, the others may do the work, or take turns.
    for t in figures.threads.iter().filter(|t| figures.is_whole(t.task.pid)) {
        processes.entry(t.task.pid).or_default().push(t);
    }
    for (pid, threads) in processes {
        if let Some(convoy) = convoy(&threads) {
            let main = threads.iter().find(|t| t.task.tid == pid);
            let comm = main.or(threads.first()).map_or_else(String::new, |t| t.comm.clone());
            let fire = fire(pid, &comm, &convoy);
            out.fire(Subject::Process { pid, comm, netns: NetnsId(0) }, fire);
        }
    }
}

/// Is what it waits for perhaps no mutex?
fn may_be_condition(t: &ThreadFigures) -> bool {
    t.parts.iter().filter_map(|p| p.place.as_ref()).any(|p| p.may_be_condition)
}

/// Threads that wait for one lock.
struct Convoy<'a> {
    lock: Lock<'a>,
    /// Each with the part of its time that it waits, longest first.
    waiting: Vec<(&'a ThreadFigures, f64)>,
    /// Threads that are not idle.
    active: usize,
    /// CPUs that the process uses.
    runs: f64,
}

fn convoy<'a>(threads: &[&'a ThreadFigures]) -> Option<Convoy<'a>> {
    let mut locks: BTreeMap<Lock<'a>, Vec<(&ThreadFigures, f64)>> = BTreeMap::new();
    for t in threads {
        let mut own: BTreeMap<Lock<'_>, f64> = BTreeMap::new();
        for (lock, part) in t.parts.iter().filter_map(|p| Some((Lock::of(p)?, p))) {
            *own.entry(lock).or_default() += part_of(t, part.time);
        }
        for (lock, part) in own.into_iter().filter(|(_, part)| *part >= WAITING) {
            locks.entry(lock).or_default().push((t, part));
        }
    }
    let (lock, mut waiting) = locks.into_iter().max_by_key(|(_, all)| all.len())?;
    let active = threads.iter().filter(|t| time_in(t, |c| c == Class::Idle) <= IDLE).count();
    let runs: f64 =
        threads.iter().map(|t| time_in(t, |c| matches!(c, Class::User | Class::Sys))).sum();
    // Threads of a queue run in turn; those that a condition variable holds may not for hours.
    let may_be_idle = |(t, _): &(&ThreadFigures, f64)| {
        may_be_condition(t) && time_in(t, |c| matches!(c, Class::User | Class::Sys)) <= 0.0
    };
    if waiting.iter().all(may_be_idle) {
        return None;
    }
    let queue = waiting.len() >= THREADS && 2 * waiting.len() > active && runs < RUNS;
    if !queue || runs < NOTHING && threads.iter().any(|t| takes_its_turn(t)) {
        return None;
    }
    waiting.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.task.cmp(&b.0.task)));
    Some(Convoy { lock, waiting, active, runs })
}

impl Convoy<'_> {
    /// `waiting in: mmap 9, munmap 3`: what those who wait for a lock of the kernel asked it for.
    fn by_call(&self) -> Option<String> {
        let mut calls: BTreeMap<&str, usize> = BTreeMap::new();
        for (t, _) in &self.waiting {
            let here = t.parts.iter().filter(|p| Lock::of(p) == Some(self.lock));
            let most = here.max_by_key(|p| p.time).and_then(|p| p.place.as_ref());
            let Some(call) = most.and_then(|p| p.syscall.as_deref()) else { continue };
            *calls.entry(call).or_default() += 1;
        }
        let mut all: Vec<_> = calls.into_iter().filter(|(call, _)| *call != "futex").collect();
        all.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let text: Vec<String> =
            all.iter().take(NAMED).map(|(call, n)| format!("{call} {n}")).collect();
        (!text.is_empty())
            .then(|| format!("threads that wait, by system call: {}", text.join(", ")))
    }

    /// Who holds it, where the kernel tells.
    fn holders(&self) -> Vec<Culprit> {
        let parts = self.waiting.iter().flat_map(|(t, _)| &t.parts);
        let mut held: BTreeMap<&Holder, f64> = BTreeMap::new();
        let mut whole = 0.0;
        for part in parts.filter(|p| Lock::of(p) == Some(self.lock)) {
            whole += part.time.as_secs_f64();
            if let Some(h) = part.place.as_ref().and_then(|p| p.holder.as_ref()) {
                *held.entry(h).or_default() += part.time.as_secs_f64();
            }
        }
        let culprit =
            |(h, share): (&Holder, _)| Culprit::process(h.pid, Some(h.comm.clone()), None, share);
        let named = largest(held.into_iter().collect(), whole, &Resource::LockWait);
        named.into_iter().map(culprit).collect()
    }
}

fn part_of(t: &ThreadFigures, time: Duration) -> f64 {
    ratio(time.as_secs_f64(), t.dt.as_secs_f64()).unwrap_or(0.0)
}

fn time_in(t: &ThreadFigures, which: impl Fn(Class) -> bool) -> f64 {
    t.parts.iter().filter(|p| which(p.class)).map(|p| part_of(t, p.time)).sum()
}

/// Does it wait for work, as the one that holds the lock may?
fn takes_its_turn(t: &ThreadFigures) -> bool {
    let places = t.parts.iter().filter_map(|p| p.place.as_ref());
    places.filter_map(|p| p.syscall.as_deref()).any(|call| TURNS.contains(&call))
}

fn fire(pid: u32, comm: &str, c: &Convoy<'_>) -> Fire {
    let n = c.waiting.len();
    let mean = 100.0 * c.waiting.iter().map(|w| w.1).sum::<f64>() / n.max(1) as f64;
    let mut f = Fire::new(
        Severity::Warn,
        format!(
            "{n} of {} busy threads of {comm}/{pid} wait for {} for {mean:.0}% of their time, \
             while {:.2} CPUs are used",
            c.active, c.lock, c.runs
        ),
    );
    f.count = u32::try_from(n).unwrap_or(u32::MAX);
    let name = |(t, _): &(&ThreadFigures, f64)| format!("{}/{}", t.comm, t.task.tid);
    f.examples = c.waiting.iter().take(NAMED).map(name).collect();
    f.tasks = c.waiting.iter().take(MARKED).map(|(t, _)| t.task).collect();
    let text = format!("{} wait for {}", count(n, "thread"), c.lock);
    f.evidence.push(Evidence::new("waiting", n as f64, "", text).over(THREADS as f64));
    let text = format!("each for {mean:.0}% of its time");
    f.evidence.push(Evidence::new("lock", mean, "%", text).over(100.0 * WAITING));
    let text = format!("the process uses {:.2} CPUs", c.runs);
    f.evidence.push(Evidence::new("run", c.runs, "CPUs", text).over(RUNS));
    if c.runs < NOTHING {
        f.missing.push("whether it is a deadlock: nothing of it runs".to_owned());
    }
    let because = match c.lock {
        Lock::Mutex(_) => "the futex expects the value of a contended mutex",
        Lock::Kernel(_) => "the function waits for a lock",
    };
    f.ruled_out.push(RuledOut::new("idle-workers", because));
    let is_file_lock = matches!(c.lock, Lock::Kernel(function) if is_file_lock(function));
    if let Some(text) = c.by_call() {
        f.evidence.push(Evidence::text("calls", text));
    }
    f.next.push(format!("stallscope why {pid}"));
    f.by = c.holders();
    if let Some(pid) = f.by.iter().find_map(|c| c.who.pid()) {
        f.next.push(format!("stallscope why {pid}"));
    } else if is_file_lock {
        f.missing.push("who holds it: lslocks names the blocker".to_owned());
        f.next.push("lslocks -o PID,COMMAND,TYPE,MODE,BLOCKER,PATH".to_owned());
    } else {
        f.missing.push("who holds it: see the stacks".to_owned());
    }
    f.next.push(format!("gdb -p {pid} -batch -ex 'thread apply all bt'"));
    f.next.push(match c.lock {
        Lock::Mutex(_) => format!("grep . /proc/{pid}/task/*/wchan | cut -d: -f2 | sort | uniq -c"),
        Lock::Kernel(_) => {
            format!("grep . /proc/{pid}/task/*/stack | cut -d: -f2 | sort | uniq -c")
        }
    });
    f
}
