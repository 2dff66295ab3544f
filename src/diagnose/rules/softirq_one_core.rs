//! `softirq-one-core`: one CPU does all network interrupts.

use std::time::Duration;

use super::super::{
    Evidence, Fire, Hold, Rule, RuleDoc, RuleId, RuledOut, Severity, Thresholds, Verdicts, Window,
};
use super::common::text::{rate, sh};
use crate::collect::CollectorId;
use crate::collect::softirq::{NicQueues, SoftirqSample};
use crate::model::derive::cpu::{CpuFigures, CpuShare, SoftirqFigures};
use crate::model::derive::rate::median;
use crate::model::subject::{CpuId, Subject};

/// See [`DOC`].
#[derive(Debug)]
pub(super) struct SoftirqOneCore;

/// % of a CPU in softirq.
const BUSY: f64 = 60.0;
/// Below this an active finding clears.
const CLEAR: f64 = 40.0;
/// Times the median of the other CPUs.
const TIMES: f64 = 4.0;
/// Part of all NET_RX that this CPU does.
const SHARE: f64 = 0.7;
/// Critical when the CPU has no more idle time than this, %, and packets suffer.
const NO_IDLE: f64 = 5.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("softirq-one-core"),
    title: "one CPU does the network interrupts for all",
    condition: "With 2 CPUs or more: one is 60% or more in softirq, 4 times the median of the \
        others or more, and does 70% or more of all NET_RX, for 5 of 8 s. Critical when it has \
        5% idle time or less and softnet drops or runs out of its budget there. Clears below \
        40%.",
    look_alikes: "A single flow: one connection hashes to one queue, more queues do not help it. \
        veth, loopback and tunnels: their receive softirq runs on the CPU of the sender, with no \
        interrupt of a NIC. Timer or block softirqs: NET_RX is then spread. All CPUs busy with \
        packets: the median of the others is high.",
    remedy: "Give the NIC more queues (ethtool -L), spread their interrupts (irqbalance, \
        smp_affinity_list), or spread in software (RPS: rps_cpus). For veth, unpin or spread the \
        senders.",
    sources: "/proc/stat, /proc/softirqs, /proc/net/softnet_stat, /proc/interrupts; field: \
        single-queue NICs in front of nginx fill one core while others idle.",
    hold: Hold::of(5, 8),
    needs_time: Duration::from_secs(6),
};

impl Rule for SoftirqOneCore {
    fn doc(&self) -> &'static RuleDoc {
        &DOC
    }
    fn needs(&self) -> &'static [CollectorId] {
        &[CollectorId::Cpu, CollectorId::Softirq]
    }
    fn check(&self, w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
        let (Some(cpu), Some(soft)) = (w.derived.cpu.as_ref(), w.derived.softirq.as_ref()) else {
            return;
        };
        let Some(hot) = hottest(cpu, soft) else { return };
        let subject = Subject::Cpu { cpu: hot.cpu };
        if hot.share.softirq >= BUSY {
            out.fire(subject, fire(w, soft, &hot));
        } else {
            out.linger(subject);
        }
    }
}

/// The CPU with most softirq time.
struct Hot {
    cpu: CpuId,
    share: CpuShare,
    others: f64,
    net_rx: f64,
    net_rx_s: f64,
}

fn hottest(cpu: &CpuFigures, soft: &SoftirqFigures) -> Option<Hot> {
    if cpu.cpus.len() < 2 {
        return None;
    }
    let (id, share) =
        cpu.cpus.iter().copied().max_by(|a, b| a.1.softirq.total_cmp(&b.1.softirq))?;
    let mut others: Vec<f64> =
        cpu.cpus.iter().filter(|(c, _)| *c != id).map(|(_, s)| s.softirq).collect();
    let others = median(&mut others)?;
    let (rx, all) = (soft.rate(id, "NET_RX")?, soft.total("NET_RX")?);
    let net_rx = if all > 0.0 { rx / all } else { 0.0 };
    (share.softirq >= CLEAR && share.softirq >= TIMES * others && net_rx >= SHARE).then_some(Hot {
        cpu: id,
        share,
        others,
        net_rx,
        net_rx_s: rx,
    })
}

fn fire(w: &Window<'_>, soft: &SoftirqFigures, hot: &Hot) -> Fire {
    let cpu = hot.cpu;
    let net = soft.softnet(cpu);
    let suffers = net.is_some_and(|n| n.dropped_s > 0.0 || n.squeeze_s > 0.0);
    let severity =
        if hot.share.idle <= NO_IDLE && suffers { Severity::Crit } else { Severity::Warn };
    let si = hot.share.softirq;
    let mut f = Fire::new(
        severity,
        format!(
            "{cpu} does {:.0}% of all NET_RX: {si:.0}% of it is softirq, {:.0}% on the others",
            100.0 * hot.net_rx,
            hot.others
        ),
    );
    let text = format!("softirq {si:.0}% of {cpu}, median of the others {:.1}%", hot.others);
    f.evidence.push(Evidence::new("softirq", si, "%", text).over(BUSY));
    let text = format!("{:.0}% of NET_RX, {}/s", 100.0 * hot.net_rx, rate(hot.net_rx_s));
    f.evidence.push(Evidence::new("NET_RX", 100.0 * hot.net_rx, "%", text).over(100.0 * SHARE));
    let text = format!("{:.0}% idle", hot.share.idle);
    f.evidence.push(Evidence::new("idle", hot.share.idle, "%", text).over(NO_IDLE));
    match net {
        Some(n) => {
            let text = format!(
                "softnet: {} packets/s, {} dropped/s, {} time_squeeze/s",
                rate(n.processed_s),
                rate(n.dropped_s),
                rate(n.squeeze_s)
            );
            f.evidence.push(Evidence::new("softnet", n.processed_s, "/s", text));
        }
        None => f.missing.push("drops on this CPU (softnet_stat names no CPU)".to_owned()),
    }
    let others = format!("median of the others {:.1}%, not {:.0}%", hot.others, si / TIMES);
    f.ruled_out.push(RuledOut::new("all-cpus-busy", others));
    interrupts(&mut f, w, hot);
    f.next.push(format!("mpstat -P {} -I SCPU 1 3", cpu.0));
    f
}

/// Interrupts of NICs on this CPU, by rate, and what to do about them.
fn interrupts(f: &mut Fire, w: &Window<'_>, hot: &Hot) {
    let Some(now) = w.tick.samples.softirq.as_ref() else { return };
    let before = w
        .history
        .back_from(w.tick.seq)
        .filter_map(|m| m.tick.samples.softirq.as_ref())
        .find(|s| now.span.mid().since(s.span.mid()) >= crate::model::derive::MIN_SPAN);
    let Some(before) = before else { return };
    let dt = now.span.mid().since(before.span.mid()).as_secs_f64();
    let mut rates: Vec<(f64, &str, &str)> = now
        .data
        .irqs
        .iter()
        .filter(|i| i.irq.bytes().all(|b| b.is_ascii_digit()))
        .filter_map(|i| {
            let d = count_on(&now.data, &i.irq, hot.cpu)?.checked_sub(count_on(
                &before.data,
                &i.irq,
                hot.cpu,
            )?)?;
            (d > 0).then_some((d as f64 / dt, &*i.irq, &*i.name))
        })
        .collect();
    rates.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    rates.truncate(3);
    let owner = |irq: &str| {
        now.data.nics.iter().find(|n| irq.parse().is_ok_and(|i: u32| n.irqs.contains(&i)))
    };
    let nic = rates.iter().find_map(|(_, irq, _)| owner(irq));
    for (r, irq, name) in &rates {
        let text = format!("irq {irq} {}: {}/s here", last_word(name), rate(*r));
        f.evidence.push(Evidence::new("irq", *r, "/s", text));
    }
    if let Some(n) = nic {
        advise(f, w, n, &rates);
    } else {
        let text = "no NIC's interrupt comes in here: the packets are sent on this CPU (veth, \
            loopback, tunnel), or by RPS";
        f.evidence.push(Evidence::text("irq", text));
        f.next.push(format!("pidstat -t 1 3  # who sends on CPU {}", hot.cpu.0));
    }
}

fn count_on(s: &SoftirqSample, irq: &str, cpu: CpuId) -> Option<u64> {
    let column = s.irq_cpus.iter().position(|c| *c == cpu)?;
    s.irqs.iter().find(|i| &*i.irq == irq)?.counts.get(column).copied()
}

/// `IR-PCI-MSI 524289-edge eth0-TxRx-0` is best known by its end.
fn last_word(name: &str) -> &str {
    name.split_whitespace().next_back().unwrap_or("")
}

fn advise(f: &mut Fire, w: &Window<'_>, n: &NicQueues, rates: &[(f64, &str, &str)]) {
    let dev = sh(&n.dev);
    let cpus = w.host.cpus.max(1);
    let text = format!("{} has {} receive queues for {cpus} CPUs", n.dev, n.rx_queues);
    f.evidence.push(Evidence::new("queues", n.rx_queues.into(), "", text));
    let off = n.rps_cpus.iter().all(|m| m.chars().all(|c| c == '0' || c == ','));
    if n.rx_queues > 1 {
        let text = format!("{} queues exist: one flow, or interrupts not spread", n.rx_queues);
        f.evidence.push(Evidence::text("spread", text));
        if let Some((_, irq, _)) = rates.first() {
            f.next.push(format!("cat /proc/irq/{irq}/smp_affinity_list"));
        }
    } else {
        f.next.push(format!("ethtool -l {dev}; ethtool -L {dev} combined {cpus}"));
    }
    if off {
        let all = cpu_mask(cpus);
        f.next.push(format!("echo {all} > /sys/class/net/{dev}/queues/rx-0/rps_cpus"));
    }
    f.next.push(format!("ethtool -S {dev} | grep -i -E 'rx.*packets'"));
}

/// A mask of the first `n` CPUs as `rps_cpus` takes it: groups of 32 bits, highest first.
fn cpu_mask(n: u32) -> String {
    let (full, rest) = (n / 32, n % 32);
    let mut groups = Vec::new();
    if rest > 0 {
        groups.push(format!("{:x}", (1_u64 << rest) - 1));
    }
    groups.extend((0..full).map(|_| "ffffffff".to_owned()));
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_cpus() {
        assert_eq!([cpu_mask(1), cpu_mask(4), cpu_mask(32)], ["1", "f", "ffffffff"]);
        assert_eq!(cpu_mask(40), "ff,ffffffff");
    }

    #[test]
    fn an_interrupt_is_known_by_its_end() {
        assert_eq!(last_word("IR-PCI-MSI 524289-edge      eth0-TxRx-0"), "eth0-TxRx-0");
        assert_eq!(last_word(""), "");
    }
}
