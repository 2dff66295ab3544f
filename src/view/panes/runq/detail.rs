//! A thread: how long it waits for a CPU, and what may hold it back.

use crate::metrics::bpf::runq::TaskWaits;
use crate::metrics::cpu::ThreadWait;
use crate::sample::subject::TaskId;
use crate::view::context::Cx;
use crate::view::lines::{chart, field, findings_on, gone, throttling};
use crate::view::panes::runq::RunQueue;
use crate::view::panes::{RowDetail, runq};
use crate::view::state::RowKey;
use crate::view::vm::{Line, Tone};
use crate::view::{text, units};

impl RowDetail for RunQueue {
    fn title(&self, _cx: &Cx<'_>, _key: RowKey) -> &'static str {
        "Thread"
    }
    fn lines(&self, cx: &Cx<'_>, key: RowKey, w: u16) -> Vec<Line> {
        let RowKey::Task(id) = key else { return Vec::new() };
        lines(cx, id, w)
    }
    fn process(&self, _cx: &Cx<'_>, key: RowKey) -> Option<u32> {
        let RowKey::Task(id) = key else { return None };
        Some(id.pid)
    }
}

fn lines(cx: &Cx<'_>, id: TaskId, w: u16) -> Vec<Line> {
    let Some(t) = runq::find(cx, id) else { return only_waits(cx, id) };
    let mut out = vec![Line::of(format!(" {}", runq::title(t)), Tone::Strong)];
    out.extend(findings_on(cx, RowKey::Task(id)));
    out.push(Line::new());
    let s = &t.thread;
    out.push(field(
        "process",
        format!("pid {}  tid {}  state {}", id.pid, id.tid, letter(s.state)),
    ));
    let pct = |v: Option<f64>| v.map_or(units::UNKNOWN.to_owned(), |v| units::pct(v * 100.0));
    out.push(field(
        "waits",
        format!(
            "{}/s, {}% of wait and run, {} before each slice, {} slices in {}",
            units::millis(t.wait_ms_s()),
            pct(t.wait_share()),
            t.wait_per_slice_ms().map_or(units::UNKNOWN.to_owned(), units::millis),
            t.slices,
            units::duration(t.dt)
        ),
    ));
    out.extend(runq::find_waits(cx, id.tid).map(long_waits));
    let on = s.last_cpu.map_or(units::UNKNOWN.to_owned(), |c| c.to_string());
    let allowed = s.allowed.as_deref().unwrap_or(units::UNKNOWN);
    out.push(field("cpu", format!("last on {on}, may run on {}", text::clean(allowed))));
    let nice = s.nice.map_or(units::UNKNOWN.to_owned(), |n| n.to_string());
    let policy = s.policy.map_or(units::UNKNOWN.to_owned(), |p| match p {
        0 => "other".to_owned(),
        1 => "fifo".to_owned(),
        2 => "rr".to_owned(),
        3 => "batch".to_owned(),
        5 => "idle".to_owned(),
        6 => "deadline".to_owned(),
        p => p.to_string(),
    });
    out.push(field("priority", format!("nice {nice}, policy {policy}")));
    if let Some(g) = &s.cgroup {
        out.push(field("cgroup", text::clean(g).into_owned()));
        out.extend(throttling(cx, g));
    }
    out.push(Line::new());
    let find = move |d: &crate::metrics::Derived| -> Option<ThreadWait> {
        d.sched.as_ref()?.threads.iter().find(|t| t.thread.task == id).cloned()
    };
    out.push(chart(cx, "wait/s", w, 0.001, units::secs, move |d| {
        find(d).map(|t| t.wait_ms_s() / 1e3)
    }));
    out.push(chart(cx, "run %", w, 100.0, units::pct, move |d| {
        find(d).map(|t| t.run_ns as f64 / 1e7 / t.dt.as_secs_f64().max(1e-3))
    }));
    out
}

/// What eBPF saw of a thread.
fn long_waits(w: &TaskWaits) -> Line {
    let secs = |ns: u64| units::secs(ns as f64 / 1e9);
    field(
        "long waits",
        format!(
            "{} of 1 ms or more, {} in total, longest {} on {} (eBPF)",
            units::int(w.count),
            secs(w.sum_ns),
            secs(w.max_ns),
            w.cpu
        ),
    )
}

/// A thread that ended before anything but its waits could be read.
fn only_waits(cx: &Cx<'_>, id: TaskId) -> Vec<Line> {
    let Some(w) = runq::find_waits(cx, id.tid) else { return gone("thread") };
    let mut out = vec![Line::of(format!(" {}", runq::waiter_title(w)), Tone::Strong)];
    out.extend(findings_on(cx, RowKey::Task(id)));
    out.push(Line::new());
    let pid = w.pid.map_or(units::UNKNOWN.to_owned(), |p| p.to_string());
    out.push(field("process", format!("pid {pid}  tid {}", w.tid)));
    out.push(long_waits(w));
    if let Some(path) = w.cgroup.and_then(|id| cx.cgroup_path(id)) {
        out.push(field("cgroup", text::clean(path).into_owned()));
    }
    out.push(Line::of(
        " nothing else was read: it has exited, or the budget was spent on others",
        Tone::Dim,
    ));
    out
}

fn letter(c: char) -> char {
    if c.is_ascii_alphabetic() { c } else { '?' }
}
