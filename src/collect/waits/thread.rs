//! One thread of a process that nobody asked about, from walk to walk.

use super::syscall::Call;
use crate::collect::bpf::tasks::{Row, State};
use crate::metrics::waits::class::{is_idle, may_be_condition};
use crate::sample::bpf::layout::tasks::FRAMES;
use crate::sample::waits::{Futex, Sleep, ThreadWaits};

/// A thread that was found not to be idle is this warm, and loses one with each walk that finds it
/// idle.
const WARM: u32 = 10;
/// At most: it is forgotten so many walks after it was busy last, in 5 to 10 s.
const HOTTEST: u32 = 50;
/// Walks in which a thread that waits for a mutex gets it, if others hold it for moments only.
const TURN: u32 = 20;
/// Sleeps of one thread that are told apart between two readings.
const MOST_SLEEPS: usize = 16;

/// What a row tells of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) state: char,
    pub(super) call: Option<&'static str>,
    pub(super) futex: Option<Futex>,
    pub(super) fd: Option<u32>,
    pub(super) stack: [u64; FRAMES],
}

impl Spot {
    fn of(state: char, row: &Row) -> Self {
        let call = row.call.map(|n| Call::numbered(n, row.args));
        Self {
            state,
            call: call.and_then(|c| c.name),
            futex: call.and_then(|c| c.futex()),
            fd: call.and_then(|c| c.fd()),
            stack: row.stack,
        }
    }

    /// Does nothing wait for it? A thread of the kernel that can be interrupted waits for work.
    fn is_idle(&self, row: &Row) -> bool {
        row.is_kernel && self.state == 'S' || is_idle(self.state, self.call, self.futex)
    }
}

/// Sleeping in one spot.
#[derive(Clone, Debug)]
pub(super) struct Asleep {
    pub(super) spot: Spot,
    /// As `/proc` has it, where the row does not tell enough.
    pub(super) read: Option<Sleep>,
    pub(super) samples: u32,
    is_idle: bool,
    /// `/proc` was asked since the last row, whether it answered or not: the thread may have ended,
    /// or be another's.
    is_asked: bool,
}

/// What is kept of it.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    /// The last one.
    pub(super) row: Row,
    /// Since the last reading.
    pub(super) sleeps: Vec<Asleep>,
    /// Walks since the last reading.
    pub(super) samples: u32,
    /// It was in a reading: from then on it is in each, until it is forgotten.
    pub(super) is_listed: bool,
    /// Its cgroups, read when it was listed first.
    pub(super) groups: ThreadWaits,
    /// A row came since the last reading.
    pub(super) is_heard: bool,
    /// The sleep that it is in.
    at: Option<usize>,
    /// Walks that found it in this sleep.
    stays: u32,
    warmth: u32,
}

impl Thread {
    /// A thread that is worth a look; `None`: it waits for work.
    pub(super) fn new(row: Row) -> Option<Self> {
        if let State::Sleeps(state) = row.state
            && Spot::of(state, &row).is_idle(&row)
        {
            return None;
        }
        let mut new = Self {
            row,
            sleeps: Vec::new(),
            samples: 0,
            is_listed: false,
            groups: ThreadWaits::default(),
            is_heard: false,
            at: None,
            stays: 0,
            warmth: 0,
        };
        new.hear(row);
        Some(new)
    }

    /// It runs, or is in a new sleep.
    pub(super) fn hear(&mut self, row: Row) {
        self.row = row;
        self.is_heard = true;
        self.stays = 0;
        let State::Sleeps(state) = row.state else {
            self.at = None;
            return;
        };
        let spot = Spot::of(state, &row);
        let known = self.sleeps.iter().position(|s| s.spot == spot);
        self.at = known.or_else(|| {
            (self.sleeps.len() < MOST_SLEEPS).then(|| {
                let is_idle = spot.is_idle(&row);
                let new = Asleep { spot, read: None, samples: 0, is_idle, is_asked: false };
                self.sleeps.push(new);
                self.sleeps.len() - 1
            })
        });
        if let Some(s) = self.at.and_then(|at| self.sleeps.get_mut(at)) {
            s.is_asked = s.read.is_some();
        }
    }

    /// A walk is over, whether it had a row of this thread or not. False: it is not worth a look any
    /// more.
    pub(super) fn count(&mut self) -> bool {
        self.samples += 1;
        self.stays += 1;
        let asleep = self.at.and_then(|at| self.sleeps.get_mut(at));
        let is_busy = asleep.is_none_or(|s| {
            s.samples += 1;
            !s.is_idle
        });
        self.warmth =
            if is_busy { HOTTEST.min(self.warmth + WARM) } else { self.warmth.saturating_sub(1) };
        self.warmth > 0
    }

    /// Was it found busy twice, not long apart?
    pub(super) fn is_recorded(&self) -> bool {
        self.warmth > WARM || self.is_listed
    }

    /// Does it go on in one sleep? That is as long to walks that are half as often. One that was seen
    /// for the first time is soon looked at again.
    pub(super) fn is_calm(&self) -> bool {
        self.stays > if self.is_recorded() { WARM } else { 1 } && !self.is_queued()
    }

    /// Does it wait for a mutex that another thread holds? What may be a condition variable as well
    /// is none if the thread does not get its turn.
    pub(super) fn is_queued(&self) -> bool {
        let is_mutex = |f| !may_be_condition(f) || self.stays <= TURN;
        self.current().is_some_and(|s| s.spot.futex.is_some_and(is_mutex) && !s.is_idle)
    }

    /// Has it been in a sleep for two walks of which the row does not tell enough?
    pub(super) fn wants_reading(&self) -> bool {
        self.stays >= 2
            && self.current().is_some_and(|s| {
                let Spot { futex, stack, .. } = &s.spot;
                !s.is_idle && !s.is_asked && futex.is_none() && stack.first() == Some(&0)
            })
    }

    /// What `/proc` says of the sleep; `is_idle`: that is no waiting. False: it is not worth a look
    /// any more.
    pub(super) fn tell(&mut self, sleep: Sleep, is_idle: bool) -> bool {
        if let Some(s) = self.at.and_then(|at| self.sleeps.get_mut(at)) {
            s.is_asked = true;
            // By now it may be in another one, of which the next walk has a row.
            if s.spot.call.is_none_or(|c| sleep.syscall.as_deref() == Some(c)) {
                s.is_idle = is_idle;
                s.read = Some(sleep);
            }
        }
        !is_idle || self.is_listed
    }

    fn current(&self) -> Option<&Asleep> {
        self.sleeps.get(self.at?)
    }

    /// From here on, what is seen belongs to the next reading; the sleep that it is in goes on.
    pub(super) fn begin(&mut self) {
        let current = self.current().cloned();
        self.at = current.is_some().then_some(0);
        self.sleeps.clear();
        self.sleeps.extend(current.map(|s| Asleep { samples: 0, ..s }));
        self.samples = 0;
        self.is_heard = false;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A contended mutex on x86_64 and a read of a pipe, by number and arguments.
    const FUTEX: (u32, [u64; 3]) =
        (if cfg!(target_arch = "x86_64") { 202 } else { 98 }, [64, 128, 2]);
    const READ: (u32, [u64; 3]) = (if cfg!(target_arch = "x86_64") { 0 } else { 63 }, [3, 0, 0]);
    const POLL: (u32, [u64; 3]) = (if cfg!(target_arch = "x86_64") { 271 } else { 73 }, [0, 0, 0]);

    fn row(state: char, (call, args): (u32, [u64; 3])) -> Row {
        Row {
            pid: 7,
            tid: 8,
            state: State::Sleeps(state),
            call: Some(call),
            args,
            ..Row::default()
        }
    }

    #[test]
    fn idle_threads_are_none() {
        assert!(Thread::new(row('S', POLL)).is_none());
        assert!(Thread::new(row('I', READ)).is_none());
        assert!(Thread::new(Row { is_kernel: true, ..row('S', READ) }).is_none());
        assert!(Thread::new(row('S', FUTEX)).unwrap().is_queued());
        assert!(Thread::new(Row::default()).is_some(), "it runs");
    }

    #[test]
    fn a_thread_is_recorded_when_it_is_busy_twice_and_forgotten_when_it_is_idle() {
        let mut t = Thread::new(row('S', READ)).unwrap();
        assert!(t.count() && !t.is_recorded() && !t.wants_reading());
        assert!(t.count() && t.is_recorded() && t.wants_reading());
        assert_eq!((t.samples, t.sleeps[0].samples), (2, 2));
        t.hear(row('S', POLL));
        assert!(!t.wants_reading());
        let kept = (0..100).take_while(|_| t.count()).count();
        assert_eq!(kept, 19, "two seconds after two walks");
        assert_eq!((t.sleeps[0].samples, t.sleeps[1].samples), (2, 20));
    }

    #[test]
    fn what_may_be_a_condition_variable_is_no_queue_for_long() {
        let (call, [at, _, val]) = FUTEX;
        let bitset = (call, [at, 0x89, val]);
        for (futex, queues) in [(FUTEX, true), (bitset, false)] {
            let mut t = Thread::new(row('S', futex)).unwrap();
            for walk in 1..=30 {
                assert!(t.count());
                assert_eq!(t.is_queued(), queues || walk <= 20, "{futex:?}, {walk}");
            }
            t.hear(Row::default());
            t.hear(row('S', futex));
            assert!(t.is_queued(), "it had its turn");
        }
    }

    #[test]
    fn a_thread_is_calm_after_a_second_in_one_sleep() {
        let mut t = Thread::new(row('S', READ)).unwrap();
        let calm =
            |t: &mut Thread, walks: u32| (0..walks).filter(|_| t.count() && t.is_calm()).count();
        // From the second walk on it is recorded, for ten not yet calm.
        assert_eq!(calm(&mut t, 10), 0);
        assert_eq!(calm(&mut t, 5), 5);
        t.hear(Row::default());
        assert_eq!(calm(&mut t, 1), 0, "it runs");
        // Who waits for a mutex gets it, and that is soon.
        t.hear(row('S', FUTEX));
        assert_eq!(calm(&mut t, 30), 0);
    }

    #[test]
    fn the_sleep_that_it_is_in_goes_on() {
        let mut t = Thread::new(row('S', FUTEX)).unwrap();
        t.count();
        t.hear(Row::default());
        t.count();
        t.hear(row('S', FUTEX));
        t.count();
        assert_eq!((t.samples, t.sleeps.len(), t.sleeps[0].samples), (3, 1, 2));
        t.begin();
        assert_eq!((t.samples, t.sleeps[0].samples, t.is_queued()), (0, 0, true));
        t.count();
        assert_eq!(t.sleeps[0].samples, 1);
    }

    #[test]
    fn what_proc_says_goes_with_the_sleep_it_was_read_for() {
        let mut t = Thread::new(row('S', READ)).unwrap();
        t.count();
        t.count();
        let other = Sleep { syscall: Some("write".into()), ..Sleep::default() };
        assert!(t.tell(other, false) && !t.wants_reading(), "once for each sleep");
        t.hear(row('S', READ));
        t.count();
        t.count();
        assert!(t.wants_reading(), "it is in a new one");
        let same = Sleep { syscall: Some("read".into()), ..Sleep::default() };
        assert!(t.tell(same.clone(), false) && !t.wants_reading());
        assert_eq!(t.sleeps[0].read, Some(same.clone()));
        assert!(!t.tell(same, true), "it waits for work, and was not recorded");
    }
}
