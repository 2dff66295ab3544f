//! Memory of the host and of cgroups over the last seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::super::Window;
use super::cgroups::of_v1;
use super::text::sh;
use crate::sample::cgroups::CgroupRow;
use crate::sample::subject::CgroupId;

/// Growth of a `/proc/vmstat` counter over the last `span`, or over as much of it as was
/// observed; `None` if this kernel does not have it, it fell, or there is only one reading.
pub(crate) fn grown(w: &Window<'_>, name: &str, span: Duration) -> Option<(u64, Duration)> {
    let now = w.tick.samples.memory.as_ref()?;
    let oldest = w
        .history
        .back_from(w.tick.seq)
        .skip(1)
        .take_while(|m| w.tick.mono.since(m.tick.mono) <= span)
        .filter_map(|m| m.tick.samples.memory.as_ref())
        .last()?;
    let delta = now.data.get(name)?.checked_sub(oldest.data.get(name)?)?;
    Some((delta, now.span.mid().since(oldest.span.mid())))
}

/// The first and the last reading of a cgroup within a span.
pub(crate) struct Seen<'a> {
    /// The last reading.
    pub now: &'a CgroupRow,
    /// The first one.
    pub first: &'a CgroupRow,
}

impl Seen<'_> {
    /// OOM kills in this cgroup.
    pub(crate) fn killed(&self) -> u64 {
        let grown = |a: u64, b: u64| b.checked_sub(a);
        self.first.oom_kills.zip(self.now.oom_kills).and_then(|(a, b)| grown(a, b)).unwrap_or(0)
    }
    /// How often an allocation hit the limit.
    pub(crate) fn failed(&self) -> Option<u64> {
        self.now.memory_failures?.checked_sub(self.first.memory_failures?)
    }
}

/// Every cgroup that was read in the last `span`.
pub(crate) fn groups<'a>(w: &Window<'a>, span: Duration) -> Vec<Seen<'a>> {
    let mut found: BTreeMap<(CgroupId, &str), Seen<'a>> = BTreeMap::new();
    let moments = w
        .history
        .back_from(w.tick.seq)
        .take_while(|m| w.tick.mono.since(m.tick.mono) <= span)
        .filter_map(|m| m.tick.samples.cgroups.as_ref());
    // The newest comes first.
    for g in moments.flat_map(|s| &s.data.groups) {
        found.entry((g.id, &g.mount)).or_insert(Seen { now: g, first: g }).first = g;
    }
    found.into_values().collect()
}

/// The smaller of its limits, bytes.
pub(crate) fn limit(g: &CgroupRow) -> Option<u64> {
    g.memory_limit_bytes.into_iter().chain(g.memory_high_bytes).min()
}

/// A command that prints the cgroup's memory files.
pub(crate) fn files(g: &CgroupRow) -> String {
    let files = if of_v1(&g.mount, "memory") {
        "memory.usage_in_bytes memory.limit_in_bytes memory.failcnt memory.oom_control"
    } else {
        "memory.current memory.max memory.high memory.events"
    };
    let dir = sh(&format!("{}{}", g.mount, g.path));
    format!("cd {dir} && grep . {files}")
}
