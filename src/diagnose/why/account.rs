//! Adds up the time of threads over many ticks.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Process;
use crate::metrics::waits::{Class, Part, Place, ThreadFigures, WaitFigures};
use crate::sample::subject::TaskId;

/// Places that are kept apart per thread; what is beyond is summed up by class. A thread that reads
/// from thousands of sockets in turn has as many.
const MOST_PLACES: usize = 64;

/// Which process is meant where two had the same number, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Meant {
    /// The one that somebody asked about.
    #[default]
    First,
    /// The one that is there now.
    Last,
}

/// Where the time of threads went so far.
#[derive(Clone, Debug, Default)]
pub struct Account {
    threads: BTreeMap<TaskId, ThreadAccount>,
    /// Threads that are too many to watch, at most.
    pub unread: u32,
    /// Some of these processes nobody asked about: threads that only wait for work are not here.
    pub is_partial: bool,
    /// Processes that were asked about and are gone, as of the last figures.
    pub gone: Vec<u32>,
    meant: Meant,
    /// When each process began.
    began: BTreeMap<u32, u64>,
    /// Processes that came to the number of another one: when they began, and their name.
    successors: BTreeMap<u32, (u64, String)>,
}

/// One thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadAccount {
    /// The thread.
    pub task: TaskId,
    /// Its `comm` at last, raw.
    pub comm: String,
    /// Its cgroup at last.
    pub cgroup: Option<String>,
    /// That of its memory, where it is another one.
    pub memory_cgroup: Option<String>,
    /// That of its number among others, where it is another one.
    pub pids_cgroup: Option<String>,
    /// All of its time.
    pub time: Duration,
    /// Samples of it.
    pub samples: u32,
    /// Its time by class and place.
    pub parts: BTreeMap<(Class, Option<Place>), Duration>,
}

impl ThreadAccount {
    fn add(&mut self, part: &Part) {
        let key = (part.class, part.place.clone());
        let has_room = self.parts.len() < MOST_PLACES || self.parts.contains_key(&key);
        let (class, place) = if has_room { key } else { (part.class, None) };
        // Whether an answer is owed is known some ticks after the socket was first asked about: until
        // then it was no other wait.
        let is_socket = place.as_ref().is_some_and(|p| p.inode.is_some());
        let unclear = if is_socket && class != Class::Other {
            self.parts.remove(&(Class::Other, place.clone())).unwrap_or_default()
        } else {
            Duration::ZERO
        };
        *self.parts.entry((class, place)).or_default() += part.time + unclear;
    }
}

impl Account {
    /// Nothing yet, of these processes.
    #[must_use]
    pub fn of(meant: Meant) -> Self {
        Self { meant, ..Self::default() }
    }

    /// Notes which processes came to the number of another one.
    fn note_successors<'a>(&mut self, threads: impl Iterator<Item = &'a ThreadFigures>) {
        for t in threads {
            let TaskId { pid, tid, start } = t.task;
            let began = self.began.entry(pid).or_insert(start);
            // The first thread of a process has its number, and is older than all others.
            if *began >= start || tid != pid {
                *began = start.min(*began);
                continue;
            }
            match self.meant {
                Meant::First => {
                    self.successors.insert(pid, (start, t.comm.clone()));
                }
                Meant::Last => {
                    *began = start;
                    self.threads.retain(|task, _| task.pid != pid || task.start >= start);
                }
            }
        }
    }

    fn is_meant(&self, task: TaskId) -> bool {
        match self.meant {
            Meant::First => self.successors.get(&task.pid).is_none_or(|s| task.start < s.0),
            Meant::Last => self.began.get(&task.pid).is_none_or(|began| task.start >= *began),
        }
    }

    /// The name of the process that has this number now, if that is another one than is meant.
    #[must_use]
    pub fn successor(&self, pid: u32) -> Option<&str> {
        self.successors.get(&pid).map(|s| s.1.as_str())
    }

    /// Adds the figures of one tick, of the processes that are `wanted`. False: there are none.
    pub fn push(&mut self, figures: &WaitFigures, wanted: impl Fn(u32) -> bool) -> bool {
        let mut is_there = false;
        self.unread = self.unread.max(figures.unread);
        self.gone.clone_from(&figures.gone);
        self.note_successors(figures.threads.iter().filter(|t| wanted(t.task.pid)));
        for t in figures.threads.iter().filter(|t| wanted(t.task.pid)) {
            if !self.is_meant(t.task) {
                continue;
            }
            is_there = true;
            self.is_partial |= !figures.is_whole(t.task.pid);
            let sum = self.threads.entry(t.task).or_default();
            sum.task = t.task;
            sum.comm.clone_from(&t.comm);
            sum.cgroup.clone_from(&t.cgroup);
            sum.memory_cgroup.clone_from(&t.memory_cgroup);
            sum.pids_cgroup.clone_from(&t.pids_cgroup);
            sum.time += t.dt;
            sum.samples += t.samples;
            for part in &t.parts {
                sum.add(part);
            }
        }
        is_there
    }

    /// Nothing yet?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// The threads, by process.
    pub fn threads(&self) -> impl Iterator<Item = &ThreadAccount> {
        self.threads.values()
    }

    /// Whose threads they are.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        let mut out: Vec<Process> = Vec::new();
        for t in self.threads.values() {
            let TaskId { pid, tid, .. } = t.task;
            match out.last_mut().filter(|p| p.pid == pid) {
                // The first thread of a process has its number.
                Some(p) if tid == pid => p.comm.clone_from(&t.comm),
                Some(_) => {}
                None => out.push(Process { pid, comm: t.comm.clone() }),
            }
        }
        out
    }
}
