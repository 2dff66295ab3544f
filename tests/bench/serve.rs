//! What a scrape costs: over HTTP from the built program, beside two peers that are asked in the
//! same way in the same run; and how long a page takes to make on big hosts.
//!
//! `cargo bench --bench serve`. Prints medians and sizes; asserts nothing. The peers: a server that
//! answers with as many bytes and does nothing for them, and one that reads, for each scrape, the
//! files of `/proc` that the page is about and sends them as they are, which is the least that an
//! exporter without a memory of its own does.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "../support/mod.rs"]
mod support;

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stallscope::analysis::Analysis;
use stallscope::diagnose::Engine;
use stallscope::openmetrics::{Format, Readings, exposition};
use stallscope::sample::cpu::CpuSample;
use stallscope::sample::sched::{SchedSample, ThreadSched};
use stallscope::sample::subject::{CpuId, TaskId};
use stallscope::sample::tick::{HostInfo, Tick};

use support::exporter::{Answer, Exporter, to_end};
use support::script::{Script, stamp};

/// What is read of `/proc` for the page, but for sockets and tasks.
const FILES: [&str; 14] = [
    "stat",
    "meminfo",
    "vmstat",
    "diskstats",
    "softirqs",
    "net/softnet_stat",
    "schedstat",
    "loadavg",
    "net/dev",
    "net/netstat",
    "net/snmp",
    "net/sockstat",
    "pressure/cpu",
    "pressure/io",
];

fn median(mut us: Vec<f64>) -> f64 {
    us.sort_by(f64::total_cmp);
    us[us.len() / 2]
}

/// One scrape on a connection of its own, us.
fn scrape(at: SocketAddr) -> (f64, Answer) {
    let begun = Instant::now();
    let mut s = TcpStream::connect(at).unwrap();
    let ask = "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\
        Connection: close\r\n\r\n";
    s.write_all(ask.as_bytes()).unwrap();
    let text = to_end(&mut s);
    let us = begun.elapsed().as_secs_f64() * 1e6;
    (us, Answer::read(&text))
}

fn scrapes(at: SocketAddr, n: usize, apart: Duration) -> f64 {
    let one = |_| {
        std::thread::sleep(apart);
        scrape(at).0
    };
    median((0..n).map(one).collect())
}

/// Answers every request with what `body` makes.
fn peer(body: impl Fn() -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let body = body();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&body);
        }
    });
    at
}

fn over_http() {
    let exporter = Exporter::start(&["--interval", "100ms"]);
    exporter.metrics("");
    let fresh = scrapes(exporter.at, 40, Duration::from_millis(130));
    drop(exporter);
    let exporter = Exporter::start(&["--interval", "60s"]);
    let size = exporter.metrics("").body.len();
    let kept = scrapes(exporter.at, 400, Duration::ZERO);
    let idle = peer(move || vec![b'x'; size]);
    let reads = peer(|| {
        let read = |f: &&str| std::fs::read(format!("/proc/{f}")).ok();
        FILES.iter().filter_map(read).flatten().collect()
    });
    let raw = scrape(reads).1.body.len();
    println!("over HTTP, us per scrape (median), bytes");
    println!("{:>44} {fresh:>9.0} {size:>9}", "the first one after a sample");
    println!("{:>44} {kept:>9.0} {size:>9}", "further ones before the next sample");
    let done = scrapes(idle, 400, Duration::ZERO);
    println!("{:>44} {done:>9.0} {size:>9}", "peer: as many bytes, nothing done for them");
    let done = scrapes(reads, 400, Duration::ZERO);
    println!("{:>44} {done:>9.0} {raw:>9}", "peer: reads /proc for each and sends it");
}

fn page() {
    println!("making a page, us (median), bytes");
    for (name, script) in [
        ("three faults", Script { busy: true, ..Script::three_faults() }),
        ("100,000 connections", Script { connections: 100_000, ..Script::three_faults() }),
        ("256 CPUs, 20,000 threads", Script { change: crowd, ..Script::three_faults() }),
    ] {
        let host = HostInfo { page_size: 4096, ..script.host() };
        let mut run = Analysis::lean(host, Engine::default(), 16 << 20);
        let mut readings = Readings::default();
        for n in 0..30 {
            let tick = script.tick(n);
            readings.push(&tick, run.host().netns, run.host().interval);
            run.push(Arc::new(tick));
        }
        let make = || exposition(&run, &readings, Format::OpenMetrics).unwrap();
        let one = |_| {
            let begun = Instant::now();
            black_box(make());
            begun.elapsed().as_secs_f64() * 1e6
        };
        let us = median((0..200).map(one).collect());
        println!("{name:>44} {us:>9.0} {:>9}", make().len());
    }
}

/// Threads that all run, on many CPUs.
fn crowd(t: &mut Tick, n: u64) {
    let cpu = t.samples.cpu.clone().unwrap();
    let cpus = (0..256).map(|i| (CpuId(i), cpu.data.cpus[1].1)).collect();
    t.samples.cpu = Some(stamp(t.mono, CpuSample { cpus, ..cpu.data.clone() }));
    let thread = |i: u32| ThreadSched {
        task: TaskId { pid: 5000 + i / 4, tid: 5000 + i, start: 1 },
        comm: "worker".into(),
        state: 'R',
        run_ns: n * 1_000_000,
        run_delay_ns: n * 10_000,
        slices: n,
        ..ThreadSched::default()
    };
    let threads = (0..20_000).map(thread).collect();
    t.samples.sched = Some(stamp(t.mono, SchedSample { threads, ..SchedSample::default() }));
}

fn main() {
    over_http();
    page();
}
