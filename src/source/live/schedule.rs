//! When readings are due: the deadlines that all threads share, and how they change together.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock;
use crate::sample::time::MonoNs;

/// The deadlines, by number: one per interval, without an end. Numbers go on through a change, so
/// that what one thread says of a deadline means the same to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// The first deadline that holds as it is here ...
    pub(super) first: u64,
    /// ... is due at this time.
    pub(super) base: MonoNs,
    /// From one to the next.
    pub(super) interval: Duration,
}

impl Schedule {
    /// From deadline 0 at `base` on.
    pub(super) fn new(base: MonoNs, interval: Duration) -> Self {
        Self { first: 0, base, interval }
    }

    fn step(&self) -> u64 {
        u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// When `k` is due. One from before a change is not after the change.
    pub(super) fn deadline(&self, k: u64) -> MonoNs {
        let away = self.step().saturating_mul(k.abs_diff(self.first));
        let base = self.base.0;
        MonoNs(if k < self.first { base.saturating_sub(away) } else { base.saturating_add(away) })
    }

    /// Number of the last deadline that lies not after `now`.
    pub(super) fn last(&self, now: MonoNs) -> u64 {
        match now.0.checked_sub(self.base.0) {
            Some(since) => self.first + since / self.step(),
            None => self.first.saturating_sub(1),
        }
    }

    /// The next multiple of `every` ticks that lies in the future.
    pub(super) fn next_due(&self, now: MonoNs, k: u64, every: u32) -> u64 {
        (k + u64::from(every)).max(self.last(now) + 1)
    }

    /// The deadline to wait for after a change, for who waited for `k`: the first one under the new
    /// interval, whichever was planned before.
    pub(super) fn replanned(&self, now: MonoNs, k: u64) -> u64 {
        k.min(self.last(now).max(self.first))
    }

    /// The same from `now` on with another interval, which is counted from the last deadline: a
    /// shorter one that has passed meanwhile is due at once.
    pub(super) fn changed(&self, now: MonoNs, interval: Duration) -> Self {
        let last = self.last(now);
        let base = (self.deadline(last) + interval).max(now);
        Self { first: last + 1, base, interval }
    }
}

/// The schedule of all threads, and the only way to change it: interval and deadlines change as one,
/// and whoever waits wakes up.
#[derive(Clone, Debug)]
pub struct Scheduler {
    shared: Arc<(Mutex<Schedule>, Condvar)>,
}

impl Scheduler {
    pub(super) fn new(schedule: Schedule) -> Self {
        Self { shared: Arc::new((Mutex::new(schedule), Condvar::new())) }
    }

    /// Reads at this interval from now on.
    pub fn set_interval(&self, interval: Duration) {
        let mut schedule = self.lock();
        if schedule.interval != interval {
            *schedule = schedule.changed(clock::mono(), interval);
            self.shared.1.notify_all();
        }
    }

    pub(super) fn now(&self) -> Schedule {
        *self.lock()
    }

    /// Sleeps until `deadline`. False at once when the schedule is, or becomes, another than
    /// `known`.
    pub(super) fn sleep(&self, known: Schedule, deadline: MonoNs) -> bool {
        let mut schedule = self.lock();
        while *schedule == known {
            if clock::mono() >= deadline {
                return true;
            }
            schedule = clock::wait_until(&self.shared.1, schedule, deadline);
        }
        false
    }

    /// A thread that panicked has changed nothing by half: a schedule is written as one.
    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
