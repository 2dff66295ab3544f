//! Pressure stall information: `/proc/pressure/{cpu,io,memory}` (since 4.20, CONFIG_PSI).

use serde::{Deserialize, Serialize};

use super::{
    CollectError, CollectOptions, Collector, CollectorId, HostFs, Role, SampleContext, Signal,
    Unavailable,
};

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

/// `total=` of the two lines of a pressure file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PsiTotals {
    /// us with at least one task stalled.
    pub some_us: u64,
    /// us with all tasks stalled; `None` where the line is absent. System cpu is always 0.
    pub full_us: Option<u64>,
}

/// Reads it. See the module head.
pub struct PsiCollector {
    host: HostFs,
}

impl Collector for PsiCollector {
    type Sample = PsiSample;
    const ID: CollectorId = CollectorId::Psi;
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
