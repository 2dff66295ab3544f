//! What the kernel programs cost: `cargo bench --bench bpf` as root.
//!
//! Whole-system cost per context switch: two threads on one CPU play ping-pong through pipes;
//! variants take turns round by round, and each is compared with the round's own base. Beside
//! it, ns per run as `kernel.bpf_stats_enabled` counts them (about 50 ns of that are its own
//! clock readings: compare with the empty program). libbpf-tools' `runqlat` takes part when it
//! is in PATH or in $RUNQLAT.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use aya::programs::{BtfTracePoint, Program, RawTracePoint, TracePoint};
use rustix::thread::{CpuSet, sched_setaffinity};
use stallscope::clock;
use stallscope::collect::bpf::block::BlockBpf;
use stallscope::collect::bpf::irq::IrqBpf;
use stallscope::collect::bpf::net::NetBpf;
use stallscope::collect::bpf::runq::RunqBpf;
use stallscope::collect::{CollectOptions, Collector, HostFs, Interest, SampleContext};

const CPU: usize = 1;
const TRIPS: u32 = 40_000;
const ROUNDS: usize = 11;

fn pin() {
    let mut set = CpuSet::new();
    set.set(CPU);
    sched_setaffinity(None, &set).unwrap();
}

/// ns per one-way switch.
fn ping_pong() -> f64 {
    let (mut a_rx, mut b_tx) = std::io::pipe().unwrap();
    let (mut b_rx, mut a_tx) = std::io::pipe().unwrap();
    let echo = std::thread::spawn(move || {
        pin();
        let mut byte = [0];
        while b_rx.read_exact(&mut byte).is_ok() && b_tx.write_all(&byte).is_ok() {}
    });
    pin();
    let mut byte = [0];
    let begun = clock::mono();
    for _ in 0..TRIPS {
        a_tx.write_all(&byte).unwrap();
        a_rx.read_exact(&mut byte).unwrap();
    }
    let took = clock::mono().since(begun);
    drop(a_tx);
    echo.join().unwrap();
    took.as_nanos() as f64 / f64::from(TRIPS * 2)
}

enum Held {
    None,
    Runq(Box<RunqBpf>),
    Tool(Child),
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Self::Tool(c) = self {
            let _ = c.kill();
            let _ = c.wait();
        }
    }
}

fn tool() -> Option<String> {
    let named = std::env::var("RUNQLAT").ok();
    named.or_else(|| {
        let found = Command::new("runqlat").arg("--version").output();
        found.is_ok_and(|o| o.status.success()).then(|| "runqlat".to_owned())
    })
}

fn start(variant: &str) -> Held {
    let (host, opts) = (HostFs::live(), CollectOptions::default());
    match variant {
        "empty program" => {
            let mut c = RunqBpf::open_empty(&host, &opts).unwrap();
            let _ = &mut c;
            Held::Runq(Box::new(c))
        }
        "stallscope" => Held::Runq(Box::new(RunqBpf::open(&host, &opts).unwrap())),
        "stallscope, wakeups" => Held::Runq(Box::new(RunqBpf::open_tier_b(&host, &opts).unwrap())),
        "runqlat" => {
            let mut c = Command::new(tool().unwrap());
            let c = c.args(["1000", "1"]).stdout(Stdio::null()).stderr(Stdio::null());
            let c = c.spawn().unwrap();
            clock::sleep_until(clock::mono() + Duration::from_millis(800));
            Held::Tool(c)
        }
        _ => Held::None,
    }
}

fn median(v: &mut [f64]) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

fn system_cost() {
    let mut variants = vec!["base", "empty program", "stallscope", "stallscope, wakeups"];
    if tool().is_some() {
        variants.push("runqlat");
    }
    let mut deltas = vec![Vec::new(); variants.len()];
    let mut base = Vec::new();
    for round in 0..ROUNDS {
        let mut got = vec![0.0; variants.len()];
        for i in 0..variants.len() {
            // Another one goes first each round.
            let v = (i + round) % variants.len();
            let _held = start(variants[v]);
            ping_pong();
            got[v] = ping_pong();
        }
        for (d, g) in deltas.iter_mut().zip(&got) {
            d.push(g - got[0]);
        }
        base.push(got[0]);
    }
    println!("per switch, median of {ROUNDS} differences to base ({:.0} ns):", median(&mut base));
    for (v, d) in variants.iter().zip(&mut deltas).skip(1) {
        println!(
            "  {v:<22} +{:.0} ns (least {:.0})",
            median(d),
            d.iter().copied().fold(f64::MAX, f64::min)
        );
    }
}

/// ns per run of each program while `load` runs.
fn per_run(ebpf: &mut aya::Ebpf, names: &[&str], load: impl FnOnce()) {
    load();
    for name in names {
        let info = match ebpf.program(name).unwrap() {
            Program::BtfTracePoint(p) => p.info(),
            Program::RawTracePoint(p) => p.info(),
            Program::TracePoint(p) => p.info(),
            _ => continue,
        };
        let Ok(info) = info else { continue };
        let runs = info.run_count();
        if runs > 0 {
            let ns = info.run_time().as_nanos() as f64 / runs as f64;
            println!("  {name:<22} {ns:>5.0} ns/run  {runs:>8} runs");
        }
    }
    let _ = (size_of::<BtfTracePoint>(), size_of::<RawTracePoint>(), size_of::<TracePoint>());
}

fn read_cost<C: Collector>(c: &mut C) -> f64 {
    let interest = Interest::default();
    let mut all = Vec::new();
    for _ in 0..200 {
        let at = clock::mono();
        let cx = SampleContext { at, interval: Duration::from_secs(1), interest: &interest };
        let begun = clock::mono();
        drop(c.sample(&cx));
        all.push(clock::mono().since(begun).as_nanos() as f64 / 1000.0);
    }
    median(&mut all)
}

fn rss_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn main() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    let (host, opts) = (HostFs::live(), CollectOptions::default());
    let before = rss_kib();
    let begun = clock::mono();
    let mut runq = RunqBpf::open(&host, &opts).unwrap();
    let mut irq = IrqBpf::open(&host, &opts).unwrap();
    let mut block = BlockBpf::open(&host, &opts).unwrap();
    let mut net = NetBpf::open(&host, &opts).unwrap();
    println!("load and attach all: {:?}", clock::mono().since(begun));
    let costs =
        [read_cost(&mut runq), read_cost(&mut irq), read_cost(&mut block), read_cost(&mut net)];
    println!(
        "one reading, us: runq {:.1}, irq {:.1}, block {:.1}, net {:.1}",
        costs[0], costs[1], costs[2], costs[3]
    );
    println!("resident: +{} KiB", rss_kib().saturating_sub(before));
    drop((runq, irq, block, net));

    system_cost();

    println!("ns per run, with about 50 ns of the measuring itself:");
    let _stats = aya::sys::enable_stats(aya::sys::Stats::RunTime).unwrap();
    let pong = || {
        ping_pong();
    };
    per_run(RunqBpf::open_empty(&host, &opts).unwrap().ebpf(), &["empty"], pong);
    per_run(RunqBpf::open(&host, &opts).unwrap().ebpf(), &["runq"], pong);
    let names = ["runq_wakeup", "runq_wakeup_new", "runq_switch"];
    per_run(RunqBpf::open_tier_b(&host, &opts).unwrap().ebpf(), &names, pong);
    let udp = || {
        let rx = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let tx = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut buf = [0; 64];
        for _ in 0..50_000 {
            tx.send_to(&buf, rx.local_addr().unwrap()).unwrap();
            rx.recv(&mut buf).unwrap();
        }
    };
    let names = ["softirq_entry", "softirq_exit", "hardirq_entry", "hardirq_exit"];
    per_run(IrqBpf::open(&host, &opts).unwrap().ebpf(), &names, udp);
    let write = || {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("bpf-bench");
        for _ in 0..300 {
            std::fs::write(&path, [1u8; 4096]).unwrap();
            std::fs::File::open(&path).unwrap().sync_all().unwrap();
        }
        let _ = std::fs::remove_file(path);
    };
    let names = ["block_complete", "block_requeue", "block_split"];
    per_run(BlockBpf::open(&host, &opts).unwrap().ebpf(), &names, write);
    let refused = || {
        for _ in 0..5000 {
            let _ = std::net::TcpStream::connect("127.0.0.1:9");
        }
    };
    let names = ["tcp_send_reset", "tcp_receive_reset", "drop_skb"];
    per_run(NetBpf::open(&host, &opts).unwrap().ebpf(), &names, refused);
}
