//! `qdisc-drop-or-requeue`: a device's qdisc drops packets, or its driver hands them back.

use super::common::links::{self, Judged, say, spaces};
use super::common::text::{rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::netdev::{LinkFigures, QdiscFigures, SpaceFigures};

/// Packets per second.
const DROPS: f64 = 10.0;
const REQUEUES: f64 = 100.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("qdisc-drop-or-requeue"),
    title: "a device's qdisc drops packets, or its driver hands them back",
    condition: "The root qdisc of a device without a shaper drops 10 packets/s or more, or gets \
        100 packets/s or more back from the driver (requeues), for 3 of 10 s. Clears below 7 \
        and 70.",
    look_alikes: "A shaper: dropping is its job (tc-shaped). netem drops on purpose. fq_codel \
        drops a little to keep the queue short: that is how it signals congestion. A policer \
        counts its drops at ingress, not at the root.",
    remedy: "Drops: a longer txqueuelen, fewer bursts, fq_codel. Requeues: the driver's ring is \
        full, because the link is slower than the sender or the ring is too small (ethtool -G, \
        BQL).",
    sources: "RTM_GETQDISC (TCA_STATS2: drops, requeues).",
    hold: Hold::of(3, 10),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Annotation, needs: &[CollectorId::Netdev], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for (space, fresh) in spaces(w) {
        for link in &space.links {
            say(out, fresh, links::subject(space, link), judge(w, space, link));
        }
    }
}

fn judge(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures) -> Option<Judged> {
    let root = s.root(l.ifindex)?;
    let by_design = |q: &QdiscFigures| q.shape.is_some() || &*q.kind == "netem";
    if s.qdiscs_of(l.ifindex).any(by_design) {
        return None;
    }
    if root.drops_s >= DROPS || root.requeues_s >= REQUEUES {
        return Some(fire(w, s, l, root).into());
    }
    let near = root.drops_s >= CLEAR * DROPS || root.requeues_s >= CLEAR * REQUEUES;
    near.then_some(Judged::Linger)
}

fn fire(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures, q: &QdiscFigures) -> Fire {
    let what = if q.drops_s >= DROPS {
        format!("drops {} packets/s", rate(q.drops_s))
    } else {
        format!("gets {} packets/s back from its driver", rate(q.requeues_s))
    };
    let mut f =
        Fire::new(Severity::Info, format!("{} of {} {what}", q.kind, links::title(w, s, l)));
    let text =
        format!("drops {}/s of {} packets/s", rate(q.drops_s), rate(q.drops_s + q.packets_s));
    f.evidence.push(Evidence::new("drops", q.drops_s, "/s", text).over(DROPS));
    let text = format!("requeues {}/s", rate(q.requeues_s));
    f.evidence.push(Evidence::new("requeues", q.requeues_s, "/s", text).over(REQUEUES));
    let text = format!("txqueuelen {}, {} packets queued now", l.attrs.txqlen, q.qlen);
    f.evidence.push(Evidence::new("qlen", q.qlen.into(), "packets", text));
    f.ruled_out.push(RuledOut::new("tc-shaped", format!("no tc rate on {}", l.attrs.name)));
    let (dev, enter) = (sh(&l.attrs.name), links::enter(w, s));
    f.next.push(format!("{enter}tc -s qdisc show dev {dev}"));
    f.next.push(format!("{enter}ip -s link show dev {dev}"));
    if l.attrs.physical {
        // /sys shows the devices of the network namespace in which it was mounted.
        if enter.is_empty() {
            f.next.push(format!(
                "grep . /sys/class/net/{dev}/queues/tx-*/byte_queue_limits/inflight"
            ));
        }
        f.next.push(format!("{enter}ethtool -g {dev}"));
    }
    f
}
