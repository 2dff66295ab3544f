//! `cgroup-mem-stall`: a cgroup thrashes at its memory limit on a host with enough memory.

use super::super::NOT_YET;
use super::common::by_memory;
use super::common::cgroups::{of_v1, subject, with_rows};
use super::common::memory::{self, limit};
use super::common::text::{bytes, rate};
use super::common::vm;
use super::mem_stall;
use crate::diagnose::rules::prelude::*;
use crate::metrics::cgroups::CgroupFigures;
use crate::sample::cgroups::CgroupRow;

/// memory PSI full of the cgroup, %.
const FULL: f64 = 10.0;
/// File pages per second that refault just after eviction.
const REFAULTS: f64 = 1000.0;
/// io PSI some of the host, %.
const IO: f64 = 20.0;
/// Usage as a fraction of the limit from which a cgroup reclaims for every page.
const AT_LIMIT: f64 = 0.95;
/// Bytes that reclaim frees ahead of use: a large part of a small limit.
const SLACK: u64 = 512 << 10;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;
/// Fraction of memory available from which the host has enough.
const ENOUGH: f64 = 0.05;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("cgroup-mem-stall"),
    title: "a cgroup thrashes at its memory limit: it keeps rereading pages that were just \
        evicted",
    condition: "v2: all tasks of the cgroup wait for memory 10% or more of the time (memory PSI \
        full) while the host's tasks do not. v1 has no PSI per cgroup: the cgroup is at its \
        limit and failcnt grows, 1000 or more file pages per second refault \
        (workingset_refault_file), tasks wait for I/O 20% or more of the time (io PSI), and the \
        host has memory available; suspected when more than one cgroup qualifies. For 5 of 10 \
        s. Clears below 0.7 of these.",
    look_alikes: "A cold cache: a first read does not refault. A host short of memory: \
        mem-stall, and MemAvailable is low. A slow disk: refaults stay low. A cgroup whose page \
        cache fills the limit is fine as long as none of it is needed again.",
    remedy: "Raise memory.max or memory.high (memory.limit_in_bytes) until the working set of \
        files fits: page cache counts. Or read one-off data with O_DIRECT or fadvise DONTNEED, \
        and run the scanning job in its own cgroup.",
    sources: "memory.pressure, memory.events, memory.failcnt, /proc/vmstat. Measured: a file of \
        200 MiB read in a loop in a v1 cgroup of 50 MiB gives 16.7k refaults/s, io PSI 54%, \
        memory PSI only 3%.",
    hold: Hold::of(5, 10),
    needs_time: Duration::from_secs(7),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Cgroups], explains: &[], check };

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let host = t.levels(&mem_stall::LIMIT).warn;
    if w.derived.psi.and_then(|p| p.memory_full).is_some_and(|full| full >= host) {
        // mem-stall names the group.
        return;
    }
    let mut thrashing: Vec<(&CgroupFigures, &CgroupRow)> = Vec::new();
    let mut lingering: Vec<Subject> = Vec::new();
    for (g, row) in with_rows(w) {
        match g.psi_memory_full {
            Some(full) if full >= FULL => out.fire(subject(g), stalled(w, g, row, full)),
            Some(full) if full >= CLEAR * FULL => out.linger(subject(g)),
            None if g.memory_failures_s.is_some_and(|n| n > 0.0) && is_at_limit(row) => {
                thrashing.push((g, row));
                lingering.push(subject(g));
            }
            _ => {}
        }
    }
    if thrashing.is_empty() {
        return;
    }
    let Some(t) = Thrash::of(w) else {
        for s in lingering {
            out.unknown(s, NOT_YET);
        }
        return;
    };
    if t.over(1.0) {
        let alone = thrashing.len() == 1;
        for (g, row) in thrashing {
            out.fire(subject(g), thrashes(w, g, row, &t, alone));
        }
    } else if t.over(CLEAR) {
        for s in lingering {
            out.linger(s);
        }
    }
}

fn is_at_limit(r: &CgroupRow) -> bool {
    r.memory_bytes.zip(limit(r)).is_some_and(|(now, most)| {
        now as f64 >= AT_LIMIT * most as f64 || now.saturating_add(SLACK) >= most
    })
}

/// Host-wide signs of a cgroup that rereads evicted pages.
struct Thrash {
    refaults: f64,
    io: f64,
    available: f64,
    total: f64,
}

impl Thrash {
    fn of(w: &Window<'_>) -> Option<Self> {
        let memory = w.tick.samples.memory.as_ref()?;
        Some(Self {
            refaults: vm::rate(w, "workingset_refault_file")?,
            io: w.derived.psi.and_then(|p| p.io_some)?,
            available: memory.data.get("meminfo.MemAvailable")? as f64 * 1024.0,
            total: memory.data.get("meminfo.MemTotal")? as f64 * 1024.0,
        })
    }
    fn over(&self, part: f64) -> bool {
        self.refaults >= part * REFAULTS
            && self.io >= part * IO
            && self.available >= ENOUGH * self.total
    }
}

fn stalled(w: &Window<'_>, g: &CgroupFigures, r: &CgroupRow, full: f64) -> Fire {
    let text = format!("{} waits for memory {full:.0}% of the time; the host does not", g.path);
    let mut f = Fire::new(Severity::Warn, text);
    let some = g.psi_memory.map_or(String::new(), |s| format!(", some {s:.0}%"));
    let text = format!("memory.pressure full {full:.0}%{some}");
    f.evidence.push(Evidence::new("psi memory", full, "%", text).over(FULL));
    if let Some(n) = vm::rate(w, "workingset_refault_file") {
        let text = format!("workingset_refault_file {}/s on the host", rate(n));
        f.evidence.push(Evidence::new("workingset_refault_file", n, "/s", text));
    }
    group(w, &mut f, g, r);
    if let Some(host) = w.derived.psi.and_then(|p| p.memory_full) {
        let text = format!("host memory pressure full {host:.0}%");
        f.ruled_out.push(RuledOut::new("mem-stall", text));
    } else {
        f.confidence = Confidence::Suspected;
        f.missing.push("whether the host waits too (no host PSI)".to_owned());
        f.ruled_out.push(RuledOut::new("cold-cache", "a first read causes no memory pressure"));
    }
    f
}

fn thrashes(w: &Window<'_>, g: &CgroupFigures, r: &CgroupRow, t: &Thrash, alone: bool) -> Fire {
    let text = format!(
        "{} rereads pages it just evicted: {} pages/s at its memory limit",
        g.path,
        rate(t.refaults)
    );
    let mut f = Fire::new(Severity::Warn, text);
    let text = format!("workingset_refault_file {}/s", rate(t.refaults));
    let e = Evidence::new("workingset_refault_file", t.refaults, "/s", text);
    f.evidence.push(e.over(REFAULTS));
    let text = format!("the host's tasks wait for I/O {:.0}% of the time", t.io);
    f.evidence.push(Evidence::new("io some", t.io, "%", text).over(IO));
    if let Some(n) = vm::rate(w, "pgmajfault") {
        f.evidence.push(Evidence::new("pgmajfault", n, "/s", format!("pgmajfault {}/s", rate(n))));
    }
    group(w, &mut f, g, r);
    let text = format!("refaults {}/s: these pages were cached before", rate(t.refaults));
    f.ruled_out.push(RuledOut::new("cold-cache", text));
    let (free, all) = (bytes(t.available as u64), bytes(t.total as u64));
    f.ruled_out.push(RuledOut::new("mem-stall", format!("{free} of {all} available on the host")));
    if !alone {
        f.confidence = Confidence::Suspected;
        f.missing.push("which cgroup it is: several are at their limit".to_owned());
    }
    f
}

/// Adds the cgroup's own numbers, and where to look.
fn group(w: &Window<'_>, f: &mut Fire, g: &CgroupFigures, r: &CgroupRow) {
    if let (Some(now), Some(most)) = (r.memory_bytes, limit(r)) {
        by_memory::blame_cgroup(w, r, now, most, f);
        let text = format!("{}: {} of {}", g.path, bytes(now), bytes(most));
        f.evidence.push(Evidence::new("memory.max", now as f64, "bytes", text).over(most as f64));
    }
    if let Some(n) = g.memory_failures_s {
        let v1 = of_v1(&g.mount, "memory");
        let name = if v1 { "failcnt" } else { "memory.events max and high" };
        let text = format!("{name} {}/s", rate(n));
        f.evidence.push(Evidence::new("failcnt", n, "/s", text));
    }
    f.next.push(memory::files(r));
    let stat = super::common::cgroups::file(g, "memory.stat");
    f.next.push(format!("grep -E 'refault|^(anon|file|rss|cache) ' {stat}"));
    by_memory::next(f);
    f.next.push("vmstat 1 3; grep . /proc/pressure/memory /proc/pressure/io".to_owned());
}
