//! What eBPF adds: the distribution of the waits for a CPU and the longest waiter, and the whole
//! verdict if the kernel does not report waits per thread.

use std::collections::BTreeSet;

use super::super::super::{
    Aspect, Confidence, Evidence, Fire, RuledOut, Severity, Verdicts, Window,
};
use super::super::common::measured::{cgroup_path, to_ms};
use super::super::common::tasks::is_bound_name;
use super::super::common::text::ms;
use super::{BUSY, CLEAR, CRIT, LEAST_MS_S, SLICE_MS, THROTTLED, WARN, throttled_ns};
use crate::metrics::bpf::runq::{CpuWaits, TaskWaits};
use crate::metrics::bpf::{Latency, RunqFigures};
use crate::metrics::cpu::CpuFigures;
use crate::sample::subject::{CgroupId, CpuId, Subject};

/// Is one in a hundred waits for this CPU long, and do long waits take up much of this thread's
/// time?
pub(super) fn waits_long(b: &RunqFigures, cpu: CpuId, tid: u32) -> bool {
    let long = b.cpu(cpu).is_some_and(|c| c.latency.is_some_and(long));
    // On a busy CPU not every long wait is listed: half of the threshold is enough.
    let least_ns = 1e6 * LEAST_MS_S * b.dt.as_secs_f64() / 2.0;
    let own = |t: &TaskWaits| to_ms(t.max_ns) >= SLICE_MS && t.sum_ns as f64 >= least_ns;
    long && b.tasks.iter().any(|t| t.tid == tid && own(t))
}

fn long(l: Latency) -> bool {
    to_ms(l.p99_ns) >= SLICE_MS
}

/// Adds the distribution of the waits and the longest waiter.
pub(super) fn evidence(f: &mut Fire, w: &Window<'_>, cpu: CpuId, bpf: &RunqFigures) {
    let Some(row) = bpf.cpu(cpu) else { return };
    if let Some(l) = row.latency {
        let longest = l.max_ns.map_or(String::new(), |n| format!(", longest {} ms", ms(to_ms(n))));
        let text = format!(
            "eBPF: waits for {cpu} p50 {} ms, p99 {} ms{longest}; {:.1} threads waiting on average",
            ms(to_ms(l.p50_ns)),
            ms(to_ms(l.p99_ns)),
            row.waiting
        );
        let e = Evidence::new("runq-p99", to_ms(l.p99_ns), "ms", text);
        f.evidence.push(if long(l) { e.over(SLICE_MS) } else { e });
    }
    if let Some(t) = worst(bpf, cpu) {
        let group = t.cgroup.and_then(|id| cgroup_path(w, id));
        let group = group.map_or(String::new(), |p| format!(" in cgroup {p}"));
        let text =
            format!("eBPF: {}{group} waited up to {} ms at a time", name(t), ms(to_ms(t.max_ns)));
        f.evidence.push(Evidence::new("longest-wait", to_ms(t.max_ns), "ms", text));
    }
}

fn worst(bpf: &RunqFigures, cpu: CpuId) -> Option<&TaskWaits> {
    bpf.tasks.iter().find(|t| t.cpu == cpu)
}

fn name(t: &TaskWaits) -> String {
    format!("{}/{}", t.comm.as_deref().unwrap_or("?"), t.tid)
}

/// Evaluates all threads that wait for a CPU as one.
pub(super) fn judge(
    w: &Window<'_>,
    cpus: &CpuFigures,
    bpf: &RunqFigures,
    idle: &[(CpuId, f64)],
    out: &mut Verdicts,
) {
    for c in &bpf.cpus {
        let Some(now) = cpus.cpu(c.cpu) else { continue };
        let busy = 1.0 - (now.idle + now.iowait) / 100.0;
        let share = c.waiting / (c.waiting + busy).max(0.01);
        let waits = 1000.0 * c.waiting >= LEAST_MS_S && c.latency.is_some_and(long);
        if 100.0 * (1.0 - busy) > BUSY || share < CLEAR || !waits {
            continue;
        }
        let throttled = throttled(w, bpf, c.cpu);
        if throttled == Some(true) {
            continue;
        }
        let subject = Subject::Cpu { cpu: c.cpu };
        if share >= WARN {
            out.fire(subject, fire(w, c, bpf, share, idle, throttled.is_some()));
        } else {
            out.linger(subject);
        }
    }
}

/// Did threads wait for this CPU because of a quota? `None`: unknown for all of them.
fn throttled(w: &Window<'_>, bpf: &RunqFigures, cpu: CpuId) -> Option<bool> {
    let groups: BTreeSet<CgroupId> =
        bpf.tasks.iter().filter(|t| t.cpu == cpu).filter_map(|t| t.cgroup).collect();
    let known = groups.into_iter().filter_map(|id| {
        let waited = bpf.cgroups.iter().find(|g| g.id == id)?.wait_ns as f64;
        Some(throttled_ns(w, cgroup_path(w, id)?, bpf.dt)? >= THROTTLED * waited)
    });
    known.reduce(|a, b| a || b)
}

fn fire(
    w: &Window<'_>,
    c: &CpuWaits,
    bpf: &RunqFigures,
    share: f64,
    idle: &[(CpuId, f64)],
    throttle_known: bool,
) -> Fire {
    let severity = if share >= CRIT { Severity::Crit } else { Severity::Warn };
    let at = if severity == Severity::Crit { CRIT } else { WARN };
    let free: Vec<String> = idle.iter().take(4).map(|(c, _)| c.to_string()).collect();
    let (_, most) = idle.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default();
    let mut f = Fire::new(
        severity,
        format!(
            "threads wait {:.0}% of the time for {} while {} is {most:.0}% idle",
            100.0 * share,
            c.cpu,
            free.first().map_or("another CPU", String::as_str),
        ),
    );
    let own: Vec<&TaskWaits> = bpf.tasks.iter().filter(|t| t.cpu == c.cpu).collect();
    f.count = u32::try_from(own.len()).unwrap_or(u32::MAX).max(1);
    f.examples = own.iter().take(5).map(|t| name(t)).collect();
    f.aspect = Aspect::RunQueue;
    f.tasks = own.iter().take(super::MARKED).map(|t| t.task()).collect();
    f.confidence = Confidence::Suspected;
    let text = format!("eBPF: {:.0}% of the runnable time is spent waiting", 100.0 * share);
    f.evidence.push(Evidence::new("waiting", 100.0 * share, "%", text).over(100.0 * at));
    evidence(&mut f, w, c.cpu, bpf);
    let text = format!("idle: {}", free.join(", "));
    f.evidence.push(Evidence::text("idle", text));
    f.ruled_out.push(RuledOut::new("cpu-saturation", format!("{} idle", free.join(", "))));
    if throttle_known {
        let because = "throttled time of their cgroups is below 10% of the wait";
        f.ruled_out.push(RuledOut::new("cfs-throttle", because));
    } else {
        f.missing.push("whether a CPU quota throttles them (cpu.stat of their cgroup)".to_owned());
    }
    f.missing.push("whether they are niced (no /proc/PID/schedstat)".to_owned());
    if let Some(t) = own.first() {
        f.next.push(format!("grep Cpus_allowed_list /proc/{}/status", t.tid));
    }
    // Whom nobody can name may be a thread of the kernel that stays where it is.
    let bound = |t: &&&TaskWaits| t.comm.as_deref().is_none_or(is_bound_name);
    if let Some(t) = own.iter().find(|t| !bound(t)) {
        f.next.push(format!("taskset -cp 0-{} {}", w.host.cpus.saturating_sub(1), t.tid));
    }
    f.next.push(super::who_runs(c.cpu, &f.by));
    f
}
