//! `tcp-connect-stuck`: connection attempts get no answer.

use super::common::counters::{held, spaces};
use super::common::evidence;
use super::common::peers::{Group, by_peer, device, enter, ss_dst};
use super::common::sockets::{Case, Cause, is_gone};
use super::common::text::{rate, sh, time};
use crate::diagnose::rules::prelude::*;
use crate::sample::sockets::{RouteOutcome, SockState};
use crate::sample::subject::{NetnsId, Subject};

/// Connections to one destination ...
const SOCKETS: usize = 3;
/// ... with at least this many retransmitted SYNs.
const RETRANS: u8 = 2;
/// Retransmitted SYNs per second in a network namespace ...
const SYNS_S: f64 = 5.0;
/// ... for this many of the last seconds.
const HELD: (u64, u64) = (3, 5);

const SYN_RETRANS: &str = "TcpExtTCPSynRetrans";

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-connect-stuck"),
    title: "connection attempts get no answer",
    condition: "3 or more sockets in SYN-SENT to one destination have retransmitted their SYN \
        twice or more (retransmits; backoff stays 0 for the first ones since 6.5), or \
        TCPSynRetrans runs at 5/s or more for 3 s. More than 8 destinations at the same time \
        become one finding.",
    look_alikes: "A server whose accept queue overflows looks the same from this side; on the \
        server it is tcp-listen-overflow. A closed port answers with a reset: connect() fails \
        immediately. A slow name server does not involve TCP.",
    remedy: "Try the port by hand from this host and from another one. Check security groups \
        and firewalls on the path and at the peer, conntrack, and the server's accept queue. \
        Give connect() a timeout: the kernel keeps trying for two minutes.",
    sources: "node_exporter exports TCPSynRetrans, without a rule. Measured on 6.18 against a \
        peer that drops: SYN-SENT, rto constant at 1000 ms, retransmits 3, no backoff.",
    hold: Hold::events(6),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Sockets], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let all = w.derived.sockets.suspects.iter();
    let stuck = all
        .filter(|s| s.state == SockState::SYN_SENT && s.retransmits() >= RETRANS && !is_gone(w, s));
    let mut named = Vec::new();
    for g in by_peer(stuck.map(|s| Case::sure(s, Cause::NoAnswer)), w) {
        if g.cases.len() >= SOCKETS {
            named.push(g.netns());
            out.fire(g.subject.clone(), fire(w, &g));
        }
    }
    for netns in spaces(w).filter(|n| !named.contains(n)) {
        let fast = |d: &crate::metrics::NetPair| d.rate(SYN_RETRANS).is_some_and(|r| r >= SYNS_S);
        if held(w, netns, HELD, fast) {
            out.fire(Subject::Netns { netns }, unnamed(w, netns));
        }
    }
}

fn fire(w: &Window<'_>, g: &Group<'_>) -> Fire {
    let s = g.first().socket;
    let mut f = Fire::new(Severity::Warn, format!("{} in SYN-SENT without an answer", g.who()));
    g.fill(&mut f, w);
    let n = g.cases.len();
    let text = format!("{n} sockets in SYN-SENT with {RETRANS} retransmitted SYNs or more");
    f.evidence.push(Evidence::new("SYN-SENT", n as f64, "", text).over(SOCKETS as f64));
    let most = g.cases.iter().map(|c| c.socket.retransmits()).max().unwrap_or(RETRANS);
    let text = format!("up to {most} retransmitted SYNs on one of them");
    f.evidence.push(Evidence::new("retr", most.into(), "", text).over(RETRANS.into()));
    if let Some(us) = s.info.and_then(|i| i.rto_us()) {
        let gap = time(Duration::from_micros(us.into()));
        let text = format!("rto {gap}, next try in {} ms", s.expires_ms);
        f.evidence.push(Evidence::new("rto", f64::from(us) / 1000.0, "ms", text));
    }
    syn_rate(&mut f, w, g.netns());
    match &s.route {
        Some(RouteOutcome::Errno(e)) => {
            let text = format!("the route lookup for {} returns errno {e}", s.remote.addr);
            f.evidence.push(Evidence::new("route", (*e).into(), "errno", text));
        }
        Some(RouteOutcome::Via { dev, .. }) => {
            f.ruled_out.push(RuledOut::new("no-route", format!("a route exists through {dev}")));
        }
        None => {}
    }
    let because = "still SYN-SENT: a refusal would have ended it";
    f.ruled_out.push(RuledOut::new("connection-refused", because));
    f.missing.push("whether the peer's accept queue is full (visible only there)".to_owned());
    let enter = enter(w, g.netns());
    let (peer, port) = (sh(&s.remote.addr.to_string()), s.remote.port);
    // Every host has a shell; not every host has nc.
    f.next.push(format!(
        "{enter}timeout 3 bash -c '</dev/tcp/{}/{port}' && echo open || echo no answer",
        s.remote.addr
    ));
    f.next.push(format!("{enter}ip route get {peer}"));
    f.next.push(format!("{enter}tcpdump -ni {} host {peer} and port {port} -c 20", device(s)));
    f.next.push(format!("{enter}ss -tnop state syn-sent dst {}", ss_dst(s)));
    f
}

fn syn_rate(f: &mut Fire, w: &Window<'_>, netns: NetnsId) {
    if let Some(r) = w.derived.net(netns).and_then(|n| n.rate(SYN_RETRANS)).filter(|r| *r > 0.0) {
        let text = format!("TCPSynRetrans {}/s", rate(r));
        f.evidence.push(Evidence::new("TCPSynRetrans", r, "/s", text).over(SYNS_S));
    }
}

/// Many SYNs are retransmitted, but not enough to any one destination.
fn unnamed(w: &Window<'_>, netns: NetnsId) -> Fire {
    let now = w.derived.net(netns).and_then(|n| n.rate(SYN_RETRANS)).unwrap_or(0.0);
    let mut f = Fire::new(
        Severity::Warn,
        format!("connection attempts get no answer: {} SYNs/s are retransmitted", rate(now)),
    );
    syn_rate(&mut f, w, netns);
    let all = w.derived.sockets.suspects.iter();
    let some: Vec<_> =
        all.filter(|s| s.state == SockState::SYN_SENT && s.id.netns == netns).take(5).collect();
    f.examples = some.iter().map(|s| super::common::peers::example(s)).collect();
    f.sockets = some.iter().map(|s| s.id).collect();
    f.evidence.extend(some.first().map(|s| evidence::retransmits(s)));
    let waiting = w.derived.sockets.totals.iter().find(|t| t.netns == netns);
    let n = waiting.map_or(0, |t| t.syn_sent);
    let because = format!("{n} sockets in SYN-SENT, fewer than {SOCKETS} to any one peer");
    f.ruled_out.push(RuledOut::new("one-destination", because));
    let enter = enter(w, netns);
    f.next.push(format!("{enter}ss -tnop state syn-sent"));
    f.next.push(format!("{enter}nstat -az {SYN_RETRANS}"));
    f
}
