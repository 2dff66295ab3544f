//! The scripted box: raw counters per tick, as collectors would read them.

mod bpf;

use std::sync::Arc;
use std::time::Duration;

use stallscope::collect::sockets::unix_diag::UnixRow;
use stallscope::sample::cpu::{CpuSample, CpuTimes};
use stallscope::sample::disks::{
    DiskAttrs, DiskClass, DiskCounters, DiskRow, DisksSample, FlushCounters,
};
use stallscope::sample::own::OwnSample;
use stallscope::sample::psi::{PsiSample, PsiTotals};
use stallscope::sample::sched::{SchedSample, ThreadSched};
use stallscope::sample::sockets::{
    NetnsTable, Owner, Proto, RouteAnswer, RouteOutcome, SockState, SockTimer, SocketsSample,
    TcpInfo,
};
use stallscope::sample::softirq::{IrqRow, SoftirqSample, SoftnetRow};
use stallscope::sample::subject::{CpuId, DiskId, NetnsId, TaskId};
use stallscope::sample::tick::{CollectorHealth, HealthState, HostInfo, Tick};
use stallscope::sample::time::{MonoNs, Seq, Span, WallNs};
use stallscope::sample::{CollectorId, Shared, Signal};

use crate::support::samples::{self, Row, add, v4};

/// Seconds since boot at the first tick: 41 days.
const BOOT: u64 = 41 * 86_400;
/// 2026-01-05 14:15:00 UTC.
const WALL: i64 = 1_767_622_500;

/// What is wrong with the box.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug)]
pub struct Script {
    /// Sockets to the database stop leaving the host, a disk saturates, one core is all softirq.
    pub faults: bool,
    /// Healthy connections besides.
    pub connections: u32,
    /// Collectors that are off.
    pub off: Vec<(CollectorId, &'static str)>,
    /// Name of the process that owns the sick sockets, of threads, disks and the host.
    pub name: &'static str,
    /// Tick at which the faults begin.
    pub from: u64,
    /// Figures differ from tick to tick, as on a real box.
    pub busy: bool,
    /// Rows of the socket table come in another order with each number.
    pub shuffle: u64,
    /// Healthy UNIX sockets, and one listener whose accept queue is full.
    pub unix: u32,
    /// eBPF programs run.
    pub bpf: bool,
    /// Run-queue waits are measured from wakeups.
    pub wakeups: bool,
    /// Short softirqs come so often on one CPU that not all are timed.
    pub often: bool,
    /// Packets are dropped now and then, as on any box.
    pub drops: bool,
    /// What else is different in a tick.
    pub change: fn(&mut Tick, u64),
}

impl Default for Script {
    fn default() -> Self {
        Self {
            faults: false,
            connections: 40,
            off: Vec::new(),
            name: "java",
            from: 10,
            busy: false,
            shuffle: 0,
            unix: 0,
            bpf: false,
            wakeups: false,
            often: false,
            drops: true,
            change: |_, _| {},
        }
    }
}

impl Script {
    pub fn healthy() -> Self {
        Self::default()
    }
    pub fn three_faults() -> Self {
        Self { faults: true, ..Self::default() }
    }
    pub fn with_bpf(self) -> Self {
        Self { bpf: true, ..self }
    }
    /// eBPF collectors that could not start.
    pub fn without_bpf(mut self, reason: &'static str) -> Self {
        self.off.extend(bpf::IDS.map(|(id, _)| (id, reason)));
        self
    }

    /// What a counter of about `rate` per tick has grown to: even, or uneven by up to half.
    fn counter(&self, rate: u64, n: u64, salt: u64) -> u64 {
        if !self.busy {
            return rate * n;
        }
        (0..n).map(|i| rate / 2 + rate * (noise(i, salt) % 1000) / 1000).sum()
    }

    fn sick(&self, n: u64) -> u64 {
        if self.faults { n.saturating_sub(self.from) } else { 0 }
    }

    #[allow(clippy::unused_self)]
    pub fn host(&self) -> HostInfo {
        HostInfo {
            hostname: "db7".into(),
            kernel: "6.18.44".into(),
            cpus: 4,
            interval: Duration::from_secs(1),
            netns: Some(NetnsId(4_026_531_840)),
            tool: "0.1.0".into(),
            ..HostInfo::default()
        }
    }

    /// Tick number `n`, one per second.
    pub fn tick(&self, n: u64) -> Tick {
        let at = MonoNs((BOOT + n) * 1_000_000_000);
        let mut t = Tick {
            seq: Seq(n),
            mono: at,
            wall: WallNs((WALL + n as i64) * 1_000_000_000),
            ..Tick::default()
        };
        let s = &mut t.samples;
        s.sockets = Some(stamp(at, self.sockets(n, at)));
        s.disks = Some(stamp(at, self.disks(n)));
        s.cpu = Some(stamp(at, self.cpu(n)));
        s.softirq = Some(stamp(at, self.softirq(n)));
        s.sched = Some(stamp(at, self.sched(n)));
        s.psi = Some(stamp(at, self.psi(n)));
        s.own = Some(stamp(
            at,
            OwnSample { cpu: Duration::from_millis(3 * n), rss_bytes: Some(21 << 20) },
        ));
        if self.bpf {
            bpf::samples(s, at, n, self.sick(n), self);
        }
        for (id, _) in &self.off {
            match id {
                CollectorId::Sockets => s.sockets = None,
                CollectorId::Disks => s.disks = None,
                CollectorId::Cpu => s.cpu = None,
                CollectorId::Softirq => s.softirq = None,
                CollectorId::Sched => s.sched = None,
                CollectorId::RunqBpf => s.runq_bpf = None,
                CollectorId::IrqBpf => s.irq_bpf = None,
                CollectorId::BlockBpf => s.block_bpf = None,
                CollectorId::NetBpf => s.net_bpf = None,
                CollectorId::FilesBpf => s.files_bpf = None,
                _ => {}
            }
        }
        t.health = self.health();
        (self.change)(&mut t, n);
        t
    }

    fn health(&self) -> Vec<CollectorHealth> {
        let ids = [
            (CollectorId::Sockets, "sockets", "netlink"),
            (CollectorId::Disks, "disks", "diskstats"),
            (CollectorId::Cpu, "cpu", "/proc/stat"),
            (CollectorId::Softirq, "softirqs", "/proc/softirqs"),
            (CollectorId::Sched, "run-queue waits", "schedstat"),
            (CollectorId::Psi, "pressure", "/proc/pressure"),
        ];
        let bpf = bpf::IDS.into_iter().map(|(id, signal)| (id, signal, "ebpf"));
        let bpf = bpf.filter(|b| self.bpf || self.off.iter().any(|o| o.0 == b.0));
        let mut out: Vec<_> = ids
            .into_iter()
            .chain(bpf)
            .map(|(id, signal, source)| match self.off.iter().find(|o| o.0 == id) {
                None => CollectorHealth {
                    id,
                    state: HealthState::Fresh,
                    signals: vec![Signal::ok(signal, source)],
                },
                Some((_, reason)) => CollectorHealth {
                    id,
                    state: HealthState::Off {
                        reason: (*reason).into(),
                        remedy: "run as root".into(),
                    },
                    signals: Vec::new(),
                },
            })
            .collect();
        let block = if self.bpf {
            Signal::ok("protocol counters", "/proc/net")
        } else {
            Signal::missing("block latency", "ebpf", "no CAP_BPF", "run as root")
        };
        out.push(CollectorHealth {
            id: CollectorId::NetCounters,
            state: HealthState::Fresh,
            signals: vec![block],
        });
        out
    }

    fn sockets(&self, n: u64, at: MonoNs) -> SocketsSample {
        let mut t = NetnsTable {
            netns: NetnsId(4_026_531_840),
            label: "host".into(),
            span: Span::at(at.back(Duration::from_millis(100))),
            ..NetnsTable::default()
        };
        let local = [10, 0, 3, 2];
        add(
            &mut t.inet,
            Row {
                cookie: 1,
                state: SockState::LISTEN,
                local: v4([0; 4], 3306),
                wqueue: 128,
                ..Row::default()
            },
        );
        add(
            &mut t.inet,
            Row {
                cookie: 2,
                state: SockState::LISTEN,
                local: v4([0; 4], 8080),
                wqueue: 4096,
                ..Row::default()
            },
        );
        let mut order: Vec<u32> = (0..self.connections).collect();
        if self.shuffle > 0 {
            order.sort_by_key(|i| noise(u64::from(*i), self.shuffle));
        }
        for i in order {
            let port = 6000 + (i % 50_000) as u16;
            add(
                &mut t.inet,
                Row {
                    cookie: 100 + u64::from(i),
                    local: v4(local, 8080),
                    remote: v4([10, 0, 9, 12 + (i % 200) as u8], port),
                    inode: 40_000 + i,
                    info: (i < 60).then(|| info(204_000, 0, 0, 10, 65_160, 1000 + i)),
                    ..Row::default()
                },
            );
        }
        add(
            &mut t.inet,
            Row {
                cookie: 90,
                proto: Proto::Udp,
                state: SockState::CLOSE,
                local: v4([0; 4], 53),
                inode: 39_000,
                ..Row::default()
            },
        );
        if self.unix > 0 {
            unix(&mut t, self.unix);
        }
        t.owners.push(Owner::new(40_000, 1733, "nginx"));
        let sick = self.sick(n);
        for (k, port) in [(0u32, 51_322u16), (1, 51_340)] {
            // RTO: 204 ms doubled each time it fires.
            let backoff = if sick > 0 { (sick * 1000 / 204 + 1).ilog2() as u8 } else { 0 };
            let backoff = backoff.min(9);
            add(
                &mut t.inet,
                Row {
                    cookie: 50 + u64::from(k),
                    local: v4(local, port),
                    remote: v4([10, 0, 3, 7], 3306),
                    timer: if sick > 0 { SockTimer::ON } else { SockTimer::OFF },
                    retrans: backoff,
                    expires_ms: if sick > 0 { 1400 } else { 0 },
                    wqueue: if sick > 0 { 98_304 } else { 0 },
                    skmem: if sick > 0 {
                        [0, 131_072, 0, 87_040 - 16_384, 0, 116_736 - 3072 * k, 0, 0, 0]
                    } else {
                        [0, 131_072, 0, 70_656, 0, 0, 0, 0, 0]
                    },
                    inode: 39_100 + k,
                    info: Some(info(
                        204_000 << backoff,
                        backoff,
                        backoff,
                        if sick > 0 { 14 } else { 0 },
                        65_160,
                        5000,
                    )),
                    ..Row::default()
                },
            );
            t.owners.push(Owner::new(39_100 + k, 2214, self.name));
            if sick > 1 {
                t.routes.push(RouteAnswer {
                    cookie: 50 + u64::from(k),
                    outcome: RouteOutcome::Errno(101),
                });
            }
        }
        SocketsSample { spaces: vec![Arc::new(t)], unread: Vec::new() }
    }

    fn disks(&self, n: u64) -> DisksSample {
        let sick = self.sick(n);
        let base = |ios: u64, ms: u64| DiskCounters {
            rd_ios: self.counter(3, n, ios),
            rd_sectors: 3 * 32 * n,
            rd_ticks: (3 * n) as u32,
            wr_ios: self.counter(ios, n, ms),
            wr_sectors: self.counter(ios * 32, n, ms),
            wr_ticks: self.counter(ms, n, ios) as u32,
            io_ticks: (30 * n) as u32,
            weighted: (ms * n) as u32,
            flush: Some(FlushCounters { ios: n, ticks: n as u32 }),
            ..DiskCounters::default()
        };
        let mut vdb = base(20, 8);
        vdb.rd_ios += self.counter(16_800, sick, 7);
        vdb.rd_sectors += 16_800 * 8 * sick;
        vdb.rd_ticks = vdb.rd_ticks.wrapping_add(self.counter(128_000, sick, 8) as u32);
        vdb.weighted = vdb.weighted.wrapping_add(self.counter(128_000, sick, 8) as u32);
        vdb.io_ticks += (960 * sick) as u32;
        vdb.in_flight = if sick > 0 { 128 } else { 0 };
        let disk = |major, minor, name: &str, stat, attrs| DiskRow {
            id: DiskId { major, minor },
            name: name.into(),
            stat,
            inflight: None,
            attrs: Arc::new(attrs),
        };
        let virt = |size| DiskAttrs {
            class: DiskClass::Virtual,
            size_sectors: Some(size),
            scheduler: Some("none".into()),
            nr_requests: Some(256),
            ..DiskAttrs::default()
        };
        let loops =
            DiskAttrs { class: DiskClass::Stack, size_sectors: Some(0), ..DiskAttrs::default() };
        let part = DiskAttrs {
            class: DiskClass::Partition,
            parent: Some("vda".into()),
            holders: vec!["dm-0".into()],
            size_sectors: Some(40 << 21),
            ..DiskAttrs::default()
        };
        let dm = DiskAttrs {
            class: DiskClass::Stack,
            dm_name: Some("vg0-root".into()),
            slaves: vec!["vda1".into()],
            size_sectors: Some(40 << 21),
            ..DiskAttrs::default()
        };
        let disks = vec![
            disk(7, 0, "loop0", DiskCounters::default(), loops),
            disk(252, 0, "vda", base(41, 16), virt(40 << 21)),
            disk(252, 1, "vda1", base(41, 16), part),
            disk(252, 16, "vdb", vdb, virt(400 << 21)),
            disk(253, 0, "dm-0", base(39, 17), dm),
        ];
        DisksSample { disks, bad_rows: 0 }
    }

    fn cpu(&self, n: u64) -> CpuSample {
        let sick = self.sick(n);
        let cpu = |c: u64| {
            let si = self.counter(4, n, c) + if c == 3 { 87 * sick } else { 0 };
            let user = (20 + c) * n - if c == 3 { 20 * sick } else { 0 };
            let system = self.counter(5, n, 20 + c);
            CpuTimes {
                user,
                system,
                softirq: si,
                idle: (100 * n).saturating_sub(user + system + si),
                ..CpuTimes::default()
            }
        };
        let cpus: Vec<(CpuId, CpuTimes)> = (0..4).map(|c| (CpuId(c), cpu(c.into()))).collect();
        let mut total = CpuTimes::default();
        for (_, c) in &cpus {
            total.user += c.user;
            total.system += c.system;
            total.softirq += c.softirq;
            total.idle += c.idle;
        }
        CpuSample {
            total,
            cpus,
            ctxt: Some(4000 * n),
            procs_running: Some(3),
            procs_blocked: Some(0),
            user_hz: 100,
            nodes: Vec::new(),
            isolated: vec![],
        }
    }

    fn softirq(&self, n: u64) -> SoftirqSample {
        let sick = self.sick(n);
        let row = |base: u64, hot: u64| {
            (0..4).map(|c| base * n + if c == 3 { hot * sick } else { 0 }).collect()
        };
        SoftirqSample {
            vectors: vec![
                ("TIMER".into(), row(120, 30)),
                ("NET_TX".into(), row(2, 1)),
                ("NET_RX".into(), row(310, 84_000)),
                ("BLOCK".into(), row(40, 0)),
                ("SCHED".into(), row(75, 0)),
                ("RCU".into(), row(90, 0)),
            ],
            vector_cpus: (0..4).map(CpuId).collect(),
            softnet: (0..4)
                .map(|c| SoftnetRow {
                    cpu: Some(CpuId(c)),
                    processed: (310 * n + if c == 3 { 84_000 * sick } else { 0 }) as u32,
                    time_squeeze: if c == 3 { (214 * sick) as u32 } else { 0 },
                    backlog_len: Some(0),
                    ..SoftnetRow::default()
                })
                .collect(),
            irqs: vec![IrqRow {
                irq: "45".into(),
                name: "PCI-MSIX-0000:00:05.0 1-edge eth0-rx-0".into(),
                counts: (0..4).map(|c| if c == 3 { 310 * n + 9000 * sick } else { 0 }).collect(),
            }],
            irq_cpus: (0..4).map(CpuId).collect(),
            ..SoftirqSample::default()
        }
    }

    fn sched(&self, n: u64) -> SchedSample {
        let sick = self.sick(n);
        let names = [self.name, "mysqld", "nginx", "kworker/3:1", "sshd"];
        let threads = (0..20u32)
            .map(|i| {
                let k = u64::from(i) + 1;
                ThreadSched {
                    task: TaskId { pid: 2200 + i, tid: 2214 + i, start: 1 },
                    comm: names[i as usize % 5].into(),
                    state: 'S',
                    run_ns: self.counter(40_000_000 / k, n, k),
                    // A wait of 31 us a slice, and 3.9 ms for the first ones when sick.
                    run_delay_ns: self.counter(31_000 * 200, n, 50 + k)
                        + if i < 3 { 3_900_000 * 200 * sick } else { 0 },
                    slices: self.counter(200, n, 90 + k),
                    last_cpu: Some(CpuId(i % 4)),
                    cgroup: (i < 3).then(|| "/kube/pod7".into()),
                    nice: Some(0),
                    ..ThreadSched::default()
                }
            })
            .collect();
        SchedSample {
            load: Some([if sick > 0 { 9.8 } else { 0.4 }, 0.5, 0.5]),
            tasks: Some((3, 412)),
            threads,
            ..SchedSample::default()
        }
    }

    fn psi(&self, n: u64) -> PsiSample {
        let sick = self.sick(n);
        let p = |some_us| Some(PsiTotals { some_us, full_us: Some(some_us / 2) });
        PsiSample {
            cpu: p(self.counter(20_000, n, 1)),
            io: p(self.counter(1000, n, 2) + 610_000 * sick),
            memory: p(0),
        }
    }
}

/// A `tcp_info` with the fields that the console shows.
fn info(
    rto_us: u32,
    backoff: u8,
    retransmits: u8,
    unacked: u32,
    snd_wnd: u32,
    segs: u32,
) -> TcpInfo {
    let fields = [
        ("backoff", backoff.into()),
        ("retransmits", retransmits.into()),
        ("rto_us", rto_us.into()),
        ("unacked", unacked.into()),
        ("snd_wnd", snd_wnd.into()),
        ("segs_out", segs.into()),
        ("rtt_us", 900),
        ("snd_cwnd", 10),
        ("last_data_sent_ms", 9200),
        ("last_ack_recv_ms", 9200),
        ("notsent_bytes", 98_304),
    ];
    samples::info(248, fields)
}

/// The same numbers in every run.
fn noise(i: u64, salt: u64) -> u64 {
    let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 31;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 29)
}

pub fn stamp<S>(at: MonoNs, data: S) -> Shared<S> {
    samples::stamped(Span::at(at.back(Duration::from_millis(100))), data)
}

/// Pairs of connected sockets, an abstract listener, and one whose accept queue is full.
fn unix(t: &mut NetnsTable, pairs: u32) {
    let row = UnixRow { kind: 1, ..UnixRow::default() };
    for i in 0..pairs {
        let state = SockState::ESTAB;
        let inode = 70_000 + i;
        t.unix.push(&UnixRow { cookie: 7000 + u64::from(i), inode, peer: inode ^ 1, state, ..row });
    }
    let state = SockState::LISTEN;
    let (name, inode) = (b"\0bus\x1b[2J".as_slice(), 60_001);
    t.unix.push(&UnixRow { cookie: 6001, inode, state, wqueue: 128, name, ..row });
    let (name, inode) = (b"/run/app/worker.sock".as_slice(), 60_002);
    t.unix.push(&UnixRow { cookie: 6002, inode, state, rqueue: 5, wqueue: 5, name, ..row });
    t.owners.push(Owner::new(inode, 812, "worker"));
}
