//! What going through a recording costs: opening, the timeline, seeks, steps, cutting a
//! part out, judging. Prints, asserts nothing.
//!
//! `cargo bench --bench replay [-- FILE]`. Without a file a synthetic one is made, once:
//! `STALLSCOPE_BENCH_SOCKETS` sockets (default 1000), `STALLSCOPE_BENCH_HOURS` (default 2),
//! one tick a second, 12% of the sockets active in each, all with their `tcp_info`; kept in the
//! temporary directory. A day of 10,000 sockets takes some minutes to make: each CPU encodes a
//! stretch of it, tick by tick.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stallscope::analysis::Analysis;
use stallscope::clock;
use stallscope::diagnose::Engine;
use stallscope::playback::outline::outline;
use stallscope::playback::player::{Origin, Player};
use stallscope::playback::seek::Judge;
use stallscope::playback::tape::Tape;
use stallscope::recording::tools::export::copy;
use stallscope::recording::{ActiveFinding, Reader, TickSummary, Writer};
use stallscope::sample::cpu::{CpuSample, CpuTimes};
use stallscope::sample::sockets::{
    InetRows, NetnsTable, Proto, SockState, SockTimer, SocketsSample, TcpInfo, map_v4,
};
use stallscope::sample::subject::{CpuId, NetnsId};
use stallscope::sample::tick::{HostInfo, Tick};
use stallscope::sample::time::{MonoNs, Seq, Span, WallNs};
use stallscope::sample::{Samples, Stamped};

fn main() {
    let file = std::env::args().skip(1).find(|a| !a.starts_with("--"));
    let file = file.map_or_else(synthetic, PathBuf::from);
    let size = std::fs::metadata(&file).unwrap().len();
    let begun = clock::mono();
    let mut r = Reader::file(&file).unwrap();
    let opened = clock::mono().since(begun);
    println!(
        "{}: {:.1} MB, {} ticks, {} groups",
        file.display(),
        size as f64 / 1e6,
        r.len(),
        r.groups().len()
    );
    let begun = clock::mono();
    r.tick(0).unwrap();
    println!("open {opened:?}, first tick {:?}", clock::mono().since(begun));
    without_trailer(&file, size);

    let begun = clock::mono();
    let o = outline(&mut Reader::file(&file).unwrap());
    println!(
        "timeline, with opening: {:?} ({} findings, {} groups)",
        clock::mono().since(begun),
        o.spells.len(),
        o.stretches.len()
    );
    seeks(&file);
    cut(&file);
    judging(&file);
}

fn without_trailer(file: &Path, size: u64) {
    let torn = file.with_extension("torn");
    std::fs::copy(file, &torn).unwrap();
    std::fs::File::options().write(true).open(&torn).unwrap().set_len(size - 100).unwrap();
    let begun = clock::mono();
    let mut r = Reader::file(&torn).unwrap();
    r.tick(0).unwrap();
    println!("open without its trailer, and first tick: {:?}", clock::mono().since(begun));
    drop(r);
    let all = (0..21).map(|_| {
        let begun = clock::mono();
        let origin = Origin::File(torn.clone());
        let mut player = Player::open(origin, false).unwrap();
        player.glance(0).unwrap();
        clock::mono().since(begun)
    });
    percentiles("the console's first picture without a trailer, but for drawing", all.collect());
    std::fs::remove_file(&torn).unwrap();
}

fn percentiles(name: &str, mut all: Vec<Duration>) {
    all.sort_unstable();
    let at = |p: usize| all[(all.len() * p / 100).min(all.len() - 1)];
    println!("{name}: p50 {:?} p99 {:?} max {:?} of {}", at(50), at(99), at(100), all.len());
}

fn seeks(file: &Path) {
    let mut r = Reader::file(file).unwrap();
    let n = r.len();
    let mut dice = 0x9E37_79B9_7F4A_7C15_u64;
    let mut roll = || {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice
    };
    let mut took = Vec::new();
    for _ in 0..200 {
        let to = roll() % n;
        let begun = clock::mono();
        r.tick(to).unwrap();
        took.push(clock::mono().since(begun));
    }
    percentiles("seek to a tick, warm", took);
    let from = n / 3 / 60 * 60 + 1;
    let far = (from + STEPS).min(n);
    percentiles("step, as `check` does", steps(&mut r, from..far, None));
    // As the console does: with the next group's first tick decoded ahead of time.
    r.read_ahead();
    percentiles("step, back to back", steps(&mut r, from..far, None));
    percentiles("step, 30 a second", steps(&mut r, from..far, Some(KEY_REPEAT)));
    percentiles("step back, back to back", steps(&mut r, (from..far).rev(), None));
    percentiles("step back, 30 a second", steps(&mut r, (from..far).rev(), Some(KEY_REPEAT)));
    // What the console shows first: the tick with rates and a first judgement.
    let mut judge = Judge::new(Tape::new(Reader::file(file).unwrap()), Engine::default());
    let mut took = Vec::new();
    for _ in 0..100 {
        let to = roll() % n;
        let begun = clock::mono();
        judge.quick(to, 1).unwrap();
        took.push(clock::mono().since(begun));
    }
    percentiles("seek to a first picture", took);
}

/// Ticks of some groups.
const STEPS: u64 = 600;
/// A key that is held down.
const KEY_REPEAT: Duration = Duration::from_millis(33);

/// Goes to those ticks one by one; how long each took. `pace`: one in so long.
fn steps(
    r: &mut Reader,
    ticks: impl Iterator<Item = u64>,
    pace: Option<Duration>,
) -> Vec<Duration> {
    let mut took = Vec::new();
    let mut due = clock::mono();
    for t in ticks {
        let begun = clock::mono();
        r.tick(t).unwrap();
        took.push(clock::mono().since(begun));
        if let Some(pace) = pace {
            due = due + pace;
            clock::sleep_until(due);
        }
    }
    took
}

fn cut(file: &Path) {
    let mut r = Reader::file(file).unwrap();
    let mid = r.tick_ref(r.len() / 2).unwrap().at.wall;
    let out = file.with_extension("part");
    let _ = std::fs::remove_file(&out);
    let begun = clock::mono();
    let r = Reader::file(file).unwrap();
    let f = stallscope::recording::tools::export::Output::create(&out).unwrap();
    let (_, done) = copy(&r, f.file(), mid, WallNs(mid.0 + 600_000_000_000), |_, _| ()).unwrap();
    println!(
        "cut 10 minutes, with opening: {:?} ({} ticks)",
        clock::mono().since(begun),
        done.ticks
    );
    std::fs::remove_file(&out).unwrap();
}

fn judging(file: &Path) {
    let mut judge = Judge::new(Tape::new(Reader::file(file).unwrap()), Engine::default());
    let n = judge.tape().len().min(3600);
    let begun = clock::mono();
    judge.advance(n);
    let all = clock::mono().since(begun);
    println!("judging: {:?} a tick ({n} ticks in {all:?})", all / n as u32);
    let begun = clock::mono();
    let run: Analysis = judge.exact(n - 7, &mut || false).unwrap();
    println!(
        "exact seek behind the pass: {:?} ({} ticks read, {} in memory)",
        clock::mono().since(begun),
        judge.cost(n - 7),
        run.history().len()
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or(""));
}

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(or)
}

/// A host with many connections, of which some talk and one stalls at times.
fn synthetic() -> PathBuf {
    let sockets = number("STALLSCOPE_BENCH_SOCKETS", 1000);
    let hours = number("STALLSCOPE_BENCH_HOURS", 2);
    let path = std::env::temp_dir().join(format!("stallscope-bench-{sockets}-{hours}h.stall"));
    if path.exists() {
        return path;
    }
    let host = HostInfo {
        hostname: "bench".into(),
        kernel: "6.12.0".into(),
        cpus: 4,
        interval: Duration::from_secs(1),
        netns: Some(NetnsId(1)),
        ..HostInfo::default()
    };
    let begun = clock::mono();
    let ticks = hours * 3600;
    let makers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    // Whole groups: one writer would have made the same.
    let stretch = ticks.div_ceil(makers).next_multiple_of(60);
    let name = |k: u64| path.with_extension(format!("making-{k}"));
    std::thread::scope(|s| {
        for k in 0..makers {
            let (host, path) = (&host, name(k));
            let (from, to) = (ticks.min(k * stretch), ticks.min((k + 1) * stretch));
            s.spawn(move || make(&path, host, sockets, from, to));
        }
    });
    let whole = path.with_extension("making");
    let out = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(&whole).unwrap());
    let mut w = Writer::new(out, &host).unwrap();
    for k in (0..makers).filter(|k| k * stretch < ticks) {
        let r = Reader::file(&name(k)).unwrap();
        for (g, entry) in r.groups().iter().enumerate() {
            w.copy_group(r.raw_group(g).unwrap(), entry).unwrap();
        }
    }
    w.seal().unwrap();
    (0..makers).for_each(|k| std::fs::remove_file(name(k)).unwrap());
    std::fs::rename(&whole, &path).unwrap();
    println!("{ticks} ticks made in {:?}", clock::mono().since(begun));
    path
}

/// Records the ticks `from..to`.
fn make(path: &Path, host: &HostInfo, sockets: u64, from: u64, to: u64) {
    let out = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(path).unwrap());
    let mut w = Writer::new(out, host).unwrap();
    // The tables of the last two ticks: the older one becomes the next, nothing is copied.
    let mut tables: VecDeque<Arc<NetnsTable>> = VecDeque::new();
    let fresh = |t: u64| {
        let mut r = rows(sockets as usize);
        (0..=t).for_each(|t| touch(t, &mut r));
        r
    };
    for t in from..to {
        let older = if tables.len() == 2 { tables.pop_front() } else { None };
        let inet = match older {
            Some(old) => {
                let mut r = Arc::unwrap_or_clone(old).inet;
                touch(t - 1, &mut r);
                touch(t, &mut r);
                r
            }
            None => fresh(t),
        };
        let tick = tick(t, inet);
        tables.extend(tick.samples.sockets.iter().flat_map(|s| s.data.spaces.iter().cloned()));
        let on = t % 1800 > 1500;
        let f = ActiveFinding {
            rule: "tcp-silent-rto".into(),
            subject: "x".into(),
            severity: "crit".into(),
        };
        let figures = vec![("sockets.tcp".into(), sockets as f64)];
        let note = TickSummary { figures, findings: if on { vec![f] } else { Vec::new() } };
        w.tick(&tick, &note).unwrap();
    }
    w.seal().unwrap();
}

fn rows(n: usize) -> InetRows {
    let mut r = InetRows::default();
    for i in 0..n {
        r.cookie.push(1 + i as u64);
        r.proto.push(Proto::Tcp);
        r.state.push(SockState::ESTAB);
        r.timer.push(SockTimer(0));
        r.retrans.push(0);
        r.expires_ms.push(0);
        r.rqueue.push(0);
        r.wqueue.push(0);
        r.local.push(map_v4([10, 0, 0, 1]));
        r.remote.push(map_v4([10, (i >> 16) as u8, (i >> 8) as u8, i as u8]));
        r.lport.push(443);
        r.rport.push(32_768 + (i % 28_000) as u16);
        r.ifindex.push(0);
        r.uid.push(1000);
        r.inode.push(100_000 + i as u32);
        r.cgroup.push(0);
        r.skmem.push([0, 131_072, 0, 87_040, 0, 0, 0, 0, 0]);
        r.skmem_words.push(9);
        r.info.push(i as u32);
        r.infos.push(TcpInfo::from_bytes(&[0; 248]));
    }
    r
}

fn mono(t: u64) -> MonoNs {
    MonoNs((1000 + t) * 1_000_000_000 + t * 7919 % 900_000)
}

/// What changes from tick `t - 1` to `t`: some of the sockets send, and no two send alike.
/// Depends on nothing but `t`.
fn touch(t: u64, r: &mut InetRows) {
    let place = |name: &str| TcpInfo::FIELDS.iter().find(|f| f.0 == name).unwrap().1;
    let (acked, segs, rtt) = (place("bytes_acked"), place("segs_out"), place("rtt_us"));
    let n = r.cookie.len() as u64;
    for k in 0..n * 12 / 100 {
        let h = (t << 20 | k).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let h = (h ^ h >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let h = h ^ h >> 32;
        let i = (h % n) as usize;
        let sent = t * 100_000 + (h >> 16) % 100_000;
        let info = r.infos[i].with(acked, &sent.to_ne_bytes());
        let info = info.with(segs, &((sent / 1448) as u32).to_ne_bytes());
        r.infos[i] = info.with(rtt, &(200 + (h >> 36) as u32 % 1000).to_ne_bytes());
        r.wqueue[i] = ((h >> 50) % 5 * 1448) as u32;
    }
}

fn tick(t: u64, inet: InetRows) -> Tick {
    let mono = mono(t);
    let table = NetnsTable {
        netns: NetnsId(1),
        label: "host".into(),
        span: Span::at(mono),
        inet,
        ..NetnsTable::default()
    };
    let sample = SocketsSample { spaces: vec![Arc::new(table)], unread: Vec::new() };
    let cpus = (0..4).map(|c| {
        (CpuId(c), CpuTimes { user: t * 10 + u64::from(c), idle: t * 90, ..CpuTimes::default() })
    });
    let cpu = CpuSample { cpus: cpus.collect(), user_hz: 100, ..CpuSample::default() };
    let samples = Samples {
        sockets: Some(Arc::new(Stamped {
            span: Span::at(mono),
            cpu: Duration::ZERO,
            data: sample,
        })),
        cpu: Some(Arc::new(Stamped { span: Span::at(mono), cpu: Duration::ZERO, data: cpu })),
        ..Samples::default()
    };
    let wall = WallNs(1_700_000_000_000_000_000 + mono.0 as i64);
    Tick { seq: Seq(t), mono, wall, samples, ..Tick::default() }
}
