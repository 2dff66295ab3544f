//! Time in softirqs and hard interrupt handlers, as eBPF measures it.
//!
//! The time of a hard interrupt that hits a softirq is not counted to the softirq. Timer and
//! inter-processor interrupts have no handler here and stay invisible; on PREEMPT_RT, softirqs
//! run in threads and their time includes preemption.

use serde::{Deserialize, Serialize};

use super::hist::Hist;
use super::layout::irq as l;
use crate::sample::heap::{flat, owns};
use crate::sample::subject::CpuId;

/// Names of the softirq vectors, as `/proc/softirqs` prints them.
pub const VECTOR_NAMES: [&str; l::VECTORS] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// One reading. Counters are since the programs were attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IrqBpfSample {
    /// CPUs on which anything ran.
    pub cpus: Vec<IrqCpu>,
    /// Softirqs are measured.
    pub softirqs: bool,
    /// Hard interrupt handlers are measured, and their time is taken off the softirqs'.
    pub hardirqs: bool,
    /// Events that no program ran for (5.12); `None` where the kernel does not tell.
    pub missed: Option<u64>,
}
owns!(IrqBpfSample { cpus } flat { softirqs, hardirqs, missed });

/// One CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IrqCpu {
    /// The CPU.
    pub cpu: CpuId,
    /// Vectors that ran.
    pub vectors: Vec<VectorTime>,
    /// Hard interrupt handlers run.
    pub hard_count: u64,
    /// Time in them, ns, in whole us.
    pub hard_ns: u64,
    /// How long each took.
    pub hard: Hist,
    /// Time by interrupt.
    pub lines: Vec<LineTime>,
    /// Exits without an entry since all programs are attached: the run began before that, or
    /// the kernel ran no program at its entry. Such a run is in no other number here.
    pub unpaired: u64,
    /// Handlers whose interrupt did not fit into the table.
    pub table_full: u64,
}
owns!(IrqCpu { vectors, hard, lines } flat { cpu, hard_count, hard_ns, unpaired, table_full });

/// One softirq vector of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VectorTime {
    /// Number; see [`VECTOR_NAMES`].
    pub vector: u8,
    /// Runs.
    pub count: u64,
    /// Time, ns, in whole us.
    pub ns: u64,
    /// The longest timed run since attach, ns.
    pub max_ns: u64,
    /// How long each took: a timed one counts for those passed over before it.
    pub hist: Hist,
    /// Runs that were passed over.
    pub passed: u64,
    /// Of these, the ones that may have been longer than the one that counts for them: the others
    /// took less than 0.2 ms each.
    pub unsure: u64,
}
owns!(VectorTime { hist } flat { vector, count, ns, max_ns, passed, unsure });

/// One interrupt of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LineTime {
    /// Number, as in `/proc/interrupts`.
    pub irq: u32,
    /// Handlers run: a shared interrupt calls several.
    pub count: u64,
    /// Time, ns, in whole us.
    pub ns: u64,
    /// The longest since attach, ns.
    pub max_ns: u64,
}
flat!(LineTime);
