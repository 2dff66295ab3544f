//! `tcp-synq-full`: half-open connections fill a listener's SYN queue.

use super::common::counters::{grown, held, spaces};
use super::common::peers::enter;
use super::common::text::count;
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::SynQueue;
use crate::sample::subject::{NetnsId, Subject};

/// A counter must have grown in this many seconds, of the last this many.
const HELD: (u64, u64) = (2, 10);

const COOKIES: &str = "TcpExtTCPReqQFullDoCookies";
const DROPS: &str = "TcpExtTCPReqQFullDrop";
const OVERFLOWS: &str = "TcpExtListenOverflows";

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-synq-full"),
    title: "half-open connections fill a listener's SYN queue",
    condition: "TCPReqQFullDoCookies grew in 2 of the last 10 s: the kernel answers with SYN \
        cookies. Critical when TCPReqQFullDrop grew: it drops SYNs. The listener is the one \
        with the most connections in SYN-RECV; the sources are counted.",
    look_alikes: "A server that accepts too slowly fills its accept queue, and connections then \
        stay half-open: ListenOverflows grows (tcp-listen-overflow). A burst of genuine clients \
        over a long path: many sources, and the handshakes complete.",
    remedy: "Turn on net.ipv4.tcp_syncookies (1). A flood has few or implausible sources: \
        filter them. Genuine clients: raise the listen() backlog, net.core.somaxconn and \
        net.ipv4.tcp_max_syn_backlog together.",
    sources: "net/ipv4/tcp_input.c, tcp_syn_flood_action(); netdata's tcp_syn_queue alarms use \
        the same counters.",
    hold: Hold::events(20),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::NetCounters], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for netns in spaces(w) {
        let grew =
            |name: &'static str| held(w, netns, HELD, |n| n.delta(name).is_some_and(|d| d > 0));
        let severity = match (grew(DROPS), grew(COOKIES)) {
            (true, _) => Severity::Crit,
            (false, true) => Severity::Warn,
            (false, false) => continue,
        };
        // A counter that went backwards: its growth is unknown.
        let counter = if severity == Severity::Crit { DROPS } else { COOKIES };
        if grown(w, netns, counter).is_none_or(|n| n == 0) {
            continue;
        }
        let queue = w.derived.sockets.space(netns).and_then(|s| s.syn_queues.first());
        let listener = queue.and_then(|q| q.listener);
        let whole = Subject::Netns { netns };
        let f = fire(w, netns, severity, queue);
        match listener {
            Some((local, ..)) => {
                out.clear(whole);
                out.fire(Subject::Listener { local, netns }, f);
            }
            None => out.fire(whole, f),
        }
    }
}

fn fire(w: &Window<'_>, netns: NetnsId, severity: Severity, queue: Option<&SynQueue>) -> Fire {
    let drops = grown(w, netns, DROPS).unwrap_or(0);
    let cookies = grown(w, netns, COOKIES).unwrap_or(0);
    let what = if severity == Severity::Crit {
        format!("{} dropped in 10 s", count(drops as usize, "SYN"))
    } else {
        format!("{} answered with cookies in 10 s", count(cookies as usize, "SYN"))
    };
    let of = match queue {
        Some(SynQueue { listener: Some((local, ..)), .. }) => format!(" of {local}"),
        Some(q) => format!(" of port {}", q.port),
        None => String::new(),
    };
    let mut f = Fire::new(severity, format!("the SYN queue{of} is full: {what}"));
    for (name, n) in [("TCPReqQFullDrop", drops), ("TCPReqQFullDoCookies", cookies)] {
        if n > 0 {
            let text = format!("{name} +{n} in 10 s");
            f.evidence.push(Evidence::new(name, n as f64, "", text).over(1.0));
        }
    }
    if let Some(q) = queue {
        half_open(&mut f, q);
    } else {
        f.missing.push("which listener: nothing was in SYN-RECV when sampled".to_owned());
    }
    for name in ["TcpExtSyncookiesSent", "TcpExtSyncookiesRecv", "TcpExtSyncookiesFailed"] {
        if let Some(n) = grown(w, netns, name).filter(|n| *n > 0) {
            let short = name.trim_start_matches("TcpExt");
            f.evidence.push(Evidence::new(short, n as f64, "", format!("{short} +{n}")));
        }
    }
    let overflows = grown(w, netns, OVERFLOWS);
    match overflows {
        Some(0) => {
            let because = "ListenOverflows +0: that is the accept queue";
            f.ruled_out.push(RuledOut::new("tcp-listen-overflow", because));
        }
        Some(n) => {
            let text = format!("ListenOverflows +{n}: the accept queue is full too");
            f.evidence.push(Evidence::new("ListenOverflows", n as f64, "", text));
        }
        None => {
            f.missing.push("whether the accept queue overflows (no ListenOverflows)".to_owned());
        }
    }
    let because = "this kernel itself counted them: not a firewall or the path";
    f.ruled_out.push(RuledOut::new("lost-on-the-way", because));
    let enter = enter(w, netns);
    let port = queue.map_or_else(String::new, |q| format!(" sport = :{}", q.port));
    f.next
        .push(format!("{enter}ss -tn state syn-recv{port} | awk '{{print $4}}' | sort | uniq -c"));
    f.next.push(format!("{enter}sysctl net.ipv4.tcp_syncookies net.ipv4.tcp_max_syn_backlog"));
    f.next.push(format!("{enter}nstat -az | grep -E 'ReqQFull|Syncookies|Listen'"));
    f
}

fn half_open(f: &mut Fire, q: &SynQueue) {
    let text = match q.listener {
        Some((_, backlog, _)) => format!("{} in SYN-RECV, backlog {backlog}", q.waiting),
        None => format!("{} in SYN-RECV", q.waiting),
    };
    let e = Evidence::new("SYN-RECV", q.waiting.into(), "", text);
    f.evidence.push(match q.listener {
        Some((_, backlog, _)) => e.over(backlog.into()),
        None => e,
    });
    f.count = q.waiting.max(1);
    f.sockets.extend(q.listener.map(|l| l.2));
    let few = q.sources.iter().map(|(a, n)| format!("{a} ({n})"));
    f.examples = few.collect();
    let known: u32 = q.sources.iter().map(|s| s.1).sum();
    let text = format!(
        "{known} of them from {} sources, {} or more in total",
        q.sources.len(),
        q.distinct
    );
    f.evidence.push(Evidence::new("sources", q.distinct as f64, "", text));
}
