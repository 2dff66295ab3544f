//! Memory that is freed goes back to the system, whoever took it and in whatever order.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use stallscope::allocator;

/// Set in the process that has nothing else to do.
const ALONE: &str = "STALLSCOPE_TEST_ALONE";

const MIB: usize = 1 << 20;
/// As the history's.
const BUDGET: usize = 64 * MIB;

/// Resident, without what is mapped from files: the code.
fn anonymous() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kb = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
    kb.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

/// A thread that reads: ticks of a quarter MiB in blocks of `size`. It keeps a small one of each
/// for itself.
fn reader(size: usize) -> Receiver<Vec<Vec<u8>>> {
    let (tx, rx) = sync_channel(1);
    thread::spawn(move || {
        let mut kept = Vec::new();
        loop {
            let tick = (0..MIB / 4 / size).map(|_| vec![1; size]).collect();
            kept.push(vec![1_u8; 100]);
            if tx.send(tick).is_err() {
                return;
            }
        }
    });
    rx
}

/// Many threads ran, then there were many sockets, then many cgroups: each is read by another
/// thread, in blocks of another size.
#[test]
fn what_is_resident_is_what_is_held_whatever_was_before() {
    if std::env::var_os(ALONE).is_none() {
        // It is about a whole process: this program once more, for this test.
        let this = "resident::what_is_resident_is_what_is_held_whatever_was_before";
        let out = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && text.contains("1 passed"), "{text}{err}");
        return;
    }
    allocator::set_up();
    let begun = anonymous();
    let readers = [200, 40_000, 1000, 200_000, 3000].map(reader);
    let mut history: VecDeque<Vec<Vec<u8>>> = VecDeque::new();
    for r in &readers {
        for _ in 0..2 * BUDGET / (MIB / 4) {
            history.push_back(r.recv().unwrap());
            if history.len() > BUDGET / (MIB / 4) {
                history.pop_front();
            }
        }
        allocator::give_back();
        let used = anonymous() - begun;
        println!("{} MiB resident", used / MIB);
        // A block of 200 has 8 bytes of the allocator's own and 24 in a list: 74 MiB.
        assert!(used < BUDGET + BUDGET / 4, "{} MiB resident", used / MIB);
    }
    history.clear();
    allocator::give_back();
    let used = anonymous() - begun;
    println!("{} MiB resident at the end", used / MIB);
    assert!(used < 16 * MIB, "{} MiB resident", used / MIB);
}
