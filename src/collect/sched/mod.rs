//! Waiting for a CPU, without eBPF: `run_delay` of `/proc/PID/task/TID/schedstat` (needs
//! CONFIG_SCHED_INFO), `/proc/schedstat` where the kernel has it (CONFIG_SCHEDSTATS), and the
//! load.
//!
//! Threads are read within a CPU budget, those that lately ran or waited first; every thread in
//! the sample has been read for it. Those that neither ran nor waited since the reading before
//! are left out: most of a host sleeps. So are this program's own: they wake up together once a
//! tick and wait for each other, which is of the looking and not of what is looked at (its CPU time
//! is in the section `self`). What `stat` says of a process's size comes with one of its rows.

mod collector;
mod parse;

pub use collector::SchedCollector;
pub use parse::{Load, parse_cpus_allowed, parse_loadavg, parse_schedstat_cpus, parse_task_cgroup};
