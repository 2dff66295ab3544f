//! Threads summed up by process: what they run, what they wait for.

use std::collections::BTreeMap;

use super::cpu::SchedFigures;
use super::process_io::ProcessIoFigures;
use super::rate::per_second;
use crate::sample::processes::BlockedTask;
use crate::sample::subject::TaskId;

/// One process over the interval in which its threads were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessFigures {
    /// Process id.
    pub pid: u32,
    /// `comm` of its first thread, raw; of another one where that was not read.
    pub comm: String,
    /// Its cgroup, raw; read only for threads that wait or run much.
    pub cgroup: Option<String>,
    /// Threads that ran, waited for a CPU or were in uninterruptible sleep.
    pub threads: u32,
    /// Time on a CPU, seconds per second, summed over threads.
    pub run: f64,
    /// Time runnable and waiting for a CPU, seconds per second, summed over threads; includes time
    /// throttled by CFS bandwidth control.
    pub wait: f64,
    /// Time slices per second.
    pub slices_s: f64,
    /// Threads in uninterruptible sleep.
    pub blocked: u32,
    /// Function of the kernel that one of those sleeps in.
    pub wchan: Option<String>,
    /// Bytes read from and written to disks per second; `None` if they were not read, or are not
    /// ours to read.
    pub io: Option<(f64, f64)>,
}

/// Sums up, by process id.
#[must_use]
pub fn by_process(
    sched: Option<&SchedFigures>,
    blocked: &[BlockedTask],
    io: Option<&ProcessIoFigures>,
) -> Vec<ProcessFigures> {
    let mut all: BTreeMap<u32, (ProcessFigures, Vec<TaskId>)> = BTreeMap::new();
    for t in sched.map_or(&[][..], |s| &s.threads) {
        let (p, seen) = entry(&mut all, t.thread.task, &t.thread.comm);
        seen.push(t.thread.task);
        let per_second = |n: f64| per_second(n, t.dt).unwrap_or(0.0);
        p.run += per_second(t.run_ns as f64 / 1e9);
        p.wait += per_second(t.run_delay_ns as f64 / 1e9);
        p.slices_s += per_second(t.slices as f64);
        if p.cgroup.is_none() {
            p.cgroup.clone_from(&t.thread.cgroup);
        }
    }
    for b in blocked {
        let (p, seen) = entry(&mut all, b.task, &b.comm);
        seen.push(b.task);
        p.blocked += 1;
        if p.wchan.is_none() {
            p.wchan.clone_from(&b.wchan);
        }
    }
    for b in io.map_or(&[][..], |io| &io.processes) {
        let (p, _) = entry(&mut all, b.task, &b.comm);
        let rate = |bytes| per_second(bytes, b.dt).unwrap_or(0.0);
        p.io = Some((rate(b.bytes.read), rate(b.bytes.written)));
        if p.cgroup.is_none() {
            p.cgroup.clone_from(&b.cgroup);
        }
    }
    // Who is not listed has moved nothing, unless somebody could not be read.
    let still = io.filter(|io| io.unread == 0 && io.denied == 0).map(|_| (0.0, 0.0));
    let counted = |(mut p, mut seen): (ProcessFigures, Vec<TaskId>)| {
        seen.sort_unstable();
        seen.dedup();
        p.threads = seen.len() as u32;
        p.io = p.io.or(still);
        p
    };
    all.into_values().map(counted).collect()
}

fn entry<'a>(
    all: &'a mut BTreeMap<u32, (ProcessFigures, Vec<TaskId>)>,
    task: TaskId,
    comm: &str,
) -> &'a mut (ProcessFigures, Vec<TaskId>) {
    let of = all.entry(task.pid).or_default();
    of.0.pid = task.pid;
    // The first thread of a process has its number.
    if of.0.comm.is_empty() || task.tid == task.pid {
        comm.clone_into(&mut of.0.comm);
    }
    of
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::cpu::ThreadWait;
    use crate::metrics::process_io::{Bytes, ProcessBytes};
    use crate::sample::sched::ThreadSched;

    fn task(pid: u32, tid: u32) -> TaskId {
        TaskId { pid, tid, start: 1 }
    }

    fn thread(task: TaskId, comm: &str, run_ms: u64, wait_ms: u64, secs: u64) -> ThreadWait {
        ThreadWait {
            thread: ThreadSched { task, comm: comm.into(), ..ThreadSched::default() },
            dt: Duration::from_secs(secs),
            run_ns: run_ms * 1_000_000,
            run_delay_ns: wait_ms * 1_000_000,
            slices: 10,
        }
    }

    /// A thread that was read over two seconds and one over one; a third only waits for a disk.
    #[test]
    fn threads_of_a_process_are_summed_up_each_over_its_own_interval() {
        let sched = SchedFigures {
            threads: vec![
                thread(task(7, 9), "worker", 500, 200, 2),
                thread(task(7, 7), "db", 100, 300, 1),
                thread(task(8, 8), "other", 10, 0, 1),
            ],
            ..SchedFigures::default()
        };
        let blocked = [
            BlockedTask {
                task: task(7, 10),
                comm: "flusher".into(),
                wchan: Some("folio_wait_bit_common".into()),
                ..BlockedTask::default()
            },
            BlockedTask { task: task(7, 9), comm: "worker".into(), ..BlockedTask::default() },
        ];
        let moved = ProcessBytes {
            task: task(7, 7),
            comm: "db".into(),
            cgroup: Some("/db".into()),
            open: None,
            dt: Duration::from_secs(2),
            bytes: Bytes { read: 10.0, written: 3.0 },
        };
        let mut io = ProcessIoFigures { processes: vec![moved], ..ProcessIoFigures::default() };
        let all = by_process(Some(&sched), &blocked, Some(&io));
        let db = &all[0];
        assert_eq!((db.pid, db.comm.as_str(), db.threads, db.blocked), (7, "db", 3, 2));
        assert!((db.run - 0.35).abs() < 1e-9 && (db.wait - 0.4).abs() < 1e-9, "{db:?}");
        assert!((db.slices_s - 15.0).abs() < 1e-9, "{db:?}");
        assert_eq!(db.wchan.as_deref(), Some("folio_wait_bit_common"));
        assert_eq!((db.io, db.cgroup.as_deref()), (Some((5.0, 1.5)), Some("/db")));
        assert_eq!((all.len(), all[1].pid, all[1].blocked), (2, 8, 0));
        assert_eq!(all[1].io, Some((0.0, 0.0)));
        // Not listed may mean not read.
        io.denied = 1;
        assert_eq!(by_process(Some(&sched), &blocked, Some(&io))[1].io, None);
        assert_eq!(by_process(Some(&sched), &blocked, None)[0].io, None);
    }

    #[test]
    fn without_any_source_there_is_nobody() {
        assert!(by_process(None, &[], None).is_empty());
    }
}
