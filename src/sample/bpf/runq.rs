//! Waits on run queues, as eBPF measures them.

use serde::{Deserialize, Serialize};

use super::hist::Hist;
use crate::sample::heap::{flat, owns};
use crate::sample::subject::{CgroupId, CpuId};
use crate::sample::time::MonoNs;

/// One reading. Counters are since the programs were attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunqBpfSample {
    /// How waits are measured.
    pub tier: RunqTier,
    /// CPUs that switched tasks at least once.
    pub cpus: Vec<RunqCpu>,
    /// Waits of 1 ms and more since the reading before, the last ones of each CPU; none of this
    /// program, whose threads wake up together and wait for each other.
    pub long_waits: Vec<LongWait>,
    /// Such waits since the reading before that are not in the list, but for our own.
    pub long_unlisted: u64,
    /// Our own since the reading before.
    pub long_own: u64,
    /// Waits of 1 ms and more by cgroup.
    pub cgroups: Vec<CgroupWaits>,
    /// Switches that no program ran for (5.12); `None` where the kernel does not tell.
    pub missed: Option<u64>,
}
owns!(RunqBpfSample { cpus, long_waits, cgroups } flat { tier, long_unlisted, long_own, missed });

/// How waits are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunqTier {
    /// From the scheduler's own stamp of the queued task.
    #[default]
    SchedInfo,
    /// From a stamp at the wakeup.
    Wakeup,
}

/// One CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunqCpu {
    /// The CPU.
    pub cpu: CpuId,
    /// Context switches.
    pub switches: u64,
    /// Sum of the waits, ns, in whole us; waits of 0.25 to 4.1 us to 16 ns.
    pub wait_ns: u64,
    /// The waits.
    pub waits: Hist,
    /// Waits left out because their stamp makes no sense.
    pub discarded: u64,
    /// Waits left out because the task slept in them (6.12 counts such sleep as waiting).
    pub slept: u64,
    /// Switches after which the clock offset was learned anew: their wait may be short.
    pub unsure: u64,
    /// Stamps lost to another task (tier B).
    pub collided: u64,
    /// Waits of 1 ms and more.
    pub long: u64,
    /// Of these, the ones whose cgroup did not fit into the table.
    pub cgroup_full: u64,
}
owns!(RunqCpu { waits } flat {
    cpu, switches, wait_ns, discarded, slept, unsure, collided, long, cgroup_full
});

/// One long wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LongWait {
    /// When it ended, in whole us.
    pub at: MonoNs,
    /// Where.
    pub cpu: CpuId,
    /// How long, ns, in whole us.
    pub wait_ns: u64,
    /// Process id (as the host sees it); 0 in tier B.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// `comm` of the thread, raw; `None` when it was gone already.
    pub comm: Option<String>,
    /// Its cgroup in the hierarchy of the cpu controller.
    pub cgroup: Option<CgroupId>,
}
owns!(LongWait { comm } flat { at, cpu, wait_ns, pid, tid, cgroup });

/// Long waits of one cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupWaits {
    /// The cgroup.
    pub id: CgroupId,
    /// How many.
    pub count: u64,
    /// Sum, ns, in whole us.
    pub wait_ns: u64,
}
flat!(CgroupWaits);
