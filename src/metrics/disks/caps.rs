//! What a disk behaves like from outside: a rate that no queue exceeds, and the burst before it.
//!
//! One point per second is kept of each disk that works: queue length, IOPS, kB/s. A limit is a
//! plateau: for some seconds requests queue, throughput does not move, and it is the same at
//! other queue lengths. Small requests show a limit of their number, large ones one of their
//! bytes. What the same spell of load did above the plateau before it was the burst of a token
//! bucket. Whether the plateau is somebody's limit or the device's own end is for rules to say.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::DiskFigures;
use crate::metrics::MIN_SPAN;
use crate::metrics::rate::{median, variation};
use crate::sample::heap::block;
use crate::sample::time::MonoNs;

/// Points kept, and for how long.
const MAX_POINTS: usize = 600;
const MAX_AGE: Duration = Duration::from_secs(900);
/// A plateau ends in so many points ...
const LEAST: usize = 8;
/// ... with a queue of 4 or more (a client of depth 4 keeps just under it) ...
const QUEUE: f32 = 3.8;
/// ... that vary by no more than this: requests, bytes.
const FLAT_IOPS: f64 = 0.05;
const FLAT_KB: f64 = 0.03;
/// It is proven by a queue that differs by so much, or that is so long.
const VARIED: f32 = 1.3;
const DEEP: f32 = 15.2;
/// Requests up to this size are limited by their number, kB.
const SMALL_KB: f64 = 64.0;
/// Burst is what goes so far beyond the plateau.
const FAST: f64 = 1.2;
/// A pause that ends a spell of load.
const PAUSE: Duration = Duration::from_secs(5);

/// What a disk behaves like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cap {
    /// Requests per second.
    pub iops: Option<Plateau>,
    /// kB (1024 B) per second.
    pub kb_s: Option<Plateau>,
}

/// A rate that does not rise with the queue, and the data behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plateau {
    /// Requests or kB per second: the median.
    pub rate: f64,
    /// Coefficient of variation of its youngest points.
    pub variation: f64,
    /// Points (seconds, or intervals) at this rate.
    pub points: usize,
    /// Shortest and longest queue at this rate.
    pub queue: (f64, f64),
    /// What went beyond it before.
    pub burst: Option<Burst>,
    /// The load began while we watched, so that a burst would have been seen.
    pub begin_seen: bool,
    /// When it was last seen.
    pub at: MonoNs,
}

/// Credit that was used up before the plateau.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Requests or kB beyond the rate.
    pub amount: f64,
    /// How long it lasted.
    pub lasted: Duration,
    /// Mean rate meanwhile.
    pub rate: f64,
}

/// One interval of a disk that works.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: MonoNs,
    queue: f32,
    iops: f32,
    kb_s: f32,
    busy: bool,
}

impl Point {
    fn areq_kb(&self) -> f64 {
        f64::from(self.kb_s) / f64::from(self.iops.max(f32::MIN_POSITIVE))
    }
}

/// Learns it, one disk each.
#[derive(Clone, Debug, Default)]
pub(super) struct Learner {
    points: VecDeque<Point>,
    watched_since: Option<MonoNs>,
    cap: Option<Arc<Cap>>,
}

impl Learner {
    /// Bytes that it holds, about.
    pub(super) fn bytes(&self) -> usize {
        block(self.points.len() * size_of::<Point>())
    }

    /// Takes in the figures of `at`; gives what is known then.
    pub(super) fn push(&mut self, at: MonoNs, d: &DiskFigures) -> Option<Arc<Cap>> {
        self.watched_since.get_or_insert(at.back(d.dt));
        if self.points.back().is_some_and(|p| at < p.at) {
            self.points.clear();
        }
        if self.points.back().is_some_and(|p| at.since(p.at) < MIN_SPAN) || d.iops() <= 0.0 {
            return self.cap.clone();
        }
        let old = |p: &Point| at.since(p.at) > MAX_AGE;
        while self.points.len() >= MAX_POINTS || self.points.front().is_some_and(old) {
            self.points.pop_front();
        }
        let now = Point {
            at,
            queue: d.aqu_sz as f32,
            iops: d.iops() as f32,
            kb_s: d.kb_s() as f32,
            busy: d.util >= 90.0 || d.aqu_sz >= f64::from(QUEUE),
        };
        self.points.push_back(now);
        if now.busy && now.queue >= QUEUE {
            self.judge(now.areq_kb() <= SMALL_KB);
        }
        self.contradict(&now);
        self.cap.clone()
    }

    /// Looks for a plateau that ends now.
    fn judge(&mut self, small: bool) {
        let (value, flat): (fn(&Point) -> f32, f64) =
            if small { (|p| p.iops, FLAT_IOPS) } else { (|p| p.kb_s, FLAT_KB) };
        let Some(found) = self.plateau(small, value, flat) else { return };
        let mut cap = self.cap.as_deref().cloned().unwrap_or_default();
        // A burst is seen once, at the begin of a load; a later look at the same plateau that
        // did not see the begin does not undo it.
        let keep = |old: Option<Plateau>| match old {
            Some(old) if !found.begin_seen && near(old.rate, found.rate, flat) => {
                Plateau { burst: old.burst, begin_seen: old.begin_seen, ..found }
            }
            _ => found,
        };
        let place = if small { &mut cap.iops } else { &mut cap.kb_s };
        *place = Some(keep(*place));
        self.cap = Some(Arc::new(cap));
    }

    fn plateau(&self, small: bool, value: fn(&Point) -> f32, flat: f64) -> Option<Plateau> {
        let v = |p: &Point| f64::from(value(p));
        let alike = |p: &&Point| p.busy && (p.areq_kb() <= SMALL_KB) == small;
        let last = self.points.back()?;
        let ends: Vec<f64> = self
            .points
            .iter()
            .rev()
            .take_while(|p| alike(p) && p.queue >= QUEUE)
            .take(LEAST)
            .map(v)
            .collect();
        if ends.len() < LEAST {
            return None;
        }
        let varies = variation(&ends)?;
        let rate = median(&mut ends.clone())?;
        if varies > flat || !near(v(last), rate, 2.0 * flat) {
            return None;
        }
        let same = |p: &&Point| alike(p) && p.queue >= 0.9 && near(v(p), rate, flat);
        let mut out = Plateau {
            rate,
            variation: varies,
            points: 0,
            queue: (f64::INFINITY, 0.0),
            burst: None,
            begin_seen: false,
            at: last.at,
        };
        for p in self.points.iter().filter(same) {
            out.points += 1;
            let l = f64::from(p.queue);
            out.queue = (out.queue.0.min(l), out.queue.1.max(l));
        }
        let proven = out.queue.1 >= f64::from(DEEP)
            || out.queue.1 >= f64::from(VARIED) * out.queue.0.max(f64::MIN_POSITIVE);
        if !proven {
            return None;
        }
        (out.burst, out.begin_seen) = self.burst(rate, value);
        Some(out)
    }

    /// The fast begin of the spell of load that ends now, and whether that begin was seen.
    fn burst(&self, rate: f64, value: fn(&Point) -> f32) -> (Option<Burst>, bool) {
        let mut later: Option<&Point> = None;
        let mut spell: Vec<&Point> = Vec::new();
        let mut ended = false;
        for p in self.points.iter().rev() {
            if !p.busy || later.is_some_and(|l| l.at.since(p.at) > PAUSE) {
                ended = true;
                break;
            }
            spell.push(p);
            later = Some(p);
        }
        let begin = spell.last().map(|p| p.at);
        let idle_before =
            begin.zip(self.watched_since).is_some_and(|(b, w)| b.since(w) > Duration::from_secs(2));
        let seen = ended || idle_before;
        spell.reverse();
        let size = spell.last().map_or(0.0, |p| p.areq_kb());
        let fast: Vec<&&Point> = spell
            .iter()
            .take_while(|p| {
                f64::from(value(p)) >= FAST * rate
                    && p.areq_kb() <= 1.5 * size
                    && p.areq_kb() * 1.5 >= size
            })
            .collect();
        if !seen || fast.len() < 2 {
            return (None, seen);
        }
        let mut out = Burst { amount: 0.0, lasted: Duration::ZERO, rate: 0.0 };
        let mut before: Option<MonoNs> = None;
        for p in fast {
            let dt = before.map_or(Duration::from_secs(1), |b| p.at.since(b));
            before = Some(p.at);
            out.lasted += dt;
            out.amount += (f64::from(value(p)) - rate) * dt.as_secs_f64();
        }
        out.rate = rate + out.amount / out.lasted.as_secs_f64().max(1e-9);
        (Some(out), true)
    }

    /// Forgets a limit that is exceeded for longer than its burst was.
    fn contradict(&mut self, now: &Point) {
        let Some(cap) = &self.cap else { return };
        let beyond = |c: &Option<Plateau>, value: fn(&Point) -> f32| {
            let Some(c) = c else { return false };
            let above = |p: &&Point| f64::from(value(p)) > 1.1 * c.rate;
            let run = self.points.iter().rev().take_while(above).last().map(|p| now.at.since(p.at));
            let allowed = c.burst.map_or(Duration::from_secs(30), |b| b.lasted * 2);
            run.is_some_and(|r| r > allowed.max(Duration::from_secs(30)))
        };
        let (no_iops, no_kb) = (beyond(&cap.iops, |p| p.iops), beyond(&cap.kb_s, |p| p.kb_s));
        if no_iops || no_kb {
            let left =
                Cap { iops: cap.iops.filter(|_| !no_iops), kb_s: cap.kb_s.filter(|_| !no_kb) };
            self.cap = (left != Cap::default()).then(|| Arc::new(left));
        }
    }
}

fn near(a: f64, b: f64, by: f64) -> bool {
    b > 0.0 && ((a - b) / b).abs() <= by
}

/// Published formula of a cloud volume.
struct Formula {
    name: &'static str,
    /// IOPS: base, per GiB, most.
    iops: (f64, f64, f64),
    /// MiB/s: base, per GiB, most; where published.
    mib_s: Option<(f64, f64, f64)>,
}

const TIERS: [Formula; 4] = [
    Formula { name: "ESSD PL1", iops: (1800.0, 50.0, 50_000.0), mib_s: Some((120.0, 0.5, 350.0)) },
    Formula { name: "ESSD PL0", iops: (1800.0, 12.0, 10_000.0), mib_s: None },
    Formula { name: "cloud SSD", iops: (1800.0, 30.0, 25_000.0), mib_s: None },
    Formula { name: "ultra disk", iops: (1800.0, 8.0, 5_000.0), mib_s: None },
];

/// The published tier that comes nearest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tier {
    /// Its name.
    pub name: &'static str,
    /// Capacity that the formula was given, GiB.
    pub gib: f64,
    /// What it is sold with: requests or kB per second.
    pub rate: f64,
    /// How far the plateau is from that: 0.05 is 5% above.
    pub off: f64,
}

impl Tier {
    /// As near as a formula can come: within 5%.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.off.abs() <= 0.05
    }

    /// Of a volume of so many sectors with a plateau of so many requests per second.
    #[must_use]
    pub fn by_iops(size_sectors: u64, iops: f64) -> Option<Self> {
        Self::nearest(size_sectors, iops, |t| Some(t.iops))
    }

    /// The same by kB per second.
    #[must_use]
    pub fn by_kb(size_sectors: u64, kb_s: f64) -> Option<Self> {
        let kb = |(a, b, c): (f64, f64, f64)| (a * 1024.0, b * 1024.0, c * 1024.0);
        Self::nearest(size_sectors, kb_s, |t| t.mib_s.map(kb))
    }

    fn nearest(
        size_sectors: u64,
        measured: f64,
        of: impl Fn(&Formula) -> Option<(f64, f64, f64)>,
    ) -> Option<Self> {
        let gib = size_sectors as f64 / 2_097_152.0;
        let tiers = TIERS.iter().filter_map(|t| {
            let (base, per_gib, most) = of(t)?;
            let rate = (base + per_gib * gib).min(most);
            Some(Self { name: t.name, gib, rate, off: (measured - rate) / rate })
        });
        tiers.min_by(|a, b| a.off.abs().total_cmp(&b.off.abs()))
    }
}

#[cfg(test)]
mod tests;
