//! What threads do with their time, by samples: of the processes that somebody asked about, every
//! thread is looked at several times a second, and what it sleeps in is counted. Of the others,
//! where eBPF can be had, those threads that do more than wait for work.
//!
//! From `/proc/PID/task/TID/{schedstat,stat,wchan,stack,syscall}`, and from a walk over all threads
//! in the kernel. Time on a CPU and waiting for one is exact; what is left of a second is shared
//! out by the samples.

use serde::{Deserialize, Serialize};

use super::heap::{flat, owns};
use super::subject::TaskId;

/// What was seen since the reading before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitsSample {
    /// Threads of the processes that somebody asked about, and of others those that do not only
    /// wait for work; by process and thread.
    pub threads: Vec<ThreadWaits>,
    /// Processes that somebody asked about: all of their threads are here.
    pub asked: Vec<u32>,
    /// Others of which all threads are here, because some of them queue for a mutex.
    pub queues: Vec<u32>,
    /// Every process of the host was looked at. False: none but those that somebody asked about.
    pub everyone: bool,
    /// Of these processes, the ones that have ended or cannot be read.
    pub gone: Vec<u32>,
    /// Threads that were left out because there are too many.
    pub unread: u32,
}
owns!(WaitsSample { threads, asked, queues, gone } flat { everyone, unread });

impl WaitsSample {
    /// Are all threads of this process here? Of others, only those are that do not just wait for
    /// work.
    #[must_use]
    pub fn is_whole(&self, pid: u32) -> bool {
        !self.everyone || self.asked.contains(&pid) || self.queues.contains(&pid)
    }
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadWaits {
    /// The thread.
    pub task: TaskId,
    /// Its `comm`, raw.
    pub comm: String,
    /// Path in the cpu controller's hierarchy (v1) or the unified one.
    pub cgroup: Option<String>,
    /// The same in the hierarchy that limits memory, where that is another path (v1).
    pub memory_cgroup: Option<String>,
    /// The same of the number of tasks.
    pub pids_cgroup: Option<String>,
    /// ns on a CPU since it began.
    pub run_ns: u64,
    /// ns that it waited for a CPU since it began, throttled time included. `None`: not counted
    /// (CONFIG_SCHED_INFO is off).
    pub run_delay_ns: Option<u64>,
    /// Clock ticks in user mode since it began.
    pub utime: u64,
    /// Clock ticks in the kernel since it began.
    pub stime: u64,
    /// Samples since the reading before, those that found it running or runnable included.
    pub samples: u32,
    /// What it was found to sleep in.
    pub sleeps: Vec<Sleep>,
}
owns!(ThreadWaits { comm, cgroup, memory_cgroup, pids_cgroup, sleeps } flat {
    task, run_ns, run_delay_ns, utime, stime, samples
});

/// Sleeping in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sleep {
    /// State letter of `/proc/PID/stat`: S, D, T, t, I.
    pub state: char,
    /// Function of the kernel that it sleeps in: `/proc/PID/wchan`, or where that is a helper for
    /// waiting of any kind, who called it. `None`: not readable.
    pub wchan: Option<String>,
    /// System call, by name. `None`: none, not readable, or one that this program does not know.
    pub syscall: Option<String>,
    /// For a futex: operation, expected value, and where it is.
    pub futex: Option<Futex>,
    /// Inode of the socket or pipe that the call is about.
    pub inode: Option<u64>,
    /// What its descriptor is: a path, `socket`, `pipe`, `[eventpoll]`.
    pub file: Option<String>,
    /// Who held the lock of a file that its process waited for at the end of the reading, by
    /// `/proc/locks`. `None`: it waits for something else, or nobody of this PID namespace is told.
    pub holder: Option<Holder>,
    /// Samples that found it here.
    pub samples: u32,
}
owns!(Sleep { wchan, syscall, file, holder } flat { state, futex, inode, samples });

/// A process that holds a lock of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Its `comm`, raw.
    pub comm: String,
}
owns!(Holder { comm } flat { pid });

/// Arguments of the system call `futex`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Futex {
    /// The second argument.
    pub op: u32,
    /// The third one.
    pub val: u32,
    /// The first one: its address in the memory of the process. `None`: not noted in this recording.
    pub addr: Option<u64>,
}
flat!(Futex);
