//! Sleep is no waiting, however the scheduler counts it; and a wait after a sleep is one.
//!
//! Threads sleep for a known time on an overloaded box and see themselves how late they woke.
//! No wait that ends with a sleep can be longer than that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use stallscope::clock;
use stallscope::collect::bpf::runq::RunqBpf;
use stallscope::sample::bpf::runq::{LongWait, RunqBpfSample};
use stallscope::sample::time::MonoNs;

use crate::kit::gate::lab;
use crate::kit::sh::Held;
use crate::lab::{open, run_for, sample};

/// Of the programs themselves, and of reading the clock.
const SLACK: Duration = Duration::from_millis(4);

/// One sleep of a thread.
struct Nap {
    begun: MonoNs,
    woke: MonoNs,
    /// How much later than asked.
    late: Duration,
    /// By how much the scheduler says that the thread waited, between two moments around it.
    run_delay: Duration,
    around: (MonoNs, MonoNs),
    /// What the host took of the thread's CPU meanwhile, to 10 ms; 0 for one without a CPU of
    /// its own.
    steal: Duration,
}

impl Nap {
    fn has(&self, at: MonoNs) -> bool {
        self.begun <= at && at <= self.woke
    }
}

struct Sleeper {
    tid: u32,
    naps: Vec<Nap>,
}

/// How a thread sleeps.
#[derive(Clone, Copy)]
struct Habit {
    nap: Duration,
    work: Duration,
    nice: i32,
    cpu: Option<usize>,
}

fn run_delay(tid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
    Duration::from_nanos(text.split_whitespace().nth(1).unwrap().parse().unwrap())
}

/// What the host took of a CPU since boot.
fn steal(cpu: usize) -> Duration {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let name = format!("cpu{cpu}");
    let line = text.lines().find(|l| l.split(' ').next() == Some(&name)).unwrap();
    Duration::from_millis(line.split(' ').nth(8).unwrap().parse::<u64>().unwrap() * 10)
}

fn sleeper(habit: Habit, stop: &AtomicBool) -> Sleeper {
    let tid = gettid();
    setpriority_process(Pid::from_raw(tid.as_raw_nonzero().get()), habit.nice).unwrap();
    if let Some(cpu) = habit.cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).unwrap();
    }
    let tid = tid.as_raw_nonzero().get() as u32;
    let mut naps = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let stolen = || habit.cpu.map_or(Duration::ZERO, steal);
        let (from, taken, before, begun) = (clock::mono(), stolen(), run_delay(tid), clock::mono());
        clock::sleep_until(begun + habit.nap);
        let woke = clock::mono();
        let run_delay = run_delay(tid).saturating_sub(before);
        let steal = stolen().saturating_sub(taken);
        let late = woke.since(begun).saturating_sub(habit.nap);
        naps.push(Nap { begun, woke, late, run_delay, around: (from, clock::mono()), steal });
        while clock::mono().since(woke) < habit.work {
            std::hint::spin_loop();
        }
    }
    Sleeper { tid, naps }
}

/// Lets threads sleep for ten seconds; returns them, their long waits, and how many waits the
/// program left out for sleep.
fn watch(habits: &[Habit]) -> (Vec<Sleeper>, Vec<LongWait>, u64) {
    let stop = AtomicBool::new(false);
    let mut runq: RunqBpf = open();
    // The sleepers are threads of this process.
    runq.list_own();
    std::thread::scope(|s| {
        let threads: Vec<_> = habits.iter().map(|h| s.spawn(|| sleeper(*h, &stop))).collect();
        let mut waits = sample(&mut runq).long_waits;
        waits.clear();
        for _ in 0..100 {
            run_for(Duration::from_millis(100));
            waits.extend(sample(&mut runq).long_waits);
        }
        stop.store(true, Ordering::Relaxed);
        let sleepers = threads.into_iter().map(|t| t.join().unwrap()).collect();
        let last = sample(&mut runq);
        waits.extend(last.long_waits);
        (sleepers, waits, last.cpus.iter().map(|c| c.slept).sum())
    })
}

/// The nap that this wait ended.
fn nap<'a>(sleepers: &'a [Sleeper], wait: &LongWait) -> Option<&'a Nap> {
    let s = sleepers.iter().find(|s| s.tid == wait.tid)?;
    s.naps.iter().find(|n| n.has(wait.at))
}

fn spinners(n: usize) -> Vec<Held> {
    (0..n).map(|_| Held::start(&["sh", "-c", "while :; do :; done"])).collect()
}

#[test]
fn sleep_is_no_wait() {
    lab(&[], || {
        let cpus = std::thread::available_parallelism().unwrap().get();
        // One more than CPUs: the balancer has something to do.
        let _load = spinners(cpus + 1);
        let habit = |i: u64| Habit {
            nap: Duration::from_millis(120 + i * 53 % 320),
            work: Duration::from_millis(i % 3 * 2),
            nice: 0,
            cpu: None,
        };
        let habits: Vec<Habit> = (0..20 * cpus as u64).map(habit).collect();
        let (sleepers, waits, slept) = watch(&habits);
        let naps = || sleepers.iter().flat_map(|s| &s.naps);
        let fooled = naps().filter(|n| n.run_delay > n.late + 2 * SLACK).count();
        // By arithmetic those who woke within an eighth of the sleep are all found: at half the
        // speed of the clock of averages 120 ms of sleep leave 279 of 1024, and 15 ms of waiting
        // after them make that 390; the limit is 480.
        let wrong = waits.iter().filter_map(|w| {
            let (n, wait) = (nap(&sleepers, w)?, Duration::from_nanos(w.wait_ns));
            (wait > n.late + 2 * SLACK && n.late < wait / 8).then_some((w, n.late))
        });
        let wrong: Vec<_> = wrong.collect();
        println!(
            "{} naps, {fooled} that the scheduler counts as waiting, {slept} waits left out, \
             {} wrong of {}",
            naps().count(),
            wrong.len(),
            waits.len(),
        );
        assert!(naps().count() > 500 && waits.len() > 100);
        assert!(fooled < 5 || slept > 0, "{fooled} {slept}");
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

/// The same sleeps, but a task of higher weight has the CPU when they end.
#[test]
fn a_wait_after_a_sleep_is_one() {
    lab(&["taskset"], || {
        const CPU: usize = 1;
        let line = format!("exec taskset -c {CPU} sh -c 'while :; do :; done'");
        let _load = Held::start(&["sh", "-c", &line]);
        let habit = Habit {
            nap: Duration::from_millis(150),
            work: Duration::from_millis(3),
            nice: 19,
            cpu: Some(CPU),
        };
        let (sleepers, waits, slept) = watch(&[habit; 4]);
        let mut late = Vec::new();
        for s in &sleepers {
            let sum = |within: &dyn Fn(MonoNs) -> bool| -> Duration {
                let own = waits.iter().filter(|w| w.tid == s.tid && within(w.at));
                Duration::from_nanos(own.map(|w| w.wait_ns).sum())
            };
            for n in &s.naps {
                // Pinned, so no balancer can confuse the scheduler's own account.
                let inside = sum(&|at| n.has(at));
                assert!(inside <= n.run_delay + SLACK, "{inside:?} of {:?}", n.run_delay);
                // The limit is made for a clock of averages at a third of its speed; it stands
                // still while the host has the CPU.
                if n.run_delay > Duration::from_millis(40) && n.steal * 2 < n.run_delay {
                    let seen = sum(&|at| n.around.0 <= at && at <= n.around.1);
                    late.push(seen + 2 * SLACK >= n.run_delay);
                }
            }
        }
        let found = late.iter().filter(|seen| **seen).count();
        let naps = || sleepers.iter().flat_map(|s| &s.naps);
        let longest = naps().map(|n| n.run_delay).max();
        // Naps of several threads overlap.
        let took: Duration = naps().map(|n| n.around.1.since(n.around.0)).sum();
        let stolen: Duration = naps().map(|n| n.steal).sum();
        println!(
            "{} naps, {} late, longest {longest:?}, {found} seen, {slept} left out, {stolen:?} stolen",
            naps().count(),
            late.len(),
        );
        assert!(late.len() >= 10 || stolen * 4 > took, "{}", late.len());
        // The kernel runs no program at all for up to 3 switches in 1000.
        assert!(found * 100 >= late.len() * 97, "{found} of {}", late.len());
    });
}

/// The product's threads wait for each other; what they wait is counted, and in no list.
#[test]
fn our_own_threads_are_in_no_list() {
    lab(&["taskset"], || {
        const CPU: usize = 1;
        let line = format!("exec taskset -c {CPU} sh -c 'while :; do :; done'");
        let _load = Held::start(&["sh", "-c", &line]);
        let habit = Habit {
            nap: Duration::from_millis(50),
            work: Duration::from_millis(3),
            nice: 19,
            cpu: Some(CPU),
        };
        let stop = AtomicBool::new(false);
        let mut runq: RunqBpf = open();
        let before = sample(&mut runq);
        let after = std::thread::scope(|s| {
            s.spawn(|| sleeper(habit, &stop));
            run_for(Duration::from_secs(4));
            let after = sample(&mut runq);
            stop.store(true, Ordering::Relaxed);
            after
        });
        let own = after.long_waits.iter().filter(|w| w.pid == std::process::id()).count();
        println!("{} waits listed, {} of our own", after.long_waits.len(), after.long_own);
        assert_eq!(own, 0, "{:?}", after.long_waits);
        assert!(after.long_own >= 10, "{}", after.long_own);
        let long = |s: &RunqBpfSample| s.cpus.iter().map(|c| c.long).sum::<u64>();
        let told = after.long_waits.len() as u64 + after.long_unlisted + after.long_own;
        assert_eq!(long(&after) - long(&before), told, "each is told or counted");
    });
}
