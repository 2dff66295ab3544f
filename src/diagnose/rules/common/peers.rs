//! Sockets with the same cause, grouped by peer: 37 connections that fail for one reason are one
//! finding with a count.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::{Confidence, Fire, Window};
use super::counters::SPAN;
use super::enter::Door;
use super::sockets::Case;
use super::text::sh;
use crate::metrics::sockets::Suspect;
use crate::sample::sockets::{NetnsTable, Owner};
use crate::sample::subject::{Endpoint, NetnsId, Subject};

/// More peers than this with the same cause at the same time become one finding about the network
/// namespace: the cause is on this side.
const MAX_PEERS: usize = 8;
/// Maximum number of examples in a finding.
const EXAMPLES: usize = 5;
/// Maximum number of sockets that a finding marks.
const MARKED: usize = 1000;

/// Cases with the same cause and peer, or of one namespace if there are many peers.
pub(crate) struct Group<'a> {
    pub(crate) subject: Subject,
    pub(crate) cases: Vec<Case<'a>>,
    /// Distinct peers.
    pub(crate) peers: usize,
}

impl<'a> Group<'a> {
    /// The network namespace.
    pub(crate) fn netns(&self) -> NetnsId {
        self.first().socket.id.netns
    }
    /// The case that represents the group: the longest without progress.
    pub(crate) fn first(&self) -> &Case<'a> {
        // by_peer makes no empty groups and puts the representative first.
        &self.cases[0]
    }
    /// `3 connections to 10.0.0.2:3306`, `1 connection from 192.0.2.1 to port 8080`.
    pub(crate) fn who(&self) -> String {
        let n = super::text::count(self.cases.len(), "connection");
        match &self.subject {
            Subject::Peer { remote, .. } if remote.port == 0 => {
                let port = self.first().socket.local.port;
                if self.cases.iter().all(|c| c.socket.local.port == port) {
                    format!("{n} from {} to port {port}", remote.addr)
                } else {
                    format!("{n} from {}", remote.addr)
                }
            }
            Subject::Peer { remote, .. } => format!("{n} to {remote}"),
            Subject::Listener { local, .. } => format!("{n} on {local}"),
            _ => format!("{n} with {} peers", self.peers),
        }
    }
    /// Fills in count, examples, sockets, confidence and missing inputs.
    pub(crate) fn fill(&self, fire: &mut Fire, w: &Window<'_>) {
        fire.count = u32::try_from(self.cases.len()).unwrap_or(u32::MAX);
        fire.examples = self.cases.iter().take(EXAMPLES).map(|c| example(c.socket)).collect();
        fire.sockets = self.cases.iter().take(MARKED).map(|c| c.socket.id).collect();
        if self.cases.iter().all(|c| c.confidence == Confidence::Suspected) {
            fire.confidence = Confidence::Suspected;
        }
        for m in &self.first().missing {
            fire.missing.push((*m).to_owned());
        }
        fire.since = self.cases.iter().map(|c| c.since(w.tick.mono)).min();
    }
}

/// Groups cases caused by an application on this host: incoming connections are grouped by the
/// service that they reached, whatever their peer.
pub(crate) fn by_service<'a>(
    cases: impl Iterator<Item = Case<'a>>,
    w: &Window<'_>,
) -> Vec<Group<'a>> {
    let (served, others): (Vec<_>, Vec<_>) = cases.partition(|c| c.socket.inbound);
    let mut out = by_peer(others.into_iter(), w);
    let mut services: BTreeMap<(NetnsId, Endpoint), Vec<Case<'a>>> = BTreeMap::new();
    for c in served {
        services.entry((c.socket.id.netns, c.socket.local)).or_default().push(c);
    }
    out.extend(services.into_iter().map(|((netns, local), cases)| Group {
        subject: Subject::Listener { local, netns },
        cases,
        peers: 1,
    }));
    sort(&mut out, w);
    out
}

/// Groups cases by peer. For incoming connections the peer's port is ephemeral and does not count.
pub(crate) fn by_peer<'a>(cases: impl Iterator<Item = Case<'a>>, w: &Window<'_>) -> Vec<Group<'a>> {
    let mut spaces: BTreeMap<NetnsId, BTreeMap<Endpoint, Vec<Case<'a>>>> = BTreeMap::new();
    for c in cases {
        let s = c.socket;
        let port = if s.inbound { 0 } else { s.remote.port };
        let remote = Endpoint { addr: s.remote.addr, port };
        spaces.entry(s.id.netns).or_default().entry(remote).or_default().push(c);
    }
    let mut out = Vec::new();
    for (netns, peers) in spaces {
        if peers.len() > MAX_PEERS {
            let n = peers.len();
            let cases = peers.into_values().flatten().collect();
            out.push(Group { subject: Subject::Netns { netns }, cases, peers: n });
        } else {
            out.extend(peers.into_iter().map(|(remote, cases)| Group {
                subject: Subject::Peer { remote, netns },
                cases,
                peers: 1,
            }));
        }
    }
    sort(&mut out, w);
    out
}

/// Puts the case that represents a group first.
fn sort(groups: &mut [Group<'_>], w: &Window<'_>) {
    let now = w.tick.mono;
    for g in groups {
        g.cases.sort_by_cached_key(|c| {
            (c.confidence == Confidence::Suspected, c.since(now), c.socket.id)
        });
    }
}

/// `10.0.3.2:51322 -> 10.0.3.7:3306 (java/2214)`.
pub(crate) fn example(s: &Suspect) -> String {
    let owner = match &s.owner {
        Some(o) => owner(o),
        None if s.inode == 0 => "orphan".to_owned(),
        // The kernel was not asked for a uid.
        None if s.uid == u32::MAX => "owner unknown".to_owned(),
        None => format!("uid {}", s.uid),
    };
    format!("{} -> {} ({owner})", s.local, s.remote)
}

/// `java/2214`.
pub(crate) fn owner(o: &Owner) -> String {
    format!("{}/{}", o.comm, o.pid)
}

/// The prefix for a command to run in `netns`; empty for our own.
pub(crate) fn enter(w: &Window<'_>, netns: NetnsId) -> String {
    way_in(w, netns).unwrap_or_default()
}

/// The same; `None` if no way into it is known, or no such namespace on this host.
pub(crate) fn way_in(w: &Window<'_>, netns: NetnsId) -> Option<String> {
    // From its latest reading, so that a late walker does not hide how to enter it.
    let space = w.derived.sockets.space(netns)?;
    super::enter::enter(w.host, Door { netns, label: &space.label, member: space.member })
}

/// A command to run where the other end of this connection is: on the peer, or in the namespace of
/// this host that holds it.
pub(crate) fn on_peer(w: &Window<'_>, s: &Suspect, command: &str) -> String {
    let way = other_end(w, s).and_then(|netns| way_in(w, netns));
    let way = way.unwrap_or_else(|| format!("on {}: ", sh(&s.remote.addr.to_string())));
    format!("{way}{command}")
}

/// The namespace of this host in which the other end of this connection was seen lately. Behind
/// address translation it has other addresses, and is not found.
fn other_end(w: &Window<'_>, s: &Suspect) -> Option<NetnsId> {
    let is_it = |t: &NetnsTable| {
        (0..t.inet.len()).any(|i| {
            // Ports first: they differ for nearly all rows.
            t.inet.lport.get(i) == Some(&s.remote.port)
                && t.inet.rport.get(i) == Some(&s.local.port)
                && t.inet.local_endpoint(i) == s.remote
                && t.inet.remote_endpoint(i) == s.local
        })
    };
    // The namespaces take turns: the youngest table of each.
    let mut looked = BTreeSet::new();
    w.history
        .back_from(w.tick.seq)
        .take_while(|m| w.tick.mono.since(m.tick.mono) < SPAN)
        .flat_map(|m| [m.tick.samples.sockets.as_ref(), m.tick.samples.netns_sockets.as_ref()])
        .flatten()
        .flat_map(|sample| &sample.data.spaces)
        .filter(|t| looked.insert(t.netns))
        .find(|t| is_it(t))
        .map(|t| t.netns)
}

/// The interface towards the peer, or `any` if the route is unknown.
pub(crate) fn device(s: &Suspect) -> String {
    match &s.route {
        Some(crate::sample::sockets::RouteOutcome::Via { dev, .. }) => sh(dev),
        _ => "any".to_owned(),
    }
}

/// The peer in the form that `ss dst` accepts.
pub(crate) fn ss_dst(s: &Suspect) -> String {
    if s.inbound {
        match s.remote.addr {
            std::net::IpAddr::V4(a) => a.to_string(),
            std::net::IpAddr::V6(a) => sh(&format!("[{a}]")),
        }
    } else {
        sh(&s.remote.to_string())
    }
}
