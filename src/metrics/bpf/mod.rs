//! From two readings of the eBPF counters to figures: waits on the run queue, time in
//! interrupts, latency of block requests, network events.
//!
//! The kernel's counters and histograms grow from attach on; a difference of two readings is
//! what happened in between. Where anything went backwards the programs were attached anew:
//! then there is no figure, never a huge one. Quantiles come from histogram buckets and are at
//! most 6.25 % off.

pub mod block;
pub mod events;
pub mod irq;
pub mod net;
pub mod runq;

pub use block::BlockFigures;
pub use events::{EventKey, EventRow};
pub use irq::IrqFigures;
pub use net::NetFigures;
pub use runq::RunqFigures;

use crate::sample::bpf::Hist;
use crate::sample::bpf::layout::{HIST_MAX_NS, LAST_BUCKET, bucket_range};

/// What a histogram says in five numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Half of them took less, ns.
    pub p50_ns: u64,
    /// Nine of ten took less, ns.
    pub p90_ns: u64,
    /// 99 of a hundred took less, ns.
    pub p99_ns: u64,
    /// None took longer, ns; `None` when something took over 68 s.
    pub max_ns: Option<u64>,
    /// Mean, ns.
    pub mean_ns: f64,
}

impl Latency {
    /// Of a histogram; `None` when it is empty.
    #[must_use]
    pub fn of(h: &Hist) -> Option<Self> {
        let count = h.count();
        Some(Self {
            p50_ns: h.quantile(0.5)?,
            p90_ns: h.quantile(0.9)?,
            p99_ns: h.quantile(0.99)?,
            max_ns: h.bound(),
            mean_ns: sum_ns(h) / count as f64,
            count,
        })
    }

    /// Takes over an exact maximum, when it lies where the histogram says that it must.
    fn with_exact_max(mut self, h: &Hist, exact: Option<u64>) -> Self {
        let top = h.top().map(usize::from);
        let fits = |ns: u64| {
            top.is_some_and(|b| {
                let (low, high) = bucket_range(b);
                ns >= low && (ns < high || b >= LAST_BUCKET)
            })
        };
        self.max_ns = exact.filter(|ns| fits(*ns)).or(self.max_ns);
        self
    }
}

/// Sum of all values of a histogram, ns: each counts as the middle of its bucket.
#[must_use]
pub fn sum_ns(h: &Hist) -> f64 {
    let middle = |bucket: u16| {
        let (low, high) = bucket_range(usize::from(bucket));
        if usize::from(bucket) >= LAST_BUCKET {
            HIST_MAX_NS as f64
        } else {
            f64::midpoint(low as f64, high as f64)
        }
    };
    h.buckets().map(|(b, n)| middle(b) * n as f64).sum()
}

/// Events counted in an interval, and events that happened but could not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Counted.
    pub counted: u64,
    /// Lost: no program ran, a stamp or a table row was taken, a time made no sense.
    pub lost: u64,
    /// Of those counted, the ones whose time may be too short.
    pub unsure: u64,
}

impl Coverage {
    /// Part of the events that is counted, 0 to 1; `None` when nothing happened.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        let all = self.counted as f64 + self.lost as f64;
        super::rate::ratio(self.counted as f64, all)
    }
}

/// Growth of a counter that the kernel does not tell everywhere; 0 where it does not.
fn grown_missed(before: Option<u64>, now: Option<u64>) -> u64 {
    before.zip(now).map_or(0, |(b, n)| n.saturating_sub(b))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::bpf::layout::bucket_of;
    use proptest::prelude::*;

    /// A histogram of these values, ns.
    pub(super) fn hist(values: &[u64]) -> Hist {
        let mut h = Hist::default();
        for v in values {
            h.merge(&[(bucket_of(*v) as u16, 1)].into());
        }
        h
    }

    #[test]
    fn an_empty_histogram_has_no_latency() {
        assert_eq!(Latency::of(&Hist::default()), None);
    }

    #[test]
    fn five_numbers_of_a_known_series() {
        // 98 waits of 100 us, one of 4 ms, one of 21 ms.
        let mut values = vec![100_000; 98];
        values.extend([4_000_000, 21_000_000]);
        let h = hist(&values);
        let l = Latency::of(&h).unwrap();
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() <= 0.0625, "{a} is not {b}");
        assert_eq!(l.count, 100);
        near(l.p50_ns as f64, 100_000.0);
        near(l.p90_ns as f64, 100_000.0);
        near(l.p99_ns as f64, 4_000_000.0);
        near(l.mean_ns, (98.0 * 100_000.0 + 25_000_000.0) / 100.0);
        let max = l.max_ns.unwrap();
        assert!((21_000_000..=21_000_000 * 9 / 8).contains(&max), "{max}");
        // A maximum that was seen itself replaces the bucket's end, one from elsewhere does not.
        assert_eq!(l.with_exact_max(&h, Some(21_000_000)).max_ns, Some(21_000_000));
        assert_eq!(l.with_exact_max(&h, Some(9_000_000)).max_ns, Some(max));
    }

    #[test]
    fn over_68_s_there_is_no_maximum() {
        assert_eq!(Latency::of(&hist(&[HIST_MAX_NS])).unwrap().max_ns, None);
    }

    proptest! {
        #[test]
        fn quantiles_are_ordered_and_the_mean_is_within_a_bucket(
            values in prop::collection::vec(64u64..1 << 35, 1..200),
        ) {
            let l = Latency::of(&hist(&values)).unwrap();
            prop_assert!(l.p50_ns <= l.p90_ns && l.p90_ns <= l.p99_ns);
            prop_assert!(l.p99_ns <= l.max_ns.unwrap());
            let mean = values.iter().map(|v| *v as f64).sum::<f64>() / values.len() as f64;
            prop_assert!((l.mean_ns / mean - 1.0).abs() <= 0.0626, "{} {mean}", l.mean_ns);
            prop_assert_eq!(l.count, values.len() as u64);
        }
    }

    #[test]
    fn coverage_is_a_part_of_what_happened() {
        let c = |counted, lost| Coverage { counted, lost, unsure: 0 }.share();
        assert_eq!(c(99, 1), Some(0.99));
        assert_eq!(c(0, 0), None, "nothing happened is not full coverage");
        assert_eq!(c(0, 5), Some(0.0));
    }
}
