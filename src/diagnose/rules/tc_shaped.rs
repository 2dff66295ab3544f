//! `tc-shaped`: a tc shaper, not the link, limits a device.

use std::sync::Arc;

use super::common::by_owner::by_owner;
use super::common::links::{self, Judged, say, spaces};
use super::common::text::{bits, bytes, rate, sh, time};
use crate::diagnose::rules::prelude::*;
use crate::metrics::netdev::{LinkFigures, QdiscFigures, SpaceFigures};
use crate::metrics::sockets::Suspect;
use crate::sample::sockets::RouteOutcome;

/// Fraction of its rate from which a shaper counts as used up.
const FULL: f64 = 0.95;
/// An active finding clears below this fraction.
const CLEAR: f64 = 0.665;
/// Fraction of packets dropped that is critical: a bulk connection finds the rate by losing 1 to
/// 3%.
const DROPS: f64 = 0.1;
/// Packets per tick below which the throughput of one tick means nothing: at 1 kbit/s one packet
/// leaves every twelve seconds.
const COUNTABLE: f64 = 4.0;
/// Such a shaper is evaluated over up to this time ...
const SLOW_OVER: Duration = Duration::from_secs(10);
/// ... and over at least this time.
const SLOW_LEAST: Duration = Duration::from_secs(5);
/// Burst size, in seconds at the rate, that hides the rate at first.
const LONG_BURST: f64 = 2.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tc-shaped"),
    title: "a tc shaper limits this device, not the link",
    condition: "A tbf qdisc or an htb class has a backlog, counts overlimits and passes 95% or \
        more of its rate (htb: its ceil), for 5 of 10 s. Critical when it drops 10% or more of \
        the packets. At a rate of less than four packets per tick, what counts instead is a \
        backlog throughout the last 10 s (of at least 5 s observed), as much sent as the rate \
        allows, and overlimits since it was set up. Clears below 66.5% of the rate, or without \
        overlimits.",
    look_alikes: "The link speed: tc has no rate then, and overlimits do not grow. A policer: it \
        drops immediately and nothing queues. A shaper below its rate: overlimits grow with \
        every burst, but throughput stays below the rate.",
    remedy: "Raise the rate (tc class change, tc qdisc change) or the pod's bandwidth \
        annotation that set it. A smaller limit, or fq_codel below the shaper, turns delay into \
        early drops.",
    sources: "RTM_GETQDISC, RTM_GETTCLASS (TCA_STATS2, TCA_OPTIONS). Measured: tbf of 8 Mbit/s \
        under a UDP flood passes 1.006 MB/s with a backlog of 57 kB and drops 99.7%.",
    hold: Hold::of(5, 10),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Netdev],
    explains: &[
        Explains::new("tcp-silent-rto", Scope::Netns),
        Explains::new("tcp-egress-bufferbloat", Scope::Netns),
        Explains::new("tcp-spurious-rto", Scope::Netns),
    ],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for (space, fresh) in spaces(w) {
        for link in &space.links {
            say(out, fresh, links::subject(space, link), judge(w, space, link));
        }
    }
}

/// A shaper with its backlog. Inner htb classes queue no packets themselves: the backlog below
/// them is counted in the root.
struct Used<'a> {
    shaper: &'a QdiscFigures,
    limit: f64,
    share: f64,
    backlog: u32,
    qlen: u32,
    overlimits_s: f64,
    /// For a rate of few packets per tick: how long there has been a backlog without a break.
    slow: Option<Duration>,
}

fn judge(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures) -> Option<Judged> {
    let root = s.root(l.ifindex);
    let used = s.qdiscs_of(l.ifindex).filter_map(|q| {
        let limit = q.limit()? as f64;
        let inner = q.class && q.backlog == 0 && root.is_some_and(|r| r.backlog > 0);
        let holder = root.filter(|_| inner).unwrap_or(q);
        // Classes count overlimits only since 5.12; the root always did.
        let overlimits_s = match root {
            Some(r) if q.class && q.overlimits_s == 0.0 => r.overlimits_s,
            _ => q.overlimits_s,
        };
        let share = q.bytes_s / limit;
        Some(Used {
            shaper: q,
            limit,
            share,
            backlog: holder.backlog,
            qlen: holder.qlen,
            overlimits_s,
            slow: slow(w, s, l, q, limit),
        })
    });
    let worst = used
        .filter(|u| u.slow.is_some() || (u.overlimits_s > 0.0 && u.share >= CLEAR))
        // Prefer a leaf to the class above it that passes the same bytes.
        .max_by(|a, b| {
            let key = |u: &Used<'_>| (is_full(u), u.shaper.backlog > 0);
            key(a).cmp(&key(b)).then(a.share.total_cmp(&b.share))
        })?;
    Some(if is_full(&worst) { fire(w, s, l, &worst).into() } else { Judged::Linger })
}

fn is_full(u: &Used<'_>) -> bool {
    u.slow.is_some() || (u.share >= FULL && u.backlog > 0)
}

/// For a shaper whose rate is a few packets per tick: how long it has had a backlog while sending
/// as much as the rate allows, give or take the packet at its head.
fn slow(
    w: &Window<'_>,
    s: &SpaceFigures,
    l: &LinkFigures,
    q: &QdiscFigures,
    limit: f64,
) -> Option<Duration> {
    let packet = f64::from(l.attrs.mtu.max(1));
    let few = limit * s.dt.as_secs_f64() < COUNTABLE * packet;
    if !few || q.class || q.backlog == 0 || !q.overlimits_ever {
        return None;
    }
    let (mut span, mut left) = (Duration::ZERO, 0.0);
    for m in w.history.back_from(w.tick.seq) {
        let spaces = m.derived.netdev.iter().flat_map(|n| n.iter());
        for then in spaces.filter(|x| x.netns == s.netns) {
            let same = |x: &&QdiscFigures| (x.handle, x.parent) == (q.handle, q.parent);
            let q = then.qdiscs_of(l.ifindex).find(same).filter(|q| q.backlog > 0)?;
            // Requeues: it is the driver that does not send.
            if q.requeues_s > 0.0 {
                return None;
            }
            span += then.dt;
            left += q.bytes_s * then.dt.as_secs_f64();
        }
        if span >= SLOW_OVER {
            break;
        }
    }
    (span >= SLOW_LEAST && left + packet >= FULL * limit * span.as_secs_f64()).then_some(span)
}

fn fire(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures, u: &Used<'_>) -> Fire {
    let q = u.shaper;
    let what = format!("{} {}", q.kind, q.id());
    let drops = q.drop_share().unwrap_or(0.0);
    let severity = if drops >= DROPS { Severity::Crit } else { Severity::Warn };
    let mut f = Fire::new(
        severity,
        format!(
            "{} is limited to {} by {what}: {} queued{}",
            links::title(w, s, l),
            bits(u.limit),
            bytes(u.backlog.into()),
            if severity == Severity::Crit {
                format!(", {:.0}% of the packets are dropped", 100.0 * drops)
            } else {
                String::new()
            }
        ),
    );
    let text = match u.slow {
        None => format!(
            "{} of {} get through ({:.0}% of the rate)",
            bits(q.bytes_s),
            bits(u.limit),
            100.0 * u.share
        ),
        Some(span) => {
            let packet = u64::from(l.attrs.mtu);
            let each = Duration::try_from_secs_f64(packet as f64 / u.limit).unwrap_or_default();
            format!(
                "a packet of {packet} B takes {} at {}; packets have been waiting for {}",
                time(each),
                bits(u.limit),
                time(span)
            )
        }
    };
    f.evidence.push(Evidence::new("rate", 100.0 * u.share, "%", text).over(100.0 * FULL));
    let delay =
        time(Duration::try_from_secs_f64(f64::from(u.backlog) / u.limit).unwrap_or_default());
    let text = format!("backlog {} B in {} packets: {delay} at that rate", u.backlog, u.qlen);
    f.evidence.push(Evidence::new("backlog", u.backlog.into(), "bytes", text));
    let through = |x: &&Arc<Suspect>| {
        let out =
            |r: &RouteOutcome| matches!(r, RouteOutcome::Via { dev, .. } if *dev == l.attrs.name);
        x.id.netns == s.netns && x.route.as_ref().is_some_and(out)
    };
    let waiting = w.derived.sockets.suspects.iter().filter(through);
    let parts = waiting.map(|x| (x.owner.as_ref(), f64::from(x.skmem.t().unwrap_or(0))));
    f.by = by_owner(parts, u.backlog.into(), &Resource::Queued);
    let text = format!("overlimits {}/s", rate(u.overlimits_s));
    f.evidence.push(Evidence::new("overlimits", u.overlimits_s, "/s", text));
    let text =
        format!("drops {}/s of {} packets/s", rate(q.drops_s), rate(q.drops_s + q.packets_s));
    f.evidence.push(Evidence::new("drops", 100.0 * drops, "%", text).over(100.0 * DROPS));
    if let Some(burst) = q.shape.and_then(|x| x.burst) {
        let long = burst as f64 / u.limit >= LONG_BURST;
        let note = if long { ": hides the limit until it is used up" } else { "" };
        let text = format!("burst {burst} B{note}");
        f.evidence.push(Evidence::new("burst", burst as f64, "bytes", text));
    }
    if ["ifb", "bwp"].iter().any(|p| l.attrs.name.starts_with(p)) {
        let text = format!(
            "{} looks like the work of a bandwidth plugin: ingress is mirrored to it",
            l.attrs.name
        );
        f.evidence.push(Evidence::text("owner", text));
    }
    let speed = l.attrs.speed_mbit.filter(|_| l.attrs.physical);
    f.ruled_out.push(RuledOut::new(
        "nic-saturated",
        match speed {
            Some(mbit) => format!("the link has {mbit} Mbit/s"),
            None => format!("tc limits to {}, and packets queue there", bits(u.limit)),
        },
    ));
    f.ruled_out.push(RuledOut::new(
        "policer",
        format!("{} packets are queued; a policer drops at once", u.qlen),
    ));
    let (dev, enter) = (sh(&l.attrs.name), links::enter(w, s));
    f.next.push(format!("{enter}tc -s -d qdisc show dev {dev}"));
    if q.class {
        f.next.push(format!("{enter}tc -s -d class show dev {dev}"));
    }
    f
}
