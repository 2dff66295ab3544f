//! Rounds over built and live process trees.

use super::*;
use std::path::Path;

const SECOND: Duration = Duration::from_secs(1);
const AMPLE: Duration = Duration::from_secs(5);

fn at(secs: u64) -> MonoNs {
    MonoNs(0) + SECOND * secs as u32
}

fn put(root: &Path, pid: u32, tid: u32, comm: &str, state: char, sched: &str, threads: u32) {
    let dir = root.join(format!("proc/{pid}/task/{tid}"));
    std::fs::create_dir_all(&dir).unwrap();
    let zeros = |n| vec!["0"; n].join(" ");
    // ppid to priority, nice 5, threads, itrealvalue, start, up to processor 3, rt, policy.
    let stat = format!(
        "{tid} ({comm}) {state} {} 5 {threads} 0 {} {} 3 0 0 {}\n",
        zeros(15),
        1000 + tid,
        zeros(16),
        zeros(11)
    );
    std::fs::write(dir.join("stat"), stat).unwrap();
    std::fs::write(dir.join("schedstat"), format!("{sched}\n")).unwrap();
}

fn run(scan: &mut ThreadScan, t: u64, budget: Duration) -> (Vec<u32>, Round) {
    let mut seen = Vec::new();
    let round = scan.round(at(t), budget, None, |th| seen.push(th.task.tid)).unwrap();
    seen.sort_unstable();
    (seen, round)
}

#[test]
fn all_threads_are_found_and_each_is_read_once_a_round() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), 10, 10, "main", 'S', "1 1 1", 3);
    put(dir.path(), 10, 11, "w) R 1", 'S', "1 1 1", 3);
    put(dir.path(), 10, 12, "w", 'D', "1 1 1", 3);
    put(dir.path(), 20, 20, "x", 'S', "1 1 1", 1);
    let mut scan = ThreadScan::new(&HostFs::at(dir.path()), 64);
    // The first round meets the processes, the next ones their threads.
    assert_eq!(run(&mut scan, 0, AMPLE).0, [10, 20]);
    for t in 1..20 {
        let (seen, round) = run(&mut scan, t, AMPLE);
        assert_eq!(seen, [10, 11, 12, 20], "round {t}");
        assert_eq!(round, Round { processes: 2, unread: 0, denied: 0 });
    }
}

#[test]
fn a_thread_that_sleeps_long_is_read_in_turn_until_it_runs_again() {
    let dir = tempfile::tempdir().unwrap();
    for pid in 1..=40 {
        put(dir.path(), pid, pid, "idle", 'S', "1 1 1", 1);
    }
    let mut scan = ThreadScan::new(&HostFs::at(dir.path()), 64);
    for t in 0..40 {
        run(&mut scan, t, AMPLE);
    }
    let mut turns = Vec::new();
    for t in 40..44 {
        let (seen, round) = run(&mut scan, t, AMPLE);
        assert_eq!((seen.len(), round.unread), (10, 0));
        turns.extend(seen);
    }
    turns.sort_unstable();
    assert_eq!(turns, (1..=40).collect::<Vec<_>>());
    put(dir.path(), 7, 7, "idle", 'R', "2 1 2", 1);
    for t in 44..48 {
        run(&mut scan, t, AMPLE);
    }
    assert!(run(&mut scan, 48, AMPLE).0.contains(&7));
    assert!(run(&mut scan, 49, AMPLE).0.contains(&7));
}

#[test]
fn processes_that_come_and_go_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut scan = ThreadScan::new(&HostFs::at(dir.path()), 0);
    for pid in 1..500 {
        put(dir.path(), pid, pid, "short", 'S', "1 1 1", 1);
        scan.round(at(u64::from(pid)), AMPLE, Some(1), |_| {}).unwrap();
        std::fs::remove_dir_all(dir.path().join(format!("proc/{pid}"))).unwrap();
    }
    scan.round(at(1000), AMPLE, Some(0), |_| {}).unwrap();
    assert_eq!((scan.known.len(), scan.processes.len(), scan.cold.len()), (0, 0, 0));
    assert!(scan.listing.len() < 100, "{}", scan.listing.len());
}

#[test]
fn growth_is_measured_between_two_readings_of_the_same_thread() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), 10, 10, "a", 'R', "1000 500 7", 1);
    let mut scan = ThreadScan::new(&HostFs::at(dir.path()), 64);
    let mut last = None;
    let mut go = |scan: &mut ThreadScan, t| {
        scan.round(at(t), AMPLE, None, |th| {
            last = Some((th.grown, th.wait_share(), th.task.start, th.last_cpu, th.nice, th.state));
        })
        .unwrap();
        last.take().unwrap()
    };
    let first = go(&mut scan, 0);
    assert_eq!((first.0, first.1), (None, 0.0));
    put(dir.path(), 10, 10, "a", 'S', "1500 250000500 9", 1);
    let second = go(&mut scan, 1);
    let grown = Schedstat { run_ns: 500, run_delay_ns: 250_000_000, slices: 2 };
    assert_eq!(second, (Some((SECOND, grown)), 0.25, 1010, Some(3), Some(5), 'S'));
    // Backwards is a reset, not a huge growth.
    put(dir.path(), 10, 10, "a", 'S', "1 1 1", 1);
    assert_eq!(go(&mut scan, 2).0, None);
}

#[test]
fn what_did_not_move_says_so_and_for_how_long() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), 10, 10, "a", 'S', "1000 500 7", 1);
    let mut scan = ThreadScan::new(&HostFs::at(dir.path()), 64);
    let mut go = |t| {
        let mut seen = None;
        scan.round(at(t), AMPLE, None, |th| seen = Some((th.moved, th.still))).unwrap();
        seen.unwrap()
    };
    assert_eq!(go(0), (true, None), "the first reading is a baseline");
    assert!(!go(1).0);
    assert!(!go(3).0);
    put(dir.path(), 10, 10, "a", 'S', "1001 500 8", 1);
    assert_eq!(go(5), (true, Some(2 * SECOND)));
    put(dir.path(), 10, 10, "a", 'S', "1002 500 9", 1);
    assert_eq!(go(6), (true, None), "it was read and had moved a second ago");
}

#[test]
fn a_small_budget_reads_what_is_hot_and_takes_turns_with_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    for pid in 1..=100 {
        put(dir.path(), pid, pid, "idle", 'S', "1 1 1", 1);
    }
    let mut scan = ThreadScan::new(&HostFs::at(dir.path()), 8);
    run(&mut scan, 0, AMPLE);
    put(dir.path(), 50, 50, "busy", 'R', "900000000 1 1", 1);
    run(&mut scan, 1, AMPLE);
    let mut turns = std::collections::BTreeSet::new();
    for t in 2..10 {
        let (seen, round) = run(&mut scan, t, Duration::ZERO);
        assert!(seen.contains(&50), "round {t}: {seen:?}");
        assert!(seen.len() as u32 + round.unread <= 100);
        turns.extend(seen);
    }
    assert!(!scan.is_behind());
    run(&mut scan, 10, Duration::ZERO);
    run(&mut scan, 11, Duration::ZERO);
    assert!(scan.is_behind());
    assert!(turns.len() > 90, "{} of 100", turns.len());
    assert!(scan.files <= 8);
}

/// However long: that it does not end is the finding.
#[test]
fn a_sleep_that_does_not_end_is_read_in_every_round() {
    let dir = tempfile::tempdir().unwrap();
    for pid in 1..=100 {
        put(dir.path(), pid, pid, "idle", 'S', "1 1 1", 1);
    }
    let mut scan = ThreadScan::new(&HostFs::at(dir.path()), 8);
    run(&mut scan, 0, AMPLE);
    put(dir.path(), 50, 50, "hung", 'D', "2 1 2", 1);
    run(&mut scan, 1, AMPLE);
    for t in 2..60 {
        let (seen, _) = run(&mut scan, t, Duration::ZERO);
        assert!(seen.contains(&50), "round {t}: {seen:?}");
    }
    put(dir.path(), 50, 50, "hung", 'S', "2 1 3", 1);
    run(&mut scan, 60, Duration::ZERO);
    let missed = (61..70).any(|t| !run(&mut scan, t, Duration::ZERO).0.contains(&50));
    assert!(missed, "it takes turns again");
}

#[test]
fn a_thread_number_that_is_used_again_is_another_thread() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), 10, 10, "old", 'S', "5 5 5", 1);
    let mut scan = ThreadScan::new(&HostFs::at(dir.path()), 64);
    run(&mut scan, 0, AMPLE);
    put(dir.path(), 10, 10, "new", 'S', "9 9 9", 1);
    let stat = dir.path().join("proc/10/task/10/stat");
    let text = std::fs::read_to_string(&stat).unwrap().replace("1010", "7777");
    std::fs::write(&stat, text).unwrap();
    assert!(run(&mut scan, 1, AMPLE).0.is_empty());
    assert_eq!(run(&mut scan, 2, AMPLE).0, [10]);
    assert_eq!(scan.cold[0].task.start, 7777);
}

#[test]
fn live_threads_come_and_go() {
    let mut scan = ThreadScan::new(&HostFs::live(), 64);
    let sees = |scan: &mut ThreadScan, tid: u32| {
        let mut found = false;
        scan.round(clock::mono(), AMPLE, None, |t| found |= t.task.tid == tid).unwrap();
        found
    };
    assert!(sees(&mut scan, std::process::id()));
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    assert!(sees(&mut scan, child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!sees(&mut scan, child.id()));
}
