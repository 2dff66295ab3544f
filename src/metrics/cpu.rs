//! Shares of CPU time, softirq and softnet rates, run-queue waits, pressure: per interval.

use std::sync::Arc;
use std::time::Duration;

use super::rate::{Readings, grown, grown32, per_second, ratio};
use crate::sample::Stamped;
use crate::sample::cpu::{CpuSample, CpuTimes};
use crate::sample::psi::{PsiSample, PsiTotals};
use crate::sample::sched::{SchedSample, ThreadSched};
use crate::sample::softirq::SoftirqSample;
use crate::sample::subject::{CpuId, TaskId};
use crate::sample::time::MonoNs;

/// What a CPU did, % of the interval. The parts add up to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuShare {
    /// User, nice included, guests included.
    pub user: f64,
    /// The part of `user` that niced tasks (nice > 0) used.
    pub nice: f64,
    /// Kernel.
    pub system: f64,
    /// Idle.
    pub idle: f64,
    /// Idle with I/O outstanding.
    pub iowait: f64,
    /// Hardware interrupts.
    pub irq: f64,
    /// Software interrupts.
    pub softirq: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
}

impl CpuShare {
    /// It does something, interrupts and what the hypervisor took included.
    #[must_use]
    pub fn busy(self) -> f64 {
        (100.0 - self.idle - self.iowait).clamp(0.0, 100.0)
    }
}

/// CPU use over one interval.
#[derive(Clone, Debug, Default)]
pub struct CpuFigures {
    /// Measured interval.
    pub dt: Duration,
    /// All CPUs together; `None` when no time passed.
    pub total: Option<CpuShare>,
    /// By CPU id. A CPU that was offline has no entry.
    pub cpus: Vec<(CpuId, CpuShare)>,
    /// Context switches per second.
    pub ctxt_s: Option<f64>,
    /// Runnable tasks now.
    pub running: Option<u32>,
    /// Blocked tasks now.
    pub blocked: Option<u32>,
}

impl CpuFigures {
    /// The share of one CPU.
    #[must_use]
    pub fn cpu(&self, id: CpuId) -> Option<CpuShare> {
        self.cpus.iter().find(|(c, _)| *c == id).map(|(_, s)| *s)
    }
}

/// CPU shares from two readings of `/proc/stat`.
#[must_use]
pub fn derive(prev: &Stamped<CpuSample>, now: &Stamped<CpuSample>) -> CpuFigures {
    let dt = now.span.mid().since(prev.span.mid());
    let cpus = now
        .data
        .cpus
        .iter()
        .filter_map(|(id, t)| {
            let (_, before) = prev.data.cpus.iter().find(|(p, _)| p == id)?;
            Some((*id, share(before, t)?))
        })
        .collect();
    let ctxt = prev.data.ctxt.zip(now.data.ctxt).and_then(|(p, n)| grown(p, n));
    CpuFigures {
        dt,
        total: share(&prev.data.total, &now.data.total),
        cpus,
        ctxt_s: ctxt.and_then(|d| per_second(d as f64, dt)),
        running: now.data.procs_running,
        blocked: now.data.procs_blocked,
    }
}

/// Ticks of idle and iowait may step back by a little on old kernels: that part counts 0.
fn share(p: &CpuTimes, n: &CpuTimes) -> Option<CpuShare> {
    let d = |a: u64, b: u64| b.saturating_sub(a) as f64;
    // guest is inside user, guest_nice inside nice: adding them would count twice.
    let user = d(p.user, n.user) + d(p.nice, n.nice);
    let system = d(p.system, n.system);
    let (idle, iowait) = (d(p.idle, n.idle), d(p.iowait, n.iowait));
    let (irq, softirq) = (d(p.irq, n.irq), d(p.softirq, n.softirq));
    let steal = d(p.steal, n.steal);
    let sum = user + system + idle + iowait + irq + softirq + steal;
    let pct = |v: f64| ratio(100.0 * v, sum);
    Some(CpuShare {
        user: pct(user)?,
        nice: pct(d(p.nice, n.nice))?,
        system: pct(system)?,
        idle: pct(idle)?,
        iowait: pct(iowait)?,
        irq: pct(irq)?,
        softirq: pct(softirq)?,
        steal: pct(steal)?,
    })
}

/// SoftIRQ activity over one interval.
#[derive(Clone, Debug, Default)]
pub struct SoftirqFigures {
    /// Measured interval.
    pub dt: Duration,
    /// Vector names, in the kernel's order.
    pub vectors: Vec<Arc<str>>,
    /// Per CPU: events per second of each vector.
    pub per_cpu: Vec<(CpuId, Vec<f64>)>,
    /// Per CPU: packets per second processed, dropped, and budget exhaustions.
    pub softnet: Vec<SoftnetFigures>,
}

/// softnet rates of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SoftnetFigures {
    /// The CPU, where it can be told.
    pub cpu: Option<CpuId>,
    /// Packets per second.
    pub processed_s: f64,
    /// Drops per second.
    pub dropped_s: f64,
    /// time_squeeze per second.
    pub squeeze_s: f64,
    /// Interrupts per second by which other CPUs hand packets to this one (RPS); `None` where the
    /// kernel does not count them.
    pub rps_s: Option<f64>,
    /// Backlog length now.
    pub backlog: Option<u32>,
}

impl SoftirqFigures {
    /// Events per second of a vector (`NET_RX`) on a CPU.
    #[must_use]
    pub fn rate(&self, cpu: CpuId, vector: &str) -> Option<f64> {
        let i = self.vectors.iter().position(|v| &**v == vector)?;
        self.per_cpu.iter().find(|(c, _)| *c == cpu)?.1.get(i).copied()
    }
    /// Events per second of a vector over all CPUs.
    #[must_use]
    pub fn total(&self, vector: &str) -> Option<f64> {
        let i = self.vectors.iter().position(|v| &**v == vector)?;
        Some(self.per_cpu.iter().filter_map(|(_, r)| r.get(i)).sum())
    }
    /// softnet of one CPU.
    #[must_use]
    pub fn softnet(&self, cpu: CpuId) -> Option<&SoftnetFigures> {
        self.softnet.iter().find(|s| s.cpu == Some(cpu))
    }
}

/// SoftIRQ and softnet rates from two readings.
#[must_use]
pub fn derive_softirq(
    prev: &Stamped<SoftirqSample>,
    now: &Stamped<SoftirqSample>,
) -> SoftirqFigures {
    let dt = now.span.mid().since(prev.span.mid());
    let s = |d: f64| per_second(d, dt).unwrap_or(0.0);
    let (p, n) = (&prev.data, &now.data);
    let per_cpu = n
        .vector_cpus
        .iter()
        .enumerate()
        .filter_map(|(col, cpu)| {
            let before = p.vector_cpus.iter().position(|c| c == cpu)?;
            let rates = n
                .vectors
                .iter()
                .enumerate()
                .map(|(row, (name, counts))| {
                    let old = p
                        .vectors
                        .get(row)
                        .filter(|v| v.0 == *name)
                        .or_else(|| p.vectors.iter().find(|v| v.0 == *name))
                        .and_then(|v| v.1.get(before));
                    // The kernel keeps these in 32 bits: a fall is a wrap.
                    match (old, counts.get(col)) {
                        (Some(a), Some(b)) => s(f64::from(grown32(*a as u32, *b as u32))),
                        _ => 0.0,
                    }
                })
                .collect();
            Some((*cpu, rates))
        })
        .collect();
    let softnet =
        n.softnet
            .iter()
            .enumerate()
            .filter_map(|(i, row)| {
                let old =
                    p.softnet.get(i).filter(|o| o.cpu == row.cpu).or_else(|| {
                        p.softnet.iter().find(|o| o.cpu.is_some() && o.cpu == row.cpu)
                    })?;
                Some(SoftnetFigures {
                    cpu: row.cpu,
                    processed_s: s(f64::from(grown32(old.processed, row.processed))),
                    dropped_s: s(f64::from(grown32(old.dropped, row.dropped))),
                    squeeze_s: s(f64::from(grown32(old.time_squeeze, row.time_squeeze))),
                    rps_s: old
                        .received_rps
                        .zip(row.received_rps)
                        .map(|(a, b)| s(f64::from(grown32(a, b)))),
                    backlog: row.backlog_len,
                })
            })
            .collect();
    SoftirqFigures {
        dt,
        vectors: n.vectors.iter().map(|v| v.0.clone()).collect(),
        per_cpu,
        softnet,
    }
}

/// How a thread fared on the run queue over one interval.
#[derive(Clone, Debug)]
pub struct ThreadWait {
    /// What was read last: id, comm, state, CPU, affinity, cgroup.
    pub thread: ThreadSched,
    /// Measured interval.
    pub dt: Duration,
    /// ns on a CPU in the interval.
    pub run_ns: u64,
    /// ns runnable and waiting in the interval, CFS throttling included.
    pub run_delay_ns: u64,
    /// Times scheduled in.
    pub slices: u64,
}

impl ThreadWait {
    /// Waiting as a part of waiting and running, 0 to 1.
    #[must_use]
    pub fn wait_share(&self) -> Option<f64> {
        ratio(self.run_delay_ns as f64, self.run_ns as f64 + self.run_delay_ns as f64)
    }
    /// Mean wait per time slice, ms.
    #[must_use]
    pub fn wait_per_slice_ms(&self) -> Option<f64> {
        ratio(self.run_delay_ns as f64 / 1e6, self.slices.max(1) as f64)
    }
    /// ms waited per second.
    #[must_use]
    pub fn wait_ms_s(&self) -> f64 {
        per_second(self.run_delay_ns as f64 / 1e6, self.dt).unwrap_or(0.0)
    }
}

/// Run-queue waits over one interval.
#[derive(Clone, Debug, Default)]
pub struct SchedFigures {
    /// Load averages.
    pub load: Option<[f64; 3]>,
    /// Threads that waited or ran, longest wait first.
    pub threads: Vec<ThreadWait>,
    /// `/proc/schedstat`: per CPU, ms waited per second and mean wait per slice in ms.
    pub cpus: Vec<(CpuId, f64, Option<f64>)>,
    /// Threads not read for lack of budget.
    pub unread_threads: u32,
}

impl SchedFigures {
    /// Threads that wait for a CPU, on average: as `/proc/schedstat` has it, else of the threads that
    /// were read. `None` where there was no reading before.
    #[must_use]
    pub fn waiting(&self) -> Option<f64> {
        let cpus = self.cpus.iter().map(|(_, ms_s, _)| *ms_s);
        let threads = self.threads.iter().map(ThreadWait::wait_ms_s);
        // At least the thread that reads them ran.
        cpus.reduce(|a, b| a + b).or(threads.reduce(|a, b| a + b)).map(|ms| ms / 1000.0)
    }

    /// The same of one CPU; a thread waits for the one that it ran on last.
    #[must_use]
    pub fn waiting_for(&self, cpu: CpuId) -> Option<f64> {
        if let Some((_, ms_s, _)) = self.cpus.iter().find(|(c, _, _)| *c == cpu) {
            return Some(ms_s / 1000.0);
        }
        let here = self.threads.iter().filter(|t| t.thread.last_cpu == Some(cpu));
        let of_threads = self.cpus.is_empty() && !self.threads.is_empty();
        of_threads.then(|| here.map(ThreadWait::wait_ms_s).sum::<f64>() / 1000.0)
    }
}

/// Remembers the last reading of each thread, since a budgeted collector does not read every
/// thread in every tick.
#[derive(Clone, Debug, Default)]
pub struct SchedTracker {
    last: std::collections::HashMap<TaskId, Readings<[u64; 3]>>,
}

impl SchedTracker {
    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.last.len() * (2 * size_of::<TaskId>() + Readings::<[u64; 3]>::BYTES)
    }

    /// Waits since each thread's last reading.
    pub fn push(
        &mut self,
        prev: Option<&Stamped<SchedSample>>,
        now: &Stamped<SchedSample>,
    ) -> SchedFigures {
        let at = now.span.mid();
        let mut threads = Vec::new();
        for t in &now.data.threads {
            let new = [t.run_ns, t.run_delay_ns, t.slices];
            let past = self.last.entry(t.task).or_default();
            if let Some(until) = stood_until(past, t, at) {
                past.stood(until, at);
            }
            let Some((delta, dt)) = past.push(at, new, |a, b, dt| {
                let grown = |i: usize| grown(a[i], b[i]);
                (grown(0).zip(grown(1)).zip(grown(2)), dt)
            }) else {
                continue;
            };
            let Some(((run_ns, run_delay_ns), slices)) = delta else { continue };
            if run_ns == 0 && run_delay_ns == 0 {
                continue;
            }
            threads.push(ThreadWait { thread: t.clone(), dt, run_ns, run_delay_ns, slices });
        }
        threads.sort_by(|a, b| {
            b.wait_ms_s().total_cmp(&a.wait_ms_s()).then(a.thread.task.cmp(&b.thread.task))
        });
        self.forget(now.data.tasks.map_or(0, |t| t.1 as usize).max(now.data.threads.len()));
        let cpus = prev.map_or_else(Vec::new, |p| {
            let dt = at.since(p.span.mid());
            now.data
                .cpus
                .iter()
                .filter_map(|n| {
                    let o = p.data.cpus.iter().find(|o| o.cpu == n.cpu)?;
                    let delay = grown(o.run_delay_ns, n.run_delay_ns)? as f64 / 1e6;
                    let slices = grown(o.slices, n.slices)? as f64;
                    Some((n.cpu, per_second(delay, dt)?, ratio(delay, slices)))
                })
                .collect()
        });
        SchedFigures { load: now.data.load, threads, cpus, unread_threads: now.data.unread_threads }
    }

    /// Threads that ended leave their last reading behind, and so do those that sleep: of many
    /// more than exist, the ones that moved last are kept.
    fn forget(&mut self, existing: usize) {
        if self.last.len() <= 2 * existing + SPARE {
            return;
        }
        let mut moved: Vec<MonoNs> = self.last.values().filter_map(Readings::last_at).collect();
        moved.sort_unstable();
        let old = moved.len().saturating_sub(existing + SPARE / 2);
        let since = moved.get(old).copied().unwrap_or_default();
        self.last.retain(|_, r| r.last_at().is_some_and(|t| t >= since));
    }
}

/// Readings of threads beyond those that exist: short-lived ones should not push out sleepers.
const SPARE: usize = 8192;

/// Until when a thread did not move since its last row, where its new row says so.
fn stood_until(past: &Readings<[u64; 3]>, row: &ThreadSched, at: MonoNs) -> Option<MonoNs> {
    let still = Duration::from_millis(row.still_ms.into());
    if still.is_zero() {
        return None;
    }
    let ran = grown(past.last()?[0], row.run_ns)?;
    // It cannot have run longer than that: rows in between were lost with their ticks.
    let fits = Duration::from_nanos(ran) <= still + Duration::from_millis(10);
    fits.then(|| at.back(still))
}

/// Share of the interval in which tasks were stalled, %.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PsiFigures {
    /// cpu, at least one task.
    pub cpu_some: Option<f64>,
    /// io, at least one task.
    pub io_some: Option<f64>,
    /// io, all tasks.
    pub io_full: Option<f64>,
    /// memory, at least one task.
    pub memory_some: Option<f64>,
    /// memory, all tasks.
    pub memory_full: Option<f64>,
}

/// Pressure from two readings.
#[must_use]
pub fn derive_psi(prev: &Stamped<PsiSample>, now: &Stamped<PsiSample>) -> PsiFigures {
    let dt = now.span.mid().since(prev.span.mid());
    let some = |p: Option<PsiTotals>, n: Option<PsiTotals>| psi_some(p?, n?, dt);
    let full = |p: Option<PsiTotals>, n: Option<PsiTotals>| psi_full(p?, n?, dt);
    let (p, n) = (&prev.data, &now.data);
    PsiFigures {
        cpu_some: some(p.cpu, n.cpu),
        io_some: some(p.io, n.io),
        io_full: full(p.io, n.io),
        memory_some: some(p.memory, n.memory),
        memory_full: full(p.memory, n.memory),
    }
}

/// `some` line of one pressure file, %.
#[must_use]
pub fn psi_some(p: PsiTotals, n: PsiTotals, dt: Duration) -> Option<f64> {
    psi_share(p.some_us, n.some_us, dt)
}

/// The same with all tasks stalled.
#[must_use]
pub fn psi_full(p: PsiTotals, n: PsiTotals, dt: Duration) -> Option<f64> {
    psi_share(p.full_us?, n.full_us?, dt)
}

fn psi_share(p: u64, n: u64, dt: Duration) -> Option<f64> {
    Some(per_second(grown(p, n)? as f64, dt)? / 1e4)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::time::Span;

    fn at<S>(ms: u64, data: S) -> Stamped<S> {
        Stamped { span: Span::at(MonoNs(ms * 1_000_000)), cpu: Duration::ZERO, data }
    }

    #[test]
    fn cpu_parts_add_up_and_offline_cpus_do_not_shift_the_rest() {
        let t = |user, idle, softirq| CpuTimes { user, idle, softirq, ..Default::default() };
        let prev = CpuSample {
            cpus: vec![(CpuId(0), t(0, 0, 0)), (CpuId(1), t(0, 0, 0)), (CpuId(2), t(0, 0, 0))],
            ctxt: Some(1000),
            ..Default::default()
        };
        let now = CpuSample {
            cpus: vec![(CpuId(0), t(10, 90, 0)), (CpuId(2), t(5, 5, 90))],
            ctxt: Some(3000),
            ..Default::default()
        };
        let f = derive(&at(0, prev), &at(1000, now));
        assert_eq!(f.cpu(CpuId(2)).unwrap().softirq, 90.0);
        assert_eq!(f.cpu(CpuId(1)), None);
        assert_eq!(f.ctxt_s, Some(2000.0));
    }

    /// Three spinners pinned to one CPU: measured 67% of the time waiting, 7.9 ms a slice.
    #[test]
    fn waits_of_pinned_spinners() {
        let thread = |run_ns, run_delay_ns, slices| ThreadSched {
            task: TaskId { pid: 7, tid: 7, start: 1 },
            run_ns,
            run_delay_ns,
            slices,
            ..Default::default()
        };
        let sample = |t| SchedSample { threads: vec![t], ..Default::default() };
        let mut tracker = SchedTracker::default();
        let first = at(0, sample(thread(0, 0, 0)));
        assert!(tracker.push(None, &first).threads.is_empty(), "one reading gives no rate");
        let f =
            tracker.push(Some(&first), &at(2000, sample(thread(660_000_000, 1_340_000_000, 170))));
        let t = &f.threads[0];
        assert!((t.wait_share().unwrap() - 0.67).abs() < 1e-9);
        assert!((t.wait_per_slice_ms().unwrap() - 7.882).abs() < 1e-3);
        assert_eq!(t.wait_ms_s(), 670.0);
    }

    fn row(run_ns: u64, still_ms: u32) -> SchedSample {
        let task = TaskId { pid: 7, tid: 7, start: 1 };
        let t = ThreadSched {
            task,
            run_ns: run_ns * 1_000_000,
            run_delay_ns: run_ns * 500_000,
            slices: run_ns,
            still_ms,
            ..Default::default()
        };
        SchedSample { threads: vec![t], ..Default::default() }
    }

    /// A thread that sleeps has no rows; what it does then is not spread over its sleep.
    #[test]
    fn a_thread_that_wakes_up_is_rated_since_it_was_last_seen_asleep() {
        let mut tracker = SchedTracker::default();
        let none = SchedSample::default();
        tracker.push(None, &at(0, row(100, 0)));
        for s in 1..59 {
            assert!(tracker.push(None, &at(s * 1000, none.clone())).threads.is_empty());
        }
        // Read in turn: 4 s ago it still slept.
        let f = tracker.push(None, &at(60_000, row(300, 4000)));
        let t = &f.threads[0];
        assert_eq!((t.dt, t.run_ns), (Duration::from_secs(4), 200_000_000));
        assert_eq!(t.wait_ms_s(), 25.0);
        // In the sample before: since then.
        let f = tracker.push(None, &at(61_000, row(400, 0)));
        assert_eq!(f.threads[0].dt, Duration::from_secs(1));
    }

    #[test]
    fn at_short_intervals_a_waking_thread_is_rated_over_the_least_span() {
        let mut tracker = SchedTracker::default();
        tracker.push(None, &at(0, row(100, 0)));
        let f = tracker.push(None, &at(20_000, row(110, 100)));
        assert_eq!(f.threads[0].dt, super::super::MIN_SPAN);
        let f = tracker.push(None, &at(20_100, row(120, 0)));
        assert_eq!((f.threads[0].dt.as_millis(), f.threads[0].run_ns), (1000, 20_000_000));
    }

    #[test]
    fn a_row_that_was_lost_makes_no_rate_that_cannot_be() {
        let mut tracker = SchedTracker::default();
        tracker.push(None, &at(0, row(0, 0)));
        // It ran 5 s in ticks that were dropped, stood still, and ran again.
        let f = tracker.push(None, &at(20_000, row(5100, 1000)));
        assert_eq!(f.threads[0].dt, Duration::from_secs(20));
    }

    #[test]
    fn short_lived_threads_do_not_pile_up() {
        let mut tracker = SchedTracker::default();
        for i in 0..30_000_u32 {
            let mut s = row(1, 0);
            s.threads[0].task.tid = i;
            tracker.push(None, &at(u64::from(i), s));
        }
        assert!(tracker.last.len() < 9000, "{}", tracker.last.len());
    }

    #[test]
    fn pressure_uses_its_own_interval() {
        let psi = |some_us| PsiSample {
            io: Some(PsiTotals { some_us, full_us: None }),
            ..Default::default()
        };
        let f = derive_psi(&at(0, psi(0)), &at(3000, psi(2_540_000)));
        assert!((f.io_some.unwrap() - 84.67).abs() < 0.01);
        assert_eq!((f.io_full, f.cpu_some), (None, None));
    }
}
