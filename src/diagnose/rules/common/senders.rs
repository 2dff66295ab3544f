//! Who sends packets that come in bad, as the kernel program saw it: the kernel counts them, and keeps
//! no address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::super::super::culprit::{Culprit, Resource, Sched, Who};
use super::super::super::{Fire, Window};
use super::counters::SPAN;
use super::largest::largest;
use crate::metrics::Derived;
use crate::sample::subject::NetnsId;

/// From so many packets for each that was recorded, shares are of a sample.
const SAMPLE: f64 = 1.1;

/// What is bad about them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    /// A checksum that does not fit.
    Checksum,
    /// The rest of the packet did not arrive in time.
    Fragment,
}

impl Bad {
    /// Whether a packet is dropped for it, by the kernel's name of the reason.
    fn is_reason(self, name: &str) -> bool {
        match self {
            Self::Checksum => name.ends_with("_CSUM"),
            Self::Fragment => name == "FRAG_REASM_TIMEOUT",
        }
    }

    /// Why nobody is named although such packets are looked for.
    fn unseen(self) -> &'static str {
        match self {
            Self::Checksum => "eBPF recorded none in the last 10 s",
            Self::Fragment => {
                "eBPF recorded none in the last 10 s; it tells those that time out, on Linux 6.2 and later"
            }
        }
    }

    fn resource(self) -> Resource {
        match self {
            Self::Checksum => Resource::BadChecksums,
            Self::Fragment => Resource::Unassembled,
        }
    }
}

/// Names who sent such packets to a namespace in the last [`SPAN`], or says why that is not known.
/// `has_them`: the counters of a namespace count such packets.
pub(crate) fn blame(
    w: &Window<'_>,
    netns: NetnsId,
    bad: Bad,
    has_them: impl Fn(NetnsId) -> bool,
    f: &mut Fire,
) {
    let names = || recent(w).flat_map(|n| &n.reasons).filter(|r| bad.is_reason(&r.name));
    let wanted: BTreeSet<u16> = names().map(|r| r.reason).collect();
    let known = spaces(w);
    // A packet that was on its way to a socket, or in a queue of fragments, no longer has the device
    // that it came in by. It is of the only namespace that counts any.
    let is_only = known.iter().copied().filter(|n| has_them(*n)).eq([netns]);
    let (mut told, mut elsewhere) = (false, 0_u64);
    let (mut recorded, mut seen) = (0_u64, 0_u64);
    let mut sums: BTreeMap<IpAddr, u64> = BTreeMap::new();
    for n in recent(w) {
        let Some(senders) = &n.bad_senders else { continue };
        told = true;
        seen = seen.saturating_add(n.bad_packets);
        recorded = recorded.saturating_add(n.bad_unlisted);
        for s in senders {
            recorded = recorded.saturating_add(s.count);
            if !wanted.contains(&s.reason) {
                continue;
            }
            if s.netns == netns || is_only && !known.contains(&s.netns) {
                let sum = sums.entry(s.addr).or_default();
                *sum = sum.saturating_add(s.count);
            } else if !known.contains(&s.netns) {
                elsewhere = elsewhere.saturating_add(s.count);
            }
        }
    }
    let parts: Vec<(IpAddr, f64)> = sums.into_iter().map(|(a, n)| (a, n as f64)).collect();
    let whole = parts.iter().fold(0.0, |sum, (_, n)| sum + n);
    let culprit = |(addr, share)| {
        let who = Who::Source { addr, owner: None };
        Culprit { who, share, sched: Sched::default(), cgroup: None }
    };
    let why = if !told {
        "needs eBPF that may read packets, and reasons of drops: Linux 5.17, of fragments 6.2"
    } else if whole > 0.0 {
        f.by = largest(parts, whole, &bad.resource()).into_iter().map(culprit).collect();
        if f.by.is_empty() {
            "there are many, and none sends a large part"
        } else if seen as f64 > SAMPLE * recorded as f64 {
            "shares are of a sample"
        } else {
            return;
        }
    } else if elsewhere > 0 {
        "the network namespaces of the packets that eBPF recorded are not known"
    } else {
        bad.unseen()
    };
    f.missing.push(format!("who sent them: {why}"));
}

/// The sender that was named first.
pub(crate) fn first(f: &Fire) -> Option<IpAddr> {
    match f.by.first()?.who {
        Who::Source { addr, .. } => Some(addr),
        _ => None,
    }
}

fn recent<'a>(w: &Window<'a>) -> impl Iterator<Item = &'a crate::metrics::bpf::net::NetFigures> {
    let now = w.tick.mono;
    let lately = move |d: &&'a Derived| now.since(d.mono) < SPAN;
    w.recent(usize::MAX).take_while(lately).filter_map(|d| d.net_bpf.as_deref())
}

/// Namespaces whose counters were read in the last [`SPAN`]: many are read in turn.
fn spaces(w: &Window<'_>) -> BTreeSet<NetnsId> {
    let now = w.tick.mono;
    let moments = w.history.back_from(w.tick.seq);
    moments
        .take_while(|m| now.since(m.tick.mono) < SPAN)
        .filter_map(|m| m.tick.samples.net_counters.as_ref())
        .flat_map(|s| s.data.spaces.iter().map(|s| s.netns))
        .collect()
}
