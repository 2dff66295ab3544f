//! How long something has been true.

use std::time::Duration;

use crate::metrics::history::Window;
use crate::metrics::{Derived, MIN_SPAN};

/// For how much of the last `span` a condition was true, and in how many samples; each sample
/// counts as one interval.
pub(crate) fn lasting(
    w: &Window<'_>,
    span: Duration,
    is_true: impl Fn(&Derived) -> bool,
) -> (Duration, usize) {
    let weight = w.host.interval.max(MIN_SPAN);
    let n = w
        .recent(usize::MAX)
        .take_while(|d| w.tick.mono.since(d.mono) < span)
        .filter(|d| is_true(d))
        .count();
    (weight * u32::try_from(n).unwrap_or(u32::MAX), n)
}
