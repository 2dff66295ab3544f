//! `tcp-port-exhaustion`: local ports towards one destination are running out.

use super::common::by_owner::by_owner;
use super::common::connects;
use super::common::counters::{grown, spaces};
use super::common::peers::enter;
use super::common::text::sh;
use crate::diagnose::limits::{Levels, Limit};
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::{PortUse, SpaceFigures};
use crate::sample::subject::{NetnsId, Subject};

pub(in crate::diagnose) static LIMIT: Limit = Limit {
    rule: RuleId("tcp-port-exhaustion"),
    of: "local ports towards one destination in use, %",
    warn: 85.0,
    clear: 60.0,
    crit: 95.0,
    // Destinations with fewer than half of the ports are not listed, and the finding has to clear.
    range: (72.0, 99.0),
};

/// Number of sockets from which an unknown port range is reported.
const MANY: u32 = 1000;

const OVERFLOW: &str = "TcpExtTCPTimeWaitOverflow";

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-port-exhaustion"),
    title: "local ports towards one destination are running out: connect() will fail",
    condition: "85% or more (critical: 95%) of net.ipv4.ip_local_port_range is in use between \
        one source address and one destination address and port, TIME-WAIT included. Also a \
        warning when TCPTimeWaitOverflow grew within 10 s. Clears below 60%.",
    look_alikes: "Many connections to different destinations: one local port serves all of them. \
        Incoming connections use the server's port. An explicit bind() without a port takes one \
        from the range for all destinations, unless IP_BIND_ADDRESS_NO_PORT is set.",
    remedy: "Keep connections open and share them (keep-alive, a pool). More source addresses \
        or destination ports multiply the range; net.ipv4.tcp_tw_reuse = 1 reuses ports from \
        TIME-WAIT after a second; a wider ip_local_port_range adds some.",
    sources: "net/ipv4/inet_hashtables.c, __inet_hash_connect(): EADDRNOTAVAIL when no port of \
        the range is free for the four-tuple. netdata counts connections but compares them with \
        no limit.",
    hold: Hold::events(10),
    needs_time: Duration::from_secs(2),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Sockets], explains: &[], check };

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let at = t.levels(&LIMIT);
    for s in &w.derived.sockets.spaces {
        let Some(range) = range(s) else {
            if tcp(w, s.netns) >= MANY {
                out.cannot_judge("the local port range is unknown");
            }
            continue;
        };
        for u in &s.port_uses {
            let subject = Subject::Peer { remote: u.remote, netns: s.netns };
            let pct = 100.0 * f64::from(u.used) / f64::from(range);
            if pct >= at.warn {
                out.fire(subject, fire(w, s, u, range, at));
            } else if pct >= at.clear {
                out.linger(subject);
            }
        }
    }
    for netns in spaces(w) {
        if let Some(n) = grown(w, netns, OVERFLOW).filter(|n| *n > 0) {
            out.fire(Subject::Netns { netns }, overflow(w, netns, n));
        }
    }
}

/// TCP sockets of a network namespace.
fn tcp(w: &Window<'_>, netns: NetnsId) -> u32 {
    w.derived.sockets.totals.iter().find(|t| t.netns == netns).map_or(0, |t| t.tcp)
}

fn range(s: &SpaceFigures) -> Option<u32> {
    let (first, last) = s.ports?;
    Some(u32::from(last.checked_sub(first)?) + 1)
}

fn fire(w: &Window<'_>, s: &SpaceFigures, u: &PortUse, range: u32, at: Levels) -> Fire {
    let pct = 100.0 * f64::from(u.used) / f64::from(range);
    let severity = if pct >= at.crit { Severity::Crit } else { Severity::Warn };
    let (first, last) = s.ports.unwrap_or_default();
    let mut f = Fire::new(
        severity,
        format!("{} of {range} local ports from {} to {} are in use", u.used, u.local, u.remote),
    );
    f.count = u.used.max(1);
    f.sockets.clone_from(&u.sockets);
    let text = format!("{pct:.0}% of ip_local_port_range {first}-{last}");
    f.evidence.push(Evidence::new("ports", pct, "%", text).over(at.over(pct)));
    let waiting = 100.0 * f64::from(u.time_wait) / f64::from(u.used.max(1));
    let text = format!("{} of them in TIME-WAIT ({waiting:.0}%)", u.time_wait);
    f.evidence.push(Evidence::new("TIME-WAIT", u.time_wait.into(), "", text));
    let others = tcp(w, s.netns).saturating_sub(u.used);
    let because = format!("all {} have this destination, {others} sockets go elsewhere", u.used);
    f.ruled_out.push(RuledOut::new("many-destinations", because));
    if u.time_wait * 2 < u.used {
        let because = format!("{} are open, not in TIME-WAIT", u.used - u.time_wait);
        f.ruled_out.push(RuledOut::new("short-lived-connections", because));
    }
    if u.time_wait * 2 >= u.used {
        connects::blame(w, s.netns, |to| to == u.remote, &mut f);
    }
    if f.by.is_empty() {
        // Of some of them the owner is asked for.
        let asked = u.inodes.len() as f64;
        f.by = by_owner(u.owners.iter().map(|o| (Some(o), 1.0)), asked, &Resource::PortsInUse);
    }
    let enter = enter(w, s.netns);
    let dst = sh(&u.remote.to_string());
    f.next.push(format!("{enter}ss -tanp dst {dst} | awk '{{print $1}}' | sort | uniq -c"));
    f.next.push(format!("{enter}sysctl net.ipv4.ip_local_port_range net.ipv4.tcp_tw_reuse"));
    f
}

/// The TIME-WAIT table itself is full.
fn overflow(w: &Window<'_>, netns: NetnsId, n: u64) -> Fire {
    let mut f = Fire::new(
        Severity::Warn,
        format!("the TIME-WAIT table is full: {n} connections were cut short in 10 s"),
    );
    let text = format!("TCPTimeWaitOverflow +{n} in 10 s");
    f.evidence.push(Evidence::new("TCPTimeWaitOverflow", n as f64, "", text).over(1.0));
    let waiting = w.derived.sockets.totals.iter().find(|t| t.netns == netns);
    let waiting = waiting.map_or(0, |t| t.time_wait);
    let text = format!("{waiting} in TIME-WAIT");
    f.evidence.push(Evidence::new("TIME-WAIT", waiting.into(), "", text));
    let because = "the limit is tcp_max_tw_buckets, not the port range";
    f.ruled_out.push(RuledOut::new("ports-in-use", because));
    connects::blame(w, netns, |_| true, &mut f);
    let enter = enter(w, netns);
    f.next.push(format!("{enter}sysctl net.ipv4.tcp_max_tw_buckets"));
    f.next.push(format!(
        "{enter}ss -tan state time-wait | awk '{{print $4}}' | sort | uniq -c | sort -n | tail"
    ));
    f
}
