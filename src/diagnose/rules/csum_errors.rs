//! `csum-errors`: packets arrive with a bad checksum and are dropped.

use super::common::counters::{held, spaces};
use super::common::peers::enter;
use super::common::senders;
use super::common::text::rate;
use crate::diagnose::rules::prelude::*;
use crate::metrics::NetPair;
use crate::sample::subject::{NetnsId, Subject};

/// Packets per second with a bad checksum that are always too many ...
const MANY_S: f64 = 10.0;
/// ... and that are too many at this fraction of all received packets.
const SOME_S: f64 = 1.0;
const SHARE: f64 = 0.001;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;
/// It must be true in this many seconds, of the last this many.
const HELD: (u64, u64) = (3, 10);

/// Protocols and their counters.
const ERRORS: [(&str, &str); 6] = [
    ("TCP", "TcpInCsumErrors"),
    ("UDP", "UdpInCsumErrors"),
    ("IPv4", "IpExtInCsumErrors"),
    ("ICMP", "IcmpInCsumErrors"),
    ("UDP over IPv6", "Udp6InCsumErrors"),
    ("ICMPv6", "Icmp6InCsumErrors"),
];
const RECEIVED: [&str; 2] = ["IpInReceives", "Ip6InReceives"];

static DOC: RuleDoc = RuleDoc {
    id: RuleId("csum-errors"),
    title: "packets arrive with a bad checksum and are dropped",
    condition: "InCsumErrors of TCP, UDP, ICMP and IP together grow by 10/s or more, or by 1/s \
        or more and 0.1% of the packets received, in 3 of the last 10 s. Clears below 7/s, and \
        below 0.7/s or 0.07%.",
    look_alikes: "Bit errors on the wire: the NIC sees a bad CRC and the packet never reaches \
        IP (nic-errors). A capture on the sender shows bad checksums that the NIC fills in \
        later (checksum offload): nothing counts them.",
    remedy: "Suspect the device or driver that filled in the checksum, often a tunnel with an \
        offload that the NIC gets wrong. On the sender: ethtool -K DEV tx off (for vxlan: \
        tx-checksum-ip-generic off). Otherwise suspect bad memory in a machine on the path.",
    sources: "/proc/net/snmp, netstat, snmp6; kfree_skb by reason; flannel#1279. \
        Measured on 6.18: 20 segments and 20 datagrams with a bad checksum count 20 in \
        TcpInCsumErrors and 20 in UdpInCsumErrors.",
    hold: Hold::events(20),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::NetCounters], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for netns in spaces(w) {
        let subject = Subject::Netns { netns };
        let Some(now) = w.derived.net(netns) else { continue };
        if many(now, 1.0) && held(w, netns, HELD, |n| many(n, 1.0)) {
            out.fire(subject, fire(w, now));
        } else if many(now, CLEAR) {
            out.linger(subject);
        }
    }
}

fn errors(n: &NetPair) -> f64 {
    ERRORS.iter().filter_map(|(_, name)| n.rate(name)).sum()
}

fn received(n: &NetPair) -> Option<f64> {
    RECEIVED.iter().filter_map(|name| n.rate(name)).reduce(|a, b| a + b)
}

/// Fraction of the packets received.
fn share(n: &NetPair) -> Option<f64> {
    crate::metrics::rate::ratio(errors(n), received(n)?)
}

fn many(n: &NetPair, part: f64) -> bool {
    let bad = errors(n);
    bad >= part * MANY_S || (bad >= part * SOME_S && share(n).is_some_and(|s| s >= part * SHARE))
}

fn fire(w: &Window<'_>, n: &NetPair) -> Fire {
    let (bad, netns) = (errors(n), n.netns);
    let part = share(n).map(|s| 100.0 * s);
    let of = part.map_or(String::new(), |p| format!(" ({p:.2}%)"));
    let mut f = Fire::new(
        Severity::Warn,
        format!("{} packets/s{of} arrive with a bad checksum and are dropped", rate(bad)),
    );
    let text = format!("InCsumErrors {}/s, all protocols", rate(bad));
    f.evidence.push(Evidence::new("InCsumErrors", bad, "/s", text).over(SOME_S));
    for (what, name) in ERRORS {
        if let Some(r) = n.rate(name).filter(|r| *r > 0.0) {
            let text = format!("{what}: {name} {}/s", rate(r));
            f.evidence.push(Evidence::new(name, r, "/s", text));
        }
    }
    match part.zip(received(n)) {
        Some((p, all)) => {
            let text = format!("{p:.2}% of {} packets/s that reach IP", rate(all));
            f.evidence.push(Evidence::new("share", p, "%", text).over(100.0 * SHARE));
        }
        None => f.missing.push("how many packets arrive (no InReceives)".to_owned()),
    }
    let has_them = |other| w.derived.net(other).is_some_and(|n| errors(n) > 0.0);
    senders::blame(w, netns, senders::Bad::Checksum, has_them, &mut f);
    let because = match nic_errors(w, netns) {
        Some(e) => {
            format!("the NICs count {} errors/s; a packet with a bad CRC never reaches IP", rate(e))
        }
        None => "these reached IP; a packet with a bad CRC does not".to_owned(),
    };
    f.ruled_out.push(RuledOut::new("nic-errors", because));
    let enter = enter(w, netns);
    let from = senders::first(&f).map_or_else(String::new, |addr| format!(" src {addr}"));
    f.next.push(format!("{enter}nstat -az | grep -i csum"));
    f.next.push(format!(
        "{enter}tcpdump -nvvi any -c 2000{from} 2>/dev/null | grep -iE 'bad|incorrect'"
    ));
    f.next.push(format!("{enter}ip -d link  # suspect the offloads of vxlan, geneve, ipip first"));
    f
}

/// Receive errors per second on all devices of a network namespace; `None` if not read.
fn nic_errors(w: &Window<'_>, netns: NetnsId) -> Option<f64> {
    Some(w.netdev(netns)?.links.iter().map(|l| l.rx_errors_s).sum())
}
