//! Waiting for a CPU: heat map of waits over time, and the threads that wait longest. From
//! `/proc/PID/task/TID/schedstat`: the kernel gives sums per thread, so the map shows means.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Pane, PaneCx, PaneVm};
use crate::collect::CollectorId;
use crate::diagnose::Severity;
use crate::model::derive::cpu::ThreadWait;
use crate::model::subject::TaskId;
use crate::view::context::Cx;
use crate::view::series::{Buckets, WAIT_ROWS, Waits, wait_row_top};
use crate::view::state::{PaneId, RowKey};
use crate::view::table::{Cell, Column, ColumnInfo, HIDDEN, Table, Unit, Value};
use crate::view::vm::{Line, Piece, Size, Tone};
use crate::view::{text, units};

/// A row: index into the threads of the moment.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRef(u32);

impl ThreadRef {
    fn get<'a>(self, cx: &Cx<'a>) -> Option<&'a ThreadWait> {
        cx.sched?.value.threads.get(self.0 as usize)
    }
}

/// Waits of a thread in this moment.
#[must_use]
pub fn find<'a>(cx: &Cx<'a>, id: TaskId) -> Option<&'a ThreadWait> {
    cx.sched?.value.threads.iter().find(|t| t.thread.task == id)
}

macro_rules! figure {
    ($name:ident, |$t:ident| $body:expr) => {
        fn $name(cx: &Cx<'_>, r: ThreadRef) -> Value {
            r.get(cx).map_or(Value::Unknown, |$t| $body)
        }
    };
}
figure!(name, |t| Value::Text(title(t).into()));
figure!(wait_s, |t| Value::Num(t.wait_ms_s() / 1e3));
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
figure!(cgroup, |t| t.thread.cgroup.as_deref().map_or(Value::Unknown, Value::name));
figure!(allowed, |t| t.thread.allowed.as_deref().map_or(Value::Unknown, Value::name));
figure!(pid, |t| Value::Num(f64::from(t.thread.task.pid)));

/// `java/2214`.
#[must_use]
pub fn title(t: &ThreadWait) -> String {
    format!("{}/{}", text::clean(&t.thread.comm), t.thread.task.tid)
}

fn nice_cell(cx: &Cx<'_>, r: ThreadRef, _w: u16) -> Cell {
    match r.get(cx).and_then(|t| t.thread.nice) {
        Some(n) => Cell::Text(n.to_string().into(), Tone::Plain),
        None => Cell::Text(units::UNKNOWN.into(), Tone::Dim),
    }
}

static COLUMNS: [Column<ThreadRef>; 11] = [
    Column::new("thread", "thread", 14, Unit::Task, name)
        .prio(0)
        .grow(26)
        .about("comm and thread id"),
    Column::new("wait", "wait/s", 6, Unit::Time, wait_s)
        .prio(0)
        .about("time spent runnable but not running, per second"),
    Column::new("slice", "/slice", 6, Unit::Time, per_slice)
        .prio(1)
        .about("mean wait before each time slice"),
    Column::new("share", "wait%", 5, Unit::Percent, wait_share)
        .prio(2)
        .about("wait as a part of wait and run"),
    Column::new("run", "run%", 5, Unit::Percent, run).prio(3).about("CPU used, % of a core"),
    Column::new("cpu", "cpu", 4, Unit::Count, cpu).prio(4).about("CPU it last ran on"),
    Column::new("slices", "slc/s", 5, Unit::Number, slices).prio(6).about("time slices per s"),
    Column::new("cgroup", "cgroup", 10, Unit::Path, cgroup)
        .prio(5)
        .grow(40)
        .about("cgroup, read only for threads that wait much"),
    Column::new("allowed", "allowed", 8, Unit::Text, allowed)
        .prio(7)
        .grow(16)
        .about("CPUs it may run on, read only for threads that wait much"),
    Column::new("nice", "ni", 3, Unit::Number, nice).prio(8).write(nice_cell).about("nice value"),
    Column::new("pid", "pid", 7, Unit::Count, pid).prio(HIDDEN).about("process id"),
];

/// The pane.
pub struct RunQueue;

impl Table for RunQueue {
    type Row = ThreadRef;

    fn columns(&self) -> &'static [Column<ThreadRef>] {
        &COLUMNS
    }
    fn rows(&self, cx: &Cx<'_>) -> Vec<ThreadRef> {
        let n = cx.sched.map_or(0, |s| s.value.threads.len());
        (0..n as u32).map(ThreadRef).collect()
    }
    fn key(&self, cx: &Cx<'_>, r: ThreadRef) -> RowKey {
        RowKey::Task(r.get(cx).map_or_else(TaskId::default, |t| t.thread.task))
    }
    fn mark(&self, cx: &Cx<'_>, r: ThreadRef) -> Option<Severity> {
        cx.marks.task(r.get(cx)?.thread.task)
    }
    fn trouble(&self, cx: &Cx<'_>, r: ThreadRef) -> f64 {
        let mark = self.mark(cx, r).map_or(0.0, |s| 1e9 * (1.0 + f64::from(s as u8)));
        mark + r.get(cx).map_or(0.0, ThreadWait::wait_ms_s)
    }
    fn search(&self, cx: &Cx<'_>, r: ThreadRef, out: &mut String) {
        if let Some(t) = r.get(cx) {
            let _ = write!(out, "{}/{}", t.thread.comm, t.thread.task.tid);
            let _ = write!(out, " {}", t.thread.cgroup.as_deref().unwrap_or_default());
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

/// Rows of the line with the percentiles.
fn summary_rows(inner: Size) -> u16 {
    u16::from(inner.h >= 4)
}

fn shade(part: u64, whole: u64) -> u8 {
    if part == 0 || whole == 0 {
        return 0;
    }
    match part as f64 / whole as f64 {
        s if s < 0.05 => 1,
        s if s < 0.25 => 2,
        s if s < 0.60 => 3,
        _ => 4,
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
    // Two seconds a column at least: a map that shifts every second is dear on a slow link.
    let span = Duration::from_secs(60).max(Duration::from_secs(2) * u32::try_from(n).unwrap_or(1));
    let b = Buckets::new(cx.mono(), span, interval, n);
    let mut columns = vec![[0u64; WAIT_ROWS]; n];
    for (at, w) in p.view.waits.back_from(cx.now.tick.seq) {
        if at < b.start {
            break;
        }
        if let Some(c) = b.index(at).and_then(|i| columns.get_mut(i)) {
            c.iter_mut().zip(w.slices).for_each(|(sum, n)| *sum = sum.saturating_add(n));
        }
    }
    let used = |row: usize| columns.iter().any(|c| c[row] > 0);
    let top = (0..WAIT_ROWS).rev().find(|r| used(*r)).unwrap_or(0);
    let top = top.max(usize::from(rows) - 1).min(WAIT_ROWS - 1);
    let bottom = (top + 1).saturating_sub(rows.into());
    (bottom..=top)
        .rev()
        .map(|row| {
            // The lowest row shown takes in all that is shorter.
            let from = if row == bottom { 0 } else { row };
            let label = if row + 1 == WAIT_ROWS {
                format!(">{}", units::secs(wait_row_top(row - 1)))
            } else {
                format!("<{}", units::secs(wait_row_top(row)))
            };
            let shades =
                columns.iter().map(|c| shade(c[from..=row].iter().sum(), c.iter().sum())).collect();
            let mut line = Line::of(format!("{label:>LABEL$} "), Tone::Dim);
            line.push(Piece::Heat(shades, Tone::Plain));
            line
        })
        .collect()
}

fn summary_line(p: &PaneCx<'_>) -> Line {
    let w = p.view.waits.back_from(p.cx.now.tick.seq).next().map(|w| *w.1);
    let w: Waits = w.unwrap_or_default();
    let show = |v: Option<f64>| v.map_or_else(|| units::UNKNOWN.to_owned(), units::secs);
    let mut line = Line::of(
        format!(" p50 {:<5} p99 {:<5} max {:<5}", show(w.p50), show(w.p99), show(w.max)),
        Tone::Plain,
    );
    if let Some(cpu) = p.cx.now.derived.psi.and_then(|p| p.cpu_some) {
        line.add(format!(" cpu psi {}%", units::pct(cpu)), Tone::Dim);
    }
    if let Some(n) = p.cx.sched.map(|s| s.value.unread_threads).filter(|n| *n > 0) {
        line.add(format!(" {n} unread"), Tone::Dim);
    }
    line
}

impl Pane for RunQueue {
    fn id(&self) -> PaneId {
        PaneId::RunQueue
    }
    fn name(&self) -> &'static str {
        "run-queue"
    }
    fn title(&self) -> &'static str {
        "Run queue"
    }
    fn columns(&self) -> Vec<ColumnInfo> {
        COLUMNS.iter().map(ColumnInfo::from).collect()
    }
    fn count(&self, p: &PaneCx<'_>) -> usize {
        super::count(self, p)
    }
    fn place(&self, p: &PaneCx<'_>, key: RowKey) -> Option<usize> {
        super::place_of(self, p, key)
    }
    fn key_at(&self, p: &PaneCx<'_>, place: usize) -> Option<RowKey> {
        super::key_at(self, p, place)
    }
    fn list_rows(&self, inner: Size) -> usize {
        let other = heat_rows(inner) + summary_rows(inner) + 1;
        usize::from(inner.h.saturating_sub(other)).max(1)
    }
    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        let at = p.cx.sched.map(|s| s.at);
        let mut vm = PaneVm {
            title: vec![("wait before running".into(), Tone::Plain)],
            note: super::note(p, "schedstat", CollectorId::Sched, at),
            ..PaneVm::default()
        };
        if p.cx.sched.is_none() {
            vm.lines = super::empty_lines(p, CollectorId::Sched, inner.w);
            return vm;
        }
        let win = super::window(self, p, self.list_rows(inner));
        if !p.st.filter.is_empty() || p.held.is_some() || p.focused {
            vm.title.extend(super::order_title(self, p, &win));
        }
        vm.lines = heat_lines(p, inner, heat_rows(inner));
        if summary_rows(inner) > 0 {
            vm.lines.push(summary_line(p));
        }
        super::add_table(&mut vm, self, p, &win, inner.w);
        vm
    }
}
