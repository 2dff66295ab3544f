//! CPU throttling and I/O rates of cgroups over one interval.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::cpu::{psi_full, psi_some};
use super::rate::{Readings, grown, per_second, ratio};
use crate::sample::Stamped;
use crate::sample::cgroups::{CgroupIo, CgroupRow, CgroupsSample};
use crate::sample::subject::{CgroupId, DiskId};
use crate::sample::time::MonoNs;

/// One cgroup over one interval.
#[derive(Clone, Debug)]
pub struct CgroupFigures {
    /// Directory inode.
    pub id: CgroupId,
    /// Path below the mount.
    pub path: Arc<str>,
    /// Mount point.
    pub mount: Arc<str>,
    /// Measured interval.
    pub dt: Duration,
    /// CPU bandwidth control.
    pub cpu: Option<CgroupCpuFigures>,
    /// I/O per device.
    pub io: Vec<CgroupIoFigures>,
    /// How often per second memory was asked for at the limit.
    pub memory_failures_s: Option<f64>,
    /// How often per second one more task was refused.
    pub pids_refused_s: Option<f64>,
    /// Pressure of this cgroup, % of the interval with a task stalled.
    pub psi_cpu: Option<f64>,
    /// The same for I/O.
    pub psi_io: Option<f64>,
    /// The same for memory.
    pub psi_memory: Option<f64>,
    /// The same with all tasks stalled.
    pub psi_memory_full: Option<f64>,
}

/// CPU bandwidth control over one interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct CgroupCpuFigures {
    /// Limit in cores; `None` for no limit.
    pub limit_cores: Option<f64>,
    /// Quota, us per period.
    pub quota_us: Option<u64>,
    /// Period, us.
    pub period_us: u64,
    /// `cpu.weight` or `cpu.shares`.
    pub weight: Option<u64>,
    /// Periods that passed.
    pub periods: u64,
    /// Periods in which the quota ran out.
    pub throttled: u64,
    /// ms throttled per second, summed over CPUs.
    pub throttled_ms_s: f64,
    /// ns throttled in the interval.
    pub throttled_ns: u64,
    /// Cores used.
    pub usage_cores: Option<f64>,
}

impl CgroupCpuFigures {
    /// Part of the periods that were throttled, 0 to 1.
    #[must_use]
    pub fn throttled_share(&self) -> Option<f64> {
        ratio(self.throttled as f64, self.periods as f64)
    }
}

/// I/O of a cgroup on a device, per second. `None`: not counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct CgroupIoFigures {
    /// The device.
    pub dev: DiskId,
    /// Bytes read.
    pub rbps: Option<f64>,
    /// Bytes written.
    pub wbps: Option<f64>,
    /// Reads.
    pub riops: Option<f64>,
    /// Writes.
    pub wiops: Option<f64>,
    /// The limits, raw.
    pub limits: CgroupIo,
}

/// Remembers the last reading of each cgroup: a budgeted collector does not read all of them
/// in every tick.
#[derive(Clone, Debug, Default)]
pub struct CgroupTracker {
    last: HashMap<(Arc<str>, CgroupId), Readings<CgroupRow>>,
}

impl CgroupTracker {
    /// Bytes that it holds. Names and lists of devices are those of samples, but for a few.
    pub(super) fn bytes(&self) -> usize {
        let key = size_of::<(Arc<str>, CgroupId)>();
        self.last.len() * (2 * key + Readings::<CgroupRow>::BYTES)
    }

    /// Figures of the cgroups in this sample that were read before.
    pub fn push(&mut self, now: &Stamped<CgroupsSample>) -> Vec<CgroupFigures> {
        let at = now.span.mid();
        let mut out = Vec::new();
        for g in &now.data.groups {
            let past = self.last.entry((g.mount.clone(), g.id)).or_default();
            out.extend(past.push(at, g.clone(), figures));
        }
        if self.last.len() > 2 * now.data.groups.len() + 1024 {
            let fresh = |t: MonoNs| at.since(t) < Duration::from_secs(60);
            self.last.retain(|_, r| r.last_at().is_some_and(fresh));
        }
        out
    }
}

fn figures(p: &CgroupRow, n: &CgroupRow, dt: Duration) -> CgroupFigures {
    let psi = |a: Option<_>, b: Option<_>| psi_some(a?, b?, dt);
    CgroupFigures {
        id: n.id,
        path: n.path.clone(),
        mount: n.mount.clone(),
        dt,
        cpu: p.cpu.zip(n.cpu).and_then(|(p, n)| {
            let throttled_ns = grown(p.throttled_ns, n.throttled_ns)?;
            Some(CgroupCpuFigures {
                limit_cores: n.quota_us.and_then(|q| ratio(q as f64, n.period_us as f64)),
                quota_us: n.quota_us,
                period_us: n.period_us,
                weight: n.weight,
                periods: grown(p.nr_periods, n.nr_periods)?,
                throttled: grown(p.nr_throttled, n.nr_throttled)?,
                throttled_ms_s: per_second(throttled_ns as f64 / 1e6, dt)?,
                throttled_ns,
                usage_cores: p
                    .usage_ns
                    .zip(n.usage_ns)
                    .and_then(|(p, n)| per_second(grown(p, n)? as f64 / 1e9, dt)),
            })
        }),
        io: n
            .io
            .iter()
            .map(|io| {
                let old = p.io.iter().find(|o| o.dev == io.dev).copied().unwrap_or_default();
                let rate = |a: Option<u64>, b: Option<u64>| per_second(grown(a?, b?)? as f64, dt);
                CgroupIoFigures {
                    dev: io.dev,
                    rbps: rate(old.rbytes, io.rbytes),
                    wbps: rate(old.wbytes, io.wbytes),
                    riops: rate(old.rios, io.rios),
                    wiops: rate(old.wios, io.wios),
                    limits: *io,
                }
            })
            .collect(),
        psi_cpu: psi(p.psi_cpu, n.psi_cpu),
        psi_io: psi(p.psi_io, n.psi_io),
        psi_memory: psi(p.psi_memory, n.psi_memory),
        psi_memory_full: p.psi_memory.zip(n.psi_memory).and_then(|(p, n)| psi_full(p, n, dt)),
        memory_failures_s: p
            .memory_failures
            .zip(n.memory_failures)
            .and_then(|(p, n)| per_second(grown(p, n)? as f64, dt)),
        pids_refused_s: p
            .pids
            .zip(n.pids)
            .and_then(|(p, n)| per_second(grown(p.failures?, n.failures?)? as f64, dt)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::cgroups::CgroupCpu;
    use crate::sample::time::Span;

    /// Quota of 20% measured over 2 s: throttled 1571 ms in 20 of 20 periods.
    #[test]
    fn throttling_of_a_spinner_at_a_fifth_of_a_core() {
        let sample = |ms: u64, nr_periods, nr_throttled, throttled_ns, usage_ns| Stamped {
            span: Span::at(MonoNs(ms * 1_000_000)),
            cpu: Duration::ZERO,
            data: CgroupsSample {
                groups: vec![CgroupRow {
                    path: "/x".into(),
                    mount: "/sys/fs/cgroup/cpu".into(),
                    cpu: Some(CgroupCpu {
                        quota_us: Some(20_000),
                        period_us: 100_000,
                        weight: Some(1024),
                        nr_periods,
                        nr_throttled,
                        throttled_ns,
                        usage_ns: Some(usage_ns),
                    }),
                    ..Default::default()
                }],
                unread: 0,
            },
        };
        let mut t = CgroupTracker::default();
        assert!(t.push(&sample(0, 100, 10, 0, 0)).is_empty());
        let f = t.push(&sample(2000, 120, 30, 1_571_000_000, 400_000_000));
        let cpu = f[0].cpu.unwrap();
        assert_eq!(cpu.throttled_share(), Some(1.0));
        assert_eq!(cpu.limit_cores, Some(0.2));
        assert_eq!(cpu.usage_cores, Some(0.2));
        assert_eq!(cpu.throttled_ms_s, 785.5);
        assert!(t.push(&sample(4000, 1, 0, 0, 0))[0].cpu.is_none(), "a reset gives no figures");
    }
}
