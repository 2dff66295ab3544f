//! What this program itself costs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::heap::flat;

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnSample {
    /// CPU time used since start, all threads.
    pub cpu: Duration,
    /// Resident memory, bytes.
    pub rss_bytes: Option<u64>,
}
flat!(OwnSample);
