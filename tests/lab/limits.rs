//! Limits: memory of a cgroup, open files, tasks.

use crate::kit::block::Dir;
use crate::kit::cgroup::Cgroup;
use crate::kit::gate::{Place, beside};
use crate::kit::product::{Found, check};
use crate::kit::sh::{Held, run};
use crate::kit::{secs, wait_for};

fn about(group: &Cgroup) -> impl Fn(Found<'_>) -> bool + use<'_> {
    let path = format!("/{}", group.name);
    move |f| f.kind() == "cgroup" && f.subject()["path"].as_str() == Some(&path)
}

/// The number after `key` in a file of `key value` lines.
fn number(file: &str, key: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().find_map(|l| l.strip_prefix(key)?.trim().parse().ok()).unwrap()
}

/// us with a task stalled for I/O.
fn io_some() -> u64 {
    let text = std::fs::read_to_string("/proc/pressure/io").unwrap();
    text.lines().next().unwrap().rsplit_once('=').unwrap().1.parse().unwrap()
}

/// A process that never stops to allocate, in a group of 50 MB: killed, and started again.
#[test]
fn a_process_that_is_killed_at_its_limit() {
    beside(Place::Anywhere, &["tail", "setpriv"], || {
        let group = Cgroup::new("memory", "oom");
        group.set("memory.limit_in_bytes", "50M");
        let eat = group.enter_and("tail /dev/zero");
        let line = format!("while :; do sh -c '{eat}' 2>/dev/null; sleep 0.3; done");
        let mut load = Held::start(&["sh", "-c", &line]);
        let kills = || group.stat("memory.oom_control", "oom_kill ").unwrap();
        wait_for("a kill", secs(20), || (kills() > 0).then_some(()));
        let (before, of_host) = (kills(), number("/proc/vmstat", "oom_kill "));
        let report = check("oom-kill", "9s", &[]);
        let (after, host_after) = (kills(), number("/proc/vmstat", "oom_kill "));
        load.assert_running();
        report.exactly(about(&group), &["oom-kill"], &["cgroup-mem-stall"]);
        let f = report.the("oom-kill", about(&group));
        let (own, all) = (f.number("cgroup oom_kill"), f.number("oom_kill"));
        assert!(own >= 1.0 && own <= (after - before) as f64, "{own}, {before} to {after}");
        assert!(all >= own && all <= (host_after - of_host) as f64, "{all}");
        assert!(f.text().contains("52.4 MB"), "the limit is named: {}", f.text());
        assert!(f.text().contains("kernel log: tail/"), "the victim is named: {}", f.text());
        f.is_mostly_by("tail");
    });
}

/// A file of 200 MiB read in a loop in a group of 64 MiB: every page is read from disk again and
/// again, and memory pressure stays low.
#[test]
fn a_file_larger_than_the_limit() {
    beside(Place::Disk, &["dd", "cat", "setpriv"], || {
        let dir = Dir::new();
        let file = dir.path.join("big").display().to_string();
        // Past the page cache: what others have read counts as theirs.
        run(&["dd", "if=/dev/zero", &format!("of={file}"), "bs=1M", "count=200", "oflag=direct"]);
        let group = Cgroup::new("memory", "thrash");
        group.set("memory.limit_in_bytes", "64M");
        let read = group.enter_and(&format!("sh -c 'while :; do cat {file} > /dev/null; done'"));
        let mut load = Held::start(&["sh", "-c", &read]);
        let refaults = || number("/proc/vmstat", "workingset_refault_file ");
        let mut before = (refaults(), io_some(), stallscope::clock::mono());
        wait_for("refaults, and tasks that wait for I/O", secs(30), || {
            let now = (refaults(), io_some(), stallscope::clock::mono());
            let s = now.2.since(before.2).as_secs_f64();
            if s < 1.0 {
                return None;
            }
            let rates = ((now.0 - before.0) as f64 / s, (now.1 - before.1) as f64 / s);
            before = now;
            (rates.0 >= 1000.0 && rates.1 >= 200_000.0).then_some(())
        });
        let report = check("cgroup-mem-stall", "14s", &[]);
        load.assert_running();
        report.exactly(about(&group), &["cgroup-mem-stall"], &[]);
        // The host has memory, and hardly waits for it.
        report.exactly(|f| f.kind() == "host" && f.rule() == "mem-stall", &[], &[]);
    });
}

/// A shell that has all its descriptors open.
#[test]
fn a_process_without_descriptors() {
    beside(Place::Anywhere, &["bash", "setpriv"], || {
        let script = "ulimit -Sn 64; i=3; while eval \"exec $i</dev/null\" 2>/dev/null; do \
            i=$((i+1)); done; kill -STOP $$";
        let mut shell = Held::start(&["bash", "-c", script]);
        let open = || std::fs::read_dir(format!("/proc/{}/fd", shell.pid())).unwrap().count();
        let n = wait_for("most of 64 descriptors", secs(10), || Some(open()).filter(|n| *n >= 62));
        let pid = shell.pid();
        let is_it = |f: Found<'_>| f.subject()["pid"].as_u64() == Some(u64::from(pid));
        let report = check("fd-limit", "8s", &[]);
        shell.assert_running();
        report.exactly(|f| is_it(f) && f.rule() == "fd-limit", &["fd-limit"], &[]);
        let used = report.the("fd-limit", is_it).number("open files");
        assert!((used - 100.0 * n as f64 / 64.0).abs() < 2.0, "{used}% for {n} of 64");
    });
}

/// A group of 20 tasks, one of which tries to start another.
#[test]
fn a_cgroup_that_may_start_no_more_tasks() {
    beside(Place::Anywhere, &["perl", "setpriv"], || {
        let group = Cgroup::new("pids", "full");
        group.set("pids.max", "20");
        let script = "for (1..19) { my $p = fork; if (defined $p && !$p) { sleep 600; exit } } \
            while (1) { my $p = fork; exit if defined $p && !$p; select undef, undef, undef, 0.2 }";
        let line = group.enter_and(&format!("perl -e '{script}'"));
        let mut load = Held::start(&["sh", "-c", &line]);
        let refused = || group.stat("pids.events", "max ").unwrap_or(0);
        wait_for("a fork that fails", secs(10), || (refused() > 0).then_some(()));
        let report = check("task-limit", "8s", &[]);
        load.assert_running();
        report.exactly(about(&group), &["task-limit"], &[]);
        let f = report.the("task-limit", about(&group));
        assert_eq!((f.severity(), f.number("pids.current")), ("crit", 100.0));
        // It has 19 children.
        f.is_by(load.pid());
    });
}
