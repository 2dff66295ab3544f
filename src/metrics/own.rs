//! What this program itself costs. Its work comes in bursts: a reader of many sockets works for
//! seconds, then rests for as many ticks, so one interval says little. The average is taken over
//! the last ten seconds, as a look at `utime` and `stime` of `/proc/PID/stat` ten seconds apart
//! would give it.

use std::collections::VecDeque;
use std::time::Duration;

use super::MIN_SPAN;
use super::rate::{grown, per_second};
use crate::sample::Stamped;
use crate::sample::own::OwnSample;
use crate::sample::time::MonoNs;

/// The CPU time is averaged over so long.
pub const SPAN: Duration = Duration::from_secs(10);

/// What it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnFigures {
    /// CPU time of all threads, % of one core, the average over `over`.
    pub cpu_pct: f64,
    /// About [`SPAN`], or the distance of two ticks where that is more; shorter at the start.
    pub over: Duration,
    /// Resident memory, bytes.
    pub rss_bytes: Option<u64>,
}

/// Remembers readings of the last [`SPAN`], about a second (or an interval) apart.
#[derive(Clone, Debug, Default)]
pub struct OwnTracker {
    past: VecDeque<(MonoNs, Duration)>,
}

impl OwnTracker {
    /// The average since the reading whose age is nearest to [`SPAN`]. `None` for the first reading
    /// of a run: what was used before it has no time.
    pub fn push(&mut self, now: &Stamped<OwnSample>) -> Option<OwnFigures> {
        let (at, cpu) = (now.span.mid(), now.data.cpu);
        if self.past.back().is_some_and(|(then, had)| at < *then || cpu < *had) {
            // Another boot, or another process that went on with the recording.
            self.past.clear();
        }
        let figures = self.base(at).and_then(|(then, had)| {
            let over = at.since(then);
            let used = grown(had.as_nanos() as u64, cpu.as_nanos() as u64)?;
            let cpu_pct = per_second(used as f64 / 1e7, over)?;
            Some(OwnFigures { cpu_pct, over, rss_bytes: now.data.rss_bytes })
        });
        // Of short intervals one reading a second is remembered.
        if self.past.back().is_none_or(|(then, _)| at.since(*then) >= MIN_SPAN) {
            self.past.push_back((at, cpu));
        }
        while self.past.len() > 2
            && self.past.get(1).is_some_and(|(then, _)| at.since(*then) > SPAN)
        {
            self.past.pop_front();
        }
        figures
    }

    fn base(&self, at: MonoNs) -> Option<(MonoNs, Duration)> {
        self.past.iter().copied().min_by_key(|(then, _)| at.since(*then).abs_diff(SPAN))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::time::Span;

    /// A reading at `ms` of a process that has used `used_ms` of CPU time since it began.
    fn reading(ms: u64, used_ms: u64) -> Stamped<OwnSample> {
        let cpu = Duration::from_millis(used_ms);
        Stamped {
            span: Span::at(MonoNs(ms * 1_000_000)),
            cpu: Duration::ZERO,
            data: OwnSample { cpu, rss_bytes: Some(1 << 20) },
        }
    }

    /// 3.2 s of work every 16 s: 20 % of a core. Most single intervals show 1.7 %.
    fn bursts(s: u64) -> u64 {
        17 * s + s.div_ceil(16) * 2928
    }

    #[test]
    fn bursts_are_averaged_over_ten_seconds() {
        let mut t = OwnTracker::default();
        for s in 0..100 {
            let f = t.push(&reading(s * 1000, bursts(s)));
            if s >= 10 {
                let f = f.unwrap();
                // What somebody gets who reads the counter now and ten seconds ago.
                let want = (bursts(s) - bursts(s - 10)) as f64 / 100.0;
                assert_eq!(f.over, SPAN);
                assert!((f.cpu_pct - want).abs() < 1e-6, "{s}: {} for {want}", f.cpu_pct);
            }
        }
    }

    #[test]
    fn the_average_is_the_same_at_short_and_long_intervals() {
        for ms in [100, 700, 1000, 3000, 7000] {
            let mut t = OwnTracker::default();
            let mut last = None;
            for at in (0..60_000).step_by(ms) {
                last = t.push(&reading(at, at / 5));
            }
            let f = last.unwrap();
            assert!((f.cpu_pct - 20.0).abs() < 1e-6, "{ms}: {}", f.cpu_pct);
            assert!(f.over.abs_diff(SPAN) <= Duration::from_millis(3500), "{ms}: {:?}", f.over);
            assert!(t.past.len() <= 13, "{ms}: {}", t.past.len());
        }
    }

    #[test]
    fn where_ticks_are_a_minute_apart_the_average_is_over_a_minute() {
        let mut t = OwnTracker::default();
        assert_eq!(t.push(&reading(0, 0)), None, "one reading gives no rate");
        for n in 1..5 {
            let f = t.push(&reading(60_000 * n, 600 * n)).unwrap();
            assert_eq!((f.cpu_pct, f.over.as_secs()), (1.0, 60));
        }
    }

    #[test]
    fn a_hole_is_left_behind_as_soon_as_there_is_a_younger_reading() {
        let mut t = OwnTracker::default();
        t.push(&reading(0, 0));
        t.push(&reading(1000, 10));
        // Stopped for an hour.
        assert_eq!(t.push(&reading(3_601_000, 10)).unwrap().over.as_secs(), 3600);
        let f = t.push(&reading(3_602_000, 210)).unwrap();
        assert_eq!((f.over.as_secs(), f.cpu_pct), (1, 20.0));
    }

    #[test]
    fn another_process_in_the_same_recording_begins_anew() {
        let mut t = OwnTracker::default();
        t.push(&reading(0, 5000));
        t.push(&reading(1000, 5100));
        assert_eq!(t.push(&reading(2000, 40)), None);
        assert_eq!(t.push(&reading(3000, 50)).unwrap().cpu_pct, 1.0);
        // And another boot.
        assert_eq!(t.push(&reading(500, 60)), None);
    }
}
