//! `tcp-mem-pressure`: the host's TCP memory or orphans are near their limit.

use super::common::by_owner::by_owner;
use super::common::counters::{grown, spaces};
use super::common::peers::{enter, owner};
use super::common::text::{bytes, count};
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::Fat;

/// An active finding clears below this fraction of the second limit (pressure).
const CLEAR: f64 = 0.8;
/// Critical above this fraction of the third limit.
const CRIT: f64 = 0.9;
/// Orphans as a fraction of `tcp_max_orphans`: warn, critical, clear.
const ORPHANS: [f64; 3] = [0.25, 0.5, 0.2];

/// This many connections in CLOSE-WAIT may be a leak that fills the memory.
const LEAK: u32 = 100;

const ABORTS: &str = "TcpExtTCPAbortOnMemory";

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-mem-pressure"),
    title: "TCP is running out of memory: buffers shrink, connections are aborted",
    condition: "TCP memory (sockstat mem, in pages) is above the second limit of \
        net.ipv4.tcp_mem; critical above 90% of the third, or when TCPAbortOnMemory grew within \
        10 s. Also orphans at 25% of tcp_max_orphans, critical at 50%. Clears below 80% of the \
        second limit and 20% of the orphans.",
    look_alikes: "One socket with a full buffer stays within its own limit. A process that \
        leaks connections (tcp-close-wait-leak) fills the memory with data that its peers sent.",
    remedy: "Find what uses it: unread receive queues (r), peers that do not read (w), orphans \
        that wait for a peer that is gone (tcp_orphan_retries). Raise tcp_mem only if the \
        machine has the memory and the load is meant to be that large.",
    sources: "net/ipv4/tcp.c, tcp_check_oom(), net/core/sock.c, __sk_mem_raise_allocated(); the \
        limits are those of netdata's tcp_mem and tcp_orphans alarms.",
    hold: Hold::events(6),
    needs_time: Duration::from_secs(2),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::NetCounters],
    explains: &[Explains::new("tcp-rx-drop", Scope::Host)],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(s) = State::of(w) else { return };
    if s.mem.is_none() && s.orphans.is_none() && s.aborts == 0 {
        return out.cannot_judge("no sockstat, or neither tcp_mem nor tcp_max_orphans");
    }
    if let Some(severity) = s.severity() {
        out.fire(Subject::Host, fire(w, &s, severity));
    } else if s.lingers() {
        out.linger(Subject::Host);
    }
}

/// State that all network namespaces share.
struct State {
    /// Pages, with the limits.
    mem: Option<(u64, [u64; 3])>,
    orphans: Option<(u64, u64)>,
    aborts: u64,
}

impl State {
    fn of(w: &Window<'_>) -> Option<Self> {
        let c = &w.tick.samples.net_counters.as_ref()?.data;
        let read = |name: &str| {
            c.spaces.iter().find_map(|s| s.get(name)).and_then(|n| u64::try_from(n).ok())
        };
        Some(Self {
            mem: read("sockstat.TCP.mem").zip(c.tcp_mem),
            orphans: read("sockstat.TCP.orphan").zip(c.tcp_max_orphans.filter(|n| *n > 0)),
            aborts: spaces(w).filter_map(|n| grown(w, n, ABORTS)).fold(0, u64::saturating_add),
        })
    }
    fn orphan_share(&self) -> f64 {
        self.orphans.map_or(0.0, |(n, max)| n as f64 / max as f64)
    }
    fn severity(&self) -> Option<Severity> {
        let high = self.mem.is_some_and(|(n, l)| n as f64 > CRIT * l[2] as f64);
        let [warn, crit, _] = ORPHANS;
        if high || self.aborts > 0 || self.orphan_share() >= crit {
            return Some(Severity::Crit);
        }
        let pressure = self.mem.is_some_and(|(n, l)| n > l[1]);
        (pressure || self.orphan_share() >= warn).then_some(Severity::Warn)
    }
    fn lingers(&self) -> bool {
        self.mem.is_some_and(|(n, l)| n as f64 >= CLEAR * l[1] as f64)
            || self.orphan_share() >= ORPHANS[2]
    }
}

fn fire(w: &Window<'_>, s: &State, severity: Severity) -> Fire {
    let page = u64::from(w.host.page_size.max(1));
    let size = |pages: u64| bytes(pages.saturating_mul(page));
    let tight = s.mem.is_some_and(|(n, l)| n > l[1]);
    let mut f = match (s.mem, s.orphans) {
        _ if s.aborts > 0 => Fire::new(
            severity,
            format!(
                "{} aborted in 10 s for lack of memory",
                count(s.aborts as usize, "connection")
            ),
        ),
        (Some((n, l)), _) if tight => Fire::new(
            severity,
            format!("TCP uses {} of {}: buffers shrink above {}", size(n), size(l[2]), size(l[1])),
        ),
        (_, Some((n, max))) => Fire::new(
            severity,
            format!("{n} orphaned connections of {max}: beyond that the kernel resets them"),
        ),
        _ => Fire::new(severity, "TCP is running out of memory"),
    };
    if let Some((n, [_, pressure, high])) = s.mem {
        let text = format!("{n} pages ({}) of tcp_mem pressure {pressure}, high {high}", size(n));
        f.evidence.push(Evidence::new("mem", n as f64, "pages", text).over(pressure as f64));
    } else {
        f.missing.push("how much memory TCP uses (no sockstat or tcp_mem)".to_owned());
    }
    if let Some((n, max)) = s.orphans {
        let stuck: u32 = w.derived.sockets.spaces.iter().map(|s| s.stuck_orphans).sum();
        let text =
            format!("{n} orphans of {max}, {stuck} of them retransmitting without an answer");
        let e = Evidence::new("orphans", n as f64, "", text);
        f.evidence.push(e.over(ORPHANS[0] * max as f64));
    }
    if s.aborts > 0 {
        let text = format!("TCPAbortOnMemory +{} in 10 s", s.aborts);
        f.evidence.push(Evidence::new("TCPAbortOnMemory", s.aborts as f64, "", text).over(1.0));
    }
    let fattest = fattest(w);
    holders(&mut f, &fattest);
    f.by = s.mem.map_or_else(Vec::new, |(n, _)| {
        let held = fat(w).map(|x| (x.owner.as_ref(), f64::from(x.r) + f64::from(x.w)));
        by_owner(held, n.saturating_mul(page) as f64, &Resource::TcpMemory)
    });
    rule_out(&mut f, w, s, &fattest);
    // The limits are host-wide, but ss lists one namespace: that of the socket that uses most.
    let inside = fattest.first().map_or_else(String::new, |x| enter(w, x.id.netns));
    f.next.push(format!("{inside}ss -tmn | sort -k2 -n | tail  # by Send-Q: sort -k3"));
    f.next.push("sysctl net.ipv4.tcp_mem net.ipv4.tcp_max_orphans; cat /proc/net/sockstat".into());
    if s.orphan_share() >= ORPHANS[0] {
        let stuck = w.derived.sockets.spaces.iter().filter(|s| s.stuck_orphans > 0);
        let worst = stuck.max_by_key(|s| s.stuck_orphans);
        let inside = worst.map_or_else(String::new, |s| enter(w, s.netns));
        f.next.push(format!(
            "{inside}sysctl net.ipv4.tcp_orphan_retries; {inside}ss -tano state fin-wait-1"
        ));
    }
    f
}

/// The sockets of each namespace that use most memory.
fn fat<'a>(w: &Window<'a>) -> impl Iterator<Item = &'a Fat> {
    w.derived.sockets.spaces.iter().flat_map(|s| &s.fattest)
}

/// Those of all namespaces.
fn fattest<'a>(w: &Window<'a>) -> Vec<&'a Fat> {
    let mut all: Vec<&Fat> = fat(w).collect();
    all.sort_by_key(|x| (std::cmp::Reverse(x.r.saturating_add(x.w)), x.id));
    all.truncate(5);
    all
}

fn holders(f: &mut Fire, fattest: &[&Fat]) {
    for x in fattest {
        let who = x.owner.as_ref().map_or_else(String::new, |o| format!(" ({})", owner(o)));
        f.examples.push(format!("{} -> {}{who}", x.local, x.remote));
        f.sockets.push(x.id);
    }
    if let Some(x) = fattest.first() {
        let text = format!(
            "most: {} -> {} with {} unread, {} unsent or unacknowledged",
            x.local,
            x.remote,
            bytes(x.r.into()),
            bytes(x.w.into())
        );
        f.evidence.push(Evidence::new("r+w", f64::from(x.r) + f64::from(x.w), "bytes", text));
    }
}

fn rule_out(f: &mut Fire, w: &Window<'_>, s: &State, fattest: &[&Fat]) {
    let closing: u32 = w.derived.sockets.totals.iter().map(|t| t.close_wait).sum();
    let text = format!("{closing} connections in CLOSE-WAIT on this host");
    if closing < LEAK {
        f.ruled_out.push(RuledOut::new("tcp-close-wait-leak", text));
    } else {
        f.evidence.push(Evidence::new("CLOSE-WAIT", closing.into(), "", text));
    }
    let because = "the limits are TCP's own, not the host's memory";
    f.ruled_out.push(RuledOut::new("mem-stall", because));
    let page = f64::from(w.host.page_size.max(1));
    if let (Some((n, _)), Some(x)) = (s.mem, fattest.first()) {
        let pct = 100.0 * (f64::from(x.r) + f64::from(x.w)) / (n.max(1) as f64 * page);
        let text = format!("the largest socket holds {pct:.0}% of it");
        if pct < 50.0 {
            f.ruled_out.push(RuledOut::new("one-socket", text));
        } else {
            f.evidence.push(Evidence::new("one-socket", pct, "%", text));
        }
    }
}
