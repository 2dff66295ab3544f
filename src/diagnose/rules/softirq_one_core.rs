//! `softirq-one-core`: one CPU handles the network softirqs for the whole host.

use super::common::by;
use super::common::by_traffic::{self, Way};
use super::common::measured::{softirqs, to_ms};
use super::common::nics;
use super::common::text::{count, ms, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::bpf::IrqFigures;
use crate::metrics::cpu::{CpuFigures, CpuShare, SoftirqFigures};
use crate::metrics::rate::{median, ratio};
use crate::sample::softirq::{IrqRow, NicQueues, SoftirqSample};
use crate::sample::subject::{CpuId, Subject};

/// Softirq time of a CPU, %.
const BUSY: f64 = 60.0;
/// Below this an active finding clears.
const CLEAR: f64 = 40.0;
/// Multiple of the median of the other CPUs.
const TIMES: f64 = 4.0;
/// Fraction of all NET_RX on this CPU.
const SHARE: f64 = 0.7;
/// Fraction of the CPU's softirq time that must be NET_RX or NET_TX; other vectors are other
/// problems.
const RECEIVING: f64 = 0.5;
/// Critical when the CPU is at most this idle, %, and packets are dropped or squeezed.
const NO_IDLE: f64 = 5.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("softirq-one-core"),
    title: "one CPU handles the network softirqs for the whole host",
    condition: "With 2 CPUs or more: one spends 60% or more in softirq, at least 4 times the \
        median of the others, and handles 70% or more of all NET_RX, for 5 of 8 s. With eBPF \
        all of this is measured time, and NET_RX plus NET_TX must be half or more of that CPU's \
        softirq time. Without it, time comes from /proc/stat and NET_RX is a count; if BLOCK, \
        IRQ_POLL and TASKLET together run there as often as NET_RX, the rule cannot tell which \
        of them takes the time. Critical when the CPU is 5% idle or less and softnet drops \
        packets or exhausts its budget there. Clears below 40%.",
    look_alikes: "A single flow: one connection hashes to one queue, and more queues do not \
        help; if the other queues' interrupts have CPUs of their own, this is info. veth, \
        loopback and tunnels: their receive softirq runs on the sender's CPU, without a NIC \
        interrupt. Timer or block softirqs: NET_RX is spread out, or takes little of the time. \
        All CPUs busy with packets: the median of the others is high.",
    remedy: "Give the NIC more queues (ethtool -L), spread their interrupts (irqbalance, \
        smp_affinity_list), or spread packets in software (RPS: rps_cpus). For veth, unpin or \
        spread the senders.",
    sources: "eBPF (softirq_entry, softirq_exit), else /proc/stat; /proc/softirqs, \
        /proc/net/softnet_stat, /proc/interrupts. Field: single-queue NICs in front of nginx \
        fill one core while others are idle.",
    hold: Hold::of(5, 8),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Cpu, CollectorId::Softirq],
    explains: &[Explains::new("softnet-drop-or-squeeze", Scope::Same)],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let (Some(cpu), Some(soft)) = (w.derived.cpu.as_ref(), w.derived.softirq.as_ref()) else {
        return;
    };
    let hot = match softirqs(w) {
        Some(bpf) => measured(cpu, soft, bpf),
        None => match counted(cpu, soft) {
            Ok(hot) => hot,
            Err(why) => return out.cannot_judge(why),
        },
    };
    let Some(hot) = hot else { return };
    let subject = Subject::Cpu { cpu: hot.cpu };
    if hot.softirq >= BUSY {
        out.fire(subject, fire(w, soft, &hot));
    } else {
        out.linger(subject);
    }
}

/// The CPU with the most softirq time.
struct Hot {
    cpu: CpuId,
    /// Its softirq time, %.
    softirq: f64,
    idle: f64,
    /// Median of the other CPUs' softirq time, %.
    others: f64,
    /// Its fraction of all NET_RX.
    net_rx: f64,
    net_rx_s: f64,
    /// From eBPF.
    vectors: Option<Vectors>,
}

/// How the CPU's softirq time is spent.
struct Vectors {
    /// Time by vector in % of the CPU, largest first.
    most: Vec<(&'static str, f64)>,
    /// 99th percentile of NET_RX runs, ms.
    net_rx_p99: Option<f64>,
}

/// The CPU with the most softirq time, if it stands out.
fn hottest(cpu: &CpuFigures, softirq: impl Fn(CpuId, &CpuShare) -> f64) -> Option<Hot> {
    if cpu.cpus.len() < 2 {
        return None;
    }
    let all: Vec<(CpuId, f64, f64)> =
        cpu.cpus.iter().map(|(c, s)| (*c, softirq(*c, s), s.idle)).collect();
    let (id, softirq, idle) = all.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let mut others: Vec<f64> = all.iter().filter(|c| c.0 != id).map(|c| c.1).collect();
    let others = median(&mut others)?;
    (softirq >= CLEAR && softirq >= TIMES * others).then_some(Hot {
        cpu: id,
        softirq,
        idle,
        others,
        net_rx: 0.0,
        net_rx_s: 0.0,
        vectors: None,
    })
}

/// From measured time (eBPF).
fn measured(cpu: &CpuFigures, soft: &SoftirqFigures, bpf: &IrqFigures) -> Option<Hot> {
    let mut hot = hottest(cpu, |c, _| bpf.soft_pct(c).unwrap_or(0.0).min(100.0))?;
    let row = bpf.cpu(hot.cpu)?;
    let time = |name| row.vector(name).map_or(0.0, |r| r.pct);
    let all = |name| bpf.cpus.iter().filter_map(|c| c.vector(name)).map(|r| r.pct).sum();
    hot.net_rx = ratio(time("NET_RX"), all("NET_RX")).unwrap_or(0.0);
    let receives = time("NET_RX") + time("NET_TX") >= RECEIVING * row.soft_pct;
    let run = row.vector("NET_RX");
    hot.net_rx_s = soft.rate(hot.cpu, "NET_RX").or(run.map(|r| r.runs_s)).unwrap_or(0.0);
    let mut most: Vec<_> = row.vectors.iter().map(|v| (v.name(), v.run.pct)).collect();
    most.sort_by(|a, b| b.1.total_cmp(&a.1));
    hot.vectors = Some(Vectors { most, net_rx_p99: run.and_then(|r| r.p99_ns).map(to_ms) });
    (receives && hot.net_rx >= SHARE).then_some(hot)
}

/// From sampled time and counts.
///
/// # Errors
/// The CPU stands out, but it is unknown whether because of network softirqs.
fn counted(cpu: &CpuFigures, soft: &SoftirqFigures) -> Result<Option<Hot>, String> {
    let Some(mut hot) = hottest(cpu, |_, s| s.softirq) else { return Ok(None) };
    let rate = |name| soft.rate(hot.cpu, name).unwrap_or(0.0);
    let (rx, all) = (rate("NET_RX"), soft.total("NET_RX").unwrap_or(0.0));
    let net_rx = ratio(rx, all).unwrap_or(0.0);
    if net_rx < SHARE {
        return Ok(None);
    }
    // A run of these may take as long as a NET_RX run; timers and RCU are short.
    let heavy: f64 = ["BLOCK", "IRQ_POLL", "TASKLET"].into_iter().map(rate).sum();
    if heavy >= rx {
        let why =
            "other softirqs run there as often as NET_RX; which of them takes the time needs eBPF";
        return Err(format!("{}: {why}", hot.cpu));
    }
    (hot.net_rx, hot.net_rx_s) = (net_rx, rx);
    Ok(Some(hot))
}

fn fire(w: &Window<'_>, soft: &SoftirqFigures, hot: &Hot) -> Fire {
    let cpu = hot.cpu;
    let net = soft.softnet(cpu);
    let suffers = net.is_some_and(|n| n.dropped_s > 0.0 || n.squeeze_s > 0.0);
    let severity = if hot.idle <= NO_IDLE && suffers { Severity::Crit } else { Severity::Warn };
    let si = hot.softirq;
    let mut f = Fire::new(
        severity,
        format!(
            "{cpu} handles {:.0}% of all NET_RX: it is {si:.0}% in softirq, the others {:.0}%",
            100.0 * hot.net_rx,
            hot.others
        ),
    );
    let (source, of) =
        if hot.vectors.is_some() { ("eBPF", "NET_RX time") } else { ("/proc/stat", "NET_RX") };
    let text =
        format!("{source}: softirq {si:.0}% of {cpu}, median of the others {:.1}%", hot.others);
    f.evidence.push(Evidence::new("softirq", si, "%", text).over(BUSY));
    if let Some(v) = &hot.vectors {
        let parts: Vec<String> =
            v.most.iter().take(3).map(|(name, share)| format!("{name} {share:.1}%")).collect();
        let p99 = v.net_rx_p99;
        let p99 = p99.map_or(String::new(), |v| format!("; a run of NET_RX p99 {} ms", ms(v)));
        let text = format!("eBPF: {}{p99}", parts.join(", "));
        f.evidence.push(Evidence::text("vectors", text));
    }
    let text = format!("{:.0}% of {of}, {}/s", 100.0 * hot.net_rx, rate(hot.net_rx_s));
    f.evidence.push(Evidence::new("net_rx", 100.0 * hot.net_rx, "%", text).over(100.0 * SHARE));
    let text = format!("{:.0}% idle", hot.idle);
    f.evidence.push(Evidence::new("idle", hot.idle, "%", text).over(NO_IDLE));
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

/// Do the interrupts of several queues go to several CPUs while one CPU does all the work? Then it
/// is one flow, or a few that hash to one queue, and more queues or other CPUs would not spread it.
fn one_flow(s: &SoftirqSample, n: &NicQueues, busiest: &str, hot: CpuId) -> bool {
    if n.rx_queues < 2 || !busiest.parse().is_ok_and(|i: u32| n.irqs.contains(&i)) {
        return false;
    }
    let Some(column) = s.irq_cpus.iter().position(|c| *c == hot) else { return false };
    let mine = |i: &&IrqRow| i.irq.parse().is_ok_and(|i: u32| n.irqs.contains(&i));
    // The CPU that took each interrupt most often since boot. An interrupt that hardly ever fired
    // has none: a link that came up, a queue that never had a flow.
    let home = |i: &IrqRow| i.counts.iter().copied().enumerate().max_by_key(|c| c.1);
    let all: Vec<(bool, usize, u64)> = s
        .irqs
        .iter()
        .filter(mine)
        .filter_map(|i| home(i).map(|(at, most)| (&*i.irq == busiest, at, most)))
        .collect();
    let Some(most) = all.iter().find(|i| i.0).map(|i| i.2) else { return false };
    let others = all.iter().filter(|i| !i.0 && i.2.saturating_mul(1000) >= most);
    let homes: Vec<usize> = others.map(|i| i.1).collect();
    !homes.is_empty() && !homes.contains(&column)
}

/// Adds the interrupts on this CPU, by rate, and what to do about them.
fn interrupts(f: &mut Fire, w: &Window<'_>, hot: &Hot) {
    let Some(now) = w.tick.samples.softirq.as_ref() else { return };
    let before = w
        .history
        .back_from(w.tick.seq)
        .filter_map(|m| m.tick.samples.softirq.as_ref())
        .find(|s| now.span.mid().since(s.span.mid()) >= crate::metrics::MIN_SPAN);
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
        let busiest = rates.first().map_or("", |r| r.1);
        let alone = one_flow(&now.data, n, busiest, hot.cpu);
        advise(f, w, n, &rates, alone);
    } else {
        without_interrupts(f, w, hot);
    }
}

/// Packets that no interrupt brings come from a sender on this CPU, or from another CPU.
fn without_interrupts(f: &mut Fire, w: &Window<'_>, hot: &Hot) {
    const SENT: &str = "packets are sent on this CPU (veth, loopback, tunnel)";
    let cpu = hot.cpu;
    let net = w.derived.softirq.as_ref().and_then(|s| s.softnet(cpu));
    let text = match net.and_then(|n| n.rps_s) {
        Some(n) if n > 0.0 => {
            let text = format!("RPS: {}/s from other CPUs", rate(n));
            f.evidence.push(Evidence::new("received_rps", n, "/s", text));
            f.next.push("grep . /sys/class/net/*/queues/rx-*/rps_cpus".to_owned());
            return by_traffic::blame_packets(w, net.map_or(0.0, |n| n.processed_s), f);
        }
        Some(_) => format!("no NIC interrupt arrives here, and nothing by RPS: {SENT}"),
        None => format!("no NIC interrupt arrives here: {SENT} or steered here by RPS"),
    };
    let (by, takes_in) = by::senders(w, cpu);
    if takes_in && by.is_empty() {
        return taken_in(f, w, cpu, net.map(|n| n.processed_s));
    }
    f.evidence.push(Evidence::text("irq", text));
    f.by = by;
    f.next.push(match by::pids(&f.by) {
        Some(pids) => format!("pidstat -t -p {pids} 1 3  # who sends on CPU {}", cpu.0),
        None => format!("pidstat -t 1 3  # who sends on CPU {}", cpu.0),
    });
}

/// `ksoftirqd` has the CPU, and nobody who could send was seen there: a NIC is polled with its
/// interrupts off, or other CPUs hand it packets. RPS interrupts a CPU only if it has none left.
fn taken_in(f: &mut Fire, w: &Window<'_>, cpu: CpuId, packets_s: Option<f64>) {
    let Some(packets_s) = packets_s else {
        let why = "softnet_stat names no CPU: who sends these packets";
        return f.missing.push(why.to_owned());
    };
    let text = match by_traffic::from_nics(w, packets_s) {
        Some(true) => format!("NICs receive as many packets: ksoftirqd/{} polls them", cpu.0),
        Some(false) => {
            f.next.push("grep . /sys/class/net/*/queues/rx-*/rps_cpus".to_owned());
            "no NIC interrupt arrives here, and no sender was seen here: other CPUs hand it \
             packets (RPS, which does not interrupt a CPU that has some left)"
                .to_owned()
        }
        None => "no NIC interrupt arrives here, and no sender was seen here".to_owned(),
    };
    f.evidence.push(Evidence::text("irq", text));
    by_traffic::blame_packets(w, packets_s, f);
}

fn count_on(s: &SoftirqSample, irq: &str, cpu: CpuId) -> Option<u64> {
    let column = s.irq_cpus.iter().position(|c| *c == cpu)?;
    s.irqs.iter().find(|i| &*i.irq == irq)?.counts.get(column).copied()
}

/// The last word is the most telling part: `IR-PCI-MSI 524289-edge eth0-TxRx-0`.
fn last_word(name: &str) -> &str {
    name.split_whitespace().next_back().unwrap_or("")
}

fn advise(f: &mut Fire, w: &Window<'_>, n: &NicQueues, rates: &[(f64, &str, &str)], alone: bool) {
    if let Some((s, l)) = w.host.netns.and_then(|own| w.netdev(own)).zip(nics::link(w, n)) {
        by_traffic::blame(w, s, l, Way::In, f);
    }
    let dev = sh(&n.dev);
    let cpus = w.host.cpus.max(1);
    let queues = count(n.rx_queues as usize, "receive queue");
    let text = format!("{} has {queues} for {cpus} CPUs", n.dev);
    f.evidence.push(Evidence::new("queues", n.rx_queues.into(), "", text));
    let off = nics::rps_off(n);
    if alone {
        f.severity = Severity::Info;
        f.confidence = Confidence::Suspected;
        let text = format!("the other queues' interrupts go to other CPUs: one flow on {dev}");
        f.evidence.push(Evidence::text("spread", text));
        let why = "whether it is one flow, or a few that hash to one queue (packets per queue)";
        f.missing.push(why.to_owned());
        f.next.push(format!("ethtool -S {dev} | grep -i -E 'rx.*packets'"));
        f.next.push(format!("ethtool -x {dev}; ethtool -n {dev} rx-flow-hash udp4"));
        return;
    }
    if n.rx_queues > 1 {
        let text = format!("{} queues, but their interrupts are not spread", n.rx_queues);
        let homes = "the interrupts of other queues arrive here too, or never fired";
        f.ruled_out.push(RuledOut::new("one-flow", homes));
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

/// A mask of the first `n` CPUs in the format of `rps_cpus`: groups of 32 bits, highest first.
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
