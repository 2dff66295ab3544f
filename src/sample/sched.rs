//! Waiting for a CPU, as the scheduler counts it.
//!
//! `run_delay` includes time throttled by CFS bandwidth control, so threads that wait much carry
//! their cgroup, whose `cpu.stat` tells the two apart. Since 6.12 it may hold sleep as well: a
//! thread that falls asleep stays queued for a while, and when it is moved to another CPU in that
//! time, it counts as waiting until it wakes (1.7 % of the sleeps of 40 threads on an overloaded
//! 6.18). Nothing in the file tells; eBPF does.

use serde::{Deserialize, Serialize};

use super::heap::{flat, owns};
use super::subject::{CpuId, TaskId};

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedSample {
    /// `/proc/loadavg`: 1, 5, 15 minutes.
    pub load: Option<[f64; 3]>,
    /// Runnable and existing tasks of `/proc/loadavg`.
    pub tasks: Option<(u32, u32)>,
    /// `/proc/schedstat` per CPU (CONFIG_SCHEDSTATS).
    pub cpus: Vec<CpuSchedstat>,
    /// Threads that were read in this round and had moved, or were read for the first time;
    /// by process and thread. None of this program.
    pub threads: Vec<ThreadSched>,
    /// Threads that exist but were not read for lack of budget.
    pub unread_threads: u32,
}
owns!(SchedSample { cpus, threads } flat { load, tasks, unread_threads });

/// Whose thread it is. Its name does not tell: a process may call itself `kworker/0:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskKind {
    /// Of a program.
    User,
    /// Of the kernel (PF_KTHREAD).
    Kernel,
    /// Of the kernel, and it stays on its CPUs (PF_NO_SETAFFINITY): `ksoftirqd/0`, any `kworker`.
    BoundKernel,
}
flat!(TaskKind);

/// Fields 7 to 9 of a `cpuN` line of `/proc/schedstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSchedstat {
    /// The CPU.
    pub cpu: CpuId,
    /// ns that tasks ran.
    pub run_ns: u64,
    /// ns that tasks waited to run.
    pub run_delay_ns: u64,
    /// Time slices.
    pub slices: u64,
}
flat!(CpuSchedstat);

/// Scheduling of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadSched {
    /// The thread.
    pub task: TaskId,
    /// Its `comm`, raw; a `kworker`'s without its work (`kworker/0:2-events`) unless it ran or
    /// waited for 1 ms a second or more.
    pub comm: String,
    /// State letter of `/proc/PID/stat`.
    pub state: char,
    /// ns on a CPU, in steps of 10 us.
    pub run_ns: u64,
    /// ns runnable and waiting, in steps of 10 us; includes time throttled by CFS bandwidth control.
    pub run_delay_ns: u64,
    /// Times scheduled in.
    pub slices: u64,
    /// It was read this many ms before this reading, and had not moved since its last row: what
    /// it grew by, it grew by in this time. 0: the reading before was its last row.
    pub still_ms: u32,
    /// CPU it last ran on.
    pub last_cpu: Option<CpuId>,
    /// `Cpus_allowed_list`, read only for threads that wait or run much.
    pub allowed: Option<String>,
    /// Path in the cpu controller's hierarchy (v1) or the unified one, read only for threads
    /// that wait or run much.
    pub cgroup: Option<String>,
    /// The same in the hierarchy that limits memory, where that is another path (v1).
    pub memory_cgroup: Option<String>,
    /// MiB of its process that are resident, from 16 MiB on; in one of its rows only.
    pub rss_mib: Option<u32>,
    /// Nice value.
    pub nice: Option<i8>,
    /// Scheduling policy number (`SCHED_OTHER` 0, `SCHED_IDLE` 5).
    pub policy: Option<u32>,
    /// Whose thread it is; `None` where nobody noted it.
    pub kind: Option<TaskKind>,
}
owns!(ThreadSched { comm, allowed, cgroup, memory_cgroup } flat {
    task, state, run_ns, run_delay_ns, slices, still_ms, last_cpu, rss_mib, nice, policy, kind
});
