//! The last minutes in memory: ticks with their figures, bounded by a budget in bytes, so that
//! the user can go back in time without having recorded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::derive::Derived;
use super::subject::NetnsId;
use super::tick::Tick;
use super::time::{MonoNs, Seq};
use crate::collect::Samples;
use crate::collect::Shared;
use crate::collect::net_counters::NetCountersSample;

/// A tick with what follows from it.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The raw sample.
    pub tick: Arc<Tick>,
    /// The figures.
    pub derived: Arc<Derived>,
    bytes: usize,
}

/// Moments, oldest first.
#[derive(Debug)]
pub struct History {
    moments: VecDeque<Moment>,
    bytes: usize,
    budget: usize,
}

/// Default budget: 64 MiB.
pub const DEFAULT_BUDGET: usize = 64 << 20;
/// Moments kept whatever the budget says: rules look back this far.
const MIN_MOMENTS: usize = 40;

impl Default for History {
    fn default() -> Self {
        Self::new(DEFAULT_BUDGET)
    }
}

impl History {
    /// An empty history that holds about `budget` bytes.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self { moments: VecDeque::new(), bytes: 0, budget }
    }

    /// Adds the newest moment and drops the oldest beyond the budget.
    pub fn push(&mut self, tick: Arc<Tick>, derived: Arc<Derived>) {
        let bytes = estimate(&tick.samples, self.moments.back().map(|m| &m.tick.samples));
        self.bytes += bytes;
        self.moments.push_back(Moment { tick, derived, bytes });
        while self.bytes > self.budget && self.moments.len() > MIN_MOMENTS {
            if let Some(old) = self.moments.pop_front() {
                self.bytes -= old.bytes;
            }
        }
    }

    /// Number of moments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.moments.len()
    }
    /// None yet?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }
    /// Estimated bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// The newest.
    #[must_use]
    pub fn last(&self) -> Option<&Moment> {
        self.moments.back()
    }
    /// The oldest.
    #[must_use]
    pub fn first(&self) -> Option<&Moment> {
        self.moments.front()
    }
    /// The moment with this number, if it is still here.
    #[must_use]
    pub fn get(&self, seq: Seq) -> Option<&Moment> {
        let first = self.moments.front()?.tick.seq.0;
        let guess = usize::try_from(seq.0.checked_sub(first)?).ok()?;
        self.moments.get(guess).filter(|m| m.tick.seq == seq)
    }
    /// Moments up to and including `seq`, newest first.
    pub fn back_from(&self, seq: Seq) -> impl Iterator<Item = &Moment> {
        self.moments.iter().rev().skip_while(move |m| m.tick.seq > seq)
    }
    /// All, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Moment> {
        self.moments.iter()
    }
}

fn estimate(s: &Samples, before: Option<&Samples>) -> usize {
    let tables = |s: &Samples| -> Vec<Arc<crate::collect::sockets::NetnsTable>> {
        [s.sockets.as_ref(), s.netns_sockets.as_ref()]
            .into_iter()
            .flatten()
            .flat_map(|x| x.data.spaces.iter().cloned())
            .collect()
    };
    let old = before.map(tables).unwrap_or_default();
    // A namespace that was not due is shared with the tick before: it costs nothing.
    let sockets: usize = tables(s)
        .iter()
        .filter(|t| !old.iter().any(|o| Arc::ptr_eq(o, t)))
        .map(|t| t.bytes())
        .sum();
    let counters = s
        .net_counters
        .as_ref()
        .map_or(0, |c| c.data.spaces.iter().map(|n| n.values.len() * 8).sum());
    let threads = s.sched.as_ref().map_or(0, |c| c.data.threads.len() * 260);
    let disks = s.disks.as_ref().map_or(0, |d| d.data.disks.len() * 420);
    let irqs = s.softirq.as_ref().map_or(0, |d| {
        d.data.irqs.iter().map(|i| 64 + i.counts.len() * 8).sum::<usize>()
            + d.data.vectors.iter().map(|v| 64 + v.1.len() * 16).sum::<usize>()
    });
    let groups = s.cgroups.as_ref().map_or(0, |c| c.data.groups.len() * 420);
    let memory = s.memory.as_ref().map_or(0, |m| m.data.values.len() * 8);
    let cpus = s.cpu.as_ref().map_or(0, |c| c.data.cpus.len() * 160);
    4096 + sockets + counters + threads + disks + irqs + groups + memory + cpus
}

/// The view of rules: one moment and what was before it.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    /// The moment under judgement.
    pub tick: &'a Tick,
    /// Its figures.
    pub derived: &'a Derived,
    /// It and the moments before.
    pub history: &'a History,
    /// What does not change.
    pub host: &'a super::tick::HostInfo,
}

/// Growth of a counter over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CounterDelta {
    /// By how much it grew.
    pub delta: u64,
    /// Over which time.
    pub dt: Duration,
}

impl CounterDelta {
    /// Per second.
    #[must_use]
    pub fn rate(self) -> f64 {
        super::derive::rate::per_second(self.delta as f64, self.dt).unwrap_or(0.0)
    }
}

impl<'a> Window<'a> {
    /// Figures of this moment and those before, newest first, at most `n`, about a second (or
    /// one interval) apart.
    pub fn recent(&self, n: usize) -> impl Iterator<Item = &'a Derived> + use<'a> {
        let mut last: Option<MonoNs> = None;
        self.history
            .back_from(self.tick.seq)
            .map(|m| &*m.derived)
            .filter(move |d| {
                let far = last.is_none_or(|l| l.since(d.mono) >= super::derive::MIN_SPAN);
                if far {
                    last = Some(d.mono);
                }
                far
            })
            .take(n)
    }

    /// Growth of a protocol counter of `netns` over the last `span`. `None`: this kernel does
    /// not have the counter, it was reset, or there is only one reading.
    #[must_use]
    pub fn counter(&self, netns: NetnsId, name: &str, span: Duration) -> Option<CounterDelta> {
        let mut readings = self.readings(netns);
        let (now_at, now) = readings.next().map(|(at, c)| (at, c.get(name)))?;
        let now = now?;
        let mut oldest = None;
        for (at, c) in readings {
            if now_at.since(at) > span + span / 10 {
                break;
            }
            oldest = Some((at, c.get(name)?));
        }
        let (then, before) = oldest?;
        Some(CounterDelta {
            delta: u64::try_from(now.checked_sub(before)?).ok()?,
            dt: now_at.since(then),
        })
    }

    fn readings(
        &self,
        netns: NetnsId,
    ) -> impl Iterator<Item = (MonoNs, &'a crate::collect::net_counters::NetnsCounters)> + use<'a>
    {
        let from = self.tick.mono;
        self.history
            .back_from(self.tick.seq)
            .take_while(move |m| from.since(m.tick.mono) < Duration::from_secs(700))
            .filter_map(move |m| {
                let s: &'a Shared<NetCountersSample> = m.tick.samples.net_counters.as_ref()?;
                Some((s.span.mid(), s.data.spaces.iter().find(|n| n.netns == netns)?))
            })
    }
}
