//! What the eBPF programs of the scripted box count.

use std::sync::Arc;

use stallscope::sample::bpf::block::{BlockBpfSample, BlockDisk, BlockOp, BlockOpKind};
use stallscope::sample::bpf::files::FilesBpfSample;
use stallscope::sample::bpf::irq::{IrqBpfSample, IrqCpu, LineTime, VectorTime};
use stallscope::sample::bpf::net::{DropPlace, DropReason, FlowEvents, NetBpfSample, NetEventKind};
use stallscope::sample::bpf::runq::{CgroupWaits, LongWait, RunqBpfSample, RunqCpu, RunqTier};
use stallscope::sample::subject::{CgroupId, CpuId, DiskId, Endpoint, NetnsId};
use stallscope::sample::time::MonoNs;
use stallscope::sample::{CollectorId, Samples};

use super::{Script, stamp};
use crate::support::samples::hist;

/// The collectors and the names of their signals.
pub const IDS: [(CollectorId, &str); 5] = [
    (CollectorId::RunqBpf, "run-queue latency"),
    (CollectorId::IrqBpf, "softirq time"),
    (CollectorId::BlockBpf, "block latency"),
    (CollectorId::NetBpf, "TCP events"),
    (CollectorId::FilesBpf, "file creation"),
];

/// Readings after `n` ticks, `sick` of them with faults.
pub fn samples(s: &mut Samples, at: MonoNs, n: u64, sick: u64, script: &Script) {
    let mut waits = runq(at, n, sick, script.name);
    if script.wakeups {
        waits.tier = RunqTier::Wakeup;
    }
    s.runq_bpf = Some(stamp(at, waits));
    s.irq_bpf = Some(stamp(at, irq(n, sick, if script.often { n } else { 0 })));
    s.block_bpf = Some(stamp(at, block(n, sick)));
    s.files_bpf = Some(stamp(at, FilesBpfSample::default()));
    s.net_bpf = Some(stamp(at, net(at, if script.drops { n } else { 0 }, sick, script.name)));
}

fn runq(at: MonoNs, n: u64, sick: u64, name: &str) -> RunqBpfSample {
    // Waits grow for twenty ticks, then stay: up to 1 ms at once, to 4 ms after ten ticks.
    let (some, more) = (sick, sick.saturating_sub(10));
    let cpus = (0..4)
        .map(|c| {
            let mut waits = vec![(31_000, 900 * n), (90_000, 90 * n)];
            if c < 3 {
                waits.extend([(700_000, 300 * some), (3_900_000, 40 * more), (21_000_000, more)]);
            }
            RunqCpu {
                cpu: CpuId(c),
                switches: 2000 * n,
                wait_ns: waits.iter().map(|(ns, n)| ns * n).sum(),
                long: if c < 3 { 41 * more } else { 0 },
                waits: hist(&waits),
                ..RunqCpu::default()
            }
        })
        .collect();
    let wait = |tid, ms: u64, comm: Option<&str>| LongWait {
        at,
        cpu: CpuId(1),
        wait_ns: ms * 1_000_000,
        pid: tid - 14,
        tid,
        comm: comm.map(str::to_owned),
        cgroup: Some(CgroupId(4711)),
    };
    let long_waits = match more {
        0 => Vec::new(),
        _ => vec![wait(2214, 21, Some(name)), wait(9001, 8, Some(name)), wait(9002, 4, None)],
    };
    let cgroups = match more {
        0 => Vec::new(),
        m => vec![CgroupWaits { id: CgroupId(4711), count: 123 * m, wait_ns: 500_000_000 * m }],
    };
    let long_unlisted = if more > 0 { 120 } else { 0 };
    RunqBpfSample {
        cpus,
        long_waits,
        long_unlisted,
        cgroups,
        missed: Some(0),
        ..RunqBpfSample::default()
    }
}

fn irq(n: u64, sick: u64, often: u64) -> IrqBpfSample {
    let vector = |vector, count: u64, ns: u64| VectorTime {
        vector,
        count,
        ns: count * ns,
        max_ns: if count > 0 { ns } else { 0 },
        hist: hist(&[(ns, count)]),
        ..VectorTime::default()
    };
    let cpus = (0..4)
        .map(|c| {
            let hot = if c == 3 { sick } else { 0 };
            // NET_RX: 0.2% of the core, and 9000 runs of 100 us when hot: 90%.
            let mut rx = vector(3, 9000 * hot, 100_000);
            rx.hist.merge(&hist(&[(6_500, 310 * n)]));
            (rx.count, rx.ns) = (rx.count + 310 * n, rx.ns + 310 * n * 6_500);
            // 90,000 runs of 800 ns, of which 20,000 are timed: 7.2%.
            let often = if c == 2 { often } else { 0 };
            rx.hist.merge(&hist(&[(800, 90_000 * often)]));
            (rx.count, rx.ns) = (rx.count + 90_000 * often, rx.ns + 90_000 * 800 * often);
            (rx.passed, rx.unsure) = (70_000 * often, 90 * often);
            let hard = 400 * n + 9000 * hot;
            IrqCpu {
                cpu: CpuId(c),
                vectors: vec![
                    vector(1, 120 * n, 25_000),
                    vector(2, 2 * n, 30_000),
                    rx,
                    vector(4, 40 * n, 775_000),
                    vector(7, 75 * n, 60_000),
                ],
                hard_count: hard,
                hard_ns: hard * 2_000,
                hard: hist(&[(2_000, hard)]),
                lines: vec![LineTime { irq: 45, count: hard, ns: hard * 2_000, max_ns: 9_000 }],
                ..IrqCpu::default()
            }
        })
        .collect();
    IrqBpfSample { cpus, softirqs: true, hardirqs: true, missed: Some(0) }
}

fn op(op: BlockOpKind, parts: &[(u64, u64, u64)]) -> BlockOp {
    let count = parts.iter().map(|p| p.0).sum();
    let pick = |f: fn(&(u64, u64, u64)) -> u64| {
        hist(&parts.iter().map(|p| (f(p), p.0)).collect::<Vec<_>>())
    };
    BlockOp {
        op,
        count,
        bytes: count * 4096,
        sizes: if count > 0 { vec![(0, count - count / 50), (4, count / 50)] } else { Vec::new() },
        queued: pick(|p| p.1),
        device: pick(|p| p.2),
        total: pick(|p| p.1 + p.2),
    }
}

fn block(n: u64, sick: u64) -> BlockBpfSample {
    let disk = |minor, ops, splits| BlockDisk {
        id: DiskId { major: 252, minor },
        ops,
        splits,
        ..BlockDisk::default()
    };
    // Each is so many requests, queued and in the device for so long.
    let calm = [(38 * n, 9_000, 380_000), (3 * n, 15_000, 900_000)];
    let full = [
        (20 * n, 9_000, 300_000),
        (16_000 * sick, 7_400_000, 150_000),
        (800 * sick, 9_000_000, 400_000),
    ];
    BlockBpfSample {
        disks: vec![
            disk(
                0,
                vec![op(BlockOpKind::Write, &calm), op(BlockOpKind::Flush, &[(n, 4_000, 900_000)])],
                0,
            ),
            disk(16, vec![op(BlockOpKind::Read, &full)], 14 * sick),
        ],
        splits: true,
        requeues: true,
        missed: Some(0),
        ..BlockBpfSample::default()
    }
}

fn net(at: MonoNs, n: u64, sick: u64, name: &str) -> NetBpfSample {
    let end = |last, port| Endpoint { addr: [10, 0, 3, last].into(), port };
    let flow = |kind, port, last, cookie, count| FlowEvents {
        kind,
        ends: Some((end(2, port), end(last, 3306))),
        netns: NetnsId(4_026_531_840),
        cookie,
        state: 1,
        detail: 0,
        count,
        last: at,
        cpu: CpuId(2),
    };
    let mut flows = Vec::new();
    if sick > 0 {
        flows.push(flow(NetEventKind::Retransmit, 51_322, 7, 50, 3));
        flows.push(flow(NetEventKind::Retransmit, 51_340, 7, 51, 2));
    }
    if sick == 5 {
        flows.push(flow(NetEventKind::ReceiveReset, 40_001, 9, 0, 1));
    }
    let drops = 3 * n + 40 * sick;
    NetBpfSample {
        retransmits: Some(5 * sick),
        retransmits_failed: None,
        resets_sent: Some(0),
        resets_received: Some(u64::from(sick >= 5)),
        rcvqueue_full: Some(0),
        drops: Some(drops),
        reasons: vec![
            DropReason { reason: 3, name: "NO_SOCKET".into(), count: 3 * n },
            DropReason { reason: 77, name: Arc::default(), count: 40 * sick },
        ],
        places: vec![
            DropPlace { reason: 3, place: "tcp_v4_rcv".into(), count: 3 * n },
            DropPlace { reason: 77, place: name.into(), count: 40 * sick },
        ],
        flows,
        missed: Some(0),
        ..NetBpfSample::default()
    }
}
