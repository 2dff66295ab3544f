//! From the state of an incident to a tick, as the collectors would have read it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use stallscope::sample::cgroups::{CgroupCpu, CgroupIo, CgroupPids, CgroupRow, CgroupsSample};
use stallscope::sample::cpu::{CpuSample, CpuTimes};
use stallscope::sample::disks::{
    DiscardCounters, DiskAttrs, DiskClass, DiskCounters, DiskRow, DisksSample, FlushCounters,
    MdAttrs,
};
use stallscope::sample::memory::MemorySample;
use stallscope::sample::net_counters::{NetCountersSample, NetnsCounters};
use stallscope::sample::processes::{BlockedTask, ProcessesSample};
use stallscope::sample::psi::{PsiSample, PsiTotals};
use stallscope::sample::sched::{CpuSchedstat, SchedSample, TaskKind, ThreadSched};
use stallscope::sample::sockets::SocketsSample;
use stallscope::sample::softirq::{IrqRow, NicQueues, SoftirqSample, SoftnetRow};
use stallscope::sample::subject::{CgroupId, CpuId, DiskId, NetnsId, TaskId};
use stallscope::sample::tick::{HostInfo, Tick};
use stallscope::sample::time::{MonoNs, Seq, Span, WallNs};
use stallscope::sample::{Samples, Shared};

use super::sockets::tables;
use super::{Blocked, Incident, State, bpf, file, links, room, waits};
use crate::support::samples::stamped;

/// Virtual boot was so long ago, s.
const EPOCH: f64 = 1000.0;

pub fn host(i: &Incident, interval: f64) -> HostInfo {
    HostInfo {
        hostname: "db7".into(),
        kernel: i.kernel.clone(),
        cpus: i.cpus,
        interval: Duration::from_secs_f64(interval),
        netns: Some(NetnsId(1)),
        page_size: 4096,
        rules: Arc::new(i.thresholds.clone()),
        ..HostInfo::default()
    }
}

fn stamp<S>(mono: MonoNs, on: bool, data: S) -> Option<Shared<S>> {
    on.then(|| stamped(Span::at(mono), data))
}

/// `before` is the state at the tick before.
/// At `t`, `dt` after the one before, s.
pub fn tick(i: &Incident, seq: usize, (t, dt): (f64, f64), before: &State, s: &State) -> Tick {
    let mono = MonoNs(((EPOCH + t) * 1e9).round() as u64);
    let v = View(s);
    let at = |name: &str| !i.without.iter().any(|w| w == name);
    let bpf = |name: &str| i.ebpf && at(name);
    let (own, other) = tables(i, v, mono);
    let samples = Samples {
        sockets: stamp(mono, at("sockets"), SocketsSample { spaces: own, unread: vec![] }),
        netns_sockets: stamp(
            mono,
            at("netns-sockets"),
            SocketsSample { spaces: other, unread: vec![] },
        ),
        disks: stamp(mono, at("disks"), disks(i, v)),
        cpu: stamp(mono, at("cpu"), cpu(i, v)),
        softirq: stamp(mono, at("softirq"), softirq(i, v)),
        sched: stamp(mono, at("sched"), sched(i, v)),
        net_counters: stamp(mono, at("net-counters"), counters(i, v, seq)),
        psi: stamp(mono, at("psi"), psi(v)),
        cgroups: stamp(mono, at("cgroups"), cgroups(i, v, t)),
        processes: stamp(mono, at("processes"), processes(i, t)),
        waits: stamp(mono, at("waits"), waits::waits(i, t)),
        limits: stamp(mono, at("limits"), room::limits(i, v)),
        process_io: room::process_io(i, View(before), v)
            .and_then(|s| stamp(mono, at("process-io"), s)),
        kmsg: stamp(mono, at("kmsg"), room::kmsg(i, v, t, mono)),
        filesystems: stamp(mono, at("filesystems"), room::filesystems(i, v, t, mono)),
        memory: memory(v).and_then(|m| stamp(mono, at("memory"), m)),
        runq_bpf: stamp(mono, bpf("runq-bpf"), bpf::runq(i, before, v, mono)),
        irq_bpf: stamp(mono, bpf("irq-bpf"), bpf::irq(i, v)),
        block_bpf: stamp(mono, bpf("block-bpf"), bpf::block(i, v)),
        net_bpf: bpf::net(i, before, v, mono).and_then(|s| stamp(mono, bpf("net-bpf"), s)),
        files_bpf: stamp(mono, bpf("files-bpf"), bpf::files(i, before, v, dt)),
        netdev: stamp(mono, at("netdev"), links::netdev(i, v, mono, seq)),
        ..Samples::default()
    };
    Tick { seq: Seq(seq as u64), mono, wall: WallNs(mono.0 as i64), samples, ..Tick::default() }
}

/// The state by name; what is not there is 0.
#[derive(Clone, Copy)]
pub struct View<'a>(pub(super) &'a State);

impl View<'_> {
    pub fn get(self, key: &str) -> Option<u64> {
        // Sums of fractions may end a hair below the number that was meant.
        self.0.get(key).map(|v| (v + 1e-6).max(0.0) as u64)
    }
    pub fn n(self, key: &str) -> u64 {
        self.get(key).unwrap_or(0)
    }
    pub fn n32(self, key: &str) -> u32 {
        self.n(key) as u32
    }
    /// The numbers whose names begin like this, by the rest of the name.
    pub(super) fn under(self, prefix: &str) -> BTreeMap<String, u64> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let keys = self.0.range::<str, _>(from).map(|(k, _)| k);
        keys.take_while(|k| k.starts_with(prefix))
            .map(|k| (k[prefix.len()..].to_owned(), self.n(k)))
            .collect()
    }
}

pub fn namespaces(i: &Incident) -> BTreeSet<u32> {
    let mut all: BTreeSet<u32> = i.sockets.iter().map(|s| s.netns).collect();
    all.extend(i.netns.keys().map(|k| k.parse::<u32>().unwrap()));
    all.insert(1);
    all
}

/// The number of the nth disk.
pub fn disk_id(n: usize) -> DiskId {
    DiskId { major: 252, minor: 16 * n as u32 }
}

fn disks(i: &Incident, v: View<'_>) -> DisksSample {
    let disks = i
        .disks
        .iter()
        .enumerate()
        .map(|(n, d)| {
            let g = |k: &str| v.n(&format!("disk.{}.{k}", d.name));
            let class: DiskClass =
                serde_json::from_value(serde_json::Value::String(d.class.clone())).unwrap();
            let in_flight = g("in_flight");
            DiskRow {
                id: disk_id(n),
                name: d.name.as_str().into(),
                stat: DiskCounters {
                    rd_ios: g("rd_ios"),
                    rd_merges: g("rd_merges"),
                    wr_merges: g("wr_merges"),
                    rd_sectors: g("rd_sectors"),
                    rd_ticks: g("rd_ticks") as u32,
                    wr_ios: g("wr_ios"),
                    wr_sectors: g("wr_sectors"),
                    wr_ticks: g("wr_ticks") as u32,
                    in_flight: in_flight as i64,
                    io_ticks: g("io_ticks") as u32,
                    weighted: g("weighted") as u32,
                    discard: Some(DiscardCounters {
                        ios: g("dc_ios"),
                        merges: 0,
                        sectors: g("dc_sectors"),
                        ticks: g("dc_ticks") as u32,
                    }),
                    flush: Some(FlushCounters { ios: g("fl_ios"), ticks: g("fl_ticks") as u32 }),
                },
                inflight: Some((0, in_flight as u32)),
                attrs: Arc::new(DiskAttrs {
                    class,
                    rotational: d.rotational,
                    size_sectors: d.size_gib.map(|g| g << 21),
                    nr_requests: d.nr_requests,
                    hw_queues: d.hw_queues,
                    scheduler: d.scheduler.clone(),
                    max_sectors_kb: d.max_sectors_kb,
                    max_hw_sectors_kb: d.max_hw_sectors_kb,
                    backing_file: d.backing_file.clone(),
                    dm_name: d.dm_name.clone(),
                    dm_kind: d.dm_kind.clone(),
                    md: d.md_level.is_some().then(|| MdAttrs {
                        level: d.md_level.clone(),
                        raid_disks: d.raid_disks,
                        sync_action: d.sync_action.clone(),
                        sync_speed_kb: d.sync_speed_kb,
                        degraded: Some(0),
                    }),
                    slaves: d.slaves.clone(),
                    ..DiskAttrs::default()
                }),
            }
        })
        .collect();
    DisksSample { disks, bad_rows: 0 }
}

fn cpu(i: &Incident, v: View<'_>) -> CpuSample {
    let mut total = CpuTimes::default();
    let cpus = (0..i.cpus)
        .map(|c| {
            let g = |k: &str| v.n(&format!("cpu.{c}.{k}"));
            let t = CpuTimes {
                user: g("user"),
                nice: g("nice"),
                system: g("system"),
                idle: g("idle"),
                iowait: g("iowait"),
                irq: g("irq"),
                softirq: g("softirq"),
                steal: g("steal"),
                ..CpuTimes::default()
            };
            total.user = total.user.saturating_add(t.user);
            total.nice = total.nice.saturating_add(t.nice);
            total.system = total.system.saturating_add(t.system);
            total.idle = total.idle.saturating_add(t.idle);
            total.iowait = total.iowait.saturating_add(t.iowait);
            total.softirq = total.softirq.saturating_add(t.softirq);
            total.steal = total.steal.saturating_add(t.steal);
            (CpuId(c), t)
        })
        .collect();
    let nodes = i
        .nodes
        .iter()
        .map(|(id, cpus)| (id.parse::<u32>().unwrap(), cpus.iter().copied().map(CpuId).collect()));
    CpuSample {
        total,
        cpus,
        ctxt: Some(v.n("ctxt")),
        procs_running: v.get("procs_running").map(|n| n as u32),
        procs_blocked: v.get("procs_blocked").map(|n| n as u32),
        user_hz: 100,
        nodes: nodes.collect(),
        isolated: i.isolated.iter().copied().map(CpuId).collect(),
    }
}

fn softirq(i: &Incident, v: View<'_>) -> SoftirqSample {
    let cpus: Vec<CpuId> = (0..i.cpus).map(CpuId).collect();
    let vectors = ["NET_TX", "NET_RX", "BLOCK", "TIMER", "SCHED"]
        .iter()
        .map(|name| {
            let counts = (0..i.cpus).map(|c| v.n(&format!("softirq.{name}.{c}"))).collect();
            (Arc::from(*name), counts)
        })
        .collect();
    let softnet = (0..i.cpus)
        .map(|c| SoftnetRow {
            cpu: Some(CpuId(c)),
            processed: v.n32(&format!("softnet.{c}.processed")),
            dropped: v.n32(&format!("softnet.{c}.dropped")),
            time_squeeze: v.n32(&format!("softnet.{c}.time_squeeze")),
            received_rps: Some(v.n32(&format!("softnet.{c}.received_rps"))),
            ..SoftnetRow::default()
        })
        .collect();
    let irqs = i
        .nics
        .iter()
        .flat_map(|n| n.irqs.iter().enumerate().map(move |(q, irq)| (n, q, *irq)))
        .map(|(n, q, irq)| IrqRow {
            irq: irq.to_string().as_str().into(),
            name: format!("PCI-MSI {}-rx-{q}", n.dev).as_str().into(),
            counts: (0..i.cpus).map(|c| v.n(&format!("irq.{irq}.{c}"))).collect(),
        })
        .collect();
    let nics = i
        .nics
        .iter()
        .map(|n| NicQueues {
            dev: n.dev.clone(),
            physical: true,
            rx_queues: n.rx_queues,
            tx_queues: n.rx_queues,
            rps_cpus: n.rps_cpus.clone(),
            irqs: n.irqs.clone(),
            numa_node: n.numa_node,
            ..NicQueues::default()
        })
        .collect();
    SoftirqSample {
        vectors,
        vector_cpus: cpus.clone(),
        softnet,
        irqs,
        irq_cpus: cpus,
        nics: Arc::new(nics),
    }
}

fn sched(i: &Incident, v: View<'_>) -> SchedSample {
    let threads = i
        .threads
        .iter()
        .filter(|t| !t.no_schedstat)
        .map(|t| {
            let g = |k: &str| v.n(&format!("thread.{}.{k}", t.name));
            ThreadSched {
                task: TaskId { pid: t.tid, tid: t.tid, start: 1 },
                comm: t.comm.clone(),
                state: 'R',
                run_ns: g("run_ns"),
                run_delay_ns: g("run_delay_ns"),
                slices: g("slices"),
                still_ms: 0,
                last_cpu: Some(CpuId(t.cpu)),
                allowed: t.allowed.clone(),
                cgroup: t.cgroup.clone(),
                memory_cgroup: t.memory_cgroup.clone(),
                rss_mib: v.0.get(format!("thread.{}.rss_mib", t.name).as_str()).map(|n| *n as u32),
                nice: t.nice,
                policy: t.policy,
                kind: t.kind,
            }
        })
        .collect();
    let load = v.0.get("load1").map(|l| [*l, *l, *l]);
    let delay =
        |c: u32| v.0.get(format!("schedstat.{c}.run_delay_ns").as_str()).map(|n| (c, *n as u64));
    let cpus = (0..i.cpus)
        .filter_map(delay)
        .map(|(c, run_delay_ns)| CpuSchedstat { cpu: CpuId(c), run_delay_ns, ..Default::default() })
        .collect();
    let tasks = v.get("tasks").map(|n| (1, n as u32));
    SchedSample { threads, load, tasks, cpus, ..SchedSample::default() }
}

fn counters(i: &Incident, v: View<'_>, seq: usize) -> NetCountersSample {
    let all = namespaces(i);
    let others = (all.len() - 1).max(1);
    let spaces = all
        .into_iter()
        .enumerate()
        .filter(|(n, _)| !i.counters_in_turn || *n == 0 || (n - 1) % others == seq % others)
        .map(|(_, ns)| ns)
        .map(|ns| {
            let mut all = v.under(&format!("net.{ns}."));
            // Every kernel in use has these.
            for name in ["TcpRetransSegs", "TcpExtTCPRetransFail"] {
                all.entry(name.to_owned()).or_insert(0);
            }
            NetnsCounters {
                netns: NetnsId(ns.into()),
                names: Arc::new(all.keys().map(|k| k.as_str().into()).collect()),
                values: all.values().map(|v| *v as i64).collect(),
            }
        })
        .collect();
    NetCountersSample { spaces, tcp_mem: i.tcp_mem, tcp_max_orphans: i.tcp_max_orphans }
}

fn psi(v: View<'_>) -> PsiSample {
    let of = |kind: &str| {
        let full_us = v.get(&format!("psi.{kind}_full_us"));
        Some(PsiTotals { some_us: v.get(&format!("psi.{kind}_some_us"))?, full_us })
    };
    PsiSample { cpu: of("cpu"), io: of("io"), memory: of("memory") }
}

fn cgroups(i: &Incident, v: View<'_>, t: f64) -> CgroupsSample {
    let groups = i
        .cgroups
        .iter()
        .enumerate()
        .filter(|(_, c)| c.every.is_none_or(|every| t % every < 1e-9))
        .map(|(n, c)| {
            let g = |k: &str| v.n(&format!("cgroup.{}.{k}", c.name));
            let get = |k: &str| v.get(&format!("cgroup.{}.{k}", c.name));
            let psi_memory =
                get("psi_memory_full_us").map(|us| PsiTotals { some_us: us, full_us: Some(us) });
            CgroupRow {
                id: CgroupId(n as u64 + 1),
                path: c.path.as_str().into(),
                mount: c.mount.as_str().into(),
                cpu: Some(CgroupCpu {
                    quota_us: c.quota_us,
                    period_us: c.period_us,
                    weight: c.weight,
                    nr_periods: g("nr_periods"),
                    nr_throttled: g("nr_throttled"),
                    throttled_ns: g("throttled_ns"),
                    usage_ns: Some(g("usage_ns")),
                }),
                io: c.io.iter().map(|io| cgroup_io(i, io, g, t)).collect(),
                memory_bytes: get("memory"),
                memory_limit_bytes: c.memory_limit,
                oom_kills: get("oom_kills"),
                memory_failures: get("failures"),
                pids: get("pids").map(|current| CgroupPids {
                    current,
                    max: c.pids_max,
                    failures: get("pids_failures"),
                }),
                tasks: room::owners(&c.tasks),
                psi_memory,
                ..CgroupRow::default()
            }
        })
        .collect();
    CgroupsSample { groups, unread: 0 }
}

fn cgroup_io(i: &Incident, io: &file::CgroupIo, g: impl Fn(&str) -> u64, t: f64) -> CgroupIo {
    let n = i.disks.iter().position(|d| d.name == io.disk).unwrap();
    let count = |key: &str| (!io.uncounted).then(|| g(key));
    let set = |limit: Option<u64>| limit.filter(|_| io.until.is_none_or(|end| t < end));
    CgroupIo {
        dev: disk_id(n),
        rbytes: count("rbytes"),
        wbytes: count("wbytes"),
        rios: count("rios"),
        wios: count("wios"),
        max_rbps: set(io.max_rbps),
        max_wbps: set(io.max_wbps),
        max_riops: set(io.max_riops),
        max_wiops: set(io.max_wiops),
        latency_us: io.latency_us,
        iocost: io.iocost,
    }
}

/// Values by their names; none of them, no sample.
fn memory(v: View<'_>) -> Option<MemorySample> {
    let mut all = BTreeMap::new();
    for group in ["meminfo.", "vmstat.", "sys."] {
        all.extend(v.under(group).into_iter().map(|(name, n)| (format!("{group}{name}"), n)));
    }
    (!all.is_empty()).then(|| MemorySample {
        names: Arc::new(all.keys().map(|k| k.as_str().into()).collect()),
        values: all.into_values().collect(),
    })
}

fn processes(i: &Incident, t: f64) -> ProcessesSample {
    let there = |b: &&Blocked| t >= b.from && t < b.to;
    let blocked = i.blocked.iter().filter(there).flat_map(|b| {
        let switches = b.wakes_s.map_or(0.0, |s| s * (t - b.from));
        (0..b.copies).map(move |n| BlockedTask {
            task: TaskId { pid: b.pid.unwrap_or(b.tid + n), tid: b.tid + n, start: 1 },
            comm: b.comm.clone(),
            wchan: b.wchan.clone(),
            slices: (!b.uncounted).then_some(7 + switches as u64),
            kind: b.kind.or(Some(TaskKind::User)),
        })
    });
    let blocked = blocked.collect();
    ProcessesSample { total: 100, blocked, unread: 0 }
}
