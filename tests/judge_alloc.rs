//! Judging healthy sockets allocates per tick, not per socket. One test in a program of its
//! own: the counter is global.
#![allow(unsafe_code, clippy::unwrap_used, missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stallscope::analysis::Analysis;
use stallscope::diagnose::Engine;
use stallscope::sample::net_counters::{NetCountersSample, NetnsCounters};
use stallscope::sample::sockets::{
    InetRows, NO_INFO, NetnsTable, Proto, SockState, SockTimer, SocketsSample, TcpInfo, map_v4,
};
use stallscope::sample::subject::NetnsId;
use stallscope::sample::tick::{HostInfo, Tick};
use stallscope::sample::time::{MonoNs, Seq, Span, WallNs};
use stallscope::sample::{Samples, Shared, Stamped};

struct Counting;
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes every call on to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sockets whose `tcp_info` is read per tick at most.
const INFOS: usize = 500;

/// The info of a sender that moves 200 kB/s without loss.
fn info(second: u64) -> TcpInfo {
    let at = |name: &str| TcpInfo::FIELDS.iter().find(|f| f.0 == name).unwrap().1;
    let mut out = TcpInfo::from_bytes(&[0; 248])
        .with(at("rto_us"), &204_000_u32.to_ne_bytes())
        .with(at("rtt_us"), &300_u32.to_ne_bytes())
        .with(at("min_rtt_us"), &100_u32.to_ne_bytes())
        .with(at("snd_mss"), &1448_u32.to_ne_bytes())
        .with(at("snd_wnd"), &65_160_u32.to_ne_bytes());
    out = out.with(at("bytes_acked"), &(200_000 * second).to_ne_bytes());
    out.with(at("segs_out"), &(140 * second as u32).to_ne_bytes())
}

/// Half of them send, the others are idle; w > tb now and then, as with healthy senders.
fn rows(n: usize, second: u64) -> InetRows {
    let mut r = InetRows::default();
    for i in 0..n {
        let sends = i % 2 == 0;
        r.cookie.push(i as u64 + 1);
        r.proto.push(Proto::Tcp);
        r.state.push(SockState::ESTAB);
        r.timer.push(if sends { SockTimer::ON } else { SockTimer::OFF });
        r.retrans.push(0);
        r.expires_ms.push(200);
        r.rqueue.push(u32::from(!sends && (i as u64 + second) % 10 == 1));
        r.wqueue.push(if sends { 30_000 } else { 0 });
        r.local.push(map_v4([10, 0, 0, 1]));
        r.remote.push(map_v4([10, 0, (i >> 8) as u8, i as u8]));
        r.lport.push(32_768 + (i % 28_000) as u16);
        r.rport.push(443);
        r.ifindex.push(0);
        r.uid.push(1000);
        r.inode.push(i as u32 + 1);
        r.cgroup.push(0);
        r.skmem.push([0, 131_072, 0, 87_040, 0, if sends { 90_000 } else { 0 }, 0, 0, 0]);
        r.skmem_words.push(9);
        r.info.push(if sends && r.infos.len() < INFOS {
            r.infos.push(info(second));
            r.infos.len() as u32 - 1
        } else {
            NO_INFO
        });
    }
    r
}

fn stamped<T>(span: Span, data: T) -> Shared<T> {
    Arc::new(Stamped { span, cpu: Duration::ZERO, data })
}

fn tick(n: usize, second: u64) -> Arc<Tick> {
    let mono = MonoNs(1_000_000_000 * (100 + second));
    let span = Span::at(mono);
    let table = NetnsTable {
        netns: NetnsId(1),
        span,
        label: "host".into(),
        ports: Some((32_768, 60_999)),
        inet: rows(n, second),
        ..NetnsTable::default()
    };
    let all = [("TcpExtTCPTimeouts", 1), ("TcpOutSegs", 5000), ("TcpRetransSegs", 5)];
    let counters = NetnsCounters {
        netns: NetnsId(1),
        names: Arc::new(all.iter().map(|(name, _)| Box::from(*name)).collect()),
        values: all.iter().map(|(_, v)| v * second as i64).collect(),
    };
    let spaces = vec![Arc::new(table)];
    let samples = Samples {
        sockets: Some(stamped(span, SocketsSample { spaces, ..SocketsSample::default() })),
        net_counters: Some(stamped(
            span,
            NetCountersSample { spaces: vec![counters], ..NetCountersSample::default() },
        )),
        ..Samples::default()
    };
    Arc::new(Tick { seq: Seq(second), mono, wall: WallNs(0), samples, ..Tick::default() })
}

/// Allocations of a tick of `n` sockets, once all is warm.
fn allocations(n: usize) -> u64 {
    let host = HostInfo {
        kernel: "6.18.0".into(),
        cpus: 4,
        interval: Duration::from_secs(1),
        netns: Some(NetnsId(1)),
        ..HostInfo::default()
    };
    let mut analysis = Analysis::new(host, Engine::default(), 4 << 30);
    (1..=30).for_each(|s| analysis.push(tick(n, s)));
    let ticks: Vec<_> = (31..=35).map(|s| tick(n, s)).collect();
    let counts: Vec<u64> = ticks
        .into_iter()
        .map(|t| {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            analysis.push(t);
            ALLOCATIONS.load(Ordering::Relaxed) - before
        })
        .collect();
    let found = analysis.latest().unwrap().findings.all().count();
    assert_eq!(found, 0, "healthy sockets");
    *counts.iter().min().unwrap()
}

#[test]
fn judging_healthy_sockets_allocates_per_tick() {
    let (few, many) = (allocations(2000), allocations(20_000));
    println!("{few} allocations with 2000 sockets, {many} with 20000");
    assert!(many <= few + 50, "{few} with 2000 sockets, {many} with 20000");
    assert!(many < 1000, "{many}");
}
