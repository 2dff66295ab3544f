//! `/proc/loadavg`, `/proc/schedstat`, and two lines of a thread's files.

use procfs_core::{FromRead as _, LoadAverage};

use crate::parse::{fields, limiting_cgroup, lines, number, whole_lines};
use crate::sample::sched::CpuSchedstat;
use crate::sample::subject::CpuId;

/// Load over 1, 5 and 15 minutes, and runnable and existing tasks.
pub type Load = ([f64; 3], (u32, u32));

/// Parses `/proc/loadavg`.
#[must_use]
pub fn parse_loadavg(bytes: &[u8]) -> Option<Load> {
    let l = LoadAverage::from_read(whole_lines(bytes)).ok()?;
    // The kernel prints hundredths and the crate keeps an f32, which tells them apart up to 131072.
    let loads = [l.one, l.five, l.fifteen].map(|n| (f64::from(n) * 100.0).round() / 100.0);
    loads.iter().all(|n| n.is_finite() && *n >= 0.0).then_some((loads, (l.cur, l.max)))
}

/// The `cpuN` lines of `/proc/schedstat`, version 15 and later.
#[must_use]
pub fn parse_schedstat_cpus(bytes: &[u8]) -> Vec<CpuSchedstat> {
    lines(whole_lines(bytes)).filter_map(cpu_line).collect()
}

fn cpu_line(line: &[u8]) -> Option<CpuSchedstat> {
    let mut f = fields(line.strip_prefix(b"cpu")?).map(number);
    let cpu = CpuId(u32::try_from(f.next()??).ok()?);
    let mut f = f.skip(6);
    Some(CpuSchedstat { cpu, run_ns: f.next()??, run_delay_ns: f.next()??, slices: f.next()?? })
}

/// `Cpus_allowed_list` of a status file, as the kernel prints it.
#[must_use]
pub fn parse_cpus_allowed(status: &[u8]) -> Option<String> {
    let value = lines(whole_lines(status)).find_map(|l| l.strip_prefix(b"Cpus_allowed_list:"))?;
    Some(String::from_utf8_lossy(value.trim_ascii()).into_owned())
}

/// Path of a task in the hierarchy that limits its CPU: the v1 cpu controller, else the
/// unified one.
#[must_use]
pub fn parse_task_cgroup(cgroup: &[u8]) -> Option<String> {
    limiting_cgroup(cgroup, "cpu")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn loadavg_gives_loads_and_tasks() {
        let l = parse_loadavg(b"0.00 0.03 12.34 1/83 6902\n").unwrap();
        assert_eq!(l, ([0.0, 0.03, 12.34], (1, 83)));
        assert_eq!(parse_loadavg(b"nan 0 0 1/2 3\n"), None);
        assert_eq!(parse_loadavg(b"0 -1 0 1/2 3\n"), None);
        assert_eq!(parse_loadavg(b"0 0 0 1/2 3"), None);
    }

    #[test]
    fn cpu_lines_of_schedstat_have_their_times_in_seven_to_nine() {
        let text = b"version 15\ntimestamp 4295\ncpu0 1 2 3 4 5 6 7 8 9\n\
            domain0 03 1 2 3\ncpu12 0 0 0 0 0 0 70 80 90\ncpu3 1 2\n";
        let row = |cpu, run_ns, run_delay_ns, slices| CpuSchedstat {
            cpu: CpuId(cpu),
            run_ns,
            run_delay_ns,
            slices,
        };
        assert_eq!(parse_schedstat_cpus(text), [row(0, 7, 8, 9), row(12, 70, 80, 90)]);
    }

    #[test]
    fn the_cpu_controller_wins_over_the_unified_hierarchy() {
        let hybrid = b"4:memory:/m\n2:cpuset:/set\n3:cpu,cpuacct:/a:b\n0::/unified\n";
        assert_eq!(parse_task_cgroup(hybrid).as_deref(), Some("/a:b"));
        assert_eq!(parse_task_cgroup(b"0::/u\n").as_deref(), Some("/u"));
        // Only cpuset and cpuacct: these limit no CPU time.
        assert_eq!(parse_task_cgroup(b"2:cpuset:/s\n1:cpuacct:/a\n"), None);
    }

    #[test]
    fn the_allowed_cpus_are_taken_as_printed() {
        let text =
            b"Name:\tx\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1,5\nMems_allowed_list:\t0\n";
        assert_eq!(parse_cpus_allowed(text).as_deref(), Some("0-1,5"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_loadavg(&bytes);
            let _ = parse_schedstat_cpus(&bytes);
            let _ = parse_cpus_allowed(&bytes);
            let _ = parse_task_cgroup(&bytes);
        }

        #[test]
        fn a_load_is_what_the_kernel_printed(load in 0u32..13_107_200) {
            let printed = format!("{}.{:02}", load / 100, load % 100);
            let (loads, _) = parse_loadavg(format!("0.00 {printed} 0.00 1/2 3\n").as_bytes()).unwrap();
            prop_assert_eq!(loads[1], printed.parse::<f64>().unwrap());
        }

        #[test]
        fn truncation_shortens(cut in 0usize..60) {
            let text = b"cpu0 1 2 3 4 5 6 7 8 90\ncpu1 1 2 3 4 5 6 7 8 90\n";
            let part = parse_schedstat_cpus(&text[..cut.min(text.len())]);
            prop_assert!(parse_schedstat_cpus(text).starts_with(&part));
        }
    }
}
