//! What the live console costs, beside its peers on the same box in the same run.
//!
//! `cargo bench --bench console [-- SECONDS [SOCKETS]]`
//!
//! Each program runs in a pty of 120x40 at one refresh per second. After a warm-up, its CPU
//! time (`/proc/PID/schedstat`, all threads), resident memory, and the bytes and write calls
//! that reached the terminal (`/proc/PID/io`) are taken over SECONDS (default 30). With
//! SOCKETS, so many loopback connections' ends are opened first, and a bare sock_diag dump
//! of the same attributes once per second is measured as the floor. Prints figures and
//! ratios; asserts nothing.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

const WARM_UP: Duration = Duration::from_secs(6);

struct Cost {
    name: String,
    cpu_pct: f64,
    rss_mib: f64,
    bytes_per_s: f64,
    writes_per_s: f64,
    first_paint: Option<Duration>,
}

fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let span = Duration::from_secs(args.first().copied().unwrap_or(30));
    let sockets = args.get(1).copied().unwrap_or(0) as usize;
    let held = open_sockets(sockets);
    println!(
        "box: {} sockets opened, {} s each, 120x40, one refresh per second",
        held.len(),
        span.as_secs()
    );
    let own = env!("CARGO_BIN_EXE_stallscope");
    // btop has no option for it, and refreshes each two seconds if not told otherwise.
    let settings = tempfile::tempdir().unwrap();
    fs::create_dir(settings.path().join("btop")).unwrap();
    fs::write(settings.path().join("btop/btop.conf"), "update_ms = 1000\n").unwrap();
    let measure =
        |name: &str, path: &str, args: &[&str]| measure(name, path, args, span, settings.path());
    let mut costs = vec![measure("stallscope", own, &[])];
    for (name, args) in [("top", &["-d", "1"][..]), ("atop", &["1"]), ("btop", &[])] {
        if let Some(path) = which(name) {
            costs.push(measure(name, &path, args));
        } else {
            println!("{name}: not installed");
        }
    }
    println!(
        "{:<12} {:>9} {:>9} {:>10} {:>9} {:>12}",
        "program", "% of core", "RSS MiB", "bytes/s", "writes/s", "first paint"
    );
    for c in &costs {
        let paint = c.first_paint.map_or("-".into(), |d| format!("{} ms", d.as_millis()));
        println!(
            "{:<12} {:>9.3} {:>9.1} {:>10.0} {:>9.1} {:>12}",
            c.name, c.cpu_pct, c.rss_mib, c.bytes_per_s, c.writes_per_s, paint
        );
    }
    for c in &costs[1..] {
        println!(
            "stallscope / {}: CPU {:.2}x, RSS {:.2}x",
            c.name,
            costs[0].cpu_pct / c.cpu_pct,
            costs[0].rss_mib / c.rss_mib
        );
    }
}

fn measure(name: &str, path: &str, args: &[&str], span: Duration, settings: &Path) -> Cost {
    let pty = native_pty_system()
        .openpty(PtySize { rows: 40, cols: 120, pixel_width: 0, pixel_height: 0 })
        .unwrap();
    let mut cmd = CommandBuilder::new(path);
    cmd.args(args);
    cmd.env("TERM", "xterm-256color");
    cmd.env("LANG", "C.UTF-8");
    cmd.env("XDG_CONFIG_HOME", settings);
    let begun = Instant::now();
    let mut child = pty.slave.spawn_command(cmd).unwrap();
    let painted = drain(pty.master.try_clone_reader().unwrap());
    let first_paint = painted.recv_timeout(Duration::from_secs(5)).ok().map(|t| t - begun);
    thread::sleep(WARM_UP);
    let pid = child.process_id().unwrap();
    let (before, t0) = (usage(pid), Instant::now());
    thread::sleep(span);
    let (after, dt) = (usage(pid), t0.elapsed().as_secs_f64());
    let rss = rss_mib(pid);
    let _ = child.kill();
    let _ = child.wait();
    Cost {
        name: name.into(),
        cpu_pct: (after.0 - before.0) / dt * 100.0,
        rss_mib: rss,
        bytes_per_s: (after.1 - before.1) / dt,
        writes_per_s: (after.2 - before.2) / dt,
        first_paint,
    }
}

/// Reads the terminal so that the program never blocks; reports when the first text with a
/// letter arrived.
fn drain(mut reader: Box<dyn Read + Send>) -> Receiver<Instant> {
    let (tx, rx) = channel();
    thread::spawn(move || {
        let mut buf = vec![0; 65536];
        let mut seen = 0;
        while let Ok(n) = reader.read(&mut buf) {
            if n == 0 {
                return;
            }
            seen += n;
            if seen > 200 {
                let _ = tx.send(Instant::now());
            }
        }
    });
    rx
}

/// CPU seconds, bytes written, write calls.
fn usage(pid: u32) -> (f64, f64, f64) {
    let cpu: f64 = fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .filter_map(|t| fs::read_to_string(t.ok()?.path().join("schedstat")).ok())
        .filter_map(|s| s.split_whitespace().next()?.parse::<f64>().ok())
        .sum();
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let field = |name: &str| {
        io.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<f64>().ok()).unwrap_or(0.0)
    };
    (cpu / 1e9, field("wchar:"), field("syscw:"))
}

fn rss_mib(pid: u32) -> f64 {
    let s = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kb: f64 = s
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok())
        .unwrap_or(0.0);
    kb / 1024.0
}

fn open_sockets(n: usize) -> Vec<(TcpStream, TcpStream)> {
    if n == 0 {
        return Vec::new();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (0..n / 2)
        .map_while(|_| Some((TcpStream::connect(addr).ok()?, listener.accept().ok()?.0)))
        .collect()
}

fn which(name: &str) -> Option<String> {
    std::env::var("PATH")
        .ok()?
        .split(':')
        .map(|d| format!("{d}/{name}"))
        .find(|p| fs::metadata(p).is_ok())
}
