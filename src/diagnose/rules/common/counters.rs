//! Protocol counters over several seconds, and the sockets that lost the packets they count.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::super::Window;
use crate::metrics::NetPair;
use crate::metrics::sockets::Dropper;
use crate::sample::sockets::Proto;
use crate::sample::subject::{NetnsId, SockId};

/// The time over which counters are evaluated.
pub(crate) const SPAN: Duration = Duration::from_secs(10);
/// The span to ask the window for. The window allows a tenth more, so this gives ten one-second
/// ticks, not eleven.
const LOOK: Duration = Duration::from_millis(9200);
/// The minimum time for ratios of counters, less the slack of a tick.
const ENOUGH: Duration = Duration::from_millis(4500);

/// Namespaces whose counters were read in this tick.
pub(crate) fn spaces<'a>(w: &Window<'a>) -> impl Iterator<Item = NetnsId> + use<'a> {
    w.tick.samples.net_counters.iter().flat_map(|s| &s.data.spaces).map(|s| s.netns)
}

/// Growth of a counter in the last [`SPAN`]. `None`: this kernel does not have it.
pub(crate) fn grown(w: &Window<'_>, netns: NetnsId, name: &str) -> Option<u64> {
    w.counter(netns, name, LOOK).map(|c| c.delta)
}

/// Growth of several counters in total. Counters that this kernel does not have are skipped;
/// `None` if it has none of them.
pub(crate) fn sum(w: &Window<'_>, netns: NetnsId, names: &[&str]) -> Option<u64> {
    names.iter().filter_map(|n| grown(w, netns, n)).reduce(u64::saturating_add)
}

/// Have the counters of a namespace been watched for long enough within the last [`SPAN`]? A
/// ratio over one second means little: events come in bursts, and counters are not read at the
/// same instant.
pub(crate) fn watched(w: &Window<'_>, netns: NetnsId, name: &str) -> bool {
    w.counter(netns, name, LOOK).is_some_and(|c| c.dt >= ENOUGH)
}

/// Have they been watched for nearly all of the last [`SPAN`]? Long intervals do not fill it
/// completely.
pub(crate) fn watched_in_full(w: &Window<'_>, netns: NetnsId, name: &str) -> bool {
    w.counter(netns, name, LOOK).is_some_and(|c| c.dt >= NEARLY)
}

/// One-sided 99% confidence bound, in standard deviations.
pub(crate) const SURE: f64 = 2.326;

const NEARLY: Duration = Duration::from_secs(8);

/// Was something true of a namespace's counters for `need` of the last `of` seconds? If
/// namespaces are read in rotation, each counts with its own intervals; one interval, however
/// long, is one event.
pub(crate) fn held(
    w: &Window<'_>,
    netns: NetnsId,
    (need, of): (u64, u64),
    is_true: impl Fn(&NetPair) -> bool,
) -> bool {
    let longest = w.derived.net(netns).map_or(Duration::ZERO, |n| n.dt);
    let of = Duration::from_secs(of).max(2 * longest);
    let mut times = 0;
    let held: Duration = w
        .recent(usize::MAX)
        .take_while(|d| w.tick.mono.since(d.mono) < of)
        .filter_map(|d| d.net(netns))
        .filter(|n| is_true(n))
        .map(|n| {
            times += 1;
            n.dt
        })
        .sum();
    // With some slack for the length of a tick.
    times >= 2 && held + Duration::from_millis(250) >= Duration::from_secs(need)
}

/// Packets that one socket lost in the last [`SPAN`].
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    /// Its latest sample.
    pub(crate) socket: Dropper,
    /// Packets in that time.
    pub(crate) packets: u64,
}

/// The sockets of `netns` that dropped packets in the last [`SPAN`], most first.
pub(crate) fn losers(w: &Window<'_>, netns: NetnsId, of: impl Fn(&Dropper) -> bool) -> Vec<Lost> {
    let mut all: BTreeMap<SockId, Lost> = BTreeMap::new();
    let moments = w.history.back_from(w.tick.seq);
    for m in moments.take_while(|m| w.tick.mono.since(m.tick.mono) < SPAN) {
        for d in m.derived.sockets.droppers.iter().filter(|d| d.id.netns == netns && of(d)) {
            let lost = all.entry(d.id).or_insert_with(|| Lost { socket: d.clone(), packets: 0 });
            lost.packets = lost.packets.saturating_add(d.drops.into());
            if lost.socket.owner.is_none() {
                lost.socket.owner.clone_from(&d.owner);
            }
        }
    }
    let mut out: Vec<Lost> = all.into_values().collect();
    out.sort_by(|a, b| b.packets.cmp(&a.packets).then(a.socket.id.cmp(&b.socket.id)));
    out
}

/// Datagram sockets.
pub(crate) fn is_udp(d: &Dropper) -> bool {
    d.proto == Proto::Udp
}
