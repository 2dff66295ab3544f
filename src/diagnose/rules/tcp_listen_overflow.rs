//! `tcp-listen-overflow`: a server accepts too slowly and its accept queue overflows.

use super::common::by_owner::all_by;
use super::common::counters::{Lost, losers};
use super::common::doing;
use super::common::lasting::lasting;
use super::common::peers::enter;
use super::common::text::count;
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::Suspect;
use crate::sample::sockets::{Owner, Proto, SockState};
use crate::sample::subject::{Endpoint, NetnsId, Subject};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The time over which overflows are counted.
const SPAN: Duration = Duration::from_secs(10);
/// Critical at this many per second ...
const CRIT_S: f64 = 5.0;
/// ... for 5 of the last 10 s, with 10% slack for the length of ticks.
const CRIT_HELD: Duration = Duration::from_millis(4500);

const OVERFLOWS: &str = "TcpExtListenOverflows";
const DROPS: &str = "TcpExtListenDrops";

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-listen-overflow"),
    title: "a server accepts too slowly: its accept queue overflows and clients time out",
    condition: "ListenOverflows grew within 10 s; the listener is the one whose accept queue \
        was at its limit in that time; if none was full when sampled, the one whose own drop \
        count (skmem d) grew. Critical at 5/s or more in 5 of 10 s. If no socket shows it, the \
        finding names the network namespace and is suspected.",
    look_alikes: "ListenDrops alone also counts SYNs dropped for lack of memory or a route. A \
        full SYN queue counts TCPReqQFullDrop. From the client this looks like a firewall that \
        drops: SYN-SENT with retransmissions, or ESTABLISHED with a request that is \
        retransmitted and never acknowledged.",
    remedy: "Find out what the accepting thread waits for (a lock, a disk, a CPU). If it is \
        slow only in bursts, raise the listen() backlog and net.core.somaxconn together: the \
        smaller of the two applies. More acceptors: SO_REUSEPORT.",
    sources: "net/ipv4/tcp_ipv4.c, tcp_conn_request() and tcp_v4_syn_recv_sock(): the queue \
        overflows when it is longer than its limit (measured: 4 of 3); netdata's \
        1m_tcp_accept_queue_overflows warns above 1/s and is critical above 5/s.",
    hold: Hold::events(10),
    needs_time: Duration::from_secs(3),
};

/// A listener whose accept queue was full.
struct Full {
    socket: Arc<Suspect>,
    longest: u32,
}

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::NetCounters],
    explains: &[
        Explains::new("tcp-synq-full", Scope::Same),
        Explains::new("tcp-connect-stuck", Scope::OtherEnd),
        // The kernel drops the last ACK of the handshake: the client is ESTABLISHED and
        // retransmits its request.
        Explains::new("tcp-rto-storm", Scope::OtherEnd),
    ],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let spaces = w.tick.samples.net_counters.iter().flat_map(|s| &s.data.spaces);
    for netns in spaces.map(|s| s.netns) {
        let Some(c) = w.counter(netns, OVERFLOWS, SPAN).filter(|c| c.delta > 0) else {
            if t.single_sample {
                standing(w, netns, out);
            }
            continue;
        };
        let whole = Subject::Netns { netns };
        let full = full_listeners(w, netns);
        let droppers = if full.is_empty() { droppers(w, netns) } else { BTreeMap::new() };
        if full.is_empty() && droppers.is_empty() {
            out.fire(whole, fire(w, netns, c.delta, Whose::Unknown));
            continue;
        }
        out.clear(whole);
        let full = full.iter().map(|(l, f)| (*l, Whose::Full(*l, f)));
        for (local, whose) in full.chain(droppers.iter().map(|(l, d)| (*l, Whose::Drops(d)))) {
            let subject = Subject::Listener { local, netns };
            out.fire(subject, fire(w, netns, c.delta, whose));
        }
    }
}

/// Whose queue overflows.
#[derive(Clone, Copy)]
enum Whose<'a> {
    /// It was seen full.
    Full(Endpoint, &'a Full),
    /// It was not, and counted drops.
    Drops(&'a Lost),
    /// No socket shows it.
    Unknown,
}

impl<'a> Whose<'a> {
    fn local(self) -> Option<Endpoint> {
        match self {
            Self::Full(local, _) => Some(local),
            Self::Drops(l) => Some(l.socket.local),
            Self::Unknown => None,
        }
    }
    fn owner(self) -> Option<&'a Owner> {
        match self {
            Self::Full(_, l) => l.socket.owner.as_ref(),
            Self::Drops(l) => l.socket.owner.as_ref(),
            Self::Unknown => None,
        }
    }
}

/// Listeners whose own drop count (skmem d) grew in the span: it grows with each overflow. A short
/// queue fills and drains between two samples.
fn droppers(w: &Window<'_>, netns: NetnsId) -> BTreeMap<Endpoint, Lost> {
    let lost = losers(w, netns, |d| d.proto == Proto::Tcp && d.state == SockState::LISTEN);
    lost.into_iter().map(|l| (l.socket.local, l)).collect()
}

/// For a single sample with at best the totals since boot: a queue over its limit drops the next
/// handshake, and one at its limit has dropped some if overflows were ever counted.
fn standing(w: &Window<'_>, netns: NetnsId, out: &mut Verdicts) {
    let counters = w.tick.samples.net_counters.as_ref();
    let space = counters.and_then(|c| c.data.spaces.iter().find(|s| s.netns == netns));
    let ever = space.and_then(|s| s.get(OVERFLOWS));
    for (local, l) in full_listeners(w, netns) {
        let (len, limit) = (l.socket.rqueue, l.socket.wqueue);
        if ever.map_or(len <= limit, |n| n <= 0) {
            continue;
        }
        let text = format!("{local} accepts too slowly: {len} connections waiting, limit {limit}");
        let mut f = Fire::new(Severity::Warn, text);
        f.confidence = Confidence::Suspected;
        match ever {
            Some(n) => {
                let text = format!("ListenOverflows {n} since boot");
                f.evidence.push(Evidence::new("ListenOverflows", n as f64, "", text).over(1.0));
            }
            None => f.missing.push("whether handshakes were dropped (ListenOverflows)".to_owned()),
        }
        listener(&mut f, w, &l);
        f.missing.push("whether it lasts (one sample of the queue)".to_owned());
        f.by = all_by(l.socket.owner.as_ref(), &Resource::Unaccepted);
        next(&mut f, &enter(w, netns), Whose::Full(local, &l));
        out.fire(Subject::Listener { local, netns }, f);
    }
}

/// Listeners of `netns` whose queue was full within the span.
fn full_listeners(w: &Window<'_>, netns: NetnsId) -> BTreeMap<Endpoint, Full> {
    let mut out: BTreeMap<Endpoint, Full> = BTreeMap::new();
    for m in w.history.back_from(w.tick.seq) {
        if w.tick.mono.since(m.tick.mono) > SPAN {
            break;
        }
        for s in &m.derived.sockets.suspects {
            let full = s.state == SockState::LISTEN && s.rqueue > 0 && s.rqueue >= s.wqueue;
            if full && s.id.netns == netns && s.missing_since.is_none() {
                let l = out
                    .entry(s.local)
                    .or_insert_with(|| Full { socket: s.clone(), longest: s.rqueue });
                l.longest = l.longest.max(s.rqueue);
            }
        }
    }
    out
}

fn fire(w: &Window<'_>, netns: NetnsId, overflows: u64, whose: Whose<'_>) -> Fire {
    let (held, samples) = lasting(w, SPAN, |d| {
        d.net(netns).and_then(|n| n.rate(OVERFLOWS)).is_some_and(|r| r >= CRIT_S)
    });
    // A single burst is one sample, however long the interval.
    let severity = if held >= CRIT_HELD && samples > 1 { Severity::Crit } else { Severity::Warn };
    let lost = count(overflows as usize, "handshake");
    let who = whose.local().map_or("a server".to_owned(), |l| l.to_string());
    let mut f = Fire::new(severity, format!("{who} accepts too slowly: {lost} dropped in 10 s"));
    let text = format!("ListenOverflows +{overflows} in 10 s");
    f.evidence.push(Evidence::new("ListenOverflows", overflows as f64, "", text).over(1.0));
    if severity == Severity::Crit {
        let text = format!("at {CRIT_S:.0}/s or more for {:.0} of 10 s", held.as_secs_f64());
        f.evidence.push(Evidence::new("held", held.as_secs_f64(), "s", text).over(5.0));
    }
    match whose {
        Whose::Full(_, l) => listener(&mut f, w, l),
        Whose::Drops(l) => {
            let text = format!("its own drops (skmem d) +{} in 10 s", l.packets);
            if l.packets > 2 * overflows {
                // A full SYN queue, a filter or a lack of memory counts there as well.
                f.confidence = Confidence::Suspected;
                f.missing.push("whether all of its drops are overflows".to_owned());
            }
            f.evidence.push(Evidence::new("d", l.packets as f64, "", text));
            owner(&mut f, w, l.socket.local, whose.owner());
            f.sockets.push(l.socket.id);
        }
        Whose::Unknown => {
            f.confidence = Confidence::Suspected;
            let why = "which listener: no accept queue was full when sampled";
            f.missing.push(why.into());
        }
    }
    // Each overflow also counts as a drop; the remaining drops have other causes.
    if let Some(d) = w.counter(netns, DROPS, SPAN) {
        let other = d.delta.saturating_sub(overflows);
        let text = format!("ListenDrops beyond the overflows: {other}");
        if other <= overflows {
            f.ruled_out.push(RuledOut::new("no-memory-or-route", text));
        } else {
            let text = format!("{text}, for lack of memory or a route");
            f.evidence.push(Evidence::new("ListenDrops", other as f64, "", text));
        }
    }
    let because = format!("this kernel itself dropped {overflows}: not a firewall or the path");
    f.ruled_out.push(RuledOut::new("lost-on-the-way", because));
    let waiting: u32 = w.derived.sockets.totals.iter().map(|t| t.syn_sent).sum();
    if waiting > 0 {
        let n = count(waiting as usize, "client");
        let text = format!("{n} on this host in SYN-SENT");
        f.evidence.push(Evidence::new("syn-sent", waiting.into(), "", text));
    }
    f.by = all_by(whose.owner(), &Resource::Unaccepted);
    next(&mut f, &enter(w, netns), whose);
    f
}

fn listener(f: &mut Fire, w: &Window<'_>, l: &Full) {
    let s = &l.socket;
    let text = format!("accept queue {} of {} ({} at its longest)", s.rqueue, s.wqueue, l.longest);
    f.evidence.push(Evidence::new("recvq", s.rqueue.into(), "", text).over(s.wqueue.into()));
    owner(f, w, s.local, s.owner.as_ref());
    f.sockets.push(s.id);
}

fn owner(f: &mut Fire, w: &Window<'_>, local: Endpoint, owner: Option<&Owner>) {
    if let Some(o) = owner {
        f.examples.push(format!("{local} ({})", doing::holder(o)));
        f.evidence.extend(doing::evidence(w, o));
    }
}

fn next(f: &mut Fire, enter: &str, whose: Whose<'_>) {
    match whose.local() {
        Some(l) => f.next.push(format!("{enter}ss -ltnp sport = :{}", l.port)),
        None => f.next.push(format!("{enter}ss -ltnp  # Recv-Q: waiting, Send-Q: limit")),
    }
    if let Some(o) = whose.owner() {
        f.next.push(format!("cat /proc/{0}/wchan /proc/{0}/stack; strace -fp {0}", o.pid));
    }
    f.next.push(format!("{enter}nstat -az {OVERFLOWS} {DROPS}"));
    f.next.push(format!("{enter}sysctl net.core.somaxconn"));
}
