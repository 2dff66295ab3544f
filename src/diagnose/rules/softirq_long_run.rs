//! `softirq-long-run`: a softirq occupies a CPU for so long that everything else waits.

use super::common::by_traffic;
use super::common::text::{ms, rate};
use crate::diagnose::rules::prelude::*;
use crate::metrics::Derived;
use crate::metrics::bpf::irq::VectorFigures;
use crate::sample::subject::{CpuId, Subject};

/// Length of a run that is too long, ns.
const LONG_NS: u64 = 10_000_000;
/// Intervals with such a run ...
const TIMES: usize = 3;
/// ... within this time.
const SPAN: Duration = Duration::from_secs(20);
/// Softirq time in % of a core from which the total is a problem too.
const FULL: f64 = 60.0;
/// Steal in the interval as a fraction of the run from which the run does not count.
const STOLEN: f64 = 0.5;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("softirq-long-run"),
    title: "a softirq occupies a CPU for 10 ms or more at a time",
    condition: "One run of a softirq vector takes 10 ms or more on a CPU (eBPF), in 3 intervals \
        of the last 20 s. Intervals in which the hypervisor stole half that time or more from \
        the CPU do not count.",
    look_alikes: "Many short runs: softirq-one-core. A vCPU that the hypervisor stops in the \
        middle of a run: steal grows by as much. A single long run: a driver that resets, a \
        rule set being loaded.",
    remedy: "NET_RX, NET_TX: long chains of firewall or tc rules per packet, a large \
        netdev_budget_usecs. TIMER: a kernel timer that walks a long list (thousands of \
        cgroups, routes, conntrack entries). RCU: a lot is freed at once; rcu_nocbs moves that \
        to threads.",
    sources: "eBPF: irq:softirq_entry and softirq_exit. netdev_budget_usecs is 2 ms by default, \
        so NET_RX should end there; a scheduler tick is 1 to 10 ms.",
    // The rule itself looks back 20 s already.
    hold: Hold::events(10),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::IrqBpf], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(now) = w.derived.irq_bpf.as_ref() else { return };
    if !now.softirqs {
        return out.cannot_judge("softirq times are not measured");
    }
    for cpu in now.cpus.iter().map(|c| c.cpu) {
        let long: Vec<Long<'_>> = lately(w).filter_map(|d| Long::of(d, cpu)).collect();
        let counts: Vec<&Long<'_>> = long.iter().filter(|l| !l.stolen()).collect();
        if counts.len() >= TIMES {
            let stolen = long.len() - counts.len();
            out.fire(Subject::Cpu { cpu }, fire(w, cpu, &counts, stolen));
        }
    }
}

fn lately<'a>(w: &Window<'a>) -> impl Iterator<Item = &'a Derived> + use<'a> {
    let now = w.tick.mono;
    w.recent(usize::MAX).take_while(move |d| now.since(d.mono) < SPAN)
}

/// The longest softirq run of a CPU in one interval, if too long.
struct Long<'a> {
    vector: &'a VectorFigures,
    ns: u64,
    /// Steal of this CPU in the interval; `None` if unknown.
    steal_ns: Option<f64>,
}

impl<'a> Long<'a> {
    fn of(d: &'a Derived, cpu: CpuId) -> Option<Self> {
        let all = &d.irq_bpf.as_ref()?.cpu(cpu)?.vectors;
        let vector = all.iter().max_by_key(|v| v.run.max_ns)?;
        let ns = vector.run.max_ns.filter(|ns| *ns >= LONG_NS)?;
        let steal_ns =
            d.cpu.as_ref().and_then(|c| Some(c.cpu(cpu)?.steal / 100.0 * c.dt.as_secs_f64() * 1e9));
        Some(Self { vector, ns, steal_ns })
    }
    fn stolen(&self) -> bool {
        self.steal_ns.is_some_and(|s| s >= STOLEN * self.ns as f64)
    }
}

fn fire(w: &Window<'_>, cpu: CpuId, long: &[&Long<'_>], stolen: usize) -> Fire {
    let worst = long.iter().max_by_key(|l| l.ns);
    let (ns, name) = worst.map_or((LONG_NS, "?"), |l| (l.ns, l.vector.name()));
    let longest = ns as f64 / 1e6;
    let mut f = Fire::new(
        Severity::Warn,
        format!("softirq {name} holds cpu{} for up to {} ms at a time", cpu.0, ms(longest)),
    );
    let text = format!("eBPF: the longest run of {name} took {} ms", ms(longest));
    let e = Evidence::new("softirq run", longest, "ms", text);
    f.evidence.push(e.over(LONG_NS as f64 / 1e6));
    let n = long.len();
    let text = format!("{n} intervals of the last 20 s had a run of 10 ms or more");
    f.evidence.push(Evidence::new("intervals", n as f64, "", text).over(TIMES as f64));
    let run = worst.map(|l| l.vector.run);
    if let Some((run, mean)) = run.and_then(|r| Some((r, r.mean_ns?))) {
        let text = format!("{} runs/s of {} ms on average", rate(run.runs_s), ms(mean / 1e6));
        f.evidence.push(Evidence::new("runs", run.runs_s, "/s", text));
    }
    let steal = long.iter().map(|l| l.steal_ns).collect::<Option<Vec<f64>>>();
    match steal {
        Some(all) => {
            let most = all.iter().copied().fold(0.0, f64::max) / 1e6;
            let left_out = if stolen > 0 {
                format!("; {stolen} intervals with more are left out")
            } else {
                String::new()
            };
            let because = format!(
                "the hypervisor took at most {most:.0} ms per interval from this CPU{left_out}"
            );
            f.ruled_out.push(RuledOut::new("cpu-steal", because));
        }
        None => f.missing.push("whether the hypervisor took the time (no steal)".to_owned()),
    }
    // A CPU that is full of softirqs is softirq-one-core too.
    if let Some(run) = run.filter(|r| r.pct < FULL) {
        let because =
            format!("{:.1}% of the core: the problem is the length, not the total", run.pct);
        f.ruled_out.push(RuledOut::new("softirq-one-core", because));
    }
    if name.starts_with("NET") {
        f.next.push("nft list ruleset | wc -l; iptables-save 2>/dev/null | wc -l".to_owned());
        f.next.push("sysctl net.core.netdev_budget net.core.netdev_budget_usecs".to_owned());
    }
    f.next.push(format!(
        "perf record -g -C {} -- sleep 5 && perf report --stdio --no-children | head -60",
        cpu.0
    ));
    f.next.push(format!("grep -E 'CPU|{name}' /proc/softirqs"));
    let net = w.derived.softirq.as_ref().and_then(|s| s.softnet(cpu));
    if let Some(n) = net.filter(|_| name == "NET_RX") {
        by_traffic::blame_packets(w, n.processed_s, &mut f);
    }
    f
}
