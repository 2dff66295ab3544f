//! Who opened the entries of a connection table.

use super::super::super::culprit::{Culprit, Resource, Sched, Who};
use super::super::super::{Evidence, Fire};
use super::largest::largest;
use crate::metrics::netdev::SpaceFigures;
use crate::metrics::origins::{OriginFigures, SourceFigures, TargetFigures};
use crate::sample::netdev::{Selection, Unread};

/// A destination with this part of the entries is said.
const MOST: f64 = 0.5;
/// No source is said that has less than this part of them.
const FEW: f64 = 0.05;

/// Names who opened these entries, or why that is not known.
pub(crate) fn blame(s: &SpaceFigures, selection: Selection, f: &mut Fire) {
    let Some(o) = s.origins.as_ref().filter(|o| o.selection == selection) else {
        return f.missing.push("who opened the entries: they were not read".to_owned());
    };
    if let Some(why) = o.unread {
        f.missing.push(format!("who opened the entries: {}", words(why)));
    }
    let Some(first) = o.sources.first() else { return };
    f.evidence.push(evidence(o, first));
    f.by = by(o);
}

fn words(why: Unread) -> String {
    match why {
        Unread::NotPermitted => "reading them needs CAP_NET_ADMIN".to_owned(),
        Unread::NoModule => "the kernel has no ctnetlink (nf_conntrack_netlink)".to_owned(),
        Unread::Errno(0) => "the answer of ctnetlink was cut short".to_owned(),
        Unread::Errno(errno) => format!("ctnetlink failed with errno {errno}"),
    }
}

fn evidence(o: &OriginFigures, first: &SourceFigures) -> Evidence {
    let part = f64::from(first.entries) / f64::from(o.read.max(1));
    let who = if part < FEW {
        let to = mostly(o.target, o.read, "; most entries");
        format!("none of {} sources has {:.0}%{to}", o.addresses, 100.0 * FEW)
    } else {
        let to = mostly(first.target, first.entries, ", most of them");
        format!("{} come from {}{to}", first.entries, first.addr)
    };
    let open = if part >= FEW && first.open > 0 {
        let (open, asked) = (first.open, first.asked);
        format!("; {open} of {asked} looked up have an open socket on this host")
    } else {
        String::new()
    };
    let which = if o.selection == Selection::NotTcp { " that are not TCP" } else { "" };
    let text = format!("of {} entries read{which}, {who}{open}", o.read);
    Evidence::new("largest source", 100.0 * part, "%", text)
}

/// Where most of the entries go; nothing if they go to many places.
fn mostly(target: Option<TargetFigures>, entries: u32, lead: &str) -> String {
    let Some(t) = target else { return String::new() };
    let part = f64::from(t.entries) / f64::from(entries.max(1));
    if part < MOST {
        return String::new();
    }
    let to = if t.to.port == 0 { t.to.addr.to_string() } else { t.to.to_string() };
    let proto = match t.proto {
        1 => "icmp",
        6 => "tcp",
        17 => "udp",
        58 => "icmpv6",
        132 => "sctp",
        n => return format!("{lead} ({:.0}%) to {to}, protocol {n}", 100.0 * part),
    };
    format!("{lead} ({:.0}%) to {to}/{proto}", 100.0 * part)
}

/// The sources with most entries, each by the processes that opened them as far as these are known.
fn by(o: &OriginFigures) -> Vec<Culprit> {
    let mut all: Vec<(Who, f64)> = Vec::new();
    for s in &o.sources {
        let (addr, mut rest, mut most) = (s.addr, f64::from(s.entries), 0.0_f64);
        // So many entries does each stand for whose socket was looked for.
        let each = rest / f64::from(s.asked.max(1));
        for (owner, n) in &s.holders {
            let part = each * f64::from(*n);
            (rest, most) = (rest - part, most.max(part));
            let owner = Some((owner.pid, owner.comm.clone()));
            all.push((Who::Source { addr, owner }, part));
        }
        // What is left is of nobody who is known: closed sockets, or other hosts. The address is
        // named once, unless that is the larger part.
        if rest > most {
            all.push((Who::Source { addr, owner: None }, rest));
        }
    }
    let of = match o.selection {
        Selection::All => Resource::ConntrackEntries,
        Selection::NotTcp => Resource::NonTcpEntries,
    };
    let named = largest(all, o.read.into(), &of).into_iter();
    let culprit = |(who, share)| Culprit { who, share, sched: Sched::default(), cgroup: None };
    named.map(culprit).collect()
}
