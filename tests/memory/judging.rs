//! Judging healthy sockets allocates per tick, not per socket.

use std::sync::Arc;
use std::time::Duration;

use stallscope::analysis::Analysis;
use stallscope::diagnose::Engine;
use stallscope::sample::Samples;
use stallscope::sample::net_counters::{NetCountersSample, NetnsCounters};
use stallscope::sample::sockets::{InetRows, NetnsTable, SockTimer, SocketsSample, TcpInfo};
use stallscope::sample::subject::NetnsId;
use stallscope::sample::tick::{HostInfo, Tick};
use stallscope::sample::time::{MonoNs, Seq, Span, WallNs};

use crate::counting;
use crate::support::samples::{self, Row, stamped, v4};

/// Sockets whose `tcp_info` is read per tick at most.
const INFOS: usize = 500;

/// The info of a sender that moves 200 kB/s without loss.
fn info(second: u64) -> TcpInfo {
    let fields = [
        ("rto_us", 204_000),
        ("rtt_us", 300),
        ("min_rtt_us", 100),
        ("snd_mss", 1448),
        ("snd_wnd", 65_160),
        ("bytes_acked", 200_000 * second),
        ("segs_out", 140 * second),
    ];
    samples::info(248, fields)
}

/// Half of them send, the others are idle; w > tb now and then, as with healthy senders.
fn rows(n: usize, second: u64) -> InetRows {
    let mut r = InetRows::default();
    for i in 0..n {
        let sends = i % 2 == 0;
        let row = Row {
            cookie: i as u64 + 1,
            timer: if sends { SockTimer::ON } else { SockTimer::OFF },
            expires_ms: 200,
            rqueue: u32::from(!sends && (i as u64 + second) % 10 == 1),
            wqueue: if sends { 30_000 } else { 0 },
            local: v4([10, 0, 0, 1], 32_768 + (i % 28_000) as u16),
            remote: v4([10, 0, (i >> 8) as u8, i as u8], 443),
            inode: i as u32 + 1,
            skmem: [0, 131_072, 0, 87_040, 0, if sends { 90_000 } else { 0 }, 0, 0, 0],
            info: (sends && r.infos.len() < INFOS).then(|| info(second)),
            ..Row::default()
        };
        samples::add(&mut r, row);
    }
    r
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
    let counts: Vec<u64> =
        ticks.into_iter().map(|t| counting::allocations(|| analysis.push(t)).1).collect();
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
