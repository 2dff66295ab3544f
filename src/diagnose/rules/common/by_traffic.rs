//! Who fills a network device: a port that is listened on, or a peer, by the bytes that TCP counts
//! per socket.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::super::culprit::{Culprit, Resource, Sched, Share, Who};
use super::super::super::{Evidence, Fire, Window};
use super::by;
use super::largest::largest;
use super::links;
use super::tasks;
use super::text::rate;
use crate::metrics::Derived;
use crate::metrics::netdev::{LinkFigures, SpaceFigures};
use crate::metrics::sockets::{End, Talker};
use crate::metrics::waits::{Class, ThreadFigures};

/// Sockets were read so lately.
const REMEMBER: Duration = Duration::from_secs(5);
/// A device with this part of the traffic of its like has all of it: no socket says which one its
/// packets take.
const ALONE: f64 = 0.9;
/// NICs that receive less than this part of a CPU's packets are not where they come from.
const MOST: f64 = 0.5;
/// So much of the traffic may be nobody's without a word.
const NOBODY: f64 = 0.3;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// What arrives.
    In,
    /// What is sent.
    Out,
}

impl Way {
    fn of_link(self, l: &LinkFigures) -> f64 {
        match self {
            Self::In => l.rx_bytes_s,
            Self::Out => l.tx_bytes_s,
        }
    }
    fn of(self, t: &Talker) -> f64 {
        match self {
            Self::In => t.rx,
            Self::Out => t.tx,
        }
    }
}

/// Names who is behind the traffic of a device, and says how to look at them.
pub(crate) fn blame(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures, way: Way, f: &mut Fire) {
    let whole = way.of_link(l);
    // Packets of a bridge or a bond pass its members too: only devices of one kind compete.
    let like = s.links.iter().filter(|o| o.attrs.physical == l.attrs.physical);
    let all = like.filter(|o| *o.attrs.name != *"lo").map(|o| way.of_link(o)).sum::<f64>();
    if whole <= 0.0 || whole < ALONE * all {
        return;
    }
    let dev = l.attrs.name.clone();
    let of = match way {
        Way::In => Resource::Received(dev),
        Way::Out => Resource::Sent(dev),
    };
    let named = largest(talkers(w, s).map(|t| (t, way.of(t))).collect(), whole, &of);
    let known = named.iter().fold(0.0, |sum, (t, _)| sum + way.of(t));
    let rest = 1.0 - known / whole;
    if rest >= NOBODY {
        let does = if way == Way::In { "receives" } else { "sends" };
        let rest = 100.0 * rest;
        f.missing.push(format!(
            "who {does} the other {rest:.0}% of the bytes: UDP and what is forwarded count for no \
             socket"
        ));
    }
    let enter = links::enter(w, s);
    f.next.extend(named.first().map(|(t, _)| match t.end {
        End::Port(port) => format!("{enter}ss -tinp sport = :{port}"),
        End::Peer(remote) => format!("{enter}ss -tinp dst {remote}"),
    }));
    f.by = named.into_iter().map(|(t, share)| culprit(t, share)).collect();
}

/// The same for the host, if a single NIC is what it receives by.
pub(crate) fn blame_host(w: &Window<'_>, f: &mut Fire) {
    let Some(s) = w.host.netns.and_then(|n| w.netdev(n)) else { return };
    let nics = s.links.iter().filter(|l| l.attrs.physical);
    if let Some(l) = nics.max_by(|a, b| a.rx_bytes_s.total_cmp(&b.rx_bytes_s)) {
        blame(w, s, l, Way::In, f);
    }
}

/// Do NICs receive most of so many packets/s? `None` where the rates of the host's NICs, or that it
/// has any, are not known.
pub(crate) fn from_nics(w: &Window<'_>, packets_s: f64) -> Option<bool> {
    let spaces = links::spaces(w);
    let is_known = spaces.iter().any(|(s, _)| Some(s.netns) == w.host.netns);
    let mut nics =
        spaces.iter().flat_map(|(s, _)| &s.links).filter(|l| l.attrs.physical).peekable();
    (is_known && nics.peek().is_some())
        .then(|| nics.map(|l| l.rx_pps).sum::<f64>() >= MOST * packets_s)
}

/// Names who is behind packets that a CPU takes, so many per second: they arrive by a NIC, or a program of
/// this host sends them, through `lo` or between containers.
pub(crate) fn blame_packets(w: &Window<'_>, packets_s: f64, f: &mut Fire) {
    let spaces = links::spaces(w);
    if !spaces.iter().any(|(s, _)| Some(s.netns) == w.host.netns) {
        let text = "who sends these packets: no rates of this host's NICs are known";
        return f.missing.push(text.to_owned());
    }
    let nics = || spaces.iter().flat_map(|(s, _)| &s.links).filter(|l| l.attrs.physical);
    let arrive: f64 = nics().map(|l| l.rx_pps).sum();
    if arrive >= MOST * packets_s {
        return blame_host(w, f);
    }
    if nics().next().is_none() {
        f.missing.push("who sends these packets: no NIC is in sight, they may arrive".to_owned());
        return;
    }
    let text = format!("NICs receive {} packets/s: the others are sent on this host", rate(arrive));
    f.evidence.push(Evidence::new("nic packets", arrive, "/s", text));
    let Some(by) = in_the_kernel(w) else {
        f.missing.push("who sends them: the system time of all processes needs eBPF".to_owned());
        return;
    };
    f.next.extend(by::pids(&by).map(|pids| format!("pidstat -u -p {pids} 1 3  # %system")));
    f.by = by;
}

/// Who spends most system time: who sends, sends from there. `None` if that is not known of everyone.
fn in_the_kernel(w: &Window<'_>) -> Option<Vec<Culprit>> {
    let mut sums: BTreeMap<u32, (&ThreadFigures, f64)> = BTreeMap::new();
    let recent = w.recent(usize::MAX).take_while(|d| w.tick.mono.since(d.mono) <= REMEMBER);
    let mut known = false;
    for waits in recent.filter_map(|d| d.waits.as_deref()).filter(|f| f.everyone) {
        known = true;
        // `ksoftirqd` takes packets in, for whoever sends them; of a worker it is the time of softirqs
        // that ran on top of it.
        for t in waits.threads.iter().filter(|t| !tasks::is_bound_name(&t.comm)) {
            let sys = t.parts.iter().filter(|p| p.class == Class::Sys);
            let time: f64 = sys.map(|p| p.time.as_secs_f64()).sum();
            let sum = sums.entry(t.task.pid).or_insert((t, 0.0));
            sum.1 += time;
            // A process is called what its first thread is called.
            if t.task.tid == t.task.pid {
                sum.0 = t;
            }
        }
    }
    let named = largest(sums.into_values().collect(), 0.0, &Resource::KernelTime);
    let culprit = |(t, share): (&ThreadFigures, _)| {
        // The first thread may only wait for the others, and then it is not here.
        let first = (t.task.tid == t.task.pid).then(|| t.comm.clone());
        let comm = first.or_else(|| by::process_name(w, t.task.pid));
        Culprit::process(t.task.pid, comm, t.cgroup.clone(), share)
    };
    known.then(|| named.into_iter().map(culprit).collect())
}

/// Those that were seen in the namespace lately.
fn talkers<'a>(w: &Window<'a>, s: &SpaceFigures) -> impl Iterator<Item = &'a Talker> {
    let netns = s.netns;
    let mut recent = w.recent(usize::MAX).take_while(|d| w.tick.mono.since(d.mono) <= REMEMBER);
    let seen = |d: &&Derived| d.sockets.talkers.iter().any(|t| t.netns == netns);
    let all = recent.find(seen).into_iter().flat_map(|d| &d.sockets.talkers);
    all.filter(move |t| t.netns == netns)
}

fn culprit(t: &Talker, share: Share) -> Culprit {
    let owner = t.owner.clone();
    let who = match t.end {
        End::Port(port) => Who::Port { port, owner },
        End::Peer(remote) => Who::Peer { remote, owner },
    };
    Culprit { who, share, sched: Sched::default(), cgroup: None }
}
