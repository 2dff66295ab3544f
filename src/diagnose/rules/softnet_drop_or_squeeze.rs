//! `softnet-drop-or-squeeze`: a CPU cannot keep up with its packets.

use super::common::by_traffic;
use super::common::text::rate;
use crate::diagnose::rules::prelude::*;
use crate::metrics::cpu::{CpuShare, SoftnetFigures};
use crate::metrics::rate::ratio;

/// Per second.
const DROPPED: f64 = 10.0;
const SQUEEZED: f64 = 10.0;
/// Softirq time of the CPU, %, below which running out of budget does no harm.
const BUSY: f64 = 50.0;
/// Dropped packets as a fraction of all.
const SHARE: f64 = 0.001;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("softnet-drop-or-squeeze"),
    title: "a CPU cannot keep up with its packets: backlog overflow or budget exhausted",
    condition: "On one CPU softnet drops 10 packets/s or more, or runs out of budget \
        (time_squeeze) 10 times/s or more while the CPU is 50% or more in softirq, for 3 of 10 \
        s. Critical when 0.1% or more of the packets are dropped. Clears below 7/s.",
    look_alikes: "time_squeeze on a CPU with time to spare: the next round follows immediately and \
        nothing is lost. Packets lost in the NIC (nic-rx-drop) or at a full socket buffer \
        (udp-rcvbuf-drop) never count here.",
    remedy: "Drops: raise net.core.netdev_max_backlog; only RPS, veth and loopback use it. \
        Squeezes: raise net.core.netdev_budget and netdev_budget_usecs, or spread the packets \
        over more CPUs (queues, RPS).",
    sources: "/proc/net/softnet_stat columns 1, 2, 3 and 12; netdata warns above 10.",
    hold: Hold::of(3, 10),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Softirq], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(soft) = w.derived.softirq.as_ref() else { return };
    for n in &soft.softnet {
        // Without a CPU number the rows share the host as subject; the worst one counts.
        let subject = n.cpu.map_or(Subject::Host, |cpu| Subject::Cpu { cpu });
        let share = n.cpu.and_then(|id| w.derived.cpu.as_ref()?.cpu(id));
        let busy = share.is_some_and(|s| s.softirq >= BUSY);
        if n.dropped_s >= DROPPED || (n.squeeze_s >= SQUEEZED && busy) {
            out.fire(subject, fire(w, n, share));
        } else if n.dropped_s >= CLEAR * DROPPED || (n.squeeze_s >= CLEAR * SQUEEZED && busy) {
            out.linger(subject);
        } else if n.squeeze_s >= SQUEEZED && share.is_none() {
            out.unknown(
                subject,
                "whether the CPU that runs out of budget is busy (no CPU number, or no /proc/stat)",
            );
        }
    }
}

fn fire(w: &Window<'_>, n: &SoftnetFigures, share: Option<CpuShare>) -> Fire {
    let drops = n.dropped_s >= DROPPED;
    // Dropped packets are not counted as processed.
    let lost = ratio(n.dropped_s, n.processed_s + n.dropped_s).unwrap_or(0.0);
    let severity = if drops && lost >= SHARE { Severity::Crit } else { Severity::Warn };
    let who = n.cpu.map_or_else(|| "a CPU".to_owned(), |c| c.to_string());
    let what = if drops {
        format!("drops {} packets/s ({:.2}%): its backlog is full", rate(n.dropped_s), 100.0 * lost)
    } else {
        format!("runs out of its packet budget {} times/s", rate(n.squeeze_s))
    };
    let mut f = Fire::new(severity, format!("{who} {what}"));
    let text = format!(
        "dropped {}/s of {} packets/s",
        rate(n.dropped_s),
        rate(n.processed_s + n.dropped_s)
    );
    f.evidence.push(Evidence::new("drop", n.dropped_s, "/s", text).over(DROPPED));
    let text = format!("time_squeeze {}/s", rate(n.squeeze_s));
    f.evidence.push(Evidence::new("squeeze", n.squeeze_s, "/s", text).over(SQUEEZED));
    if let Some(len) = n.backlog {
        let text = format!("{len} packets in the backlog now");
        f.evidence.push(Evidence::new("backlog", len.into(), "packets", text));
    }
    match share {
        Some(s) => {
            let text = format!("softirq {:.0}%, idle {:.0}% of {who}", s.softirq, s.idle);
            f.evidence.push(Evidence::new("softirq", s.softirq, "%", text).over(BUSY));
        }
        None => f.missing.push("how busy the CPU is with softirqs".to_owned()),
    }
    f.ruled_out.push(RuledOut::new(
        "nic-rx-drop",
        "the kernel had these packets: softnet counts after the NIC",
    ));
    if drops {
        f.next.push("sysctl net.core.netdev_max_backlog  # raise it fourfold".to_owned());
    } else {
        f.next.push("sysctl net.core.netdev_budget net.core.netdev_budget_usecs".to_owned());
        f.ruled_out.push(RuledOut::new("backlog", format!("dropped {}/s", rate(n.dropped_s))));
    }
    f.next.push("grep . /sys/class/net/*/queues/rx-*/rps_cpus".to_owned());
    if let Some(c) = n.cpu {
        f.next.push(format!("mpstat -P {} -I SCPU 1 3", c.0));
    }
    by_traffic::blame_packets(w, n.processed_s + n.dropped_s, &mut f);
    f
}
