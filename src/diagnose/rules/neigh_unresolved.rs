//! `neigh-unresolved`: the next hop does not answer ARP or neighbour discovery.

use super::common::counters::grown;
use super::common::peers::{enter, example};
use super::common::sockets::is_gone;
use super::common::text::{count, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::Suspect;
use crate::sample::sockets::{NeighState, NextHop, RouteOutcome, SockState, SockTimer, unmap};
use crate::sample::subject::{Endpoint, NetnsId, Subject};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Retransmissions before the next hop is checked.
const RETRANS: u8 = 2;
/// Maximum number of examples in a finding.
const EXAMPLES: usize = 5;

/// A connection and its unresolved next hop.
type Sender<'a> = (&'a Suspect, NextHop);

static DOC: RuleDoc = RuleDoc {
    id: RuleId("neigh-unresolved"),
    title: "the next hop does not answer ARP or neighbour discovery; packets never leave this \
        host",
    condition: "A connection retransmits, and the next hop of its route is INCOMPLETE or FAILED \
        in the neighbour table. Critical when that is a gateway, a warning when it is the peer \
        itself. Clears when the address resolves or nothing retransmits.",
    look_alikes: "Packets lost on the path: the neighbour is REACHABLE or STALE \
        (tcp-rto-storm). No route: the lookup fails with an errno (tcp-silent-rto). TCP counts \
        a retransmission as sent even if the neighbour layer discards it, so RetransSegs and \
        total_retrans grow as if it had left.",
    remedy: "Is the next hop up, and in this VLAN and subnet? Watch ARP or neighbour discovery \
        on the interface: requests without a reply point to the other side or the switch, no \
        requests at all to a local filter. After a failover, a wrong static entry or a changed \
        MAC address shows up here.",
    sources: "RTM_GETNEIGH of the next hop (since 5.0); net/core/neighbour.c. Measured on 6.18: \
        with the neighbour FAILED, RetransSegs +10 while the device sent 3 packets.",
    hold: Hold::events(4),
    needs_time: Duration::from_secs(3),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Sockets],
    explains: &[
        Explains::new("tcp-rto-storm", Scope::Same),
        Explains::new("tcp-connect-stuck", Scope::Same),
        Explains::new("tcp-retrans-rate", Scope::Netns),
    ],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let mut hops: BTreeMap<(NetnsId, [u8; 16], &str), Vec<Sender<'_>>> = BTreeMap::new();
    for s in w.derived.sockets.suspects.iter().filter(|s| !is_gone(w, s)) {
        let Some(RouteOutcome::Via { dev, hop: Some(hop), .. }) = &s.route else { continue };
        if hop.is_unresolved() && retransmits(s) {
            hops.entry((s.id.netns, hop.addr, dev)).or_default().push((s, *hop));
        }
    }
    for ((netns, addr, dev), sockets) in hops {
        let remote = Endpoint { addr: unmap(addr), port: 0 };
        let subject = Subject::Peer { remote, netns };
        out.fire(subject, fire(w, netns, dev, &sockets));
    }
}

fn retransmits(s: &Suspect) -> bool {
    s.timer == SockTimer::ON && s.retransmits() >= RETRANS
}

fn fire(w: &Window<'_>, netns: NetnsId, dev: &str, sockets: &[Sender<'_>]) -> Fire {
    let hop = sockets.first().map_or(IpAddr::from([0, 0, 0, 0]), |s| unmap(s.1.addr));
    let failed = sockets.iter().any(|s| s.1.state == NeighState::Failed);
    let state = if failed { "FAILED" } else { "INCOMPLETE" };
    let gateway = sockets.iter().any(|(s, _)| s.remote.addr != hop);
    let what = if gateway { "gateway" } else { "neighbour" };
    let severity = if gateway { Severity::Crit } else { Severity::Warn };
    let n = count(sockets.len(), "connection");
    let verb = if sockets.len() == 1 { "sends" } else { "send" };
    let text = format!("{what} {hop} does not answer on {dev}: {n} {verb} in vain");
    let mut f = Fire::new(severity, text);
    f.count = u32::try_from(sockets.len()).unwrap_or(u32::MAX);
    f.sockets = sockets.iter().map(|(s, _)| s.id).collect();
    f.examples = sockets.iter().take(EXAMPLES).map(|(s, _)| example(s)).collect();
    let text = format!("{hop} dev {dev} is {state} in the neighbour table");
    f.evidence.push(Evidence::text("neighbour", text));
    let text = format!("{n} retransmit towards it");
    f.evidence.push(Evidence::new("connections", sockets.len() as f64, "", text).over(1.0));
    let opening = sockets.iter().filter(|(s, _)| s.state == SockState::SYN_SENT).count();
    if opening > 0 {
        let text = format!("{opening} of these in SYN-SENT");
        f.evidence.push(Evidence::new("SYN-SENT", opening as f64, "", text));
    }
    if let Some(n) = grown(w, netns, "TcpRetransSegs").filter(|n| *n > 0) {
        let text = format!("RetransSegs +{n} in 10 s: TCP counts packets discarded below it");
        f.evidence.push(Evidence::new("RetransSegs", n as f64, "", text));
    }
    let because = format!("no packet leaves without the link-layer address of {hop}");
    f.ruled_out.push(RuledOut::new("lost-on-the-way", because));
    f.ruled_out.push(RuledOut::new("no-route", format!("a route exists through {dev}")));
    let (enter, dev, hop) = (enter(w, netns), sh(dev), hop.to_string());
    f.next.push(format!("{enter}ip -s neigh show dev {dev} to {hop}"));
    f.next.push(format!("{enter}ip -s link show dev {dev}"));
    let probe = if hop.contains(':') { "icmp6" } else { "arp" };
    f.next.push(format!("{enter}timeout 5 tcpdump -ni {dev} -c 4 {probe}  # asked and answered?"));
    f
}
