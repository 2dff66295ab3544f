//! Tasks in uninterruptible sleep (D), and how long it has been one and the same sleep.
//!
//! A busy disk has tasks in D at every reading, each in another of a thousand short sleeps. The same
//! sleep is that of a task that was not put on a CPU in between, in the same function of the kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sample::Stamped;
use crate::sample::processes::{BlockedTask, MAX_BLOCKED, ProcessesSample};
use crate::sample::subject::TaskId;
use crate::sample::time::MonoNs;

/// A sleep that is not over may be looked after: the block layer wakes up a waiting task every
/// 60 s (half of `hung_task_timeout_secs`), so that the kernel does not complain of it. Waking up
/// once in this time does not end it.
const LOOKS_AFTER: Duration = Duration::from_secs(30);
/// A task that was not read for lack of budget is believed to sleep on for this long.
const BELIEVED: Duration = Duration::from_secs(10);

/// A task in uninterruptible sleep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sleeper {
    /// As last read.
    pub task: BlockedTask,
    /// How long it has been found in the same sleep. `None`: how often it runs is not counted.
    pub asleep: Option<Duration>,
    /// Since when it has been found in D at every reading, in whatever sleep.
    pub seen: Duration,
}

/// Remembers when each task was first found in its sleep.
#[derive(Clone, Debug, Default)]
pub struct BlockedTracker {
    tasks: BTreeMap<TaskId, Memory>,
}

#[derive(Clone, Debug)]
struct Memory {
    task: BlockedTask,
    /// First found in D, and last.
    since: MonoNs,
    last: MonoNs,
    /// First found in this sleep, and its slices then.
    asleep: Option<(MonoNs, u64)>,
}

impl BlockedTracker {
    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.tasks.len() * 2 * size_of::<(TaskId, Memory)>()
    }

    /// The tasks of the next reading, with those of the last ones that it had no budget for.
    pub fn push(&mut self, now: &Stamped<ProcessesSample>) -> Vec<Sleeper> {
        let at = now.span.mid();
        let sample = &now.data;
        for b in &sample.blocked {
            let new = || Memory::new(b, at);
            self.tasks.entry(b.task).and_modify(|m| m.read(b, at)).or_insert_with(new);
        }
        let complete = sample.unread == 0 && sample.blocked.len() < MAX_BLOCKED;
        let believed = if complete { Duration::ZERO } else { BELIEVED };
        self.tasks.retain(|_, m| at.since(m.last) <= believed);
        self.tasks.values().map(Memory::sleeper).collect()
    }
}

impl Memory {
    fn new(task: &BlockedTask, at: MonoNs) -> Self {
        let asleep = task.slices.map(|n| (at, n));
        Self { task: task.clone(), since: at, last: at, asleep }
    }

    fn read(&mut self, task: &BlockedTask, at: MonoNs) {
        let begun = self.asleep.zip(task.slices).filter(|((since, before), now)| {
            let wakes = now.checked_sub(*before);
            let may = at.since(*since).as_secs() / LOOKS_AFTER.as_secs();
            self.task.wchan == task.wchan && wakes.is_some_and(|n| n <= may)
        });
        self.asleep = match begun {
            Some((begun, _)) => Some(begun),
            None => task.slices.map(|n| (at, n)),
        };
        self.task = task.clone();
        self.last = at;
    }

    fn sleeper(&self) -> Sleeper {
        Sleeper {
            task: self.task.clone(),
            asleep: self.asleep.map(|(since, _)| self.last.since(since)),
            seen: self.last.since(self.since),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::time::Span;

    fn task(tid: u32, slices: Option<u64>) -> BlockedTask {
        let task = TaskId { pid: tid, tid, start: 1 };
        BlockedTask { task, wchan: Some("submit_bio_wait".into()), slices, ..Default::default() }
    }

    fn read(t: &mut BlockedTracker, at_s: u64, unread: u32, all: &[BlockedTask]) -> Vec<Sleeper> {
        let data = ProcessesSample { total: 9, blocked: all.to_vec(), unread };
        let span = Span::at(MonoNs(at_s * 1_000_000_000));
        t.push(&Stamped { span, cpu: Duration::ZERO, data })
    }

    fn secs(s: &[Sleeper]) -> Vec<Option<u64>> {
        s.iter().map(|s| s.asleep.map(|d| d.as_secs())).collect()
    }

    #[test]
    fn who_was_on_a_cpu_in_between_sleeps_anew() {
        let mut t = BlockedTracker::default();
        for at in 0..=20 {
            let s = read(&mut t, at, 0, &[task(1, Some(5)), task(2, Some(at)), task(3, None)]);
            assert_eq!(secs(&s), [Some(at), Some(0), None]);
            assert_eq!(s[1].seen.as_secs(), at);
        }
        let s = read(&mut t, 21, 0, &[task(1, Some(6))]);
        assert_eq!(secs(&s), [Some(0)], "and who is not there is forgotten");
        let elsewhere = BlockedTask { wchan: Some("rpc_wait".into()), ..task(1, Some(6)) };
        assert_eq!(secs(&read(&mut t, 25, 0, &[elsewhere])), [Some(0)]);
    }

    #[test]
    fn the_block_layers_own_look_ends_no_sleep() {
        let mut t = BlockedTracker::default();
        for at in 0..=200 {
            let s = read(&mut t, at, 0, &[task(1, Some(5 + at / 60))]);
            assert_eq!(secs(&s), [Some(at)]);
        }
    }

    #[test]
    fn who_was_not_read_sleeps_on_for_a_while() {
        let mut t = BlockedTracker::default();
        read(&mut t, 0, 0, &[task(1, Some(5))]);
        read(&mut t, 4, 0, &[task(1, Some(5))]);
        assert_eq!(secs(&read(&mut t, 12, 3, &[])), [Some(4)]);
        assert_eq!(secs(&read(&mut t, 13, 3, &[task(1, Some(5))])), [Some(13)]);
        assert_eq!(secs(&read(&mut t, 24, 3, &[])), []);
    }
}
