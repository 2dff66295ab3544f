//! `nic-rx-drop`: a NIC drops packets before the kernel sees them.

use super::common::by_traffic::{self, Way};
use super::common::links::{self, Judged, say, spaces};
use super::common::nics;
use super::common::text::{count, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::netdev::{LinkFigures, SpaceFigures};
use crate::metrics::rate::ratio;

/// Packets per second.
const LOST: f64 = 10.0;
/// Fraction of all received packets, and a minimum per second.
const SHARE: f64 = 0.001;
const LEAST: f64 = 1.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("nic-rx-drop"),
    title: "the NIC drops received packets: its ring is not drained in time",
    condition: "rx_missed plus rx_fifo errors grow by 10/s or more, or by 1/s or more and 0.1% \
        of the packets received, for 3 of 10 s. Clears below 7/s and 0.07%.",
    look_alikes: "rx_dropped alone: unknown protocols and foreign VLANs count there on a \
        healthy host. Drops after the NIC: softnet-drop-or-squeeze, a full socket buffer.",
    remedy: "A larger ring (ethtool -G), more queues (ethtool -L), interrupts on less busy CPUs \
        (softirq-one-core, nic-few-queues).",
    sources: "rtnl_link_stats64: rx_missed_errors, rx_fifo_errors; netdata warns at 2% over 10 \
        min.",
    hold: Hold::of(3, 10),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Netdev], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for (space, fresh) in spaces(w) {
        for link in &space.links {
            say(out, fresh, links::subject(space, link), judge(w, space, link));
        }
    }
}

fn judge(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures) -> Option<Judged> {
    let lost = l.rx_lost_s;
    let share = ratio(lost, lost + l.rx_pps)?;
    let over = |part: f64| lost >= part * LOST || (lost >= part * LEAST && share >= part * SHARE);
    if over(1.0) {
        return Some(fire(w, s, l, share).into());
    }
    over(CLEAR).then_some(Judged::Linger)
}

fn fire(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures, share: f64) -> Fire {
    let pct = 100.0 * share;
    let mut f = Fire::new(
        Severity::Warn,
        format!(
            "{} loses {} received packets/s ({pct:.2}%) before the kernel sees them",
            links::title(w, s, l),
            rate(l.rx_lost_s)
        ),
    );
    let text =
        format!("rx_missed and rx_fifo +{}/s of {} packets/s", rate(l.rx_lost_s), rate(l.rx_pps));
    f.evidence.push(Evidence::new("rx_missed", l.rx_lost_s, "/s", text).over(LOST));
    let text = format!("{pct:.2}% of what arrives");
    f.evidence.push(Evidence::new("share", pct, "%", text).over(100.0 * SHARE));
    let text = format!("rx_dropped {}/s, which is not counted here", rate(l.rx_dropped_s));
    f.evidence.push(Evidence::new("rx_dropped", l.rx_dropped_s, "/s", text));
    let own = w.host.netns == Some(s.netns);
    if let Some(n) = nics::nics(w).find(|n| own && n.dev == l.attrs.name) {
        let text = match nics::irq_cpus(w, n) {
            Some(cpus) => {
                let ids: Vec<_> = cpus.iter().map(|c| c.0).collect();
                format!(
                    "{}, interrupts on CPU {}",
                    count(n.rx_queues as usize, "receive queue"),
                    nics::cpu_list(&ids)
                )
            }
            None => format!("{} receive queues", n.rx_queues),
        };
        f.evidence.push(Evidence::new("queues", n.rx_queues.into(), "", text));
    }
    let softnet: f64 = w.derived.softirq.iter().flat_map(|x| &x.softnet).map(|n| n.dropped_s).sum();
    if w.derived.softirq.is_some() {
        let because = format!("softnet drops {}/s; these are lost before it", rate(softnet));
        f.ruled_out.push(RuledOut::new("softnet-drop-or-squeeze", because));
    }
    let because =
        format!("rx_missed and rx_fifo grow, not only rx_dropped ({}/s)", rate(l.rx_dropped_s));
    f.ruled_out.push(RuledOut::new("unknown-protocols", because));
    let (dev, enter) = (sh(&l.attrs.name), links::enter(w, s));
    f.next.push(format!("{enter}ethtool -g {dev}; {enter}ethtool -l {dev}"));
    f.next.push(format!("{enter}ethtool -S {dev} | grep -iE 'miss|no_buf|fifo|drop'"));
    by_traffic::blame(w, s, l, Way::In, &mut f);
    f
}
