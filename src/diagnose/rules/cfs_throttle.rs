//! `cfs-throttle`: a CPU quota throttles a cgroup.

use super::common::by;
use super::common::cgroups::{self, file, subject};
use crate::diagnose::rules::prelude::*;
use crate::metrics::cgroups::{CgroupCpuFigures, CgroupFigures};

/// Fraction of periods in which the quota ran out.
const WARN: f64 = 0.25;
const CRIT: f64 = 0.75;
/// Below this an active finding clears.
const CLEAR: f64 = 0.175;
/// Minimum number of periods.
const PERIODS: u64 = 5;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("cfs-throttle"),
    title: "a CPU quota throttles this cgroup, even with CPUs idle",
    condition: "The quota ran out in 25% or more of the periods (nr_throttled / nr_periods, at \
        least 5 periods), for 4 of 8 s. Critical at 75%. Clears below 17.5%.",
    look_alikes: "All CPUs busy: threads wait, but nr_throttled does not grow. Throttled time \
        also counts as run_delay, so a throttled thread looks like one that waits for a CPU; \
        runq-latency-idle-elsewhere subtracts it.",
    remedy: "Raise cfs_quota_us or cpu.max, or allow bursts (cpu.max.burst). Run fewer threads: \
        32 runnable threads use up a quota of 2 CPUs in the first 6 ms of every 100 ms \
        (GOMAXPROCS, -XX:ActiveProcessorCount).",
    sources: "cpu.stat of cgroup v1 and v2; Documentation/scheduler/sched-bwc.rst. Measured: a \
        spinner with a quota of 20% is throttled in every period, 785 ms/s, and shows the same \
        time as run_delay.",
    hold: Hold::of(4, 8),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Cgroups],
    explains: &[
        Explains::new("load-without-cpu", Scope::Host),
        Explains::new("tcp-listen-overflow", Scope::Members),
        Explains::new("tcp-receiver-not-reading", Scope::Members),
        Explains::new("server-hung", Scope::Members),
    ],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(now) = w.derived.cgroups.as_ref() else { return };
    for g in now.iter() {
        let Some(cpu) = g.cpu.filter(|c| c.periods >= PERIODS) else { continue };
        let Some(share) = cpu.throttled_share() else { continue };
        if share >= WARN {
            out.fire(subject(g), fire(w, g, &cpu, share));
        } else if share >= CLEAR {
            out.linger(subject(g));
        }
    }
    cgroups::unread(w, out, |g| g.cpu.is_some_and(|c| c.throttled > 0));
}

fn fire(w: &Window<'_>, g: &CgroupFigures, cpu: &CgroupCpuFigures, share: f64) -> Fire {
    let severity = if share >= CRIT { Severity::Crit } else { Severity::Warn };
    let limit =
        cpu.limit_cores.map_or_else(String::new, |l| format!(" by its quota of {l:.2} CPUs"));
    let mut f = Fire::new(
        severity,
        format!(
            "{} is throttled{limit} in {:.0}% of its periods, {:.0} ms/s",
            g.path,
            100.0 * share,
            cpu.throttled_ms_s
        ),
    );
    let at = if severity == Severity::Crit { CRIT } else { WARN };
    let text = format!("nr_throttled +{} of nr_periods +{}", cpu.throttled, cpu.periods);
    f.evidence.push(Evidence::new("throttled", 100.0 * share, "%", text).over(100.0 * at));
    let text = format!("throttled for {:.0} ms per second, summed over CPUs", cpu.throttled_ms_s);
    f.evidence.push(Evidence::new("throttled_time", cpu.throttled_ms_s, "ms/s", text));
    if let Some(q) = cpu.quota_us {
        let text = format!("quota {} ms of every {} ms", q / 1000, cpu.period_us / 1000);
        f.evidence.push(Evidence::new("quota", q as f64, "us", text));
    }
    if let Some(u) = cpu.usage_cores {
        f.evidence.push(Evidence::new("usage", u, "CPUs", format!("uses {u:.2} CPUs")));
    }
    match w.derived.cpu.as_ref().and_then(|c| c.total) {
        Some(total) => {
            let idle = total.idle + total.iowait;
            let text = format!("the host is {idle:.0}% idle");
            f.evidence.push(Evidence::new("idle", idle, "%", text.clone()));
            if idle >= 10.0 {
                f.ruled_out.push(RuledOut::new("cpu-saturation", text));
            }
        }
        None => f.missing.push("how busy the host is (/proc/stat)".to_owned()),
    }
    let because = format!("the wait is throttled time: {:.0} ms/s", cpu.throttled_ms_s);
    f.ruled_out.push(RuledOut::new("runq-latency-idle-elsewhere", because));
    f.by = by::of_cgroup(w, &g.path, cpu);
    next(&mut f, g, cpu);
    f
}

fn next(f: &mut Fire, g: &CgroupFigures, cpu: &CgroupCpuFigures) {
    let file = |name| file(g, name);
    f.next.push(format!("cat {}", file("cpu.stat")));
    let double = cpu.quota_us.unwrap_or(cpu.period_us).saturating_mul(2);
    if cgroups::of_v1(&g.mount, "cpu") {
        f.next.push(format!("echo {double} > {}", file("cpu.cfs_quota_us")));
    } else {
        f.next.push(format!("echo '{double} {}' > {}", cpu.period_us, file("cpu.max")));
    }
    f.next.push(match by::pids(&f.by) {
        Some(pids) => format!("ps -o pid,nlwp,pcpu,args -p {pids}  # how many threads it runs"),
        None => format!("cat {}", file("cgroup.procs")),
    });
}
