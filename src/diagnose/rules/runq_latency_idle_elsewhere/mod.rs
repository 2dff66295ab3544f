//! `runq-latency-idle-elsewhere`: threads wait for a CPU while another one is idle.

mod measured;

use super::super::Aspect;
use super::super::culprit::Culprit;
use super::common::by;
use super::common::cgroups;
use super::common::measured::run_queue;
use super::common::tasks::{SCHED_IDLE, is_bound, latest, may_be_sleep};
use super::common::text::{count, ms, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::bpf::RunqFigures;
use crate::metrics::cpu::{CpuFigures, ThreadWait};
use crate::sample::subject::{CpuId, Subject};
use std::collections::{BTreeMap, BTreeSet};

/// Waiting as a fraction of runnable time.
const WARN: f64 = 0.3;
const CRIT: f64 = 0.6;
/// Below this an active finding clears.
const CLEAR: f64 = 0.2;
/// Wait per time slice, ms: the mean, or with eBPF the 99th percentile.
const SLICE_MS: f64 = 3.0;
/// Minimum wait of a thread, ms/s.
const LEAST_MS_S: f64 = 100.0;
/// Short waits count too on a CPU that is at most this idle, % ...
const FULL: f64 = 5.0;
/// ... and for which threads wait this long in total, ms/s.
const CROWD_MS_S: f64 = 1500.0;
/// A CPU counts as idle from here on, %.
const IDLE: f64 = 80.0;
/// A CPU on which threads queue is at most this idle, %.
const BUSY: f64 = 20.0;
/// Throttled time must be below this fraction of the wait.
const THROTTLED: f64 = 0.1;
/// Maximum number of threads that a finding marks.
const MARKED: usize = 1000;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("runq-latency-idle-elsewhere"),
    title: "runnable threads wait for a CPU while another CPU is idle",
    condition: "Threads spend 30% or more of their runnable time waiting (run_delay), critical \
        at 60%, with 3 ms or more per time slice and 100 ms or more per second, on a CPU that \
        is at most 20% idle while another is at least 80% idle. On a CPU with no idle time left \
        (5% or less), waits of any length count once its threads wait 1500 ms/s in total. With \
        eBPF, the 3 ms apply to the 99th percentile of the CPU's waits and to a wait of the \
        thread itself; without it, to the thread's mean. If the kernel does not report waits \
        per thread, all waits for the CPU are judged together, from eBPF. Throttled time of the \
        thread's cgroup must be below 10% of the wait. For 3 of 5 s. Clears below 20%.",
    look_alikes: "A CPU quota: throttled time counts as run_delay too (cfs-throttle), but the \
        CPU is idle meanwhile. All CPUs busy: there is nowhere to go. Niced and SCHED_IDLE \
        threads are meant to wait and do not count. One long wait, or a few. Sleep: since 6.12 \
        run_delay includes the sleep of a thread that was moved while falling asleep, so waits \
        of 64 ms or more at fewer than 5 a second count only if eBPF saw them. Isolated CPUs \
        (isolcpus) are idle on purpose and do not count.",
    remedy: "Check what keeps the threads there: Cpus_allowed_list, taskset, cpuset.cpus, \
        worker_cpu_affinity, two programs that pin their thread pools to the same cores. Widen \
        the mask or spread the pins.",
    sources: "eBPF (sched_switch); /proc/PID/task/TID/schedstat (run_delay in ns, since 2.6.9). \
        Measured: three spinners pinned to CPU 0 of two wait 67% of the time, 7.9 ms per slice, \
        while CPU 1 is 95% idle; a quota of 20% shows 1572 ms of run_delay for 1571 ms of \
        throttled time.",
    hold: Hold::of(3, 5),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Sched, CollectorId::Cpu],
    explains: &[],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(cpus) = w.derived.cpu.as_ref() else { return };
    let isolated = w.tick.samples.cpu.as_ref().map_or(&[][..], |s| &s.data.isolated);
    let idle: Vec<(CpuId, f64)> = cpus
        .cpus
        .iter()
        .map(|(id, s)| (*id, s.idle + s.iowait))
        .filter(|(id, idle)| *idle >= IDLE && !isolated.contains(id))
        .collect();
    if idle.is_empty() {
        return;
    }
    let bpf = run_queue(w);
    let told = w.tick.samples.sched.as_ref().is_some_and(|s| !s.data.threads.is_empty());
    if !told {
        match bpf {
            Some(bpf) => measured::judge(w, cpus, bpf, &idle, out),
            None => out.cannot_judge(NO_SOURCE),
        }
        return;
    }
    let mut queues: BTreeMap<CpuId, Vec<Waiter<'_>>> = BTreeMap::new();
    let all = latest(w);
    let crowded = crowded(w, cpus, &all);
    for t in all {
        if let Some((cpu, waiter)) = waiter(w, cpus, bpf, &crowded, t) {
            queues.entry(cpu).or_default().push(waiter);
        }
    }
    let hidden = |x: &Waiter<'_>| x.doubt.filter(|_| bpf.is_none());
    for (cpu, waiters) in &mut queues {
        let doubt = waiters.iter().filter(|x| x.share >= WARN).find_map(hidden);
        if let Some(doubt) = doubt {
            out.unknown(Subject::Cpu { cpu: *cpu }, doubt);
        }
        waiters.retain(|x| hidden(x).is_none());
    }
    queues.retain(|_, waiters| !waiters.is_empty());
    for (cpu, mut waiters) in queues {
        let subject = Subject::Cpu { cpu };
        waiters.sort_by(|a, b| {
            b.share.total_cmp(&a.share).then(a.wait.thread.task.cmp(&b.wait.thread.task))
        });
        if waiters.first().is_some_and(|x| x.share >= WARN) {
            waiters.retain(|x| x.share >= WARN);
            let mut f = fire(w, cpu, &waiters, &idle);
            if let Some(bpf) = bpf {
                measured::evidence(&mut f, w, cpu, bpf);
            }
            out.fire(subject, f);
        } else {
            out.linger(subject);
        }
    }
}

const NO_DISTRIBUTION: &str = "how long each wait is: their mean is short (needs eBPF)";
const SLEPT: &str = "whether threads waited or slept: since 6.12 run_delay includes the sleep of a \
    thread that is moved while falling asleep (needs eBPF)";
const NO_SOURCE: &str =
    "no waits for a CPU: neither /proc/PID/schedstat (CONFIG_SCHED_INFO) nor eBPF";

/// A thread that waits, and not because of a quota.
struct Waiter<'a> {
    wait: &'a ThreadWait,
    share: f64,
    slice_ms: f64,
    /// Why run_delay alone is not enough evidence.
    doubt: Option<&'static str>,
    /// Throttled time of its cgroups is known and small.
    throttle_known: bool,
}

/// Does it wait long enough, and is it neither niced nor SCHED_IDLE?
fn matters(t: &ThreadWait) -> bool {
    let nice = t.thread.nice.unwrap_or(0) > 0 || t.thread.policy == Some(SCHED_IDLE);
    !nice && t.wait_ms_s() >= LEAST_MS_S && t.wait_share().is_some_and(|s| s >= CLEAR)
}

/// CPUs without idle time for which threads always wait. There even short waits delay work: each
/// request waits for all the others.
fn crowded(w: &Window<'_>, cpus: &CpuFigures, threads: &[&ThreadWait]) -> BTreeSet<CpuId> {
    let mut sums: BTreeMap<CpuId, f64> = BTreeMap::new();
    // One long wait may be sleep; a crowd waits often.
    for t in threads.iter().filter(|t| matters(t) && !may_be_sleep(w, t)) {
        if let Some(cpu) = t.thread.last_cpu {
            *sums.entry(cpu).or_default() += t.wait_ms_s();
        }
    }
    let full = |cpu: CpuId| cpus.cpu(cpu).is_some_and(|s| s.idle + s.iowait <= FULL);
    sums.into_iter()
        .filter(|(cpu, ms)| *ms >= CROWD_MS_S && full(*cpu))
        .map(|(cpu, _)| cpu)
        .collect()
}

fn waiter<'a>(
    w: &Window<'_>,
    cpus: &CpuFigures,
    bpf: Option<&RunqFigures>,
    crowded: &BTreeSet<CpuId>,
    t: &'a ThreadWait,
) -> Option<(CpuId, Waiter<'a>)> {
    if !matters(t) {
        return None;
    }
    let (share, slice_ms) = (t.wait_share()?, t.wait_per_slice_ms()?);
    let home = t.thread.last_cpu?;
    // A thread that waits while its CPU is idle is throttled or frozen, or has just moved.
    if cpus.cpu(home).is_some_and(|s| s.idle + s.iowait > BUSY) {
        return None;
    }
    let short_counts = slice_ms < SLICE_MS && crowded.contains(&home);
    let doubt = doubt(w, t, slice_ms).filter(|_| !short_counts);
    if doubt.is_some() && bpf.is_some_and(|b| !measured::waits_long(b, home, t.thread.task.tid)) {
        return None;
    }
    let throttled = t.thread.cgroup.as_deref().and_then(|path| throttled_ns(w, path, t.dt));
    if throttled.is_some_and(|ns| ns >= THROTTLED * t.run_delay_ns as f64) {
        return None;
    }
    let waiter = Waiter { wait: t, share, slice_ms, doubt, throttle_known: throttled.is_some() };
    Some((home, waiter))
}

/// What the run_delay of this thread may be, other than a series of long waits.
fn doubt(w: &Window<'_>, t: &ThreadWait, slice_ms: f64) -> Option<&'static str> {
    if slice_ms < SLICE_MS {
        // A mean hides the long waits of a thread that is woken often.
        return Some(NO_DISTRIBUTION);
    }
    may_be_sleep(w, t).then_some(SLEPT)
}

/// Maximum throttled time of a cgroup and those above it, ns, scaled to an interval of `dt`.
/// `None`: the counters were not read.
fn throttled_ns(w: &Window<'_>, path: &str, dt: Duration) -> Option<f64> {
    // cgroups are read on a budget: on a big host not every few seconds.
    let moments = w.history.back_from(w.tick.seq);
    let moments = moments.take_while(|m| w.tick.mono.since(m.tick.mono) <= cgroups::REMEMBER);
    let groups = moments.filter_map(|m| m.derived.cgroups.as_deref()).find(|g| !g.is_empty())?;
    let inside = |dir: &str| {
        dir == "/" || path.strip_prefix(dir).is_some_and(|r| r.is_empty() || r.starts_with('/'))
    };
    Some(
        groups
            .iter()
            .filter(|g| inside(&g.path))
            .filter_map(|g| {
                let rate = g.cpu?.throttled_ns as f64 / g.dt.as_secs_f64();
                Some(rate * dt.as_secs_f64())
            })
            .fold(0.0, f64::max),
    )
}

fn fire(w: &Window<'_>, cpu: CpuId, waiters: &[Waiter<'_>], idle: &[(CpuId, f64)]) -> Fire {
    let worst = waiters.first().map_or(0.0, |x| x.share);
    let severity = if worst >= CRIT { Severity::Crit } else { Severity::Warn };
    let n = count(waiters.len(), "thread");
    let verb = if waiters.len() == 1 { "waits" } else { "wait" };
    let free: Vec<String> = idle.iter().take(4).map(|(c, _)| c.to_string()).collect();
    let (_, most_idle) =
        idle.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default();
    let mut f = Fire::new(
        severity,
        format!(
            "{n} {verb} up to {:.0}% of the time for {cpu} while {} is {most_idle:.0}% idle",
            100.0 * worst,
            free.first().map_or("another CPU", String::as_str),
        ),
    );
    f.count = u32::try_from(waiters.len()).unwrap_or(u32::MAX);
    f.examples = waiters
        .iter()
        .take(5)
        .map(|x| format!("{}/{}", x.wait.thread.comm, x.wait.thread.task.tid))
        .collect();
    f.aspect = Aspect::RunQueue;
    f.tasks = waiters.iter().take(MARKED).map(|x| x.wait.thread.task).collect();
    let at = if severity == Severity::Crit { CRIT } else { WARN };
    if let Some(x) = waiters.first() {
        let text = format!(
            "schedstat: {} waits {:.0}% of its runnable time, {:.0} ms/s",
            x.wait.thread.comm,
            100.0 * x.share,
            x.wait.wait_ms_s()
        );
        f.evidence.push(Evidence::new("run_delay", 100.0 * x.share, "%", text).over(100.0 * at));
        let text = format!("{} ms per time slice", ms(x.slice_ms));
        let e = Evidence::new("wait/slice", x.slice_ms, "ms", text);
        f.evidence.push(if x.slice_ms >= SLICE_MS { e.over(SLICE_MS) } else { e });
        allowed(&mut f, x);
    }
    let sum = waiters.iter().fold(0.0, |sum, x| sum + x.wait.wait_ms_s());
    let text = format!("{sum:.0} ms/s in total: {:.1} threads waiting at any moment", sum / 1e3);
    f.evidence.push(Evidence::new("waiting", sum, "ms/s", text));
    let text =
        format!("idle: {}{}", free.join(", "), if idle.len() > 4 { " and more" } else { "" });
    f.evidence.push(Evidence::new("idle", most_idle, "%", text).over(IDLE));
    let busy = w.derived.cpu.as_ref().and_then(|c| c.cpu(cpu)).map(|s| 100.0 - s.idle - s.iowait);
    if let Some(b) = busy {
        f.evidence.push(Evidence::new("busy", b, "%", format!("{cpu} is {b:.0}% busy")));
        f.ruled_out.push(RuledOut::new("cpu-saturation", format!("{} idle", free.join(", "))));
    }
    if waiters.iter().any(|x| x.throttle_known) {
        let because = "throttled time of their cgroups is below 10% of the wait";
        f.ruled_out.push(RuledOut::new("cfs-throttle", because));
    } else {
        f.confidence = Confidence::Suspected;
        f.missing.push("whether a CPU quota throttles them (cpu.stat of their cgroup)".to_owned());
    }
    if let Some(x) = waiters.first() {
        let tid = x.wait.thread.task.tid;
        f.next.push(format!("grep Cpus_allowed_list /proc/{tid}/status"));
        if let Some(x) = waiters.iter().find(|x| !is_bound(&x.wait.thread)) {
            let tid = x.wait.thread.task.tid;
            f.next.push(format!("taskset -cp 0-{} {tid}", w.host.cpus.saturating_sub(1)));
        }
        if let Some(g) = &x.wait.thread.cgroup {
            f.next.push(format!("cat /proc/{tid}/cpuset  # in cgroup {}", sh(g)));
        }
    }
    f.by = by::of_cpu(w, cpu);
    f.next.push(who_runs(cpu, &f.by));
    f
}

/// Shows who runs there, or the affinity and policy of those who are known to.
fn who_runs(cpu: CpuId, by: &[Culprit]) -> String {
    if let Some(pids) = by::pids(by) {
        return format!("ps -Lo pid,tid,psr,cls,rtprio,ni,pcpu,comm -p {pids}");
    }
    format!("ps -eLo pid,tid,psr,pcpu,comm | awk '$3 == {}' | sort -rnk4 | head", cpu.0)
}

/// Adds the affinity mask, which may be why the threads stay there.
fn allowed(f: &mut Fire, x: &Waiter<'_>) {
    match &x.wait.thread.allowed {
        Some(list) => {
            let text = format!("allowed CPUs: {list}");
            f.evidence.push(Evidence::text("Cpus_allowed_list", text));
        }
        None => f.missing.push("which CPUs they may use (Cpus_allowed_list)".to_owned()),
    }
}
