//! `ip-reasm-fail`: fragmented packets cannot be reassembled.

use std::net::IpAddr;

use super::common::counters::{spaces, sum, watched};
use super::common::peers::enter;
use super::common::senders;
use super::common::text::{bytes, rate};
use crate::diagnose::rules::prelude::*;
use crate::sample::subject::{NetnsId, Subject};

/// Failed reassemblies in 10 s ...
const FAILS: u64 = 10;
/// ... and as a fraction of all fragmented packets.
const SHARE: f64 = 0.01;
/// An active finding clears below this fraction of either.
const CLEAR: f64 = 0.7;
/// Timeouts as a fraction of the failures from which memory is not to blame.
const TIMED_OUT: f64 = 0.5;

const FAILED: [&str; 2] = ["IpReasmFails", "Ip6ReasmFails"];
const WHOLE: [&str; 2] = ["IpReasmOKs", "Ip6ReasmOKs"];
const TIMEOUTS: [&str; 2] = ["IpReasmTimeout", "Ip6ReasmTimeout"];
const MEMORY: [&str; 2] = ["sockstat.FRAG.memory", "sockstat.FRAG6.memory"];
/// Default of `net.ipv4.ipfrag_high_thresh`, bytes.
const HIGH: u64 = 4 << 20;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("ip-reasm-fail"),
    title: "fragmented packets are dropped: they cannot be reassembled",
    condition: "ReasmFails grows by 10 or more in 10 s and is 1% or more of all fragmented \
        packets (ReasmFails plus ReasmOKs), IPv4 and IPv6 together. Clears below 7 and 0.7%.",
    look_alikes: "Lost fragments: each failure is a timeout (ReasmTimeout). No memory for \
        fragments: failures without timeouts, and FRAG memory near ipfrag_high_thresh (4 MiB). \
        Unfragmented packets never count here.",
    remedy: "Avoid fragmentation: a correct path MTU (a tunnel makes packets too large), \
        smaller datagrams (EDNS 1232, NFS over TCP). Timeouts: a firewall or load balancer that \
        drops or scatters fragments, or packet loss. Memory: raise net.ipv4.ipfrag_high_thresh.",
    sources: "/proc/net/snmp, snmp6, sockstat; kfree_skb by reason; net/ipv4/ip_fragment.c. \
        Measured on 6.18: fragments that never complete count ReasmTimeout and ReasmFails after ipfrag_time.",
    hold: Hold::events(20),
    needs_time: Duration::from_secs(7),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::NetCounters], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for netns in spaces(w) {
        let Some(failed) = sum(w, netns, &FAILED).filter(|n| *n > 0) else { continue };
        let whole = sum(w, netns, &WHOLE).unwrap_or(0);
        let share = failed as f64 / (failed.saturating_add(whole)).max(1) as f64;
        let over = |part: f64| failed as f64 >= part * FAILS as f64 && share >= part * SHARE;
        let subject = Subject::Netns { netns };
        if over(1.0) && watched(w, netns, FAILED[0]) {
            out.fire(subject, fire(w, netns, (failed, whole), share));
        } else if over(CLEAR) {
            out.linger(subject);
        }
    }
}

fn fire(w: &Window<'_>, netns: NetnsId, (failed, whole): (u64, u64), share: f64) -> Fire {
    let pct = 100.0 * share;
    let mut f = Fire::new(
        Severity::Warn,
        format!("{failed} fragmented packets dropped in 10 s, {pct:.0}% of all fragmented ones"),
    );
    let text = format!("ReasmFails +{failed} in 10 s, ReasmOKs +{whole}");
    f.evidence.push(Evidence::new("ReasmFails", failed as f64, "", text).over(FAILS as f64));
    let text = format!("{pct:.1}% of all fragmented packets");
    f.evidence.push(Evidence::new("share", pct, "%", text).over(100.0 * SHARE));
    let timeouts = sum(w, netns, &TIMEOUTS);
    let held = memory(w, netns);
    let full = held.is_some_and(|m| m >= HIGH / 4 * 3);
    match timeouts {
        Some(t) if t as f64 >= TIMED_OUT * failed as f64 => {
            let text = format!("ReasmTimeout +{t}: the other fragments did not arrive in time");
            f.evidence.push(Evidence::new("ReasmTimeout", t as f64, "", text));
            let because = match held {
                Some(m) => format!("ReasmTimeout +{t}; fragments hold {}", bytes(m)),
                None => format!("ReasmTimeout +{t}"),
            };
            f.ruled_out.push(RuledOut::new("no-memory-for-fragments", because));
        }
        Some(t) => {
            let text = if full {
                format!("ReasmTimeout +{t}: no memory left for fragments")
            } else {
                format!(
                    "ReasmTimeout +{t}: no memory for fragments, or fragments that do not match"
                )
            };
            f.evidence.push(Evidence::new("ReasmTimeout", t as f64, "", text));
            let because = format!("ReasmTimeout +{t} of {failed} failures");
            f.ruled_out.push(RuledOut::new("lost-fragments", because));
        }
        None => f.missing.push("whether fragments are lost (no ReasmTimeout)".to_owned()),
    }
    if let Some(m) = held {
        let text = format!("fragments hold {}; the default limit is 4.2 MB", bytes(m));
        let e = Evidence::new("FRAG memory", m as f64, "bytes", text);
        f.evidence.push(if full { e.over(HIGH as f64) } else { e });
    }
    if let Some(r) = w.derived.net(netns).and_then(|n| n.rate("IpReasmReqds")) {
        let text = format!("{} fragments/s arrive over IPv4", rate(r));
        f.evidence.push(Evidence::new("ReasmReqds", r, "/s", text));
    }
    let has_them = |other| sum(w, other, &FAILED).is_some_and(|n| n > 0);
    senders::blame(w, netns, senders::Bad::Fragment, has_them, &mut f);
    let because = format!("ReasmOKs +{whole}: only fragmented packets count here");
    f.ruled_out.push(RuledOut::new("whole-packets", because));
    let enter = enter(w, netns);
    let fragments = match senders::first(&f) {
        Some(addr @ IpAddr::V4(_)) => format!("ip[6:2] & 0x3fff != 0 and src {addr}"),
        Some(addr) => format!("ip6[6] == 44 and src {addr}"),
        None => "ip[6:2] & 0x3fff != 0".to_owned(),
    };
    f.next.push(format!("{enter}nstat -az | grep Reasm"));
    f.next.push(format!("{enter}tcpdump -ni any -c 20 '{fragments}'"));
    f.next.push(format!("{enter}sysctl net.ipv4.ipfrag_high_thresh net.ipv4.ipfrag_time"));
    f
}

/// Memory of fragments that wait for the rest, bytes.
fn memory(w: &Window<'_>, netns: NetnsId) -> Option<u64> {
    let now = w.derived.net(netns)?.now()?;
    let all = MEMORY.iter().filter_map(|n| u64::try_from(now.get(n)?).ok());
    all.reduce(u64::saturating_add)
}
