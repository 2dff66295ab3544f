//! What `stallscope record` costs, beside `atop -w` in the same run on the same box.
//!
//! `cargo bench --bench recorder [-- SECONDS [SOCKETS]]`: 60 seconds of 1 Hz on this box as it
//! is, then SECONDS (60, or a multiple) with SOCKETS (default 10,000) loopback sockets of which
//! 12% are active each second. `-- 600 100000` is the big one. As root everything happens in a
//! network namespace of its own.
//!
//! After a warm-up: CPU time (`/proc/PID/schedstat`, all threads), resident memory (now and at
//! most), growth of the file, and what the recording says of missed ticks. Prints, asserts
//! nothing.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stallscope::clock;
use stallscope::recording::{Event, Reader};

const CHILD: &str = "STALLSCOPE_BENCH_CHILD";
const INSIDE: &str = "STALLSCOPE_BENCH_INSIDE";
const PER_CHILD: usize = 18_000;
const WARM_UP: Duration = Duration::from_secs(10);

fn main() {
    if let Ok(n) = std::env::var(CHILD) {
        return child(n.parse().unwrap());
    }
    let args: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let (span, sockets) =
        (args.first().copied().unwrap_or(60), args.get(1).copied().unwrap_or(10_000));
    if std::env::var(INSIDE).is_err() && in_own_namespace(span, sockets) {
        return;
    }
    println!(
        "{:<22} {:<11} {:>7} {:>8} {:>8} {:>9} {:>9} {:>7}  stores",
        "box", "program", "CPU %", "RSS MiB", "peak", "B/tick", "B/socket", "missed"
    );
    // Whole groups of 60 ticks: each holds one keyframe, which is most of the bytes.
    let groups = span.div_ceil(60).max(1) as u64;
    for (n, groups) in [(0, 1), (sockets, groups)] {
        let held = children(n);
        measure(n, Duration::from_secs(groups * 60));
        drop(held);
    }
}

fn in_own_namespace(span: usize, sockets: usize) -> bool {
    let setup = "ip link set lo up && echo '1024 65535' > /proc/sys/net/ipv4/ip_local_port_range";
    let script = format!("{setup} && exec \"$0\" {span} {sockets}");
    Command::new("unshare")
        .args(["-n", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1")
        .status()
        .is_ok_and(|s| s.success())
}

struct Program {
    name: &'static str,
    stores: &'static str,
    child: Child,
    file: std::path::PathBuf,
}

fn start(dir: &Path) -> Vec<Program> {
    let (ours, theirs) = (dir.join("box.stall"), dir.join("box.atop"));
    let quiet = |c: &mut Command| {
        c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let mut record = Command::new(env!("CARGO_BIN_EXE_stallscope"));
    let mut out = vec![Program {
        name: "stallscope",
        stores: "every socket (tcp_info of all below 1,000, of suspects above), disks, CPUs, softirqs, threads' run-queue waits, cgroups, \
                 protocol counters, pressure, memory, eBPF histograms",
        child: quiet(record.args(["record", "-o"]).arg(&ours)).unwrap(),
        file: ours,
    }];
    let mut atop = Command::new("atop");
    if let Ok(child) = quiet(atop.arg("-w").arg(&theirs).arg("1")) {
        out.push(Program {
            name: "atop -w",
            stores: "every process, disks, CPUs, memory, interfaces, pressure; no sockets, no \
                     softirq vectors, no run-queue waits",
            child,
            file: theirs,
        });
    }
    out
}

fn measure(sockets: usize, span: Duration) {
    let dir = tempfile::tempdir().unwrap();
    let mut all = start(dir.path());
    wait(WARM_UP);
    let state = |p: &Program| (cpu(p.child.id()), fs::metadata(&p.file).map_or(0, |m| m.len()));
    let before: Vec<_> = all.iter().map(state).collect();
    let begun = clock::mono();
    wait(span);
    let after: Vec<_> = all.iter().map(state).collect();
    let dt = clock::mono().since(begun).as_secs_f64();
    for (p, (b, a)) in all.iter_mut().zip(before.iter().zip(&after)) {
        let (rss, peak) = (mib(p.child.id(), "VmRSS:"), mib(p.child.id(), "VmHWM:"));
        let per_tick = (a.1 - b.1) as f64 / dt;
        stop(&mut p.child);
        let per_socket = if sockets > 0 && p.name == "stallscope" {
            format!("{:.2}", per_tick / sockets as f64)
        } else {
            "-".to_owned()
        };
        let ours = p.name == "stallscope";
        let missed = if ours { missed(&p.file) } else { "-".to_owned() };
        if ours {
            assert!(rows(&p.file) >= sockets, "all sockets are in the recording");
        }
        println!(
            "{:<22} {:<11} {:>7.2} {rss:>8.1} {peak:>8.1} {per_tick:>9.0} {per_socket:>9} {missed:>7}  {}",
            if sockets == 0 { "as it is".to_owned() } else { format!("{sockets} sockets") },
            p.name,
            (a.0 - b.0) / dt * 100.0,
            p.stores,
        );
    }
}

/// Ticks that the source or the recorder left out.
fn missed(file: &Path) -> String {
    let Ok(mut r) = Reader::file(file) else { return "?".to_owned() };
    let mut n = 0;
    for g in 0..r.groups().len() {
        for x in &r.index(g).unwrap().events {
            n += match x.event {
                Event::Gap { ticks } => u64::from(ticks),
                Event::Dropped { ticks, .. } => ticks,
                _ => 0,
            };
        }
    }
    n.to_string()
}

/// Sockets in the last tick that has them.
fn rows(file: &Path) -> usize {
    let mut r = Reader::file(file).unwrap();
    let sample = (0..r.len()).rev().find_map(|i| r.tick(i).ok()?.samples.sockets.clone());
    sample.map_or(0, |s| s.data.spaces.iter().map(|t| t.inet.len()).sum())
}

fn wait(d: Duration) {
    clock::sleep_until(clock::mono() + d);
}

fn stop(child: &mut Child) {
    let pid = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    let _ = child.wait();
}

/// CPU seconds of all threads.
fn cpu(pid: u32) -> f64 {
    let ns: f64 = fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .filter_map(|t| fs::read_to_string(t.ok()?.path().join("schedstat")).ok())
        .filter_map(|s| s.split_whitespace().next()?.parse::<f64>().ok())
        .sum();
    ns / 1e9
}

fn mib(pid: u32, field: &str) -> f64 {
    let s = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kb = s.lines().find_map(|l| l.strip_prefix(field)?.trim().strip_suffix("kB"));
    kb.and_then(|k| k.trim().parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Holds loopback connections and uses 12% of them each second, until stdin closes.
fn child(sockets: usize) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, all);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let mut pairs: Vec<(TcpStream, TcpStream)> = (0..sockets / 2)
        .map(|_| {
            let a = TcpStream::connect(addr).unwrap();
            (a, listener.accept().unwrap().0)
        })
        .collect();
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let mut random = 88_172_645_463_325_252_u64;
    let mut buf = [0; 512];
    let mut next = clock::mono();
    loop {
        for _ in 0..sockets * 12 / 200 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let n = pairs.len() as u64;
            let (a, b) = &mut pairs[(random % n) as usize];
            let len = 1 + (random >> 32) as usize % 500;
            a.write_all(&buf[..len]).unwrap();
            let _ = b.read(&mut buf).unwrap();
        }
        next = next + Duration::from_secs(1);
        clock::sleep_until(next);
    }
}

struct Held(Vec<Child>);

impl Drop for Held {
    fn drop(&mut self) {
        for c in &mut self.0 {
            drop(c.stdin.take());
            let _ = c.wait();
        }
    }
}

fn children(mut sockets: usize) -> Held {
    let mut out = Vec::new();
    while sockets > 0 {
        let n = sockets.min(PER_CHILD);
        sockets -= n;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(CHILD, n.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "ready");
        out.push(child);
    }
    Held(out)
}
