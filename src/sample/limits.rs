//! Limits that count things: open files of a process, threads and open files of the host.

use serde::{Deserialize, Serialize};

use super::heap::owns;

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsSample {
    /// `kernel.pid_max`: threads have numbers below it.
    pub pid_max: Option<u64>,
    /// `kernel.threads-max`.
    pub threads_max: Option<u64>,
    /// This kernel counts descriptors.
    pub counts_files: bool,
    /// Processes that have used up most of their descriptors, and those that somebody asked about,
    /// at most 64.
    pub processes: Vec<OpenFiles>,
}
owns!(LimitsSample { processes } flat { pid_max, threads_max, counts_files });

/// Descriptors of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenFiles {
    /// Process id.
    pub pid: u32,
    /// Its `comm`, raw.
    pub comm: String,
    /// Open descriptors.
    pub open: u64,
    /// The soft limit of `RLIMIT_NOFILE`: the kernel refuses what is beyond.
    pub soft: u64,
    /// The hard limit, which the process may raise the soft one to.
    pub hard: Option<u64>,
}
owns!(OpenFiles { comm } flat { pid, open, soft, hard });
