//! What this program itself costs: CPU time and memory, from `/proc/self`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    CollectError, CollectOptions, Collector, CollectorId, HostFs, Role, SampleContext, Signal,
    Unavailable,
};

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnSample {
    /// CPU time used since start, all threads.
    pub cpu: Duration,
    /// Resident memory, bytes.
    pub rss_bytes: Option<u64>,
}

/// Reads it. See the module head.
pub struct OwnCollector {
    host: HostFs,
}

impl Collector for OwnCollector {
    type Sample = OwnSample;
    const ID: CollectorId = CollectorId::Own;
    const ROLE: Role = Role::Files;

    fn open(_host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        Err(Unavailable::new("not built yet", ""))
    }

    fn sample(&mut self, _cx: &SampleContext<'_>) -> Result<Self::Sample, CollectError> {
        let _ = &self.host;
        Ok(Self::Sample::default())
    }

    fn signals(&self, _out: &mut Vec<Signal>) {}
}
