//! Who uses a CPU, a quota or the switches that others wait for: processes, or cgroups where their
//! processes are too short-lived to be measured.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::Window;
use super::super::super::culprit::{Culprit, MAX_CULPRITS, Resource, Sched, Share, Who};
use super::cgroups::REMEMBER;
use super::largest::{LEAST, largest};
use super::tasks;
use crate::metrics::cgroups::{CgroupCpuFigures, CgroupFigures};
use crate::metrics::cpu::ThreadWait;
use crate::sample::sched::TaskKind;
use crate::sample::subject::{CgroupId, CpuId, is_within};

/// Cgroups are named instead of processes if these use less than this part of what those do.
const TOO_LITTLE: f64 = 0.5;

/// Who uses the CPUs. Niced threads give way to the others.
pub(crate) fn of_host(w: &Window<'_>) -> Vec<Culprit> {
    let whole = 1000.0 * f64::from(w.host.cpus.max(1));
    let threads = tasks::latest(w);
    let all: Vec<Use<'_>> = threads.iter().filter_map(|t| runs(t)).collect();
    let processes = ranked(w, &all, whole, &Resource::AllCpus, |t| !tasks::is_niced(t));
    let groups = groups_of_host(w, whole);
    let sum = |all: &[Culprit]| all.iter().fold(0.0, |sum, c| sum + c.share.percent());
    if sum(&processes) < TOO_LITTLE * sum(&groups) { groups } else { processes }
}

/// Who runs on this CPU. Only those count that cannot run elsewhere, or were there at both ends of
/// the interval: the time of a thread that came from another CPU is not all of this one.
pub(crate) fn of_cpu(w: &Window<'_>, cpu: CpuId) -> Vec<Culprit> {
    let threads = tasks::latest(w);
    let here = threads.iter().filter(|t| t.thread.last_cpu == Some(cpu) && stayed(w, t, cpu));
    let all: Vec<Use<'_>> = here.filter_map(|t| runs(t)).collect();
    ranked(w, &all, 1000.0, &Resource::Cpu(cpu), |t| !tasks::is_niced(t))
}

/// The same of those who may send packets from it, niced or not: `ksoftirqd` takes in what others
/// send, and workers are charged with softirqs on top of them. Also whether that one was among them.
pub(crate) fn senders(w: &Window<'_>, cpu: CpuId) -> (Vec<Culprit>, bool) {
    let threads = tasks::latest(w);
    let here = threads.iter().filter(|t| t.thread.last_cpu == Some(cpu) && stayed(w, t, cpu));
    let all: Vec<Use<'_>> = here.filter_map(|t| runs(t)).collect();
    let takes_in = all.iter().any(|(t, ms)| is_ksoftirqd(t) && *ms >= 10.0 * LEAST);
    (ranked(w, &all, 1000.0, &Resource::Cpu(cpu), |t| !tasks::is_bound(&t.thread)), takes_in)
}

fn is_ksoftirqd(t: &ThreadWait) -> bool {
    t.thread.comm.starts_with("ksoftirqd/")
}

/// This thread alone, of the time of a CPU.
pub(crate) fn of_thread(w: &Window<'_>, cpu: CpuId, t: &ThreadWait) -> Option<Culprit> {
    let share = Share::new(tasks::run_ms_s(t)?, 1000.0, Resource::Cpu(cpu))?;
    Some(culprit(who(w, t, 1), t, share))
}

/// Who uses the CPU time of a cgroup, as it counts it; else (v1 without cpuacct) what it may use.
pub(crate) fn of_cgroup(w: &Window<'_>, path: &str, cpu: &CgroupCpuFigures) -> Vec<Culprit> {
    let (cores, of): (f64, fn(String) -> Resource) = match (cpu.usage_cores, cpu.limit_cores) {
        (Some(used), _) => (used, Resource::CpuOfCgroup),
        (None, Some(limit)) => (limit, Resource::QuotaOf),
        (None, None) => return Vec::new(),
    };
    let threads = tasks::latest(w);
    let inside = |t: &&&ThreadWait| t.thread.cgroup.as_deref().is_some_and(|p| is_within(p, path));
    let all: Vec<Use<'_>> = threads.iter().filter(inside).filter_map(|t| runs(t)).collect();
    ranked(w, &all, 1000.0 * cores, &of(path.to_owned()), |_| true)
}

/// Who is switched to, of `ctxt` switches/s.
pub(crate) fn of_switches(w: &Window<'_>, ctxt: f64) -> Vec<Culprit> {
    let threads = tasks::latest(w);
    let all: Vec<Use<'_>> = threads.iter().map(|t| (*t, tasks::slices_s(t))).collect();
    ranked(w, &all, ctxt, &Resource::Switches, |_| true)
}

/// The processes among these, for `-p` of pidstat, perf and ps: `501,502`.
pub(crate) fn pids(by: &[Culprit]) -> Option<String> {
    let mut all: Vec<String> = Vec::new();
    for pid in by.iter().filter_map(|c| c.who.pid()).map(|pid| pid.to_string()) {
        if !all.contains(&pid) {
            all.push(pid);
        }
    }
    (!all.is_empty()).then(|| all.join(","))
}

/// A thread and what it uses, in any unit.
type Use<'a> = (&'a ThreadWait, f64);

fn runs(t: &ThreadWait) -> Option<Use<'_>> {
    Some((t, tasks::run_ms_s(t)?))
}

/// What the threads of a process use.
struct Sum<'a> {
    part: f64,
    threads: usize,
    /// The one that uses most.
    most: Use<'a>,
}

/// The processes that use most of `whole`, of those whose threads `counts` lets through.
fn ranked(
    w: &Window<'_>,
    all: &[Use<'_>],
    whole: f64,
    of: &Resource,
    counts: fn(&ThreadWait) -> bool,
) -> Vec<Culprit> {
    let top = top(all, whole, of, counts).into_iter();
    top.map(|(s, share)| culprit(who(w, s.most.0, s.threads), s.most.0, share)).collect()
}

/// All threads are a part of the whole, those that do not count among them.
fn top<'a>(
    all: &[Use<'a>],
    whole: f64,
    of: &Resource,
    counts: fn(&ThreadWait) -> bool,
) -> Vec<(Sum<'a>, Share)> {
    let whole = whole.max(all.iter().fold(0.0, |sum, (_, n)| sum + n));
    let mut sums: BTreeMap<u32, Sum<'_>> = BTreeMap::new();
    for (t, n) in all.iter().filter(|(t, n)| *n > 0.0 && counts(t)) {
        let new = || Sum { part: 0.0, threads: 0, most: (t, *n) };
        let sum = sums.entry(t.thread.task.pid).or_insert_with(new);
        sum.part += n;
        sum.threads += 1;
        if *n > sum.most.1 {
            sum.most = (t, *n);
        }
    }
    // In the order of pids, and so are equals.
    let parts = sums.into_values().map(|s| {
        let part = s.part;
        (s, part)
    });
    largest(parts.collect(), whole, of)
}

fn culprit(who: Who, t: &ThreadWait, share: Share) -> Culprit {
    let sched = Sched::new(t.thread.policy, t.thread.nice);
    Culprit { who, share, sched, cgroup: t.thread.cgroup.clone() }
}

/// The process, or the thread if it is the only one of its process that counts.
fn who(w: &Window<'_>, t: &ThreadWait, threads: usize) -> Who {
    let (task, comm) = (t.thread.task, || t.thread.comm.clone());
    match t.thread.kind {
        Some(TaskKind::Kernel | TaskKind::BoundKernel) => Who::Kernel { task, comm: comm() },
        _ if task.tid == task.pid => Who::Process { pid: task.pid, comm: Some(comm()) },
        _ if threads == 1 => Who::Thread { task, comm: comm(), process: process_name(w, task.pid) },
        _ => Who::Process { pid: task.pid, comm: process_name(w, task.pid) },
    }
}

/// The name of its first thread, which may have been asleep since it was read.
pub(crate) fn process_name(w: &Window<'_>, pid: u32) -> Option<String> {
    let ticks = w.history.back_from(w.tick.seq);
    let mut samples = ticks.filter_map(|m| m.tick.samples.sched.as_ref());
    samples.find_map(|s| {
        // They are in the order of processes and threads, and there may be hours of them.
        let rows = &s.data.threads;
        let first = rows.partition_point(|r| (r.task.pid, r.task.tid) < (pid, pid));
        rows.get(first).filter(|r| r.task.tid == pid).map(|r| r.comm.clone())
    })
}

/// Was it on this CPU when it was read before, or may it run nowhere else?
fn stayed(w: &Window<'_>, t: &ThreadWait, cpu: CpuId) -> bool {
    if t.thread.allowed.as_deref().is_some_and(|list| list == cpu.0.to_string()) {
        return true;
    }
    let ticks = w.history.back_from(w.tick.seq);
    let ticks = ticks.take_while(|m| w.tick.mono.since(m.tick.mono) <= 2 * tasks::REMEMBER);
    let rows = ticks.filter_map(|m| m.tick.samples.sched.as_ref()).filter_map(|s| {
        let row = s.data.threads.iter().find(|r| r.task == t.thread.task)?;
        Some((s.span.mid(), row.last_cpu))
    });
    // The first is the row that these figures end with.
    let mut rows = rows.skip(1);
    rows.next().is_some_and(|(_, last)| last == Some(cpu))
}

/// The cgroups that use the CPUs, none of them inside another.
fn groups_of_host(w: &Window<'_>, whole: f64) -> Vec<Culprit> {
    let moments = w.history.back_from(w.tick.seq);
    let moments = moments.take_while(|m| w.tick.mono.since(m.tick.mono) < REMEMBER);
    let mut found: BTreeMap<(&str, CgroupId), (&CgroupFigures, Share)> = BTreeMap::new();
    // The newest comes first. Few of them use this much.
    for g in moments.filter_map(|m| m.derived.cgroups.as_deref()).flatten() {
        let Some(cores) = g.cpu.and_then(|c| c.usage_cores) else { continue };
        let Some(share) = Share::new(1000.0 * cores, whole, Resource::AllCpus) else { continue };
        found.entry((&g.mount, g.id)).or_insert((g, share));
    }
    // Versions 1 and 2 may both count: one of them is enough.
    let Some(mount) = found.keys().next().map(|(mount, _)| *mount) else { return Vec::new() };
    let mut all: Vec<(&CgroupFigures, Share)> = found
        .into_values()
        .filter(|(g, s)| &*g.mount == mount && g.path.len() > 1 && s.percent() >= LEAST)
        .collect();
    let above: BTreeSet<&str> = all.iter().flat_map(|(g, _)| ancestors(&g.path)).collect();
    all.retain(|(g, _)| !above.contains(&*g.path));
    all.sort_by(|a, b| b.1.percent().total_cmp(&a.1.percent()));
    let used = all.iter().fold(0.0, |sum, (_, s)| sum + s.percent()).max(100.0);
    let named = all.iter().take(MAX_CULPRITS).filter_map(|(g, s)| {
        // They are read at different times.
        let share = Share::new(s.percent(), used, Resource::AllCpus)?;
        let who = Who::Cgroup { path: g.path.to_string() };
        Some(Culprit { who, share, sched: Sched::default(), cgroup: None })
    });
    named.collect()
}

fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(path.rsplit_once('/').map(|p| p.0), |p| p.rsplit_once('/').map(|p| p.0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sample::sched::ThreadSched;
    use crate::sample::subject::TaskId;

    fn thread(pid: u32, tid: u32, nice: i8) -> ThreadWait {
        let task = TaskId { pid, tid, start: 1 };
        let thread = ThreadSched { task, nice: Some(nice), ..ThreadSched::default() };
        let dt = Duration::from_secs(1);
        ThreadWait { thread, dt, run_ns: 1, run_delay_ns: 0, slices: 1 }
    }

    /// Process, threads and share of those who are named.
    fn named(all: &[(u32, u32, f64)], whole: f64) -> Vec<(u32, usize, f64)> {
        let threads: Vec<ThreadWait> = all.iter().map(|(p, t, _)| thread(*p, *t, 0)).collect();
        let all: Vec<Use<'_>> = threads.iter().zip(all).map(|(t, (_, _, n))| (t, *n)).collect();
        let top = top(&all, whole, &Resource::AllCpus, |_| true).into_iter();
        top.map(|(s, share)| (s.most.0.thread.task.pid, s.threads, share.percent())).collect()
    }

    #[test]
    fn threads_of_a_process_are_summed_and_the_three_that_use_most_are_named() {
        let all = [(5, 5, 100.0), (7, 8, 300.0), (7, 9, 200.0), (6, 6, 250.0), (4, 4, 110.0)];
        assert_eq!(named(&all, 2000.0), [(7, 2, 25.0), (6, 1, 12.5), (4, 1, 5.5)]);
        // Together they show 120%: each gets its part of that.
        let all = [(1, 1, 900.0), (2, 2, 300.0)];
        assert_eq!(named(&all, 1000.0), [(1, 1, 75.0), (2, 1, 25.0)]);
        assert_eq!(named(&[], 0.0), []);
    }

    /// They give way, but their time is still a part of what is measured.
    #[test]
    fn who_does_not_count_is_a_part_of_the_whole() {
        let (niced, other) = (thread(1, 1, 19), thread(2, 2, 0));
        let all = [(&niced, 600.0), (&other, 600.0)];
        let top = top(&all, 1000.0, &Resource::AllCpus, |t| !tasks::is_niced(t));
        let named: Vec<(u32, f64)> =
            top.iter().map(|(s, share)| (s.most.0.thread.task.pid, share.percent())).collect();
        assert_eq!(named, [(2, 50.0)]);
    }

    #[test]
    fn ancestors_end_at_the_top() {
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a/b", "/a", ""]);
        assert_eq!(ancestors("").count(), 0);
    }
}
