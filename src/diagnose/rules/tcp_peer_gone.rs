//! `tcp-peer-gone`: keepalive probes of idle connections get no answer.

use super::common::evidence;
use super::common::peers::{Group, by_peer, device, enter, ss_dst};
use super::common::sockets::{Case, Cause, is_gone};
use super::common::text::sh;
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::Suspect;
use crate::sample::sockets::{RouteOutcome, SockTimer};

/// Connections to one peer ...
const SOCKETS: usize = 3;
/// ... with at least this many unanswered keepalive probes.
const PROBES: u8 = 2;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-peer-gone"),
    title: "idle connections to a peer that is gone: keepalive probes get no answer",
    condition: "The keepalive timer runs with 2 or more unanswered probes (idiag_timer 2, \
        idiag_retrans) on 3 or more connections to one peer. More than 8 peers at the same time \
        become one finding. Clears when a probe is answered or the connections end.",
    look_alikes: "A healthy idle peer answers each probe, which resets the count. One lost \
        probe: the count is 1. Unanswered data runs the retransmission timer: tcp-rto-storm. A \
        firewall or NAT that dropped its state for idle connections looks the same from this \
        side, but new connections to the peer work.",
    remedy: "Is the peer up, and at this address? If new connections work, something on the \
        path drops state for idle ones: set tcp_keepalive_time (or TCP_KEEPIDLE) below its idle \
        timeout. Until the probes run out (tcp_keepalive_probes x tcp_keepalive_intvl, 11 min \
        by default) a pool may hand these connections out.",
    sources: "net/ipv4/tcp_timer.c, tcp_keepalive_timer(); net/ipv4/inet_diag.c. Measured on \
        6.18: a peer's link goes down under idle connections, the count grows by one per \
        TCP_KEEPINTVL.",
    hold: Hold::events(6),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Sockets], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let all = w.derived.sockets.suspects.iter();
    let alone = all.filter(|s| {
        s.timer == SockTimer::KEEPALIVE
            && s.retrans >= PROBES
            && s.state.may_send()
            && !is_gone(w, s)
    });
    for g in by_peer(alone.map(|s| Case::sure(s, Cause::Gone)), w) {
        if g.cases.len() >= SOCKETS {
            out.fire(g.subject.clone(), fire(w, &g));
        }
    }
}

/// The connection with the most unanswered probes.
fn worst<'a>(g: &Group<'a>) -> &'a Suspect {
    let all = g.cases.iter().map(|c| c.socket);
    all.max_by_key(|s| s.retrans).unwrap_or(g.first().socket)
}

fn fire(w: &Window<'_>, g: &Group<'_>) -> Fire {
    let s = worst(g);
    let mut f = Fire::new(Severity::Warn, format!("{}: keepalive probes get no answer", g.who()));
    g.fill(&mut f, w);
    let (n, most) = (g.cases.len(), s.retrans);
    let text = format!("{n} idle connections with {PROBES} unanswered probes or more");
    f.evidence.push(Evidence::new("keepalive", n as f64, "", text).over(SOCKETS as f64));
    let text = format!("up to {most} probes unanswered, the next in {} ms", s.expires_ms);
    f.evidence.push(Evidence::new("probes", most.into(), "", text).over(PROBES.into()));
    f.evidence.extend(evidence::last_ack(s));
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
    let because = format!("a live peer resets the count with each answer; it is {most}");
    f.ruled_out.push(RuledOut::new("idle-but-well", because));
    let because = format!("Send-Q {}, timer is keepalive: no data waits", s.wqueue);
    f.ruled_out.push(RuledOut::new("tcp-rto-storm", because));
    f.missing.push("whether a firewall or NAT on the path forgot these connections".to_owned());
    let enter = enter(w, g.netns());
    let peer = sh(&s.remote.addr.to_string());
    f.next.push(format!("{enter}ip neigh show to {peer}; {enter}ip route get {peer}"));
    f.next.push(format!("{enter}ping -c 3 {peer}"));
    if !s.inbound {
        let port = s.remote.port;
        f.next.push(format!(
            "{enter}timeout 3 bash -c '</dev/tcp/{}/{port}' && echo open || echo no answer",
            s.remote.addr
        ));
    }
    f.next.push(format!("{enter}ss -tnop dst {}", ss_dst(s)));
    f.next.push(format!("{enter}tcpdump -ni {} host {peer} -c 20", device(s)));
    f
}
