//! `/proc/sys/kernel/random/entropy_avail`.

use super::hot::HotFile;
use super::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::sample::entropy::EntropySample;
use crate::sample::{CollectorId, Signal};

const FILE: &str = "proc/sys/kernel/random/entropy_avail";

/// Reads it.
pub struct EntropyCollector(HotFile);

impl Collector for EntropyCollector {
    type Sample = EntropySample;
    const ID: CollectorId = CollectorId::Entropy;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        Ok(Self(HotFile::record(host, FILE)))
    }
    fn sample(&mut self, _cx: &SampleContext<'_>) -> Result<EntropySample, CollectError> {
        let text = self.0.read().map_err(|e| CollectError::read(FILE, e))?;
        let bits = std::str::from_utf8(text).ok().and_then(|t| t.trim().parse().ok());
        Ok(EntropySample { bits })
    }
    fn signals(&self, out: &mut Vec<Signal>) {
        out.push(Signal::ok("entropy", "/proc/sys/kernel/random"));
    }
}
