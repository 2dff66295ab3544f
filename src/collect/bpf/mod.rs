//! eBPF: run-queue latency, time in interrupts, block latency, TCP events and who creates files,
//! measured in the kernel at each event.
//!
//! The programs are built from `ebpf/` and embedded as `assets/*.bpf.o`, one object per
//! collector, so that a kernel that lacks something loses one panel. They hold no layout of
//! any kernel: offsets come from the running kernel's BTF, or from tracefs where there is no
//! BTF, and are put into the object's read-only variables before it is loaded.
//!
//! Counters and histograms are cumulative since the program was attached. They are read
//! through mapped memory: no system call per tick, no event missed because of us. What a
//! program could not count is counted too, and told as coverage.

mod bins;
pub mod block;
pub mod btf;
mod events;
mod fields;
pub mod files;
pub mod format;
mod gather;
pub mod irq;
mod load;
mod maps;
pub mod net;
mod objects;
mod offsets;
mod rights;
pub mod runq;
pub(super) mod symbols;
pub mod tasks;
mod tracefs;

pub use rights::{missing_capabilities, release_capabilities};

use crate::sample::Signal;

/// Bytes of kernel memory that all maps take on a machine with `cpus` possible CPUs, whichever
/// tier is loaded: 7.7 MiB on 64 CPUs, of which interrupts take 1.8, block requests 1.9, the
/// events of the network 2.3 and the walk over all threads 0.5. Within 8 MiB up to 69 CPUs.
#[must_use]
pub const fn map_bytes(cpus: usize) -> usize {
    let per_cpu =
        runq::BYTES_PER_CPU + irq::BYTES_PER_CPU + net::BYTES_PER_CPU + files::BYTES_PER_CPU;
    let fixed = runq::BYTES_FIXED + block::BYTES_FIXED + net::BYTES_FIXED + tasks::BYTES_FIXED;
    per_cpu * cpus + fixed
}

/// Events counted, and events that happened but could not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Coverage {
    counted: u64,
    lost: u64,
}

impl Coverage {
    /// Full marks from 99.9 % on: single events are lost wherever a program is attached.
    fn signal(self, name: &'static str) -> Signal {
        let all = self.counted.saturating_add(self.lost);
        if self.lost.saturating_mul(1000) <= all {
            return Signal::ok(name, "ebpf");
        }
        let percent = self.counted as f64 * 100.0 / all as f64;
        let reason = format!("coverage {percent:.1} %: {} of {all} events not counted", self.lost);
        Signal::degraded(name, "ebpf", reason, "")
    }
}
