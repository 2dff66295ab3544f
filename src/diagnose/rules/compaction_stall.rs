//! `compaction-stall`: allocations wait for memory compaction that fails.

use super::common::text::{bytes, rate};
use super::common::vm;
use crate::diagnose::rules::prelude::*;
use crate::metrics::rate::ratio;

/// Allocations per second in direct compaction ...
const STALLS_S: f64 = 10.0;
/// ... of which this fraction fails.
const FAILS: f64 = 0.5;
/// Allocations in direct reclaim as a fraction of those in compaction: above this, memory is short,
/// not just fragmented.
const RECLAIM: f64 = 0.1;
/// memory PSI some, %.
const WARN_PSI: f64 = 5.0;
const LEAST_PSI: f64 = 1.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("compaction-stall"),
    title: "allocations stall in memory compaction: free memory is fragmented",
    condition: "compact_stall grows by 10/s or more, half or more of the stalls fail \
        (compact_fail), allocstall is at most a tenth of compact_stall, and some task waits for \
        memory 1% of the time or more (memory PSI), for 3 of 10 s. Info below 5%. Clears below \
        7/s, 35% or 0.7%.",
    look_alikes: "Too little memory: allocstall grows too (mem-stall). Compaction that works: \
        compact_success grows. kcompactd in the background: compact_daemon_wake grows and no \
        task waits.",
    remedy: "Huge pages on fault are the usual cause: set transparent_hugepage/defrag to \
        madvise or defer, and enabled to madvise. Large pages for networking or a driver: raise \
        vm.min_free_kbytes, vm.compaction_proactiveness. Reserve hugetlb pages at boot.",
    sources: "/proc/vmstat: compact_stall, compact_fail, compact_success, allocstall; \
        mm/page_alloc.c; scylladb#8828, golang#61718.",
    hold: Hold::of(3, 10),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Memory], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(now) = Compaction::of(w) else {
        if w.tick.samples.memory.as_ref().is_some_and(|m| {
            m.data.get("vmstat.pgfault").is_some() && m.data.get("vmstat.compact_stall").is_none()
        }) {
            out.cannot_judge("no compact_stall in /proc/vmstat");
        }
        return;
    };
    if now.many(1.0) {
        out.fire(Subject::Host, fire(w, &now));
    } else if now.many(CLEAR) {
        out.linger(Subject::Host);
    }
}

/// Per second.
struct Compaction {
    stalls: f64,
    fails: f64,
    reclaim: Option<f64>,
    /// memory PSI some, %.
    psi: Option<f64>,
}

impl Compaction {
    fn of(w: &Window<'_>) -> Option<Self> {
        Some(Self {
            stalls: vm::rate(w, "compact_stall")?,
            fails: vm::rate(w, "compact_fail")?,
            reclaim: vm::rate(w, "allocstall"),
            psi: w.derived.psi.and_then(|p| p.memory_some),
        })
    }
    fn many(&self, part: f64) -> bool {
        self.stalls >= part * STALLS_S
            && self.fails >= part * FAILS * self.stalls
            && self.reclaim.is_none_or(|r| r <= RECLAIM / part * self.stalls)
            && self.psi.is_none_or(|p| p >= part * LEAST_PSI)
    }
}

fn fire(w: &Window<'_>, c: &Compaction) -> Fire {
    let waits = c.psi.is_some_and(|p| p >= WARN_PSI);
    let severity = if waits { Severity::Warn } else { Severity::Info };
    let pct = ratio(100.0 * c.fails, c.stalls).unwrap_or(0.0).min(100.0);
    let mut f = Fire::new(
        severity,
        format!(
            "{} allocations/s stall in memory compaction; {pct:.0}% of the stalls fail",
            rate(c.stalls)
        ),
    );
    let text = format!("compact_stall {}/s", rate(c.stalls));
    f.evidence.push(Evidence::new("compact_stall", c.stalls, "/s", text).over(STALLS_S));
    let text = format!("compact_fail {}/s", rate(c.fails));
    f.evidence.push(Evidence::new("compact_fail", pct, "%", text).over(100.0 * FAILS));
    match c.psi {
        Some(p) => {
            let text = format!("memory pressure some {p:.1}%: the time this costs");
            let at = if waits { WARN_PSI } else { LEAST_PSI };
            f.evidence.push(Evidence::new("psi memory", p, "%", text).over(at));
        }
        None => f.missing.push("what it costs (no /proc/pressure/memory)".to_owned()),
    }
    match c.reclaim {
        Some(r) => {
            let because = format!("allocstall {}/s: almost no direct reclaim", rate(r));
            f.ruled_out.push(RuledOut::new("mem-stall", because));
        }
        None => f.missing.push("whether memory is short (no allocstall)".to_owned()),
    }
    let memory = w.tick.samples.memory.as_ref();
    if let Some(kb) = memory.and_then(|m| m.data.get("meminfo.MemFree")) {
        let free = kb.saturating_mul(1024);
        let because = format!("{} free, but in blocks that are too small", bytes(free));
        f.ruled_out.push(RuledOut::new("no-free-memory", because));
    }
    if let Some(r) = vm::rate(w, "thp_fault_fallback").filter(|r| *r > 0.0) {
        let text =
            format!("thp_fault_fallback {}/s: huge page faults that got small pages", rate(r));
        f.evidence.push(Evidence::new("thp_fault_fallback", r, "/s", text));
    }
    f.next.push("cat /proc/buddyinfo".to_owned());
    f.next.push("grep . /sys/kernel/mm/transparent_hugepage/{enabled,defrag}".to_owned());
    f.next.push("grep -E 'compact_|thp_fault|allocstall' /proc/vmstat".to_owned());
    f
}
