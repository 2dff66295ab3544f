//! A rate that stays on its limit. Who submits and does not wait (`libaio`, `io_uring`) is in no
//! pressure figure: then the rate itself says that more is asked for than passes. The kernel holds
//! a group to its limit within a tenth of a percent; nobody paces himself as near by chance.

use std::time::Duration;

use super::super::super::Window;
use super::Kind;
use crate::model::derive::cgroups::{CgroupFigures, CgroupIoFigures};

/// Each sample is so near to the limit. The kernel grants in slices of 100 ms, and a look falls
/// anywhere in one: a second may have nine of them or eleven.
const NEAR: f64 = 0.1;
/// Their mean comes as near from below.
pub(super) const REACHED: f64 = 0.005;
/// Samples that the mean is of, at most.
const SAMPLES: usize = 8;
/// And over at least. Not always all of them: the first look just behind a slice and the last one just
/// before the next are a tenth of a second short of the limit.
const LEAST: Duration = Duration::from_millis(2500);
/// One request passes in each of the slices of 100 ms, however low a limit of requests is.
pub(super) const SLICES: f64 = 10.0;

/// A rate against its limit.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Near {
    /// It stays there.
    Pinned {
        /// Mean against the limit.
        share: f64,
        /// Over so long.
        lasted: Duration,
    },
    /// Not quite, or not yet.
    Close,
    /// It has nothing to do with it.
    No,
}

impl Near {
    /// Mean against the limit, and over how long, when it stays there.
    pub(super) fn pinned(self) -> Option<(f64, Duration)> {
        match self {
            Self::Pinned { share, lasted } => Some((share, lasted)),
            Self::Close | Self::No => None,
        }
    }
}

/// How near the rate of this group stays to a limit.
pub(super) fn near(w: &Window<'_>, g: &CgroupFigures, io: &CgroupIoFigures, kind: Kind) -> Near {
    let Some(limit) = kind.limit(io) else { return Near::No };
    if !within(kind, io, g.dt, limit) {
        return Near::No;
    }
    let past = w
        .recent(SAMPLES)
        .filter_map(|d| d.cgroups.as_ref()?.iter().find(|o| o.id == g.id && o.mount == g.mount))
        .map_while(|o| {
            let io = o.io.iter().find(|i| i.dev == io.dev)?;
            let same = kind.limit(io) == Some(limit) && within(kind, io, o.dt, limit);
            same.then_some((kind.rate(io)?, kind.request(io), o.dt))
        });
    let past: Vec<_> = past.collect();
    (1..=past.len())
        .rev()
        .find_map(|n| past.windows(n).find_map(|run| reaches(run, limit)))
        .unwrap_or(Near::Close)
}

/// Is the mean of these samples the limit?
fn reaches(run: &[(f64, f64, Duration)], limit: f64) -> Option<Near> {
    let (mut done, mut largest, mut lasted) = (0.0, 0.0_f64, Duration::ZERO);
    for &(rate, request, dt) in run {
        done += rate * dt.as_secs_f64();
        largest = largest.max(request);
        lasted += dt;
    }
    // The last request may have passed just after the last look.
    let asked = limit * lasted.as_secs_f64();
    (lasted >= LEAST && done + largest >= (1.0 - REACHED) * asked)
        .then(|| Near::Pinned { share: done / asked, lasted })
}

/// Can a sample of this length be one under the limit, with more asked for? One request more or
/// less is no difference.
fn within(kind: Kind, io: &CgroupIoFigures, dt: Duration, limit: f64) -> bool {
    let Some(rate) = kind.rate(io) else { return false };
    let one = kind.request(io) / dt.as_secs_f64().max(f64::MIN_POSITIVE);
    let least = if kind.bytes { 0.0 } else { SLICES };
    rate >= (1.0 - NEAR) * limit - one && rate <= (1.0 + NEAR) * limit + one + least
}
