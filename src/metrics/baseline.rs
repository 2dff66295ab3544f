//! What is normal for one subject: median and spread of its own past.
//!
//! A window of samples over a time, kept sorted as they come and go, so that a tick costs one
//! insertion and not a sort. It is part of the fold over ticks: the same ticks give the same
//! baseline, live or replayed. What stands far off is not learned while the window still knows
//! better: a device that became slow would else be normal after a few minutes.

use std::collections::VecDeque;
use std::time::Duration;

use super::MIN_SPAN;
use crate::sample::heap::block;
use crate::sample::time::MonoNs;

/// Samples kept; the oldest go first.
const MAX_SAMPLES: usize = 600;
/// So many samples are needed before any other is called an outlier.
const SETTLED: usize = 5;
/// A sample of so many medians is not learned.
const OUTLIER: f64 = 5.0;

/// Median and spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Median.
    pub median: f64,
    /// Median absolute deviation from it; times 1.48 it is the standard deviation of a normal
    /// distribution.
    pub mad: f64,
    /// Samples behind it.
    pub samples: usize,
}

/// The recent past of one figure of one subject.
#[derive(Clone, Debug)]
pub struct Baseline {
    span: Duration,
    recent: VecDeque<(MonoNs, f64)>,
    /// The same values, ascending.
    sorted: Vec<f64>,
    level: Option<Level>,
}

impl Baseline {
    /// Over the last `span`.
    #[must_use]
    pub fn over(span: Duration) -> Self {
        Self { span, recent: VecDeque::new(), sorted: Vec::new(), level: None }
    }

    /// Bytes that it holds, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        block(self.recent.len() * size_of::<(MonoNs, f64)>())
            + block(self.sorted.len() * size_of::<f64>())
    }

    /// Takes in a sample of `at`, unless it is closer than a second to the last one, no number,
    /// or far above what is normal.
    pub fn learn(&mut self, at: MonoNs, value: f64) {
        if self.recent.back().is_some_and(|(t, _)| at < *t) {
            // Another boot.
            *self = Self::over(self.span);
        }
        self.forget(at);
        let again = self.recent.back().is_some_and(|(t, _)| at.since(*t) < MIN_SPAN);
        let outlier = self
            .level
            .is_some_and(|l| l.samples >= SETTLED && l.median > 0.0 && value >= OUTLIER * l.median);
        if again || outlier || !value.is_finite() {
            return;
        }
        if self.recent.len() >= MAX_SAMPLES {
            self.drop_oldest();
        }
        self.recent.push_back((at, value));
        let place = self.sorted.partition_point(|v| v.total_cmp(&value).is_lt());
        self.sorted.insert(place, value);
        self.level = level(&self.sorted);
    }

    /// Drops what is older than the span.
    pub fn forget(&mut self, at: MonoNs) {
        let before = self.recent.len();
        while self.recent.front().is_some_and(|(t, _)| at.since(*t) > self.span) {
            self.drop_oldest();
        }
        if self.recent.len() != before {
            self.level = level(&self.sorted);
        }
    }

    fn drop_oldest(&mut self) {
        let Some((_, value)) = self.recent.pop_front() else { return };
        if let Ok(place) = self.sorted.binary_search_by(|v| v.total_cmp(&value)) {
            self.sorted.remove(place);
        }
    }

    /// What is normal; `None` before the first sample.
    #[must_use]
    pub fn level(&self) -> Option<Level> {
        self.level
    }

    /// The median.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        self.level.map(|l| l.median)
    }
}

fn level(sorted: &[f64]) -> Option<Level> {
    let n = sorted.len();
    let (low, high) = (sorted.get(n.checked_sub(1)? / 2)?, sorted.get(n / 2)?);
    let median = f64::midpoint(*low, *high);
    Some(Level { median, mad: mad(sorted, median), samples: n })
}

/// Deviations grow to the left and to the right of the median: merging the two runs finds the
/// middle one without sorting.
fn mad(sorted: &[f64], median: f64) -> f64 {
    let n = sorted.len();
    let (left, right) = sorted.split_at(sorted.partition_point(|v| *v < median));
    let mut left = left.iter().rev().map(|v| median - v).peekable();
    let mut right = right.iter().map(|v| v - median).peekable();
    let (mut before, mut last) = (0.0, 0.0);
    for _ in 0..=n / 2 {
        let next = match (left.peek(), right.peek()) {
            (Some(l), Some(r)) if l <= r => left.next(),
            (_, Some(_)) => right.next(),
            _ => left.next(),
        };
        before = last;
        last = next.unwrap_or(last);
    }
    if n % 2 == 1 { last } else { f64::midpoint(before, last) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::rate;
    use super::*;
    use proptest::prelude::*;

    fn at(s: f64) -> MonoNs {
        MonoNs((s * 1e9) as u64)
    }

    fn fed(values: &[f64]) -> Baseline {
        let mut b = Baseline::over(Duration::from_secs(10_000));
        for (i, v) in values.iter().enumerate() {
            b.learn(at(i as f64), *v);
        }
        b
    }

    #[test]
    fn median_and_spread_of_known_series() {
        // 1 1 2 2 4 6 9: median 2, deviations 1 1 0 0 2 4 7, their median 1.
        let l = fed(&[6.0, 1.0, 2.0, 4.0, 2.0, 9.0, 1.0]).level().unwrap();
        assert_eq!(l, Level { median: 2.0, mad: 1.0, samples: 7 });
        assert_eq!(fed(&[]).level(), None);
        assert_eq!(fed(&[3.0]).level().unwrap().mad, 0.0);
        assert_eq!(fed(&[1.0, f64::NAN, 2.0]).median(), Some(1.5));
    }

    #[test]
    fn a_slow_spell_is_not_learned_until_the_past_is_forgotten() {
        let mut b = Baseline::over(Duration::from_secs(600));
        for s in 0..20 {
            b.learn(at(f64::from(s)), 0.1);
        }
        for s in 20..600 {
            b.learn(at(f64::from(s)), 50.0);
        }
        assert_eq!(b.median(), Some(0.1), "it stays what it was for ten minutes");
        for s in 600..640 {
            b.learn(at(f64::from(s)), 50.0);
        }
        assert_eq!(b.median(), Some(50.0), "then the new state is normal");
    }

    #[test]
    fn short_intervals_do_not_shorten_the_window() {
        let mut b = Baseline::over(Duration::from_secs(600));
        for i in 0..6000 {
            b.learn(at(f64::from(i) * 0.1), 1.0);
        }
        let n = b.level().unwrap().samples;
        assert!((590..=600).contains(&n), "{n}");
        b.forget(at(5000.0));
        assert_eq!(b.level(), None);
    }

    proptest! {
        /// The same as sorting all over.
        #[test]
        fn equals_the_definition(values in proptest::collection::vec(1.0f64..4.9, 1..80)) {
            let l = fed(&values).level().unwrap();
            let median = rate::median(&mut values.clone()).unwrap();
            let mut off: Vec<f64> = values.iter().map(|v| (v - median).abs()).collect();
            prop_assert_eq!(l.median, median);
            prop_assert!((l.mad - rate::median(&mut off).unwrap()).abs() < 1e-12);
        }
        #[test]
        fn any_order_of_times_is_survived(
            samples in proptest::collection::vec((0u64..2_000_000_000_000, 0.0f64..1e9), 0..900),
        ) {
            let mut b = Baseline::over(Duration::from_secs(60));
            for (t, v) in samples {
                b.learn(MonoNs(t), v);
                prop_assert_eq!(b.recent.len(), b.sorted.len());
                prop_assert!(b.recent.len() <= MAX_SAMPLES && b.sorted.is_sorted());
            }
        }
    }
}
