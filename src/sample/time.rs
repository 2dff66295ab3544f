//! Points in time, as numbers with a unit.
//!
//! Nothing here reads a clock: the values come out of ticks, so that a replay sees
//! the same time as the live run did. `crate::clock` is the only place that asks the
//! kernel what time it is.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds of `CLOCK_MONOTONIC`: since boot, does not step, stops in suspend.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MonoNs(pub u64);

/// Nanoseconds of `CLOCK_REALTIME` since 1970-01-01 UTC. For display only: it may step.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WallNs(pub i64);

/// Number of a tick within one run: 0, 1, 2, ... without holes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

/// Readings are stamped in steps of so many ns. Rates span 900 ms and more and do not show it;
/// a recording would keep the noise below of every reading.
pub const STAMP_NS: u64 = 10_000;

impl MonoNs {
    /// To the nearest [`STAMP_NS`].
    #[must_use]
    pub fn stamp(self) -> Self {
        Self(self.0.saturating_add(STAMP_NS / 2) / STAMP_NS * STAMP_NS)
    }
    /// Time from `earlier` to `self`; zero when `earlier` is in fact later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
    /// `self` moved back by `d`, not below zero.
    #[must_use]
    pub fn back(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(d.as_nanos() as u64))
    }
}

impl Add<Duration> for MonoNs {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.as_nanos() as u64))
    }
}

impl WallNs {
    /// So much earlier.
    #[must_use]
    pub fn back(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)))
    }
}

impl Sub for WallNs {
    type Output = i64;
    fn sub(self, other: Self) -> i64 {
        self.0.saturating_sub(other.0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// When a reading began and ended. The kernel's counters moved in between, so rates use
/// the middle of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// `CLOCK_MONOTONIC` before the first read.
    pub start: MonoNs,
    /// `CLOCK_MONOTONIC` after the last read.
    pub end: MonoNs,
}

impl Span {
    /// A reading that took no time, as scripted sources use it.
    #[must_use]
    pub fn at(t: MonoNs) -> Self {
        Self { start: t, end: t }
    }
    /// A reading between two looks at the clock, each to the nearest [`STAMP_NS`].
    #[must_use]
    pub fn between(start: MonoNs, end: MonoNs) -> Self {
        Self { start: start.stamp(), end: end.stamp() }
    }
    /// The moment the reading stands for.
    #[must_use]
    pub fn mid(self) -> MonoNs {
        MonoNs(self.start.0 + self.end.0.saturating_sub(self.start.0) / 2)
    }
    /// How long the reading took.
    #[must_use]
    pub fn cost(self) -> Duration {
        self.end.since(self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_stamped_in_steps_of_10_us() {
        let of = |ns| MonoNs(ns).stamp().0;
        assert_eq!((of(0), of(4_999), of(5_000), of(14_999)), (0, 0, 10_000, 10_000));
        let s = Span::between(MonoNs(14_999), MonoNs(25_000));
        assert_eq!((s.start, s.end), (MonoNs(10_000), MonoNs(30_000)));
    }
}
