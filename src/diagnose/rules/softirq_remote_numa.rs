//! `softirq-remote-numa`: packets are received on a NUMA node other than the NIC's.

use super::common::nics;
use super::common::text::{rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::sample::softirq::NicQueues;
use crate::sample::subject::{CpuId, Subject};

/// Packets per second below which it does not matter.
const PACKETS: f64 = 50_000.0;
/// Fraction of NET_RX on other nodes.
const REMOTE: f64 = 0.5;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("softirq-remote-numa"),
    title: "a NIC's packets are received on CPUs of another NUMA node",
    condition: "On a host with several NUMA nodes a NIC receives 50k packets/s or more, and 50% \
        or more of the NET_RX softirqs of the CPUs that take its interrupts (of all CPUs if \
        that is unknown) run on nodes other than the NIC's, for 10 of 15 s. Clears below 35%.",
    look_alikes: "VMs and NICs without a node (numa_node -1): nothing is known. A NIC with \
        queues on all nodes by design: with two nodes, about half is remote.",
    remedy: "Bind the interrupts to the NIC's node (set_irq_affinity, irqbalance with \
        --numanode), and the program that reads the sockets as well: numactl -N NODE -m NODE.",
    sources: "/sys/class/net/DEV/device/numa_node, /sys/devices/system/node, /proc/softirqs. \
        Field: across nodes a proxy does 70 to 80% of the requests that it does on one node.",
    hold: Hold::of(10, 15),
    needs_time: Duration::from_secs(11),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Cpu, CollectorId::Softirq, CollectorId::Netdev],
    explains: &[],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let (Some(netns), Some(cpu)) = (w.host.netns, w.tick.samples.cpu.as_ref()) else { return };
    if cpu.data.nodes.len() < 2 {
        return;
    }
    for nic in nics::nics(w) {
        let Some(x) = spread(w, nic, &cpu.data.nodes) else { continue };
        let subject = Subject::Link { dev: nic.dev.clone(), netns };
        if x.pps >= PACKETS && x.remote >= REMOTE {
            out.fire(subject, fire(nic, &x));
        } else if x.pps >= CLEAR * PACKETS && x.remote >= CLEAR * REMOTE {
            out.linger(subject);
        }
    }
}

/// Where a NIC's packets are received.
struct Spread {
    home: u32,
    pps: f64,
    /// Fraction of NET_RX on other nodes.
    remote: f64,
    /// CPUs of other nodes that do most of it.
    cpus: Vec<CpuId>,
    /// CPUs of the NIC's node.
    near: Vec<CpuId>,
    /// Whether its interrupts are known.
    by_irq: bool,
}

fn spread(w: &Window<'_>, n: &NicQueues, nodes: &[(u32, Vec<CpuId>)]) -> Option<Spread> {
    let home = n.numa_node?;
    let near = &nodes.iter().find(|(id, _)| *id == home)?.1;
    let soft = w.derived.softirq.as_ref()?;
    let pps = nics::link(w, n)?.rx_pps;
    let takers = nics::irq_cpus(w, n).map(|c| c.into_iter().map(|c| c.0).collect::<Vec<_>>());
    let mut rates: Vec<(CpuId, f64)> = soft
        .per_cpu
        .iter()
        .map(|(id, _)| *id)
        .filter(|id| takers.as_ref().is_none_or(|t| t.contains(id)))
        .filter_map(|id| Some((id, soft.rate(id, "NET_RX")?)))
        .collect();
    let all: f64 = rates.iter().map(|r| r.1).sum();
    rates.retain(|(id, _)| !near.contains(id));
    let far: f64 = rates.iter().map(|r| r.1).sum();
    rates.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let cpus = rates.iter().filter(|r| r.1 >= 0.05 * all).map(|r| r.0).collect();
    let remote = crate::metrics::rate::ratio(far, all)?;
    Some(Spread { home, pps, remote, cpus, near: near.clone(), by_irq: takers.is_some() })
}

fn fire(n: &NicQueues, x: &Spread) -> Fire {
    let pct = 100.0 * x.remote;
    let mut f = Fire::new(
        Severity::Warn,
        format!("{pct:.0}% of the packets of {} are received away from its node {}", n.dev, x.home),
    );
    let text = format!("{pct:.0}% of NET_RX on CPUs {} of other nodes", nics::cpu_list(&x.cpus));
    f.evidence.push(Evidence::new("net_rx", pct, "%", text).over(100.0 * REMOTE));
    let text = format!("{} packets/s", rate(x.pps));
    f.evidence.push(Evidence::new("packets", x.pps, "/s", text).over(PACKETS));
    let text = format!("{} is on node {}: CPUs {}", n.dev, x.home, nics::cpu_list(&x.near));
    f.evidence.push(Evidence::new("numa_node", x.home.into(), "", text));
    if !x.by_irq {
        f.confidence = Confidence::Suspected;
        f.missing.push("which CPUs take its interrupts".to_owned());
    }
    f.missing.push("which node the programs that read them run on".to_owned());
    f.ruled_out.push(RuledOut::new("no-node", format!("numa_node is {}, not -1", x.home)));
    let dev = sh(&n.dev);
    if let Some(irq) = n.irqs.first() {
        f.next.push(format!("grep . /proc/irq/{irq}/{{node,effective_affinity_list}}"));
        f.next.push(format!(
            "for i in $(ls /sys/class/net/{dev}/device/msi_irqs); do echo {} > /proc/irq/$i/smp_affinity_list; done",
            nics::cpu_list(&x.near)
        ));
    }
    f.next.push(format!("numactl -H; numactl -N {0} -m {0} PROGRAM", x.home));
    f
}
