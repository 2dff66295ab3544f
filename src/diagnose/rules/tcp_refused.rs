//! `tcp-refused`: connection attempts are refused.

use super::common::connects;
use super::common::counters::{SPAN, held, spaces};
use super::common::peers::{enter, way_in};
use super::common::text::{count, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::NetPair;
use crate::sample::bpf::net::NetEventKind;
use crate::sample::sockets::SockState;
use crate::sample::subject::{Endpoint, NetnsId, Subject};
use std::collections::{BTreeMap, BTreeSet};

/// Refused attempts per second ...
const REFUSED_S: f64 = 5.0;
/// ... and as a fraction of all attempts made in the network namespace.
const SHARE: f64 = 0.2;
/// An active finding clears below this fraction of either.
const CLEAR: f64 = 0.7;
/// It must be true in this many seconds, of the last this many.
const HELD: (u64, u64) = (3, 5);
/// Refusals relative to attempts: more refusals than attempts means that half-open connections to
/// this host are reset, which the kernel also counts as failed attempts. The slack is for an
/// attempt counted in the next interval.
const OVER: f64 = 1.1;
/// A client that tries `::1` before 127.0.0.1 fails every second attempt.
const FALLBACK: f64 = 0.52;
/// This many refusing ports, none of which reaches [`SHARE`], is a port scan.
const SCANNED: usize = 20;
/// Fraction of the refusals that resets, or ICMP errors, must account for to be the cause.
const MOST: f64 = 0.8;

const FAILS: &str = "TcpAttemptFails";
const OPENS: &str = "TcpActiveOpens";
const GIVEN_UP: &str = "TcpExtTCPAbortOnTimeout";
const RESETS: &str = "TcpOutRsts";
const OUT_RSTS: &str = "OutRsts";
const UNREACHABLE: &str = "IcmpInDestUnreachs";

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-refused"),
    title: "connection attempts are refused: nothing listens there, or a firewall rejects them",
    condition: "AttemptFails minus TCPAbortOnTimeout (attempts without an answer) is 5/s or \
        more and 20% or more of ActiveOpens in a network namespace, in 3 of the last 5 s. eBPF \
        names the peers: resets that arrive in SYN-SENT. Clears below 3.5/s or 14%.",
    look_alikes: "Attempts without an answer: tcp-connect-stuck. A SYN scan of this host: more \
        AttemptFails than ActiveOpens, or no reset arrives in SYN-SENT. A scan from this host: \
        info when eBPF shows the ports. Localhost tried as ::1 before 127.0.0.1: info when ::1 \
        (eBPF), or this namespace, refuses no more than half. A health check of one dead \
        server: below 5/s.",
    remedy: "On the peer: is the service running, and listening on this address and port (ss \
        -ltn)? Is it a stale entry in a load balancer or in DNS? An ICMP error instead of a \
        reset: a firewall on the path rejects.",
    sources: "RFC 4022 tcpAttemptFails; net/ipv4/tcp_minisocks.c. Measured on 6.18: 30 connects \
        to a closed port count 30 AttemptFails here and 30 OutRsts on the peer. A proxy whose \
        backend refused: 53/s of 67/s.",
    hold: Hold::events(10),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::NetCounters], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for netns in spaces(w) {
        let subject = Subject::Netns { netns };
        let Some(now) = w.derived.net(netns).and_then(Attempts::of) else { continue };
        if !now.many(CLEAR) {
            continue;
        }
        let over = |n: &NetPair| Attempts::of(n).is_some_and(|a| a.many(1.0));
        let seen = Seen::look(w, netns);
        let unreachable = w.derived.net(netns).and_then(|n| n.rate(UNREACHABLE));
        // No attempt of this host was refused: its own ports are being probed.
        if seen.as_ref().is_some_and(|s| s.sum == 0 && s.whole)
            && unreachable.unwrap_or(0.0) < MOST * now.refused
        {
            continue;
        }
        if now.many(1.0) && held(w, netns, HELD, over) {
            out.fire(subject, fire(w, netns, now, seen.as_ref(), unreachable));
        } else {
            out.linger(subject);
        }
    }
}

/// Connection attempts in one interval, per second.
#[derive(Clone, Copy, Debug)]
struct Attempts {
    refused: f64,
    given_up: f64,
    opens: f64,
}

impl Attempts {
    fn of(n: &NetPair) -> Option<Self> {
        // Established connections also time out, so this may subtract too much.
        let given_up = n.rate(GIVEN_UP).unwrap_or(0.0);
        let refused = (n.rate(FAILS)? - given_up).max(0.0);
        Some(Self { refused, given_up, opens: n.rate(OPENS)? })
    }
    fn share(self) -> f64 {
        if self.opens > 0.0 { (self.refused / self.opens).min(1.0) } else { 0.0 }
    }
    fn many(self, part: f64) -> bool {
        self.refused >= part * REFUSED_S
            && self.share() >= part * SHARE
            && self.refused <= OVER * self.opens + 1.0
    }
}

/// Refusals that eBPF recorded in the last [`SPAN`].
struct Seen {
    /// By refusing endpoint, most first.
    by: Vec<(Endpoint, u64)>,
    sum: u64,
    /// Whether all resets were recorded.
    whole: bool,
}

impl Seen {
    /// `None` if resets are not recorded.
    fn look(w: &Window<'_>, netns: NetnsId) -> Option<Self> {
        let mut by: BTreeMap<Endpoint, u64> = BTreeMap::new();
        let (mut any, mut whole) = (false, true);
        let all = w.recent(usize::MAX).take_while(|d| w.tick.mono.since(d.mono) < SPAN);
        for n in all.filter_map(|d| d.net_bpf.as_deref()) {
            any |= n.resets_received_s.is_some();
            whole &= n.unlisted == 0 && n.unrecorded == 0;
            for f in n.flows.iter().filter(|f| {
                f.kind == NetEventKind::ReceiveReset
                    && f.netns == netns
                    && f.state == SockState::SYN_SENT.0
            }) {
                let Some((_, remote)) = f.ends else { continue };
                let sum = by.entry(remote).or_default();
                *sum = sum.saturating_add(f.count);
            }
        }
        let mut by: Vec<(Endpoint, u64)> = by.into_iter().collect();
        by.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let sum = by.iter().fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
        any.then_some(Self { by, sum, whole })
    }
    fn part(&self, n: u64) -> f64 {
        if self.sum == 0 { 0.0 } else { n as f64 / self.sum as f64 }
    }
    /// The endpoint that refuses most.
    fn first(&self) -> Option<&(Endpoint, u64)> {
        self.by.first()
    }
    /// Is it a port scan?
    fn is_scan(&self) -> bool {
        self.by.len() >= SCANNED && self.first().is_some_and(|(_, n)| self.part(*n) < SHARE)
    }
    /// Do all refusals come from localhost over IPv6?
    fn is_localhost(&self) -> bool {
        self.by.iter().all(|(e, _)| e.addr == std::net::Ipv6Addr::LOCALHOST)
    }
}

/// Resets sent from a namespace, if they may be the refusals.
fn refusing(n: &NetPair, now: Attempts) -> Option<f64> {
    n.rate(RESETS).filter(|r| *r >= MOST * now.refused)
}

fn resets_here(w: &Window<'_>, netns: NetnsId, now: Attempts) -> Option<f64> {
    refusing(w.derived.net(netns)?, now)
}

fn fire(
    w: &Window<'_>,
    netns: NetnsId,
    now: Attempts,
    seen: Option<&Seen>,
    unreachable: Option<f64>,
) -> Fire {
    let (refused, pct) = (rate(now.refused), 100.0 * now.share());
    let scan = seen.is_some_and(Seen::is_scan);
    let fallback = now.share() <= FALLBACK
        && match seen.filter(|s| s.sum > 0) {
            Some(s) => s.is_localhost(),
            None => resets_here(w, netns, now).is_some(),
        };
    let severity = if scan || fallback { Severity::Info } else { Severity::Warn };
    let first = seen.and_then(|s| Some((s, s.first()?)));
    let mut f = Fire::new(
        severity,
        match first {
            _ if scan => format!("a port scan from here? {refused} attempts/s are refused"),
            Some((s, (e, n))) if s.part(*n) >= MOST => {
                format!("{e} refuses {refused} connection attempts/s: {pct:.0}% of those made here")
            }
            Some((s, (e, _))) => format!(
                "{} refuse {refused} connection attempts/s: {pct:.0}% of those made here, most \
                 of them {e}",
                count(s.by.len(), "port"),
            ),
            None => format!("{refused} connection attempts/s are refused: {pct:.0}% of all"),
        },
    );
    let text = format!(
        "AttemptFails {}/s, of which {}/s got no answer",
        rate(now.refused + now.given_up),
        rate(now.given_up)
    );
    f.evidence.push(Evidence::new("AttemptFails", now.refused, "/s", text).over(REFUSED_S));
    let text = format!("{pct:.0}% of {} attempts/s (ActiveOpens)", rate(now.opens));
    f.evidence.push(Evidence::new("share", pct, "%", text).over(100.0 * SHARE));
    peers(&mut f, seen, fallback);
    let answers = Answers::look(w, netns, now, unreachable);
    f.evidence.extend(answers.evidence(w, netns));
    let because = format!("TCPAbortOnTimeout {}/s: these get an answer", rate(now.given_up));
    f.ruled_out.push(RuledOut::new("tcp-connect-stuck", because));
    let because = format!("ActiveOpens {}/s: the attempts are this host's own", rate(now.opens));
    f.ruled_out.push(RuledOut::new("syn-scan-of-this-host", because));
    let refusing = seen.filter(|s| s.sum > 0);
    let wanted = |to| refusing.is_none_or(|s| s.by.iter().any(|(e, _)| *e == to));
    connects::blame(w, netns, wanted, &mut f);
    let enter = enter(w, netns);
    if let Some((_, (e, _))) = first {
        let (addr, port) = (e.addr, e.port);
        f.next.push(format!(
            "{enter}timeout 3 bash -c '</dev/tcp/{addr}/{port}' && echo open || echo refused"
        ));
        f.next.push(listener(w, netns, *e, &answers));
    } else {
        // The port is unknown, but not who answers.
        let there = answers.space().and_then(|n| way_in(w, n));
        f.next.extend(there.map(|way| format!("{way}ss -ltnp  # what does listen there")));
        f.next.push(format!("{enter}tcpdump -ni any -c 20 'tcp[tcpflags] & tcp-rst != 0'"));
    }
    f.next.push(format!("{enter}nstat -az {OPENS} {FAILS} {RESETS} {UNREACHABLE}"));
    f
}

/// Adds the refusing peers.
fn peers(f: &mut Fire, seen: Option<&Seen>, fallback: bool) {
    let Some(s) = seen.filter(|s| s.sum > 0) else {
        let why = if seen.is_some() { "no reset was recorded" } else { "needs eBPF" };
        f.missing.push(format!("which peer refuses ({why})"));
        if fallback {
            let text = "half of the attempts fail in this namespace: localhost tried as ::1 first?";
            f.evidence.push(Evidence::text("localhost", text));
        }
        return;
    };
    f.count = u32::try_from(s.by.len()).unwrap_or(u32::MAX);
    f.examples = s.by.iter().take(5).map(|(e, n)| format!("{e} ({n})")).collect();
    if let Some((e, n)) = s.first() {
        let pct = 100.0 * s.part(*n);
        let text =
            format!("eBPF: {} resets in SYN-SENT in 10 s, {pct:.0}% of them from {e}", s.sum);
        f.evidence.push(Evidence::new("resets", s.sum as f64, "", text));
    }
    if fallback {
        let text = "localhost is tried as ::1 first, and then as 127.0.0.1";
        f.evidence.push(Evidence::text("localhost", text));
    } else if s.by.len() < SCANNED {
        let because = format!("ports that refuse: {}, fewer than {SCANNED}", s.by.len());
        f.ruled_out.push(RuledOut::new("port-scan", because));
    }
}

/// Where the refusals come from.
enum Answers {
    /// A firewall rejects with an ICMP error, so often per second.
    Firewall(f64),
    /// A namespace of this host resets so often per second.
    Space(NetnsId, f64),
    /// Outside, as far as is known.
    Elsewhere,
}

impl Answers {
    fn look(w: &Window<'_>, netns: NetnsId, now: Attempts, unreachable: Option<f64>) -> Self {
        if let Some(r) = unreachable.filter(|r| *r >= MOST * now.refused) {
            return Self::Firewall(r);
        }
        let own = resets_here(w, netns, now).map(|r| (netns, r));
        // The namespaces take turns: the youngest figures of each.
        let mut looked = BTreeSet::new();
        let recent = w.recent(usize::MAX).take_while(|d| w.tick.mono.since(d.mono) < SPAN);
        let mut all = recent
            .flat_map(|d| &d.net)
            .filter(|n| looked.insert(n.netns))
            .filter_map(|n| Some((n.netns, refusing(n, now)?)));
        own.or_else(|| all.next()).map_or(Self::Elsewhere, |(n, r)| Self::Space(n, r))
    }

    /// The namespace of this host that answers.
    fn space(&self) -> Option<NetnsId> {
        match *self {
            Self::Space(n, _) => Some(n),
            Self::Firewall(_) | Self::Elsewhere => None,
        }
    }

    fn evidence(&self, w: &Window<'_>, netns: NetnsId) -> Option<Evidence> {
        let (field, r, text) = match *self {
            Self::Elsewhere => return None,
            Self::Firewall(r) => {
                let text = "a firewall rejects with an ICMP error";
                (UNREACHABLE, r, format!("InDestUnreachs {}/s: {text}", rate(r)))
            }
            Self::Space(n, r) if n == netns => {
                let text = "the port that refuses is in this namespace";
                (OUT_RSTS, r, format!("OutRsts {}/s here: {text}", rate(r)))
            }
            Self::Space(n, r) => {
                let label = w.derived.sockets.space(n).map_or("", |s| &*s.label);
                let text = "it may be the one that refuses";
                (OUT_RSTS, r, format!("OutRsts {}/s in {label} on this host: {text}", rate(r)))
            }
        };
        Some(Evidence::new(field, r, "/s", text))
    }
}

/// Shows what listens on the port that refuses: where that is on this host, without a login.
fn listener(w: &Window<'_>, netns: NetnsId, e: Endpoint, answers: &Answers) -> String {
    // An address like 127.0.0.1 never leaves its namespace.
    let there = if e.addr.is_loopback() { Some(netns) } else { answers.space() };
    let way = there.and_then(|n| way_in(w, n));
    let way = way.unwrap_or_else(|| format!("on {}: ", sh(&e.addr.to_string())));
    format!("{way}ss -ltnp sport = :{}", e.port)
}
