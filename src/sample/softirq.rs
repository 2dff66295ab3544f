//! Softirqs, softnet, interrupts, NIC queues.
//!
//! The files disagree on which CPUs they list: softirqs has the possible ones, interrupts and
//! softnet the online ones. So every row and column carries its CPU number.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::heap::{flat, owns};
use super::subject::CpuId;

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SoftirqSample {
    /// `/proc/softirqs`: vector name and its count per CPU (possible CPUs, by id).
    pub vectors: Vec<(Arc<str>, Vec<u64>)>,
    /// CPU ids of the columns of `vectors`.
    pub vector_cpus: Vec<CpuId>,
    /// `/proc/net/softnet_stat`, one row per online CPU.
    pub softnet: Vec<SoftnetRow>,
    /// `/proc/interrupts`: lines with at least one count. Empty in ticks that do not read it.
    pub irqs: Vec<IrqRow>,
    /// CPU ids of the columns of `irqs`.
    pub irq_cpus: Vec<CpuId>,
    /// NICs with their queues; changes rarely, shared between ticks.
    pub nics: Arc<Vec<NicQueues>>,
}
owns!(SoftirqSample { vectors, vector_cpus, softnet, irqs, irq_cpus, nics } flat {});

/// One line of softnet_stat. Counters are u32 in the kernel and wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SoftnetRow {
    /// The CPU: column 12 (since 5.10); before, the n-th online CPU, and `None` when that
    /// cannot be known.
    pub cpu: Option<CpuId>,
    /// Packets processed.
    pub processed: u32,
    /// Packets dropped: `netdev_max_backlog`.
    pub dropped: u32,
    /// Times the budget ran out.
    pub time_squeeze: u32,
    /// RPS interrupts received (column 9).
    pub received_rps: Option<u32>,
    /// Packets dropped by flow limit (column 10).
    pub flow_limit: Option<u32>,
    /// Backlog length now (column 11, since 5.10).
    pub backlog_len: Option<u32>,
}
flat!(SoftnetRow);

/// One interrupt line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IrqRow {
    /// Number or name: `45`, `LOC`.
    pub irq: Arc<str>,
    /// The rest of the line: chip and handler names, raw.
    pub name: Arc<str>,
    /// Count per CPU, in the order of `irq_cpus`.
    pub counts: Vec<u64>,
}
owns!(IrqRow { irq, name, counts } flat {});

/// A network device and its queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NicQueues {
    /// Device name, raw.
    pub dev: String,
    /// Has `device/`: a real or virtual NIC, not a bridge, veth or tunnel.
    pub physical: bool,
    /// `operstate`.
    pub operstate: Option<String>,
    /// Mbit/s; `None` when unknown (-1).
    pub speed_mbit: Option<u32>,
    /// NUMA node; `None` when the kernel says -1.
    pub numa_node: Option<u32>,
    /// Receive queues.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// `rps_cpus` of each receive queue, as the kernel prints it.
    pub rps_cpus: Vec<String>,
    /// Interrupts of the device (`device/msi_irqs`, or matched by name).
    pub irqs: Vec<u32>,
}
owns!(NicQueues { dev, operstate, rps_cpus, irqs } flat {
    physical, speed_mbit, numa_node, rx_queues, tx_queues
} same by |a, b| a == b);
