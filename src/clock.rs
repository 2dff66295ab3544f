//! The only caller of the kernel's clocks. Everything else gets time from ticks.
#![expect(clippy::disallowed_methods, reason = "this is the one place that may")]

use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::sample::time::{MonoNs, WallNs};

/// `CLOCK_MONOTONIC` now.
#[must_use]
pub fn mono() -> MonoNs {
    MonoNs(nanos(clock_gettime(ClockId::Monotonic)))
}

/// `CLOCK_REALTIME` now.
#[must_use]
pub fn wall() -> WallNs {
    WallNs(nanos(clock_gettime(ClockId::Realtime)) as i64)
}

/// CPU time that the calling thread has used so far.
#[must_use]
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)))
}

/// CPU time that the whole process has used so far.
#[must_use]
pub fn process_cpu() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ProcessCPUTime)))
}

/// Sleeps until `deadline`; returns at once when it has passed.
pub fn sleep_until(deadline: MonoNs) {
    let left = deadline.since(mono());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}

/// Waits until `bell` rings, or `deadline`; may also return before either.
pub fn wait_until<'a, T>(
    bell: &Condvar,
    held: MutexGuard<'a, T>,
    deadline: MonoNs,
) -> MutexGuard<'a, T> {
    let left = deadline.since(mono());
    bell.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0
}

fn nanos(t: Timespec) -> u64 {
    (t.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec.max(0) as u64)
}
