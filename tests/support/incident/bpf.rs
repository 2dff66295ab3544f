//! From the state of an incident to the samples of the kernel programs.

use std::net::{IpAddr, Ipv6Addr};

use stallscope::sample::bpf::block::{BlockBpfSample, BlockDisk, BlockOp};
use stallscope::sample::bpf::files::{Creates, Creator, FilesBpfSample};
use stallscope::sample::bpf::irq::{IrqBpfSample, IrqCpu, VECTOR_NAMES, VectorTime};
use stallscope::sample::bpf::layout::runq::LONG_NS;
use stallscope::sample::bpf::net::{
    BadSender, Connector, DropReason, FlowEvents, NetBpfSample, NetEventKind,
};
use stallscope::sample::bpf::runq::{CgroupWaits, LongWait, RunqBpfSample, RunqCpu};
use stallscope::sample::subject::{CgroupId, CpuId, DiskId, Endpoint, NetnsId};
use stallscope::sample::time::MonoNs;

use super::ticks::{View, namespaces};
use super::{Incident, State, Thread};
use crate::support::samples::hist;

/// How many, by how long: `prefix4000000`.
fn lengths(v: View<'_>, prefix: &str) -> Vec<(u64, u64)> {
    v.under(prefix).into_iter().filter_map(|(ns, n)| Some((ns.parse().ok()?, n))).collect()
}

fn cgroup(i: &Incident, t: &Thread) -> Option<CgroupId> {
    let n = i.cgroups.iter().position(|c| Some(&c.path) == t.cgroup.as_ref())?;
    Some(CgroupId(n as u64 + 1))
}

pub(super) fn runq(i: &Incident, before: &State, v: View<'_>, at: MonoNs) -> RunqBpfSample {
    let mut out = RunqBpfSample::default();
    for c in 0..i.cpus {
        let mut waits = lengths(v, &format!("wait.cpu{c}."));
        for t in i.threads.iter().filter(|t| t.cpu == c) {
            waits.extend(lengths(v, &format!("wait.{}.", t.name)));
        }
        let sum = |f: fn(u64, u64) -> u64| {
            waits.iter().fold(0_u64, |sum, (ns, n)| sum.saturating_add(f(*ns, *n)))
        };
        out.cpus.push(RunqCpu {
            cpu: CpuId(c),
            switches: sum(|_, n| n),
            wait_ns: sum(u64::saturating_mul),
            waits: hist(&waits),
            long: sum(|ns, n| if ns >= LONG_NS { n } else { 0 }),
            ..RunqCpu::default()
        });
    }
    for t in &i.threads {
        let (prefix, id) = (format!("wait.{}.", t.name), cgroup(i, t));
        let old = View(before).under(&prefix);
        for (ns, n) in lengths(v, &prefix).into_iter().filter(|(ns, _)| *ns >= LONG_NS) {
            let new = n.saturating_sub(old.get(&ns.to_string()).copied().unwrap_or(0));
            for _ in 0..new.min(31) {
                out.long_waits.push(LongWait {
                    at,
                    cpu: CpuId(t.cpu),
                    wait_ns: ns,
                    pid: t.tid,
                    tid: t.tid,
                    comm: Some(t.comm.clone()),
                    cgroup: id,
                });
            }
            if let Some(id) = id {
                let wait_ns = ns.saturating_mul(n);
                match out.cgroups.iter_mut().find(|c| c.id == id) {
                    Some(c) => {
                        c.count = c.count.saturating_add(n);
                        c.wait_ns = c.wait_ns.saturating_add(wait_ns);
                    }
                    None => out.cgroups.push(CgroupWaits { id, count: n, wait_ns }),
                }
            }
        }
    }
    out
}

pub(super) fn irq(i: &Incident, v: View<'_>) -> IrqBpfSample {
    let vectors = |c: u32| {
        let of = |(number, name): (usize, &&str)| {
            let timed = lengths(v, &format!("softrun.{name}.{c}."));
            let ns = v.get(&format!("soft.{name}.{c}"));
            let ns = ns.or_else(|| (!timed.is_empty()).then_some(0))?;
            let sum =
                timed.iter().fold(ns, |sum, (ns, n)| sum.saturating_add(ns.saturating_mul(*n)));
            let runs = timed.iter().fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
            Some(VectorTime {
                vector: number as u8,
                count: v.n(&format!("softirq.{name}.{c}")).saturating_add(runs),
                ns: sum,
                max_ns: timed.iter().filter(|(_, n)| *n > 0).map(|(ns, _)| *ns).max().unwrap_or(0),
                hist: hist(&timed),
                ..VectorTime::default()
            })
        };
        VECTOR_NAMES.iter().enumerate().filter_map(of).collect()
    };
    let cpus = (0..i.cpus)
        .map(|c| IrqCpu { cpu: CpuId(c), vectors: vectors(c), ..IrqCpu::default() })
        .collect();
    IrqBpfSample { cpus, softirqs: true, hardirqs: false, missed: None }
}

pub(super) fn block(i: &Incident, v: View<'_>) -> BlockBpfSample {
    let disks = i.disks.iter().enumerate().map(|(n, d)| {
        let device = lengths(v, &format!("blk.{}.device.", d.name));
        let op = BlockOp {
            count: device.iter().fold(0_u64, |sum, (_, n)| sum.saturating_add(*n)),
            device: hist(&device),
            queued: hist(&lengths(v, &format!("blk.{}.queued.", d.name))),
            ..BlockOp::default()
        };
        BlockDisk {
            id: DiskId { major: 252, minor: 16 * n as u32 },
            ops: vec![op],
            splits: v.n(&format!("blk.{}.splits", d.name)),
            ..BlockDisk::default()
        }
    });
    BlockBpfSample { disks: disks.collect(), splits: true, ..BlockBpfSample::default() }
}

/// Connects that were refused, by who refused: `refuse.1.10.0.0.9:8080`; and who connects where:
/// `connect.1.4242.nginx.10.0.0.9:8080`; and who sends packets that come in bad:
/// `bad.1.UDP_CSUM.10.0.0.9`. None, no sample.
pub(super) fn net(i: &Incident, before: &State, v: View<'_>, at: MonoNs) -> Option<NetBpfSample> {
    let mut out = NetBpfSample { retransmits: Some(0), resets_sent: Some(0), ..Default::default() };
    let (mut sum, mut any) = (0_u64, false);
    for ns in namespaces(i) {
        let prefix = format!("refuse.{ns}.");
        let old = View(before).under(&prefix);
        for (remote, n) in v.under(&prefix) {
            any = true;
            sum = sum.saturating_add(n);
            let new = n.saturating_sub(old.get(&remote).copied().unwrap_or(0));
            let remote: std::net::SocketAddr = remote.parse().unwrap();
            let here = match remote.ip() {
                IpAddr::V4(_) => IpAddr::from([10, 9, 0, 1]),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            };
            for port in 0..new.min(200) as u16 {
                let local = Endpoint { addr: here, port: 33_000 + port };
                let remote = Endpoint { addr: remote.ip(), port: remote.port() };
                out.flows.push(FlowEvents {
                    kind: NetEventKind::ReceiveReset,
                    ends: Some((local, remote)),
                    netns: NetnsId(ns.into()),
                    cookie: 0,
                    state: 2,
                    detail: 0,
                    count: 1,
                    last: at,
                    cpu: CpuId(0),
                });
            }
            out.unlisted = out.unlisted.saturating_add(new.saturating_sub(200));
        }
    }
    for ns in namespaces(i) {
        let prefix = format!("connect.{ns}.");
        let old = View(before).under(&prefix);
        for (who, n) in v.under(&prefix) {
            any = true;
            let connects = out.connects.get_or_insert_default();
            *connects = connects.saturating_add(n);
            let count = n.saturating_sub(old.get(&who).copied().unwrap_or(0));
            let mut parts = who.splitn(3, '.');
            let mut part = || parts.next().unwrap();
            let (pid, comm, remote) = (part().parse().unwrap(), part().into(), part());
            let remote: std::net::SocketAddr = remote.parse().unwrap();
            out.connectors.push(Connector {
                pid,
                comm: Some(comm),
                netns: NetnsId(ns.into()),
                remote: Endpoint { addr: remote.ip(), port: remote.port() },
                count,
            });
        }
    }
    any |= bad_packets(i, before, v, &mut out);
    out.connectors.retain(|c| c.count > 0);
    out.resets_received = Some(sum);
    any.then_some(out)
}

/// True if there are any.
fn bad_packets(i: &Incident, before: &State, v: View<'_>, out: &mut NetBpfSample) -> bool {
    const REASONS: [&str; 3] = ["TCP_CSUM", "UDP_CSUM", "FRAG_REASM_TIMEOUT"];
    let mut sums = [0_u64; REASONS.len()];
    let mut any = false;
    for ns in namespaces(i) {
        let prefix = format!("bad.{ns}.");
        let old = View(before).under(&prefix);
        for (what, n) in v.under(&prefix) {
            any = true;
            let (name, addr) = what.split_once('.').unwrap();
            let reason = REASONS.iter().position(|r| *r == name).unwrap();
            sums[reason] = sums[reason].saturating_add(n);
            let count = n.saturating_sub(old.get(&what).copied().unwrap_or(0));
            if count > 0 {
                let (reason, netns) = (reason as u16 + 1, NetnsId(ns.into()));
                out.bad_senders.push(BadSender {
                    reason,
                    netns,
                    addr: addr.parse().unwrap(),
                    count,
                });
            }
        }
    }
    if any {
        out.bad_packets = Some(sums.iter().copied().fold(0, u64::saturating_add));
        out.drops = out.bad_packets;
        out.reasons = (1..)
            .zip(REASONS)
            .zip(sums)
            .map(|((reason, name), count)| DropReason { reason, name: name.into(), count })
            .collect();
    }
    any
}

/// Attempts to create files, by file system, process and name: `create.spool.2301.cron`; of process 0
/// those that no process is told of.
pub(super) fn files(i: &Incident, before: &State, v: View<'_>, dt: f64) -> FilesBpfSample {
    let mut out = FilesBpfSample {
        functions: !i.only_ext4,
        ext4: true,
        covered_ns: (dt * 1e9).round() as u64,
        ..FilesBpfSample::default()
    };
    for (n, f) in i.filesystems.iter().enumerate() {
        let prefix = format!("create.{}.", f.name);
        let old = View(before).under(&prefix);
        let mut here = Creates { dev: f.dev(n), ..Creates::default() };
        for (who, sum) in v.under(&prefix) {
            let count = sum.saturating_sub(old.get(&who).copied().unwrap_or(0));
            let (pid, comm) = who.split_once('.').unwrap();
            let pid = pid.parse().unwrap();
            here.count = here.count.saturating_add(count);
            if count > 0 && pid > 0 {
                here.creators.push(Creator { pid, comm: Some(comm.into()), count });
            }
        }
        if here.count > 0 {
            out.filesystems.push(here);
        }
    }
    out
}
