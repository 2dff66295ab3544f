//! CPU time by kind, context switches, runnable and blocked tasks.

use serde::{Deserialize, Serialize};

use super::heap::{flat, owns};
use super::subject::CpuId;

/// One reading of `/proc/stat`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuSample {
    /// The `cpu` line: all CPUs together.
    pub total: CpuTimes,
    /// One entry per online CPU, by id.
    pub cpus: Vec<(CpuId, CpuTimes)>,
    /// Context switches since boot.
    pub ctxt: Option<u64>,
    /// Runnable tasks now.
    pub procs_running: Option<u32>,
    /// Tasks blocked on I/O now.
    pub procs_blocked: Option<u32>,
    /// Length of a jiffy of this file: USER_HZ, nearly always 100.
    pub user_hz: u32,
    /// NUMA nodes with their CPUs, empty when unknown.
    pub nodes: Vec<(u32, Vec<CpuId>)>,
    /// CPUs that the scheduler leaves alone (`isolcpus=`, isolated cpusets); since 4.2.
    pub isolated: Vec<CpuId>,
}
owns!(CpuSample { cpus, nodes, isolated } flat { total, ctxt, procs_running, procs_blocked, user_hz });

/// CPU time in USER_HZ ticks. `guest` is inside `user`, `guest_nice` inside `nice`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuTimes {
    /// User.
    pub user: u64,
    /// User, niced.
    pub nice: u64,
    /// Kernel.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle with I/O outstanding; noise per CPU.
    pub iowait: u64,
    /// Hardware interrupts.
    pub irq: u64,
    /// Software interrupts.
    pub softirq: u64,
    /// Taken by the hypervisor.
    pub steal: u64,
    /// Guest.
    pub guest: u64,
    /// Guest, niced.
    pub guest_nice: u64,
}
flat!(CpuTimes);
