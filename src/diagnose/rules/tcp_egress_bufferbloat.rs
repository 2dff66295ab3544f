//! `tcp-egress-bufferbloat`: a queue on this host inflates the RTT.

use super::common::by_owner::by_owner;
use super::common::peers::{Group, by_peer, device, enter, ss_dst};
use super::common::sockets::{Case, Cause, is_gone};
use super::common::text::{bytes, time, time_us};
use crate::diagnose::rules::prelude::*;
use crate::metrics::netdev::QdiscFigures;
use crate::metrics::sockets::Suspect;
use crate::sample::sockets::RouteOutcome;

/// rtt as a multiple of min_rtt.
const TIMES: u32 = 4;
/// An active finding clears below this multiple.
const CLEAR_TIMES: u32 = 2;
/// rtt above min_rtt, us.
const ADDED_US: u32 = 100_000;
/// Bytes below TCP (t): handed to the qdisc or driver and not sent yet.
const BELOW_TCP: u32 = 32 << 10;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-egress-bufferbloat"),
    title: "this host's own egress queue adds the delay: a shaper or a slow link",
    condition: "rtt is 4 times min_rtt or more and at least 100 ms above it, t (bytes below \
        TCP) is 32 KiB or more, backoff is 0, for 5 of 8 s, and the device's qdisc has a \
        backlog. Suspected when the route or the qdisc is unknown. Clears below 2 times \
        min_rtt.",
    look_alikes: "A queue on the path or at the peer: rtt is as long, but t is small because \
        the packets have left. A peer that does not answer: backoff grows (tcp-rto-storm). A \
        delayed ACK adds 40 ms, not 100.",
    remedy: "Check the qdisc: its rate, its backlog. fq or fq_codel keeps short flows out of \
        the long flow's queue; a smaller limit drops earlier and keeps the delay down. Is the \
        shaper meant to be that slow?",
    sources: "Measured on 6.18 behind a token bucket of 64 kbit/s: rtt 6.2 s, min_rtt 0.047 ms, \
        rto 8948 ms with backoff 0, t up to 72960. net/ipv4/tcp_output.c, \
        tcp_small_queue_check().",
    hold: Hold::of(5, 8),
    needs_time: Duration::from_secs(7),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Sockets],
    explains: &[Explains::new("tcp-spurious-rto", Scope::Netns)],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let alive = |s: &&Suspect| s.state.may_send() && !is_gone(w, s);
    let all = w.derived.sockets.suspects.iter().map(|s| &**s).filter(alive);
    let slow: Vec<&Suspect> = all.filter(|s| longer(s, CLEAR_TIMES, 0).is_some()).collect();
    let bloated = slow.iter().filter(|s| is_bloated(s)).filter_map(|s| case(s, w));
    for g in by_peer(bloated, w) {
        out.fire(g.subject.clone(), fire(w, &g));
    }
    for g in by_peer(slow.iter().map(|s| Case::sure(s, Cause::Bloat)), w) {
        out.linger(g.subject);
    }
}

/// `None` if the device's qdiscs are known and have no backlog.
fn case<'a>(s: &'a Suspect, w: &Window<'_>) -> Option<Case<'a>> {
    match queue(s, w) {
        Some(q) if q.backlog == 0 => None,
        Some(_) => Some(Case::sure(s, Cause::Bloat)),
        None => {
            let missing = "whether the qdisc has a backlog (route or qdisc unknown)";
            Some(Case::suspected(s, Cause::Bloat, missing))
        }
    }
}

/// The qdisc with the largest backlog on the route's device.
fn queue<'a>(s: &Suspect, w: &Window<'a>) -> Option<&'a QdiscFigures> {
    let Some(RouteOutcome::Via { dev, .. }) = &s.route else { return None };
    let space = w.netdev(s.id.netns)?;
    space.qdiscs_of(space.link(dev)?.ifindex).max_by_key(|q| q.backlog)
}

/// rtt and min_rtt, if rtt is that much longer.
fn longer(s: &Suspect, times: u32, added: u32) -> Option<(u32, u32)> {
    let i = s.info?;
    let (rtt, min) = (i.rtt_us()?, i.min_rtt_us().filter(|n| *n > 0)?);
    (rtt >= min.saturating_mul(times) && rtt.saturating_sub(min) >= added).then_some((rtt, min))
}

fn is_bloated(s: &Suspect) -> bool {
    longer(s, TIMES, ADDED_US).is_some()
        && s.skmem.t().is_some_and(|t| t >= BELOW_TCP)
        && s.info.and_then(|i| i.backoff()) == Some(0)
        && s.info_at == Some(s.seen_at)
}

fn fire(w: &Window<'_>, g: &Group<'_>) -> Fire {
    let s = g.first().socket;
    let (rtt, min) = longer(s, TIMES, ADDED_US).unwrap_or_default();
    let dev = device(s);
    let mut f = Fire::new(
        Severity::Warn,
        format!(
            "{}: round trip {} instead of {}: packets wait in a queue on this host",
            g.who(),
            time_us(rtt.into()),
            time_us(min.into())
        ),
    );
    g.fill(&mut f, w);
    f.since = None;
    let text = format!(
        "rtt {} = {:.0} x min_rtt {}",
        time_us(rtt.into()),
        f64::from(rtt) / f64::from(min.max(1)),
        time_us(min.into())
    );
    let least = f64::from(min.saturating_mul(TIMES).max(ADDED_US)) / 1000.0;
    f.evidence.push(Evidence::new("rtt", f64::from(rtt) / 1000.0, "ms", text).over(least));
    let t: u64 = g.cases.iter().filter_map(|c| c.socket.skmem.t()).map(u64::from).sum();
    let text = format!("t {}: handed to the qdisc or driver, not sent yet", bytes(t));
    f.evidence.push(Evidence::new("t", t as f64, "bytes", text).over(BELOW_TCP.into()));
    let parts = g
        .cases
        .iter()
        .map(|c| (c.socket.owner.as_ref(), f64::from(c.socket.skmem.t().unwrap_or(0))));
    f.by = by_owner(parts, queue(s, w).map_or(0.0, |q| q.backlog.into()), &Resource::Queued);
    if let Some(q) = queue(s, w) {
        let delay = q.delay().map_or(String::new(), |d| format!(", {} at its rate", time(d)));
        let text = format!("{} holds {}{delay}", q.kind, bytes(q.backlog.into()));
        f.evidence.push(Evidence::new("backlog", q.backlog.into(), "bytes", text));
    }
    if dev != "any" {
        f.evidence.push(Evidence::text("device", format!("the route goes through {dev}")));
    }
    f.ruled_out.push(RuledOut::new("tcp-rto-storm", "backoff 0: nothing timed out"));
    f.ruled_out.push(RuledOut::new("queue-on-the-way", format!("t {t}: not sent yet")));
    let enter = enter(w, g.netns());
    f.next.push(if dev == "any" {
        format!("{enter}tc -s qdisc show; {enter}tc -s class show")
    } else {
        format!("{enter}tc -s qdisc show dev {dev}; {enter}tc -s class show dev {dev}")
    });
    f.next.push(format!("{enter}ss -tinmo dst {}", ss_dst(s)));
    f
}
