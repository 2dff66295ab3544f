//! Rates of `/proc/vmstat`.

use std::time::Duration;

use super::super::super::Window;
use crate::metrics::MIN_SPAN;
use crate::metrics::rate::{grown, per_second};
use crate::sample::memory::MemorySample;

/// Maximum age of the earlier reading to compare with.
const AGE: Duration = Duration::from_secs(10);

/// Growth per second of all `/proc/vmstat` counters whose names start with `prefix`, summed;
/// `None` if this kernel has none of them, or the sum fell.
pub(crate) fn rate(w: &Window<'_>, prefix: &str) -> Option<f64> {
    let now = w.tick.samples.memory.as_ref()?;
    let before = w
        .history
        .back_from(w.tick.seq)
        .take_while(|m| w.tick.mono.since(m.tick.mono) <= AGE)
        .filter_map(|m| m.tick.samples.memory.as_ref())
        .find(|s| now.span.mid().since(s.span.mid()) >= MIN_SPAN)?;
    let delta = grown(sum(&before.data, prefix)?, sum(&now.data, prefix)?)?;
    per_second(delta as f64, now.span.mid().since(before.span.mid()))
}

/// Names are sorted, so those with a common prefix are adjacent.
fn sum(s: &MemorySample, prefix: &str) -> Option<u64> {
    let full = format!("vmstat.{prefix}");
    let from = s.names.partition_point(|n| **n < *full);
    let hits = s.names.iter().zip(&s.values).skip(from).take_while(|(n, _)| n.starts_with(&full));
    hits.map(|(_, v)| *v).reduce(u64::saturating_add)
}
