//! Who fills a network device: a port that is listened on, or a peer, by the bytes that TCP counts
//! per socket.

use std::time::Duration;

use super::super::super::culprit::{Culprit, Resource, Sched, Share, Who};
use super::super::super::{Fire, Window};
use super::largest::largest;
use super::links;
use crate::metrics::Derived;
use crate::metrics::netdev::{LinkFigures, SpaceFigures};
use crate::metrics::sockets::{End, Talker};

/// Sockets were read so lately.
const REMEMBER: Duration = Duration::from_secs(5);
/// A device with this part of the traffic of its like has all of it: no socket says which one its
/// packets take.
const ALONE: f64 = 0.9;
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
