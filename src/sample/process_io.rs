//! What processes read from disks and write to them, as the kernel charges it to them.
//!
//! A write is charged to whoever makes a page dirty, when it does: the kernel's flushers, which hand
//! the page to the disk later, are charged nothing. Nobody is charged for the journal and metadata of
//! a file system, nor for swap. Bytes to and from network file systems count as well, and nothing
//! tells which disk they were for.

use serde::{Deserialize, Serialize};

use super::heap::owns;
use super::subject::TaskId;

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessIoSample {
    /// Processes whose bytes moved since their last row, and in their first row those that have
    /// moved any; by process. No threads of the kernel, and not this program.
    pub processes: Vec<ProcessIo>,
    /// Processes that were due but not read for lack of budget.
    pub unread: u32,
    /// Processes that we may not read.
    pub denied: u32,
}
owns!(ProcessIoSample { processes } flat { unread, denied });

/// `/proc/PID/io` of one process: of all its threads, those that ended included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessIo {
    /// Its first thread.
    pub task: TaskId,
    /// Its `comm`, raw.
    pub comm: String,
    /// Bytes read from disks.
    pub read_bytes: u64,
    /// Bytes of pages that it made dirty, or wrote directly.
    pub write_bytes: u64,
    /// Bytes of dirty pages that it made vanish before they were written: by truncating a file.
    pub cancelled_write_bytes: u64,
    /// System calls that read, from whatever.
    pub syscr: u64,
    /// System calls that write, to whatever.
    pub syscw: u64,
    /// Of `read_bytes`, what children did that have ended: once it has waited for a child, the
    /// kernel counts what that did as its own. Only what was in rows of the child before.
    pub children_read_bytes: u64,
    /// The same of `write_bytes`, less what they cancelled.
    pub children_write_bytes: u64,
    /// It was read this many ms before this reading, and had not moved since its last row: what
    /// it grew by, it grew by in this time. 0: the reading before was its last row.
    pub still_ms: u32,
    /// In its first row: this many ms before this reading it had moved no byte yet, or was not
    /// there. `None`: it may have moved them at any time.
    pub zero_ms: Option<u32>,
    /// Path in the hierarchy that limits its I/O, read only for those that move much.
    pub cgroup: Option<String>,
}
owns!(ProcessIo { comm, cgroup } flat {
    task, read_bytes, write_bytes, cancelled_write_bytes, syscr, syscw, children_read_bytes,
    children_write_bytes, still_ms, zero_ms
});
