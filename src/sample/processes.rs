//! How many processes there are, and the tasks in uninterruptible sleep (D).

use serde::{Deserialize, Serialize};

use super::heap::owns;
use super::subject::TaskId;

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessesSample {
    /// Number of processes.
    pub total: u32,
    /// Tasks in uninterruptible sleep, at most 256.
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
}
owns!(BlockedTask { comm, wchan } flat { task });
