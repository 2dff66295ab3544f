//! Who fills a network device: a port that is listened on, or a peer, by the bytes that TCP counts
//! per socket.

use std::time::Duration;

use super::super::super::culprit::{Culprit, MAX_CULPRITS, Resource, Sched, Share, Who};
use super::super::super::{Fire, Window};
use super::links;
use crate::metrics::netdev::{LinkFigures, SpaceFigures};
use crate::metrics::rate::ratio;
use crate::metrics::sockets::{End, Talker};

/// Sockets were read so lately.
const REMEMBER: Duration = Duration::from_secs(5);
/// Less than this fills no device, %.
const LEAST: f64 = 5.0;
/// Who moves less than this part of what the first one does is one of those who wait.
const BESIDE: f64 = 0.2;
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
    let named = named(w, s, way, whole);
    // Sockets and devices are read at different times: together they may show more than there is.
    let whole = whole.max(named.iter().fold(0.0, |sum, t| sum + way.of(t)));
    let dev = l.attrs.name.clone();
    let of = match way {
        Way::In => Resource::Received(dev),
        Way::Out => Resource::Sent(dev),
    };
    f.by = named.iter().filter_map(|t| culprit(t, way.of(t), whole, &of)).collect();
    let known = named.iter().fold(0.0, |sum, t| sum + way.of(t));
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
    f.next.extend(named.first().map(|t| match t.end {
        End::Port(port) => format!("{enter}ss -tinp sport = :{port}"),
        End::Peer(remote) => format!("{enter}ss -tinp dst {remote}"),
    }));
}

/// The same for the host, if a single NIC is what it receives by.
pub(crate) fn blame_host(w: &Window<'_>, f: &mut Fire) {
    let Some(s) = w.host.netns.and_then(|n| w.netdev(n)) else { return };
    let nics = s.links.iter().filter(|l| l.attrs.physical);
    if let Some(l) = nics.max_by(|a, b| a.rx_bytes_s.total_cmp(&b.rx_bytes_s)) {
        blame(w, s, l, Way::In, f);
    }
}

/// Those that move most, most first.
fn named<'a>(w: &Window<'a>, s: &SpaceFigures, way: Way, whole: f64) -> Vec<&'a Talker> {
    let mut recent = w.recent(usize::MAX).take_while(|d| w.tick.mono.since(d.mono) <= REMEMBER);
    let of_space = |d: &'a crate::metrics::Derived| {
        let all: Vec<&Talker> = d.sockets.talkers.iter().filter(|t| t.netns == s.netns).collect();
        (!all.is_empty()).then_some(all)
    };
    let mut all = recent.find_map(of_space).unwrap_or_default();
    all.sort_by(|a, b| way.of(b).total_cmp(&way.of(a)));
    let least = BESIDE * all.first().map_or(0.0, |t| way.of(t));
    let much = |t: &&Talker| ratio(100.0 * way.of(t), whole).is_some_and(|p| p >= LEAST);
    all.retain(|t| way.of(t) >= least && much(t));
    all.truncate(MAX_CULPRITS);
    all
}

fn culprit(t: &Talker, part: f64, whole: f64, of: &Resource) -> Option<Culprit> {
    let owner = t.owner.clone();
    let who = match t.end {
        End::Port(port) => Who::Port { port, owner },
        End::Peer(remote) => Who::Peer { remote, owner },
    };
    let share = Share::new(part, whole, of.clone())?;
    Some(Culprit { who, share, sched: Sched::default(), cgroup: None })
}
