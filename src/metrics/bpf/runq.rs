//! Waits on the run queue: per CPU and on the whole machine, who waited worst.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Coverage, Latency, grown_missed};
use crate::metrics::rate::{grown, per_second};
use crate::sample::bpf::Hist;
use crate::sample::bpf::runq::{LongWait, RunqBpfSample, RunqCpu, RunqTier};
use crate::sample::subject::{CgroupId, CpuId, TaskId};
use crate::sample::time::MonoNs;
use crate::sample::{Shared, Stamped};

/// Waits over one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunqFigures {
    /// How they were measured.
    pub tier: RunqTier,
    /// Measured interval.
    pub dt: Duration,
    /// Waits of all CPUs together.
    pub waits: Hist,
    /// The same in five numbers; `None` when nothing waited.
    pub latency: Option<Latency>,
    /// Context switches per second.
    pub switches_s: f64,
    /// Tasks waiting, mean over the interval.
    pub waiting: f64,
    /// Per CPU, those that switched in the interval.
    pub cpus: Vec<CpuWaits>,
    /// Tasks that waited 1 ms or more at once, longest wait first.
    pub tasks: Vec<TaskWaits>,
    /// cgroups of waits of 1 ms and more, longest sum first.
    pub cgroups: Vec<CgroupWaited>,
    /// Waits of 1 ms and more.
    pub long: u64,
    /// Of these, the ones that no entry of `tasks` counts, but for our own.
    pub long_unlisted: u64,
    /// How much of what happened is in here.
    pub coverage: Coverage,
    /// Waits left out because the task slept in them: how long it waited is not known.
    pub slept: u64,
}

/// Waits on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuWaits {
    /// The CPU.
    pub cpu: CpuId,
    /// Context switches per second.
    pub switches_s: f64,
    /// Tasks waiting here, mean over the interval.
    pub waiting: f64,
    /// The waits; `None` when nothing waited.
    pub latency: Option<Latency>,
    /// Waits of 1 ms and more.
    pub long: u64,
}

/// Long waits of one task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskWaits {
    /// Process, as the host sees it; `None` where it is not measured.
    pub pid: Option<u32>,
    /// Thread.
    pub tid: u32,
    /// `comm`, raw; `None` when it was gone already.
    pub comm: Option<String>,
    /// Its cgroup in the hierarchy of the cpu controller.
    pub cgroup: Option<CgroupId>,
    /// Where the longest wait was.
    pub cpu: CpuId,
    /// How many.
    pub count: u64,
    /// The longest, ns.
    pub max_ns: u64,
    /// All together, ns.
    pub sum_ns: u64,
    /// When the last one ended.
    pub last: MonoNs,
}

impl TaskWaits {
    /// The thread, as far as eBPF knows it: without its start.
    #[must_use]
    pub fn task(&self) -> TaskId {
        TaskId { pid: self.pid.unwrap_or(0), tid: self.tid, start: 0 }
    }
}

/// Long waits of one cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CgroupWaited {
    /// The cgroup, in the hierarchy of the cpu controller.
    pub id: CgroupId,
    /// Waits of 1 ms and more.
    pub count: u64,
    /// All together, ns.
    pub wait_ns: u64,
}

impl RunqFigures {
    /// Waits on one CPU.
    #[must_use]
    pub fn cpu(&self, id: CpuId) -> Option<&CpuWaits> {
        self.cpus.iter().find(|c| c.cpu == id)
    }
}

/// Waits between two readings. `later` are the readings after `prev` up to and with `now`,
/// which name the long waits. `None` when the programs were attached anew in between.
#[must_use]
pub fn derive<'a>(
    prev: &Stamped<RunqBpfSample>,
    now: &Stamped<RunqBpfSample>,
    later: impl Iterator<Item = &'a Shared<RunqBpfSample>>,
) -> Option<RunqFigures> {
    let dt = now.span.mid().since(prev.span.mid());
    if prev.data.tier != now.data.tier || dt.is_zero() {
        return None;
    }
    let mut out = RunqFigures { tier: now.data.tier, dt, ..RunqFigures::default() };
    let none = RunqCpu::default();
    let (mut switches, mut wait_ns) = (0u64, 0u64);
    for n in &now.data.cpus {
        // A CPU without a row had not switched yet: its counters were all zero.
        let p = prev.data.cpus.iter().find(|p| p.cpu == n.cpu).unwrap_or(&none);
        let waits = n.waits.since(&p.waits)?;
        let switched = grown(p.switches, n.switches)?;
        let waited = grown(p.wait_ns, n.wait_ns)?;
        let long = grown(p.long, n.long)?;
        let lost = |f: fn(&RunqCpu) -> u64| f(n).saturating_sub(f(p));
        out.coverage.counted = out.coverage.counted.saturating_add(waits.count());
        out.coverage.lost = out
            .coverage
            .lost
            .saturating_add(lost(|c| c.discarded))
            .saturating_add(lost(|c| c.collided));
        out.slept = out.slept.saturating_add(lost(|c| c.slept));
        out.coverage.unsure = out.coverage.unsure.saturating_add(lost(|c| c.unsure));
        out.long = out.long.saturating_add(long);
        switches = switches.saturating_add(switched);
        wait_ns = wait_ns.saturating_add(waited);
        if switched > 0 {
            out.cpus.push(CpuWaits {
                cpu: n.cpu,
                switches_s: per_second(switched as f64, dt)?,
                waiting: per_second(waited as f64 / 1e9, dt)?,
                latency: Latency::of(&waits),
                long,
            });
        }
        out.waits.merge(&waits);
    }
    // A CPU never loses its row while the same programs run.
    if prev.data.cpus.iter().any(|p| !now.data.cpus.iter().any(|n| n.cpu == p.cpu)) {
        return None;
    }
    out.coverage.lost =
        out.coverage.lost.saturating_add(grown_missed(prev.data.missed, now.data.missed));
    out.switches_s = per_second(switches as f64, dt)?;
    out.waiting = per_second(wait_ns as f64 / 1e9, dt)?;
    let (mut listed, mut own): (Vec<&LongWait>, u64) = (Vec::new(), 0);
    for s in later {
        listed.extend(&s.data.long_waits);
        own = own.saturating_add(s.data.long_own);
    }
    out.long_unlisted = out.long.saturating_sub(own.saturating_add(listed.len() as u64));
    let longest = listed.iter().map(|w| w.wait_ns).max();
    out.latency = Latency::of(&out.waits).map(|l| l.with_exact_max(&out.waits, longest));
    out.tasks = tasks(&listed);
    out.cgroups = cgroups(&prev.data, &now.data);
    Some(out)
}

fn tasks(listed: &[&LongWait]) -> Vec<TaskWaits> {
    let mut by_tid: BTreeMap<u32, TaskWaits> = BTreeMap::new();
    for w in listed {
        let t = by_tid.entry(w.tid).or_insert_with(|| TaskWaits {
            pid: (w.pid != 0).then_some(w.pid),
            tid: w.tid,
            ..TaskWaits::default()
        });
        t.count += 1;
        t.sum_ns = t.sum_ns.saturating_add(w.wait_ns);
        if w.wait_ns >= t.max_ns {
            (t.max_ns, t.cpu) = (w.wait_ns, w.cpu);
        }
        // A task may be gone, or in another cgroup, by the time of a later reading.
        if w.at >= t.last {
            t.last = w.at;
            t.comm = w.comm.clone().or(t.comm.take());
            t.cgroup = w.cgroup.or(t.cgroup);
        } else if t.comm.is_none() {
            t.comm.clone_from(&w.comm);
        }
    }
    let mut out: Vec<TaskWaits> = by_tid.into_values().collect();
    out.sort_by_key(|t| (std::cmp::Reverse(t.max_ns), t.tid));
    out
}

fn cgroups(prev: &RunqBpfSample, now: &RunqBpfSample) -> Vec<CgroupWaited> {
    let mut out: Vec<CgroupWaited> = now
        .cgroups
        .iter()
        .filter_map(|n| {
            let p = prev.cgroups.iter().find(|p| p.id == n.id).copied().unwrap_or_default();
            let count = grown(p.count, n.count)?;
            let wait_ns = grown(p.wait_ns, n.wait_ns)?;
            (count > 0).then_some(CgroupWaited { id: n.id, count, wait_ns })
        })
        .collect();
    out.sort_by_key(|c| (std::cmp::Reverse(c.wait_ns), c.id));
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::super::tests::hist;
    use super::*;
    use crate::sample::bpf::runq::CgroupWaits;
    use crate::sample::time::Span;

    fn at(ms: u64, data: RunqBpfSample) -> Shared<RunqBpfSample> {
        Arc::new(Stamped { span: Span::at(MonoNs(ms * 1_000_000)), cpu: Duration::ZERO, data })
    }

    fn cpu(cpu: u32, switches: u64, waits: &[u64]) -> RunqCpu {
        RunqCpu {
            cpu: CpuId(cpu),
            switches,
            wait_ns: waits.iter().sum(),
            waits: hist(waits),
            long: waits.iter().filter(|w| **w >= 1_000_000).count() as u64,
            ..RunqCpu::default()
        }
    }

    fn long(tid: u32, wait_ms: u64, comm: Option<&str>) -> LongWait {
        LongWait {
            at: MonoNs(wait_ms),
            cpu: CpuId(1),
            wait_ns: wait_ms * 1_000_000,
            pid: 7,
            tid,
            comm: comm.map(str::to_owned),
            cgroup: Some(CgroupId(42)),
        }
    }

    /// Two spinners share cpu1 for 2 s in slices of 4 ms: 500 switches, each after 4 ms, so one
    /// task waits all the time. cpu0 switched 100 times without a wait worth counting.
    #[test]
    fn two_spinners_on_one_cpu() {
        let p = at(0, RunqBpfSample { cpus: vec![cpu(0, 50, &[])], ..Default::default() });
        let n = at(
            2000,
            RunqBpfSample {
                cpus: vec![cpu(0, 150, &[]), cpu(1, 500, &vec![4_000_000; 500])],
                long_waits: vec![long(8, 4, Some("spin")), long(8, 3, None), long(9, 4, None)],
                cgroups: vec![CgroupWaits { id: CgroupId(42), count: 500, wait_ns: 2_000_000_000 }],
                ..Default::default()
            },
        );
        let f = derive(&p, &n, std::iter::once(&n)).unwrap();
        assert_eq!(f.switches_s, 300.0);
        assert_eq!(f.waiting, 1.0, "one of two always waits");
        assert_eq!((f.long, f.long_unlisted), (500, 497));
        let l = f.latency.unwrap();
        assert!((l.p50_ns as f64 / 4e6 - 1.0).abs() <= 0.0625);
        assert_eq!(l.max_ns, Some(4_000_000), "the longest wait itself, not its bucket");
        assert_eq!(f.cpu(CpuId(0)).unwrap().latency, None);
        assert_eq!(f.cpu(CpuId(1)).unwrap().switches_s, 250.0);
        let t = &f.tasks[0];
        assert_eq!((t.tid, t.count, t.max_ns, t.sum_ns), (8, 2, 4_000_000, 7_000_000));
        assert_eq!((t.comm.as_deref(), t.pid), (Some("spin"), Some(7)));
        assert_eq!(f.tasks.len(), 2);
        assert_eq!(f.cgroups[0].count, 500);
        assert_eq!(f.coverage.share(), Some(1.0));
    }

    #[test]
    fn programs_attached_anew_give_no_figures() {
        let sample = |switches, waits: &[u64]| RunqBpfSample {
            cpus: vec![cpu(0, switches, waits)],
            ..Default::default()
        };
        let first = at(0, sample(100, &[5_000; 9]));
        for again in [
            at(1000, sample(10, &[5_000; 10])),
            at(1000, sample(110, &[5_000; 8])),
            at(1000, RunqBpfSample::default()),
            at(1000, RunqBpfSample { tier: RunqTier::Wakeup, ..sample(200, &[5_000; 10]) }),
        ] {
            assert_eq!(derive(&first, &again, std::iter::empty()), None);
        }
        assert!(derive(&first, &first, std::iter::empty()).is_none(), "no time, no rate");
    }

    #[test]
    fn what_was_not_counted_is_coverage() {
        let mut after = cpu(0, 200, &[5_000; 90]);
        (after.discarded, after.collided, after.unsure, after.slept) = (4, 5, 3, 2);
        let p = at(0, RunqBpfSample { missed: Some(2), ..Default::default() });
        let n =
            at(1000, RunqBpfSample { cpus: vec![after], missed: Some(3), ..Default::default() });
        let f = derive(&p, &n, std::iter::empty()).unwrap();
        let c = f.coverage;
        assert_eq!((c.counted, c.lost, c.unsure, f.slept), (90, 10, 3, 2));
        assert_eq!(c.share(), Some(0.9));
    }

    /// At short intervals a figure spans several readings; each names its own long waits.
    #[test]
    fn long_waits_of_all_readings_in_the_interval() {
        let cpus = |n: u64| vec![cpu(0, n, &vec![2_000_000; n as usize])];
        let p = at(0, RunqBpfSample { cpus: cpus(0), ..Default::default() });
        let mut list: Vec<_> = (1..=3)
            .map(|i| {
                let long_waits = vec![long(5, 2, Some("a"))];
                at(i * 300, RunqBpfSample { cpus: cpus(i), long_waits, ..Default::default() })
            })
            .collect();
        let f = derive(&p, list.last().unwrap(), list.iter()).unwrap();
        assert_eq!((f.long, f.long_unlisted, f.tasks[0].count), (3, 0, 3));
        // Our own are counted, and in no list.
        list.push(at(1200, RunqBpfSample { cpus: cpus(5), long_own: 1, ..Default::default() }));
        let f = derive(&p, list.last().unwrap(), list.iter()).unwrap();
        assert_eq!((f.long, f.long_unlisted, f.tasks[0].count), (5, 1, 3));
    }
}
