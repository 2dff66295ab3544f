//! `nic-saturated`: a link carries what it can.

use std::time::Duration;

use super::super::{
    Evidence, Fire, Hold, Rule, RuleDoc, RuleId, RuledOut, Severity, Thresholds, Verdicts, Window,
};
use super::common::links::{self, Judged, say, spaces};
use super::common::nics;
use super::common::text::{bits, rate, sh};
use crate::collect::CollectorId;
use crate::model::derive::netdev::{LinkFigures, SpaceFigures};

/// See [`DOC`].
#[derive(Debug)]
pub(super) struct NicSaturated;

/// Part of the speed.
const FULL: f64 = 0.9;
const CLEAR: f64 = 0.85;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("nic-saturated"),
    title: "this NIC sends or receives nearly all that its link can carry",
    condition: "A NIC sends or receives 90% or more of its speed, for 5 of 8 s. Clears below 85%.",
    look_alikes: "A shaper (tc-shaped): it has a rate and packets wait in it. Virtual NICs: virtio \
        does not know its speed, veth makes one up; they are not judged. Limits of a cloud \
        provider per instance are below the speed: the driver counts them (ethtool -S, \
        *_allowance_exceeded), which is not read here.",
    remedy: "A faster NIC or a bigger instance, several NICs in a bond, less traffic: compression, \
        a cache nearer to the reader.",
    sources: "IFLA_STATS64 and ETHTOOL_MSG_LINKMODES_GET or /sys/class/net/DEV/speed; netdata \
        warns at 90% and clears at 85%.",
    hold: Hold::of(5, 8),
    needs_time: Duration::from_secs(6),
};

impl Rule for NicSaturated {
    fn doc(&self) -> &'static RuleDoc {
        &DOC
    }
    fn needs(&self) -> &'static [CollectorId] {
        &[CollectorId::Netdev]
    }
    fn check(&self, w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
        for (space, fresh) in spaces(w) {
            for link in space.links.iter().filter(|l| l.attrs.physical) {
                say(out, fresh, links::subject(space, link), judge(w, space, link));
            }
        }
    }
}

/// Bytes per second that the link can carry one way.
fn capacity(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures) -> Option<f64> {
    let from_sysfs = || {
        let own = w.host.netns == Some(s.netns);
        nics::nics(w).find(|n| own && n.dev == l.attrs.name)?.speed_mbit
    };
    let mbit = l.attrs.speed_mbit.or_else(from_sysfs)?;
    Some(f64::from(mbit) * 1e6 / 8.0)
}

fn judge(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures) -> Option<Judged> {
    let capacity = capacity(w, s, l).filter(|c| *c > 0.0)?;
    let share = l.tx_bytes_s.max(l.rx_bytes_s) / capacity;
    if share >= FULL {
        return Some(fire(w, s, l, capacity).into());
    }
    (share >= CLEAR).then_some(Judged::Linger)
}

fn fire(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures, capacity: f64) -> Fire {
    let (way, used, pps) = if l.tx_bytes_s >= l.rx_bytes_s {
        ("sends", l.tx_bytes_s, l.tx_pps)
    } else {
        ("receives", l.rx_bytes_s, l.rx_pps)
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
        "the other way {}; errors {}/s",
        bits(l.tx_bytes_s.min(l.rx_bytes_s)),
        rate(l.rx_errors_s + l.tx_errors_s)
    );
    f.evidence.push(Evidence::new("errors", l.rx_errors_s + l.tx_errors_s, "/s", text));
    let shaped = s.qdiscs_of(l.ifindex).find_map(|q| Some((q, q.limit()?)));
    let because = match shaped {
        Some((q, limit)) => format!("{} {} has {}", q.kind, q.id(), bits(limit as f64)),
        None => format!("no rate on {}", l.attrs.name),
    };
    f.ruled_out.push(RuledOut::new("tc-shaped", because));
    f.missing
        .push("what the driver counts (ethtool -S: allowances of the provider, pauses)".to_owned());
    let (dev, enter) = (sh(&l.attrs.name), links::enter(w, s));
    f.next.push(format!("{enter}ethtool {dev} | grep -E 'Speed|Duplex'"));
    f.next.push(format!("{enter}ethtool -S {dev} | grep -E 'allowance|pause'"));
    f.next.push("sar -n DEV 1 3  # and iftop or nethogs: who talks".to_owned());
    f
}
