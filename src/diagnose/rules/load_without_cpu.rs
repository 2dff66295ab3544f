//! `load-without-cpu`: a high load average with idle CPUs.

use super::common::tasks;
use super::common::text::count;
use crate::diagnose::rules::prelude::*;

/// load1 per CPU.
const LOAD: f64 = 2.0;
/// Idle time including iowait, %.
const IDLE: f64 = 60.0;
/// Blocked tasks per CPU.
const BLOCKED: f64 = 1.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("load-without-cpu"),
    title: "the load average is high while the CPUs are idle: tasks pile up in D state",
    condition: "load1 of 2 per CPU or more, 60% or more idle plus iowait, and one blocked task \
        per CPU or more, for 10 of 15 s. Clears below 70% of each.",
    look_alikes: "CPU work: the CPUs are not idle then (cpu-saturation). A burst that is over: \
        the load average remembers it for a minute, but nothing is blocked now. Kernel threads \
        that idle in uninterruptible sleep count in neither.",
    remedy: "See where the tasks are blocked (wchan): a hung or flooded disk (disk-hung, \
        disk-writeback-storm), an NFS server that is gone, a frozen file system, a lock in a \
        driver.",
    sources: "/proc/loadavg (counts D tasks), /proc/stat procs_blocked, \
        /proc/PID/task/TID/{stat,wchan}.",
    hold: Hold::of(10, 15),
    needs_time: Duration::from_secs(11),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Cpu, CollectorId::Sched],
    explains: &[],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(cpu) = w.derived.cpu.as_ref() else { return };
    let load = w.recent(3).find_map(|d| d.sched.as_ref()?.load).map(|l| l[0]);
    let Some(total) = cpu.total else { return };
    let Some(load) = load else { return out.cannot_judge("no /proc/loadavg") };
    // procs_blocked counts only tasks in io_schedule, not those that wait for a lock or NFS.
    let listed = tasks::blocked_tasks(w).map(|p| p.len() as f64);
    let Some(blocked) = cpu.blocked.map(f64::from).into_iter().chain(listed).reduce(f64::max)
    else {
        return out.cannot_judge("no procs_blocked in /proc/stat and no list of blocked tasks");
    };
    let (cpus, idle) = (f64::from(w.host.cpus.max(1)), total.idle + total.iowait);
    let over = |part: f64| {
        load >= part * LOAD * cpus && idle >= part * IDLE && blocked >= part * BLOCKED * cpus
    };
    if over(1.0) {
        out.fire(Subject::Host, fire(w, load, idle, blocked));
    } else if over(CLEAR) {
        out.linger(Subject::Host);
    }
}

fn fire(w: &Window<'_>, load: f64, idle: f64, blocked: f64) -> Fire {
    let cpus = w.host.cpus.max(1);
    let mut f = Fire::new(
        Severity::Warn,
        format!(
            "load {load:.1} on {cpus} CPUs that are {idle:.0}% idle: {} blocked",
            count(blocked as usize, "task")
        ),
    );
    let text = format!("load {load:.2} over 1 min, {:.1} per CPU", load / f64::from(cpus));
    f.evidence.push(Evidence::new("load1", load, "", text).over(LOAD * f64::from(cpus)));
    let text = format!("{idle:.0}% idle or iowait");
    f.evidence.push(Evidence::new("idle", idle, "%", text).over(IDLE));
    let text = format!("{} blocked now", count(blocked as usize, "task"));
    f.evidence.push(Evidence::new("blocked", blocked, "", text).over(f64::from(cpus)));
    let groups = tasks::blocked(w);
    if groups.is_empty() {
        f.missing.push("which tasks are blocked, and in what (/proc/PID/wchan)".to_owned());
    }
    for g in groups {
        f.evidence.push(Evidence::text("wchan", g));
    }
    if let Some(p) = tasks::blocked_tasks(w) {
        f.examples = p.iter().take(5).map(|b| format!("{}/{}", b.comm, b.task.tid)).collect();
    }
    f.ruled_out.push(RuledOut::new("cpu-saturation", format!("{idle:.0}% idle")));
    if let Some(n) = w.derived.cpu.as_ref().and_then(|c| c.running) {
        f.ruled_out.push(RuledOut::new("busy-cpus", format!("procs_running {n}")));
    }
    f.next.push("ps -eLo state,pid,tid,wchan:30,comm | awk '$1 == \"D\"'".to_owned());
    if let Some(b) = tasks::blocked_tasks(w).and_then(|p| p.first().copied()) {
        f.next.push(format!("cat /proc/{}/stack", b.task.tid));
    }
    f.next.push(
        "echo w > /proc/sysrq-trigger; dmesg | tail -30  # stacks of blocked tasks".to_owned(),
    );
    f
}
