//! `weight-starved`: siblings with more weight leave a cgroup almost no CPU time.

use super::common::cgroups::{self, REMEMBER, file, of_v1, subject};
use super::common::tasks;
use crate::diagnose::culprit::{Culprit, MAX_CULPRITS, Resource, Sched, Share, Who};
use crate::diagnose::rules::prelude::*;
use crate::metrics::cgroups::CgroupFigures;
use crate::metrics::cpu::ThreadWait;
use crate::sample::subject::{CgroupId, is_within};
use std::collections::{BTreeMap, BTreeSet};

/// Total wait of its threads for a CPU, ms/s.
const WAITING: f64 = 400.0;
/// Wait as a fraction of the runnable time of its threads.
const SHARE: f64 = 0.5;
/// The rivals' weight as a multiple of its own.
const RATIO: f64 = 4.0;
/// Fraction of all CPUs that the rivals use.
const TAKEN: f64 = 0.5;
/// Idle time, %.
const IDLE: f64 = 10.0;
/// Fraction of all waits on the host that are its own.
const MOST: f64 = 0.5;
/// Fraction of throttled periods from which the quota is the cause, not the weight.
const THROTTLED: f64 = 0.1;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;
/// Part of all CPUs below which a rival takes nothing from anybody.
const LEAST: f64 = 0.05;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("weight-starved"),
    title: "siblings with more weight leave this cgroup almost no CPU time",
    condition: "All CPUs together are 10% idle or less; the threads of the cgroup wait 400 ms/s \
        or more, at least half of the time they are runnable, and at least as long as all other \
        threads together; and siblings with 4 times its \
        cpu.weight (v1: cpu.shares), or tasks directly in the parent cgroup, use half of the \
        CPUs or more; for 4 of 8 s. Info when its weight is below the default and none of its \
        sockets is in trouble: a batch job gets a low weight so that it waits. Clears below \
        280 ms/s.",
    look_alikes: "A quota (cfs-throttle): nr_throttled grows. More threads than CPUs at equal \
        weights (cpu-saturation): all wait alike. Nice values weigh threads within one cgroup.",
    remedy: "Raise the weight of what matters (CPUWeight= of the unit, cpu.weight, cpu.shares), \
        or lower the weight of what takes the CPUs. A weight only counts against siblings: \
        check every level of the path.",
    sources: "cpu.weight, cpu.shares; Documentation/admin-guide/cgroup-v2.rst, \
        Documentation/scheduler/sched-design-CFS.rst. Arithmetic: of one CPU, weight 100 beside \
        10000 gets 1%.",
    hold: Hold::of(4, 8),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Cgroups],
    explains: &[
        Explains::new("cpu-saturation", Scope::Host),
        Explains::new("tcp-listen-overflow", Scope::Members),
        Explains::new("tcp-receiver-not-reading", Scope::Members),
        Explains::new("server-hung", Scope::Members),
    ],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(total) = w.derived.cpu.as_ref().and_then(|c| c.total) else { return };
    let idle = total.idle + total.iowait;
    let Some(sched) = w.derived.sched.as_deref() else { return };
    if idle > IDLE / CLEAR {
        return;
    }
    let known: Vec<&ThreadWait> =
        sched.threads.iter().filter(|t| t.thread.cgroup.is_some()).collect();
    if known.iter().all(|t| t.run_delay_ns == 0) {
        return;
    }
    let sums = sums(&known);
    let waits = |path: &str| sums.get(path).is_some_and(Sum::is_waiting);
    let groups = around(w, &sums);
    let all = sched.threads.iter().fold(0.0, |sum, t| sum + t.wait_ms_s());
    for g in groups.iter().filter(|g| waits(&g.path)) {
        let Some(s) = Starved::of(w, g, &groups, &known) else { continue };
        // If the others wait as much, there is too little for all: cpu-saturation.
        if s.sum.wait_ms_s < MOST * all {
            continue;
        }
        if s.sum.wait_ms_s >= WAITING && idle <= IDLE {
            out.fire(subject(g), fire(w, &s, idle));
        } else {
            out.linger(subject(g));
        }
    }
    cgroups::unread(w, out, |g| waits(&g.path));
}

/// What the threads of a cgroup do, those of the cgroups below it included.
#[derive(Clone, Copy, Default)]
struct Sum {
    wait_ms_s: f64,
    run_ms_s: f64,
}

impl Sum {
    /// Do they wait long enough to be worth a look?
    fn is_waiting(&self) -> bool {
        self.wait_ms_s >= WAITING * CLEAR
            && self.wait_ms_s >= SHARE * (self.wait_ms_s + self.run_ms_s)
    }
}

/// By path. There are few threads and may be thousands of cgroups.
fn sums<'a>(known: &[&'a ThreadWait]) -> BTreeMap<&'a str, Sum> {
    let mut out: BTreeMap<&str, Sum> = BTreeMap::new();
    for t in known {
        let mut path = t.thread.cgroup.as_deref().unwrap_or_default();
        while !path.is_empty() {
            let sum = out.entry(path).or_default();
            sum.wait_ms_s += t.wait_ms_s();
            sum.run_ms_s += run_ms_s([*t].into_iter());
            path = parent(path);
        }
    }
    out
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

/// The cgroups that wait, their siblings and parents, as last read: a budgeted walk reads only some
/// of them at a time.
fn around<'a>(w: &Window<'a>, sums: &BTreeMap<&str, Sum>) -> Vec<&'a CgroupFigures> {
    let waiting = sums.iter().filter(|(_, s)| s.is_waiting());
    let parents: BTreeSet<&str> = waiting.map(|(path, _)| parent(path)).collect();
    if parents.is_empty() {
        return Vec::new();
    }
    let is_near = |path: &str| {
        let path = path.trim_end_matches('/');
        parents.contains(path) || !path.is_empty() && parents.contains(parent(path))
    };
    let mut found: BTreeMap<(&str, CgroupId), &'a CgroupFigures> = BTreeMap::new();
    let moments = w
        .history
        .back_from(w.tick.seq)
        .take_while(|m| w.tick.mono.since(m.tick.mono) < REMEMBER)
        .filter_map(|m| m.derived.cgroups.as_deref());
    // The newest comes first.
    for g in moments.flatten().filter(|g| g.cpu.is_some() && is_near(&g.path)) {
        found.entry((&g.mount, g.id)).or_insert(g);
    }
    found.into_values().collect()
}

impl Rival {
    fn path(&self) -> &str {
        match &self.who {
            Who::Cgroup { path } | Who::TasksOf { path } => path,
            Who::Process { .. }
            | Who::Thread { .. }
            | Who::Kernel { .. }
            | Who::Port { .. }
            | Who::Peer { .. }
            | Who::Source { .. } => "",
        }
    }
}

/// A cgroup that waits while its rivals run.
struct Starved<'a> {
    group: &'a CgroupFigures,
    weight: u64,
    /// The default weight.
    default: u64,
    sum: Sum,
    threads: Vec<&'a ThreadWait>,
    /// Largest usage first.
    rivals: Vec<Rival>,
}

/// Who takes the CPUs.
struct Rival {
    who: Who,
    weight: u64,
    cores: f64,
}

impl<'a> Starved<'a> {
    fn of(
        w: &Window<'_>,
        group: &'a CgroupFigures,
        groups: &[&'a CgroupFigures],
        known: &[&'a ThreadWait],
    ) -> Option<Self> {
        let (parent, _) = group.path.rsplit_once('/').filter(|(_, name)| !name.is_empty())?;
        let cpu = group.cpu?;
        let weight = cpu.weight?;
        if cpu.throttled_share().is_some_and(|s| s >= THROTTLED) {
            return None;
        }
        let threads: Vec<_> = of_group(known, &group.path).collect();
        let wait_ms_s = threads.iter().fold(0.0, |sum, t| sum + t.wait_ms_s());
        let sum = Sum { wait_ms_s, run_ms_s: run_ms_s(threads.iter().copied()) };
        let default = if of_v1(&group.mount, "cpu") { 1024 } else { 100 };
        let rivals = rivals(group, (weight, default), parent, groups, known);
        let taken = rivals.iter().fold(0.0, |sum, r| sum + r.cores);
        let cpus = f64::from(w.host.cpus.max(1));
        (taken >= TAKEN * cpus).then_some(Self { group, weight, default, sum, threads, rivals })
    }
}

/// Siblings of `group` with [`RATIO`] times its weight: other cgroups, and the tasks of the parent
/// itself, each of which weighs as much as a cgroup with the default weight.
fn rivals(
    group: &CgroupFigures,
    (weight, default): (u64, u64),
    parent: &str,
    groups: &[&CgroupFigures],
    known: &[&ThreadWait],
) -> Vec<Rival> {
    let heavier = |n: u64| n as f64 >= RATIO * weight.max(1) as f64;
    // If usage is counted in another hierarchy without this cgroup, add up its threads.
    let used = |g: &CgroupFigures| {
        let counted = g.cpu.and_then(|c| c.usage_cores);
        counted.unwrap_or_else(|| run_ms_s(of_group(known, &g.path)) / 1e3)
    };
    let same = || groups.iter().filter(|g| g.mount == group.mount);
    let children: Vec<_> = same()
        .filter(|g| g.path.rsplit_once('/').is_some_and(|(p, n)| p == parent && !n.is_empty()))
        .collect();
    let others = children.iter().filter(|g| g.id != group.id);
    let rival = |g: &&&CgroupFigures| {
        let weight = g.cpu?.weight.filter(|n| heavier(*n))?;
        Some(Rival { who: Who::Cgroup { path: g.path.to_string() }, weight, cores: used(g) })
    };
    let mut out: Vec<Rival> = others.filter_map(rival).collect();
    let above = same().find(|g| g.path.trim_end_matches('/') == parent);
    if heavier(default)
        && let Some(all) = above.map(|g| used(g))
    {
        let of_groups = children.iter().fold(0.0, |sum, g| sum + used(g));
        let path = if parent.is_empty() { "/" } else { parent };
        let who = Who::TasksOf { path: path.to_owned() };
        out.push(Rival { who, weight: default, cores: (all - of_groups).max(0.0) });
    }
    out.sort_by(|a, b| b.cores.total_cmp(&a.cores).then_with(|| a.path().cmp(b.path())));
    out
}

/// The threads of this cgroup and of those below it.
fn of_group<'a>(known: &[&'a ThreadWait], group: &str) -> impl Iterator<Item = &'a ThreadWait> {
    known
        .iter()
        .copied()
        .filter(move |t| t.thread.cgroup.as_deref().is_some_and(|p| is_within(p, group)))
}

fn run_ms_s<'a>(threads: impl Iterator<Item = &'a ThreadWait>) -> f64 {
    let each = threads.filter_map(tasks::run_ms_s);
    each.fold(0.0, |sum, ms| sum + ms)
}

/// Does one of these processes own a socket in trouble? Owners are looked up for such sockets only.
fn is_waited_for(w: &Window<'_>, threads: &[&ThreadWait]) -> bool {
    let pids: BTreeSet<u32> = threads.iter().map(|t| t.thread.task.pid).collect();
    let s = &w.tick.samples;
    let spaces = [s.sockets.as_ref(), s.netns_sockets.as_ref()];
    let mut owners =
        spaces.into_iter().flatten().flat_map(|x| &x.data.spaces).flat_map(|t| &t.owners);
    owners.any(|o| pids.contains(&o.pid))
}

/// The rivals with their part of all CPUs. They are read at different times: together they may show
/// more than there is.
fn by(w: &Window<'_>, rivals: &[Rival]) -> Vec<Culprit> {
    let used = rivals.iter().fold(0.0, |sum, r| sum + r.cores);
    let whole = used.max(f64::from(w.host.cpus.max(1)));
    let named =
        rivals.iter().filter(|r| r.cores >= LEAST * whole).take(MAX_CULPRITS).filter_map(|r| {
            let share = Share::new(r.cores, whole, Resource::AllCpus)?;
            Some(Culprit { who: r.who.clone(), share, sched: Sched::default(), cgroup: None })
        });
    named.collect()
}

fn fire(w: &Window<'_>, s: &Starved<'_>, idle: f64) -> Fire {
    let g = s.group;
    let v1 = of_v1(&g.mount, "cpu");
    let name = if v1 { "cpu.shares" } else { "cpu.weight" };
    let may_wait = s.weight < s.default && !is_waited_for(w, &s.threads);
    let severity = if may_wait { Severity::Info } else { Severity::Warn };
    let gets = 100.0 * s.sum.run_ms_s / (s.sum.run_ms_s + s.sum.wait_ms_s);
    let mut f = Fire::new(
        severity,
        format!("{} ({name} {}) gets {gets:.0}% of the CPU time it could use", g.path, s.weight),
    );
    let text =
        format!("its threads wait {:.0} ms/s and run {:.0} ms/s", s.sum.wait_ms_s, s.sum.run_ms_s);
    f.evidence.push(Evidence::new("run_delay", s.sum.wait_ms_s, "ms/s", text).over(WAITING));
    for r in s.rivals.iter().filter(|r| r.cores >= 0.05).take(MAX_CULPRITS) {
        let of = match &r.who {
            Who::TasksOf { .. } => format!("{} (as {name} {} each)", r.who, r.weight),
            _ => format!("{} ({name} {})", r.path(), r.weight),
        };
        let text = format!("{of}: {:.2} CPUs", r.cores);
        f.evidence.push(Evidence::new("usage", r.cores, "CPUs", text));
    }
    f.by = by(w, &s.rivals);
    let text = format!("idle {idle:.0}%");
    f.evidence.push(Evidence::new("idle", idle, "%", text).over(IDLE));
    let named: Vec<String> = s
        .threads
        .iter()
        .take(3)
        .map(|t| format!("{} {:.0} ms/s", tasks::name(t), t.wait_ms_s()))
        .collect();
    f.evidence.push(Evidence::text("threads", format!("waiting longest: {}", named.join(", "))));
    f.examples = s.threads.iter().take(5).map(|t| tasks::name(t)).collect();
    let because = match g.cpu.and_then(|c| c.throttled_share()) {
        Some(share) => format!("throttled in {:.0}% of its periods", 100.0 * share),
        None => "it has no CPU quota".to_owned(),
    };
    f.ruled_out.push(RuledOut::new("cfs-throttle", because));
    let because = format!("{idle:.0}% idle over all CPUs");
    f.ruled_out.push(RuledOut::new("runq-latency-idle-elsewhere", because));
    let dir = file(g, "..");
    f.next.push(format!("grep . {} {dir}/*/{name}", file(g, name)));
    f.next.push(format!("cat {}", file(g, "cpu.stat")));
    let most = s.rivals.iter().map(|r| r.weight).max().unwrap_or(s.default).max(s.default);
    f.next.push(format!("echo {most} > {}", file(g, name)));
    f
}
