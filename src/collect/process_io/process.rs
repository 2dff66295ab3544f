//! A process of the scan, and where it waits for its next reading.

use std::fs::File;
use std::time::Duration;

use super::parse::Io;
use crate::sample::subject::TaskId;
use crate::sample::time::MonoNs;

/// Readings after its bytes moved, or after it was started, for which a process is read in every
/// round.
pub(super) const HOT_READINGS: u8 = 10;

/// A process and what was read of it last.
#[derive(Debug)]
pub(super) struct Process {
    pub task: TaskId,
    pub comm: String,
    pub io: Io,
    /// What of `io` was counted for children before: bytes read, and bytes written less those
    /// cancelled.
    pub of_children: (u64, u64),
    /// By how much its bytes grew since the reading before; nothing in its first row.
    pub grown: Option<Io>,
    /// Since when it has not moved, if it was read since its last row.
    pub still: Option<Duration>,
    /// How long ago it had moved no byte, or was not there, in its first row.
    pub zero: Option<Duration>,
    /// Its `stat` was read: before, it is a number.
    pub identified: bool,
    /// It is a thread of the kernel, as of then.
    pub kernel: bool,
    pub parent: u32,
    /// Numbers that were those of its children.
    pub children: Vec<u32>,
    /// What children of it did that ended, which the kernel will add to its counters.
    pub estates: Vec<(MonoNs, Io)>,
    pub read_at: Option<MonoNs>,
    /// The listing before the one that found it.
    pub absent_at: Option<MonoNs>,
    /// It moved at the last reading, and so had a row.
    pub moved: bool,
    pub file: Option<File>,
    /// Readings for which it stays in front.
    pub hot: u8,
    /// Readings since it last moved.
    pub quiet: u8,
    /// The last listing that had it.
    pub seen: u32,
    /// Its entry in a queue is the one with this number.
    pub ticket: u64,
}

/// Where a process waits for its next reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// Its bytes moved lately: read in every round.
    Hot,
    /// Was started lately and has moved none yet: read in every round that has the budget.
    New,
    /// Has not moved a byte lately.
    Cold,
    /// Has not done so for long.
    Asleep,
    /// Thread of the kernel, or not ours to read.
    Aside,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub pid: u32,
    pub ticket: u64,
    pub read_at: Option<MonoNs>,
}

/// What came of a reading.
pub(super) enum Read {
    Moved,
    Unmoved,
    Kernel,
    Denied,
    /// There is no such process any more, or another one has its number.
    Gone,
}

/// What it did before it was first seen says nothing of now, but for one that was just started.
pub(super) fn first_readings(p: &Process) -> u8 {
    if p.absent_at.is_some() { HOT_READINGS } else { 0 }
}

impl Process {
    pub(super) fn new(pid: u32, absent_at: Option<MonoNs>, seen: u32, ticket: u64) -> Self {
        Self {
            task: TaskId { pid, tid: pid, start: 0 },
            comm: String::new(),
            io: Io::default(),
            of_children: (0, 0),
            grown: None,
            still: None,
            zero: None,
            identified: false,
            kernel: false,
            parent: 0,
            children: Vec::new(),
            estates: Vec::new(),
            read_at: None,
            absent_at,
            moved: false,
            file: None,
            hot: 0,
            quiet: 0,
            seen,
            ticket,
        }
    }
}
