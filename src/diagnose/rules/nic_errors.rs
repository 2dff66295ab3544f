//! `nic-errors`: a device counts packet errors, or its link flaps.

use super::common::links::{self, Judged, say, spaces};
use super::common::text::{rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::netdev::{LinkFigures, SpaceFigures};
use crate::metrics::rate::ratio;

/// Errors as a fraction of all packets received or sent, and a minimum per second.
const SHARE: f64 = 0.01;
const LEAST_S: f64 = 1.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;
/// Carrier changes ...
const CHANGES: u32 = 4;
/// ... within this time. One `ip link set down` and `up` make two.
const MINUTE: Duration = Duration::from_secs(60);
/// Software devices that have a link below them, or act like one.
const WIRED: [&str; 3] = ["bond", "team", "veth"];

static DOC: RuleDoc = RuleDoc {
    id: RuleId("nic-errors"),
    title: "a network device counts packet errors, or its link flaps",
    condition: "rx_errors (without missed and fifo errors, which are nic-rx-drop) or tx_errors \
        are 1% or more of the packets received or sent, and 1/s or more, for 3 of 10 s; or the \
        carrier changed 4 times or more in the last minute. Covers NICs, bond, team and veth. \
        Clears below 0.7%.",
    look_alikes: "A ring that is not drained in time: rx_missed and rx_fifo (nic-rx-drop). \
        rx_dropped: packets that nothing on this host wants. Tunnels count tx_errors without a \
        peer. A bridge loses its carrier with its last port: not checked.",
    remedy: "crc or frame errors: cable, transceiver, switch port, duplex mismatch. Carrier \
        changes: the same, or a driver that resets; check dmesg and the switch's log. Only \
        length errors: an MTU mismatch.",
    sources: "rtnl_link_stats64, IFLA_CARRIER_CHANGES; node-mixin NodeNetworkReceiveErrs warns \
        at 1%. Measured on 6.18: setting a veth's peer down and up three times counts 6 \
        changes.",
    hold: Hold::of(3, 10),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Netdev], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for (space, fresh) in spaces(w) {
        let past = minute_ago(w, space);
        for (i, link) in space.links.iter().enumerate().filter(|(_, l)| has_wire(l)) {
            let flaps = past.and_then(|p| changes(p, i, link)).unwrap_or(0);
            say(out, fresh, links::subject(space, link), judge(w, space, link, flaps));
        }
    }
}

fn has_wire(l: &LinkFigures) -> bool {
    l.attrs.physical || l.attrs.kind.as_deref().is_some_and(|k| WIRED.contains(&k))
}

/// Errors of one direction.
struct Bad {
    way: &'static str,
    field: &'static str,
    errors_s: f64,
    packets_s: f64,
    share: f64,
}

impl Bad {
    fn of(way: &'static str, field: &'static str, errors_s: f64, packets_s: f64) -> Option<Self> {
        let share = ratio(errors_s, errors_s + packets_s)?;
        Some(Self { way, field, errors_s, packets_s, share })
    }
    fn many(&self, part: f64) -> bool {
        self.errors_s >= part * LEAST_S && self.share >= part * SHARE
    }
}

fn judge(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures, flaps: u32) -> Option<Judged> {
    // Some drivers include packets lost for lack of a buffer.
    let bad = [
        Bad::of("received", "rx_errors", (l.rx_errors_s - l.rx_lost_s).max(0.0), l.rx_pps),
        Bad::of("sent", "tx_errors", l.tx_errors_s, l.tx_pps),
    ];
    let over = |part: f64| bad.iter().flatten().filter(move |b| b.many(part));
    let worst = over(1.0).max_by(|a, b| a.share.total_cmp(&b.share));
    if worst.is_some() || flaps >= CHANGES {
        return Some(fire(w, s, l, worst, flaps).into());
    }
    over(CLEAR).next().map(|_| Judged::Linger)
}

/// The oldest metrics of a namespace within the last minute.
fn minute_ago<'a>(w: &Window<'a>, s: &SpaceFigures) -> Option<&'a SpaceFigures> {
    let past = w.history.back_from(w.tick.seq);
    past.take_while(|m| w.tick.mono.since(m.tick.mono) <= MINUTE)
        .filter_map(|m| m.derived.netdev.as_deref()?.iter().find(|x| x.netns == s.netns))
        .last()
}

/// Carrier changes of the link since then. The same index is tried first.
fn changes(past: &SpaceFigures, i: usize, l: &LinkFigures) -> Option<u32> {
    let now = l.carrier_changes?;
    let here = past.links.get(i).filter(|o| o.ifindex == l.ifindex);
    let old = here.or_else(|| past.link_at(l.ifindex))?;
    // Another name, or a lower count: a different device has this ifindex now.
    now.checked_sub(old.carrier_changes?).filter(|_| old.attrs.name == l.attrs.name)
}

fn fire(
    w: &Window<'_>,
    s: &SpaceFigures,
    l: &LinkFigures,
    worst: Option<&Bad>,
    flaps: u32,
) -> Fire {
    let title = links::title(w, s, l);
    let mut f = Fire::new(
        Severity::Warn,
        match worst {
            Some(b) => format!(
                "{:.1}% of the packets {} at {title} are bad: {} errors/s",
                100.0 * b.share,
                b.way,
                rate(b.errors_s)
            ),
            None => format!("the link of {title} went up or down {flaps} times in the last minute"),
        },
    );
    if let Some(b) = worst {
        let text = format!(
            "{} +{}/s of {} packets/s",
            b.field,
            rate(b.errors_s),
            rate(b.errors_s + b.packets_s)
        );
        let pct = 100.0 * b.share;
        f.evidence.push(Evidence::new(b.field, pct, "%", text).over(100.0 * SHARE));
        kinds(&mut f, l);
    }
    match l.carrier_changes {
        Some(_) => {
            let text = format!("carrier changed {flaps} times in the last minute");
            let e = Evidence::new("carrier_changes", flaps.into(), "", text);
            f.evidence.push(if flaps >= CHANGES { e.over(CHANGES.into()) } else { e });
        }
        None => f.missing.push("whether the link flaps (no carrier_changes)".to_owned()),
    }
    let because = format!("rx_missed and rx_fifo {}/s are not included", rate(l.rx_lost_s));
    f.ruled_out.push(RuledOut::new("nic-rx-drop", because));
    let because = format!("rx_dropped {}/s is not counted here", rate(l.rx_dropped_s));
    f.ruled_out.push(RuledOut::new("unknown-protocols", because));
    let (dev, enter) = (sh(&l.attrs.name), links::enter(w, s));
    f.next.push(format!("{enter}ip -s -s -d link show dev {dev}"));
    f.next.push(format!("{enter}ethtool -S {dev} | grep -iE 'err|crc|bad' | grep -v ': 0$'"));
    f.next.push(format!("{enter}ethtool {dev}; dmesg -T | grep -w {dev} | tail"));
    f
}

/// What is wrong with the packets, if the driver reports it.
fn kinds(f: &mut Fire, l: &LinkFigures) {
    let known = [("crc", l.rx_crc_s), ("frame", l.rx_frame_s)];
    let some: Vec<String> = known
        .iter()
        .filter_map(|(name, r)| r.filter(|r| *r > 0.0).map(|r| format!("{name} {}/s", rate(r))))
        .collect();
    if !some.is_empty() {
        let text = format!("of these {}: cable, connectors, switch port", some.join(", "));
        f.evidence.push(Evidence::text("crc", text));
    } else if l.rx_crc_s.is_none() {
        f.missing.push("how many have a bad CRC".to_owned());
    }
}
