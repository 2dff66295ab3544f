//! The history's own account of its memory, beside what an allocator counts, over the life of a
//! history: filling, dropping histograms, dropping moments. In a program of its own: the counter
//! is global.
#![allow(unsafe_code, clippy::unwrap_used, missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
use stallscope::sample::heap::block;
use stallscope::sample::sched::{SchedSample, ThreadSched};
use stallscope::sample::sockets::{
    InetRows, NO_INFO, NetnsTable, Proto, SockState, SockTimer, SocketsSample, TcpInfo, map_v4,
};
use stallscope::sample::subject::{CgroupId, CpuId, DiskId, TaskId};
use stallscope::sample::tick::{HostInfo, Tick};
use stallscope::sample::time::{MonoNs, Seq, Span, WallNs};
use stallscope::sample::{Samples, Shared, Stamped};
use stallscope::source::{Event, live};

struct Counting;
static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes every call on to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(block(layout.size()), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        HELD.fetch_sub(block(layout.size()), Ordering::Relaxed);
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.fetch_add(block(size), Ordering::Relaxed);
        HELD.fetch_sub(block(layout.size()), Ordering::Relaxed);
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Says what a run holds by its own account, and what is free when it is gone.
#[track_caller]
fn agrees(what: &str, run: Analysis) {
    let (own, before, n) = (run.bytes(), held(), run.history().len());
    drop(run);
    let freed = before - held();
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo.stall");
    let mut tape = Tape::new(Reader::new(Arc::new(std::fs::read(path).unwrap())).unwrap());
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
    Some(Arc::new(Stamped { span: Span::at(at), cpu: Duration::ZERO, data }))
}

/// Each tenth retransmits and is followed.
fn table(at: MonoNs, n: u64) -> NetnsTable {
    let rows = 1000;
    let stuck = |i: usize| i.is_multiple_of(10);
    let timer = |i: usize| if stuck(i) { SockTimer::ON } else { SockTimer::OFF };
    let inet = InetRows {
        cookie: (1..=rows as u64).collect(),
        proto: vec![Proto::Tcp; rows],
        state: vec![SockState::ESTAB; rows],
        timer: (0..rows).map(timer).collect(),
        retrans: (0..rows).map(|i| u8::from(stuck(i)) * (n / 10) as u8).collect(),
        expires_ms: vec![200; rows],
        rqueue: vec![0; rows],
        wqueue: vec![30_000; rows],
        local: vec![map_v4([10, 0, 0, 1]); rows],
        remote: vec![map_v4([10, 0, 0, 2]); rows],
        lport: (0..rows).map(|i| 20_000 + i as u16).collect(),
        rport: vec![5432; rows],
        ifindex: vec![0; rows],
        uid: vec![0; rows],
        inode: (1..=rows as u32).collect(),
        cgroup: vec![0; rows],
        skmem: vec![[0; 9]; rows],
        skmem_words: vec![9; rows],
        info: (0..rows as u32).map(|i| if i < 200 { i } else { NO_INFO }).collect(),
        infos: vec![TcpInfo::from_bytes(&[0; 248]); 200],
    };
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

fn hist(n: u64) -> Hist {
    (20..180).map(|b| (b, n + u64::from(b))).collect()
}

fn waits(at: MonoNs, n: u64) -> RunqBpfSample {
    let cpu =
        |c| RunqCpu { cpu: CpuId(c), waits: hist(n), switches: n * 1000, ..RunqCpu::default() };
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
        hist: hist(n),
        ..VectorTime::default()
    };
    let cpu =
        |c| IrqCpu { cpu: CpuId(c), vectors: (0..6).map(vector).collect(), ..IrqCpu::default() };
    IrqBpfSample { cpus: (0..16).map(cpu).collect(), softirqs: true, ..IrqBpfSample::default() }
}
