//! Time in softirqs and hard interrupt handlers: % of the core, runs, how long they take.

use std::time::Duration;

use super::{Coverage, Latency, grown_missed};
use crate::metrics::rate::{grown, per_second, ratio};
use crate::sample::Stamped;
use crate::sample::bpf::Hist;
use crate::sample::bpf::irq::{IrqBpfSample, IrqCpu, LineTime, VECTOR_NAMES, VectorTime};
use crate::sample::subject::CpuId;

/// Time in interrupts over one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IrqFigures {
    /// Measured interval.
    pub dt: Duration,
    /// Softirqs are measured.
    pub softirqs: bool,
    /// Hard interrupt handlers are measured, and their time is taken off the softirqs'.
    pub hardirqs: bool,
    /// CPUs on which anything ever ran.
    pub cpus: Vec<IrqCpuFigures>,
    /// Interrupts that came, one entry per CPU, most time first.
    pub lines: Vec<LineFigures>,
    /// How much of what happened is in here.
    pub coverage: Coverage,
}

/// One CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IrqCpuFigures {
    /// The CPU.
    pub cpu: CpuId,
    /// Vectors that ran in the interval.
    pub vectors: Vec<VectorFigures>,
    /// All vectors together, % of the core. A run counts when it ends: one that is longer than
    /// the interval shows late, and as more than 100.
    pub soft_pct: f64,
    /// Hard interrupt handlers; `None` when they are not measured.
    pub hard: Option<RunFigures>,
}

/// How often something ran, and how long.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunFigures {
    /// % of the core.
    pub pct: f64,
    /// Runs per second.
    pub runs_s: f64,
    /// Mean time of a run, ns; `None` when nothing ran.
    pub mean_ns: Option<f64>,
    /// 99 of a hundred runs were shorter, ns.
    pub p99_ns: Option<u64>,
    /// No timed run of the interval was longer, ns.
    pub max_ns: Option<u64>,
}

/// One vector of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VectorFigures {
    /// Number; see [`VECTOR_NAMES`].
    pub vector: u8,
    /// How often it ran, and how long.
    pub run: RunFigures,
    /// Part of the runs that was timed and stands for all, 0 to 0.995; `None` when nearly each was.
    pub timed: Option<f64>,
}

impl VectorFigures {
    /// As `/proc/softirqs` prints it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        VECTOR_NAMES.get(usize::from(self.vector)).copied().unwrap_or("?")
    }
}

/// One interrupt on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LineFigures {
    /// Number, as in `/proc/interrupts`.
    pub irq: u32,
    /// The CPU.
    pub cpu: CpuId,
    /// How often its handlers ran, and how long. No quantiles: there is no histogram.
    pub run: RunFigures,
}

impl IrqFigures {
    /// One CPU.
    #[must_use]
    pub fn cpu(&self, id: CpuId) -> Option<&IrqCpuFigures> {
        self.cpus.iter().find(|c| c.cpu == id)
    }
    /// Time of a vector, such as `NET_RX`, on a CPU, % of the core. `None` when softirqs are
    /// not measured; 0 when it did not run.
    #[must_use]
    pub fn vector_pct(&self, cpu: CpuId, name: &str) -> Option<f64> {
        if !self.softirqs {
            return None;
        }
        let run = self.cpu(cpu).and_then(|c| c.vector(name));
        Some(run.map_or(0.0, |r| r.pct))
    }
    /// Time of all vectors on a CPU, % of the core.
    #[must_use]
    pub fn soft_pct(&self, cpu: CpuId) -> Option<f64> {
        self.softirqs.then(|| self.cpu(cpu).map_or(0.0, |c| c.soft_pct))
    }
    /// Time in hard interrupt handlers on a CPU, % of the core.
    #[must_use]
    pub fn hard_pct(&self, cpu: CpuId) -> Option<f64> {
        self.hardirqs.then(|| self.cpu(cpu).and_then(|c| c.hard).map_or(0.0, |r| r.pct))
    }
}

impl IrqCpuFigures {
    /// A vector by name; `None` when it did not run in the interval.
    #[must_use]
    pub fn vector(&self, name: &str) -> Option<&RunFigures> {
        self.vectors.iter().find(|v| v.name() == name).map(|v| &v.run)
    }
}

/// Time between two readings. `None` when the programs were attached anew in between.
#[must_use]
pub fn derive(prev: &Stamped<IrqBpfSample>, now: &Stamped<IrqBpfSample>) -> Option<IrqFigures> {
    let dt = now.span.mid().since(prev.span.mid());
    if dt.is_zero() {
        return None;
    }
    let (p, n) = (&prev.data, &now.data);
    if p.cpus.iter().any(|c| !n.cpus.iter().any(|x| x.cpu == c.cpu)) {
        return None;
    }
    let mut out = IrqFigures {
        dt,
        softirqs: n.softirqs,
        hardirqs: n.hardirqs,
        coverage: Coverage { lost: grown_missed(p.missed, n.missed), ..Coverage::default() },
        ..IrqFigures::default()
    };
    let none = IrqCpu::default();
    for row in &n.cpus {
        let old = p.cpus.iter().find(|c| c.cpu == row.cpu).unwrap_or(&none);
        let mut cpu = IrqCpuFigures { cpu: row.cpu, ..IrqCpuFigures::default() };
        for v in &row.vectors {
            let zero = VectorTime::default();
            let before = old.vectors.iter().find(|o| o.vector == v.vector).unwrap_or(&zero);
            let count = grown(before.count, v.count)?;
            let ns = grown(before.ns, v.ns)?;
            if count == 0 {
                continue;
            }
            let longest = (v.max_ns > before.max_ns).then_some(v.max_ns);
            let run = run(count, ns, Some((&before.hist, &v.hist)), longest, dt)?;
            let unsure = grown(before.unsure, v.unsure)?;
            out.coverage.counted = out.coverage.counted.saturating_add(count);
            out.coverage.unsure = out.coverage.unsure.saturating_add(unsure);
            cpu.soft_pct += run.pct;
            // The two are not read in the same moment.
            let passed = v.passed.saturating_sub(before.passed).min(count);
            let timed = ratio((count - passed) as f64, count as f64).filter(|t| *t < 0.995);
            cpu.vectors.push(VectorFigures { vector: v.vector, run, timed });
        }
        let hard = grown(old.hard_count, row.hard_count)?;
        let hard_ns = grown(old.hard_ns, row.hard_ns)?;
        if n.hardirqs {
            cpu.hard = run(hard, hard_ns, Some((&old.hard, &row.hard)), None, dt);
            out.coverage.counted = out.coverage.counted.saturating_add(hard);
        }
        let lost = |f: fn(&IrqCpu) -> u64| f(row).saturating_sub(f(old));
        out.coverage.lost = out.coverage.lost.saturating_add(lost(|c| c.unpaired));
        out.lines.extend(row.lines.iter().filter_map(|l| line(old, row.cpu, l, dt)));
        out.cpus.push(cpu);
    }
    out.lines
        .sort_by(|a, b| b.run.pct.total_cmp(&a.run.pct).then((a.irq, a.cpu).cmp(&(b.irq, b.cpu))));
    Some(out)
}

fn line(old: &IrqCpu, cpu: CpuId, now: &LineTime, dt: Duration) -> Option<LineFigures> {
    let before = old.lines.iter().find(|l| l.irq == now.irq).copied().unwrap_or_default();
    let count = grown(before.count, now.count)?;
    let ns = grown(before.ns, now.ns)?;
    let longest = (now.max_ns > before.max_ns).then_some(now.max_ns);
    let run = run(count, ns, None, longest, dt).filter(|_| count > 0)?;
    Some(LineFigures { irq: now.irq, cpu, run })
}

/// `hists` are the cumulative histograms before and now; `longest` is an exact maximum.
fn run(
    count: u64,
    ns: u64,
    hists: Option<(&Hist, &Hist)>,
    longest: Option<u64>,
    dt: Duration,
) -> Option<RunFigures> {
    let taken = match hists {
        Some((before, now)) => Some(now.since(before)?),
        None => None,
    };
    // Not all runs are timed.
    let timed = taken.as_ref().map_or(count, Hist::count);
    let taken = taken.as_ref().and_then(Latency::of);
    Some(RunFigures {
        pct: per_second(ns as f64 / 1e7, dt)?,
        runs_s: per_second(count as f64, dt)?,
        mean_ns: (timed > 0).then(|| ns as f64 / timed as f64),
        p99_ns: taken.map(|l| l.p99_ns),
        max_ns: longest.or(taken.and_then(|l| l.max_ns)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tests::hist;
    use super::*;
    use crate::sample::bpf::layout::bucket_of;
    use crate::sample::time::{MonoNs, Span};

    fn at(ms: u64, data: IrqBpfSample) -> Stamped<IrqBpfSample> {
        Stamped { span: Span::at(MonoNs(ms * 1_000_000)), cpu: Duration::ZERO, data }
    }

    fn vector(vector: u8, runs: &[u64]) -> VectorTime {
        VectorTime {
            vector,
            count: runs.len() as u64,
            ns: runs.iter().sum(),
            max_ns: runs.iter().copied().max().unwrap_or(0),
            hist: hist(runs),
            ..VectorTime::default()
        }
    }

    fn sample(cpus: Vec<IrqCpu>) -> IrqBpfSample {
        IrqBpfSample { cpus, softirqs: true, hardirqs: true, missed: None }
    }

    fn cpu(id: u32, vectors: Vec<VectorTime>) -> IrqCpu {
        IrqCpu { cpu: CpuId(id), vectors, ..IrqCpu::default() }
    }

    /// NET_RX runs 18,000 times of 100 us in 2 s on cpu3: 90% of the core.
    #[test]
    fn a_core_full_of_net_rx() {
        let before = sample(vec![cpu(3, vec![vector(3, &[100_000; 10])])]);
        let mut after = cpu(3, vec![vector(3, &vec![100_000; 18_010]), vector(1, &[2_000; 20])]);
        (after.hard_count, after.hard_ns) = (4000, 8_000_000);
        after.hard = hist(&vec![2_000; 4000]);
        after.lines = vec![LineTime { irq: 45, count: 4000, ns: 8_000_000, max_ns: 2_500 }];
        let f = derive(&at(0, before), &at(2000, sample(vec![after]))).unwrap();
        assert_eq!(f.vector_pct(CpuId(3), "NET_RX"), Some(90.0));
        assert_eq!(f.vector_pct(CpuId(3), "BLOCK"), Some(0.0), "measured, and did not run");
        assert_eq!(f.vector_pct(CpuId(0), "NET_RX"), Some(0.0));
        let c = f.cpu(CpuId(3)).unwrap();
        let rx = c.vector("NET_RX").unwrap();
        assert_eq!((rx.runs_s, rx.mean_ns), (9000.0, Some(100_000.0)));
        assert!((c.soft_pct - 90.002).abs() < 1e-9, "{}", c.soft_pct);
        let hard = c.hard.unwrap();
        assert_eq!((hard.pct, hard.runs_s, hard.mean_ns), (0.4, 2000.0, Some(2000.0)));
        assert_eq!((f.lines[0].irq, f.lines[0].cpu, f.lines[0].run.pct), (45, CpuId(3), 0.4));
        assert_eq!(f.lines[0].run.max_ns, Some(2_500));
        assert_eq!(f.coverage.counted, 18_000 + 20 + 4000);
    }

    /// 160,000 runs of 3 us a second, one in four timed; three are passed over and not counted for
    /// when the reading comes.
    #[test]
    fn a_part_of_the_runs_stands_for_all() {
        let runs = |count: u64, passed: u64, pending: u64| VectorTime {
            vector: 3,
            count,
            passed,
            unsure: passed / 1000,
            ns: (count - pending) * 3_000,
            max_ns: 3_000,
            hist: [(bucket_of(3_000) as u16, count - pending)].into(),
        };
        let before = sample(vec![cpu(0, vec![runs(1_000, 0, 0)])]);
        let after = sample(vec![cpu(0, vec![runs(161_000, 120_000, 3)])]);
        let f = derive(&at(0, before.clone()), &at(1000, after)).unwrap();
        let v = f.cpu(CpuId(0)).unwrap().vectors[0];
        assert_eq!((v.timed, v.run.runs_s), (Some(0.25), 160_000.0));
        assert_eq!(v.run.mean_ns, Some(3_000.0), "of those that have a time");
        assert!((v.run.pct - 47.9991).abs() < 1e-9, "159,997 runs of 3 us: {}", v.run.pct);
        assert_eq!((f.coverage.counted, f.coverage.lost, f.coverage.unsure), (160_000, 0, 120));
        // Each is timed: nothing to tell.
        let after = sample(vec![cpu(0, vec![runs(2_000, 0, 0)])]);
        let f = derive(&at(0, before), &at(1000, after)).unwrap();
        assert_eq!(f.cpu(CpuId(0)).unwrap().vectors[0].timed, None);
    }

    #[test]
    fn the_longest_run_of_the_interval_is_not_that_of_ever() {
        let before = sample(vec![cpu(0, vec![vector(3, &[5_000_000])])]);
        let after = sample(vec![cpu(0, vec![vector(3, &[5_000_000, 1_000])])]);
        let f = derive(&at(0, before), &at(1000, after)).unwrap();
        let max = f.cpu(CpuId(0)).unwrap().vector("NET_RX").unwrap().max_ns.unwrap();
        assert!((1_000..1_200).contains(&max), "{max}");
    }

    #[test]
    fn backwards_is_a_reset_and_not_measured_is_unknown() {
        let big = sample(vec![cpu(0, vec![vector(3, &[1_000; 5])])]);
        let small = sample(vec![cpu(0, vec![vector(3, &[1_000; 4])])]);
        assert_eq!(derive(&at(0, big.clone()), &at(1000, small)), None);
        assert_eq!(derive(&at(0, big.clone()), &at(1000, sample(vec![]))), None);
        let off = IrqBpfSample { hardirqs: false, ..big };
        let f = derive(&at(0, off.clone()), &at(1000, off)).unwrap();
        assert_eq!((f.hard_pct(CpuId(0)), f.soft_pct(CpuId(0))), (None, Some(0.0)));
        assert_eq!(f.cpu(CpuId(0)).unwrap().hard, None);
    }
}
