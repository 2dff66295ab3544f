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

    fn resource(self) -> Resource {
        match self {
            Self::Checksum => Resource::BadChecksums,
            Self::Fragment => Resource::Unassembled,
        }
    }
}

/// Names who sent such packets to a namespace in the last [`SPAN`], or says why that is not known.
pub(crate) fn blame(w: &Window<'_>, netns: NetnsId, bad: Bad, f: &mut Fire) {
    let names = || recent(w).flat_map(|n| &n.reasons).filter(|r| bad.is_reason(&r.name));
    let wanted: BTreeSet<u16> = names().map(|r| r.reason).collect();
    let (mut known, mut unlisted) = (false, 0_u64);
    let mut sums: BTreeMap<IpAddr, u64> = BTreeMap::new();
    for n in recent(w) {
        let Some(senders) = &n.bad_senders else { continue };
        known = true;
        unlisted = unlisted.saturating_add(n.bad_unlisted);
        for s in senders.iter().filter(|s| s.netns == netns && wanted.contains(&s.reason)) {
            let sum = sums.entry(s.addr).or_default();
            *sum = sum.saturating_add(s.count);
        }
    }
    if !known {
        let why = "who sent them (needs eBPF, and drop reasons: Linux 5.17, fragments 6.2)";
        return f.missing.push(why.to_owned());
    }
    if sums.is_empty() {
        let why = "who sent them: eBPF saw none of them dropped in the last 10 s";
        return f.missing.push(why.to_owned());
    }
    let parts: Vec<(IpAddr, f64)> = sums.into_iter().map(|(a, n)| (a, n as f64)).collect();
    let whole = parts.iter().fold(unlisted as f64, |sum, (_, n)| sum + n);
    let named = largest(parts, whole, &bad.resource()).into_iter();
    f.by = named
        .map(|(addr, share)| {
            let who = Who::Source { addr, owner: None };
            Culprit { who, share, sched: Sched::default(), cgroup: None }
        })
        .collect();
}

/// ` src ADDR` for tcpdump, of the sender that was named first.
pub(crate) fn filter(f: &Fire) -> String {
    match f.by.first().map(|c| &c.who) {
        Some(Who::Source { addr, .. }) => format!(" src {addr}"),
        _ => String::new(),
    }
}

fn recent<'a>(w: &Window<'a>) -> impl Iterator<Item = &'a crate::metrics::bpf::net::NetFigures> {
    let now = w.tick.mono;
    let lately = move |d: &&'a Derived| now.since(d.mono) < SPAN;
    w.recent(usize::MAX).take_while(lately).filter_map(|d| d.net_bpf.as_deref())
}
