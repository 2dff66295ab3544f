//! What processes moved to and from disks, and what part of a disk's traffic that can be.
//!
//! The kernel charges a process for bytes, not for requests, and does not say which disk they were
//! for. So a share is stated of one disk only where nearly all traffic of the host is that disk's,
//! or where all that those who are named have open is on it.

mod lately;

pub use lately::{Lately, Place, Suspects, User, Whole};

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::disks::DiskFigures;
use super::rate::{grown, ratio};
use crate::sample::Stamped;
use crate::sample::process_io::{Access, OpenDisks, ProcessIo, ProcessIoSample};
use crate::sample::subject::TaskId;
use crate::sample::time::MonoNs;

/// Processes whose last row is remembered.
const MAX_KNOWN: usize = 16_384;
/// Of a process that was not due since, what was seen this long ago still holds.
const HOLDS: Duration = Duration::from_secs(3);

/// Bytes read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bytes {
    /// From a disk.
    pub read: f64,
    /// To a disk.
    pub written: f64,
}

impl Bytes {
    fn add(&mut self, other: Self) {
        self.read += other.read;
        self.written += other.written;
    }
    fn times(self, n: f64) -> Self {
        Self { read: n * self.read, written: n * self.written }
    }
    /// Those of one direction.
    #[must_use]
    pub fn of(self, flow: Flow) -> f64 {
        match flow {
            Flow::Read => self.read,
            Flow::Write => self.written,
            Flow::Both => self.read + self.written,
        }
    }
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// From disks.
    Read,
    /// To disks.
    Write,
    /// Either.
    Both,
}

impl Flow {
    /// What this disk spends its time on; the other direction takes less than a fifth of it.
    #[must_use]
    pub fn of(d: &DiskFigures) -> Self {
        let time = |rate: f64, each: Option<f64>| rate * each.unwrap_or(0.0);
        let (reads, writes) = (time(d.r_s, d.r_await), time(d.w_s, d.w_await));
        match ratio(reads, reads + writes) {
            Some(share) if share > 0.8 => Self::Read,
            Some(share) if share < 0.2 => Self::Write,
            _ => Self::Both,
        }
    }

    /// Can bytes go this way through a file that is open for that?
    fn goes(self, access: Access) -> bool {
        match self {
            Self::Read => access != Access::Write,
            Self::Write => access != Access::Read,
            Self::Both => true,
        }
    }
}

/// What a process moved since the reading before.
#[derive(Clone, Debug)]
pub struct ProcessBytes {
    /// Its first thread.
    pub task: TaskId,
    /// Its `comm`, raw.
    pub comm: String,
    /// Path in the hierarchy that limits its I/O, where read.
    pub cgroup: Option<String>,
    /// Where its open files are, if that was looked at.
    pub open: Option<Arc<OpenDisks>>,
    /// The time in which it moved them.
    pub dt: Duration,
    /// Its own, and those of children that ended and were not seen themselves. Pages that were
    /// dirty and never written do not count.
    pub bytes: Bytes,
}

/// What processes moved.
#[derive(Clone, Debug, Default)]
pub struct ProcessIoFigures {
    /// Those that moved anything, by process.
    pub processes: Vec<ProcessBytes>,
    /// Processes not read for lack of budget.
    pub unread: u32,
    /// Processes that we may not read.
    pub denied: u32,
}

/// Remembers the last row of each process.
#[derive(Clone, Debug, Default)]
pub struct ProcessIoTracker {
    last: HashMap<TaskId, (MonoNs, Counters)>,
    /// Those who moved bytes when they were read last, by pid, and when that was.
    movers: HashMap<u32, MonoNs>,
}

/// Bytes read, written, cancelled; read and written by children.
type Counters = [u64; 5];

impl ProcessIoTracker {
    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.last.len() * 2 * size_of::<(TaskId, (MonoNs, Counters))>()
            + self.movers.len() * 2 * size_of::<(u32, MonoNs)>()
    }

    /// Did this process move bytes when it was read last, not long before `now`?
    pub(super) fn moves(&self, pid: u32, now: MonoNs) -> bool {
        self.movers.get(&pid).is_some_and(|at| now.since(*at) < HOLDS)
    }

    /// Who is not among `processes` did not move, unless some were not read.
    fn note_movers(&mut self, at: MonoNs, processes: &[ProcessBytes], unread: u32) {
        self.movers.retain(|_, then| unread > 0 && at.since(*then) < HOLDS);
        for p in processes {
            if p.bytes.of(Flow::Both) > 0.0 {
                self.movers.insert(p.task.pid, at);
            } else {
                self.movers.remove(&p.task.pid);
            }
        }
    }

    /// What moved since each process's last row.
    pub fn push(&mut self, now: &Stamped<ProcessIoSample>) -> ProcessIoFigures {
        let at = now.span.mid();
        let mut processes = Vec::new();
        for p in &now.data.processes {
            let counters = counters(p);
            let last = self.last.insert(p.task, (at, counters));
            let back = |ms: u32| at.back(Duration::from_millis(ms.into()));
            let base = match (p.zero_ms, last) {
                (Some(ms), _) => Some((back(ms), Counters::default())),
                (None, Some((_, before))) if p.still_ms > 0 => Some((back(p.still_ms), before)),
                (None, last) => last,
            };
            let Some((then, before)) = base.filter(|(then, _)| at > *then) else { continue };
            let Some(bytes) = moved(&before, &counters) else { continue };
            processes.push(ProcessBytes {
                task: p.task,
                comm: p.comm.clone(),
                cgroup: p.cgroup.clone(),
                open: p.open.clone(),
                dt: at.since(then),
                bytes,
            });
        }
        self.forget();
        self.note_movers(at, &processes, now.data.unread);
        ProcessIoFigures { processes, unread: now.data.unread, denied: now.data.denied }
    }

    /// Those that moved last are kept.
    fn forget(&mut self) {
        if self.last.len() <= MAX_KNOWN {
            return;
        }
        let mut times: Vec<MonoNs> = self.last.values().map(|l| l.0).collect();
        times.sort_unstable();
        let Some(middle) = times.get(times.len() / 2).copied() else { return };
        self.last.retain(|_, l| l.0 > middle);
    }
}

fn counters(p: &ProcessIo) -> Counters {
    [
        p.read_bytes,
        p.write_bytes,
        p.cancelled_write_bytes,
        p.children_read_bytes,
        p.children_write_bytes,
    ]
}

/// `None` when a counter fell: another process, or one that began anew.
fn moved(before: &Counters, now: &Counters) -> Option<Bytes> {
    let mut grew = [0; 5];
    for ((to, b), n) in grew.iter_mut().zip(before).zip(now) {
        *to = grown(*b, *n)?;
    }
    let [read, written, cancelled, of_children_read, of_children_written] = grew;
    let less = |n: u64, by: u64| n.saturating_sub(by) as f64;
    Some(Bytes {
        read: less(read, of_children_read),
        // Who truncates a file is not always who wrote it.
        written: less(written, cancelled.saturating_add(of_children_written)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::time::Span;

    fn sample(s: u64, processes: Vec<ProcessIo>) -> Stamped<ProcessIoSample> {
        let data = ProcessIoSample { processes, ..ProcessIoSample::default() };
        Stamped { span: Span::at(MonoNs(1_000_000_000 * s)), cpu: Duration::ZERO, data }
    }

    fn row(start: u64, read_bytes: u64, write_bytes: u64) -> ProcessIo {
        let task = TaskId { pid: 7, tid: 7, start };
        ProcessIo { task, read_bytes, write_bytes, ..ProcessIo::default() }
    }

    /// What was read, written, and in how many seconds.
    fn moved(f: &ProcessIoFigures) -> Vec<(f64, f64, u64)> {
        let one = |p: &ProcessBytes| (p.bytes.read, p.bytes.written, p.dt.as_secs());
        f.processes.iter().map(one).collect()
    }

    #[test]
    fn bytes_are_those_since_the_last_row() {
        let mut t = ProcessIoTracker::default();
        assert_eq!(moved(&t.push(&sample(10, vec![row(1, 500, 1000)]))), []);
        assert_eq!(moved(&t.push(&sample(12, vec![row(1, 600, 3000)]))), [(100.0, 2000.0, 2)]);
        // It was read a second ago and had not moved.
        let still = ProcessIo { still_ms: 1000, ..row(1, 600, 4000) };
        assert_eq!(moved(&t.push(&sample(30, vec![still]))), [(0.0, 1000.0, 1)]);
        // It fell: it began anew, whatever it was.
        assert_eq!(moved(&t.push(&sample(31, vec![row(1, 0, 9000)]))), []);
        assert_eq!(moved(&t.push(&sample(32, vec![row(1, 5, 9000)]))), [(5.0, 0.0, 1)]);
        // Another process has its number; a new one begins at zero.
        assert_eq!(moved(&t.push(&sample(33, vec![row(2, 10, 9999)]))), []);
        let new = ProcessIo { zero_ms: Some(2000), ..row(3, 0, 700) };
        assert_eq!(moved(&t.push(&sample(34, vec![new]))), [(0.0, 700.0, 2)]);
    }

    #[test]
    fn what_was_cancelled_or_done_by_a_child_before_does_not_count() {
        let mut t = ProcessIoTracker::default();
        t.push(&sample(1, vec![row(1, 0, 0)]));
        let now = ProcessIo {
            cancelled_write_bytes: 100,
            children_write_bytes: 700,
            children_read_bytes: 40,
            ..row(1, 50, 1000)
        };
        assert_eq!(moved(&t.push(&sample(2, vec![now.clone()]))), [(10.0, 200.0, 1)]);
        // Somebody else's pages.
        let now = ProcessIo { cancelled_write_bytes: 9000, ..now };
        assert_eq!(moved(&t.push(&sample(3, vec![now]))), [(0.0, 0.0, 1)]);
    }

    #[test]
    fn who_was_not_read_still_moves_for_three_seconds() {
        let mut t = ProcessIoTracker::default();
        let moves = |t: &ProcessIoTracker, s: u64| t.moves(7, MonoNs(1_000_000_000 * s));
        t.push(&sample(1, vec![row(1, 0, 0)]));
        assert!(!moves(&t, 1));
        t.push(&sample(2, vec![row(1, 0, 4096)]));
        assert!(moves(&t, 2) && moves(&t, 4) && !moves(&t, 5));
        // Read in turn: this round had no time for it.
        let mut short = sample(3, Vec::new());
        short.data.unread = 1;
        t.push(&short);
        assert!(moves(&t, 4) && !moves(&t, 5));
        // All were read, and it had not moved.
        t.push(&sample(4, Vec::new()));
        assert!(!moves(&t, 4));
        t.push(&sample(5, vec![row(1, 0, 8192)]));
        t.push(&sample(6, vec![row(1, 0, 8192)]));
        assert!(!moves(&t, 6), "it was read and stood still");
    }

    #[test]
    fn those_that_moved_last_are_remembered() {
        let mut t = ProcessIoTracker::default();
        for s in 0..3 * MAX_KNOWN as u64 {
            t.push(&sample(1 + s, vec![row(s, 1, 1)]));
        }
        assert!(t.last.len() <= MAX_KNOWN);
        let last = row(3 * MAX_KNOWN as u64 - 1, 3, 1);
        assert_eq!(moved(&t.push(&sample(1_000_000, vec![last]))).len(), 1);
    }
}
