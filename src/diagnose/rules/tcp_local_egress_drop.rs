//! `tcp-local-egress-drop`: this host drops its own outgoing packets.

use super::common::evidence;
use super::common::peers::{Group, by_peer, device, enter, ss_dst};
use super::common::sockets::{Cause, LocalDrop, cases};
use super::common::text::bytes;
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::{Suspect, TimerKind};
use crate::sample::sockets::RouteOutcome;

/// The time over which drops of the device's qdisc are counted.
const SPAN: Duration = Duration::from_secs(10);

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-local-egress-drop"),
    title: "this host's own firewall, qdisc or eBPF program drops its outgoing packets",
    condition: "Either the persist timer runs although snd_wnd > 0, with bytes queued, nothing \
        in flight (unacked 0), and data_segs_out + 1 at 2 or more consecutive probes: TCP hands \
        segments down and gets an error back. Or the retransmission timer runs and \
        TCPRetransFail grows with 2 or more consecutive RTOs, by at least half of all segments \
        retransmitted in the namespace. Clears when data is acknowledged.",
    look_alikes: "A peer that does not read closes its window: snd_wnd 0, probes carry no data \
        (tcp-zero-window-stall). A dead path takes the packets without an error: unacked > 0 \
        and TCPRetransFail flat (tcp-rto-storm). A full device queue refuses packets too \
        (ENOBUFS): the root qdisc counts drops, and the finding is only suspected.",
    remedy: "Read the OUTPUT and POSTROUTING chains with their counters, the tc filters, and \
        the eBPF programs at egress and on the cgroup; look for the rule whose counter grows \
        with the probes. A drop rule leaves no trace in the application: prefer reject.",
    sources: "Measured on 6.18 with an nftables output drop: timer persist, snd_wnd 65160 open, \
        unacked 0, data_segs_out + 1 per probe, rto constant at 204 ms, TCPWinProbe 0; added \
        mid-flight: TCPRetransFail + 1 per RTO. net/ipv4/tcp_output.c, __tcp_retransmit_skb().",
    hold: Hold::events(4),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Sockets],
    explains: &[Explains::new("tcp-connect-stuck", Scope::Same)],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let dropped = cases(w, t).filter(|c| matches!(c.cause, Cause::LocalDrop(_)));
    for g in by_peer(dropped, w) {
        out.fire(g.subject.clone(), fire(w, &g));
    }
}

fn fire(w: &Window<'_>, g: &Group<'_>) -> Fire {
    let first = g.first();
    let s = first.socket;
    let full = queue_drops(w, s);
    let overflows = full.as_ref().is_some_and(|q| q.dropped >= 1.0);
    let sure = first.confidence == Confidence::Confirmed && !overflows;
    let verb = if g.cases.len() == 1 { "is" } else { "are" };
    let mut f = Fire::new(
        if sure { Severity::Crit } else { Severity::Warn },
        format!(
            "{} {verb} cut off by this host itself: packets are refused on the way out",
            g.who()
        ),
    );
    g.fill(&mut f, w);
    let window = s.info.and_then(|i| i.snd_wnd());
    if let Cause::LocalDrop(LocalDrop::Retransmit { failed }) = first.cause {
        let text = format!("TCPRetransFail +{failed} around the last RTOs");
        f.evidence.push(Evidence::new("TCPRetransFail", failed as f64, "", text).over(1.0));
        f.evidence.extend(evidence::rto(s));
        f.evidence.extend(evidence::sent(s, TimerKind::Rto));
        let because = "the retransmissions fail on this host (TCPRetransFail)";
        f.ruled_out.push(RuledOut::new("tcp-rto-storm", because));
    } else {
        let wnd = window.map_or("an open window".to_owned(), |n| format!("snd_wnd {n}"));
        let text =
            format!("persist timer with {wnd}, unacked 0, {} queued", bytes(s.wqueue.into()));
        f.evidence.push(match window {
            Some(n) => Evidence::new("snd_wnd", n.into(), "bytes", text).over(0.0),
            None => Evidence::text("snd_wnd", text),
        });
        f.evidence.extend(evidence::sent(s, TimerKind::Probe));
        f.ruled_out.push(RuledOut::new("tcp-rto-storm", "unacked 0: nothing left this host"));
    }
    if let Some(because) = evidence::open_window(s) {
        f.ruled_out.push(RuledOut::new("tcp-zero-window-stall", because));
    }
    let minute = Duration::from_secs(60);
    if let Some(c) = w.counter(g.netns(), "TcpExtTCPWinProbe", minute)
        && c.delta == 0
    {
        f.evidence.push(Evidence::new("TCPWinProbe", 0.0, "", "no window probe was sent"));
    }
    queue(&mut f, full);
    let enter = enter(w, g.netns());
    f.next
        .push(format!("{enter}nft list ruleset | grep -A5 -E 'hook (output|postrouting|egress)'"));
    f.next.push(format!("{enter}iptables -vnL OUTPUT"));
    f.next.push(format!("{enter}bpftool net; bpftool cgroup tree"));
    let dev = device(s);
    f.next.push(if dev == "any" {
        format!("{enter}tc -s qdisc show")
    } else {
        format!("{enter}tc -s qdisc show dev {dev}; {enter}tc filter show dev {dev} egress")
    });
    f.next.push(format!("{enter}ss -tinmo dst {}", ss_dst(s)));
    f
}

/// The root qdisc of the route's device.
struct Queue {
    name: String,
    /// Packets in [`SPAN`].
    dropped: f64,
}

/// `None`: the route or its qdisc is unknown.
fn queue_drops(w: &Window<'_>, s: &Suspect) -> Option<Queue> {
    let Some(RouteOutcome::Via { dev, .. }) = &s.route else { return None };
    let space = w.netdev(s.id.netns)?;
    let ifindex = space.link(dev)?.ifindex;
    let name = format!("{} of {dev}", space.root(ifindex)?.kind);
    let dropped = w
        .history
        .back_from(w.tick.seq)
        .take_while(|m| w.tick.mono.since(m.tick.mono) < SPAN)
        .filter_map(|m| m.derived.netdev.as_ref()?.iter().find(|x| x.netns == s.id.netns))
        .filter_map(|x| Some(x.root(ifindex)?.drops_s * x.dt.as_secs_f64()))
        .sum();
    Some(Queue { name, dropped })
}

/// A full queue refuses packets too; its drop counter shows it.
fn queue(f: &mut Fire, full: Option<Queue>) {
    match full {
        Some(Queue { name, dropped }) if dropped >= 1.0 => {
            f.confidence = Confidence::Suspected;
            let text = format!("{name} dropped {dropped:.0} packets in 10 s");
            f.evidence.push(Evidence::new("drops", dropped, "packets", text));
            f.missing.push(format!("whether a rule refuses them or {name}, which is full"));
        }
        Some(Queue { name, .. }) => {
            f.ruled_out.push(RuledOut::new("full-queue", format!("{name} dropped nothing")));
        }
        None => {
            let why = "which rule or program refuses them (netfilter, qdisc counters)";
            return f.missing.push(why.to_owned());
        }
    }
    f.missing.push("which rule or program refuses them (netfilter counters)".to_owned());
}
