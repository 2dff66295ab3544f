//! `cpu-steal`: the hypervisor takes CPU time away from this VM.

use crate::diagnose::limits::{Levels, Limit};
use crate::diagnose::rules::prelude::*;
use crate::metrics::cpu::CpuShare;

pub(in crate::diagnose) static LIMIT: Limit = Limit {
    rule: RuleId("cpu-steal"),
    of: "CPU time that the hypervisor takes away, %",
    warn: 10.0,
    clear: 5.0,
    crit: 30.0,
    range: (1.0, 90.0),
};

static DOC: RuleDoc = RuleDoc {
    id: RuleId("cpu-steal"),
    title: "the hypervisor takes CPU time away from this VM",
    condition: "10% or more of all vCPU time is stolen, for 10 of 12 s. Critical at 30%. Clears \
        below 5%.",
    look_alikes: "A busy guest has steal 0. A VM that has used up its CPU credits shows steal \
        too: it is the same problem. Steal is counted only if the hypervisor reports it to the \
        guest.",
    remedy: "Move or resize the VM, use an instance type without CPU credits, or ask the \
        provider about the host. Steal also explains delays elsewhere: late timers, spurious \
        RTOs, jittery disk latency.",
    sources: "/proc/stat steal; netdata warns at 10% over 20 min and clears at 5%.",
    hold: Hold::of(10, 12),
    needs_time: Duration::from_secs(11),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Cpu],
    explains: &[
        Explains::new("softnet-drop-or-squeeze", Scope::Host),
        Explains::new("tcp-spurious-rto", Scope::Host),
        Explains::new("disk-slow-device", Scope::Host),
    ],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let at = t.levels(&LIMIT);
    let Some(total) = w.derived.cpu.as_ref().and_then(|c| c.total) else { return };
    if total.steal >= at.warn {
        out.fire(Subject::Host, fire(w, &total, at));
    } else if total.steal >= at.clear {
        out.linger(Subject::Host);
    }
}

fn fire(w: &Window<'_>, total: &CpuShare, at: Levels) -> Fire {
    let steal = total.steal;
    let severity = if steal >= at.crit { Severity::Crit } else { Severity::Warn };
    let mut f =
        Fire::new(severity, format!("the hypervisor takes {steal:.0}% of the CPU time of this VM"));
    // Pasted text does not always give the number of CPUs.
    let over = if w.host.cpus > 0 { format!(" over {} CPUs", w.host.cpus) } else { String::new() };
    let text = format!("steal {steal:.0}%{over}");
    f.evidence.push(Evidence::new("steal", steal, "%", text).over(at.over(steal)));
    let mut each: Vec<(u32, f64)> =
        w.derived.cpu.iter().flat_map(|c| &c.cpus).map(|(id, s)| (id.0, s.steal)).collect();
    each.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let text: Vec<String> = each.iter().take(8).map(|(id, s)| format!("cpu{id} {s:.0}%")).collect();
    if !text.is_empty() {
        f.evidence.push(Evidence::text("cpus", format!("by CPU: {}", text.join(", "))));
    }
    let idle = total.idle + total.iowait;
    let text = format!("the guest itself: busy {:.0}%, idle {idle:.0}%", 100.0 - idle - steal);
    f.evidence.push(Evidence::new("idle", idle, "%", text));
    f.ruled_out
        .push(RuledOut::new("cpu-saturation", format!("{steal:.0}% never reaches the guest")));
    f.next.push("mpstat -P ALL 1 3".to_owned());
    f.next.push("systemd-detect-virt".to_owned());
    f
}
