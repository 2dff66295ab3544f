//! What it costs to look at all threads of the host.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use stallscope::clock;
use stallscope::collect::Collector as _;
use stallscope::collect::bpf::tasks::TaskWalk;
use stallscope::collect::waits::WaitsCollector;

use super::{goal, host, median, rounds};

/// Looks of which one is the median.
const LOOKS: usize = 20;

/// us of CPU time that one takes.
fn per_look(mut look: impl FnMut()) -> f64 {
    let mut all: Vec<f64> = (0..LOOKS)
        .map(|_| {
            let begun = clock::thread_cpu();
            look();
            clock::thread_cpu().saturating_sub(begun).as_secs_f64() * 1e6
        })
        .collect();
    median(&mut all)
}

/// The bare walk and the whole look take turns, beside so many threads that wait for work.
fn beside(threads: usize, most: f64) {
    static GO_ON: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
    *GO_ON.0.lock().unwrap() = true;
    let idle = || {
        let wait = GO_ON.0.lock().unwrap();
        drop(GO_ON.1.wait_while(wait, |wait| *wait));
    };
    let small = || std::thread::Builder::new().stack_size(16 << 10);
    let all: Vec<_> = (0..threads).map_while(|_| small().spawn(idle).ok()).collect();
    clock::sleep_until(clock::mono() + Duration::from_secs(1));
    let (host, opts) = host();
    let mut empty = TaskWalk::open_empty(&host, &opts).unwrap();
    let mut waits = WaitsCollector::open(&host, &opts).unwrap();
    let (mut bare, mut whole) = (Vec::new(), Vec::new());
    waits.relieve();
    for _ in 0..rounds() {
        bare.push(per_look(|| assert!(empty.walk().unwrap().count() == 0)));
        whole.push(per_look(|| waits.relieve()));
    }
    let (bare, whole) = (median(&mut bare), median(&mut whole));
    let tasks = std::fs::read_to_string("/proc/loadavg").unwrap();
    let tasks = tasks.split(['/', ' ']).nth(4).unwrap_or("?").to_owned();
    println!("  {tasks} threads on the host, {} of them ours:", all.len());
    println!("    a bare walk {bare:>8.0} us, a look {whole:>8.0} us: {:.2} times", whole / bare);
    // As often as the collector wants it: ten times a second, or less where that costs much.
    let rate = 1.0 / waits.relief().unwrap().as_secs_f64();
    goal(&format!("    {rate:.1} looks a second, of a core"), whole * rate / 1e4, most, "%");
    *GO_ON.0.lock().unwrap() = false;
    GO_ON.1.notify_all();
    for t in all {
        t.join().unwrap();
    }
}

pub(crate) fn all() {
    println!("looking at all threads:");
    beside(1000, 0.3);
    beside(10_000, 3.0);
}
