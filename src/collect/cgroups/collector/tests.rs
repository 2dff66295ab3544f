//! The collector over built v1 and v2 trees, and over the live v1 hierarchies.

use super::*;
use crate::collect::testing::fixtures;
use crate::sample::subject::DiskId;
use crate::sample::{Interest, SignalStatus};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> HostFs {
    HostFs::at(fixtures().join(name))
}

fn open(host: &HostFs) -> CgroupsCollector {
    CgroupsCollector::open(host, &CollectOptions::default()).unwrap()
}

fn sample(c: &mut CgroupsCollector, secs: u64) -> CgroupsSample {
    try_sample(c, secs).unwrap()
}

fn try_sample(c: &mut CgroupsCollector, secs: u64) -> Result<CgroupsSample, CollectError> {
    let interest = Interest::default();
    let at = MonoNs(secs * 1_000_000_000);
    c.sample(&SampleContext { at, interval: Duration::from_secs(1), interest: &interest })
}

fn group<'a>(s: &'a CgroupsSample, mount: &str, path: &str) -> &'a CgroupRow {
    let found = s.groups.iter().find(|g| g.mount.ends_with(mount) && &*g.path == path);
    found.unwrap_or_else(|| panic!("no {mount}:{path} in {:?}", paths(s)))
}

fn paths(s: &CgroupsSample) -> Vec<String> {
    s.groups.iter().map(|g| format!("{}:{}", g.mount, g.path)).collect()
}

#[test]
fn v2_limits_and_counters_are_joined() {
    let mut c = open(&fixture("cgroup2"));
    let s = sample(&mut c, 0);
    let db = group(&s, "/sys/fs/cgroup", "/system.slice/db.service");
    let cpu = db.cpu.unwrap();
    assert_eq!((cpu.quota_us, cpu.period_us), (Some(20_000), 100_000));
    assert_eq!((cpu.nr_periods, cpu.nr_throttled), (20, 19));
    assert_eq!((cpu.throttled_ns, cpu.usage_ns), (1_571_000_000, Some(400_000_000)));
    assert_eq!(db.io.len(), 2);
    let limited = db.io.iter().find(|i| i.max_wiops.is_some()).unwrap();
    assert_eq!(limited.dev, DiskId { major: 8, minor: 16 });
    assert_eq!((limited.max_wiops, limited.max_rbps), (Some(500), None));
    // Limited, but without I/O so far: counted as none.
    assert_eq!((limited.wios, limited.rbytes), (Some(0), Some(0)));
    assert_eq!(db.memory_limit_bytes, Some(1 << 30));
    assert_eq!(db.psi_io.unwrap().some_us, 2_540_000);
    // No cpu controller below user.slice: no bandwidth counters, not zero ones.
    let user = group(&s, "/sys/fs/cgroup", "/user.slice");
    assert_eq!((user.cpu, user.memory_limit_bytes), (None, None));
    assert_eq!(user.memory_bytes, Some(4096));
    // The root is not shown.
    assert!(paths(&s).iter().all(|p| !p.ends_with(":/")));
}

#[test]
fn limited_groups_come_every_tick_and_the_others_when_due() {
    let mut c = open(&fixture("cgroup2"));
    let first = sample(&mut c, 0);
    assert_eq!(first.groups.len(), 3);
    assert_eq!(paths(&sample(&mut c, 1)), ["/sys/fs/cgroup:/system.slice/db.service"]);
    let later = sample(&mut c, 5);
    assert_eq!(later.groups.len(), 3);
    assert_eq!(later.unread, 0);
    let mut signals = Vec::new();
    c.signals(&mut signals);
    assert!(signals.contains(&Signal::ok("cgroup I/O", "cgroup2")));
}

#[test]
fn signals_name_the_hierarchy_that_has_the_controller() {
    let signals = |host: &HostFs| {
        let mut out = Vec::new();
        open(host).signals(&mut out);
        out
    };
    assert!(signals(&fixture("cgroup1")).contains(&Signal::ok("cgroup CPU", "cgroup")));
    // What a hybrid host leaves to the unified hierarchy.
    let dir = v2_root();
    put(dir.path(), "cgroup.controllers", "hugetlb\n");
    let left = signals(&HostFs::at(dir.path()));
    assert!(left.iter().all(|s| matches!(s.status, SignalStatus::Missing { .. })), "{left:?}");
}

#[test]
fn v1_usage_comes_from_the_cpuacct_hierarchy() {
    let s = sample(&mut open(&fixture("cgroup1")), 0);
    let cpu = group(&s, "/cpu", "/app").cpu.unwrap();
    assert_eq!((cpu.quota_us, cpu.period_us), (Some(20_000), 100_000));
    assert_eq!((cpu.throttled_ns, cpu.usage_ns), (1_571_000_000, Some(412_345_678)));
    let unlimited = group(&s, "/cpu", "/app/child").cpu.unwrap();
    assert_eq!((unlimited.quota_us, unlimited.usage_ns), (None, None));
    let io = &group(&s, "/blkio", "/app").io;
    assert_eq!(io.len(), 1);
    assert_eq!((io[0].rios, io[0].wbytes, io[0].max_wiops), (Some(2), Some(12_288), Some(500)));
    let memory = group(&s, "/memory", "/app");
    assert_eq!((memory.memory_bytes, memory.memory_limit_bytes), (Some(8192), Some(512 << 20)));
}

fn put(root: &Path, rel: &str, text: &str) {
    let path = root.join("sys/fs/cgroup").join(rel);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn v2_root() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
    let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    std::fs::write(dir.path().join("proc/self/mountinfo"), mounts).unwrap();
    put(dir.path(), "cgroup.procs", "");
    dir
}

/// As `ip netns exec` leaves it: nothing mounted here, process 1 out of reach, and the shell that
/// typed it sees all.
#[test]
fn hidden_hierarchies_are_found_through_an_ancestor() {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("proc/self/mountinfo", "30 23 0:26 / /sys rw - sysfs sysfs rw\n");
    write("proc/self/stat", "70 (stall (scope) S 60 70 60\n");
    write("proc/1/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    write("proc/60/stat", "60 (ip) S 50 60 50\n");
    write("proc/50/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    write("proc/50/root/sys/fs/cgroup/a/memory.current", "1\n");
    let mut c = open(&HostFs::at(dir.path()));
    assert_eq!(paths(&sample(&mut c, 0)), ["/proc/50/root/sys/fs/cgroup:/a"]);
    // The shell ends, and whoever started it is our parent.
    std::fs::remove_dir_all(dir.path().join("proc/50")).unwrap();
    assert!(try_sample(&mut c, 1).is_err(), "no all-clear of cgroups that are out of sight");
    write("proc/self/stat", "70 (stall (scope) S 40 70 40\n");
    write("proc/40/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    write("proc/40/root/sys/fs/cgroup/a/memory.current", "1\n");
    assert_eq!(paths(&sample(&mut c, 2)), ["/proc/40/root/sys/fs/cgroup:/a"]);
}

#[test]
fn groups_appear_move_and_go() {
    let dir = v2_root();
    put(dir.path(), "a/memory.current", "1\n");
    let mut c = open(&HostFs::at(dir.path()));
    assert_eq!(paths(&sample(&mut c, 0)), ["/sys/fs/cgroup:/a"]);
    // One goes and another comes: the parent has as many links as before.
    std::fs::remove_dir_all(dir.path().join("sys/fs/cgroup/a")).unwrap();
    put(dir.path(), "b/memory.current", "1\n");
    put(dir.path(), "b/c/memory.current", "1\n");
    let mut seen = Vec::new();
    for t in [5, 10, 15] {
        seen = paths(&sample(&mut c, t));
    }
    seen.sort();
    assert_eq!(seen, ["/sys/fs/cgroup:/b", "/sys/fs/cgroup:/b/c"]);
    assert_eq!(c.known.len(), 3);
    // A limit is noticed when the group is checked again, and then read each tick.
    put(dir.path(), "b/io.max", "8:0 rbps=max wbps=1000 riops=max wiops=max\n");
    sample(&mut c, 20);
    let s = sample(&mut c, 21);
    assert_eq!(paths(&s), ["/sys/fs/cgroup:/b"]);
    assert_eq!(s.groups[0].io[0].max_wbps, Some(1000));
    // io.stat is not there: the rate is unknown.
    assert_eq!(s.groups[0].io[0].wbytes, None);
}

/// What somebody types in the middle of an incident is read in the next tick, five seconds before
/// the group's turn comes.
#[test]
fn a_limit_that_is_set_and_a_group_that_is_made_are_read_at_once() {
    let dir = v2_root();
    put(dir.path(), "a/memory.current", "1\n");
    put(dir.path(), "b/memory.current", "1\n");
    let mut c = open(&HostFs::at(dir.path()));
    sample(&mut c, 0);
    assert!(sample(&mut c, 1).groups.is_empty(), "not their turn");
    put(dir.path(), "a/cpu.max", "10000 100000\n");
    put(dir.path(), "a/cpu.stat", "usage_usec 1\nnr_periods 1\nnr_throttled 1\nthrottled_usec 9\n");
    let s = sample(&mut c, 2);
    assert_eq!(paths(&s), ["/sys/fs/cgroup:/a"]);
    assert_eq!(s.groups[0].cpu.unwrap().quota_us, Some(10_000));
    put(dir.path(), "b/new/memory.current", "1\n");
    assert!(paths(&sample(&mut c, 3)).contains(&"/sys/fs/cgroup:/b/new".to_owned()));
}

#[test]
fn a_wide_tree_is_read_in_turn_and_the_rest_is_counted() {
    let dir = v2_root();
    for i in 0..300 {
        put(dir.path(), &format!("g{i}/memory.current"), "1\n");
    }
    let mut c = open(&HostFs::at(dir.path()));
    let mut seen = std::collections::BTreeSet::new();
    for t in 0..400 {
        // An interval of zero leaves the least budget.
        let interest = Interest::default();
        let at = MonoNs(t * 1_000_000);
        let cx = SampleContext { at, interval: Duration::ZERO, interest: &interest };
        let s = c.sample(&cx).unwrap();
        seen.extend(paths(&s));
        if s.unread == 0 {
            break;
        }
        assert!(s.groups.len() >= MIN_READS - 1);
    }
    assert_eq!(seen.len(), 300);
}

/// Measured on 6.18: a limit of 500 on a group while a group below it did 7836 writes/s: its own
/// file stood still, the recursive one grew by 7836/s. A limit of v1 holds for the group alone.
#[test]
fn a_v1_limit_is_compared_with_what_it_holds_for() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
    let mounts = "30 23 0:26 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n";
    std::fs::write(dir.path().join("proc/self/mountinfo"), mounts).unwrap();
    let of_group = |name: &str, text: &str| {
        put(dir.path(), &format!("blkio/app/blkio.throttle.{name}"), text);
    };
    of_group("write_iops_device", "7:2 500\n");
    of_group("io_serviced", "7:2 Read 0\n7:2 Write 1\nTotal 1\n");
    of_group("io_service_bytes", "7:2 Read 0\n7:2 Write 4096\nTotal 4096\n");
    of_group("io_serviced_recursive", "7:2 Write 7836\nTotal 7836\n");
    of_group("io_service_bytes_recursive", "7:2 Write 32096256\nTotal 32096256\n");
    let s = sample(&mut open(&HostFs::at(dir.path())), 0);
    let io = group(&s, "/blkio", "/app").io[0];
    assert_eq!((io.max_wiops, io.wios, io.wbytes), (Some(500), Some(1), Some(4096)));
}

/// Needs root and the v1 blkio and cpu hierarchies; does nothing without.
#[test]
fn live_v1_groups_show_their_limits() {
    let host = HostFs::live();
    let Ok(mut c) = CgroupsCollector::open(&host, &CollectOptions::default()) else {
        return crate::collect::testing::skip("no cgroups here");
    };
    let name = format!("stallscope-test-{}", std::process::id());
    let dir = PathBuf::from("/sys/fs/cgroup/cpu").join(&name);
    let made = std::fs::create_dir(&dir)
        .and_then(|()| std::fs::write(dir.join("cpu.cfs_quota_us"), "20000"));
    if made.is_ok() {
        let s = sample(&mut c, 0);
        let again = sample(&mut c, 1);
        std::fs::remove_dir(&dir).unwrap();
        let path = format!("/{name}");
        let cpu = group(&s, "/cpu", &path).cpu.unwrap();
        assert_eq!((cpu.quota_us, cpu.period_us), (Some(20_000), 100_000));
        assert!(cpu.nr_periods <= group(&again, "/cpu", &path).cpu.unwrap().nr_periods);
        let gone = paths(&sample(&mut c, 2));
        assert!(gone.iter().all(|p| !p.ends_with(&name)), "{gone:?}");
        assert_eq!(c.open_groups, c.limited.iter().filter(|g| !g.open.is_empty()).count());
    } else {
        let _ = std::fs::remove_dir(&dir);
    }
}
