//! The history's own account of its memory, beside what an allocator counts, over the life of a
//! history: filling, dropping histograms, dropping moments.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stallscope::analysis::Analysis;
use stallscope::collect::{CollectOptions, HostFs};
use stallscope::diagnose::Engine;
use stallscope::playback::tape::{Played, Tape};
use stallscope::recording::Reader;
use stallscope::sample::bpf::Hist;
use stallscope::sample::bpf::irq::{IrqBpfSample, IrqCpu, VectorTime};
use stallscope::sample::bpf::runq::{LongWait, RunqBpfSample, RunqCpu};
use stallscope::sample::cgroups::{CgroupCpu, CgroupIo, CgroupRow, CgroupsSample};
use stallscope::sample::sched::{SchedSample, ThreadSched};
use stallscope::sample::sockets::{InetRows, NetnsTable, SockTimer, SocketsSample, TcpInfo};
use stallscope::sample::subject::{CgroupId, CpuId, DiskId, TaskId};
use stallscope::sample::tick::{HostInfo, Tick};
use stallscope::sample::time::{MonoNs, Seq, Span, WallNs};
use stallscope::sample::{Samples, Shared};
use stallscope::source::{Event, live};

use crate::counting::freed;
use crate::support::files::DEMO;
use crate::support::samples::{self, Row, stamped, v4};

/// Says what a run holds by its own account, and what is free when it is gone.
#[track_caller]
fn agrees(what: &str, run: Analysis) {
    let (own, n) = (run.bytes(), run.history().len());
    let freed = freed(|| drop(run));
    let off = own as f64 / freed as f64 - 1.0;
    println!(
        "{what}: {n} moments, {own} B by its own account, {freed} B freed, {:+.1} %",
        off * 100.0
    );
    assert!(off.abs() < 0.15, "{what}: {own} for {freed}");
}

#[test]
fn the_history_holds_what_it_says() {
    for budget in [64 << 20, 3 << 20] {
        agrees(&format!("busy box, {} MiB", budget >> 20), busy(budget));
    }
    for budget in [64 << 20, 4 << 20] {
        agrees(&format!("recording, {} MiB", budget >> 20), demo(budget, Analysis::new));
        agrees(&format!("recorder, {} MiB", budget >> 20), demo(budget, Analysis::lean));
    }
    agrees("this box", this_box());
}

/// A recording of a real box: each tick is made anew from the file.
fn demo(budget: usize, new: fn(HostInfo, Engine, usize) -> Analysis) -> Analysis {
    let mut tape = Tape::new(Reader::file(Path::new(DEMO)).unwrap());
    let mut run = None;
    loop {
        match tape.play() {
            Played::Segment(host) => run = Some(new(host, Engine::default(), budget)),
            Played::Tick(t) => run.as_mut().unwrap().push(t),
            Played::Lost(d) => panic!("{d}"),
            Played::End => return run.unwrap(),
        }
    }
}

/// The running kernel, with whatever this user may read.
fn this_box() -> Analysis {
    let (host, every) = (HostFs::live(), Duration::from_millis(100));
    let mut feed = live::start(&host, &CollectOptions::default(), every).unwrap();
    let mut run = Analysis::new(feed.host.clone(), Engine::default(), 64 << 20);
    while run.history().len() < 50 {
        match feed.events.blocking_recv() {
            Some(Event::Tick(t)) => run.push(t),
            other => panic!("no tick: {other:?}"),
        }
    }
    run
}

/// Sockets, threads, cgroups and histograms of a box that works.
fn busy(budget: usize) -> Analysis {
    let mut run =
        Analysis::new(HostInfo { cpus: 16, ..HostInfo::default() }, Engine::default(), budget);
    for n in 0..100 {
        let at = MonoNs(1_000_000_000 * (n + 1000));
        let samples = Samples {
            sockets: stamp(
                at,
                SocketsSample { spaces: vec![Arc::new(table(at, n))], unread: vec![] },
            ),
            sched: stamp(at, threads(n)),
            cgroups: stamp(at, cgroups(n)),
            runq_bpf: stamp(at, waits(at, n)),
            irq_bpf: stamp(at, softirqs(n)),
            ..Samples::default()
        };
        let wall = WallNs(at.0 as i64);
        run.push(Arc::new(Tick { seq: Seq(n), mono: at, wall, samples, ..Tick::default() }));
    }
    run
}

#[allow(clippy::unnecessary_wraps, reason = "as fields of a sample are")]
fn stamp<S>(at: MonoNs, data: S) -> Option<Shared<S>> {
    Some(stamped(Span::at(at), data))
}

/// Each tenth retransmits and is followed.
fn table(at: MonoNs, n: u64) -> NetnsTable {
    let mut inet = InetRows::default();
    for i in 0..1000_u32 {
        let stuck = i.is_multiple_of(10);
        let row = Row {
            cookie: u64::from(i) + 1,
            timer: if stuck { SockTimer::ON } else { SockTimer::OFF },
            retrans: u8::from(stuck) * (n / 10) as u8,
            expires_ms: 200,
            wqueue: 30_000,
            local: v4([10, 0, 0, 1], 20_000 + i as u16),
            remote: v4([10, 0, 0, 2], 5432),
            inode: i + 1,
            info: (i < 200).then(|| TcpInfo::from_bytes(&[0; 248])),
            ..Row::default()
        };
        samples::add(&mut inet, row);
    }
    NetnsTable { span: Span::at(at), inet, ..NetnsTable::default() }
}

fn threads(n: u64) -> SchedSample {
    let thread = |i: u32| ThreadSched {
        task: TaskId { pid: i / 8, tid: i, start: 1 },
        comm: format!("worker-{i}"),
        state: 'S',
        run_ns: n * 1_000_000,
        run_delay_ns: n * 2_000_000,
        slices: n,
        cgroup: i.is_multiple_of(4).then(|| format!("/system.slice/service-{i}.service")),
        ..ThreadSched::default()
    };
    SchedSample {
        load: Some([9.0; 3]),
        threads: (0..300).map(thread).collect(),
        ..SchedSample::default()
    }
}

fn cgroups(n: u64) -> CgroupsSample {
    thread_local! {
        static NAMES: Vec<Arc<str>> =
            (0..100).map(|i| format!("/kubepods/pod-{i:08x}/container").into()).collect();
        static MOUNT: Arc<str> = "/sys/fs/cgroup".into();
    }
    let group = |(i, path): (usize, &Arc<str>)| CgroupRow {
        id: CgroupId(i as u64),
        path: path.clone(),
        mount: MOUNT.with(Arc::clone),
        cpu: Some(CgroupCpu { nr_periods: n * 10, period_us: 100_000, ..CgroupCpu::default() }),
        io: vec![
            CgroupIo {
                dev: DiskId { major: 8, minor: 0 },
                rbytes: Some(n),
                ..CgroupIo::default()
            };
            2
        ],
        ..CgroupRow::default()
    };
    CgroupsSample { groups: NAMES.with(|p| p.iter().enumerate().map(group).collect()), unread: 0 }
}

fn waits_of(n: u64) -> Hist {
    (20..180).map(|b| (b, n + u64::from(b))).collect()
}

fn waits(at: MonoNs, n: u64) -> RunqBpfSample {
    let cpu =
        |c| RunqCpu { cpu: CpuId(c), waits: waits_of(n), switches: n * 1000, ..RunqCpu::default() };
    let long = |i: u32| LongWait {
        at,
        wait_ns: 2_000_000,
        pid: i,
        tid: i,
        comm: Some(format!("waiter-{i}")),
        ..LongWait::default()
    };
    RunqBpfSample {
        cpus: (0..16).map(cpu).collect(),
        long_waits: (0..50).map(long).collect(),
        ..RunqBpfSample::default()
    }
}

fn softirqs(n: u64) -> IrqBpfSample {
    let vector = |v| VectorTime {
        vector: v,
        count: n * 100,
        ns: n * 1000,
        hist: waits_of(n),
        ..VectorTime::default()
    };
    let cpu =
        |c| IrqCpu { cpu: CpuId(c), vectors: (0..6).map(vector).collect(), ..IrqCpu::default() };
    IrqBpfSample { cpus: (0..16).map(cpu).collect(), softirqs: true, ..IrqBpfSample::default() }
}
