//! Values over time for small charts, in buckets that are aligned to the clock: a chart moves
//! when a bucket is full and not with every tick, which keeps frames small on slow links.

use std::collections::VecDeque;
use std::time::Duration;

use super::context::Cx;
use super::units;
use crate::analysis::TickView;
use crate::metrics::Derived;
use crate::metrics::bpf::RunqFigures;
use crate::metrics::history::{History, Snapshot};
use crate::sample::bpf::Hist;
use crate::sample::bpf::layout::{HIST_MAX_NS, bucket_range};
use crate::sample::time::{MonoNs, Seq};

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
    mut f: impl FnMut(&Snapshot) -> Option<f64>,
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

/// Eighths for a chart from 0 to `top`. What was measured is at least one eighth high: a measured
/// zero is not a gap.
#[must_use]
pub fn levels(values: &[Option<f64>], top: f64) -> Vec<Option<u8>> {
    let top = if top > 0.0 { top } else { 1.0 };
    values.iter().map(|v| v.map(|v| 1 + ((v / top).clamp(0.0, 1.0) * 7.0).round() as u8)).collect()
}

/// The greatest of the values; `None` when nothing was measured.
#[must_use]
pub fn greatest(values: &[Option<f64>]) -> Option<f64> {
    values.iter().flatten().copied().reduce(f64::max)
}

/// A chart of one figure over the last minute or more, scaled to its own maximum but to at least
/// `floor`, so that noise does not look like a peak. Returns the levels and the real maximum.
pub fn spark(
    cx: &Cx<'_>,
    n: usize,
    floor: f64,
    mut f: impl FnMut(&Derived) -> Option<f64>,
) -> (Vec<Option<u8>>, Option<f64>) {
    let interval = cx.analysis.host().interval;
    let b = Buckets::new(cx.mono(), Duration::from_secs(60), interval, n);
    let v = maxima(cx, b, |m| f(&m.derived));
    let top = greatest(&v);
    (levels(&v, top.unwrap_or(0.0).max(floor)), top)
}

/// Rows of a heat map of latencies.
pub const WAIT_ROWS: usize = 9;

/// How many took how long: below 16 us, 64 us, 256 us, 1 ms, 4 ms, 16 ms, 64 ms, 256 ms, above.
pub type LatencyRows = [u64; WAIT_ROWS];

/// Upper end of a row of a heat map, seconds.
#[must_use]
pub fn wait_row_top(row: usize) -> f64 {
    16e-6 * 4f64.powi(row as i32)
}

/// The row of a latency in seconds.
fn wait_row(secs: f64) -> usize {
    (0..WAIT_ROWS - 1).find(|r| secs < wait_row_top(*r)).unwrap_or(WAIT_ROWS - 1)
}

/// Adds a kernel histogram to the rows, each bucket where its middle lies.
pub fn fold_hist(h: &Hist, rows: &mut LatencyRows) {
    for (bucket, n) in h.buckets() {
        let (low, high) = bucket_range(usize::from(bucket));
        let row = wait_row(f64::midpoint(low as f64, high as f64) / 1e9);
        rows[row] = rows[row].saturating_add(n);
    }
}

/// A shade for a part of a column: even one among thousands shows.
#[must_use]
pub fn shade(part: u64, whole: u64) -> u8 {
    if part == 0 || whole == 0 {
        return 0;
    }
    match part as f64 / whole as f64 {
        s if s < 0.05 => 1,
        s if s < 0.25 => 2,
        s if s < 0.60 => 3,
        _ => 4,
    }
}

/// Label and shades of each of the `rows` lines of a heat map, longest latency on top. Nothing is
/// longer than the top line covers; the lowest line includes everything shorter.
#[must_use]
pub fn heat(columns: &[LatencyRows], rows: usize) -> Vec<(String, Vec<u8>)> {
    if rows == 0 {
        return Vec::new();
    }
    let used = |row: usize| columns.iter().any(|c| c[row] > 0);
    let top = (0..WAIT_ROWS).rev().find(|r| used(*r)).unwrap_or(0);
    let top = top.max(rows - 1).min(WAIT_ROWS - 1);
    let bottom = (top + 1).saturating_sub(rows);
    (bottom..=top)
        .rev()
        .map(|row| {
            // The lowest row shown includes everything shorter.
            let from = if row == bottom { 0 } else { row };
            let label = if row + 1 == WAIT_ROWS {
                format!(">{}", units::secs(wait_row_top(row.saturating_sub(1))))
            } else {
                format!("<{}", units::secs(wait_row_top(row)))
            };
            let sum = |c: &[u64]| c.iter().fold(0, |a: u64, n| a.saturating_add(*n));
            let shades = columns.iter().map(|c| shade(sum(&c[from..=row]), sum(c))).collect();
            (label, shades)
        })
        .collect()
}

/// Waits of one tick, by length.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// By wait.
    pub slices: LatencyRows,
    /// Seconds; `None` when nothing waited.
    pub p50: Option<f64>,
    /// The same.
    pub p90: Option<f64>,
    /// The same.
    pub p99: Option<f64>,
    /// The longest, seconds.
    pub max: Option<f64>,
}

impl Waits {
    /// Folds one tick: every wait with eBPF, else the means of threads.
    #[must_use]
    pub fn of(d: &Derived) -> Option<Self> {
        match &d.runq_bpf {
            Some(r) => Some(Self::measured(r)),
            None => Self::means(d),
        }
    }

    fn measured(r: &RunqFigures) -> Self {
        let mut out = Self::default();
        fold_hist(&r.waits, &mut out.slices);
        if let Some(l) = r.latency {
            let secs = |ns: u64| Some(ns as f64 / 1e9);
            out.p50 = secs(l.p50_ns);
            out.p90 = secs(l.p90_ns);
            out.p99 = secs(l.p99_ns);
            out.max = secs(l.max_ns.unwrap_or(HIST_MAX_NS));
        }
        out
    }

    /// The kernel gives sums per thread, so a thread's slices all count with their mean.
    fn means(d: &Derived) -> Option<Self> {
        let s = d.sched.as_ref()?;
        let mut out = Self::default();
        let mut all: Vec<(f64, u64)> = s
            .threads
            .iter()
            .filter(|t| t.slices > 0)
            .filter_map(|t| Some((t.wait_per_slice_ms()? / 1e3, t.slices)))
            .collect();
        for (wait, n) in &all {
            out.slices[wait_row(*wait)] += n;
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
        out.p90 = at(0.9);
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
    /// Adds the newest moment; drops those before `oldest`.
    pub fn push(&mut self, m: &TickView<'_>, oldest: Option<Seq>) {
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
    /// Rebuilds from everything in memory.
    pub fn rebuild(&mut self, history: &History) {
        self.ticks.clear();
        for m in history.iter() {
            if let Some(w) = Waits::of(&m.derived) {
                self.ticks.push_back((m.tick.seq, m.tick.mono, w));
            }
        }
    }
    /// Ticks up to `seq`, newest first.
    pub fn back_from(&self, seq: Seq) -> impl Iterator<Item = (MonoNs, &Waits)> {
        self.ticks.iter().rev().skip_while(move |t| t.0 > seq).map(|t| (t.1, &t.2))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::bpf::layout::bucket_of;

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
    fn a_heat_map_keeps_what_is_rare_and_what_is_long() {
        let mut c = LatencyRows::default();
        // 20 us, 3 ms, 30 s.
        for ns in [20_000, 3_000_000, 30_000_000_000] {
            fold_hist(&[(bucket_of(ns) as u16, 1)].into(), &mut c);
        }
        assert_eq!(c, [0, 1, 0, 0, 1, 0, 0, 0, 1]);
        c[1] = 5000;
        let map = heat(&[c, LatencyRows::default()], 5);
        let rows: Vec<_> = map.iter().map(|(l, s)| (l.as_str(), s.as_slice())).collect();
        assert_eq!(
            rows,
            [
                (">262ms", &[1, 0][..]),
                ("<262ms", &[0, 0]),
                ("<66ms", &[0, 0]),
                ("<16ms", &[0, 0]),
                ("<4.1ms", &[4, 0]),
            ]
        );
        assert!(heat(&[c], 0).is_empty());
    }

    #[test]
    fn a_measured_zero_is_not_a_hole() {
        assert_eq!(
            levels(&[None, Some(0.0), Some(5.0), Some(99.0)], 10.0),
            [None, Some(1), Some(5), Some(8)]
        );
    }
}
