//! What a process is doing instead of its work, as seen by other collectors.

use super::super::super::{Evidence, Window};
use super::tasks;
use super::text::count;
use crate::metrics::cpu::ThreadWait;
use crate::metrics::rate::per_second;
use crate::sample::sockets::{Life, Owner};
use crate::sample::subject::is_within;

/// Wait for a CPU that is worth reporting, ms/s per thread.
const WAITS: f64 = 100.0;
/// Run time from which a thread does nothing else, ms/s.
const BUSY: f64 = 900.0;
/// Fraction of throttled periods that is worth reporting.
const THROTTLED: f64 = 0.25;

/// `java/2214`, or `java/2214, one of 3 processes`.
pub(crate) fn holder(o: &Owner) -> String {
    let name = super::peers::owner(o);
    if o.holders > 1 { format!("{name}, one of {} processes", o.holders) } else { name }
}

/// Why it cannot run at all, if it cannot.
pub(crate) fn halted(o: &Owner) -> Option<&'static str> {
    match o.life {
        Life::Normal => None,
        Life::Stopped => Some("stopped (state T)"),
        Life::Traced => Some("stopped by a debugger (state t)"),
        Life::Ended => Some("ending (state Z)"),
    }
}

/// What its threads are doing, one line each.
pub(crate) fn evidence(w: &Window<'_>, o: &Owner) -> Vec<Evidence> {
    let mut out = Vec::new();
    if let Some(state) = halted(o) {
        out.push(Evidence::text("state", format!("{} is {state}", super::peers::owner(o))));
    }
    let blocked = tasks::blocked_tasks(w).unwrap_or_default();
    let of_it: Vec<_> = blocked.iter().filter(|t| t.task.pid == o.pid).collect();
    if let Some(t) = of_it.first() {
        let place = t.wchan.as_deref().map_or(String::new(), |p| format!(" in {p}"));
        let text = format!("{} in D state{place}", count(of_it.len(), "thread"));
        out.push(Evidence::text("state", text));
    }
    let threads = w.derived.sched.iter().flat_map(|s| &s.threads);
    let of_it: Vec<&ThreadWait> = threads.filter(|t| t.thread.task.pid == o.pid).collect();
    let most = |ns: fn(&ThreadWait) -> u64| {
        let each = of_it.iter().filter_map(|t| per_second(ns(t) as f64 / 1e6, t.dt));
        each.reduce(f64::max)
    };
    if let Some(ms) = most(|t| t.run_ns).filter(|ms| *ms >= BUSY) {
        let text = format!("a thread runs {:.0}% of the time", ms / 10.0);
        out.push(Evidence::new("run", ms / 10.0, "%", text));
    }
    if let Some(ms) = most(|t| t.run_delay_ns).filter(|ms| *ms >= WAITS) {
        let text = format!("a thread waits {ms:.0} ms/s for a CPU");
        out.push(Evidence::new("run_delay", ms, "ms/s", text));
    }
    out.extend(throttled(w, &of_it));
    out
}

/// Throttling of the cgroup of one of these threads, or of a cgroup above it.
fn throttled(w: &Window<'_>, threads: &[&ThreadWait]) -> Option<Evidence> {
    let groups = w.derived.cgroups.as_deref()?;
    let paths = threads.iter().filter_map(|t| t.thread.cgroup.as_deref());
    for path in paths {
        for g in groups {
            let Some(share) = g.cpu.and_then(|c| c.throttled_share()) else { continue };
            if share >= THROTTLED && is_within(path, &g.path) {
                let pct = 100.0 * share;
                let text = format!("{} is throttled in {pct:.0}% of its periods", g.path);
                return Some(Evidence::new("throttled", pct, "%", text));
            }
        }
    }
    None
}
