//! Run-queue latency where arithmetic says what it must be.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use stallscope::clock;
use stallscope::collect::HostFs;
use stallscope::collect::bpf::runq::RunqBpf;
use stallscope::sample::bpf::Hist;
use stallscope::sample::bpf::runq::{RunqBpfSample, RunqCpu, RunqTier};
use stallscope::sample::subject::CpuId;

use crate::agree::{apart, rows, rows_of_tool, total};
use crate::kit::cgroup::Cgroup;
use crate::kit::gate::lab;
use crate::kit::secs;
use crate::kit::sh::{Held, run};
use crate::lab::{open, options, run_for, sample};

const CPU: u32 = 1;
const SPINNERS: usize = 4;

/// ns that a task waited to run, by the scheduler's own account.
fn run_delay(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn cpu(s: &RunqBpfSample) -> RunqCpu {
    s.cpus.iter().find(|c| c.cpu == CpuId(CPU)).cloned().unwrap_or_default()
}

struct Seen {
    waits: Hist,
    wait_ns: u64,
    took: Duration,
    run_delay: u64,
    pids: Vec<u32>,
    samples: Vec<RunqBpfSample>,
    cgroup: u64,
    group_before: u64,
}

/// Spinners pinned to one CPU, in a cgroup of their own, for three seconds.
fn spin(runq: &mut RunqBpf) -> Seen {
    let group = Cgroup::new("cpu", "runq");
    let dir = format!("/sys/fs/cgroup/cpu/{}", group.name);
    let cgroup = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(dir).unwrap());
    let line = group.enter_and(&format!("taskset -c {CPU} sh -c 'while :; do :; done'"));
    let mut spinners: Vec<Held> =
        (0..SPINNERS).map(|_| Held::start(&["sh", "-c", &line])).collect();
    crate::kit::wait_for("all spin", secs(10), || {
        spinners.iter().all(|s| run_delay(s.pid()) > 50_000_000).then_some(())
    });
    let delays = |s: &[Held]| s.iter().map(|s| run_delay(s.pid())).sum::<u64>();
    let first = sample(runq);
    let (before, delay, begun) = (cpu(&first), delays(&spinners), clock::mono());
    let mut samples = Vec::new();
    for _ in 0..3 {
        run_for(secs(1));
        samples.push(sample(runq));
    }
    let after = cpu(samples.last().unwrap());
    let (run_delay, took) = (delays(&spinners) - delay, clock::mono().since(begun));
    spinners.iter_mut().for_each(Held::assert_running);
    assert_eq!((after.discarded, after.collided), (before.discarded, before.collided));
    Seen {
        waits: after.waits.since(&before.waits).unwrap(),
        wait_ns: after.wait_ns - before.wait_ns,
        took,
        run_delay,
        pids: spinners.iter().map(Held::pid).collect(),
        samples,
        cgroup,
        group_before: first.cgroups.iter().find(|c| c.id.0 == cgroup).map_or(0, |c| c.wait_ns),
    }
}

fn arithmetic(seen: &Seen) {
    // One runs, the others wait: every second of the clock is so many seconds of waiting.
    let share = seen.wait_ns as f64 / seen.took.as_nanos() as f64;
    let least = SPINNERS as f64 - 1.0;
    println!(
        "waiting per second {share:.2}, arithmetic {least}, run_delay {:.2}, p50 {:?} p99 {:?} ns",
        seen.run_delay as f64 / seen.took.as_nanos() as f64,
        seen.waits.quantile(0.5),
        seen.waits.quantile(0.99),
    );
    // A wait is counted when it ends: up to one wait of each spinner is outside at both ends.
    // Others on the box make it more, never less.
    assert!(share > least * 0.93, "{share} of {least}");
    let own = seen.run_delay as f64 / seen.took.as_nanos() as f64;
    assert!(own > least * 0.93 && share > own * 0.93, "{share}, the scheduler says {own}");
    // Sum and histogram tell the same: each bucket's middle is at most 6.25 % off.
    let by_hist: f64 = seen
        .waits
        .buckets()
        .map(|(b, n)| Hist::from([(b, 1)]).quantile(0.5).unwrap() as f64 * n as f64)
        .sum();
    let ratio = by_hist / seen.wait_ns as f64;
    assert!((ratio - 1.0).abs() < 0.0625, "histogram {by_hist}, sum {}", seen.wait_ns);
}

#[test]
fn spinners_wait_as_arithmetic_says() {
    lab(&["taskset", "setpriv"], || {
        let mut runq: RunqBpf = open();
        let seen = spin(&mut runq);
        assert!(seen.samples.iter().all(|s| s.tier == RunqTier::SchedInfo));
        arithmetic(&seen);
        // Who waited: the spinners, by thread and by cgroup.
        let last = seen.samples.last().unwrap();
        for pid in &seen.pids {
            let w = last.long_waits.iter().find(|w| w.tid == *pid);
            let w = w.unwrap_or_else(|| panic!("no long wait of {pid}: {last:?}"));
            assert_eq!((w.pid, w.cpu, w.comm.as_deref()), (*pid, CpuId(CPU), Some("sh")));
            assert_eq!(w.cgroup.unwrap().0, seen.cgroup);
            assert!(w.wait_ns >= 1_000_000);
        }
        // The group's long waits are the spinners' waits by the scheduler's own account, but
        // for the short ones and those under way.
        let sum = |s: &RunqBpfSample| {
            s.cgroups.iter().find(|c| c.id.0 == seen.cgroup).map_or(0, |c| c.wait_ns)
        };
        let share = (sum(last) - seen.group_before) as f64 / seen.run_delay as f64;
        println!("long waits of the group / run_delay of its tasks: {share:.3}");
        assert!((0.85..1.07).contains(&share), "{share}");
    });
}

#[test]
fn the_fallback_agrees_with_arithmetic() {
    lab(&["taskset", "setpriv"], || {
        let mut runq = RunqBpf::open_tier_b(&HostFs::live(), &options()).unwrap();
        let seen = spin(&mut runq);
        assert!(seen.samples.iter().all(|s| s.tier == RunqTier::Wakeup));
        arithmetic(&seen);
    });
}

/// Waits of all CPUs since `before`.
fn all_waits(before: &RunqBpfSample, after: &RunqBpfSample) -> Hist {
    let mut all = Hist::default();
    for c in &after.cpus {
        let old = before.cpus.iter().find(|o| o.cpu == c.cpu).map(|o| o.waits.clone());
        all.merge(&c.waits.since(&old.unwrap_or_default()).unwrap());
    }
    all
}

/// Long waits and short ones: spinners on one CPU, and tasks that wake each other. Each pair
/// stays on one CPU: to wake a task on another takes an interrupt, in a virtual machine an exit
/// of 10 us, which lies between the scheduler's stamp of queueing and the wakeup's tracepoint.
fn mixed_load() -> Vec<Held> {
    let spin = format!("taskset -c {CPU} sh -c 'while :; do :; done'");
    let wake = "sh -c 'while :; do echo x; done | while read -r _; do :; done'";
    let [here, there] = [CPU, CPU - 1].map(|cpu| format!("taskset -c {cpu} {wake}"));
    let lines = [spin.as_str(), &spin, &here, &there];
    lines.iter().map(|line| Held::start(&["sh", "-c", line])).collect()
}

/// How much two meters of the same waits may differ: the stamps of wakeups come later than the
/// scheduler's, and the other meter's own time lies within what a meter measures.
fn later(ns: f64) -> f64 {
    ns * 1.5 + 3_000.0
}

/// One wait in so many may differ by more: between the two stamps of a wait anything can come,
/// an interrupt of the host included.
const OUTLIERS: f64 = 0.1;

/// ns waited on all CPUs since `before`.
fn all_wait_ns(before: &RunqBpfSample, after: &RunqBpfSample) -> f64 {
    let sum = |s: &RunqBpfSample| s.cpus.iter().map(|c| c.wait_ns).sum::<u64>();
    (sum(after) - sum(before)) as f64
}

/// Both tiers watch the same switches: one by the scheduler's stamps, one by its own.
#[test]
fn both_tiers_agree() {
    lab(&["taskset", "setpriv"], || {
        let mut a: RunqBpf = open();
        let mut b = RunqBpf::open_tier_b(&HostFs::live(), &options()).unwrap();
        let _load = mixed_load();
        run_for(secs(1));
        let before = (sample(&mut a), sample(&mut b));
        run_for(secs(4));
        let after = (sample(&mut a), sample(&mut b));
        let sums = [all_wait_ns(&before.0, &after.0), all_wait_ns(&before.1, &after.1)];
        let (a, b) = (all_waits(&before.0, &after.0), all_waits(&before.1, &after.1));
        for q in [0.1, 0.25, 0.5, 0.75, 0.9, 0.99] {
            let (a, b) = (a.quantile(q).unwrap(), b.quantile(q).unwrap());
            println!("p{:.0}: {a} ns, by wakeups {b} ns", q * 100.0);
        }
        let counts = [a.count() as f64, b.count() as f64];
        let outliers = apart(&rows(&a), &rows(&b), later);
        println!("waits {counts:?}, waited {sums:?} ns, {:.2} % apart", outliers * 100.0);
        assert!(counts[0] > 1000.0 && (counts[1] / counts[0] - 1.0).abs() < 0.02, "{counts:?}");
        assert!((sums[1] / sums[0] - 1.0).abs() < 0.05, "{sums:?}");
        assert!(outliers <= OUTLIERS, "{outliers}\n{a:?}\n{b:?}");
    });
}

/// Passes a byte on until it is not 0, on one CPU.
fn pass_on(mut from: PipeReader, mut to: PipeWriter) {
    let mut set = CpuSet::new();
    set.set(CPU as usize);
    sched_setaffinity(None, &set).unwrap();
    let mut byte = [0];
    while byte == [0] && from.read_exact(&mut byte).is_ok() && to.write_all(&byte).is_ok() {}
}

/// Two threads that wake each other make so many short waits that tier A measures a few of them
/// only. All count, whether the program holds the address of its map or looks it up.
#[test]
fn waits_that_are_passed_over_count() {
    lab(&[], || {
        let (a_rx, b_tx) = std::io::pipe().unwrap();
        let (b_rx, a_tx) = std::io::pipe().unwrap();
        let mut stir = a_tx.try_clone().unwrap();
        let threads = [
            std::thread::spawn(|| pass_on(a_rx, a_tx)),
            std::thread::spawn(|| pass_on(b_rx, b_tx)),
        ];
        let mut a: RunqBpf = open();
        let mut b = RunqBpf::open_tier_b(&HostFs::live(), &options()).unwrap();
        let mut c = RunqBpf::open_by_lookup(&HostFs::live(), &options()).unwrap();
        // No host of this suite has more CPUs than the one value of a map has room for.
        assert_eq!([a.programs(), c.programs()], [["runq"], ["runq_lookup"]]);
        stir.write_all(&[0]).unwrap();
        let before = (sample(&mut a), sample(&mut b), sample(&mut c));
        run_for(secs(2));
        let after = (sample(&mut a), sample(&mut b), sample(&mut c));
        stir.write_all(&[1]).unwrap();
        for t in threads {
            t.join().unwrap();
        }
        let of = |before: &RunqBpfSample, after: &RunqBpfSample| {
            let switches = cpu(after).switches - cpu(before).switches;
            (switches as f64, cpu(after).waits.since(&cpu(before).waits).unwrap())
        };
        let ((switches, a), (_, b)) = (of(&before.0, &after.0), of(&before.1, &after.1));
        let (found, c) = of(&before.2, &after.2);
        let counts = [a.count() as f64, b.count() as f64];
        let outliers = apart(&rows(&a), &rows(&b), later);
        println!("{switches} switches, waits {counts:?}, {:.2} % apart", outliers * 100.0);
        println!("by lookup {found} and {}", c.count());
        // Nobody else runs there, and it never idles: each switch ends a wait.
        assert!(switches > 100_000.0, "{switches}");
        assert!((counts[0] / switches - 1.0).abs() < 0.02, "{counts:?} of {switches}");
        assert!((counts[1] / counts[0] - 1.0).abs() < 0.02, "{counts:?}");
        assert!(outliers <= OUTLIERS, "{outliers}\n{a:?}\n{b:?}");
        assert!((found / switches - 1.0).abs() < 0.02, "{found}");
        assert!((c.count() as f64 / found - 1.0).abs() < 0.02, "{} of {found}", c.count());
        let outliers = apart(&rows(&c), &rows(&b), later);
        assert!(outliers <= OUTLIERS, "{outliers}\n{c:?}\n{b:?}");
    });
}

/// libbpf-tools' `runqlat`, attached at the same time to the same switches.
#[test]
fn waits_agree_with_runqlat() {
    lab(&["taskset", "setpriv", "runqlat"], || {
        let _load = mixed_load();
        let mut runq: RunqBpf = open();
        let before = sample(&mut runq);
        let text = run(&["runqlat", "4", "1"]);
        let ours = all_waits(&before, &sample(&mut runq));
        let theirs = rows_of_tool(&text);
        let total = total(&theirs);
        let outliers = apart(&rows(&ours), &theirs, later);
        println!("{} waits, runqlat {total}, {:.2} % apart", ours.count(), outliers * 100.0);
        assert!(total > 1000.0, "{text}");
        // It starts after us and ends before.
        assert!(ours.count() as f64 > total * 0.9 && total * 2.0 > ours.count() as f64);
        assert!(outliers <= OUTLIERS, "{outliers}\n{ours:?}\n{text}");
    });
}
