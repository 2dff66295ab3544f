//! Counter arithmetic: differences that know about wraps and resets.

use std::collections::VecDeque;
use std::time::Duration;

use crate::sample::heap::block;
use crate::sample::time::MonoNs;

/// Growth of a 64-bit counter; `None` when it went backwards, which is a reset and never a
/// huge rate.
#[must_use]
pub fn grown(before: u64, now: u64) -> Option<u64> {
    now.checked_sub(before)
}

/// Growth of a counter that the kernel keeps in 32 bits: it wraps, so any difference counts.
#[must_use]
pub fn grown32(before: u32, now: u32) -> u32 {
    now.wrapping_sub(before)
}

/// As [`grown32`], of a counter that may begin anew: `None` when it fell. Nothing counts half of the
/// range in an interval.
#[must_use]
pub fn grown32_unless_reset(before: u32, now: u32) -> Option<u32> {
    Some(grown32(before, now)).filter(|d| *d < 1 << 31)
}

/// Per second; `None` for an interval of zero.
#[must_use]
pub fn per_second(delta: f64, dt: Duration) -> Option<f64> {
    (!dt.is_zero()).then(|| delta / dt.as_secs_f64())
}

/// `part / whole`, `None` when the whole is zero: nothing happened is not 0 ms.
#[must_use]
pub fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Median of a slice, which is sorted on the way; `None` when empty.
#[must_use]
pub fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let mid = values.len() / 2;
    Some(if values.len() % 2 == 1 {
        values[mid]
    } else {
        f64::midpoint(values[mid - 1], values[mid])
    })
}

/// Coefficient of variation (population standard deviation over mean); `None` below two
/// values or for a mean of zero.
#[must_use]
pub fn variation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if mean <= 0.0 {
        return None;
    }
    let var = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    Some(var.sqrt() / mean)
}

/// Past readings of one thing, as many as a rate over [`super::MIN_SPAN`] needs.
#[derive(Clone, Debug)]
pub struct Readings<T>(VecDeque<(MonoNs, T)>);

impl<T> Default for Readings<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Readings<T> {
    /// Bytes of one in a map, about: three or four readings at an interval of a second.
    pub(super) const BYTES: usize = 2 * size_of::<Self>() + block(4 * size_of::<(MonoNs, T)>());

    /// Takes in the reading of `at`, passing it and the one to compare it with to `judge`: the
    /// youngest that is at least [`super::MIN_SPAN`] older, else the oldest. Nothing is judged
    /// for the first reading, nor for one that is not younger than the last.
    pub fn push<R>(
        &mut self,
        at: MonoNs,
        now: T,
        judge: impl FnOnce(&T, &T, Duration) -> R,
    ) -> Option<R> {
        if self.last_at().is_some_and(|last| at <= last) {
            return None;
        }
        let far = |then: MonoNs| at.since(then) >= super::MIN_SPAN;
        let base = self.0.iter().rev().find(|(t, _)| far(*t)).or(self.0.front());
        let out = base.map(|(then, before)| judge(before, &now, at.since(*then)));
        self.0.push_back((at, now));
        while self.0.len() > 2 && self.0.get(1).is_some_and(|(t, _)| far(*t)) {
            self.0.pop_front();
        }
        out
    }
    /// Nothing moved from the last reading to `until`: a reading that was left out. At `at` comes
    /// the next one.
    pub fn stood(&mut self, until: MonoNs, at: MonoNs)
    where
        T: Clone,
    {
        let Some((last, value)) = self.0.back().cloned() else { return };
        // All readings in between would have been the same: the one that is compared with too.
        let far = at.back(super::MIN_SPAN);
        for t in [far.min(until), until] {
            if self.0.back().is_some_and(|(before, _)| *before < t) && t > last {
                self.0.push_back((t, value.clone()));
            }
        }
    }
    /// The last reading.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.0.back().map(|r| &r.1)
    }
    /// When the last reading was taken.
    #[must_use]
    pub fn last_at(&self) -> Option<MonoNs> {
        self.0.back().map(|r| r.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wraps_and_resets_are_told_apart() {
        assert_eq!(grown(5, 3), None);
        assert_eq!(grown(3, 5), Some(2));
        assert_eq!(grown32(u32::MAX - 1, 1), 3);
        assert_eq!(grown32_unless_reset(u32::MAX - 1, 1), Some(3));
        assert_eq!(grown32_unless_reset(500, 0), None);
    }

    #[test]
    fn statistics_of_known_series() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
        let cv = variation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert!((cv - 2.0 / 5.0).abs() < 1e-12);
        assert_eq!(variation(&[1.0]), None);
    }

    #[test]
    fn short_intervals_are_judged_over_a_second() {
        let at = |ms: u64| MonoNs(ms * 1_000_000);
        let mut r = Readings::default();
        let mut spans = Vec::new();
        for i in 0..30_u64 {
            if let Some((d, dt)) = r.push(at(i * 100), i, |a, b, dt| (b - a, dt)) {
                assert_eq!(dt, Duration::from_millis(100 * d));
                spans.push(d);
            }
        }
        assert_eq!(&spans[..10], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 9]);
        assert!(spans[9..].iter().all(|s| *s == 9));
        assert!(r.0.len() <= 11, "what is not needed is dropped: {}", r.0.len());
        assert_eq!(r.push(at(2900), 0, |_, _, dt| dt), None, "no interval, no rate");
    }

    proptest! {
        #[test]
        fn growth_inverts_addition(a: u32, d: u32) {
            prop_assert_eq!(grown32(a, a.wrapping_add(d)), d);
        }
        #[test]
        fn rates_are_finite(d in 0u64..u64::MAX, ns in 0u64..u64::MAX) {
            if let Some(r) = per_second(d as f64, Duration::from_nanos(ns)) {
                prop_assert!(r.is_finite());
            }
        }
    }
}
