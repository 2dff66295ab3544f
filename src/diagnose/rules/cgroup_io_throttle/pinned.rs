//! A rate pinned to its limit. Asynchronous I/O (`libaio`, `io_uring`) does not show up in PSI, but
//! the rate itself shows that more is requested than gets through: the kernel enforces a limit to
//! within a tenth of a percent, and no program paces itself that precisely by chance.

use std::time::Duration;

use super::super::super::Window;
use super::Kind;
use crate::metrics::cgroups::{CgroupFigures, CgroupIoFigures};

/// Every sample is this close to the limit. The kernel grants in slices of 100 ms, and a sample may
/// fall anywhere in one: a second may contain nine of them or eleven.
const NEAR: f64 = 0.1;
/// The mean of the samples is at most this far below the limit.
pub(super) const REACHED: f64 = 0.005;
/// Maximum number of samples in the mean.
const SAMPLES: usize = 8;
/// Minimum time that the mean covers. It need not be all samples: if the first sample comes just
/// after a slice and the last one just before the next, the rate falls a tenth of a second short.
const LEAST: Duration = Duration::from_millis(2500);
/// One request gets through in each slice of 100 ms, however low an IOPS limit is.
pub(super) const SLICES: f64 = 10.0;

/// A rate relative to its limit.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Near {
    /// Pinned to the limit.
    Pinned {
        /// Mean as a fraction of the limit.
        share: f64,
        /// Time that the mean covers.
        lasted: Duration,
    },
    /// Close, but not pinned, or not yet.
    Close,
    /// Not related to the limit.
    No,
}

impl Near {
    /// Mean as a fraction of the limit, and the time it covers, if pinned.
    pub(super) fn pinned(self) -> Option<(f64, Duration)> {
        match self {
            Self::Pinned { share, lasted } => Some((share, lasted)),
            Self::Close | Self::No => None,
        }
    }
}

/// How close the rate of this cgroup stays to a limit.
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

/// Does the mean of these samples reach the limit?
fn reaches(run: &[(f64, f64, Duration)], limit: f64) -> Option<Near> {
    let (mut done, mut largest, mut lasted) = (0.0, 0.0_f64, Duration::ZERO);
    for &(rate, request, dt) in run {
        done += rate * dt.as_secs_f64();
        largest = largest.max(request);
        lasted += dt;
    }
    // The last request may have got through just after the last sample.
    let asked = limit * lasted.as_secs_f64();
    (lasted >= LEAST && done + largest >= (1.0 - REACHED) * asked)
        .then(|| Near::Pinned { share: done / asked, lasted })
}

/// Is a sample of this length consistent with being throttled by the limit? One request more or
/// less does not matter.
fn within(kind: Kind, io: &CgroupIoFigures, dt: Duration, limit: f64) -> bool {
    let Some(rate) = kind.rate(io) else { return false };
    let one = kind.request(io) / dt.as_secs_f64().max(f64::MIN_POSITIVE);
    let least = if kind.bytes { 0.0 } else { SLICES };
    rate >= (1.0 - NEAR) * limit - one && rate <= (1.0 + NEAR) * limit + one + least
}
