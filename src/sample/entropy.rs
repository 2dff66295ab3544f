//! Random numbers that the kernel has ready.

use serde::{Deserialize, Serialize};

use super::heap::flat;

/// `/proc/sys/kernel/random/entropy_avail`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EntropySample {
    /// Bits.
    pub bits: Option<u64>,
}
flat!(EntropySample);
