//! Tasks (`top`, `pidstat`) and the run queue (`sar -q`).

use super::super::{Evidence, Fire, RuledOut, Severity};
use super::{Judged, some};
use crate::sample::subject::{CpuId, Subject};
use crate::sample::told::{Queue, TaskRow, Tasks, Told};

/// CPU usage of a kernel thread, %: ksoftirqd; kswapd and kcompactd.
const SOFTIRQ: f64 = 60.0;
const RECLAIM: f64 = 30.0;
/// Number of tasks in D state that is more than normal disk activity.
const BLOCKED: usize = 5;
/// Idle time meanwhile, %.
const IDLE: f64 = 60.0;
/// % of the time that a task waits for a CPU, and for block I/O.
const WAITS: f64 = 50.0;
const WAITS_IO: f64 = 40.0;
/// More is not a valid time: such numbers appear when accounting is turned on within the interval
/// (seen: 27,500 times the interval after `sysctl kernel.task_delayacct=1`).
const NO_TIME: f64 = 100.0 * 1000.0;
/// Runnable tasks per CPU.
const QUEUE: f64 = 4.0;

/// Evaluates all task tables and the run queue.
pub(super) fn judge(told: &Told, out: &mut Judged) {
    for t in &told.tasks {
        figures(t, out);
        kernel_threads(t, out);
        blocked(t, out);
        waiting(t, out);
        block_io(t, out);
    }
    if let Some(q) = &told.queue {
        queue(q, told.host_cpus, out);
    }
}

fn most(rows: &[TaskRow], of: impl Fn(&TaskRow) -> Option<f64>) -> Option<(&TaskRow, f64)> {
    let all = rows.iter().filter_map(|r| Some((r, of(r)?)));
    all.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, v)| *v > 0.0)
}

fn figures(t: &Tasks, out: &mut Judged) {
    let what = if t.threads { "thread" } else { "process" };
    let n = match t.total {
        Some((n, _)) => n,
        None => t.rows.len() as u64,
    };
    let mut parts = vec![super::plural(n, what, if t.threads { "threads" } else { "processes" })];
    if let Some((r, v)) = most(&t.rows, |r| r.cpu) {
        parts.push(format!("busiest {}/{} with {v:.0}% of a CPU", r.name, r.pid));
    }
    if let Some((r, v)) = most(&t.rows, |r| r.read_kb) {
        parts.push(format!("reads most: {}/{} {v:.0} kB/s", r.name, r.pid));
    }
    if let Some((r, v)) = most(&t.rows, |r| r.write_kb) {
        parts.push(format!("writes most: {}/{} {v:.0} kB/s", r.name, r.pid));
    }
    let stuck = t.rows.iter().filter(|r| r.state == Some('D')).count();
    if stuck > 0 {
        parts.push(format!("{stuck} in state D"));
    }
    if let Some((_, zombies @ 1..)) = t.total {
        parts.push(some(zombies, "zombie"));
    }
    out.figures.push(format!("Tasks: {}", parts.join(", ")));
}

fn kernel_threads(t: &Tasks, out: &mut Judged) {
    let over = |name: &str, least: f64| {
        most(&t.rows, |r| r.cpu.filter(|_| r.name.starts_with(name))).filter(|p| p.1 >= least)
    };
    if let Some((r, v)) = over("ksoftirqd/", SOFTIRQ) {
        let number = r.name.rsplit('/').next().and_then(|n| n.parse().ok());
        let mut f = Fire::new(
            Severity::Warn,
            format!("{} takes {v:.0}% of its CPU: too many softirqs to handle inline", r.name),
        );
        f.evidence
            .push(Evidence::new("ksoftirqd", v, "%", format!("{} {v:.0}%", r.name)).over(SOFTIRQ));
        f.missing.push("which softirqs they are, and whether other CPUs share them".to_owned());
        f.next.push("mpstat -P ALL 1 3".to_owned());
        f.next.push("cat /proc/softirqs /proc/net/softnet_stat; sleep 5; cat /proc/softirqs /proc/net/softnet_stat".to_owned());
        let subject = number.map_or(Subject::Host, |n| Subject::Cpu { cpu: CpuId(n) });
        out.fire("softirq-one-core", subject, f);
    }
    if let Some((r, v)) = over("kswapd", RECLAIM) {
        let summary = format!("{} spends {v:.0}% of a CPU reclaiming memory", r.name);
        let mut f = Fire::new(Severity::Warn, summary);
        f.evidence
            .push(Evidence::new("kswapd", v, "%", format!("{} {v:.0}%", r.name)).over(RECLAIM));
        f.missing.push("whether tasks wait for it, or a bulk read fills the cache".to_owned());
        f.next.push("cat /proc/pressure/memory; free -m; vmstat 1 5".to_owned());
        out.fire("mem-stall", Subject::Host, f);
    }
    if let Some((r, v)) = over("kcompactd", RECLAIM) {
        let summary = format!("{} spends {v:.0}% of a CPU moving pages", r.name);
        let mut f = Fire::new(Severity::Warn, summary);
        f.evidence
            .push(Evidence::new("kcompactd", v, "%", format!("{} {v:.0}%", r.name)).over(RECLAIM));
        f.missing.push("whether tasks wait for it".to_owned());
        f.next.push(
            "grep -E 'compact_(stall|fail|success)' /proc/vmstat; cat /proc/buddyinfo".to_owned(),
        );
        out.fire("compaction-stall", Subject::Host, f);
    }
}

fn blocked(t: &Tasks, out: &mut Judged) {
    let stuck: Vec<&TaskRow> = t.rows.iter().filter(|r| r.state == Some('D')).collect();
    if stuck.len() < BLOCKED || t.idle.is_some_and(|i| i < IDLE) {
        return;
    }
    let idle = t.idle.map_or(String::new(), |i| format!(" while the CPUs are {i:.0}% idle"));
    let n = some(stuck.len() as u64, "task");
    let mut f = Fire::new(Severity::Warn, format!("{n} in uninterruptible sleep{idle}"));
    f.count = u32::try_from(stuck.len()).unwrap_or(u32::MAX);
    f.examples = stuck.iter().take(5).map(|r| format!("{}/{}", r.name, r.pid)).collect();
    let text = format!("{} in state D", stuck.len());
    f.evidence.push(Evidence::new("blocked", stuck.len() as f64, "", text).over(BLOCKED as f64));
    if let Some(i) = t.idle {
        f.ruled_out.push(RuledOut::new("cpu-saturation", format!("{i:.0}% idle or iowait")));
    }
    f.missing
        .push("what they wait for, and whether they are the same ones a moment later".to_owned());
    f.next.push("ps -eLo state,pid,tid,wchan:30,comm | awk '$1 == \"D\"'".to_owned());
    f.next.push("iostat -x 1 5".to_owned());
    out.fire("load-without-cpu", Subject::Host, f);
}

/// `%wait` of pidstat.
fn waiting(t: &Tasks, out: &mut Judged) {
    let Some((r, v)) = most(&t.rows, |r| r.wait).filter(|p| p.1 >= WAITS) else { return };
    let all: Vec<&TaskRow> = t.rows.iter().filter(|r| r.wait.is_some_and(|w| w >= WAITS)).collect();
    let summary = format!("{} is runnable but waits for a CPU {v:.0}% of the time", r.name);
    let mut f = Fire::new(Severity::Info, summary);
    f.count = u32::try_from(all.len()).unwrap_or(u32::MAX);
    f.examples = all.iter().take(5).map(|r| format!("{}/{}", r.name, r.pid)).collect();
    f.evidence.push(Evidence::new("wait", v, "%", format!("%wait {v:.1}")).over(WAITS));
    f.missing.push("whether the CPUs are busy or a quota throttles it (cfs-throttle)".to_owned());
    f.next.push("mpstat -P ALL 1 3".to_owned());
    f.next.push(format!("cat /proc/{}/cgroup  # then nr_throttled in cpu.stat there", r.pid));
    out.fire("cpu-saturation", Subject::Host, f);
}

/// `iodelay` of pidstat: clock ticks of 10 ms in the interval.
fn block_io(t: &Tasks, out: &mut Judged) {
    let Some(interval) = t.interval.filter(|i| *i > 0.0) else { return };
    let share =
        |r: &TaskRow| r.iodelay.map(|ticks| ticks / interval).filter(|share| *share < NO_TIME);
    let Some((r, v)) = most(&t.rows, share).filter(|p| p.1 >= WAITS_IO) else { return };
    let v = v.min(100.0);
    let summary = format!("{} waits for block I/O {v:.0}% of the time", r.name);
    let mut f = Fire::new(Severity::Info, summary);
    f.examples.push(format!("{}/{}", r.name, r.pid));
    let ticks = r.iodelay.unwrap_or(0.0);
    let text = format!("iodelay {ticks:.0} ticks of 10 ms in {interval:.0} s");
    f.evidence.push(Evidence::new("iodelay", v, "%", text).over(WAITS_IO));
    if let Some((read, write)) = r.read_kb.zip(r.write_kb) {
        let text = format!("reads {read:.0} kB/s, writes {write:.0} kB/s");
        f.evidence.push(Evidence::new("kB_rd/s", read, "kB/s", text));
    }
    f.missing.push("which disk, and whether it is slow, saturated or capped".to_owned());
    f.next.push("iostat -x 1 5".to_owned());
    out.fire("disk-saturated-or-capped", Subject::Host, f);
}

fn queue(q: &Queue, cpus: Option<u32>, out: &mut Judged) {
    let blocked = q.blocked.map_or(String::new(), |b| format!(", {b:.0} blocked"));
    out.figures
        .push(format!("Run queue: {:.0} runnable{blocked}; {:.0} at most", q.running, q.most));
    let Some(cpus) = cpus.filter(|n| *n > 0) else { return };
    let each = q.running / f64::from(cpus);
    if each < QUEUE {
        return;
    }
    let summary = format!("{:.0} runnable tasks on {}", q.running, some(cpus.into(), "CPU"));
    let mut f = Fire::new(Severity::Warn, summary);
    let text = format!("runq-sz {:.0}, {each:.1} per CPU", q.running);
    f.evidence.push(Evidence::new("runq-sz", q.running, "", text).over(QUEUE * f64::from(cpus)));
    f.missing.push("whether they wait long: a burst ends within ms".to_owned());
    f.next.push("cat /proc/pressure/cpu; pidstat -u 1 5  # %wait".to_owned());
    out.fire("cpu-saturation", Subject::Host, f);
}
