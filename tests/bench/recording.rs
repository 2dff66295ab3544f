//! What a recording costs: bytes and CPU per tick of the real collectors, and how long it takes
//! to find a tick again. Prints, asserts nothing about time.
//!
//! `cargo bench --bench recording -- idle 60`: this box as it is, that many ticks of 1 s.
//! `cargo bench --bench recording -- sockets 10000 30`: that many loopback sockets in a network
//! namespace of their own, 12% of them active in each tick. `sockets 10000 30 late`: a
//! quarter of the readers read a tick later; `sockets 10000 30 dead`: never.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use stallscope::clock;
use stallscope::collect::{CollectOptions, HostFs};
use stallscope::recording::{Reader, TickSummary, Writer};
use stallscope::source::{Event, live};

const INSIDE: &str = "STALLSCOPE_BENCH_INSIDE";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |i: usize, or: usize| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(or);
    match args.first().map(String::as_str) {
        Some("read") => read(Path::new(&args[1])),
        Some("sockets") => {
            if std::env::var(INSIDE).is_err() {
                return inside(&args);
            }
            let readers = match args.get(3).map(String::as_str) {
                None => Readers::Prompt,
                Some("late") => Readers::Late,
                Some("dead") => Readers::Dead,
                Some(other) => panic!("readers are late or dead, not {other}"),
            };
            sockets(number(1, 10_000), number(2, 30), readers);
        }
        _ => record(&mut Box::new(|| ()), number(1, 30), 0),
    }
}

/// Runs this program again in a network namespace of its own.
fn inside(args: &[String]) {
    let setup = "ip link set lo up && echo '1024 65535' > /proc/sys/net/ipv4/ip_local_port_range";
    let script = format!("{setup} && exec \"$0\" {}", args.join(" "));
    let exe = std::env::current_exe().unwrap();
    Command::new("unshare")
        .args(["-n", "sh", "-c", &script])
        .arg(exe)
        .env(INSIDE, "1")
        .status()
        .unwrap();
}

/// When a quarter of the readers read what was sent to them; the others do at once.
enum Readers {
    Prompt,
    /// A tick later.
    Late,
    Dead,
}

fn sockets(count: usize, ticks: usize, readers: Readers) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let mut pairs = Vec::new();
    for _ in 0..count / 2 {
        let a = TcpStream::connect(addr).unwrap();
        let b = listener.accept().unwrap().0;
        b.set_nonblocking(true).unwrap();
        pairs.push((a, b));
    }
    let (mut next, mut buf, mut late) = (0, [0; 4096], Vec::new());
    let mut active = Box::new(move || {
        for i in late.drain(..) {
            let (_, b): &mut (TcpStream, TcpStream) = &mut pairs[i];
            while b.read(&mut buf).is_ok_and(|n| n > 0) {}
        }
        // Both ends of a connection count: 12% of the sockets are 12% of the pairs.
        for k in 0..pairs.len() * 12 / 100 {
            let i = next % pairs.len();
            let (a, b) = &mut pairs[i];
            a.write_all(&buf[..100 + k % 900]).unwrap();
            match readers {
                Readers::Dead if i % 4 == 0 => {}
                Readers::Late if i % 4 == 0 => late.push(i),
                _ => while b.read(&mut buf).is_ok_and(|n| n > 0) {},
            }
            next += 7;
        }
    });
    record(&mut active, ticks, count);
}

fn record(between: &mut Box<impl FnMut()>, ticks: usize, sockets: usize) {
    let opts = CollectOptions::default();
    let mut feed = live::start(&HostFs::live(), &opts, Duration::from_secs(1)).unwrap();
    let mut w = Writer::new(Vec::new(), &feed.host).unwrap();
    let (mut cpu, mut keyframes, mut deltas) = (Duration::ZERO, Vec::new(), Vec::new());
    let mut worst = Duration::ZERO;
    let mut kept = Vec::new();
    for n in 0..ticks + 3 {
        let Some(Event::Tick(tick)) = feed.events.blocking_recv() else { break };
        between();
        if n < 3 {
            continue;
        }
        let begun = clock::thread_cpu();
        let written = w.tick(&tick, &TickSummary::default()).unwrap();
        let took = clock::thread_cpu().saturating_sub(begun);
        cpu += took;
        worst = worst.max(took);
        let list = if written.keyframe { &mut keyframes } else { &mut deltas };
        list.push(written.bytes);
        if kept.len() < 5 {
            kept.push(tick);
        }
    }
    let bytes = w.seal().unwrap();
    deltas.sort_unstable();
    let mid = deltas.get(deltas.len() / 2).copied().unwrap_or(0);
    let sum: u64 = keyframes.iter().chain(&deltas).sum();
    let n = keyframes.len() + deltas.len();
    // As it is in the long run: one keyframe in sixty ticks, and its index.
    let key = keyframes.iter().sum::<u64>() as f64 / keyframes.len() as f64;
    let mean = deltas.iter().sum::<u64>() as f64 / deltas.len() as f64;
    let long = (key + 59.0 * mean + 700.0) / 60.0;
    println!("{n} ticks, {sum} bytes; keyframe {key:.0}, delta mean {mean:.0} median {mid}");
    println!("long run {long:.0} bytes/tick; CPU {:?}/tick, worst {worst:?}", cpu / n as u32);
    if sockets > 0 {
        println!("{:.3} bytes per socket-sample", long / sockets as f64);
    }
    std::fs::write("/tmp/bench.stall", &bytes).unwrap();
    read(Path::new("/tmp/bench.stall"));
}

fn read(path: &Path) {
    let begun = clock::mono();
    let mut r = Reader::file(path).unwrap();
    println!("open {:?}: {} ticks", clock::mono().since(begun), r.len());
    let mut steps = Vec::new();
    for i in 0..r.len() {
        let begun = clock::mono();
        r.tick(i).unwrap();
        steps.push(clock::mono().since(begun));
    }
    let mut seeks = Vec::new();
    let mut at = 1u64;
    for _ in 0..200 {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let begun = clock::mono();
        r.tick((at >> 20) % r.len()).unwrap();
        seeks.push(clock::mono().since(begun));
    }
    for (what, list) in [("step", &mut steps), ("seek", &mut seeks)] {
        list.sort_unstable();
        let p = |q: usize| list[(list.len() * q / 100).min(list.len() - 1)];
        println!("{what}: p50 {:?} p99 {:?}", p(50), p(99));
    }
    let survey = r.survey().unwrap();
    let raw = survey.raw_bytes.max(1);
    println!(
        "keyframes {} deltas {} other {}; raw {raw}",
        survey.keyframe_bytes, survey.delta_bytes, survey.other_bytes
    );
    let mut sections: Vec<_> = survey.sections.iter().collect();
    sections.sort_by_key(|s| std::cmp::Reverse(*s.1));
    for (name, bytes) in sections {
        println!("{name:>15} {:>7} raw bytes/tick", bytes / survey.ticks.max(1));
    }
}
