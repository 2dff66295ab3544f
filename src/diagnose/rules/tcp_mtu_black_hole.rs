//! `tcp-mtu-black-hole`: full segments vanish, small ones get through.

use super::common::peers::{Group, by_peer, device, enter};
use super::common::sockets::{Cause, cases};
use super::common::text::{bytes, count, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::Suspect;
use crate::sample::sockets::{NetnsTable, Proto, SockState, TcpInfo, unmap};
use crate::sample::subject::{Endpoint, Subject};

/// Fraction of snd_mss from which outstanding segments count as full.
const FULL: f64 = 0.9;
/// Segments up to this size pass any path (RFC 791: 576 bytes, less the headers).
const SMALL_MSS: u32 = 536;
/// Other connections to the same service were answered within this time, ms.
const LATELY_MS: u32 = 5000;
/// Headers that a ping adds to its payload: IPv4 and ICMP, IPv6 and ICMPv6.
const HEADERS_V4: u32 = 28;
const HEADERS_V6: u32 = 48;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-mtu-black-hole"),
    title: "path MTU black hole: full segments vanish, the peer answers small ones",
    condition: "All connections to one peer that retransmit without an answer have full \
        segments outstanding (90% of snd_mss or more on average), and another connection \
        between the same address and the same service was answered within the last 5 s with \
        less than a full segment in flight. There must be two or more stuck connections, or one \
        that had bytes acknowledged before. Always suspected: a filter on packet length looks \
        the same.",
    look_alikes: "A dead peer or path: no connection to that address is answered. A full accept \
        queue: nothing was ever acknowledged. Packet loss: it hits small segments too.",
    remedy: "Something on the path (tunnel, VPN, cloud overlay) carries less than the MTU that \
        this host assumes, and the ICMP message that would say so does not arrive. Find the \
        size that passes with ping, let ICMP type 3 code 4 (ICMPv6 type 2) through, lower the \
        MTU or clamp the MSS on the tunnel; net.ipv4.tcp_mtu_probing=1 lets TCP find it by \
        itself.",
    sources: "tcpi_unacked, tcpi_notsent_bytes, tcpi_snd_mss, tcpi_last_ack_recv; RFC 2923, RFC \
        4821. Measured on 6.18 with a filter on length above 1000: three uploads sit at backoff \
        3 and more, the connection beside them is answered every 200 ms.",
    hold: Hold::events(4),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Sockets],
    explains: &[
        Explains::new("tcp-rto-storm", Scope::Same),
        Explains::new("tcp-retrans-rate", Scope::Netns),
    ],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    for g in by_peer(cases(w, t).filter(|c| c.cause == Cause::Storm), w) {
        let sizes: Option<Vec<f64>> = g.cases.iter().map(|c| outstanding(c.socket)).collect();
        let Some(sizes) = sizes.filter(|_| matches!(g.subject, Subject::Peer { .. })) else {
            continue;
        };
        let answered = answered(w, &g);
        let shared = answered > 0 && g.cases.iter().any(|c| acked(c.socket) > 1);
        if shared || (answered > 0 && g.cases.len() > 1) {
            let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
            out.fire(g.subject.clone(), fire(w, &g, mean, answered));
        }
    }
}

fn acked(s: &Suspect) -> u64 {
    s.info.and_then(|i| i.bytes_acked()).unwrap_or(0)
}

/// Mean bytes per outstanding segment, if these are full segments.
fn outstanding(s: &Suspect) -> Option<f64> {
    let i = s.info?;
    let (segments, mss) = (i.unacked()?, i.snd_mss()?);
    let sent = s.wqueue.checked_sub(i.notsent_bytes()?)?;
    let mean = f64::from(sent) / f64::from(segments);
    (segments > 0 && mss > SMALL_MSS && mean >= FULL * f64::from(mss)).then_some(mean)
}

/// The number of connections between the same address and service that were recently answered,
/// with less than a full segment in flight.
fn answered(w: &Window<'_>, g: &Group<'_>) -> usize {
    let s = &w.tick.samples;
    let spaces = [s.sockets.as_ref(), s.netns_sockets.as_ref()];
    let tables = spaces.into_iter().flatten().flat_map(|x| &x.data.spaces);
    let tables = tables.filter(|t| t.netns == g.netns());
    tables.map(|t| (0..t.inet.len()).filter(|i| is_answered(t, *i, g.first().socket)).count()).sum()
}

fn is_answered(t: &NetnsTable, i: usize, stuck: &Suspect) -> bool {
    let r = &t.inet;
    let same_end = unmap(r.remote[i]) == stuck.remote.addr;
    let service = if stuck.inbound {
        r.lport[i] == stuck.local.port
    } else {
        r.rport[i] == stuck.remote.port
    };
    let small = |info: &TcpInfo| {
        let lately = info.last_ack_recv_ms().is_some_and(|ms| ms < LATELY_MS);
        lately && info.bytes_acked() > Some(1) && Some(r.wqueue[i]) < info.snd_mss()
    };
    r.proto[i] == Proto::Tcp
        && r.state[i] == SockState::ESTAB
        && same_end
        && service
        && r.retrans[i] == 0
        && r.tcp_info(i).is_some_and(small)
}

fn fire(w: &Window<'_>, g: &Group<'_>, mean: f64, answered: usize) -> Fire {
    let s = g.first().socket;
    let mut f = Fire::new(
        Severity::Warn,
        format!("{}: full segments vanish, small ones are answered", g.who()),
    );
    g.fill(&mut f, w);
    f.confidence = Confidence::Suspected;
    let mss = s.info.and_then(|i| i.snd_mss()).unwrap_or(0);
    let text = format!("{mean:.0} bytes per outstanding segment at snd_mss {mss}");
    f.evidence.push(Evidence::new("segment", mean, "bytes", text).over(FULL * f64::from(mss)));
    let others = count(answered, "connection");
    let was = if answered == 1 { "was" } else { "were" };
    let text = format!("{others} to the same service {was} answered within 5 s");
    f.evidence.push(Evidence::new("answered", answered as f64, "", text).over(1.0));
    let most = g.cases.iter().map(|c| acked(c.socket)).max().unwrap_or(0);
    if most > 1 {
        let text = format!("up to {} were acknowledged earlier on one of them", bytes(most));
        f.evidence.push(Evidence::new("bytes_acked", most as f64, "bytes", text));
    }
    if let Some(pmtu) = s.info.and_then(|i| i.pmtu()) {
        let text = format!("this host assumes a path MTU of {pmtu}");
        f.evidence.push(Evidence::new("pmtu", pmtu.into(), "bytes", text));
    }
    f.missing.push("whether anything on the path filters by length for another reason".to_owned());
    f.ruled_out
        .push(RuledOut::new("dead-peer", format!("{others} {was} answered in the meantime")));
    next(&mut f, w, s, mss);
    f
}

fn next(f: &mut Fire, w: &Window<'_>, s: &Suspect, mss: u32) {
    let enter = enter(w, s.id.netns);
    let Endpoint { addr, .. } = s.remote;
    let headers = if addr.is_ipv6() { HEADERS_V6 } else { HEADERS_V4 };
    let pmtu = s.info.and_then(|i| i.pmtu()).filter(|n| *n < 65_536).unwrap_or(mss + 52);
    let size = pmtu.saturating_sub(headers);
    let peer = sh(&addr.to_string());
    f.next.push(format!(
        "{enter}ping -M do -c 2 -W 1 -s {size} {peer}; {enter}ping -c 2 -W 1 -s 500 {peer}"
    ));
    f.next.push(format!("{enter}sysctl -w net.ipv4.tcp_mtu_probing=1"));
    f.next.push(format!("{enter}ip link show dev {}", device(s)));
}
