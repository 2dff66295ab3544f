//! CPU, I/O, memory and tasks of cgroups, with their limits: v1 (`cpu`, `cpuacct`, `blkio`,
//! `memory`, `pids`) and v2 (`cpu.stat`, `cpu.max`, `io.stat`, `io.max`, `memory.current`,
//! `memory.events`, `pids.events`, `*.pressure`).
//!
//! Hierarchies are found in `/proc/self/mountinfo` and walked within a CPU budget. Groups with a
//! CPU or I/O limit, or near another limit, are read in every tick, the others in turn or when
//! somebody changes them; what was due and not read is counted.

mod collector;
mod mounts;
mod parse;
mod read;
mod tree;
mod watch;

pub use collector::CgroupsCollector;

/// Where hierarchies are mounted, below the root of `host`.
pub(super) fn roots(host: &super::HostFs) -> Vec<std::path::PathBuf> {
    let found = mounts::hierarchies(host).unwrap_or_default();
    found.into_iter().map(|h| h.dir).collect()
}

pub use parse::{
    V1Counters, parse_cpu_max, parse_cpu_stat, parse_io_max, parse_io_stat, parse_v1_io,
    parse_v1_limits,
};
