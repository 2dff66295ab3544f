//! How many processes there are, and the tasks in uninterruptible sleep (D).

use serde::{Deserialize, Serialize};

use super::heap::owns;
use super::sched::TaskKind;
use super::subject::TaskId;

/// Most blocked tasks in a sample.
pub const MAX_BLOCKED: usize = 256;

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessesSample {
    /// Number of processes.
    pub total: u32,
    /// Tasks in uninterruptible sleep, at most [`MAX_BLOCKED`].
    pub blocked: Vec<BlockedTask>,
    /// Threads that were not read in this round: no budget, or not ours.
    pub unread: u32,
}
owns!(ProcessesSample { blocked } flat { total, unread });

/// A task in D state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockedTask {
    /// The task.
    pub task: TaskId,
    /// Its `comm`, raw.
    pub comm: String,
    /// `/proc/PID/wchan`; `None` when not readable.
    pub wchan: Option<String>,
    /// How often it was put on a CPU since it began: unchanged, it is in the same sleep. `None`:
    /// not counted (CONFIG_SCHED_INFO is off), or not noted in this recording.
    pub slices: Option<u64>,
    /// Whose thread it is; `None` where nobody noted it.
    pub kind: Option<TaskKind>,
}
owns!(BlockedTask { comm, wchan } flat { task, slices, kind });
