//! What processes read from disks and write to them, as the kernel charges it to them.
//!
//! A write is charged to whoever makes a page dirty, when it does: the kernel's flushers, which hand
//! the page to the disk later, are charged nothing. Nobody is charged for the journal and metadata of
//! a file system, nor for swap. Bytes to and from network file systems count as well, and nothing
//! tells which disk they were for. The open files of a process narrow that down.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::heap::{flat, owns};
use super::subject::{DiskId, TaskId};

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
    /// Where its open files are, looked at only for those that move much, every few seconds.
    /// `None`: not looked at lately, or not ours to.
    pub open: Option<Arc<OpenDisks>>,
}
owns!(ProcessIo { comm, cgroup, open } flat {
    task, read_bytes, write_bytes, cancelled_write_bytes, syscr, syscw, children_read_bytes,
    children_write_bytes, still_ms, zero_ms
});

/// The devices of the regular files and block devices that a process has open, from one look at
/// `/proc/PID/fd` (since 2.2; `statx` since 4.11).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenDisks {
    /// Each device once, by number, at most 8.
    pub on: Vec<OpenOn>,
    /// There were more devices or descriptors than are looked at, or some that could not be.
    pub more: bool,
}
owns!(OpenDisks { on } flat { more } same by |a, b| a == b);

/// One or more open files on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenOn {
    /// Of a file, the device number of its file system: often that of a partition. Major 0 is that
    /// of one without a device of its own, such as overlay, btrfs, tmpfs, NFS.
    pub dev: DiskId,
    /// What they are open for, all together.
    pub access: Access,
}
flat!(OpenOn);

/// What a file is open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    Both,
}

impl Access {
    /// What files are open for of which some are open for this, and some for that.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Both }
    }
}
