//! The width of a plot: where a time is on it, and which times are written below it.

use jiff::tz::TimeZone;

use super::document::{Gap, Percent, Plot, counted};
use super::seen::{Hole, Seen};
use super::series::{Point, Series};
use crate::sample::time::WallNs;
use crate::view::units;

/// Distances of labels, seconds.
const STEPS: [i64; 22] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800, 2_592_000, 31_536_000,
];
/// Labels at most.
const LABELS: i64 = 6;
const SEC: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SEC;
/// Buckets without a value that a line goes across: some collectors read every other tick.
const BRIDGED: usize = 3;

/// All of the recording, from left to right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    from: WallNs,
    to: WallNs,
    /// Times are shown with their day.
    is_dated: bool,
}

impl Axis {
    /// Of what was seen.
    pub(super) fn of(seen: &Seen) -> Self {
        let (from, to) = seen.span.unwrap_or_default();
        let least = i64::try_from(seen.interval().as_nanos()).unwrap_or(i64::MAX).max(1);
        let to = WallNs(to.0.max(from.0.saturating_add(least)));
        Self { from, to, is_dated: from.0.div_euclid(DAY) != to.0.div_euclid(DAY) }
    }

    /// Where a time is.
    pub(super) fn percent(&self, at: WallNs) -> Percent {
        let since = at.0.saturating_sub(self.from.0) as f64;
        let all = self.to.0.saturating_sub(self.from.0) as f64;
        (100.0 * since / all.max(1.0)).clamp(0.0, 100.0)
    }

    /// A time of day in UTC, with its day where the recording has several.
    pub(super) fn time(&self, at: WallNs) -> String {
        in_utc(at, if self.is_dated { "%Y-%m-%d %H:%M:%SZ" } else { "%H:%M:%SZ" })
    }

    /// Times to write below.
    pub(super) fn labels(&self) -> Vec<(Percent, String)> {
        let all = self.to.0.saturating_sub(self.from.0);
        let Some(step) = STEPS.into_iter().find(|s| all / (s * SEC) < LABELS) else {
            return Vec::new();
        };
        let step = step * SEC;
        let pattern = match (self.is_dated, step < 60 * SEC) {
            (true, _) if step >= DAY => "%m-%d",
            (true, _) => "%m-%d %H:%M",
            (false, true) => "%H:%M:%S",
            (false, false) => "%H:%M",
        };
        let mut out = Vec::new();
        let mut at = self.from.0.div_euclid(step).saturating_mul(step);
        while at < self.to.0 && out.len() <= LABELS as usize + 1 {
            if at >= self.from.0 {
                out.push((self.percent(WallNs(at)), in_utc(WallNs(at), pattern)));
            }
            let Some(next) = at.checked_add(step) else { break };
            at = next;
        }
        out
    }

    /// Times without ticks.
    pub(super) fn holes(&self, holes: &[Hole]) -> Vec<Gap> {
        let label = |h: &Hole| {
            let what = h.ticks.map_or("not recorded".to_owned(), |n| {
                format!("{} missing", counted(u64::from(n), "tick"))
            });
            format!("{what}, {} to {}", self.time(h.from), self.time(h.to))
        };
        let gap =
            |h: &Hole| Gap { from: self.percent(h.from), to: self.percent(h.to), label: label(h) };
        holes.iter().map(gap).collect()
    }

    /// A series in this width: the threshold is inside.
    pub(super) fn plot(
        &self,
        seen: &Seen,
        series: &Series,
        (name, unit): (&str, &str),
        limit: Option<f64>,
    ) -> Option<Plot> {
        let mut pieces: Vec<Vec<(Percent, f64, f64)>> = Vec::new();
        let mut last: Option<Point> = None;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for p in series.points() {
            (low, high) = (low.min(p.low), high.max(p.high));
            let at = (self.percent(seen.middle(p.bucket)), p.low, p.high);
            match pieces.last_mut() {
                Some(piece) if last.is_some_and(|l| p.bucket - l.bucket <= BRIDGED) => {
                    piece.push(at);
                }
                _ => pieces.push(vec![at]),
            }
            last = Some(p);
        }
        last?;
        let limit = limit.filter(|l| l.is_finite() && *l >= 0.0);
        let most = high.max(limit.unwrap_or(0.0) * 1.1);
        // Percentages of one thing are shown against all of it.
        let top = if unit == "%" && most > 20.0 && most <= 110.0 { 100.0 } else { most };
        let top = if top > 0.0 { top.max(high) } else { 1.0 };
        let say = |v: f64| units::quantity(v, unit);
        Some(Plot {
            name: name.to_owned(),
            note: String::new(),
            pieces,
            is_flat: low == high || say(low) == say(high),
            top,
            top_label: say(top),
            range: if low == high || say(low) == say(high) {
                say(high)
            } else {
                format!("{} to {}", say(low), say(high))
            },
            limit: limit.map(|l| (l, say(l))),
            shaded: Vec::new(),
            holes: seen.holes.iter().map(|h| (self.percent(h.from), self.percent(h.to))).collect(),
            ticks: self.labels(),
        })
    }
}

/// A time in UTC.
pub(super) fn in_utc(at: WallNs, pattern: &str) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(at.0))
        .map(|t| t.to_zoned(TimeZone::UTC).strftime(pattern).to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(from: i64, seconds: i64) -> Axis {
        let (from, to) = (WallNs(from * SEC), WallNs((from + seconds) * SEC));
        Axis { from, to, is_dated: from.0.div_euclid(DAY) != to.0.div_euclid(DAY) }
    }

    #[test]
    fn labels_are_round_times_and_few() {
        let texts = |a: Axis| a.labels().into_iter().map(|l| l.1).collect::<Vec<_>>();
        // 1767622500 s is 2026-01-05 14:15:00 UTC.
        let minute = axis(1_767_622_497, 96);
        assert_eq!(texts(minute), ["14:15:00", "14:15:30", "14:16:00", "14:16:30"]);
        let at: Vec<i64> = minute.labels().iter().map(|l| (l.0 * 100.0).round() as i64).collect();
        assert_eq!(at, [313, 3438, 6563, 9688], "3, 33, 63 and 93 of 96 s");
        let hour = axis(1_767_622_500, 3600);
        assert_eq!(texts(hour), ["14:15", "14:30", "14:45", "15:00"]);
        let week = axis(1_767_622_500, 7 * 86_400);
        assert_eq!(texts(week), ["01-07", "01-09", "01-11"]);
        for seconds in [1, 2, 59, 600, 86_400, 31_000_000, 3_000_000_000] {
            let n = axis(0, seconds).labels().len();
            assert!(n <= 7, "{n} labels of {seconds} s");
        }
    }

    #[test]
    fn no_time_is_outside() {
        let a = axis(100, 100);
        assert_eq!(a.percent(WallNs(i64::MIN)), 0.0);
        assert_eq!(a.percent(WallNs(150 * SEC)), 50.0);
        assert_eq!(a.percent(WallNs(i64::MAX)), 100.0);
        let all = Axis { from: WallNs(i64::MIN), to: WallNs(i64::MAX), is_dated: true };
        assert!(all.percent(WallNs(0)).is_finite());
        let _ = (all.labels(), all.time(WallNs(i64::MAX)));
    }
}
