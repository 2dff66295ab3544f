//! Reads the control files of one group.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::mounts::Hierarchy;
use super::parse::{self, V1Counters};
use crate::collect::HostFs;
use crate::collect::hot::read_record;
use crate::collect::psi::parse_pressure;
use crate::sample::cgroups::{CgroupCpu, CgroupIo};
use crate::sample::psi::PsiTotals;

/// Limits, which change rarely.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Limits {
    /// Quota and period, us. `None`: no cpu controller here.
    pub cpu: Option<(Option<u64>, u64)>,
    pub weight: Option<u64>,
    pub io: Vec<CgroupIo>,
    pub memory: Option<u64>,
    pub memory_high: Option<u64>,
    pub pids: Option<u64>,
}

impl Limits {
    /// Worth a reading in every tick.
    pub(super) fn matter(&self) -> bool {
        self.cpu.is_some_and(|(quota, _)| quota.is_some()) || !self.io.is_empty()
    }
}

/// Counters with their limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Contents {
    pub cpu: Option<CgroupCpu>,
    pub io: Vec<CgroupIo>,
    pub memory: Option<u64>,
    pub oom_kills: Option<u64>,
    pub memory_failures: Option<u64>,
    pub pids: Option<u64>,
    pub pids_failures: Option<u64>,
    pub psi: [Option<PsiTotals>; 3],
}

/// The open files of a group that is read in every tick; `None` for one that is absent.
pub(super) type OpenFiles = Vec<(&'static str, Option<File>)>;

/// Reads files of one group.
pub(super) struct Reader<'a> {
    pub host: &'a HostFs,
    pub hierarchy: &'a Hierarchy,
    /// Directory of the group below the host root.
    pub dir: PathBuf,
    /// Where the cpuacct controller counts this group's CPU time, when that is elsewhere.
    pub cpuacct_dir: Option<PathBuf>,
    pub buf: &'a mut Vec<u8>,
    /// Descriptors to keep; without, each file is opened and closed.
    pub open: Option<&'a mut OpenFiles>,
    /// Files that could be read.
    pub files: u32,
}

impl Reader<'_> {
    fn file(&mut self, name: &'static str) -> Option<&[u8]> {
        let path = self.host.path(self.dir.join(name));
        self.read(name, &path)
    }

    fn read(&mut self, name: &'static str, path: &Path) -> Option<&[u8]> {
        self.buf.clear();
        match self.open.as_deref_mut() {
            None => read_record(&File::open(path).ok()?, self.buf).ok()?,
            Some(open) => {
                let at = open.iter().position(|(n, _)| *n == name).unwrap_or_else(|| {
                    open.push((name, File::open(path).ok()));
                    open.len() - 1
                });
                read_record(open.get(at)?.1.as_ref()?, self.buf).ok()?;
            }
        }
        self.files += 1;
        Some(self.buf)
    }

    pub(super) fn limits(&mut self) -> Limits {
        if self.hierarchy.v2 {
            let mut io = self.file("io.max").map(parse::parse_io_max).unwrap_or_default();
            if let Some(text) = self.file("io.latency") {
                parse::parse_io_latency(text, &mut io);
            }
            if let Some(text) = self.file("io.cost.qos") {
                parse::parse_io_cost(text, &mut io);
            }
            return Limits {
                cpu: self.file("cpu.max").and_then(parse::parse_cpu_max),
                weight: self.file("cpu.weight").and_then(parse::parse_memory),
                io,
                memory: self.file("memory.max").and_then(parse::parse_memory),
                memory_high: self.file("memory.high").and_then(parse::parse_memory),
                pids: self.file("pids.max").and_then(parse::parse_memory),
            };
        }
        let mut out = Limits::default();
        let v1 = self.hierarchy.v1;
        if v1.cpu {
            let period = self.file("cpu.cfs_period_us").and_then(parse::parse_memory);
            // -1 is no number: no limit.
            let quota = self.file("cpu.cfs_quota_us").and_then(parse::parse_memory);
            out.cpu = period.map(|p| (quota, p));
            out.weight = self.file("cpu.shares").and_then(parse::parse_memory);
        }
        if v1.blkio {
            type Set = fn(&mut CgroupIo, u64);
            let kinds: [(&'static str, Set); 4] = [
                ("blkio.throttle.read_bps_device", |r, n| r.max_rbps = Some(n)),
                ("blkio.throttle.write_bps_device", |r, n| r.max_wbps = Some(n)),
                ("blkio.throttle.read_iops_device", |r, n| r.max_riops = Some(n)),
                ("blkio.throttle.write_iops_device", |r, n| r.max_wiops = Some(n)),
            ];
            for (name, set) in kinds {
                if let Some(text) = self.file(name) {
                    parse::parse_v1_limits(text, &mut out.io, set);
                }
            }
        }
        if v1.memory {
            out.memory = self.file("memory.limit_in_bytes").and_then(parse::parse_memory);
        }
        if v1.pids {
            out.pids = self.file("pids.max").and_then(parse::parse_memory);
        }
        out
    }

    pub(super) fn contents(&mut self, limits: &Limits) -> Contents {
        if self.hierarchy.v2 { self.contents_v2(limits) } else { self.contents_v1(limits) }
    }

    fn contents_v2(&mut self, limits: &Limits) -> Contents {
        let cpu = self.file("cpu.stat").map(parse::parse_cpu_stat);
        let io = self.file("io.stat").map(parse::parse_io_stat);
        let memory = self.file("memory.current").and_then(parse::parse_memory);
        let (mut oom_kills, mut memory_failures) = (None, None);
        if memory.is_some()
            && let Some(text) = self.file("memory.events")
        {
            oom_kills = parse::parse_event(text, b"oom_kill");
            let of = |name: &[u8]| parse::parse_event(text, name);
            memory_failures = of(b"max").zip(of(b"high")).map(|(a, b)| a.saturating_add(b));
        }
        let (pids, pids_failures) = self.pids(limits);
        let psi = ["cpu.pressure", "io.pressure", "memory.pressure"]
            .map(|name| self.file(name).and_then(parse_pressure));
        Contents {
            cpu: join_cpu(cpu, limits),
            io: join_io(io, limits),
            memory,
            oom_kills,
            memory_failures,
            pids,
            pids_failures,
            psi,
        }
    }

    /// Tasks, and how often one more was refused: of groups with a limit.
    fn pids(&mut self, limits: &Limits) -> (Option<u64>, Option<u64>) {
        if limits.pids.is_none() {
            return (None, None);
        }
        let now = self.file("pids.current").and_then(parse::parse_memory);
        (now, self.file("pids.events").and_then(|t| parse::parse_event(t, b"max")))
    }

    fn contents_v1(&mut self, limits: &Limits) -> Contents {
        let v1 = self.hierarchy.v1;
        let mut out = Contents::default();
        if v1.cpu {
            let mut stat = self.file("cpu.stat").map(parse::parse_cpu_stat);
            let usage = match &self.cpuacct_dir {
                Some(dir) => {
                    let path = self.host.path(dir.join("cpuacct.usage"));
                    self.read("cpuacct.usage", &path).and_then(parse::parse_memory)
                }
                None if v1.cpuacct => self.file("cpuacct.usage").and_then(parse::parse_memory),
                None => None,
            };
            if let Some(s) = &mut stat {
                s.usage_ns = usage;
            }
            out.cpu = join_cpu(stat, limits);
        }
        if v1.blkio {
            let mut rows = Vec::new();
            let mut counted = false;
            // Not the recursive files: in v1 a limit holds for the tasks of this very group, and
            // what the groups below do passes it by.
            for (name, what) in [
                ("blkio.throttle.io_serviced", V1Counters::Ios),
                ("blkio.throttle.io_service_bytes", V1Counters::Bytes),
            ] {
                if let Some(text) = self.file(name) {
                    parse::parse_v1_io(text, what, &mut rows);
                    counted = true;
                }
            }
            out.io = join_io(counted.then_some(rows), limits);
        }
        if v1.memory {
            out.memory = self.file("memory.usage_in_bytes").and_then(parse::parse_memory);
            let plain = self.file("memory.failcnt").and_then(parse::parse_memory);
            // With swap in the account: a limit of its own, which the group may meet first.
            let all = self.file("memory.memsw.failcnt").and_then(parse::parse_memory);
            out.memory_failures = plain.map(|n| n.saturating_add(all.unwrap_or(0)));
            let control = self.file("memory.oom_control");
            out.oom_kills = control.and_then(|t| parse::parse_event(t, b"oom_kill"));
        }
        if v1.pids {
            (out.pids, out.pids_failures) = self.pids(limits);
        }
        out
    }
}

/// Counters of bandwidth control exist only where the cpu controller is on.
fn join_cpu(stat: Option<parse::CpuStat>, limits: &Limits) -> Option<CgroupCpu> {
    let (stat, (quota_us, period_us)) = (stat?, limits.cpu?);
    Some(CgroupCpu {
        quota_us,
        period_us,
        weight: limits.weight,
        nr_periods: stat.nr_periods?,
        nr_throttled: stat.nr_throttled?,
        throttled_ns: stat.throttled_ns?,
        usage_ns: stat.usage_ns,
    })
}

/// A device with a limit and no counters has done no I/O yet: its counters are 0, not unknown.
fn join_io(counters: Option<Vec<CgroupIo>>, limits: &Limits) -> Vec<CgroupIo> {
    let counted = counters.is_some();
    let mut rows = counters.unwrap_or_default();
    for limit in &limits.io {
        let known = rows.iter().any(|r| r.dev == limit.dev);
        let Some(row) = parse::row_of(&mut rows, limit.dev) else { break };
        if counted && !known {
            (row.rbytes, row.wbytes, row.rios, row.wios) = (Some(0), Some(0), Some(0), Some(0));
        }
        row.max_rbps = limit.max_rbps;
        row.max_wbps = limit.max_wbps;
        row.max_riops = limit.max_riops;
        row.max_wiops = limit.max_wiops;
        row.latency_us = limit.latency_us;
        row.iocost = limit.iocost;
    }
    rows
}
