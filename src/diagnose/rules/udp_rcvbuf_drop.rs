//! `udp-rcvbuf-drop`: a UDP socket's receive buffer overflows.

use super::common::by_owner::by_owner;
use super::common::counters::{Lost, is_udp, losers, spaces, sum};
use super::common::peers::{enter, owner};
use super::common::text::count;
use crate::diagnose::rules::prelude::*;
use crate::sample::subject::{NetnsId, Subject};

/// Datagrams lost in 10 s: 10/s on average.
const WARN: u64 = 100;
/// % of the datagrams that arrived from which it is critical.
const CRIT_PCT: f64 = 5.0;

const ERRORS: [&str; 2] = ["UdpRcvbufErrors", "Udp6RcvbufErrors"];
const ARRIVED: [&str; 2] = ["UdpInDatagrams", "Udp6InDatagrams"];
const MEM_ERRORS: [&str; 2] = ["UdpMemErrors", "Udp6MemErrors"];

static DOC: RuleDoc = RuleDoc {
    id: RuleId("udp-rcvbuf-drop"),
    title: "a UDP socket drops datagrams: its receive buffer is full",
    condition: "RcvbufErrors (v4 and v6) grew by 100 or more in 10 s. Critical when that is 5% \
        or more of what arrived (InDatagrams plus the errors). The socket is the one whose own \
        drop count (d, since 4.7) grew. Clears below 70 in 10 s.",
    look_alikes: "Datagrams lost before the socket count at the device or in softnet. A port \
        without a socket counts NoPorts. UDP memory of the whole host used up counts MemErrors.",
    remedy: "A reader that is slow in bursts: raise SO_RCVBUF and net.core.rmem_max. One that \
        is too slow on average: more readers (SO_REUSEPORT), recvmmsg(), GRO, less work per \
        datagram on the reading thread.",
    sources: "net/ipv4/udp.c, __udp_enqueue_schedule_skb(). Measured on 6.18: rb 8192, 2000 \
        datagrams, d 1997 and RcvbufErrors 1997; netdata warns above 10/s on average.",
    hold: Hold::events(10),
    needs_time: Duration::from_secs(3),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::NetCounters], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for netns in spaces(w) {
        let Some(errors) = sum(w, netns, &ERRORS).filter(|n| n.saturating_mul(10) >= WARN * 7)
        else {
            continue;
        };
        let lost = losers(w, netns, is_udp);
        let whole = Subject::Netns { netns };
        let of = |l: &Lost| Subject::Listener { local: l.socket.local, netns };
        if errors < WARN {
            out.linger(whole);
            for l in &lost {
                out.linger(of(l));
            }
            continue;
        }
        // Name the sockets that lost a tenth or more.
        let named: Vec<&Lost> =
            lost.iter().filter(|l| l.packets.saturating_mul(10) >= errors).collect();
        if named.is_empty() {
            out.fire(whole, fire(w, netns, errors, None));
            continue;
        }
        out.clear(whole);
        for l in named {
            out.fire(of(l), fire(w, netns, errors, Some(l)));
        }
    }
}

fn fire(w: &Window<'_>, netns: NetnsId, errors: u64, lost: Option<&Lost>) -> Fire {
    let arrived = sum(w, netns, &ARRIVED);
    let pct = arrived.map(|n| 100.0 * errors as f64 / n.saturating_add(errors).max(1) as f64);
    let crit = pct.is_some_and(|p| p >= CRIT_PCT);
    let severity = if crit { Severity::Crit } else { Severity::Warn };
    let what = count(lost.map_or(errors, |l| l.packets) as usize, "datagram");
    let mut f = Fire::new(
        severity,
        match lost {
            Some(l) => {
                let who = l
                    .socket
                    .owner
                    .as_ref()
                    .map_or_else(String::new, |o| format!(" ({})", owner(o)));
                format!("{}{who} lost {what} in 10 s: its receive buffer is full", l.socket.local)
            }
            None => format!("{what} lost in 10 s at full UDP receive buffers"),
        },
    );
    let text = format!("RcvbufErrors +{errors} in 10 s");
    f.evidence.push(Evidence::new("RcvbufErrors", errors as f64, "", text).over(WARN as f64));
    if let (Some(pct), Some(arrived)) = (pct, arrived) {
        let text = format!("{pct:.1}% of what arrived; {arrived} were read");
        f.evidence.push(Evidence::new("lost", pct, "%", text).over(CRIT_PCT));
    } else {
        f.missing.push("what fraction of all datagrams that is (no InDatagrams)".to_owned());
    }
    match lost {
        Some(l) => {
            let m = &l.socket.skmem;
            let (r, rb) = (m.r().unwrap_or(0), m.rb().unwrap_or(0));
            let text = format!("d +{} with r {r} of rb {rb}", l.packets);
            f.evidence.push(Evidence::new("d", l.packets as f64, "", text));
            f.sockets.push(l.socket.id);
            f.examples.push(l.socket.local.to_string());
            let part = (l.socket.owner.as_ref(), l.packets as f64);
            f.by = by_owner([part].into_iter(), errors as f64, &Resource::Overflow);
        }
        None => f.missing.push("which socket (no socket's own drop count grew)".to_owned()),
    }
    let memory = sum(w, netns, &MEM_ERRORS).unwrap_or(0);
    let text = format!("MemErrors +{memory}");
    if memory == 0 {
        f.ruled_out.push(RuledOut::new("udp-memory", text));
    } else {
        let text = format!("{text}: memory for all UDP sockets (udp_mem) is running out too");
        f.evidence.push(Evidence::new("MemErrors", memory as f64, "", text));
    }
    let because = format!("this kernel had {errors} for the socket and found no room");
    f.ruled_out.push(RuledOut::new("lost-before-the-socket", because));
    let enter = enter(w, netns);
    f.next.push(match lost {
        Some(l) => format!("{enter}ss -uanmp sport = :{}  # r against rb, d", l.socket.local.port),
        None => format!("{enter}ss -uanmp  # d"),
    });
    if let Some(o) = lost.and_then(|l| l.socket.owner.as_ref()) {
        f.next.push(format!("strace -fp {} -e trace=network", o.pid));
    }
    f.next.push(format!("{enter}sysctl net.core.rmem_max net.core.rmem_default"));
    f
}
