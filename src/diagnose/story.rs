//! Probable cause first: which findings explain which others.
//!
//! A rule declares what its finding explains ([`Rule::explains`]); this module applies these links
//! to the findings of one tick. A finding that another one explains is a consequence: it is folded
//! under its cause and keeps its numbers. Annotation rules never raise findings.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use super::{Finding, Kind, Rule, RuleId};
use crate::metrics::history::Window;
use crate::metrics::sockets::Suspect;
use crate::metrics::waits::class::{Class, of_function};
use crate::sample::sockets::{NetnsTable, SockState, map_v4};
use crate::sample::subject::{Endpoint, NetnsId, Subject, is_within};

use std::time::Duration;

/// A cause may be detected later than its consequence, because hold times differ.
const SLACK: Duration = Duration::from_secs(30);
/// Maximum depth of a block device stack that is followed.
const MAX_LAYERS: usize = 8;

/// A link from a cause to a consequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explains {
    /// The rule whose findings are consequences.
    pub rule: RuleId,
    /// How its subject must relate to the cause's.
    pub scope: Scope,
}

impl Explains {
    /// A link to the findings of `rule` within `scope`.
    #[must_use]
    pub const fn new(rule: &'static str, scope: Scope) -> Self {
        Self { rule: RuleId(rule), scope }
    }
}

/// How the two subjects must be related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Anywhere on this host.
    Host,
    /// The same subject, or sockets in common.
    Same,
    /// The same network namespace.
    Netns,
    /// The service on this host that the consequence's connections lead to: both ends of the
    /// connection are on this host, as between containers.
    OtherEnd,
    /// The same disk, or one above or below it in the stack.
    Stack,
    /// A process in this cgroup, or in one below it.
    Members,
    /// Tasks that wait for a disk, or for a lock that others may hold while they do.
    DiskWaits,
}

impl Scope {
    /// As text, for the rule documentation.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "on this host",
            Self::Same => "of the same subject",
            Self::Netns => "in the same network namespace",
            Self::OtherEnd => "at the other end, when that is on this host too",
            Self::Stack => "of the same disk stack",
            Self::Members => "of processes in it",
            Self::DiskWaits => "of tasks that wait for a disk or for a lock",
        }
    }
}

/// The findings of one tick, sorted into causes, consequences and annotations.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    pub(super) causes: Vec<Arc<Finding>>,
    pub(super) folded: Vec<Arc<Finding>>,
    pub(super) annotations: Vec<Arc<Finding>>,
}

/// Sorts findings, given worst first. A cause takes the place of its worst consequence.
pub(super) fn sort(rules: &[&'static Rule], w: &Window<'_>, all: Vec<Arc<Finding>>) -> Sorted {
    let rule = |f: &Finding| rules.iter().find(|r| r.id() == f.rule);
    let (annotations, all): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|f| rule(f).is_some_and(|r| r.kind == Kind::Annotation));
    // What may explain the findings of a rule, worst first: there may be hundreds of findings, and
    // few rules explain another.
    let mut causes: HashMap<RuleId, Vec<(usize, Scope)>> = HashMap::new();
    for (i, f) in all.iter().enumerate() {
        for l in rule(f).map_or(&[][..], |r| r.explains) {
            causes.entry(l.rule).or_default().push((i, l.scope));
        }
    }
    let ends = Ends::new(w);
    let explains = |c: usize, scope: Scope, f: &Finding| {
        all.get(c).is_some_and(|cause| {
            cause.since.0 <= f.since.0.saturating_add(SLACK.as_nanos() as u64)
                && near(w, &ends, scope, cause, f)
        })
    };
    // The worst cause: they are sorted worst first. Links have no cycles (a test checks that),
    // so following them terminates.
    let direct: Vec<Option<usize>> = all
        .iter()
        .enumerate()
        .map(|(i, f)| {
            let mut of_its_rule = causes.get(&f.rule)?.iter().filter(|(c, _)| *c != i);
            of_its_rule.find(|(c, scope)| explains(*c, *scope, f)).map(|(c, _)| *c)
        })
        .collect();
    let root = |mut i: usize| {
        for _ in 0..all.len() {
            match direct.get(i).copied().flatten() {
                Some(c) => i = c,
                None => break,
            }
        }
        i
    };
    let mut out = Sorted { annotations, ..Sorted::default() };
    let mut placed = vec![false; all.len()];
    for (i, f) in all.iter().enumerate() {
        let r = root(i);
        if let (Some(cause), Some(seen)) = (all.get(r), placed.get_mut(r))
            && !std::mem::replace(seen, true)
        {
            out.causes.push(cause.clone());
        }
        if let Some(cause) = all.get(r).filter(|_| r != i) {
            let cause = Some((cause.rule, cause.subject.clone()));
            out.folded.push(Arc::new(Finding { cause, ..(**f).clone() }));
        }
    }
    out
}

fn near(w: &Window<'_>, ends: &Ends<'_>, scope: Scope, a: &Finding, b: &Finding) -> bool {
    match scope {
        Scope::Host => true,
        Scope::Same => {
            a.subject == b.subject || a.fire.sockets.iter().any(|s| b.fire.sockets.contains(s))
        }
        Scope::Netns => match (netns(a), netns(b)) {
            (Some(x), Some(y)) => x == y,
            // One of them is about the whole host: the counters there are our own
            // namespace's.
            _ => a.subject == Subject::Host || b.subject == Subject::Host,
        },
        Scope::OtherEnd => ends.leads(a, b),
        Scope::Stack => match (&a.subject, &b.subject) {
            (Subject::Disk { name: a, .. }, Subject::Disk { name: b, .. }) => {
                a == b || below(w, a, b) || below(w, b, a)
            }
            _ => false,
        },
        Scope::DiskWaits => match &b.subject {
            Subject::Blocked { function: Some(name) } => {
                // The kernel leaves its own locks out of `wchan`: who waits for one is in the
                // function that wants it, which is in no class.
                matches!(of_function(name), Some(Class::Disk | Class::Lock) | None)
            }
            _ => false,
        },
        Scope::Members => match &a.subject {
            Subject::Cgroup { path, .. } => holds(w, path, b),
            _ => false,
        },
    }
}

/// Is a thread of a process that the finding is about in this cgroup or below it? The cgroup is
/// known only for threads that wait for a CPU; the threads of a throttled cgroup do.
fn holds(w: &Window<'_>, group: &str, f: &Finding) -> bool {
    let Some(sched) = w.derived.sched.as_ref() else { return false };
    let mut owners: Vec<u32> = f
        .fire
        .sockets
        .iter()
        .filter_map(|id| w.derived.sockets.get(*id)?.owner.as_ref().map(|o| o.pid))
        .collect();
    if let Subject::Process { pid, .. } = &f.subject {
        owners.push(*pid);
    }
    sched
        .threads
        .iter()
        .filter(|t| owners.contains(&t.thread.task.pid))
        .any(|t| t.thread.cgroup.as_deref().is_some_and(|path| is_within(path, group)))
}

fn netns(f: &Finding) -> Option<NetnsId> {
    match &f.subject {
        Subject::Peer { netns, .. }
        | Subject::Listener { netns, .. }
        | Subject::Process { netns, .. }
        | Subject::UnixListener { netns, .. }
        | Subject::Link { netns, .. }
        | Subject::Netns { netns } => Some(*netns),
        _ => f.fire.sockets.first().map(|s| s.netns),
    }
}

/// Which connections of this host lead where on this host. There may be 100,000 rows of sockets, so
/// what it finds in them is remembered for the other findings of the tick.
struct Ends<'a> {
    w: &'a Window<'a>,
    /// What listeners are bound to, by namespace and port.
    listeners: OnceCell<HashMap<(NetnsId, u16), Vec<Endpoint>>>,
    /// Whether an address is one of the namespace's own.
    own: RefCell<HashMap<(NetnsId, IpAddr), bool>>,
}

impl<'a> Ends<'a> {
    fn new(w: &'a Window<'a>) -> Self {
        Self { w, listeners: OnceCell::new(), own: RefCell::default() }
    }

    /// Do the connections that `f` is about lead to what `cause` is about?
    fn leads(&self, cause: &Finding, f: &Finding) -> bool {
        let w = self.w;
        match (&cause.subject, &f.subject) {
            (
                Subject::Listener { .. } | Subject::Netns { .. },
                Subject::Peer { remote, netns: from },
            ) => {
                let known = || f.fire.sockets.iter().filter_map(|id| w.derived.sockets.get(*id));
                self.reaches(cause, *remote, *from)
                    && known().find_map(|s| far_end(w, s)).is_none_or(|n| Some(n) == netns(cause))
            }
            // Of a whole namespace: all connections that it names.
            (Subject::Listener { .. } | Subject::Netns { .. }, Subject::Netns { .. }) => {
                let named = f.fire.sockets.iter();
                let mut known = named.filter_map(|id| w.derived.sockets.get(*id)).peekable();
                known.peek().is_some()
                    && known.all(|s| {
                        self.reaches(cause, s.remote, s.id.netns)
                            && far_end(w, s).is_none_or(|n| Some(n) == netns(cause))
                    })
            }
            // The client is at fault: it has no listener.
            (Subject::Peer { .. }, Subject::Peer { .. }) => joined(w, cause, f),
            _ => false,
        }
    }

    fn reaches(&self, cause: &Finding, remote: Endpoint, from: NetnsId) -> bool {
        match &cause.subject {
            // The loopback of another namespace is a different one.
            Subject::Listener { netns, .. } | Subject::Netns { netns }
                if remote.addr.is_loopback() && *netns != from =>
            {
                false
            }
            Subject::Listener { local, netns } => self.serves(*netns, *local, remote),
            // One of its listeners.
            Subject::Netns { netns } => {
                let listeners = self.listeners.get_or_init(|| listeners(self.w));
                let bound = listeners.get(&(*netns, remote.port)).into_iter().flatten();
                bound.into_iter().any(|local| self.serves(*netns, *local, remote))
            }
            _ => false,
        }
    }

    /// Do connections to `remote` reach what is bound to `local` in `netns`? A socket bound to the
    /// wildcard address serves every address of its namespace; other sockets there show which.
    fn serves(&self, netns: NetnsId, local: Endpoint, remote: Endpoint) -> bool {
        if local.port != remote.port || !local.addr.is_unspecified() {
            return local == remote;
        }
        // `0.0.0.0` serves no IPv6 address.
        if local.addr.is_ipv4() && remote.addr.is_ipv6() {
            return false;
        }
        let mut own = self.own.borrow_mut();
        *own.entry((netns, remote.addr)).or_insert_with(|| is_own(self.w, netns, remote.addr))
    }
}

/// The tables of sockets of all namespaces.
fn tables<'a>(w: &'a Window<'_>) -> impl Iterator<Item = &'a NetnsTable> {
    let s = &w.tick.samples;
    let samples = [s.sockets.as_ref(), s.netns_sockets.as_ref()];
    samples.into_iter().flatten().flat_map(|s| s.data.spaces.iter().map(|t| &**t))
}

fn listeners(w: &Window<'_>) -> HashMap<(NetnsId, u16), Vec<Endpoint>> {
    let mut out: HashMap<_, Vec<_>> = HashMap::new();
    for t in tables(w) {
        let states = t.inet.state.iter().enumerate();
        for (i, _) in states.filter(|(_, s)| **s == SockState::LISTEN) {
            let local = t.inet.local_endpoint(i);
            out.entry((t.netns, local.port)).or_default().push(local);
        }
    }
    out
}

/// The namespace of the other end of a connection, if that is on this host. Many namespaces may use
/// the same addresses, as containers do; the ports of both ends tell them apart. Where another
/// connection has the same ports too, the other end that is found may be its: then it is not known.
fn far_end(w: &Window<'_>, s: &Suspect) -> Option<NetnsId> {
    let has = |t: &NetnsTable, local: Endpoint, remote: Endpoint| {
        let ports = (local.port, remote.port);
        let rows = t.inet.lport.iter().zip(&t.inet.rport).enumerate();
        let mut alike = rows.filter(|(_, (l, r))| (**l, **r) == ports);
        alike.any(|(i, _)| t.inet.local_endpoint(i) == local && t.inet.remote_endpoint(i) == remote)
    };
    let found = tables(w).find(|t| has(t, s.remote, s.local))?;
    let is_twin = |t: &NetnsTable| t.netns != s.id.netns && has(t, s.local, s.remote);
    (!tables(w).any(is_twin)).then_some(found.netns)
}

/// Does a socket of the namespace have this address as its own?
fn is_own(w: &Window<'_>, netns: NetnsId, addr: IpAddr) -> bool {
    let bytes = match addr {
        IpAddr::V4(a) => map_v4(a.octets()),
        IpAddr::V6(a) => a.octets(),
    };
    tables(w).any(|t| t.netns == netns && t.inet.local.contains(&bytes))
}

/// Are sockets of the two findings the two ends of one connection?
fn joined(w: &Window<'_>, a: &Finding, b: &Finding) -> bool {
    let known = |f: &Finding| {
        let sockets = f.fire.sockets.iter().filter_map(|id| w.derived.sockets.get(*id));
        sockets.map(|s| (s.local, s.remote)).collect::<Vec<_>>()
    };
    let ends: BTreeSet<_> = known(a).into_iter().collect();
    known(b).into_iter().any(|(local, remote)| ends.contains(&(remote, local)))
}

/// Does `low` carry `high`, over any number of layers?
fn below(w: &Window<'_>, high: &str, low: &str) -> bool {
    let Some(disks) = w.derived.disks.as_ref() else { return false };
    let mut layer = vec![high.to_owned()];
    for _ in 0..MAX_LAYERS {
        let lower: Vec<String> = disks
            .iter()
            .filter(|d| layer.iter().any(|n| **n == *d.name))
            .flat_map(|d| d.attrs.slaves.iter().cloned())
            .collect();
        if lower.iter().any(|n| n == low) {
            return true;
        }
        if lower.is_empty() {
            return false;
        }
        layer = lower;
    }
    false
}

#[cfg(test)]
mod tests;
