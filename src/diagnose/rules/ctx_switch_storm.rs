//! `ctx-switch-storm`: the CPUs spend their time on context switches.

use super::common::by;
use super::common::tasks::{self, Spare};
use super::common::text::rate;
use crate::diagnose::rules::prelude::*;
use crate::metrics::cpu::ThreadWait;
use crate::metrics::rate::median;

/// Cost of a switch, s: 1.5 to 3.4 us were measured on servers of several makes.
const COST: f64 = 3e-6;
/// Cost in % of all CPU time.
const LOST: f64 = 8.0;
/// % of all CPU time that no healthy load spends on switches: databases and packet floods on two
/// CPUs take 9 to 12, a byte passed back and forth takes 100.
const PLAIN: f64 = 30.0;
/// Multiple of the rate of the minute before ...
const TIMES: f64 = 5.0;
/// ... or this many per second per CPU.
const PER_CPU: f64 = 25_000.0;
/// Idle CPU time, %, from which the cost of the switches does no harm: measured 28 to 71% beside
/// 54k to 149k switches/s of healthy bulk TCP and 50k IOPS on two CPUs of two makes; 21% in the
/// field. It is the median of the last seconds, so a single second below it raises no alarm.
const SPARE: f64 = 25.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;
/// Busy CPU time of the minute before, as a part of that of now, below which the switches tell of work
/// that began, not of work that got worse. Measured: fio on an idle box, 13% of two CPUs, 17% idle.
const AS_BUSY: f64 = 0.5;
/// The minute before, without the last seconds, which are the storm itself.
const BEFORE: Duration = Duration::from_secs(60);
const SKIP: Duration = Duration::from_secs(8);

static DOC: RuleDoc = RuleDoc {
    id: RuleId("ctx-switch-storm"),
    title: "the CPUs lose much of their time to context switches",
    condition: "Context switches, at 3 us each, cost 8% or more of all CPU time, and run at 5 \
        times the rate of the minute before or at 25k per second per CPU, for 5 of 8 s. Clears \
        below 70% of these. A warning only at 5 times the minute before, if the CPUs were half as \
        busy then, or at 30% of all CPU time, and with less than 25% of the CPU time idle or used \
        by niced tasks in most of the last 8 s; otherwise info.",
    look_alikes: "A request server at work: a database on 2 CPUs makes 58k switches/s with and \
        without fsync; with no earlier minute to compare, or an idle one, there is \
        no warning. I/O and small \
        packets on a machine with CPU time to spare: each request wakes its caller and a worker \
        or two, and the lost time is not missed: no warning. Many CPUs: 100k switches/s is \
        nothing on 64. Switches between threads of one process with a warm cache cost less than \
        3 us: the share is an estimate.",
    remedy: "Hand over less often: batch messages, use fewer threads per request (coroutines, \
        an event loop), avoid a lock or pipe per item. Pinning both ends to one CPU saves a \
        third to half of the cost.",
    sources: "/proc/stat ctxt, schedstat slices per thread. Field: 113918 switches/s on 4 CPUs \
        fell to 6065 with coroutines, at 1.5 times the throughput; 1.5 to 3.4 us per switch on \
        x86 and ARM servers.",
    hold: Hold::of(5, 8),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Cpu], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(cpu) = w.derived.cpu.as_ref() else { return };
    let Some(ctxt) = cpu.ctxt_s else { return out.cannot_judge("no ctxt in /proc/stat") };
    let cpus = f64::from(w.host.cpus.max(1));
    let lost = 100.0 * ctxt * COST / cpus;
    let usual = usual(w);
    let over = |part: f64| {
        lost >= part * LOST
            && (ctxt >= part * PER_CPU * cpus
                || usual.as_ref().is_some_and(|u| ctxt >= part * TIMES * u.ctxt))
    };
    if over(1.0) {
        out.fire(Subject::Host, fire(w, ctxt, lost, usual.as_ref()));
    } else if over(CLEAR) {
        out.linger(Subject::Host);
    }
}

/// Medians of the minute before.
struct Usual {
    /// Switches/s.
    ctxt: f64,
    /// Busy CPU time, %.
    busy: f64,
}

fn usual(w: &Window<'_>) -> Option<Usual> {
    let now = w.tick.mono;
    let minute = || {
        w.recent(usize::MAX)
            .take_while(|d| now.since(d.mono) <= BEFORE)
            .filter(|d| now.since(d.mono) > SKIP)
    };
    let mut ctxt: Vec<f64> = minute().filter_map(|d| d.cpu.as_ref()?.ctxt_s).collect();
    // A few seconds are no baseline.
    if ctxt.len() < 10 {
        return None;
    }
    let busy = minute().filter_map(|d| Some(100.0 - Spare::of(w, d)?.total()));
    Some(Usual {
        ctxt: median(&mut ctxt)?,
        busy: median(&mut busy.collect::<Vec<_>>()).unwrap_or(0.0),
    })
}

/// Median idle time of the last seconds, %.
fn idle(w: &Window<'_>) -> Option<f64> {
    let now = w.tick.mono;
    let recent = w.recent(usize::MAX).take_while(|d| now.since(d.mono) <= SKIP);
    median(&mut recent.filter_map(|d| Some(Spare::of(w, d)?.total())).collect::<Vec<_>>())
}

fn fire(w: &Window<'_>, ctxt: f64, lost: f64, usual: Option<&Usual>) -> Fire {
    let cpus = w.host.cpus.max(1);
    let total = w.derived.cpu.as_ref().and_then(|c| c.total);
    let spare = idle(w).filter(|idle| *idle >= SPARE);
    let busy = Spare::of(w, w.derived).map_or(100.0, |s| 100.0 - s.total());
    let grew = |u: &Usual| ctxt >= TIMES * u.ctxt && u.busy >= AS_BUSY * busy;
    let sure = lost >= PLAIN || usual.is_some_and(grew);
    let niced = Spare::of(w, w.derived).is_some_and(|s| s.niced >= 1.0);
    let niced = if niced { " or niced" } else { "" };
    let mut f = Fire::new(
        if spare.is_none() && sure { Severity::Warn } else { Severity::Info },
        format!(
            "{} context switches/s cost about {:.1}% of {cpus} CPUs{}",
            rate(ctxt),
            lost.min(100.0),
            spare.map_or(String::new(), |left| format!(
                "; {left:.0}% of the CPU time is idle{niced}"
            ))
        ),
    );
    let note = if lost > 100.0 { "; they must cost less here" } else { "" };
    let text = format!("{lost:.1}% of all CPU time at 3 us per switch{note}");
    f.evidence.push(Evidence::new("lost", lost, "%", text).over(LOST));
    let per_cpu = ctxt / f64::from(cpus);
    let text = format!("{}/s, {}/s per CPU", rate(ctxt), rate(per_cpu));
    f.evidence.push(Evidence::new("ctxt", ctxt, "/s", text).over(PER_CPU * f64::from(cpus)));
    if let Some(u) = usual {
        let text = format!("{}/s in the minute before, {:.0}% busy", rate(u.ctxt), u.busy);
        f.evidence.push(Evidence::new("usual", u.ctxt, "/s", text));
    }
    f.evidence.extend(tasks::switching(w));
    f.examples = tasks::switched(w).into_iter().map(tasks::name).collect();
    if let Some(t) = total {
        let text =
            format!("us {:.0}%, sy {:.0}%, idle {:.0}%", t.user, t.system, t.idle + t.iowait);
        f.evidence.push(Evidence::new("system", t.system, "%", text));
    }
    let because = format!("{}/s per CPU", rate(per_cpu));
    f.ruled_out.push(RuledOut::new("many-cpus", because));
    f.by = by::of_switches(w, ctxt);
    let of = by::pids(&f.by).map_or(String::new(), |pids| format!(" -p {pids}"));
    f.next.push(format!(
        "pidstat -wt{of} 1 3  # voluntary: waits often; involuntary: too many runnable"
    ));
    // A thread of the kernel makes no system calls.
    let calls = |t: &&&ThreadWait| !tasks::is_kernel(&t.thread);
    if let Some(t) = tasks::switched(w).iter().find(calls) {
        f.next.push(format!(
            "strace -c -f -p {}  # which system calls it waits in",
            t.thread.task.pid
        ));
    }
    f.next.push("perf sched record -- sleep 1; perf sched latency".to_owned());
    f
}
