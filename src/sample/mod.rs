//! What is read: ids, times, the rows of every collector, and the [`Tick`](tick::Tick) that
//! holds them. Pure data at the bottom of everything: no kernel, no clock, no file, no judgement.
//!
//! One file or folder per collector holds what it reads, raw: counters and gauges, never rates.
//! Who reads it is `collect`.

pub mod bpf;
pub mod cgroups;
pub mod cpu;
pub mod disks;
pub mod filesystems;
pub mod heap;
mod interest;
pub mod kmsg;
pub mod limits;
pub mod memory;
pub mod net_counters;
pub mod netdev;
pub mod own;
pub mod packed;
pub mod process_io;
pub mod processes;
pub mod psi;
pub mod rule_settings;
mod samples;
pub mod sched;
mod signal;
pub mod sockets;
pub mod softirq;
pub mod subject;
pub mod tick;
pub mod time;
pub mod told;
pub mod waits;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use interest::Interest;
pub use samples::{AnySample, CollectorId, Role, SampleMaker, SampleVisitor, Samples};
pub use signal::{Extent, GRANT, LOOK_AGAIN, Signal, SignalStatus, Unseen};
use time::Span;

/// A sample with the time at which it was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stamped<S> {
    /// Start and end of the reading.
    pub span: Span,
    /// CPU time that the reading used on its thread.
    pub cpu: Duration,
    /// What was read.
    pub data: S,
}

/// A stamped sample that many readers share.
pub type Shared<S> = Arc<Stamped<S>>;
