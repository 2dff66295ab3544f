//! The resources of a moment.

use std::fmt::Write as _;

use crate::diagnose::{Finding, Severity};
use crate::metrics::disks::DiskFigures;
use crate::metrics::netdev::LinkFigures;
use crate::metrics::sockets::Suspect;
use crate::sample::subject::Subject;
use crate::view::context::Cx;
use crate::view::panes::{PaneId, network};
use crate::view::state::RowKey;
use crate::view::table::Value;
use crate::view::{text, units, vitals};

/// Disks with a row of their own.
const DISKS: usize = 3;
/// The same of network devices.
const LINKS: usize = 2;

/// What kind of resource, for the findings and the pane that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CPUs and their run queues.
    Cpu,
    /// Disks and what lies on them.
    Disk,
    /// Interrupts.
    Softirq,
    /// Memory.
    Memory,
    /// Network devices and protocols below sockets.
    Network,
    /// Sockets.
    Sockets,
    /// Limits of cgroups.
    Cgroup,
}

impl Kind {
    /// The pane with its rows.
    #[must_use]
    pub fn pane(self) -> PaneId {
        match self {
            Self::Cpu | Self::Softirq => PaneId::Cpus,
            Self::Disk => PaneId::Disks,
            Self::Network => PaneId::Network,
            Self::Sockets => PaneId::Sockets,
            Self::Memory | Self::Cgroup => PaneId::Processes,
        }
    }

    /// Whether a finding is about such a resource.
    #[must_use]
    pub fn is_of(self, f: &Finding) -> bool {
        self.has(f.rule.0)
    }

    /// The same, by how the name of its rule begins.
    fn has(self, rule: &str) -> bool {
        self.rules().iter().any(|begin| rule.starts_with(begin))
    }

    fn rules(self) -> &'static [&'static str] {
        match self {
            Self::Cpu => &["cpu-", "runq-", "ctx-switch", "load-", "single-thread", "lock-"],
            Self::Disk => &["disk-", "dm-", "md-", "fs-", "task-hung"],
            Self::Softirq => &["softirq-", "softnet-"],
            Self::Memory => &["mem-", "oom-", "compaction-"],
            Self::Network => {
                &["nic-", "qdisc-", "tc-", "conntrack-", "neigh-", "rp-filter", "csum-", "ip-"]
            }
            Self::Sockets => &["tcp-", "udp-", "unix-", "server-", "fd-limit"],
            Self::Cgroup => &["cfs-", "cgroup-", "weight-", "task-limit"],
        }
    }
}

/// One resource.
#[derive(Clone, Debug)]
pub struct Resource {
    /// What kind.
    pub kind: Kind,
    /// Identity: a cursor stays on it.
    pub key: RowKey,
    /// What Enter opens.
    pub opens: RowKey,
    /// Name.
    pub name: String,
    /// % in use.
    pub busy: Value,
    /// How much waits, for sorting; `None` when unknown.
    pub wait: Option<f64>,
    /// The same in words.
    pub waits: String,
    /// What it lost per second.
    pub errors: Value,
    /// What stands out.
    pub worst: String,
    /// Who uses it.
    pub by: String,
    /// The worst finding about it.
    pub mark: Option<Severity>,
}

impl Resource {
    fn new(kind: Kind, number: u64, name: impl Into<String>) -> Self {
        let key = RowKey::Numbered(PaneId::Resources, number);
        Self {
            kind,
            key,
            opens: key,
            name: name.into(),
            busy: Value::Empty,
            wait: None,
            waits: units::UNKNOWN.to_owned(),
            errors: Value::Empty,
            worst: String::new(),
            by: String::new(),
            mark: None,
        }
    }
    fn waits(mut self, n: Option<f64>, write: impl Fn(f64) -> String) -> Self {
        self.wait = n;
        self.waits = n.map_or_else(|| units::UNKNOWN.to_owned(), write);
        self
    }
}

/// All of them, in an order that stays.
#[must_use]
pub fn gather(cx: &Cx<'_>) -> Vec<Resource> {
    let mut out = vec![cpus(cx)];
    out.extend(disks(cx));
    out.extend(files(cx));
    out.extend([memory(cx), softirq(cx)]);
    out.extend(network(cx));
    out.extend([sockets(cx), cgroups(cx)]);
    for r in &mut out {
        marked(cx, r);
    }
    out
}

/// File systems and tasks that hang in them, while there is a finding about one: it is not known here
/// which disk they lie on.
fn files(cx: &Cx<'_>) -> Option<Resource> {
    let about = |f: &Finding| Kind::Disk.is_of(f) && !matches!(f.subject, Subject::Disk { .. });
    let f = cx.now.findings.all().find(|f| about(f))?;
    let mut r = Resource::new(Kind::Disk, 8, "files");
    r.waits = String::new();
    r.worst = text::clean(&f.subject.to_string()).into_owned();
    Some(r)
}

/// The worst finding about it, and whom it names.
fn marked(cx: &Cx<'_>, r: &mut Resource) {
    let dev = match r.key {
        RowKey::Disk(id) => Some(id),
        _ => None,
    };
    let about = |f: &Finding| match (&f.subject, dev) {
        (Subject::Disk { dev, .. }, Some(id)) => *dev == id,
        (Subject::Disk { .. }, None) | (_, Some(_)) => false,
        (_, None) => r.kind.is_of(f),
    };
    let mut by = None;
    for f in cx.now.findings.all().filter(|f| about(f)) {
        let s = cx.now.findings.severity(f);
        if r.mark.is_none_or(|m| s > m) {
            r.mark = Some(s);
        }
        by = by.or_else(|| f.fire.by.first().map(|c| c.who.to_string()));
    }
    if let Some(by) = by {
        r.by = text::clean(&by).into_owned();
    }
}

fn cpus(cx: &Cx<'_>) -> Resource {
    let total = cx.cpu.and_then(|c| c.value.total);
    let mut r = Resource::new(Kind::Cpu, 1, "cpu")
        .waits(vitals::waiting(cx), |n| format!("runq {n:.1}"));
    r.busy = Value::num(total.map(vitals::busy));
    if let Some((id, pct)) = vitals::busiest(cx) {
        r.worst = format!("{id} {}%", units::pct(pct));
        // Another one may be the busiest in a moment; the row stays.
        r.opens = RowKey::Cpu(id);
    }
    if let Some(steal) = total.map(|t| t.steal).filter(|s| *s >= 1.0) {
        let _ = write!(r.worst, ", steal {}%", units::pct(steal));
    }
    r.by = most(cx, |p| p.run, 0.05).unwrap_or_default();
    r
}

/// The process with most of something, if that is something.
fn most(
    cx: &Cx<'_>,
    of: impl Fn(&crate::metrics::processes::ProcessFigures) -> f64,
    least: f64,
) -> Option<String> {
    let all = cx.processes().iter().filter(|p| of(p) >= least);
    let p = all.max_by(|a, b| of(a).total_cmp(&of(b)))?;
    Some(format!("{}/{}", text::clean(&p.comm), p.pid))
}

/// Those that are asked for something, and at least one.
fn disks(cx: &Cx<'_>) -> Vec<Resource> {
    let Some(all) = cx.disks else {
        return vec![Resource::new(Kind::Disk, 2, "disks")];
    };
    let about = |d: &DiskFigures| cx.marks.disk(d.id).is_some();
    let moves = |d: &DiskFigures| d.util > 0.0 || d.in_flight.is_some_and(|n| n > 0);
    let mut shown: Vec<&DiskFigures> =
        all.value.iter().filter(|d| about(d) || (vitals::is_real(d) && moves(d))).collect();
    if shown.is_empty() {
        shown.extend(all.value.iter().find(|d| vitals::is_real(d)));
    }
    if shown.len() > DISKS {
        shown.sort_by(|a, b| about(b).cmp(&about(a)).then(b.util.total_cmp(&a.util)));
        shown.truncate(DISKS);
        shown.sort_by_key(|d| d.id);
    }
    shown.into_iter().map(|d| disk(cx, d)).collect()
}

fn disk(cx: &Cx<'_>, d: &DiskFigures) -> Resource {
    let mut r = Resource::new(Kind::Disk, 2, text::clean(&d.name).into_owned());
    r.key = RowKey::Disk(d.id);
    r.opens = r.key;
    r.busy = Value::Num(d.util);
    r.wait = Some(d.aqu_sz);
    r.waits = match d.await_ms {
        Some(ms) => format!("await {}", units::millis(ms)),
        None => "0".to_owned(),
    };
    let (read, written) = (units::bytes(1024.0 * d.rkb_s), units::bytes(1024.0 * d.wkb_s));
    r.worst = format!("r {read}/s w {written}/s");
    if d.aqu_sz >= 1.0 {
        let _ = write!(r.worst, ", aqu-sz {:.1}", d.aqu_sz);
    }
    // Which disk a process uses is told on the page of the disk; of a single one there is no doubt.
    let real = cx.disks.map_or(0, |all| all.value.iter().filter(|d| vitals::is_real(d)).count());
    if real == 1 && d.util > 0.0 {
        r.by = most(cx, |p| p.io.map_or(0.0, |(r, w)| r + w), 4096.0).unwrap_or_default();
    }
    r
}

fn memory(cx: &Cx<'_>) -> Resource {
    let mut r = Resource::new(Kind::Memory, 3, "memory")
        .waits(cx.psi().memory_some, |p| format!("stall {}%", units::pct(p)));
    r.busy = Value::num(vitals::memory(cx).map(|m| m.0));
    if let Some(swap) = vitals::swap(cx).filter(|b| *b > 0) {
        r.worst = format!("swap {}", units::bytes(swap as f64));
    }
    r
}

fn softirq(cx: &Cx<'_>) -> Resource {
    let net = cx.softirq.map(|s| &s.value.softnet);
    let sum = |f: fn(&crate::metrics::cpu::SoftnetFigures) -> f64| {
        net.map(|all| all.iter().map(f).sum::<f64>())
    };
    let mut r = Resource::new(Kind::Softirq, 4, "softirq")
        .waits(sum(|c| c.squeeze_s), |n| format!("squeeze {}/s", units::count(n)));
    r.busy = Value::num(cx.cpu.and_then(|c| c.value.total).map(|t| t.softirq + t.irq));
    r.errors = Value::num(sum(|c| c.dropped_s));
    let shares = cx.cpu.map_or(&[][..], |c| &c.value.cpus).iter();
    let worst = shares.max_by(|a, b| (a.1.softirq).total_cmp(&b.1.softirq));
    if let Some((id, s)) = worst.filter(|(_, s)| s.softirq >= 1.0) {
        r.worst = format!("{id} {}%", units::pct(s.softirq));
    }
    r
}

/// Devices of the host's own namespace: NICs, or what there is.
fn network(cx: &Cx<'_>) -> Vec<Resource> {
    let Some(space) = cx.own_space() else {
        return vec![Resource::new(Kind::Network, 5, "network")];
    };
    let up = |l: &&LinkFigures| l.attrs.up && l.attrs.name != "lo";
    let mut links: Vec<&LinkFigures> =
        space.links.iter().filter(up).filter(|l| l.attrs.physical).collect();
    if links.is_empty() {
        links = space.links.iter().filter(up).collect();
    }
    let all = |l: &LinkFigures| l.rx_bytes_s + l.tx_bytes_s;
    links.sort_by(|a, b| all(b).total_cmp(&all(a)).then(a.ifindex.cmp(&b.ifindex)));
    links.truncate(LINKS);
    links.sort_by_key(|l| l.ifindex);
    let row = |l: &LinkFigures| {
        let own = space.qdiscs.iter().filter(|q| q.ifindex == l.ifindex);
        let backlog: f64 = own.map(|q| f64::from(q.backlog)).sum();
        let number = 100 + u64::from(l.ifindex);
        let mut r = Resource::new(Kind::Network, number, text::clean(&l.attrs.name).into_owned())
            .waits(Some(backlog), |n| format!("qdisc {}", units::bytes(n)));
        r.key = network::key_of(space, l);
        r.opens = r.key;
        let speed = l.attrs.speed_mbit.filter(|s| *s > 0).map(|s| f64::from(s) * 125_000.0);
        let most = l.rx_bytes_s.max(l.tx_bytes_s);
        // Of a virtual NIC it is not known what it could carry.
        r.busy = Value::num(speed.map(|s| 100.0 * most / s));
        let lost = l.rx_dropped_s + l.tx_dropped_s + l.rx_errors_s + l.tx_errors_s;
        r.errors = Value::Num(lost);
        let (rx, tx) = (units::bytes(l.rx_bytes_s), units::bytes(l.tx_bytes_s));
        r.worst = format!("rx {rx}/s tx {tx}/s");
        let talkers = cx.suspects.talkers.iter().filter(|t| t.netns == space.netns);
        let top = talkers.max_by(|a, b| (a.rx + a.tx).total_cmp(&(b.rx + b.tx)));
        r.by = top
            .and_then(|t| t.owner.as_ref())
            .map(|(pid, comm)| format!("{}/{pid}", text::clean(comm)))
            .unwrap_or_default();
        r
    };
    links.into_iter().map(row).collect()
}

fn sockets(cx: &Cx<'_>) -> Resource {
    let stuck = |s: &&std::sync::Arc<Suspect>| {
        s.missing_since.is_none() && cx.marks.socket(s.id).is_some()
    };
    let n = cx.suspects.suspects.iter().filter(stuck).count();
    let mut r = Resource::new(Kind::Sockets, 6, "sockets")
        .waits(Some(n as f64), |n| format!("{n:.0} of {}", units::count(vitals::tcp(cx))));
    r.errors = Value::num(cx.net_bpf.and_then(|n| n.value.retransmits_s));
    let worst = cx.suspects.suspects.iter().filter(stuck);
    if let Some(s) = worst.min_by_key(|s| (s.stalled_since(), s.id)) {
        r.worst = s.remote.to_string();
        r.by = s
            .owner
            .as_ref()
            .map(|o| format!("{}/{}", text::clean(&o.comm), o.pid))
            .unwrap_or_default();
    }
    r
}

fn cgroups(cx: &Cx<'_>) -> Resource {
    let groups = cx.now.derived.cgroups.as_deref().map_or(&[][..], Vec::as_slice);
    let throttled =
        groups.iter().filter_map(|g| Some((g, g.cpu?.throttled_ms_s))).filter(|(_, ms)| *ms > 0.0);
    let worst = throttled.max_by(|a, b| a.1.total_cmp(&b.1));
    let known = cx.now.derived.cgroups.is_some();
    let wait = worst.as_ref().map(|(_, ms)| *ms).or(known.then_some(0.0));
    let mut r = Resource::new(Kind::Cgroup, 7, "cgroups").waits(wait, |ms| {
        if ms == 0.0 { "0".to_owned() } else { format!("thr {}/s", units::millis(ms)) }
    });
    if let Some((g, _)) = worst {
        r.worst = text::clean(&g.path).into_owned();
    }
    r
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::RULES;

    /// A new rule whose name begins otherwise needs its beginning in the list of a resource.
    #[test]
    fn every_rule_belongs_to_one_resource() {
        use Kind::{Cgroup, Cpu, Disk, Memory, Network, Sockets, Softirq};
        for r in RULES {
            let all = [Cpu, Disk, Softirq, Memory, Network, Sockets, Cgroup];
            let of: Vec<Kind> = all.into_iter().filter(|k| k.has(r.id().0)).collect();
            assert_eq!(of.len(), 1, "{}: {of:?}", r.id());
        }
    }
}
