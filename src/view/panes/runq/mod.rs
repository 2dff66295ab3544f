//! Waiting for a CPU: heat map of waits over time, and the threads that wait longest. From eBPF,
//! which sees every wait; else from `/proc/PID/task/TID/schedstat`, where the kernel gives sums
//! per thread, so that the map shows means. The list of threads joins both.

mod detail;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::{ListPane, PaneCx, PaneId, PaneVm};
use crate::diagnose::Severity;
use crate::metrics::bpf::runq::TaskWaits;
use crate::metrics::cpu::ThreadWait;
use crate::metrics::rate::per_second;
use crate::sample::CollectorId;
use crate::sample::bpf::runq::RunqTier;
use crate::sample::subject::TaskId;
use crate::view::context::Cx;
use crate::view::series::{self, Buckets, LatencyRows, WAIT_ROWS, Waits};
use crate::view::state::RowKey;
use crate::view::table::{Cell, Column, HIDDEN, Table, Unit, Value};
use crate::view::vm::{Line, Piece, Size, Tone};
use crate::view::{text, units};

/// A row.
#[derive(Clone, Copy, Debug)]
pub enum ThreadRef {
    /// Index into the threads of the moment.
    Thread(u32),
    /// Index into the long waits that eBPF saw: a thread that is gone, or was not read.
    Waiter(u32),
}

impl ThreadRef {
    fn thread<'a>(self, cx: &Cx<'a>) -> Option<&'a ThreadWait> {
        match self {
            Self::Thread(i) => cx.sched?.value.threads.get(i as usize),
            Self::Waiter(_) => None,
        }
    }
    /// Its long waits, where eBPF runs.
    fn waits<'a>(self, cx: &Cx<'a>) -> Option<&'a TaskWaits> {
        let tasks = &cx.runq_bpf?.value.tasks;
        match self {
            Self::Thread(_) => {
                let tid = self.thread(cx)?.thread.task.tid;
                tasks.iter().find(|t| t.tid == tid)
            }
            Self::Waiter(i) => tasks.get(i as usize),
        }
    }
    /// Which thread it is.
    fn task(self, cx: &Cx<'_>) -> Option<TaskId> {
        let seen = self.thread(cx).map(|t| t.thread.task);
        seen.or_else(|| self.waits(cx).map(TaskWaits::task))
    }
    /// ms waited per second, as far as known.
    fn wait_ms_s(self, cx: &Cx<'_>) -> f64 {
        let seen = self.thread(cx).map_or(0.0, ThreadWait::wait_ms_s);
        seen.max(self.waits(cx).and_then(|t| long_ms_s(cx, t)).unwrap_or(0.0))
    }
}

/// ms per second in waits of 1 ms or more.
fn long_ms_s(cx: &Cx<'_>, t: &TaskWaits) -> Option<f64> {
    per_second(t.sum_ns as f64 / 1e6, cx.runq_bpf?.value.dt)
}

/// Waits of a thread in this moment.
#[must_use]
pub fn find<'a>(cx: &Cx<'a>, id: TaskId) -> Option<&'a ThreadWait> {
    cx.sched?.value.threads.iter().find(|t| t.thread.task == id)
}

/// Long waits of a thread in this moment, by eBPF.
#[must_use]
pub fn find_waits<'a>(cx: &Cx<'a>, tid: u32) -> Option<&'a TaskWaits> {
    cx.runq_bpf?.value.tasks.iter().find(|t| t.tid == tid)
}

macro_rules! figure {
    ($name:ident, |$t:ident| $body:expr) => {
        fn $name(cx: &Cx<'_>, r: ThreadRef) -> Value {
            r.thread(cx).map_or(Value::Unknown, |$t| $body)
        }
    };
}
figure!(wait_share, |t| t.wait_share().map_or(Value::Empty, |v| Value::Num(v * 100.0)));
figure!(per_slice, |t| t.wait_per_slice_ms().map_or(Value::Empty, |v| Value::Num(v / 1e3)));
figure!(run, |t| {
    let secs = t.dt.as_secs_f64();
    if secs > 0.0 { Value::Num(t.run_ns as f64 / 1e7 / secs) } else { Value::Unknown }
});
figure!(slices, |t| {
    let secs = t.dt.as_secs_f64();
    if secs > 0.0 { Value::Num(t.slices as f64 / secs) } else { Value::Unknown }
});
figure!(cpu, |t| Value::int(t.thread.last_cpu.map(|c| c.0)));
figure!(nice, |t| Value::num(t.thread.nice.map(f64::from)));
figure!(allowed, |t| t.thread.allowed.as_deref().map_or(Value::Unknown, Value::name));

fn name(cx: &Cx<'_>, r: ThreadRef) -> Value {
    match (r.thread(cx), r.waits(cx)) {
        (Some(t), _) => Value::Text(title(t).into()),
        (None, Some(w)) => Value::Text(waiter_title(w).into()),
        (None, None) => Value::Unknown,
    }
}
fn wait_s(cx: &Cx<'_>, r: ThreadRef) -> Value {
    Value::Num(r.wait_ms_s(cx) / 1e3)
}
fn longest(cx: &Cx<'_>, r: ThreadRef) -> Value {
    match (cx.runq_bpf, r.waits(cx)) {
        (None, _) => Value::Unknown,
        (Some(_), Some(w)) => Value::Num(w.max_ns as f64 / 1e9),
        // Its waits may be among those that were not listed.
        (Some(b), None) if b.value.long_unlisted > 0 && r.wait_ms_s(cx) >= 1.0 => Value::Unknown,
        (Some(_), None) => Value::Empty,
    }
}
fn long_s(cx: &Cx<'_>, r: ThreadRef) -> Value {
    let Some(dt) = cx.runq_bpf.map(|b| b.value.dt) else { return Value::Unknown };
    Value::num(per_second(r.waits(cx).map_or(0.0, |w| w.count as f64), dt))
}
fn cgroup(cx: &Cx<'_>, r: ThreadRef) -> Value {
    if let Some(path) = r.thread(cx).and_then(|t| t.thread.cgroup.as_deref()) {
        return Value::name(path);
    }
    let id = r.waits(cx).and_then(|w| w.cgroup);
    id.and_then(|id| cx.cgroup_path(id)).map_or(Value::Unknown, Value::name)
}
fn pid(cx: &Cx<'_>, r: ThreadRef) -> Value {
    let pid = r.thread(cx).map(|t| t.thread.task.pid);
    Value::int(pid.or_else(|| r.waits(cx)?.pid))
}

/// `java/2214`.
#[must_use]
pub fn title(t: &ThreadWait) -> String {
    format!("{}/{}", text::clean(&t.thread.comm), t.thread.task.tid)
}

/// `java/2214`; `?` if the name was already gone.
#[must_use]
pub fn waiter_title(w: &TaskWaits) -> String {
    format!("{}/{}", text::clean(w.comm.as_deref().unwrap_or("?")), w.tid)
}

fn nice_cell(cx: &Cx<'_>, r: ThreadRef, _w: u16) -> Cell {
    match r.thread(cx).and_then(|t| t.thread.nice) {
        Some(n) => Cell::Text(n.to_string().into(), Tone::Plain),
        None => Cell::Text(units::UNKNOWN.into(), Tone::Dim),
    }
}

static COLUMNS: [Column<ThreadRef>; 13] = [
    Column::new("thread", 14, Unit::Task, name).prio(0).grow(26).about("comm and thread id"),
    Column::new("wait/s", 6, Unit::Time, wait_s)
        .prio(0)
        .about("time spent runnable but not running, per second"),
    Column::new("max", 5, Unit::Time, longest)
        .prio(1)
        .about("longest single wait of 1 ms or more (eBPF)"),
    Column::new("slice", 6, Unit::Time, per_slice)
        .prio(1)
        .about("mean wait before each time slice"),
    Column::new("wait%", 5, Unit::Percent, wait_share)
        .prio(2)
        .about("wait as a share of the runnable time"),
    Column::new("run%", 5, Unit::Percent, run).prio(3).about("CPU used, % of a core"),
    Column::new("cpu", 4, Unit::Count, cpu).prio(4).about("CPU it last ran on"),
    Column::new("slices/s", 8, Unit::Number, slices).prio(6).about("time slices per second"),
    Column::new("cgroup", 10, Unit::Path, cgroup)
        .prio(5)
        .grow(40)
        .about("cgroup, read only for threads that wait a lot"),
    Column::new("allowed", 8, Unit::Text, allowed)
        .prio(7)
        .grow(16)
        .about("CPUs it may run on, read only for threads that wait a lot"),
    Column::new("nice", 4, Unit::Number, nice).prio(8).write(nice_cell).about("nice value"),
    Column::new("long/s", 6, Unit::Number, long_s)
        .prio(HIDDEN)
        .about("waits of 1 ms or more, per second (eBPF)"),
    Column::new("pid", 7, Unit::Count, pid).prio(HIDDEN).about("process id"),
];

/// The pane.
pub struct RunQueue;

impl Table for RunQueue {
    type Row = ThreadRef;

    fn columns(&self) -> &'static [Column<ThreadRef>] {
        &COLUMNS
    }
    fn rows(&self, cx: &Cx<'_>) -> Vec<ThreadRef> {
        let threads = cx.sched.map_or(&[][..], |s| &s.value.threads);
        let waiters = cx.runq_bpf.map_or(&[][..], |b| &b.value.tasks);
        let mut out: Vec<ThreadRef> = (0..threads.len() as u32).map(ThreadRef::Thread).collect();
        if !waiters.is_empty() {
            let known: HashSet<u32> = threads.iter().map(|t| t.thread.task.tid).collect();
            let others = waiters.iter().enumerate().filter(|(_, w)| !known.contains(&w.tid));
            out.extend(others.map(|(i, _)| ThreadRef::Waiter(i as u32)));
        }
        out
    }
    fn key(&self, cx: &Cx<'_>, r: ThreadRef) -> RowKey {
        RowKey::Task(r.task(cx).unwrap_or_default())
    }
    fn mark(&self, cx: &Cx<'_>, r: ThreadRef) -> Option<Severity> {
        cx.marks.task(r.task(cx)?)
    }
    fn trouble(&self, cx: &Cx<'_>, r: ThreadRef) -> f64 {
        let mark = self.mark(cx, r).map_or(0.0, |s| 1e9 * (1.0 + f64::from(s as u8)));
        mark + r.wait_ms_s(cx)
    }
    fn offers(&self, cx: &Cx<'_>, column: &'static str) -> bool {
        column != "max" || cx.runq_bpf.is_some()
    }
    fn search(&self, cx: &Cx<'_>, r: ThreadRef, out: &mut String) {
        if let Some(t) = r.thread(cx) {
            let _ = write!(out, "{}/{}", t.thread.comm, t.thread.task.tid);
            let _ = write!(out, " {}", t.thread.cgroup.as_deref().unwrap_or_default());
        } else if let Some(w) = r.waits(cx) {
            let _ = write!(out, "{}/{}", w.comm.as_deref().unwrap_or_default(), w.tid);
        }
    }
}

/// Rows of the heat map in a pane of this size.
fn heat_rows(inner: Size) -> u16 {
    match inner.h {
        0..=6 => 0,
        7..=9 => 3,
        10..=16 => 5,
        _ => WAIT_ROWS as u16,
    }
}

/// Rows of the lines with percentiles and cgroups.
fn summary_rows(cx: &Cx<'_>, inner: Size) -> u16 {
    match inner.h {
        0..=3 => 0,
        17.. => 1 + cgroup_line(cx, inner).map_or(0, |_| 1),
        _ => 1,
    }
}

/// Waits over time, longest on top.
fn heat_lines(p: &PaneCx<'_>, inner: Size, rows: u16) -> Vec<Line> {
    const LABEL: usize = 6;
    let n = usize::from(inner.w).saturating_sub(LABEL + 2);
    if n == 0 || rows == 0 {
        return Vec::new();
    }
    let cx = p.cx;
    let interval = cx.analysis.host().interval;
    // At least two seconds per column: a map that shifts every second is expensive on a slow link.
    let span = Duration::from_secs(60).max(Duration::from_secs(2) * u32::try_from(n).unwrap_or(1));
    let b = Buckets::new(cx.mono(), span, interval, n);
    let mut columns = vec![LatencyRows::default(); n];
    for (at, w) in p.view.waits.back_from(cx.now.tick.seq) {
        if at < b.start {
            break;
        }
        if let Some(c) = b.index(at).and_then(|i| columns.get_mut(i)) {
            c.iter_mut().zip(w.slices).for_each(|(sum, n)| *sum = sum.saturating_add(n));
        }
    }
    let map = series::heat(&columns, rows.into());
    map.into_iter()
        .map(|(label, shades)| {
            let mut line = Line::of(format!("{label:>LABEL$} "), Tone::Dim);
            line.push(Piece::Heat(shades, Tone::Plain));
            line
        })
        .collect()
}

fn summary_line(p: &PaneCx<'_>, inner: Size) -> Line {
    let w = p.view.waits.back_from(p.cx.now.tick.seq).next().map(|w| *w.1);
    let w: Waits = w.unwrap_or_default();
    let show = |v: Option<f64>| v.map_or_else(|| units::UNKNOWN.to_owned(), units::secs);
    let mut text = format!(" p50 {:<5} ", show(w.p50));
    if p.cx.runq_bpf.is_some() {
        let _ = write!(text, "p90 {:<5} ", show(w.p90));
    }
    let _ = write!(text, "p99 {:<5} max {:<5}", show(w.p99), show(w.max));
    let mut line = Line::of(text, Tone::Plain);
    if let Some(share) = p.cx.runq_bpf.and_then(|b| b.value.coverage.share()).filter(|s| *s < 0.999)
    {
        line.add(format!(" cov {:.1}%", share * 100.0), Tone::Warn);
    }
    let waiting = p.cx.runq_bpf.map(|b| b.value.waiting);
    if let Some(tasks) = waiting.filter(|_| inner.w >= 60) {
        line.add(format!("  {tasks:.1} waiting"), Tone::Plain);
    }
    let psi = p.cx.now.derived.psi.and_then(|p| p.cpu_some);
    let psi = psi.map(|cpu| format!(" cpu psi {}%", units::pct(cpu)));
    let unread = p.cx.sched.map(|s| s.value.unread_threads).filter(|n| *n > 0);
    let unread = unread.map(|n| format!(" {n} unread"));
    let slept = p.cx.runq_bpf.map(|b| b.value.slept).filter(|n| *n > 0);
    let slept = slept.map(|n| format!(" {n} slept, left out"));
    for part in psi.into_iter().chain(unread).chain(slept) {
        // Half a number is a wrong number.
        if line.width() + part.len() <= usize::from(inner.w) {
            line.add(part, Tone::Dim);
        }
    }
    line
}

/// cgroups whose tasks wait long; without eBPF, why it is missing.
fn cgroup_line(cx: &Cx<'_>, inner: Size) -> Option<Line> {
    let Some(b) = cx.runq_bpf else {
        let why = cx.no_ebpf(CollectorId::RunqBpf)?;
        let why = text::cut(&why, usize::from(inner.w.saturating_sub(2))).into_owned();
        return Some(Line::of(format!(" {why}"), Tone::Dim));
    };
    let mut line = Line::of(" long waits by cgroup", Tone::Dim);
    for g in b.value.cgroups.iter().take(4) {
        let ms = per_second(g.wait_ns as f64 / 1e6, b.value.dt)?;
        let name = cx.cgroup_path(g.id).map_or_else(
            || format!("id {}", g.id.0),
            |p| text::cut_front(&text::clean(p), 24).into_owned(),
        );
        line.add(format!("  {name} {}/s", units::millis(ms)), Tone::Plain);
    }
    (!b.value.cgroups.is_empty()).then(|| line.whole(inner.w))
}

impl ListPane for RunQueue {
    const ID: PaneId = PaneId::RunQueue;
    const NAME: &'static str = "run-queue";
    const TITLE: &'static str = "Run queue";
    const HELP: &'static str = "go to the run queue; again: zoom";

    fn other_lines(&self, p: &PaneCx<'_>, inner: Size) -> u16 {
        heat_rows(inner) + summary_rows(p.cx, inner)
    }
    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        let cx = p.cx;
        let (title, note) = if let Some(b) = cx.runq_bpf {
            let source = match b.value.tier {
                RunqTier::SchedInfo => "eBPF",
                RunqTier::Wakeup => "eBPF wakeups",
            };
            ("wait before running", super::note(p, source, CollectorId::RunqBpf, Some(b.at)))
        } else {
            let at = cx.sched.map(|s| s.at);
            ("mean waits", super::note(p, "schedstat", CollectorId::Sched, at))
        };
        let title = vec![(title.into(), Tone::Plain)];
        let mut vm = PaneVm { title, note, ..PaneVm::default() };
        if cx.sched.is_none() && cx.runq_bpf.is_none() {
            vm.lines = super::empty_lines(p, CollectorId::Sched, inner.w);
            if cx.why_missing(CollectorId::RunqBpf).is_some() {
                vm.lines.push(Line::of(" eBPF", Tone::Dim));
                vm.lines.extend(super::empty_lines(p, CollectorId::RunqBpf, inner.w));
            }
            return vm;
        }
        let win = super::window(self, p, self.list_rows(p, inner));
        if !p.st.filter.is_empty() || p.held.is_some() || p.focused {
            vm.title.extend(super::order_title(self, p, &win));
        }
        vm.lines = heat_lines(p, inner, heat_rows(inner));
        let summary = summary_rows(cx, inner);
        if summary > 0 {
            vm.lines.push(summary_line(p, inner));
        }
        if summary > 1 {
            vm.lines.extend(cgroup_line(cx, inner));
        }
        super::add_table(&mut vm, self, p, &win, inner.w);
        vm
    }
}
