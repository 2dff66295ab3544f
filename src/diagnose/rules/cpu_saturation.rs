//! `cpu-saturation`: more threads are runnable than there are CPUs.

use super::common::by;
use super::common::lasting::lasting;
use super::common::tasks::{self, Spare, is_niced};
use super::common::text::time;
use crate::diagnose::culprit::{Policy, Who};
use crate::diagnose::rules::prelude::*;
use crate::metrics::Derived;
use crate::metrics::cpu::ThreadWait;

/// cpu PSI some, %.
const WAITING: f64 = 40.0;
const WAITING_CRIT: f64 = 80.0;
/// Idle time and what niced threads use, %. Steal is neither.
const IDLE: f64 = 10.0;
/// How long the critical threshold must be exceeded, and within which time.
const CRIT_FOR: Duration = Duration::from_secs(30);
const CRIT_OF: Duration = Duration::from_secs(36);
/// Runnable tasks per CPU, without PSI.
const RUNNING: f64 = 2.0;
/// An active finding clears below this fraction of the threshold, or above this idle time.
const CLEAR: f64 = 0.7;
const IDLE_CLEAR: f64 = 20.0;

/// Steal, %, from which the hypervisor is why CPU time is short.
const STOLEN: f64 = 10.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("cpu-saturation"),
    title: "all CPUs are busy and runnable threads wait for one",
    condition: "Tasks wait for a CPU 40% or more of the time (cpu PSI some) with 10% idle or \
        less, for 8 of 10 s. Critical at 80% or more for 30 s. Without PSI: two or more \
        runnable tasks per CPU. Clears below 28%, or above 20% idle. What niced threads use \
        counts as idle.",
    look_alikes: "Busy CPUs without a queue: one thread per CPU, nothing waits. Niced batch \
        jobs (nice 10 or more, SCHED_IDLE) are meant to wait and do not count. Threads that \
        wait while a CPU is idle (runq-latency-idle-elsewhere) or that a quota throttles \
        (cfs-throttle): idle time is left. A high load average of blocked tasks \
        (load-without-cpu).",
    remedy: "Find what uses the CPUs (top, perf top). Reduce concurrency, move work \
        elsewhere, or add CPUs. Meanwhile a nice value or a cgroup weight protects what \
        matters.",
    sources: "/proc/pressure/cpu, /proc/stat; the USE method; node-mixin warns at a load of 2 \
        per core over 15 min, netdata at 85 and 95% over 10 min.",
    hold: Hold::of(8, 10),
    needs_time: Duration::from_secs(9),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Cpu], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(spare) = Spare::of(w, w.derived) else { return };
    let psi = w.recent(3).find_map(|d| d.psi?.cpu_some);
    // PSI includes niced threads.
    let asleep = asleep(w);
    let psi = psi.map(|all| Pressure { all, counted: counted(w, w.derived, all, asleep) });
    let cpus = f64::from(w.host.cpus.max(1));
    let queue = w.derived.cpu.as_ref().and_then(|c| c.running).map(f64::from);
    // Relative to the threshold.
    let want = match (psi, queue) {
        (Some(p), _) => p.counted / WAITING,
        (None, Some(n)) => n / (RUNNING * cpus),
        (None, None) => {
            return out.cannot_judge("no /proc/pressure and no procs_running in /proc/stat");
        }
    };
    if want >= 1.0 && spare.total() <= IDLE {
        out.fire(Subject::Host, fire(w, spare, psi, queue));
    } else if want >= CLEAR && spare.total() <= IDLE_CLEAR {
        out.linger(Subject::Host);
    }
}

/// PSI cpu some, %.
#[derive(Clone, Copy)]
struct Pressure {
    all: f64,
    /// Without niced threads.
    counted: f64,
}

fn sum(sum: f64, t: &ThreadWait) -> f64 {
    sum + t.wait_ms_s()
}

/// Wait of threads that are not niced and may have slept meanwhile, ms/s.
fn asleep(w: &Window<'_>) -> f64 {
    let Some(sched) = w.derived.sched.as_ref() else { return 0.0 };
    let ordinary = sched.threads.iter().filter(|t| !is_niced(t));
    let asleep: Vec<&ThreadWait> = ordinary.filter(|t| tasks::may_be_sleep(w, t)).collect();
    // If many threads look like that, they really wait: it is a queue of fifty threads per CPU.
    let few = asleep.len() as f64 <= 2.0 * f64::from(w.host.cpus.max(1));
    if few { asleep.into_iter().fold(0.0, sum) } else { 0.0 }
}

/// The part of PSI `psi` that is not due to niced threads, %.
fn counted(w: &Window<'_>, d: &Derived, psi: f64, asleep: f64) -> f64 {
    psi.min(ordinary(w, d, psi, asleep).unwrap_or(psi))
}

/// Wait of threads that are not niced, in % of the time, summed and divided by the CPUs. It is no
/// less than PSI would be for them alone: PSI is a mean over the non-idle CPUs, and here none is
/// idle. It is the wait counted by all CPUs, including short-lived processes, minus that of the
/// niced threads and of those that may have slept meanwhile. A kernel that does not count it per
/// CPU counts it per thread; whatever PSI shows beyond that belongs to short-lived processes.
/// `None`: no thread is niced.
fn ordinary(w: &Window<'_>, d: &Derived, psi: f64, asleep: f64) -> Option<f64> {
    let sched = d.sched.as_ref()?;
    let cpus = f64::from(w.host.cpus.max(1));
    let nice = sched.threads.iter().filter(|t| is_niced(t)).fold(0.0, sum);
    let all = if sched.cpus.is_empty() {
        sched.threads.iter().fold(0.0, sum).max(psi * 10.0 * cpus)
    } else {
        sched.cpus.iter().fold(0.0, |sum, (_, ms_s, _)| sum + ms_s)
    };
    // 1 ms/s is a tenth of a percent.
    (nice > 0.0).then(|| (all - nice - asleep).max(0.0) / 10.0 / cpus)
}

fn fire(w: &Window<'_>, spare: Spare, psi: Option<Pressure>, queue: Option<f64>) -> Fire {
    // Which threads may have slept is known only for the last tick.
    let (bad, _) = lasting(w, CRIT_OF, |d| {
        let psi = d.psi.and_then(|p| p.cpu_some);
        psi.is_some_and(|p| counted(w, d, p, 0.0) >= WAITING_CRIT)
    });
    let crit = bad >= CRIT_FOR && psi.is_some_and(|p| p.counted >= WAITING_CRIT);
    let severity = if crit { Severity::Crit } else { Severity::Warn };
    let busy = 100.0 - spare.idle;
    let mut f = match psi {
        Some(p) => Fire::new(
            severity,
            format!(
                "{} CPUs are {busy:.0}% busy and tasks wait for one {:.0}% of the time",
                w.host.cpus, p.counted
            ),
        ),
        None => Fire::new(
            severity,
            format!(
                "{} CPUs are {busy:.0}% busy with {:.0} runnable tasks",
                w.host.cpus,
                queue.unwrap_or(0.0)
            ),
        ),
    };
    match psi {
        Some(p) => {
            let for_long =
                if crit { format!(", over 80% for {}", time(bad)) } else { String::new() };
            let text = if p.counted < p.all {
                format!(
                    "cpu pressure some {:.0}%{for_long}, at most {:.0}% without niced threads",
                    p.all, p.counted
                )
            } else {
                format!("cpu pressure some {:.0}%{for_long}", p.all)
            };
            let at = if crit { WAITING_CRIT } else { WAITING };
            f.evidence.push(Evidence::new("psi cpu", p.counted, "%", text).over(at));
        }
        None => f.missing.push("how long tasks wait (no /proc/pressure)".to_owned()),
    }
    f.evidence.push(Evidence::new("idle", spare.total(), "%", spare.text()).over(IDLE));
    if let Some(n) = queue {
        let text = format!("{n:.0} runnable tasks on {} CPUs", w.host.cpus);
        f.evidence.push(Evidence::new("procs_running", n, "", text));
    }
    f.evidence.extend(tasks::waiting(w));
    f.examples = tasks::waiters(w).into_iter().map(tasks::name).collect();
    if let Some(steal) = w.derived.cpu.as_ref().and_then(|c| c.total).map(|t| t.steal) {
        let text = format!("steal {steal:.0}%");
        if steal < STOLEN {
            f.ruled_out.push(RuledOut::new("cpu-steal", text));
        } else {
            let text = format!("{text}: the hypervisor takes part of these CPUs");
            f.evidence.push(Evidence::new("steal", steal, "%", text).over(STOLEN));
        }
    }
    let because = format!("{:.0}% idle over all CPUs", spare.idle);
    f.ruled_out.push(RuledOut::new("runq-latency-idle-elsewhere", because));
    let throttled: f64 = w
        .derived
        .cgroups
        .iter()
        .flat_map(|g| g.iter())
        .filter_map(|g| Some(g.cpu?.throttled_ms_s))
        .fold(0.0, f64::max);
    if w.derived.cgroups.is_some() && throttled < 100.0 {
        let because = format!("no cgroup is throttled more than {throttled:.0} ms/s");
        f.ruled_out.push(RuledOut::new("cfs-throttle", because));
    }
    f.by = by::of_host(w);
    next(&mut f);
    f
}

fn next(f: &mut Fire) {
    let Some(pids) = by::pids(&f.by) else {
        f.next.push("top -b -n 1 -o %CPU | head -20".to_owned());
        f.next.push("pidstat -u 1 3; perf top".to_owned());
        f.next.push(
            "systemd-cgtop -n 1 -c  # or: ps -eo pid,psr,pcpu,cgroup --sort=-pcpu | head"
                .to_owned(),
        );
        return;
    };
    f.next.push(format!("pidstat -ut -p {pids} 1 3"));
    f.next.push(format!("perf top -p {pids}"));
    // What the kernel does is asked for by others.
    let first = f.by.iter().find(|c| !matches!(c.who, Who::Kernel { .. }));
    if let Some((c, pid)) = first.and_then(|c| Some((c, c.who.pid()?))) {
        f.next.push(format!("cat /proc/{pid}/cgroup  # of which service or container it is"));
        f.next.push(if c.sched.policy.is_some_and(Policy::is_real_time) {
            format!("chrt -a -o -p 0 {pid}  # an ordinary policy")
        } else {
            format!("renice -n 10 -p {pid}  # if it can wait")
        });
    }
}
