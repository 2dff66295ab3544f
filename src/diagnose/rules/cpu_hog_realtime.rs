//! `cpu-hog-realtime`: a real-time thread hogs a CPU while others wait for it.

use super::common::by;
use super::common::tasks::{is_bound, name};
use super::common::text::count;
use crate::diagnose::culprit::Policy;
use crate::diagnose::rules::prelude::*;
use crate::metrics::cpu::ThreadWait;
use crate::metrics::rate::ratio;
use crate::sample::subject::{CpuId, Subject};

/// Run time, %. The kernel leaves 5% to others (`sched_rt_runtime_us`).
const RUNS: f64 = 90.0;
const CLEAR: f64 = 70.0;
/// Wait of other threads for this CPU, ms/s.
const WAIT: f64 = 200.0;
const CRIT: f64 = 900.0;
/// Maximum number of waiting threads named.
const NAMED: usize = 5;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("cpu-hog-realtime"),
    title: "a real-time thread hogs a CPU; every other thread on it waits",
    condition: "A SCHED_FIFO, SCHED_RR or SCHED_DEADLINE thread runs 90% of the time or more, \
        and the other threads that last ran on its CPU wait 200 ms/s or more in total, for 4 of \
        6 s. Critical at 900 ms/s. Clears below 70%, or when no thread waits.",
    look_alikes: "Too many ordinary threads: their policy is SCHED_OTHER and they share the CPU \
        (runq-latency-idle-elsewhere, cpu-saturation). Softirq load is not charged to a \
        thread (softirq-one-core). A real-time thread that runs in short bursts delays others \
        by the length of a burst only.",
    remedy: "A real-time thread must sleep. If it spins by mistake, give it an ordinary policy \
        (chrt -o -p 0), or give it a CPU of its own (taskset, isolcpus) and keep other threads \
        off that CPU. kernel.sched_rt_runtime_us (950000 of 1000000 us by default) limits the \
        damage.",
    sources: "/proc/PID/task/TID/stat fields 39 and 41 (CPU, policy), schedstat; sched(7). \
        Measured on 6.18: a busy loop under chrt -f 50 runs 950 ms/s while a shell on the same \
        CPU waits.",
    hold: Hold::of(4, 6),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Sched],
    explains: &[
        Explains::new("runq-latency-idle-elsewhere", Scope::Same),
        Explains::new("cpu-saturation", Scope::Host),
    ],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(sched) = w.derived.sched.as_deref() else { return };
    for hog in sched.threads.iter().filter(|t| policy(t).is_some()) {
        let (Some(cpu), Some(runs)) = (hog.thread.last_cpu, runs(hog)) else { continue };
        let others: Vec<&ThreadWait> = sched
            .threads
            .iter()
            .filter(|t| t.thread.last_cpu == Some(cpu) && t.thread.task != hog.thread.task)
            .filter(|t| t.run_delay_ns > 0)
            .collect();
        let wait: f64 = others.iter().map(|t| t.wait_ms_s()).sum();
        let subject = Subject::Cpu { cpu };
        if runs >= RUNS && wait >= WAIT {
            out.fire(subject, fire(w, (hog, runs), cpu, (&others, wait)));
        } else if runs >= CLEAR && wait > 0.0 {
            out.linger(subject);
        }
    }
}

/// The name of the thread's real-time policy, if it has one.
fn policy(t: &ThreadWait) -> Option<&'static str> {
    let policy = t.thread.policy.and_then(Policy::of);
    policy.filter(|p| p.is_real_time()).map(Policy::name)
}

/// Run time, %.
fn runs(t: &ThreadWait) -> Option<f64> {
    ratio(100.0 * t.run_ns as f64, t.dt.as_nanos() as f64)
}

fn fire(
    w: &Window<'_>,
    (hog, runs): (&ThreadWait, f64),
    cpu: CpuId,
    (others, wait): (&[&ThreadWait], f64),
) -> Fire {
    let severity = if wait >= CRIT { Severity::Crit } else { Severity::Warn };
    let (who, policy) = (name(hog), policy(hog).unwrap_or_default());
    let n = count(others.len(), "thread");
    let verb = if others.len() == 1 { "waits" } else { "wait" };
    let mut f = Fire::new(
        severity,
        format!("{who} hogs {cpu} as {policy}: {n} {verb} for it, {wait:.0} ms/s in total"),
    );
    f.tasks.push(hog.thread.task);
    f.count = u32::try_from(others.len()).unwrap_or(u32::MAX);
    let text = format!("{who} runs {runs:.0}% of the time, policy {policy}");
    f.evidence.push(Evidence::new("run", runs, "%", text).over(RUNS));
    let list = others.iter().take(NAMED);
    let list: Vec<String> =
        list.map(|t| format!("{} {:.0} ms/s", name(t), t.wait_ms_s())).collect();
    let text = format!("wait for {cpu}: {}", list.join(", "));
    let at = if severity == Severity::Crit { CRIT } else { WAIT };
    f.evidence.push(Evidence::new("run_delay", wait, "ms/s", text).over(at));
    let share = w.derived.cpu.as_ref().and_then(|c| c.cpus.iter().find(|s| s.0 == cpu));
    if let Some((_, s)) = share {
        let because = format!("softirqs take {:.0}% of {cpu}", s.softirq);
        f.ruled_out.push(RuledOut::new("softirq-one-core", because));
    }
    let because = format!("{policy} preempts every ordinary thread, whatever its nice value");
    f.ruled_out.push(RuledOut::new("fair-share", because));
    f.by.extend(by::of_thread(w, cpu, hog));
    let tid = hog.thread.task.tid;
    if is_bound(&hog.thread) {
        // It has this policy and this CPU for a reason; the question is what it works on.
        f.next.push(format!("cat /proc/{tid}/stack; perf top -t {tid}"));
    } else {
        f.next.push(format!("chrt -p {tid}; grep Cpus_allowed_list /proc/{tid}/status"));
        f.next.push(format!("chrt -o -p 0 {tid}  # an ordinary policy"));
    }
    f.next.push("sysctl kernel.sched_rt_runtime_us kernel.sched_rt_period_us".to_owned());
    f
}
