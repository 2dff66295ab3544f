//! CPU, I/O, memory and tasks of cgroups, with their limits. No kernel counts throttled I/O: a
//! limit and a rate are all there is to see.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::heap::{flat, owns};
use super::limits::TaskOwners;
use super::psi::PsiTotals;
use super::subject::{CgroupId, DiskId};

/// The cgroups that were read in this round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CgroupsSample {
    /// One entry per directory and hierarchy.
    pub groups: Vec<CgroupRow>,
    /// Directories that exist but were not read for lack of budget.
    pub unread: u32,
}
owns!(CgroupsSample { groups } flat { unread });

/// One cgroup in one hierarchy. `None`: the controller is not there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CgroupRow {
    /// Directory inode.
    pub id: CgroupId,
    /// Path below the mount point, `/` for the root, raw.
    pub path: Arc<str>,
    /// Mounted where, such as `/sys/fs/cgroup/cpu`: what the user types.
    pub mount: Arc<str>,
    /// CPU bandwidth control.
    pub cpu: Option<CgroupCpu>,
    /// I/O per device.
    pub io: Vec<CgroupIo>,
    /// `memory.current` or `memory.usage_in_bytes`.
    pub memory_bytes: Option<u64>,
    /// `memory.max` or `memory.limit_in_bytes`; `None` for no limit.
    pub memory_limit_bytes: Option<u64>,
    /// `memory.high` (v2): beyond it the group is slowed down and reclaims for itself.
    pub memory_high_bytes: Option<u64>,
    /// Processes of it that the kernel's OOM killer killed; v2 counts those of the groups
    /// below as well.
    pub oom_kills: Option<u64>,
    /// How often memory was asked for at the limit: `memory.failcnt` and `memory.memsw.failcnt`,
    /// or `max` and `high` of `memory.events`.
    pub memory_failures: Option<u64>,
    /// Number of tasks against its limit.
    pub pids: Option<CgroupPids>,
    /// Whose they are, while there are nearly as many as the limit allows.
    pub tasks: Option<TaskOwners>,
    /// `cpu.pressure` (v2).
    pub psi_cpu: Option<PsiTotals>,
    /// `io.pressure` (v2).
    pub psi_io: Option<PsiTotals>,
    /// `memory.pressure` (v2).
    pub psi_memory: Option<PsiTotals>,
}
owns!(CgroupRow { path, mount, io, tasks } flat {
    id, cpu, memory_bytes, memory_limit_bytes, memory_high_bytes, oom_kills, memory_failures,
    pids, psi_cpu, psi_io, psi_memory
});

/// `cpu.stat` with its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CgroupCpu {
    /// Quota in us per period; `None` for no limit.
    pub quota_us: Option<u64>,
    /// Period in us.
    pub period_us: u64,
    /// `cpu.weight` (v2, 100 unless set, 0 for `cpu.idle`) or `cpu.shares` (v1, 1024 unless set):
    /// what it gets of CPUs that are short, against its siblings.
    pub weight: Option<u64>,
    /// Periods that had runnable tasks.
    pub nr_periods: u64,
    /// Periods in which the quota ran out.
    pub nr_throttled: u64,
    /// Time throttled, ns, summed over CPUs.
    pub throttled_ns: u64,
    /// CPU time used, ns; `None` where the hierarchy does not count it.
    pub usage_ns: Option<u64>,
}

/// Tasks of a cgroup and of those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CgroupPids {
    /// How many there are.
    pub current: u64,
    /// `pids.max`; `None` for no limit.
    pub max: Option<u64>,
    /// How often `fork` failed here for a limit: `max` of `pids.events`.
    pub failures: Option<u64>,
}

/// I/O of one cgroup on one device: counters and limits (per second).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CgroupIo {
    /// The device.
    pub dev: DiskId,
    /// Bytes read.
    pub rbytes: Option<u64>,
    /// Bytes written.
    pub wbytes: Option<u64>,
    /// Reads.
    pub rios: Option<u64>,
    /// Writes.
    pub wios: Option<u64>,
    /// Limit of bytes read per second.
    pub max_rbps: Option<u64>,
    /// Limit of bytes written per second.
    pub max_wbps: Option<u64>,
    /// Limit of reads per second.
    pub max_riops: Option<u64>,
    /// Limit of writes per second.
    pub max_wiops: Option<u64>,
    /// Latency that is protected (`io.latency` of v2), us: while it is missed, others wait.
    pub latency_us: Option<u64>,
    /// The cost model shares the device (`io.cost.qos`, in the root of v2 only).
    pub iocost: bool,
}
flat!(CgroupIo);
