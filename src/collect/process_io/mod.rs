//! What processes read from disks and write to them: `/proc/PID/io` (CONFIG_TASK_IO_ACCOUNTING).
//! That of other users' processes needs CAP_SYS_PTRACE.
//!
//! Processes are read in turn within a CPU budget, those whose bytes moved lately in every round.
//! Threads of the kernel are left out: a flusher is charged nothing for the pages that others made
//! dirty, and the worker of a loop device would be charged a second time for what a process wrote.
//!
//! When a process has waited for a child that ended, the kernel adds what the child did to its own
//! counters. For children that are too short-lived to be read that is all there is to see; for the
//! others it would count the same bytes twice, so rows say how much of them was in rows before.

mod collector;
mod looks;
mod parse;
mod process;
mod scan;

pub use collector::ProcessIoCollector;
pub use parse::{Io, parse_io, parse_io_cgroup, parse_last_pid};
