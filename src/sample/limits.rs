//! Limits that count things: open files of a process, threads and open files of the host.

use serde::{Deserialize, Serialize};

use super::heap::owns;

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsSample {
    /// `kernel.pid_max`: threads have numbers below it.
    pub pid_max: Option<u64>,
    /// `kernel.threads-max`.
    pub threads_max: Option<u64>,
    /// This kernel counts descriptors.
    pub counts_files: bool,
    /// Processes that have used up most of their descriptors, and those that somebody asked about,
    /// at most 64.
    pub processes: Vec<OpenFiles>,
    /// Whose the tasks of the host are, while there are nearly as many as there may be.
    pub tasks: Option<TaskOwners>,
}
owns!(LimitsSample { processes, tasks } flat { pid_max, threads_max, counts_files });

/// Whose tasks are close to a limit: `/proc/PID/stat` of processes, as far as the budget went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskOwners {
    /// Tasks of the processes that were read.
    pub read: u32,
    /// The processes with most of them, at most 8.
    pub owners: Vec<TaskOwner>,
}
owns!(TaskOwners { owners } flat { read });

/// A process, and the tasks that are there because of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskOwner {
    /// Process id.
    pub pid: u32,
    /// Its `comm`, raw.
    pub comm: String,
    /// Its threads.
    pub threads: u32,
    /// Its children that have one thread, zombies among them.
    pub children: u32,
    /// Of these, the zombies: it has not waited for them.
    pub zombies: u32,
}
owns!(TaskOwner { comm } flat { pid, threads, children, zombies });

impl TaskOwner {
    /// All of them.
    #[must_use]
    pub fn tasks(&self) -> u32 {
        self.threads.saturating_add(self.children)
    }
}

/// Descriptors of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenFiles {
    /// Process id.
    pub pid: u32,
    /// Its `comm`, raw.
    pub comm: String,
    /// Open descriptors.
    pub open: u64,
    /// The soft limit of `RLIMIT_NOFILE`: the kernel refuses what is beyond.
    pub soft: u64,
    /// The hard limit, which the process may raise the soft one to.
    pub hard: Option<u64>,
}
owns!(OpenFiles { comm } flat { pid, open, soft, hard });
