//! Threads as evidence: which ones wait for a CPU, are switched to, or are blocked, and in what.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::super::{Evidence, Window};
use super::text::{count, rate};
use crate::metrics::Derived;
use crate::metrics::cpu::ThreadWait;
use crate::metrics::rate::per_second;
use crate::sample::processes::BlockedTask;
use crate::sample::sched::{TaskKind, ThreadSched};
use crate::sample::subject::TaskId;

/// Maximum number of threads named in a finding.
const NAMED: usize = 5;
/// How long a list of blocked tasks stays valid.
const FRESH: Duration = Duration::from_secs(5);

/// `SCHED_IDLE`: threads that run only when no other thread wants to.
pub(crate) const SCHED_IDLE: u32 = 5;

/// Threads with this nice value or above, and SCHED_IDLE threads, are meant to wait for the others.
const NICE: i8 = 10;

/// Is this thread meant to wait for the others?
pub(crate) fn is_niced(t: &ThreadWait) -> bool {
    t.thread.nice.is_some_and(|n| n >= NICE) || t.thread.policy == Some(SCHED_IDLE)
}

/// CPU time that is available to any thread, % of all CPUs.
#[derive(Clone, Copy)]
pub(crate) struct Spare {
    /// Idle, including iowait. Steal is not idle time.
    pub idle: f64,
    /// Used by niced threads.
    pub niced: f64,
}

impl Spare {
    pub(crate) fn of(w: &Window<'_>, d: &Derived) -> Option<Self> {
        let t = d.cpu.as_ref()?.total?;
        let percent = |ms_s: f64| ms_s / 10.0 / f64::from(w.host.cpus.max(1));
        let threads = d.sched.as_ref().map_or(&[][..], |s| &s.threads);
        let run = |which: fn(&&ThreadWait) -> bool| {
            percent(threads.iter().filter(which).filter_map(run_ms_s).fold(0.0, |sum, ms| sum + ms))
        };
        // `nice` of /proc/stat counts user time, including that of threads that live for
        // milliseconds.
        let slightly = run(|t| !is_niced(t) && t.thread.nice.is_some_and(|n| n > 0));
        let niced = run(|t| is_niced(t)).max(t.nice - slightly);
        // Threads are read at other times than /proc/stat.
        let niced = niced.min(t.user + t.nice + t.system);
        Some(Self { idle: t.idle + t.iowait, niced })
    }

    /// %.
    pub(crate) fn total(self) -> f64 {
        self.idle + self.niced
    }

    pub(crate) fn text(self) -> String {
        if self.niced < 1.0 {
            return format!("idle {:.0}%", self.idle);
        }
        format!("idle {:.0}%, niced threads use {:.0}%", self.idle, self.niced)
    }
}

/// CPU time of a thread, ms/s.
pub(crate) fn run_ms_s(t: &ThreadWait) -> Option<f64> {
    per_second(t.run_ns as f64 / 1e6, t.dt)
}

/// Waits this long (ms) at fewer than this many slices per second may be sleep that the kernel
/// counts as run_delay.
const SLEEP_MS: f64 = 64.0;
const SLEEP_SLICES_S: f64 = 5.0;

/// May the run_delay of this thread be sleep?
pub(crate) fn may_be_sleep(w: &Window<'_>, t: &ThreadWait) -> bool {
    let long = t.wait_per_slice_ms().is_some_and(|ms| ms >= SLEEP_MS);
    long && slices_s(t) < SLEEP_SLICES_S && counts_sleep(&w.host.kernel)
}

/// May tasks of this kernel stay queued while they sleep? Since 6.12.
fn counts_sleep(release: &str) -> bool {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 12),
        _ => true,
    }
}

/// Threads that were skipped by the reading budget are taken from samples up to this old.
pub(crate) const REMEMBER: Duration = Duration::from_secs(4);

/// The threads with their latest metrics: from this tick, and with a reading budget also from the
/// ticks just before.
pub(crate) fn latest<'a>(w: &Window<'a>) -> Vec<&'a ThreadWait> {
    let mut out: BTreeMap<TaskId, &'a ThreadWait> = BTreeMap::new();
    let now = w.tick.mono;
    for m in w.history.back_from(w.tick.seq) {
        let age = now.since(m.tick.mono);
        let Some(sched) = m.derived.sched.as_deref() else { continue };
        if age > REMEMBER || (age > Duration::ZERO && sched.unread_threads == 0) {
            break;
        }
        for t in &sched.threads {
            out.entry(t.thread.task).or_insert(t);
        }
    }
    out.into_values().collect()
}

/// Does it stay on its CPUs whoever asks? Recordings that do not say so have the name: of a
/// kernel thread per CPU (`ksoftirqd/3`) and of any `kworker`.
pub(crate) fn is_bound(t: &ThreadSched) -> bool {
    t.kind.map_or_else(|| is_bound_name(&t.comm), |kind| kind == TaskKind::BoundKernel)
}

/// The same, where only the name is known.
pub(crate) fn is_bound_name(comm: &str) -> bool {
    const KINDS: [&str; 7] =
        ["ksoftirqd", "migration", "cpuhp", "idle_inject", "irq_work", "rcuc", "ktimers"];
    let Some((name, rest)) = comm.split_once('/') else { return false };
    let numbered = rest.starts_with(|c: char| c.is_ascii_digit());
    name == "kworker" || KINDS.contains(&name) && numbered
}

/// Is it a thread of the kernel? Recordings that do not say so have the name, of some.
pub(crate) fn is_kernel(t: &ThreadSched) -> bool {
    t.kind.map_or_else(|| is_bound_name(&t.comm), |kind| kind != TaskKind::User)
}

/// `java/2214`.
pub(crate) fn name(t: &ThreadWait) -> String {
    format!("{}/{}", t.thread.comm, t.thread.task.tid)
}

/// The threads that wait longest for a CPU.
pub(crate) fn waiters<'a>(w: &Window<'a>) -> Vec<&'a ThreadWait> {
    let Some(s) = w.derived.sched.as_deref() else { return Vec::new() };
    s.threads.iter().filter(|t| t.run_delay_ns > 0).take(NAMED).collect()
}

/// The threads that are switched to most often.
pub(crate) fn switched<'a>(w: &Window<'a>) -> Vec<&'a ThreadWait> {
    let Some(s) = w.derived.sched.as_deref() else { return Vec::new() };
    let mut all: Vec<&ThreadWait> = s.threads.iter().filter(|t| t.slices > 0).collect();
    all.sort_by(|a, b| slices_s(b).total_cmp(&slices_s(a)).then(a.thread.task.cmp(&b.thread.task)));
    all.truncate(NAMED);
    all
}

/// How often a thread was switched to, per second.
pub(crate) fn slices_s(t: &ThreadWait) -> f64 {
    crate::metrics::rate::per_second(t.slices as f64, t.dt).unwrap_or(0.0)
}

/// The waiting threads in one line.
pub(crate) fn waiting(w: &Window<'_>) -> Option<Evidence> {
    let all = waiters(w);
    let first = all.first()?;
    let text: Vec<String> =
        all.iter().map(|t| format!("{} {:.0} ms/s", name(t), t.wait_ms_s())).collect();
    let text = format!("waiting longest for a CPU: {}", text.join(", "));
    Some(Evidence::new("run_delay", first.wait_ms_s(), "ms/s", text))
}

/// The most switched threads in one line.
pub(crate) fn switching(w: &Window<'_>) -> Option<Evidence> {
    let all = switched(w);
    let first = all.first()?;
    let text: Vec<String> =
        all.iter().map(|t| format!("{} {}/s", name(t), rate(slices_s(t)))).collect();
    let text = format!("most context switches: {}", text.join(", "));
    Some(Evidence::new("slices", slices_s(first), "/s", text))
}

/// Tasks that are blocked, or were when last read: with a reading budget each list is partial.
/// `None`: no recent list.
pub(crate) fn blocked_tasks<'a>(w: &Window<'a>) -> Option<Vec<&'a BlockedTask>> {
    let mut found: BTreeMap<TaskId, &'a BlockedTask> = BTreeMap::new();
    let mut any = false;
    let lists = w
        .history
        .back_from(w.tick.seq)
        .take_while(|m| w.tick.mono.since(m.tick.mono) <= FRESH)
        .filter_map(|m| m.tick.samples.processes.as_ref());
    for list in lists {
        any = true;
        for b in &list.data.blocked {
            found.entry(b.task).or_insert(b);
        }
        if list.data.unread == 0 {
            // A complete list: older ones are obsolete.
            break;
        }
    }
    any.then(|| found.into_values().collect())
}

/// Blocked tasks by wchan, most first: `5 tasks in submit_bio_wait (dd, fio)`.
pub(crate) fn blocked(w: &Window<'_>) -> Vec<String> {
    let Some(p) = blocked_tasks(w) else { return Vec::new() };
    let mut by: BTreeMap<&str, (usize, Vec<&str>)> = BTreeMap::new();
    for b in &p {
        let group = by.entry(b.wchan.as_deref().unwrap_or("?")).or_default();
        group.0 += 1;
        if group.1.len() < 3 && !group.1.contains(&&*b.comm) {
            group.1.push(&b.comm);
        }
    }
    let mut all: Vec<_> = by.into_iter().collect();
    all.sort_by(|a, b| b.1.0.cmp(&a.1.0).then(a.0.cmp(b.0)));
    all.truncate(NAMED);
    let text = |(wchan, (n, comms)): (&str, (usize, Vec<&str>))| {
        let what =
            if wchan == "?" { "blocked, wchan unknown".to_owned() } else { format!("in {wchan}") };
        format!("{} {what} ({})", count(n, "task"), comms.join(", "))
    };
    all.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_no_one_can_move_is_told_by_its_flag_and_else_by_its_name() {
        for bound in ["ksoftirqd/0", "kworker/12:1H-kblockd", "kworker/u8:3-flush", "migration/3"] {
            assert!(is_bound_name(bound), "{bound}");
        }
        for free in ["java", "app/1", "ksoftirqd", "worker/501", "kswapd0", "migration/x"] {
            assert!(!is_bound_name(free), "{free}");
        }
        let is_bound = |kind| {
            is_bound(&ThreadSched {
                comm: "kworker/0:1".to_owned(),
                kind,
                ..ThreadSched::default()
            })
        };
        assert!(is_bound(None) && is_bound(Some(TaskKind::BoundKernel)));
        assert!(!is_bound(Some(TaskKind::User)) && !is_bound(Some(TaskKind::Kernel)));
    }
}
