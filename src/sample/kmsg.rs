//! Whom the OOM killer ended, by the kernel's log.

use serde::{Deserialize, Serialize};

use super::heap::owns;
use super::time::MonoNs;

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KmsgSample {
    /// Can the log be read?
    pub readable: bool,
    /// The last kills since the first reading, the oldest first, at most 16.
    pub kills: Vec<OomKilled>,
    /// Records since the first reading that the kernel overwrote before they were read.
    pub lost: u64,
}
owns!(KmsgSample { kills } flat { readable, lost });

/// A process that the OOM killer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OomKilled {
    /// When its record was read. The log's own stamps are of another clock, which does not stand
    /// still while the hypervisor or a suspend holds the machine.
    pub at: MonoNs,
    /// Process id.
    pub pid: u32,
    /// Its `comm`, raw.
    pub comm: String,
    /// Its cgroup (`task_memcg`, since 4.19).
    pub cgroup: Option<String>,
    /// It was resident with so many kB: anonymous, file and shared memory.
    pub rss_kb: Option<u64>,
}
owns!(OomKilled { comm, cgroup } flat { at, pid, rss_kb });
