//! CPU faults: a core that is fought for while another idles, a quota that is too small, a
//! core that does all network interrupts.

use std::net::{SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{CpuSet, sched_setaffinity};

use serde_json::Value;

use crate::kit::cgroup::Cgroup;
use crate::kit::gate::lab;
use crate::kit::net::{B, Pair};
use crate::kit::product::{Found, Report, check, check_both};
use crate::kit::sh::Held;
use crate::kit::{secs, wait_for};

const SPIN: &str = "while :; do :; done";

fn about_cpu(f: Found<'_>) -> bool {
    matches!(f.kind(), "task" | "cgroup" | "cpu" | "host")
}

/// Its process and its share in %.
fn culprit(c: &Value) -> (u32, f64) {
    (c["pid"].as_u64().unwrap() as u32, c["share"].as_f64().unwrap())
}

/// ns that the process waited on a run queue: second field of its `schedstat`.
fn run_delay(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Three busy loops share CPU 0 while CPU 1 has nothing to do. The same finding without eBPF, from
/// schedstat.
#[test]
fn k12_spinners_on_one_cpu() {
    lab(&["taskset", "setpriv"], || three_on_one_cpu("k12", "8s"));
}

/// The same on a box with thousands of sleeping threads, which no reading can afford to look
/// at each second.
#[test]
fn k12_spinners_among_thousands_of_threads() {
    lab(&["taskset", "setpriv"], || {
        let (wake, asleep) = std::sync::mpsc::channel::<()>();
        let asleep = std::sync::Mutex::new(asleep);
        std::thread::scope(|s| {
            for _ in 0..4000 {
                let sleeper = std::thread::Builder::new().stack_size(32 << 10);
                sleeper.spawn_scoped(s, || asleep.lock().is_ok_and(|a| a.recv().is_ok())).unwrap();
            }
            // Dropped when the test ends or fails: then `recv` fails in one after the other.
            let _wake = wake;
            three_on_one_cpu("k12-threads", "14s");
        });
    });
}

fn three_on_one_cpu(name: &str, duration: &str) {
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(cpus >= 2, "needs two CPUs, one of them idle");
    let mut spinners: Vec<Held> =
        (0..3).map(|_| Held::start(&["taskset", "-c", "0", "sh", "-c", SPIN])).collect();
    wait_for("each spinner waits for the others", secs(10), || {
        spinners.iter().all(|s| run_delay(s.pid()) > 300_000_000).then_some(())
    });
    let reports = check_both(name, duration);
    spinners.iter_mut().for_each(Held::assert_running);
    for (report, ebpf) in reports.iter().zip([true, false]) {
        two_of_three_wait(report, ebpf);
        let f = report.the("runq-latency-idle-elsewhere", about_cpu);
        let mut by: Vec<u32> = f.by().iter().map(|c| culprit(c).0).collect();
        by.sort_unstable();
        let mut pids: Vec<u32> = spinners.iter().map(Held::pid).collect();
        pids.sort_unstable();
        assert_eq!(by, pids, "who has the CPU: {}", f.text());
        let third = |share: f64| (20.0..=34.0).contains(&share);
        assert!(f.by().iter().all(|c| third(culprit(c).1)), "{}", f.text());
    }
}

fn two_of_three_wait(report: &Report, ebpf: bool) {
    // No cgroup here has a quota: `cfs-throttle` would be a plain error. The box as a
    // whole is not saturated: one CPU idles.
    report.exactly(about_cpu, &["runq-latency-idle-elsewhere"], &[]);
    let f = report.the("runq-latency-idle-elsewhere", about_cpu);
    assert_eq!((f.severity(), f.subject()["cpu"].as_u64()), ("crit", Some(0)), "{}", f.text());
    // One runs, two wait: two thirds. Others on the CPU make it more.
    let share = f.evidence("run_delay").unwrap();
    assert!((62.0..80.0).contains(&share), "{share}");
    let source = if ebpf { "ebpf" } else { "schedstat" };
    assert_eq!((report.source("run-queue latency"), f.uses_ebpf()), (source, ebpf));
    if ebpf {
        let p99 = f.evidence("runq-p99").unwrap();
        let longest = f.evidence("longest-wait").unwrap();
        eprintln!("lab: k12: share {share:.0}%, p99 {p99:.2} ms, longest {longest:.2} ms");
        // Each waits while two others have their slice, of 3 ms or more. The longest is that of
        // the last 64 long waits, of some 250 a second: p99 may be of others.
        assert!(p99 >= 5.0 && longest >= 5.0, "p99 {p99} ms, longest {longest} ms");
    }
}

/// A loop with a real-time policy leaves 5% of CPU 0 to a shell that is bound there.
#[test]
fn k14_real_time_loop_on_one_cpu() {
    lab(&["chrt", "taskset", "setpriv"], || {
        let hog = ["chrt", "-f", "50", "taskset", "-c", "0", "sh", "-c", SPIN];
        let mut all = [Held::start(&hog), Held::start(&["taskset", "-c", "0", "sh", "-c", SPIN])];
        wait_for("the ordinary loop waits", secs(10), || {
            (run_delay(all[1].pid()) > 900_000_000).then_some(())
        });
        let report = check("k14", "8s", &[]);
        all.iter_mut().for_each(Held::assert_running);
        report.exactly(about_cpu, &["cpu-hog-realtime", "runq-latency-idle-elsewhere"], &[]);
        let f = report.the("runq-latency-idle-elsewhere", about_cpu);
        assert_eq!(f.cause(), Some("cpu-hog-realtime"), "{}", f.text());
        let f = report.the("cpu-hog-realtime", about_cpu);
        let name = format!("/{} hogs cpu0 as SCHED_FIFO", all[0].pid());
        assert!(f.text().contains(&name), "{}", f.text());
        let [c] = f.by() else { panic!("one culprit: {}", f.text()) };
        let (pid, share) = culprit(c);
        assert!(pid == all[0].pid() && (85.0..=96.0).contains(&share), "{}", f.text());
        assert_eq!(c["policy"], "SCHED_FIFO", "{}", f.text());
    });
}

/// A loop in a group of weight 2, and one per CPU in a group with the default.
#[test]
fn k15_weight_that_starves() {
    lab(&["setpriv"], || {
        let (small, large) = (Cgroup::new("cpu", "small"), Cgroup::new("cpu", "large"));
        small.set("cpu.shares", "2");
        large.set("cpu.shares", "1024");
        let cpus = std::thread::available_parallelism().unwrap().get();
        let start = |group: &Cgroup| {
            Held::start(&["sh", "-c", &group.enter_and(&format!("sh -c '{SPIN}'"))])
        };
        let mut heavy: Vec<Held> = (0..cpus).map(|_| start(&large)).collect();
        let mut light = start(&small);
        wait_for("the light one waits", secs(20), || {
            (run_delay(light.pid()) > 2_000_000_000).then_some(())
        });
        // After 6 s the cgroups of the threads are known; then it must hold for 4 of 8.
        let report = check("k15", "14s", &[]);
        heavy.iter_mut().for_each(Held::assert_running);
        light.assert_running();
        // A small weight is an annotation by itself; it is why the CPUs are short.
        report.exactly(about_cpu, &["cpu-saturation"], &[]);
        let f = report.the("weight-starved", about_cpu);
        let path = f.subject()["path"].as_str().unwrap();
        assert!(path.ends_with(&small.name), "the group is named: {path}");
        let by = f.by().first().and_then(|c| c["path"].as_str()).unwrap_or_default();
        assert!(by.ends_with(&large.name), "who takes the CPUs: {}", f.text());
        assert!(f.text().contains(&format!("{} (cpu.shares 1024)", large.name)), "{}", f.text());
        let f = report.the("cpu-saturation", about_cpu);
        assert_eq!(f.cause(), Some("weight-starved"), "{}", f.text());
    });
}

/// One busy loop with a quota of 20 ms per 100 ms. Its `run_delay` grows by the throttled
/// time, which must not be taken for a busy run queue.
#[test]
fn k13_quota_of_a_fifth() {
    lab(&["setpriv"], || {
        let group = Cgroup::new("cpu", "quota");
        group.set("cpu.cfs_period_us", "100000");
        group.set("cpu.cfs_quota_us", "20000");
        let line = group.enter_and(&format!("sh -c '{SPIN}'"));
        let mut spinner = Held::start(&["sh", "-c", &line]);
        wait_for("throttled periods", secs(10), || {
            (group.stat("cpu.stat", "nr_throttled")? >= 5).then_some(())
        });
        let delay = run_delay(spinner.pid());
        let [report, fallback] = check_both("k13", "9s");
        spinner.assert_running();
        let waited = run_delay(spinner.pid()) - delay;
        assert!(waited > 3_000_000_000, "run_delay does look like a full queue: {waited} ns");
        report.exactly(about_cpu, &["cfs-throttle"], &[]);
        fallback.exactly(about_cpu, &["cfs-throttle"], &[]);
        let f = report.the("cfs-throttle", about_cpu);
        let path = f.subject()["path"].as_str().unwrap();
        assert!(path.ends_with(&group.name), "the group is named: {path}");
        let [c] = f.by() else { panic!("one culprit: {}", f.text()) };
        let (pid, share) = culprit(c);
        assert!(pid == spinner.pid() && share >= 90.0, "who uses up the quota: {}", f.text());
    });
}

/// A UDP flood from one CPU over a veth: the receive softirq follows the sender's CPU, and a
/// long rule list makes it the bulk of the work. The other CPU idles.
#[test]
fn softirq_on_one_cpu() {
    lab(&["ip", "nft"], || {
        let net = Pair::new();
        let rules = "add rule inet t c udp dport 1 counter\n".repeat(500);
        let chain = "add table inet t\nadd chain inet t c { type filter hook input priority 0; }\n";
        let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-softirq.nft");
        std::fs::write(&file, format!("{chain}{rules}")).unwrap();
        net.b.exec(&["nft", "-f", file.to_str().unwrap()]);
        let sink = net.b.inside(|| UdpSocket::bind(SocketAddrV4::new(B, 9)).unwrap());
        let source = net.a.inside(|| UdpSocket::bind("10.9.0.1:0").unwrap());
        let stop = AtomicBool::new(false);
        let report = std::thread::scope(|s| {
            s.spawn(|| {
                let mut only_first = CpuSet::new();
                only_first.set(0);
                sched_setaffinity(None, &only_first).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let _ = source.send_to(&[0; 64], SocketAddrV4::new(B, 9));
                }
            });
            // Ends the flood also when an assertion fails: the scope joins the thread.
            let _stop = StopOnDrop(&stop);
            wait_for("softirq is most of CPU 0", secs(10), || softirq_share(0));
            check_both("softirq", "10s")
        });
        drop(sink);
        for (report, ebpf) in report.iter().zip([true, false]) {
            report.exactly(
                |f| matches!(f.kind(), "cpu" | "cgroup" | "task" | "host"),
                &["softirq-one-core"],
                // 64-byte datagrams into one core at full speed do exhaust its budget.
                &["softnet-drop-or-squeeze"],
            );
            let f = report.the("softirq-one-core", |_| true);
            assert_eq!(f.subject()["cpu"], 0, "{}", f.text());
            let source = if ebpf { "ebpf" } else { "/proc/stat" };
            assert_eq!((report.source("softirq time"), f.uses_ebpf()), (source, ebpf));
            f.is_by(std::process::id());
            eprintln!("lab: softirq {:?} by {source}", f.evidence("softirq"));
        }
    });
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Some when the CPU spent most of the last half second in softirq: field 7 of its line in
/// `/proc/stat`, over all fields.
fn softirq_share(cpu: u32) -> Option<()> {
    let read = || {
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(&format!("cpu{cpu} "))).unwrap();
        line.split_whitespace().map(|n| n.parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    let before = read();
    let begun = stallscope::clock::mono();
    stallscope::clock::sleep_until(stallscope::sample::time::MonoNs(begun.0 + 500_000_000));
    let spent: Vec<u64> = read().iter().zip(&before).map(|(n, b)| n.saturating_sub(*b)).collect();
    (spent[6] * 100 >= spent.iter().take(8).sum::<u64>() * 65).then_some(())
}
