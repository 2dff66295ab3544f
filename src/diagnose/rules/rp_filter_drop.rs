//! `rp-filter-drop`: packets are dropped because their source routes back through another device.

use super::common::counters::{held, spaces};
use super::common::peers::enter;
use super::common::text::rate;
use crate::diagnose::rules::prelude::*;
use crate::metrics::NetPair;

/// Packets per second.
const DROPS_S: f64 = 5.0;
/// An active finding clears below this fraction of it.
const CLEAR: f64 = 0.7;
/// It must be true in this many seconds, of the last this many.
const HELD: (u64, u64) = (3, 10);

const DROPPED: &str = "TcpExtIPReversePathFilter";
/// Packets that two devices on one wire both receive.
const TO_MANY: [&str; 2] = ["IpExtInBcastPkts", "IpExtInMcastPkts"];

static DOC: RuleDoc = RuleDoc {
    id: RuleId("rp-filter-drop"),
    title: "rp_filter drops packets whose source routes back through another device",
    condition: "IPReversePathFilter grows by 5/s or more in 3 of the last 10 s. Info as long as \
        it drops no more than the broadcasts and multicasts that arrive. Clears below 3.5/s.",
    look_alikes: "Two devices on one wire: each broadcast arrives twice and one copy is \
        dropped; InBcastPkts grows as fast. A firewall that drops: its rule counts, this \
        counter does not. Packets with forged sources from outside: rightly dropped.",
    remedy: "Traffic that comes and goes by different paths (several uplinks, policy routing, \
        tunnels, IPVS): add a rule and table for the second path, or set \
        net.ipv4.conf.DEV.rp_filter=2 (the larger of all and DEV applies). Otherwise find what \
        sends with that source address.",
    sources: "/proc/net/netstat; net/ipv4/fib_frontend.c; calico#3145. Measured on 6.18 with \
        rp_filter=1: 20 datagrams from a foreign source count 20.",
    hold: Hold::events(20),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::NetCounters], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for netns in spaces(w) {
        let over = |n: &NetPair| n.rate(DROPPED).is_some_and(|r| r >= DROPS_S);
        let subject = Subject::Netns { netns };
        let Some(now) = w.derived.net(netns) else { continue };
        let Some(dropped) = now.rate(DROPPED) else { continue };
        if dropped >= DROPS_S && held(w, netns, HELD, over) {
            out.fire(subject, fire(w, now, dropped));
        } else if dropped >= CLEAR * DROPS_S {
            out.linger(subject);
        }
    }
}

fn fire(w: &Window<'_>, n: &NetPair, dropped: f64) -> Fire {
    let to_many = TO_MANY.iter().filter_map(|name| n.rate(name)).reduce(|a, b| a + b);
    let twice = to_many.is_some_and(|m| m >= dropped);
    let severity = if twice { Severity::Info } else { Severity::Warn };
    let mut f =
        Fire::new(severity, format!("the reverse path filter drops {} packets/s", rate(dropped)));
    let text = format!(
        "IPReversePathFilter {}/s: the route to their source uses another device",
        rate(dropped)
    );
    f.evidence.push(Evidence::new("IPReversePathFilter", dropped, "/s", text).over(DROPS_S));
    match to_many {
        Some(m) if twice => {
            let text =
                format!("{} broadcasts and multicasts/s arrive: second copies of these?", rate(m));
            f.evidence.push(Evidence::new("InBcastPkts", m, "/s", text));
        }
        Some(m) => {
            let because = format!("only {} broadcasts and multicasts/s arrive", rate(m));
            f.ruled_out.push(RuledOut::new("two-devices-on-one-wire", because));
        }
        None => f.missing.push("how many broadcasts arrive (no InBcastPkts)".to_owned()),
    }
    let because = "the kernel's own check counts these; a firewall rule does not";
    f.ruled_out.push(RuledOut::new("firewall-rule", because));
    f.missing.push("which sources and devices (needs log_martians)".to_owned());
    let enter = enter(w, n.netns);
    f.next.push(format!("{enter}sysctl -a 2>/dev/null | grep -E '\\.rp_filter = [1-9]'"));
    f.next.push(format!("{enter}ip rule; {enter}ip route show table all type unicast"));
    f.next.push(format!(
        "{enter}sysctl -w net.ipv4.conf.all.log_martians=1; sleep 5; dmesg | grep -A1 martian | tail"
    ));
    f
}
