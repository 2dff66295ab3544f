//! Processes: those in D state with what they wait for, and the busiest ones.

use serde::{Deserialize, Serialize};

use super::{
    CollectError, CollectOptions, Collector, CollectorId, HostFs, Role, SampleContext, Signal,
    Unavailable,
};
use crate::model::subject::TaskId;

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessesSample {
    /// Number of processes.
    pub total: u32,
    /// Tasks in uninterruptible sleep, at most 256.
    pub blocked: Vec<BlockedTask>,
    /// Processes that could not be read (gone, or not ours).
    pub unread: u32,
}

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

/// Reads it. See the module head.
pub struct ProcessesCollector {
    host: HostFs,
}

impl Collector for ProcessesCollector {
    type Sample = ProcessesSample;
    const ID: CollectorId = CollectorId::Processes;
    const ROLE: Role = Role::Tasks;

    fn open(_host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        Err(Unavailable::new("not built yet", ""))
    }

    fn sample(&mut self, _cx: &SampleContext<'_>) -> Result<Self::Sample, CollectError> {
        let _ = &self.host;
        Ok(Self::Sample::default())
    }

    fn signals(&self, _out: &mut Vec<Signal>) {}
}
