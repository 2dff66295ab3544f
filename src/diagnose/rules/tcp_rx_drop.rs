//! `tcp-rx-drop`: the kernel drops TCP data that has arrived.

use super::common::by_owner::by_owner;
use super::common::counters::{Lost, SPAN, grown, held, is_udp, losers, spaces};
use super::common::peers::{enter, owner};
use super::common::text::{count, rate};
use super::tcp_receiver_not_reading::lay_unread;
use crate::diagnose::rules::prelude::*;
use crate::metrics::NetPair;
use crate::sample::sockets::SockState;
use crate::sample::subject::{NetnsId, Subject};

/// There must be drops in this many seconds, of the last this many.
const HELD: (u64, u64) = (3, 10);
/// Prunes of receive queues per second that count as drops.
const PRUNES_S: f64 = 10.0;

/// Counters of data that arrived and was dropped, and the reason.
const DROPS: [(&str, &str); 5] = [
    ("TcpExtTCPBacklogDrop", "the socket's lock was held too long"),
    ("TcpExtTCPRcvQDrop", "no memory for the receive queue"),
    ("TcpExtTCPZeroWindowDrop", "it arrived while the window was closed"),
    ("TcpExtRcvPruned", "the receive buffer was full even after pruning"),
    ("TcpExtTCPOFODrop", "no room for out-of-order data"),
];
const PRUNES: &str = "TcpExtPruneCalled";

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-rx-drop"),
    title: "the kernel drops TCP data that has arrived",
    condition: "TCPBacklogDrop, TCPRcvQDrop, TCPZeroWindowDrop, RcvPruned or TCPOFODrop grew, \
        or PruneCalled ran at 10/s or more, in 3 of the last 10 s. The sockets are those whose \
        own drop count (d, since 4.7) grew.",
    look_alikes: "A process that does not read at all: tcp-receiver-not-reading reports its \
        drops. TCP memory of the whole host used up: tcp-mem-pressure. Packets lost before TCP \
        count at the device or in softnet.",
    remedy: "TCPBacklogDrop: a thread keeps the socket locked in a long system call (large \
        recv, slow CPU). RcvPruned, TCPZeroWindowDrop: the receive buffer is too small for the \
        segment sizes that arrive: do not set SO_RCVBUF, raise the third value of tcp_rmem.",
    sources: "net/ipv4/tcp_input.c, tcp_prune_queue(), tcp_data_queue(). Measured on 6.18 with \
        SO_RCVBUF 8192 and small segments: d grows with RcvPruned.",
    hold: Hold::events(20),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::NetCounters], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for netns in spaces(w) {
        if !held(w, netns, HELD, drops) {
            continue;
        }
        let lost = losers(w, netns, |d| !is_udp(d) && d.state != SockState::LISTEN);
        // Drops at a process that does not read are reported by the rule about that process.
        let unread: Vec<&Lost> = lost.iter().filter(|l| lay_unread(w, l.socket.id, SPAN)).collect();
        let all: u64 = lost.iter().map(|l| l.packets).sum();
        let theirs: u64 = unread.iter().map(|l| l.packets).sum();
        if all > 0 && theirs > all / 2 {
            continue;
        }
        out.fire(Subject::Netns { netns }, fire(w, netns, &lost, (theirs, all)));
    }
}

fn drops(n: &NetPair) -> bool {
    DROPS.iter().any(|(name, _)| n.delta(name).is_some_and(|d| d > 0))
        || n.rate(PRUNES).is_some_and(|r| r >= PRUNES_S)
}

fn fire(w: &Window<'_>, netns: NetnsId, lost: &[Lost], (unread, all): (u64, u64)) -> Fire {
    let counted: u64 =
        DROPS.iter().filter_map(|(name, _)| grown(w, netns, name)).fold(0, u64::saturating_add);
    // Some kinds of drop have no counter, or another one; the sockets count all of them.
    let sum = counted.max(all);
    let what = match (sum, grown(w, netns, PRUNES)) {
        (0, Some(n)) => format!("receive buffers overflow: pruned {n} times in 10 s"),
        _ => format!("{} lost on arrival in 10 s", count(sum as usize, "segment")),
    };
    let most = lost.first().and_then(|l| l.socket.owner.as_ref());
    let most = most.map_or_else(String::new, |o| format!(", most by {}", owner(o)));
    let mut f = Fire::new(Severity::Warn, what + &most);
    for (name, why) in DROPS {
        if let Some(n) = grown(w, netns, name).filter(|n| *n > 0) {
            let short = name.trim_start_matches("TcpExt");
            let text = format!("{short} +{n}: {why}");
            f.evidence.push(Evidence::new(short, n as f64, "", text).over(1.0));
        }
    }
    if let Some(c) = w.derived.net(netns).and_then(|n| n.rate(PRUNES)).filter(|r| *r > 0.0) {
        let text = format!("PruneCalled {}/s", rate(c));
        f.evidence.push(Evidence::new("PruneCalled", c, "/s", text).over(PRUNES_S));
    }
    sockets(&mut f, lost);
    let parts = lost.iter().map(|l| (l.socket.owner.as_ref(), l.packets as f64));
    f.by = by_owner(parts, 0.0, &Resource::Overflow);
    f.count = u32::try_from(lost.len().max(1)).unwrap_or(u32::MAX);
    let because = format!("{unread} of {all} drops are at sockets that nobody reads");
    f.ruled_out.push(RuledOut::new("tcp-receiver-not-reading", because));
    if let Some((mem, [_, pressure, _])) = memory(w) {
        let because = format!("TCP uses {mem} pages; pressure starts at {pressure}");
        if mem <= i64::try_from(pressure).unwrap_or(i64::MAX) {
            f.ruled_out.push(RuledOut::new("tcp-mem-pressure", because));
        } else {
            f.evidence
                .push(Evidence::new("mem", mem as f64, "pages", because).over(pressure as f64));
        }
    }
    let enter = enter(w, netns);
    f.next.push(format!("{enter}ss -tinmp | grep -B1 -E ',d[1-9]'"));
    f.next.push(format!("{enter}nstat -az | grep -E 'Prune|Drop|Collapsed'"));
    f.next.push(format!("{enter}sysctl net.ipv4.tcp_rmem net.core.rmem_max"));
    f
}

fn memory(w: &Window<'_>) -> Option<(i64, [u64; 3])> {
    let c = &w.tick.samples.net_counters.as_ref()?.data;
    let mem = c.spaces.iter().find_map(|s| s.get("sockstat.TCP.mem"))?;
    Some((mem, c.tcp_mem?))
}

fn sockets(f: &mut Fire, lost: &[Lost]) {
    for l in lost.iter().take(5) {
        let s = &l.socket;
        let who = s.owner.as_ref().map_or_else(String::new, |o| format!(" ({})", owner(o)));
        f.examples.push(format!("{} -> {}{who}", s.local, s.remote));
    }
    f.sockets.extend(lost.iter().map(|l| l.socket.id));
    if let Some(l) = lost.first() {
        let m = &l.socket.skmem;
        let text = format!(
            "d +{} at {} -> {}: r {} of rb {}, backlog {}",
            l.packets,
            l.socket.local,
            l.socket.remote,
            m.r().unwrap_or(0),
            m.rb().unwrap_or(0),
            m.bl().unwrap_or(0)
        );
        f.evidence.push(Evidence::new("d", l.packets as f64, "", text));
    } else {
        f.missing.push("which sockets (no socket's own drop count grew)".to_owned());
    }
}
