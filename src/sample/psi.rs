//! Pressure stall information.

use serde::{Deserialize, Serialize};

use super::heap::flat;

/// Stall time since boot, us. `None`: the kernel does not offer it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PsiSample {
    /// cpu.
    pub cpu: Option<PsiTotals>,
    /// io.
    pub io: Option<PsiTotals>,
    /// memory.
    pub memory: Option<PsiTotals>,
}
flat!(PsiSample);

/// `total=` of the two lines of a pressure file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PsiTotals {
    /// us with at least one task stalled.
    pub some_us: u64,
    /// us with all tasks stalled; `None` where the line is absent. System cpu is always 0.
    pub full_us: Option<u64>,
}
