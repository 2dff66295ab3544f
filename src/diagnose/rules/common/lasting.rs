//! How long something has been true.

use std::time::Duration;

use crate::metrics::history::Window;
use crate::metrics::{Derived, MIN_SPAN};

/// For how much of the last `span` a condition was true, and in how many samples; each sample
/// counts as one interval, and no more than that at which it was taken.
pub(crate) fn lasting(
    w: &Window<'_>,
    span: Duration,
    is_true: impl Fn(&Derived) -> bool,
) -> (Duration, usize) {
    let weight = w.host.interval.max(MIN_SPAN);
    let mut recent = w.recent(usize::MAX).peekable();
    let (mut time, mut n) = (Duration::ZERO, 0);
    while let Some(d) = recent.next().filter(|d| w.tick.mono.since(d.mono) < span) {
        if is_true(d) {
            let apart = recent.peek().map_or(weight, |before| d.mono.since(before.mono));
            time = time.saturating_add(one_sample(weight, apart));
            n += 1;
        }
    }
    (time, n)
}

/// How long a sample counts that covers the time `apart`. The console can change its interval: one
/// that was taken before at a shorter interval does not count as one of now. What is merely early or
/// late counts in full.
pub(crate) fn one_sample(interval: Duration, apart: Duration) -> Duration {
    if apart * 4 < interval * 3 { apart } else { interval }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_a_shorter_interval_counts_for_less() {
        let s = Duration::from_secs;
        assert_eq!(one_sample(s(60), s(1)), s(1), "the console went from 1s to 60s");
        assert_eq!(one_sample(s(1), s(60)), s(1), "and the other way round");
        let apart = Duration::from_millis(1001);
        assert_eq!(one_sample(s(2), apart), apart, "from 1s to 2s");
        assert_eq!(one_sample(s(10), s(9)), s(10), "a tick was early");
        assert_eq!(one_sample(MIN_SPAN, s(1)), MIN_SPAN);
    }
}
