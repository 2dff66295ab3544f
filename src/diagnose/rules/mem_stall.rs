//! `mem-stall`: tasks stall while memory is reclaimed or swapped in.

use super::common::text::{bytes, rate};
use super::common::{by_memory, memory, vm};
use crate::diagnose::limits::{Levels, Limit};
use crate::diagnose::rules::prelude::*;
use crate::sample::cgroups::CgroupRow;
use crate::sample::subject::{CgroupId, Subject};
use std::collections::BTreeMap;

pub(in crate::diagnose) static LIMIT: Limit = Limit {
    rule: RuleId("mem-stall"),
    of: "time in which all tasks wait for memory, %",
    warn: 10.0,
    clear: 7.0,
    crit: 40.0,
    range: (1.0, 90.0),
};
/// Usage as a fraction of the limit from which a cgroup reclaims for every page.
const AT_LIMIT: f64 = 0.95;
/// Bytes that reclaim frees ahead of use: a large part of a small limit.
const SLACK: u64 = 512 << 10;
/// Maximum age of a reading: cgroups are read in rotation.
const REMEMBER: Duration = Duration::from_secs(15);
/// Major faults per second at which node-mixin warns.
const MAJOR_FAULTS: f64 = 500.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("mem-stall"),
    title: "tasks stall while memory is reclaimed or swapped in",
    condition: "All runnable tasks wait for memory 10% or more of the time (memory PSI full), \
        for 5 of 10 s. Critical at 40%. Clears below 7%.",
    look_alikes: "A cold cache: reading a file for the first time is I/O, not memory; refaults \
        stay low. Little free memory: the page cache is meant to use it, and nothing waits. A \
        cgroup at its limit on a host with free memory: that is this finding too, and it names \
        the cgroup.",
    remedy: "Find the cgroup at its limit: memory.max and memory.limit_in_bytes include page \
        cache, so a buffered writer stalls on its own dirty pages. Raise the limit, use less \
        memory (a smaller heap, O_DIRECT), or protect other cgroups with memory.low.",
    sources: "/proc/pressure/memory, /proc/vmstat; node-mixin warns at 500 major faults/s.",
    hold: Hold::of(5, 10),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Psi], explains: &[], check };

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let at = t.levels(&LIMIT);
    let Some(psi) = w.derived.psi else { return };
    let Some(full) = psi.memory_full else {
        return out.cannot_judge("no `full` in /proc/pressure/memory");
    };
    if full >= at.warn {
        out.fire(Subject::Host, fire(w, full, at));
    } else if full >= at.clear {
        out.linger(Subject::Host);
    }
}

fn fire(w: &Window<'_>, full: f64, at: Levels) -> Fire {
    let severity = if full >= at.crit { Severity::Crit } else { Severity::Warn };
    let groups = at_limit(w);
    let whose =
        groups.first().map_or(String::new(), |g| format!("; {} is at its limit", g.group.path));
    let mut f =
        Fire::new(severity, format!("all tasks wait for memory {full:.0}% of the time{whose}"));
    let some = w.derived.psi.and_then(|p| p.memory_some);
    let some = some.map_or(String::new(), |s| format!(", some {s:.0}%"));
    let text = format!("memory pressure full {full:.0}%{some}");
    f.evidence.push(Evidence::new("psi memory", full, "%", text).over(at.over(full)));
    for g in groups.iter().take(3) {
        let text = format!("{}: {} of {}", g.group.path, bytes(g.peak), bytes(g.limit));
        let e = Evidence::new("memory.max", g.peak as f64, "bytes", text);
        f.evidence.push(e.over(g.limit as f64));
    }
    counters(&mut f, w);
    let available = w.tick.samples.memory.as_ref().and_then(|m| m.data.get("meminfo.MemAvailable"));
    if let Some(kb) = available {
        let text = format!("{} available on the host", bytes(kb.saturating_mul(1024)));
        f.evidence.push(Evidence::new("MemAvailable", kb as f64 * 1024.0, "bytes", text));
    }
    match groups.first() {
        Some(g) => {
            by_memory::blame_cgroup(w, g.group, g.peak, g.limit, &mut f);
            f.next.push(memory::files(g.group));
        }
        None => by_memory::blame(w, &mut f),
    }
    f.next.push("vmstat 1 3; sar -B 1 3".to_owned());
    by_memory::next(&mut f);
    f.next.push("dmesg | grep -i oom | tail".to_owned());
    f
}

/// Adds the reclaim counters and rules out a cold cache.
fn counters(f: &mut Fire, w: &Window<'_>) {
    let stalls = vm::rate(w, "allocstall");
    let (major, swap) = (vm::rate(w, "pgmajfault"), vm::rate(w, "pswpin"));
    let refault = vm::rate(w, "workingset_refault");
    if w.tick.samples.memory.is_none() {
        f.missing.push("how much memory is reclaimed (no /proc/vmstat)".to_owned());
    }
    if let Some(n) = stalls {
        let text =
            format!("allocstall {}/s: allocations that had to reclaim memory first", rate(n));
        f.evidence.push(Evidence::new("allocstall", n, "/s", text));
    }
    if let Some(n) = major {
        let text = format!("pgmajfault {}/s", rate(n));
        f.evidence.push(Evidence::new("pgmajfault", n, "/s", text).over(MAJOR_FAULTS));
    }
    if let Some(n) = swap.filter(|n| *n > 0.0) {
        let text = format!("swap in {} pages/s", rate(n));
        f.evidence.push(Evidence::new("pswpin", n, "/s", text));
    }
    let io = w.derived.psi.and_then(|p| p.io_full);
    let because = match (refault, io) {
        (Some(r), _) if r > 0.0 => {
            format!("refaults {}/s: pages just evicted are read back", rate(r))
        }
        (_, Some(io)) => {
            format!("io pressure full {io:.0}%; this time counts as waiting for memory")
        }
        _ => "the kernel counts this time as waiting for memory, not for I/O".to_owned(),
    };
    f.ruled_out.push(RuledOut::new("cold-cache", because));
}

/// A cgroup with its recent peak usage.
struct Full<'a> {
    group: &'a CgroupRow,
    peak: u64,
    limit: u64,
}

/// cgroups at their limit, fullest first. Reclaim frees a little at a time, so usage swings below
/// the limit and the peak counts.
fn at_limit<'a>(w: &Window<'a>) -> Vec<Full<'a>> {
    let mut found: BTreeMap<(CgroupId, &str), Full<'a>> = BTreeMap::new();
    let moments = w
        .history
        .back_from(w.tick.seq)
        .take_while(|m| w.tick.mono.since(m.tick.mono) <= REMEMBER)
        .filter_map(|m| m.tick.samples.cgroups.as_ref());
    for g in moments.flat_map(|s| &s.data.groups) {
        let (Some(now), Some(limit)) = (g.memory_bytes, g.memory_limit_bytes) else { continue };
        // The newest limit counts. On v1, no limit is a number larger than all memory.
        if limit > 0 && (w.host.memory_bytes == 0 || limit <= w.host.memory_bytes) {
            let new = Full { group: g, peak: now, limit };
            let f = found.entry((g.id, &g.mount)).or_insert(new);
            f.peak = f.peak.max(now);
        }
    }
    let full = |f: &Full<'_>| {
        f.peak as f64 >= AT_LIMIT * f.limit as f64 || f.peak.saturating_add(SLACK) >= f.limit
    };
    let share = |f: &Full<'_>| f.peak as f64 / f.limit as f64;
    let mut out: Vec<Full<'a>> = found.into_values().filter(full).collect();
    out.sort_by(|a, b| share(b).total_cmp(&share(a)).then(a.group.path.cmp(&b.group.path)));
    out
}
