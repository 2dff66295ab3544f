//! `nic-few-queues`: the CPUs that serve a NIC's queues are saturated while others are idle.

use super::common::nics;
use super::common::text::{count, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::cpu::CpuShare;
use crate::sample::softirq::NicQueues;
use crate::sample::subject::{CpuId, Subject};

/// Kernel time of a queue's CPU, %.
const BUSY: f64 = 70.0;
/// Idle time of the other CPUs, %.
const IDLE: f64 = 30.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("nic-few-queues"),
    title: "the CPUs that serve a NIC's queues are saturated while other CPUs are idle",
    condition: "A NIC has fewer receive queues than there are CPUs, and no RPS; each of the two \
        or more CPUs that take its interrupts spends 70% or more in the kernel, and the other \
        CPUs are 30% idle or more, for 10 of 15 s. Info when the NIC has no more queues to \
        give, or when that is unknown and it has at least half as many queues as CPUs. Clears \
        below 49% and 21%.",
    look_alikes: "Queues whose interrupts share fewer CPUs, or a single one: softirq-one-core, \
        spread the interrupts. All CPUs busy: more queues do not help. veth and other software \
        devices: their softirq runs on the sender's CPU.",
    remedy: "Add queues (ethtool -L DEV combined N). At the NIC's maximum, spread packets in \
        software (rps_cpus, xps_cpus), add a second NIC, or scale out.",
    sources: "/sys/class/net/DEV/queues, ETHTOOL_MSG_CHANNELS_GET, /proc/interrupts, \
        /proc/stat. Field: 32 of 32 queues on 40 to 64 cores top out at 6.2 of 12 million \
        packets/s.",
    hold: Hold::of(10, 15),
    needs_time: Duration::from_secs(11),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Cpu, CollectorId::Softirq],
    explains: &[],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(netns) = w.host.netns else { return };
    for nic in nics::nics(w) {
        let subject = Subject::Link { dev: nic.dev.clone(), netns };
        let Some(crowd) = crowd(w, nic) else {
            if hidden(w, nic) {
                out.unknown(subject, "which CPUs take its interrupts (/proc/interrupts, msi_irqs)");
            }
            continue;
        };
        if crowd.busiest_least >= BUSY && crowd.idle >= IDLE {
            out.fire(subject, fire(w, nic, &crowd));
        } else if crowd.busiest_least >= CLEAR * BUSY && crowd.idle >= CLEAR * IDLE {
            out.linger(subject);
        }
    }
}

/// Are some CPUs saturated in the kernel while others are idle, with the NIC's interrupts unknown?
fn hidden(w: &Window<'_>, n: &NicQueues) -> bool {
    let Some(shares) = w.derived.cpu.as_ref() else { return false };
    let few = (n.rx_queues as usize) < shares.cpus.len() && nics::rps_off(n);
    let full = shares.cpus.iter().filter(|(_, s)| kernel(s) >= BUSY).count();
    let idle = shares.cpus.iter().any(|(_, s)| s.idle + s.iowait >= IDLE);
    let receives = nics::link(w, n).is_none_or(|l| l.rx_pps > 0.0);
    few && full >= 2 && idle && receives && nics::irq_cpus(w, n).is_none()
}

fn kernel(s: &CpuShare) -> f64 {
    s.system + s.softirq + s.irq
}

/// The CPUs of a NIC's queues compared with the others.
struct Crowd {
    /// CPUs that take its interrupts.
    cpus: Vec<CpuId>,
    /// Kernel time of the least busy of them, %.
    busiest_least: f64,
    /// Mean idle time of the others, %.
    idle: f64,
    queues: u32,
    /// The most queues that the hardware supports.
    max: Option<u32>,
    online: u32,
}

fn crowd(w: &Window<'_>, n: &NicQueues) -> Option<Crowd> {
    let shares = w.derived.cpu.as_ref()?;
    let online = u32::try_from(shares.cpus.len()).ok()?;
    let channels = nics::link(w, n).and_then(|l| l.attrs.channels);
    let queues = channels.map_or(n.rx_queues, |c| c.rx);
    if queues >= online || !nics::rps_off(n) {
        return None;
    }
    let cpus: Vec<CpuId> = nics::irq_cpus(w, n)?.into_iter().map(|c| c.0).collect();
    // A single CPU is softirq-one-core; fewer CPUs than queues means they are not spread.
    if cpus.len() < 2 || cpus.len() < queues as usize {
        return None;
    }
    let of = |id: &CpuId| shares.cpu(*id);
    let busiest_least = cpus.iter().filter_map(of).map(|s| kernel(&s)).reduce(f64::min)?;
    let others: Vec<f64> = shares
        .cpus
        .iter()
        .filter(|(id, _)| !cpus.contains(id))
        .map(|(_, s)| s.idle + s.iowait)
        .collect();
    if others.is_empty() {
        return None;
    }
    let idle = others.iter().sum::<f64>() / others.len() as f64;
    Some(Crowd { cpus, busiest_least, idle, queues, max: channels.map(|c| c.rx_max), online })
}

fn fire(w: &Window<'_>, n: &NicQueues, c: &Crowd) -> Fire {
    let more = c.max.map(|m| m.min(c.online) > c.queues);
    let few = c.queues < c.online / 2;
    let severity = match more {
        Some(true) => Severity::Warn,
        None if few => Severity::Warn,
        Some(false) | None => Severity::Info,
    };
    let tail = if more == Some(false) { "; hardware max reached" } else { "" };
    let mut f = Fire::new(
        severity,
        format!(
            "{} has {} for {} CPUs: those are {:.0}% or more in the kernel, the \
             others {:.0}% idle{tail}",
            n.dev,
            count(c.queues as usize, "receive queue"),
            c.online,
            c.busiest_least,
            c.idle
        ),
    );
    let text = match c.max {
        Some(max) => format!("{} of {max} possible queues, {} CPUs", c.queues, c.online),
        None => format!("{}, {} CPUs", count(c.queues as usize, "queue"), c.online),
    };
    f.evidence.push(Evidence::new("queues", c.queues.into(), "", text).over(c.online.into()));
    let text = format!(
        "CPUs {} take its interrupts and are {:.0}% or more in the kernel",
        nics::cpu_list(&c.cpus),
        c.busiest_least
    );
    f.evidence.push(Evidence::new("busy", c.busiest_least, "%", text).over(BUSY));
    let text = format!("the other CPUs are {:.0}% idle", c.idle);
    f.evidence.push(Evidence::new("idle", c.idle, "%", text).over(IDLE));
    if let Some(l) = nics::link(w, n) {
        let text = format!(
            "{} packets/s in, {}/s out, {} per queue",
            rate(l.rx_pps),
            rate(l.tx_pps),
            rate(l.rx_pps / f64::from(c.queues.max(1)))
        );
        f.evidence.push(Evidence::new("packets", l.rx_pps, "/s", text));
    }
    if c.max.is_none() {
        f.confidence = Confidence::Suspected;
        f.missing.push("how many queues the NIC could have (ethtool -l)".to_owned());
    }
    let because = format!("{} CPUs take its interrupts, one per queue", c.cpus.len());
    f.ruled_out.push(RuledOut::new("softirq-one-core", because));
    let because = format!("the others are {:.0}% idle", c.idle);
    f.ruled_out.push(RuledOut::new("cpu-saturation", because));
    let dev = sh(&n.dev);
    if more != Some(false) {
        let want = c.max.map_or(c.online, |m| m.min(c.online));
        f.next.push(format!("ethtool -l {dev}; ethtool -L {dev} combined {want}"));
    }
    f.next.push(format!("grep . /sys/class/net/{dev}/queues/rx-*/rps_cpus  # RPS is off"));
    f.next.push(format!("ethtool -S {dev} | grep -iE 'rx.*(packets|drop)'"));
    f
}
