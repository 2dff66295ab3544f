//! Why is a process slow? Adds up where the time of its threads went, joins it to the findings of
//! the same moment, and says it in one sentence.

mod account;
mod join;
mod limits;
mod words;

use std::sync::Arc;
use std::time::Duration;

pub use account::{Account, Meant, ThreadAccount};
pub use join::Known;
pub use limits::{Bound, Limit, Limited};

use super::Finding;
use crate::metrics::rate::ratio;
use crate::metrics::waits::{Class, Place};
use crate::sample::subject::TaskId;

/// Samples below which shares of sleeping time are rough.
pub const FEW_SAMPLES: u32 = 20;
/// Places that are listed.
const MOST_PLACES: usize = 8;
/// Threads that are listed.
const MOST_THREADS: usize = 10;
/// Part of the time from which a place is worth a line.
const WORTH_A_LINE: f64 = 0.005;

/// The answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// In one sentence, or two.
    pub conclusion: String,
    /// Whose time it is.
    pub processes: Vec<Process>,
    /// Threads of them that were seen.
    pub threads: usize,
    /// Their time, summed up.
    pub time: Duration,
    /// Samples of the thread that has the most.
    pub samples: u32,
    /// By class, in the order of [`Class::ALL`]; together all of the time.
    pub classes: Vec<(Class, Duration)>,
    /// Where most of the time that is not idle goes, worst first.
    pub places: Vec<PlaceShare>,
    /// Threads, those that wait most first.
    pub worst: Vec<ThreadShare>,
    /// What may hold it back: one line at least for each kind of limit.
    pub limits: Vec<Limit>,
    /// Findings that explain a wait.
    pub findings: Vec<Arc<Finding>>,
    /// Commands to run next.
    pub next: Vec<String>,
    /// What could not be told, and why.
    pub missing: Vec<String>,
}

/// A process that was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// `comm` of its first thread, raw.
    pub comm: String,
}

/// Time in one place.
#[derive(Clone, Debug)]
pub struct PlaceShare {
    /// Of which kind.
    pub class: Class,
    /// What it is about: `recvfrom on 10.0.0.1:4711 > 10.0.0.2:5432`.
    pub what: String,
    /// Function of the kernel.
    pub wchan: Option<String>,
    /// How long, summed over threads.
    pub time: Duration,
    /// The prefix for a command about its socket, where that is in another network namespace.
    pub enter: Option<String>,
    /// The process that holds the lock of a file.
    pub holder: Option<u32>,
    /// The finding that explains it.
    pub finding: Option<Arc<Finding>>,
}

/// Time of one thread.
#[derive(Clone, Debug)]
pub struct ThreadShare {
    /// The thread.
    pub task: TaskId,
    /// Its `comm`, raw.
    pub comm: String,
    /// Its time.
    pub time: Duration,
    /// By class, in the order of [`Class::ALL`].
    pub classes: Vec<(Class, Duration)>,
    /// What it does most beside being idle.
    pub what: String,
}

impl Answer {
    /// From what was added up, and what else is known.
    #[must_use]
    pub fn of(account: &Account, known: &Known<'_>) -> Self {
        let mut out = Self {
            processes: account.processes(),
            threads: account.threads().count(),
            time: account.threads().map(|t| t.time).sum(),
            samples: account.threads().map(|t| t.samples).max().unwrap_or(0),
            classes: by_class(account.threads()),
            worst: worst(account, known),
            limits: known.window.map_or_else(Vec::new, |w| limits::limits(account, &w)),
            ..Self::default()
        };
        out.places = places(account, known);
        for f in out.places.iter().filter_map(|p| p.finding.as_ref()) {
            if !out.findings.iter().any(|o| Arc::ptr_eq(o, f)) {
                out.findings.push(f.clone());
            }
        }
        out.missing = missing(account, &out);
        out.conclusion = words::conclusion(&out);
        out.next = words::next(&out);
        if let &[Process { pid, .. }] = out.processes.as_slice() {
            out.say_if_over(account, pid);
        }
        out.places.retain(|p| out.time.mul_f64(WORTH_A_LINE) <= p.time);
        out.places.truncate(MOST_PLACES);
        out
    }

    /// What is there now must not be taken for what has ended.
    fn say_if_over(&mut self, account: &Account, pid: u32) {
        if let Some(comm) = account.successor(pid) {
            let now = format!(" It has ended; pid {pid} is another process now, {comm}.");
            self.conclusion.push_str(&now);
            self.missing.push("what its limits were: it has ended".to_owned());
            self.next = vec![format!("stallscope why {pid}  # the process that has the pid now")];
            self.limits = Vec::new();
        } else if account.gone.contains(&pid) {
            self.conclusion.push_str(" It has ended, or cannot be read any more.");
            // They are looked up by the number, which may be another one's already.
            self.missing.push("what its limits were: it cannot be read any more".to_owned());
            self.limits = Vec::new();
            self.next = Vec::new();
        }
    }

    /// Time of a class.
    #[must_use]
    pub fn time_of(&self, class: Class) -> Duration {
        self.classes.iter().find(|c| c.0 == class).map_or(Duration::ZERO, |c| c.1)
    }

    /// Part of all the time, 0 to 1.
    #[must_use]
    pub fn share(&self, time: Duration) -> f64 {
        ratio(time.as_secs_f64(), self.time.as_secs_f64()).unwrap_or(0.0)
    }
}

impl ThreadShare {
    /// Time that it was not idle.
    fn awake(&self) -> Duration {
        let idle = self.classes.iter().find(|c| c.0 == Class::Idle);
        self.time.saturating_sub(idle.map_or(Duration::ZERO, |c| c.1))
    }

    /// Part of its time, 0 to 1.
    #[must_use]
    pub fn share(&self, time: Duration) -> f64 {
        ratio(time.as_secs_f64(), self.time.as_secs_f64()).unwrap_or(0.0)
    }

    /// How busy it is: the part of its time that it was not idle, 0 to 1.
    #[must_use]
    pub fn busy(&self) -> f64 {
        self.share(self.awake())
    }
}

fn by_class<'a>(threads: impl Iterator<Item = &'a ThreadAccount>) -> Vec<(Class, Duration)> {
    let mut sums = Class::ALL.map(|c| (c, Duration::ZERO));
    for ((class, _), time) in threads.flat_map(|t| &t.parts) {
        if let Some(sum) = sums.iter_mut().find(|s| s.0 == *class) {
            sum.1 += *time;
        }
    }
    sums.into_iter().filter(|s| !s.1.is_zero()).collect()
}

/// Every kind of time but idleness, by place, summed over threads.
fn places(account: &Account, known: &Known<'_>) -> Vec<PlaceShare> {
    let mut sums: Vec<(Class, Option<&Place>, Option<&str>, Duration)> = Vec::new();
    for t in account.threads() {
        for ((class, place), time) in t.parts.iter().filter(|p| p.0.0 != Class::Idle) {
            // A quota is that of a cgroup, everything else means the same whoever waits.
            let cgroup = t.cgroup.as_deref().filter(|_| *class == Class::Throttled);
            let key = (*class, place.as_ref(), cgroup);
            match sums.iter_mut().find(|s| (s.0, s.1, s.2) == key) {
                Some(sum) => sum.3 += *time,
                None => sums.push((key.0, key.1, key.2, *time)),
            }
        }
    }
    sums.sort_by_key(|s| std::cmp::Reverse(s.3));
    let line = |(class, place, cgroup, time): (Class, Option<&Place>, Option<&str>, Duration)| {
        PlaceShare {
            class,
            what: words::what(class, place, cgroup, known),
            wchan: place.and_then(|p| p.wchan.clone()),
            time,
            enter: place.and_then(|p| known.enter(p.inode?)),
            holder: place.and_then(|p| Some(p.holder.as_ref()?.pid)),
            finding: known.finding(class, place, cgroup, account),
        }
    };
    sums.into_iter().map(line).collect()
}

fn worst(account: &Account, known: &Known<'_>) -> Vec<ThreadShare> {
    let row = |t: &ThreadAccount| {
        let busy = t.parts.iter().filter(|p| p.0.0 != Class::Idle);
        let most = busy.max_by_key(|p| p.1).or_else(|| t.parts.iter().max_by_key(|p| p.1));
        ThreadShare {
            task: t.task,
            comm: t.comm.clone(),
            time: t.time,
            classes: by_class(std::iter::once(t)),
            what: most.map_or_else(String::new, |((class, place), _)| {
                words::what(*class, place.as_ref(), t.cgroup.as_deref(), known)
            }),
        }
    };
    let mut rows: Vec<ThreadShare> = account.threads().map(row).collect();
    rows.sort_by_key(|t| (std::cmp::Reverse(t.awake()), t.task));
    rows.truncate(MOST_THREADS);
    rows
}

fn missing(account: &Account, a: &Answer) -> Vec<String> {
    let mut out = Vec::new();
    if a.threads > 0 && a.samples < FEW_SAMPLES {
        let samples = words::counted(a.samples as usize, "sample");
        out.push(format!("how sleeping time divides is rough: {samples} per thread"));
    }
    if account.unread > 0 {
        out.push(format!("{} more threads are too many to watch", account.unread));
    }
    if account.is_partial {
        out.push("its threads that are idle: nobody asked about it at the time".to_owned());
    }
    let hidden = a.places.iter().find(|p| p.class == Class::Other && p.wchan.is_none());
    if hidden.is_some_and(|p| a.share(p.time) >= WORTH_A_LINE) {
        out.push("what it sleeps in: wchan and syscall were not readable, or gone".to_owned());
    }
    out
}

#[cfg(test)]
mod tests;
