//! The machine as a whole: too much to run, nothing to run, too many hand-overs, no memory.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{CpuSet, sched_setaffinity};
use stallscope::clock;
use stallscope::sample::time::MonoNs;

use crate::kit::block::{Dir, FrozenDisk};
use crate::kit::cgroup::Cgroup;
use crate::kit::gate::lab;
use crate::kit::product::{Found, check};
use crate::kit::sh::Held;
use crate::kit::{secs, wait_for};

fn about_the_host(f: Found<'_>) -> bool {
    matches!(f.kind(), "task" | "cgroup" | "cpu" | "host")
}

fn cpus() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

/// The number after `key` in a file of the kernel.
fn number_after(file: &str, key: &str) -> f64 {
    let text = std::fs::read_to_string(file).unwrap();
    let rest = text.split_once(key).unwrap_or_else(|| panic!("no {key} in {file}")).1;
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// us of a line of a pressure file.
fn pressure(what: &str, line: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/pressure/{what}")).unwrap();
    let line = text.lines().find(|l| l.starts_with(line)).unwrap();
    line.rsplit_once('=').unwrap().1.parse().unwrap()
}

/// Waits until `read` grows by `per_second` or more.
fn wait_for_rate(what: &str, per_second: f64, read: impl Fn() -> f64) {
    let (mut before, mut at) = (read(), stallscope::clock::mono());
    wait_for(what, secs(20), || {
        let (now, then) = (stallscope::clock::mono(), at);
        let dt = now.since(then).as_secs_f64();
        if dt < 1.0 {
            return None;
        }
        let rate = (read() - before) / dt;
        (before, at) = (read(), now);
        (rate >= per_second).then_some(())
    });
}

/// Three busy loops per CPU, free to run anywhere.
#[test]
fn spinners_on_every_cpu() {
    lab(&["setpriv"], || {
        let mut spinners: Vec<Held> =
            (0..3 * cpus()).map(|_| Held::start(&["sh", "-c", "while :; do :; done"])).collect();
        wait_for_rate("tasks wait for a CPU half of the time", 500_000.0, || {
            pressure("cpu", "some")
        });
        let report = check("spinners", "12s", &[]);
        spinners.iter_mut().for_each(Held::assert_running);
        report.exactly(about_the_host, &["cpu-saturation"], &[]);
    });
}

/// Many writers wait for a frozen file system: the load climbs while the CPUs idle.
#[test]
fn k9_many_writers() {
    lab(&["losetup", "mkfs.ext4", "mount", "fsfreeze", "dd"], || {
        let mut frozen = FrozenDisk::new();
        (0..24 * cpus()).for_each(|i| frozen.write(i));
        let enough = 2.2 * cpus() as f64;
        wait_for("a load of two per CPU", secs(90), || {
            (number_after("/proc/loadavg", "") >= enough).then_some(())
        });
        let report = check("k9-many", "14s", &[]);
        frozen.writers.iter_mut().for_each(Held::assert_running);
        report.exactly(|f| f.kind() == "host", &["load-without-cpu"], &[]);
        report.exactly(|f| f.disk() == Some(frozen.disk.name()), &["disk-hung"], &[]);
        let f = report.the("load-without-cpu", |_| true);
        assert!(f.text().contains("tasks in "), "names what they wait in: {}", f.text());
    });
}

/// A byte to and fro between two threads on one CPU, on every CPU.
#[test]
fn pipe_ping_pong() {
    lab(&[], || {
        let (report, switches) = std::thread::scope(|s| {
            let mut ends = Vec::new();
            for cpu in 0..cpus() {
                let (mut a_in, b_out) = std::io::pipe().unwrap();
                let (mut b_in, mut serve) = std::io::pipe().unwrap();
                let mut back = b_out.try_clone().unwrap();
                // For the first byte and the last.
                ends.push(b_out);
                let pin = move || {
                    let mut set = CpuSet::new();
                    set.set(cpu);
                    sched_setaffinity(None, &set).unwrap();
                };
                s.spawn(move || {
                    pin();
                    let mut b = [0];
                    while a_in.read(&mut b).is_ok_and(|n| n == 1 && b[0] != 9) {
                        let _ = serve.write_all(&b);
                    }
                    let _ = serve.write_all(&[9]);
                });
                s.spawn(move || {
                    pin();
                    let mut b = [0];
                    while b_in.read(&mut b).is_ok_and(|n| n == 1 && b[0] != 9) {
                        let _ = back.write_all(&b);
                    }
                    let _ = back.write_all(&[9]);
                });
            }
            let _stop = Stop(&ends);
            for mut e in &ends {
                e.write_all(&[1]).unwrap();
            }
            let ctxt = || number_after("/proc/stat", "\nctxt ");
            wait_for_rate("30k switches/s per CPU", 30_000.0 * cpus() as f64, ctxt);
            let over = AtomicBool::new(false);
            let (report, readings) = std::thread::scope(|s| {
                let watch = s.spawn(|| {
                    let mut all = vec![(clock::mono(), ctxt())];
                    while !over.load(Ordering::Relaxed) {
                        clock::sleep_until(MonoNs(clock::mono().0 + 250_000_000));
                        all.push((clock::mono(), ctxt()));
                    }
                    all
                });
                let over = EndWatch(&over);
                let report = check("ping-pong", "9s", &[]);
                drop(over);
                (report, watch.join().unwrap())
            });
            (report, by_second(&readings))
        });
        report.exactly(|f| f.kind() == "host", &["ctx-switch-storm"], &["cpu-saturation"]);
        let f = report.the("ctx-switch-storm", |_| true);
        let shown = f.number("ctxt");
        // Of which second it is we do not know; what a host does in one depends on its neighbours.
        let least = switches.iter().copied().fold(f64::INFINITY, f64::min);
        let most = switches.iter().copied().fold(0.0, f64::max);
        let range = 0.95 * least..=1.05 * most;
        assert!(switches.len() >= 20 && range.contains(&shown), "{shown} outside of {range:?}");
    });
}

/// Sets it when dropped, so that the watch ends even when the check fails.
struct EndWatch<'a>(&'a AtomicBool);

impl Drop for EndWatch<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The rate of a counter over a second from each reading on.
fn by_second(readings: &[(MonoNs, f64)]) -> Vec<f64> {
    let later =
        |(at, _): &(MonoNs, f64), end: &&(MonoNs, f64)| end.0.since(*at).as_secs_f64() >= 1.0;
    let rate = |(i, a): (usize, &(MonoNs, f64))| {
        let b = readings[i..].iter().find(|b| later(a, b))?;
        Some((b.1 - a.1) / b.0.since(a.0).as_secs_f64())
    };
    readings.iter().enumerate().filter_map(rate).collect()
}

/// Sends the byte that ends a pair, also after a failed assertion: the scope joins them.
struct Stop<'a>(&'a [std::io::PipeWriter]);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        for mut e in self.0 {
            let _ = e.write_all(&[9]);
        }
    }
}

/// Buffered writers in a cgroup of 8 MiB: their own page cache fills it, and every page that
/// they dirty has to be reclaimed first.
#[test]
fn buffered_writers_in_a_small_cgroup() {
    lab(&["dd", "setpriv"], || {
        let dir = Dir::new();
        let group = Cgroup::new("memory", "small");
        group.set("memory.limit_in_bytes", "8M");
        let mut writers: Vec<Held> = (0..4)
            .map(|i| {
                let file = dir.path.join(format!("f{i}")).display().to_string();
                let dd = format!("dd if=/dev/zero of={file} bs=1M count=100 conv=notrunc");
                let line = group.enter_and(&format!("sh -c 'while :; do {dd} 2>/dev/null; done'"));
                Held::start(&["sh", "-c", &line])
            })
            .collect();
        wait_for_rate("all wait for memory an eighth of the time", 125_000.0, || {
            pressure("memory", "full")
        });
        let report = check("mem-stall", "12s", &[]);
        writers.iter_mut().for_each(Held::assert_running);
        // Reclaim hands over to flusher threads for every few pages.
        report.exactly(|f| f.kind() == "host", &["mem-stall"], &["ctx-switch-storm"]);
        let f = report.the("mem-stall", |_| true);
        assert!(f.text().contains(&group.name), "the group is named: {}", f.text());
    });
}
