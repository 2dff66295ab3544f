//! `/proc/stat`: CPU time by kind, context switches, runnable and blocked tasks.

use std::time::Duration;

use super::hot::HotFile;
use super::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::parse::{cpu_list, fields, lines, number, whole_lines};
use crate::sample::cpu::{CpuSample, CpuTimes};
use crate::sample::subject::CpuId;
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Signal};

/// How often the NUMA nodes and the isolated CPUs are read again.
const NODES_AGE: Duration = Duration::from_secs(60);
const STAT: &str = "proc/stat";

/// Reads it. See the module head.
pub struct CpuCollector {
    host: HostFs,
    stat: HotFile,
    user_hz: u32,
    nodes: Vec<(u32, Vec<CpuId>)>,
    isolated: Vec<CpuId>,
    nodes_at: Option<MonoNs>,
}

impl Collector for CpuCollector {
    type Sample = CpuSample;
    const ID: CollectorId = CollectorId::Cpu;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        let mut stat = HotFile::record(host, STAT);
        stat.read()
            .map_err(|e| Unavailable::because("/proc/stat", &e, "mount the host's /proc"))?;
        let live = rustix::param::clock_ticks_per_second() as u32;
        let user_hz = if host.is_live() { live } else { 100 };
        let host = host.clone();
        Ok(Self { host, stat, user_hz, nodes: vec![], isolated: vec![], nodes_at: None })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<CpuSample, CollectError> {
        if self.nodes_at.is_none_or(|t| cx.at.since(t) >= NODES_AGE) {
            self.nodes = read_nodes(&self.host);
            self.isolated = read_isolated(&self.host);
            self.nodes_at = Some(cx.at);
        }
        let file = self.stat.read().map_err(|e| CollectError::read(STAT, e))?;
        let mut sample = parse_stat(file).ok_or_else(|| CollectError::Format {
            path: STAT.into(),
            line: 1,
            what: "a line `cpu` with at least four times".into(),
        })?;
        sample.user_hz = self.user_hz;
        sample.nodes.clone_from(&self.nodes);
        sample.isolated.clone_from(&self.isolated);
        Ok(sample)
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        const SOURCE: &str = "/proc/stat";
        out.push(Signal::ok("CPU time", SOURCE));
        let why = "sampled at timer ticks, not per vector or interrupt";
        out.push(Signal::degraded("softirq time", SOURCE, why, ""));
        out.push(Signal::degraded("interrupt time", SOURCE, why, ""));
        // A kernel without NUMA has none, and needs none.
        if !self.nodes.is_empty() {
            out.push(Signal::ok("NUMA nodes", "sysfs"));
        }
    }
}

/// Parses `/proc/stat`; `None` without its `cpu` line. `user_hz`, `nodes` and
/// `isolated` are left empty.
#[must_use]
pub fn parse_stat(bytes: &[u8]) -> Option<CpuSample> {
    let mut out = CpuSample::default();
    let mut total = None;
    for line in lines(whole_lines(bytes)) {
        // The `intr` line is long: tell lines apart by their first bytes.
        if let Some(rest) = line.strip_prefix(b"cpu") {
            if rest.first().is_some_and(u8::is_ascii_whitespace) {
                total = parse_times(rest);
            } else if let Some(row) = parse_cpu(rest) {
                out.cpus.push(row);
            }
        } else if let Some(rest) = line.strip_prefix(b"ctxt ") {
            out.ctxt = number(rest.trim_ascii());
        } else if let Some(rest) = line.strip_prefix(b"procs_running ") {
            out.procs_running = small(rest);
        } else if let Some(rest) = line.strip_prefix(b"procs_blocked ") {
            out.procs_blocked = small(rest);
        }
    }
    out.cpus.sort_unstable_by_key(|c| c.0);
    out.cpus.dedup_by_key(|c| c.0);
    out.total = total?;
    Some(out)
}

fn small(field: &[u8]) -> Option<u32> {
    u32::try_from(number(field.trim_ascii())?).ok()
}

fn parse_cpu(rest: &[u8]) -> Option<(CpuId, CpuTimes)> {
    let digits = rest.iter().position(|b| !b.is_ascii_digit())?;
    let (id, times) = rest.split_at_checked(digits)?;
    Some((CpuId(small(id)?), parse_times(times)?))
}

/// Kernels before 2.6.33 print fewer kinds; those stay 0, as that time is then in `user`
/// or `system`.
fn parse_times(rest: &[u8]) -> Option<CpuTimes> {
    let mut v = [0u64; 10];
    let mut len = 0;
    for (slot, field) in v.iter_mut().zip(fields(rest)) {
        *slot = number(field)?;
        len += 1;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice] = v;
    (len >= 4).then_some(CpuTimes {
        user,
        nice,
        system,
        idle,
        iowait,
        irq,
        softirq,
        steal,
        guest,
        guest_nice,
    })
}

fn read_nodes(host: &HostFs) -> Vec<(u32, Vec<CpuId>)> {
    const DIR: &str = "sys/devices/system/node";
    let mut out: Vec<(u32, Vec<CpuId>)> = host
        .list(DIR)
        .unwrap_or_default()
        .iter()
        .filter_map(|name| {
            let id = small(name.strip_prefix("node")?.as_bytes())?;
            let list = host.read(format!("{DIR}/{name}/cpulist")).ok()?;
            Some((id, cpu_list(list.trim_ascii()).into_iter().map(CpuId).collect()))
        })
        .collect();
    out.sort_unstable();
    out
}

fn read_isolated(host: &HostFs) -> Vec<CpuId> {
    let list = host.read("sys/devices/system/cpu/isolated").unwrap_or_default();
    cpu_list(list.trim_ascii()).into_iter().map(CpuId).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sample::Interest;
    use proptest::prelude::*;

    const TEXT: &str = "cpu  100 2 30 4000 5 0 7 8 9 1\n\
        cpu0 60 1 10 2000 5 0 7 8 9 1\n\
        cpu3 40 1 20 2000 0 0 0 0 0 0\n\
        intr 5 0 0 5\nctxt 77\nbtime 1\nprocesses 9\nprocs_running 3\nprocs_blocked 1\n\
        softirq 1 2 3\n";

    #[test]
    fn rows_are_joined_by_cpu_number() {
        let s = parse_stat(TEXT.as_bytes()).unwrap();
        assert_eq!(s.cpus.iter().map(|c| c.0.0).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(s.cpus[1].1.system, 20);
        assert_eq!(s.total.user, s.cpus.iter().map(|c| c.1.user).sum::<u64>());
        assert_eq!((s.total.softirq, s.total.steal, s.total.guest_nice), (7, 8, 1));
        assert_eq!((s.ctxt, s.procs_running, s.procs_blocked), (Some(77), Some(3), Some(1)));
    }

    #[test]
    fn the_sum_of_the_cpus_is_the_total_in_the_captured_file() {
        let bytes = include_bytes!("../../tests/fixtures/6.18/proc/stat");
        let s = parse_stat(bytes).unwrap();
        assert_eq!(s.cpus.len(), 2);
        // Each line is rounded from ns on its own.
        let sum: u64 = s.cpus.iter().map(|c| c.1.idle).sum();
        assert!(s.total.idle.abs_diff(sum) <= 2, "{} {sum}", s.total.idle);
    }

    #[test]
    fn a_live_reading_has_all_online_cpus() {
        let host = HostFs::live();
        let mut c = CpuCollector::open(&host, &CollectOptions::default()).unwrap();
        let interest = Interest::default();
        let interval = Duration::from_secs(1);
        let cx = SampleContext { at: crate::clock::mono(), interval, interest: &interest };
        let s = c.sample(&cx).unwrap();
        let online = host.read("sys/devices/system/cpu/online").unwrap();
        let online: Vec<CpuId> = cpu_list(&online).into_iter().map(CpuId).collect();
        assert_eq!(s.cpus.iter().map(|c| c.0).collect::<Vec<_>>(), online);
        assert_eq!(s.user_hz, 100);
        assert!(s.ctxt.unwrap() > 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse_stat(&bytes);
        }

        #[test]
        fn a_truncated_file_gives_fewer_rows_and_no_other_values(cut in 0usize..200) {
            let whole = parse_stat(TEXT.as_bytes()).unwrap();
            let cut = cut.min(TEXT.len());
            if let Some(s) = parse_stat(&TEXT.as_bytes()[..cut]) {
                prop_assert_eq!(s.total, whole.total);
                prop_assert!(whole.cpus.starts_with(&s.cpus));
                prop_assert!(s.ctxt.is_none() || s.ctxt == whole.ctxt);
            }
        }
    }
}
