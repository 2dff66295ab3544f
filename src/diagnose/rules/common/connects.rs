//! Who calls `connect()`, as the kernel program saw it: the kernel keeps no process for an attempt that
//! failed, nor for a connection in TIME-WAIT.

use std::collections::BTreeMap;

use super::super::super::culprit::{Culprit, Resource, Share};
use super::super::super::{Fire, Window};
use super::by;
use super::counters::SPAN;
use super::largest::largest;
use crate::metrics::Derived;
use crate::sample::bpf::net::Connector;
use crate::sample::subject::{Endpoint, NetnsId};

/// Names who connected from a namespace to destinations that `wanted` lets through, in the last
/// [`SPAN`], or says why that is not known.
pub(crate) fn blame(
    w: &Window<'_>,
    netns: NetnsId,
    wanted: impl Fn(Endpoint) -> bool,
    f: &mut Fire,
) {
    let mut known = false;
    let mut unlisted = 0_u64;
    let mut sums: BTreeMap<u32, (&Connector, u64)> = BTreeMap::new();
    for n in recent(w).filter_map(|d| d.net_bpf.as_deref()) {
        let Some(connectors) = &n.connectors else { continue };
        known = true;
        unlisted = n.connects_unlisted.saturating_add(unlisted);
        for c in connectors.iter().filter(|c| c.netns == netns && wanted(c.remote)) {
            let sum = sums.entry(c.pid).or_insert((c, 0));
            sum.1 = sum.1.saturating_add(c.count);
            if sum.0.comm.is_none() {
                sum.0 = c;
            }
        }
    }
    if !known {
        return f.missing.push("which process connects (needs eBPF)".to_owned());
    }
    if sums.is_empty() {
        f.missing
            .push("which process connected: none called connect() in the last 10 s".to_owned());
    }
    let parts: Vec<(&Connector, f64)> = sums.into_values().map(|(c, n)| (c, n as f64)).collect();
    let whole = parts.iter().fold(unlisted as f64, |sum, (_, n)| sum + n);
    let named = largest(parts, whole, &Resource::Connects);
    f.by = named.into_iter().map(|(c, share)| culprit(w, c, share)).collect();
    f.next.extend(by::pids(&f.by).map(|pids| format!("ps -o pid,ppid,lstart,args -p {pids}")));
}

fn culprit(w: &Window<'_>, c: &Connector, share: Share) -> Culprit {
    let comm = c.comm.as_deref().map(str::to_owned).or_else(|| by::process_name(w, c.pid));
    Culprit::process(c.pid, comm, None, share)
}

fn recent<'a>(w: &Window<'a>) -> impl Iterator<Item = &'a Derived> + use<'a> {
    let now = w.tick.mono;
    w.recent(usize::MAX).take_while(move |d| now.since(d.mono) < SPAN)
}
