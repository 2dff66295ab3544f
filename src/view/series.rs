//! Values over time for small charts, in buckets that are aligned to the clock: a chart moves
//! when a bucket is full and not with every tick, which keeps frames small on slow links.

use std::collections::VecDeque;
use std::time::Duration;

use super::context::Cx;
use crate::analysis::MomentView;
use crate::model::derive::Derived;
use crate::model::history::Moment;
use crate::model::time::{MonoNs, Seq};

/// Lengths of buckets, seconds.
const LENGTHS: [u64; 14] = [1, 2, 3, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200];

/// Which stretch of time each column of a chart stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Length of one.
    pub len: Duration,
    /// Start of the first.
    pub start: MonoNs,
    /// How many.
    pub n: usize,
}

impl Buckets {
    /// `n` buckets up to `now` that cover at least `span`, none shorter than `interval`.
    #[must_use]
    pub fn new(now: MonoNs, span: Duration, interval: Duration, n: usize) -> Self {
        let n = n.max(1);
        let want = (span.as_secs_f64() / n as f64).max(interval.as_secs_f64());
        let secs = LENGTHS.into_iter().find(|l| *l as f64 >= want * 0.999).unwrap_or(7200);
        let len = Duration::from_secs(secs);
        let ns = secs * 1_000_000_000;
        let last = now.0 / ns;
        let start = MonoNs(last.saturating_sub(n as u64 - 1) * ns);
        Self { len, start, n }
    }
    /// The bucket of a moment.
    #[must_use]
    pub fn index(&self, at: MonoNs) -> Option<usize> {
        let i = at.0.checked_sub(self.start.0)? / (self.len.as_nanos() as u64).max(1);
        usize::try_from(i).ok().filter(|i| *i < self.n)
    }
    /// All of them together.
    #[must_use]
    pub fn span(&self) -> Duration {
        self.len * u32::try_from(self.n).unwrap_or(u32::MAX)
    }
}

/// The greatest value of each bucket; `None` where nothing was measured.
pub fn maxima(
    cx: &Cx<'_>,
    b: Buckets,
    mut f: impl FnMut(&Moment) -> Option<f64>,
) -> Vec<Option<f64>> {
    let mut out = vec![None; b.n];
    for m in cx.analysis.history().back_from(cx.now.tick.seq) {
        if m.tick.mono < b.start {
            break;
        }
        let Some(slot) = b.index(m.tick.mono).and_then(|i| out.get_mut(i)) else { continue };
        if let Some(v) = f(m).filter(|v| v.is_finite()) {
            *slot = Some(slot.map_or(v, |o: f64| o.max(v)));
        }
    }
    out
}

/// Eighths for a chart from 0 to `top`. What was measured is at least one eighth high: a
/// measured zero is not a hole.
#[must_use]
pub fn levels(values: &[Option<f64>], top: f64) -> Vec<Option<u8>> {
    let top = if top > 0.0 { top } else { 1.0 };
    values.iter().map(|v| v.map(|v| 1 + ((v / top).clamp(0.0, 1.0) * 7.0).round() as u8)).collect()
}

/// The greatest of the values, at least `floor`.
#[must_use]
pub fn top(values: &[Option<f64>], floor: f64) -> f64 {
    values.iter().flatten().fold(floor, |a, b| a.max(*b))
}

/// A chart of one figure over the last minute or more, scaled to its own maximum. Returns the
/// levels and the maximum.
pub fn spark(
    cx: &Cx<'_>,
    n: usize,
    floor: f64,
    mut f: impl FnMut(&Derived) -> Option<f64>,
) -> (Vec<Option<u8>>, f64) {
    let interval = cx.analysis.host().interval;
    let b = Buckets::new(cx.mono(), Duration::from_secs(60), interval, n);
    let v = maxima(cx, b, |m| f(&m.derived));
    let top = top(&v, floor);
    (levels(&v, top), top)
}

/// Rows of the heat map of waits.
pub const WAIT_ROWS: usize = 9;

/// Waits of one tick: how many time slices began after a wait of which length. Without eBPF
/// the kernel gives sums per thread, so a thread's slices all count with their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// Slices by wait: below 16 us, 64 us, 256 us, 1 ms, 4 ms, 16 ms, 64 ms, 256 ms, above.
    pub slices: [u64; WAIT_ROWS],
    /// Of the means, weighted by slices, seconds; `None` when nothing ran.
    pub p50: Option<f64>,
    /// The same.
    pub p99: Option<f64>,
    /// The greatest mean, seconds.
    pub max: Option<f64>,
}

/// Upper end of a row of the heat map, seconds.
#[must_use]
pub fn wait_row_top(row: usize) -> f64 {
    16e-6 * 4f64.powi(row as i32)
}

impl Waits {
    /// Folds one tick.
    #[must_use]
    pub fn of(d: &Derived) -> Option<Self> {
        let s = d.sched.as_ref()?;
        let mut out = Self::default();
        let mut all: Vec<(f64, u64)> = s
            .threads
            .iter()
            .filter(|t| t.slices > 0)
            .filter_map(|t| Some((t.wait_per_slice_ms()? / 1e3, t.slices)))
            .collect();
        for (wait, n) in &all {
            let row =
                (0..WAIT_ROWS - 1).find(|r| *wait < wait_row_top(*r)).unwrap_or(WAIT_ROWS - 1);
            out.slices[row] += n;
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: u64 = all.iter().map(|a| a.1).sum();
        let at = |share: f64| {
            let want = (total as f64 * share).ceil().max(1.0) as u64;
            let mut sum = 0;
            all.iter()
                .find(|(_, n)| {
                    sum += n;
                    sum >= want
                })
                .map(|a| a.0)
        };
        out.p50 = at(0.5);
        out.p99 = at(0.99);
        out.max = all.last().map(|a| a.0);
        Some(out)
    }
}

/// Waits of the ticks in memory. Folded once per tick, because a tick may hold thousands of
/// threads.
#[derive(Clone, Debug, Default)]
pub struct WaitLog {
    ticks: VecDeque<(Seq, MonoNs, Waits)>,
}

impl WaitLog {
    /// Takes in the newest moment; forgets those before `oldest`.
    pub fn push(&mut self, m: &MomentView<'_>, oldest: Option<Seq>) {
        if self.ticks.back().is_some_and(|t| t.0 >= m.tick.seq) {
            return;
        }
        if let Some(w) = Waits::of(m.derived) {
            self.ticks.push_back((m.tick.seq, m.tick.mono, w));
        }
        while oldest.is_some_and(|o| self.ticks.front().is_some_and(|t| t.0 < o)) {
            self.ticks.pop_front();
        }
    }
    /// Ticks up to `seq`, youngest first.
    pub fn back_from(&self, seq: Seq) -> impl Iterator<Item = (MonoNs, &Waits)> {
        self.ticks.iter().rev().skip_while(move |t| t.0 > seq).map(|t| (t.1, &t.2))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn buckets_stay_where_they_are_until_one_is_full() {
        let s = Duration::from_secs(1);
        let at = |ms: u64| Buckets::new(MonoNs(ms * 1_000_000), 60 * s, s, 26);
        let b = at(100_000);
        assert_eq!(b.len, 3 * s);
        assert_eq!(at(101_000), b, "99 to 102 s is one bucket");
        assert_ne!(at(102_000), b);
        assert_eq!(b.index(MonoNs(100_000_000_000)), Some(25));
        assert_eq!(b.index(MonoNs(24_000_000_000)), Some(0));
        assert_eq!(b.index(MonoNs(23_999_999_999)), None);
        // A young box: fewer buckets than asked for exist before zero.
        assert_eq!(at(500).index(MonoNs(0)), Some(0));
    }

    #[test]
    fn a_measured_zero_is_not_a_hole() {
        assert_eq!(
            levels(&[None, Some(0.0), Some(5.0), Some(99.0)], 10.0),
            [None, Some(1), Some(5), Some(8)]
        );
    }
}
