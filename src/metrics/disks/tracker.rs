//! What is remembered of each disk between ticks: its normal latency, what it behaves like under
//! load, since when nothing completes.

use std::collections::HashMap;
use std::time::Duration;

use super::DiskFigures;
use super::caps::Learner;
use crate::metrics::baseline::Baseline;
use crate::sample::subject::DiskId;
use crate::sample::time::MonoNs;

/// How long latencies are remembered, and disks that are gone.
const BASELINE: Duration = Duration::from_secs(600);
/// Fewer requests per second make no mean.
const LEAST: f64 = 5.0;

/// Fills in the figures that need a memory.
#[derive(Clone, Debug, Default)]
pub(in crate::metrics) struct DiskTracker {
    disks: HashMap<DiskId, Memory>,
}

#[derive(Clone, Debug)]
struct Memory {
    all: Baseline,
    reads: Baseline,
    writes: Baseline,
    learner: Learner,
    stuck_since: Option<MonoNs>,
    seen: MonoNs,
}

impl Default for Memory {
    fn default() -> Self {
        let new = || Baseline::over(BASELINE);
        Self {
            all: new(),
            reads: new(),
            writes: new(),
            learner: Learner::default(),
            stuck_since: None,
            seen: MonoNs(0),
        }
    }
}

impl DiskTracker {
    /// Bytes that it holds.
    pub(in crate::metrics) fn bytes(&self) -> usize {
        let one = |m: &Memory| {
            let baselines = m.all.bytes() + m.reads.bytes() + m.writes.bytes();
            2 * size_of::<(DiskId, Memory)>() + baselines + m.learner.bytes()
        };
        self.disks.values().map(one).sum()
    }

    /// Completes the figures of the reading of `at`.
    pub(in crate::metrics) fn push(&mut self, figures: &mut [DiskFigures], at: MonoNs) {
        for f in figures.iter_mut().filter(|f| f.untimed.is_none()) {
            let m = self.disks.entry(f.id).or_default();
            m.seen = at;
            m.stuck(f, at);
            m.latency(f, at);
            f.cap = m.learner.push(at, f);
        }
        self.disks.retain(|_, m| at.since(m.seen) < BASELINE);
    }
}

impl Memory {
    fn stuck(&mut self, f: &mut DiskFigures, at: MonoNs) {
        let stuck = f.completed == 0 && f.in_flight.is_some_and(|n| n > 0);
        // io_ticks says whether a request was there all along; where it is not kept up to date
        // for requests that do not end, only what was seen counts.
        let all_along = f64::from(f.io_ticks) >= 0.9 * f.dt.as_secs_f64() * 1000.0;
        let begin = if all_along { at.back(f.dt) } else { at };
        self.stuck_since = stuck.then(|| self.stuck_since.unwrap_or(begin));
        f.stuck_for = self.stuck_since.map_or(Duration::ZERO, |t| at.since(t));
    }

    /// What was normal before this reading; then learns from it.
    fn latency(&mut self, f: &mut DiskFigures, at: MonoNs) {
        for b in [&mut self.all, &mut self.reads, &mut self.writes] {
            b.forget(at);
        }
        f.baseline = self.all.level();
        f.r_baseline = self.reads.level();
        f.w_baseline = self.writes.level();
        // Busy without a pause at a queue of 1 may be one synchronous caller, or a limit that
        // makes each request wait: that is no latency to compare with.
        if f.aqu_sz > 1.2 || f.util >= 90.0 {
            return;
        }
        for (b, value, rate) in [
            (&mut self.all, f.await_ms, f.iops()),
            (&mut self.reads, f.r_await, f.r_s),
            (&mut self.writes, f.w_await, f.w_s),
        ] {
            if let Some(v) = value.filter(|_| rate >= LEAST) {
                b.learn(at, v);
            }
        }
    }
}
