//! `nic-saturated`: a link is at its speed, or at a provider's limit.

use super::common::by_traffic::{self, Way};
use super::common::links::{self, Judged, say, spaces};
use super::common::nics;
use super::common::text::{bits, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::netdev::{LinkFigures, SpaceFigures};
use crate::metrics::rate::per_second;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fraction of the link speed.
const FULL: f64 = 0.9;
const CLEAR: f64 = 0.85;
/// Allowance counters are read every 2 s: growth within this time is current ...
const NOW: Duration = Duration::from_secs(4);
/// ... if they also grew in another reading within this time: a single burst does not count.
const LATELY: Duration = Duration::from_secs(12);

static DOC: RuleDoc = RuleDoc {
    id: RuleId("nic-saturated"),
    title: "a NIC runs close to the limit of its link or of the VM's provider",
    condition: "A NIC sends or receives 90% or more of its link speed, or its driver counts \
        packets over a provider limit (*_allowance_exceeded), in 5 of 8 s; the latter is \
        critical, because packets are dropped. Clears below 85%, and without such packets.",
    look_alikes: "A shaper (tc-shaped): it has a rate, and packets queue in it. Virtual NICs: \
        virtio does not know its speed, and the rule says so; veth makes one up and is not \
        checked. A single burst over an allowance: the counter stops growing.",
    remedy: "A faster NIC or a larger instance, several NICs in a bond, or less traffic: \
        compression, a cache closer to the reader. conntrack_allowance: fewer or longer-lived \
        connections.",
    sources: "IFLA_STATS64 and ETHTOOL_MSG_LINKMODES_GET or /sys/class/net/DEV/speed; driver \
        statistics of ena (ethtool -S); netdata warns at 90% and clears at 85%.",
    hold: Hold::of(5, 8),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Netdev],
    explains: &[Explains::new("tcp-retrans-rate", Scope::Netns)],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for (space, fresh) in spaces(w) {
        for link in space.links.iter().filter(|l| l.attrs.physical) {
            let subject = links::subject(space, link);
            let idle = link.rx_bytes_s + link.tx_bytes_s <= 0.0;
            if fresh && !idle && link.exceeded_s.is_empty() && !has_speed(w, space, link) {
                out.unknown(subject, NO_LIMIT);
            } else {
                say(out, fresh, subject, judge(w, space, link));
            }
        }
    }
}

const NO_LIMIT: &str =
    "neither its speed (virtio reports none) nor the provider's limits are known";

fn has_speed(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures) -> bool {
    capacity(w, s, l).is_some_and(|c| c > 0.0)
}

/// Bytes per second that the link can carry in one direction.
fn capacity(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures) -> Option<f64> {
    let from_sysfs = || {
        let own = w.host.netns == Some(s.netns);
        nics::nics(w).find(|n| own && n.dev == l.attrs.name)?.speed_mbit
    };
    let mbit = l.attrs.speed_mbit.or_else(from_sysfs)?;
    Some(f64::from(mbit) * 1e6 / 8.0)
}

/// Packets per second over each provider limit recently, most first; empty if none at present.
fn held_back(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures) -> Vec<(Arc<str>, f64)> {
    let mut sums: BTreeMap<&Arc<str>, f64> = BTreeMap::new();
    let (mut span, mut moments, mut now) = (Duration::ZERO, 0, false);
    for m in w.history.back_from(w.tick.seq) {
        let age = w.tick.mono.since(m.tick.mono);
        if age >= LATELY {
            break;
        }
        let spaces = m.derived.netdev.iter().flat_map(|n| n.iter());
        for then in spaces.filter(|x| x.netns == s.netns) {
            let Some(link) = then.link_at(l.ifindex) else { continue };
            span += then.dt;
            let mut grew = false;
            for (name, rate) in &link.exceeded_s {
                *sums.entry(name).or_default() += rate * then.dt.as_secs_f64();
                grew |= *rate > 0.0;
            }
            moments += u32::from(grew);
            now |= grew && age < NOW;
        }
    }
    if !now || moments < 2 {
        return Vec::new();
    }
    let grown = sums.into_iter().filter(|(_, n)| *n > 0.0);
    let rate = |(name, n): (&Arc<str>, f64)| Some((name.clone(), per_second(n, span)?));
    let mut out: Vec<_> = grown.filter_map(rate).collect();
    out.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    out
}

fn judge(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures) -> Option<Judged> {
    let held = held_back(w, s, l);
    let capacity = capacity(w, s, l).filter(|c| *c > 0.0);
    let share = capacity.map_or(0.0, |c| l.tx_bytes_s.max(l.rx_bytes_s) / c);
    if !held.is_empty() {
        return Some(limited(w, s, l, &held).into());
    }
    match capacity {
        Some(c) if share >= FULL => Some(full(w, s, l, c).into()),
        _ => (share >= CLEAR).then_some(Judged::Linger),
    }
}

/// The provider's limit is exceeded.
fn limited(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures, held: &[(Arc<str>, f64)]) -> Fire {
    let most = held.first().map_or("", |h| &*h.0);
    let all: f64 = held.iter().map(|h| h.1).sum();
    let title = links::title(w, s, l);
    let mut f = Fire::new(
        Severity::Crit,
        format!("the provider throttles {} packets/s of {title} ({most})", rate(all)),
    );
    for (name, n) in held {
        let text = format!("{name} +{}/s: queued or dropped outside this VM", rate(*n));
        f.evidence.push(Evidence::new("exceeded", *n, "/s", text).over(0.0));
    }
    let text = format!(
        "receives {} in {} packets/s, sends {} in {} packets/s",
        bits(l.rx_bytes_s),
        rate(l.rx_pps),
        bits(l.tx_bytes_s),
        rate(l.tx_pps)
    );
    f.evidence.push(Evidence::new("rx", l.rx_bytes_s, "bytes/s", text));
    if let Some(mbit) = l.attrs.speed_mbit {
        let text = format!("the link itself reports {mbit} Mbit/s");
        f.evidence.push(Evidence::new("link", mbit.into(), "Mbit/s", text));
    }
    shaper(&mut f, s, l);
    let because = "it grew again within the last few seconds".to_owned();
    f.ruled_out.push(RuledOut::new("single-burst", because));
    let (dev, enter) = (sh(&l.attrs.name), links::enter(w, s));
    f.next.push(format!("{enter}watch -d -n 1 'ethtool -S {dev} | grep allowance'"));
    f.next.push(format!(
        "{enter}sar -n DEV 1 3; {enter}ethtool -i {dev}  # compare with the instance type"
    ));
    by_traffic::blame(w, s, l, busier(l), &mut f);
    f
}

/// Rules out a shaper on this host, or names it.
fn shaper(f: &mut Fire, s: &SpaceFigures, l: &LinkFigures) {
    let shaped = s.qdiscs_of(l.ifindex).find_map(|q| Some((q, q.limit()?)));
    let because = match shaped {
        Some((q, limit)) => format!("{} {} has {}", q.kind, q.id(), bits(limit as f64)),
        None => format!("no tc rate on {}", l.attrs.name),
    };
    f.ruled_out.push(RuledOut::new("tc-shaped", because));
}

fn busier(l: &LinkFigures) -> Way {
    if l.tx_bytes_s >= l.rx_bytes_s { Way::Out } else { Way::In }
}

/// The link is full.
fn full(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures, capacity: f64) -> Fire {
    let (way, used, pps) = match busier(l) {
        Way::Out => ("sends", l.tx_bytes_s, l.tx_pps),
        Way::In => ("receives", l.rx_bytes_s, l.rx_pps),
    };
    let pct = 100.0 * used / capacity;
    let title = links::title(w, s, l);
    let mut f = Fire::new(
        Severity::Warn,
        format!("{title} {way} {} of {} ({pct:.0}%)", bits(used), bits(capacity)),
    );
    let text = format!("{way} {}, {pct:.0}% of its speed of {}", bits(used), bits(capacity));
    f.evidence.push(Evidence::new("speed", pct, "%", text).over(100.0 * FULL));
    let text = format!("{} packets/s of {:.0} B", rate(pps), used / pps.max(1.0));
    f.evidence.push(Evidence::new("packets", pps, "/s", text));
    let text = format!(
        "other direction {}; errors {}/s",
        bits(l.tx_bytes_s.min(l.rx_bytes_s)),
        rate(l.rx_errors_s + l.tx_errors_s)
    );
    f.evidence.push(Evidence::new("errors", l.rx_errors_s + l.tx_errors_s, "/s", text));
    shaper(&mut f, s, l);
    let (dev, enter) = (sh(&l.attrs.name), links::enter(w, s));
    f.next.push(format!("{enter}ethtool {dev} | grep -E 'Speed|Duplex'"));
    f.next.push(format!("{enter}ethtool -S {dev} | grep -E 'allowance|pause'"));
    f.next.push(format!("{enter}sar -n DEV 1 3"));
    by_traffic::blame(w, s, l, busier(l), &mut f);
    f
}
