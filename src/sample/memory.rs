//! `/proc/meminfo`, `/proc/vmstat` and `vm.dirty_*`, by name.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::heap::owns;

/// One reading. Names are shared between ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemorySample {
    /// Names: `meminfo.Dirty` (kB), `vmstat.nr_dirty` (pages), `sys.dirty_ratio`. Sorted.
    pub names: Arc<Vec<Box<str>>>,
    /// Values in the order of `names`.
    pub values: Vec<u64>,
}
owns!(MemorySample { names, values } flat {});

impl MemorySample {
    /// A value by name; `None` when this kernel does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let i = self.names.binary_search_by(|n| (**n).cmp(name)).ok()?;
        self.values.get(i).copied()
    }
}
