//! Processes: those whose threads wait most come first. What their threads do with the rest of their
//! time is told on a page of its own, since looking costs something: only the process of an open page
//! is watched.

mod detail;
mod study;

pub use study::{Studies, Study};

use std::fmt::Write as _;

use super::{ListPane, PaneCx, PaneId, PaneVm};
use crate::diagnose::Severity;
use crate::metrics::processes::ProcessFigures;
use crate::sample::CollectorId;
use crate::view::context::Cx;
use crate::view::state::RowKey;
use crate::view::table::{Column, Table, Unit, Value};
use crate::view::text;
use crate::view::vm::{Line, Size, Tone};

/// A row: index into the processes of the moment.
#[derive(Clone, Copy, Debug)]
pub struct ProcessRef(u32);

impl ProcessRef {
    fn get<'a>(self, cx: &'a Cx<'_>) -> Option<&'a ProcessFigures> {
        cx.processes().get(self.0 as usize)
    }
}

/// A process in this moment.
fn find<'a>(cx: &'a Cx<'_>, pid: u32) -> Option<&'a ProcessFigures> {
    let all = cx.processes();
    all.binary_search_by_key(&pid, |p| p.pid).ok().and_then(|i| all.get(i))
}

/// The process whose number is filtered by: `2214`, `pid=2214`.
fn named(filter: &str) -> Option<u32> {
    let filter = filter.trim();
    let value = filter.strip_prefix("pid").map(|f| f.trim_start_matches([':', '=']));
    value.unwrap_or(filter).parse().ok().filter(|pid| *pid > 0)
}

/// `java/2214`.
fn title(p: &ProcessFigures) -> String {
    format!("{}/{}", text::clean(&p.comm), p.pid)
}

macro_rules! figure {
    ($name:ident, |$p:ident| $body:expr) => {
        fn $name(cx: &Cx<'_>, r: ProcessRef) -> Value {
            r.get(cx).map_or(Value::Unknown, |$p| $body)
        }
    };
}
figure!(process, |p| Value::Text(title(p).into()));
figure!(pid, |p| Value::Num(p.pid.into()));
figure!(wait_s, |p| Value::Num(p.wait));
figure!(blocked, |p| if p.blocked == 0 { Value::Empty } else { Value::Num(p.blocked.into()) });
figure!(wchan, |p| match (&p.wchan, p.blocked) {
    (Some(f), _) => Value::name(f),
    (None, 0) => Value::Empty,
    (None, _) => Value::Unknown,
});
figure!(run, |p| Value::Num(p.run * 100.0));
figure!(slices, |p| Value::Num(p.slices_s));
figure!(read, |p| Value::num(p.io.map(|io| io.0)));
figure!(write, |p| Value::num(p.io.map(|io| io.1)));
figure!(threads, |p| Value::Num(p.threads.into()));
figure!(cgroup, |p| p.cgroup.as_deref().map_or(Value::Unknown, Value::name));

static COLUMNS: [Column<ProcessRef>; 11] = [
    Column::new("process", 16, Unit::Task, process).prio(0).grow(28).about("comm and process id"),
    Column::new("wait/s", 6, Unit::Time, wait_s)
        .prio(0)
        .about("time its threads were runnable but not running, per second"),
    Column::new("blocked", 7, Unit::Count, blocked)
        .prio(1)
        .about("threads in uninterruptible sleep (D)"),
    Column::new("run%", 5, Unit::Percent, run).prio(1).about("CPU used, % of a core"),
    Column::new("read/s", 6, Unit::Bytes, read).prio(2).about("bytes read from disks, per second"),
    Column::new("write/s", 7, Unit::Bytes, write)
        .prio(2)
        .about("bytes written to disks, per second"),
    Column::new("wchan", 12, Unit::Text, wchan)
        .prio(3)
        .grow(24)
        .about("function of the kernel that a thread in D sleeps in"),
    Column::new("threads", 7, Unit::Count, threads)
        .prio(4)
        .about("threads that ran, waited for a CPU or were in D"),
    Column::new("slices/s", 8, Unit::Number, slices).prio(6).about("time slices per second"),
    Column::new("cgroup", 10, Unit::Path, cgroup)
        .prio(5)
        .grow(40)
        .about("cgroup, read only for threads that wait or run a lot"),
    Column::new("pid", 7, Unit::Count, pid)
        .prio(crate::view::table::HIDDEN)
        .about("process id"),
];

/// The pane.
pub struct Processes;

impl Table for Processes {
    type Row = ProcessRef;

    fn columns(&self) -> &'static [Column<ProcessRef>] {
        &COLUMNS
    }
    fn rows(&self, cx: &Cx<'_>) -> Vec<ProcessRef> {
        (0..cx.processes().len() as u32).map(ProcessRef).collect()
    }
    fn key(&self, cx: &Cx<'_>, r: ProcessRef) -> RowKey {
        RowKey::Process(r.get(cx).map_or(0, |p| p.pid))
    }
    fn mark(&self, cx: &Cx<'_>, r: ProcessRef) -> Option<Severity> {
        cx.marks.process(r.get(cx)?.pid)
    }
    /// Threads that wait, on average; of those that do not, who runs. In steps of the double: who waits
    /// a little more than a second ago does not change its place.
    fn trouble(&self, cx: &Cx<'_>, r: ProcessRef) -> f64 {
        let mark = self.mark(cx, r).map_or(0.0, |s| 1e9 * (1.0 + f64::from(s as u8)));
        let step = |seconds: f64| (1.0 + 1000.0 * seconds).log2().floor();
        let p = r.get(cx);
        mark + p.map_or(0.0, |p| 100.0 * step(p.wait + f64::from(p.blocked)) + step(p.run))
    }
    fn search(&self, cx: &Cx<'_>, r: ProcessRef, out: &mut String) {
        if let Some(p) = r.get(cx) {
            let cgroup = p.cgroup.as_deref().unwrap_or_default();
            let _ = write!(out, "{}/{} {cgroup}", p.comm, p.pid);
        }
    }
}

impl ListPane for Processes {
    const ID: PaneId = PaneId::Processes;
    const NAME: &'static str = "processes";
    const TITLE: &'static str = "Processes";
    const HELP: &'static str = "go to the processes";

    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        let at = p.cx.sched.map(|s| s.at);
        let unread = p.cx.sched.map_or(0, |s| s.value.unread_threads);
        let mut vm = PaneVm {
            title: vec![("waiting and running".into(), Tone::Plain)],
            note: super::note(p, "schedstat", CollectorId::Sched, at),
            ..PaneVm::default()
        };
        if unread > 0 {
            vm.title.push((format!("{unread} threads unread").into(), Tone::Dim));
        }
        if p.cx.processes().is_empty() {
            vm.lines = match (p.cx.sched, unread) {
                (None, _) => super::empty_lines(p, CollectorId::Sched, inner.w),
                (Some(_), 0) => vec![Line::of(" no process ran or waited", Tone::Dim)],
                (Some(_), _) => {
                    vec![Line::of(" none of the threads that were read ran or waited", Tone::Dim)]
                }
            };
            return vm;
        }
        let win = super::window(self, p, ListPane::list_rows(self, p, inner));
        vm.title.extend(super::order_title(self, p, &win));
        super::add_table(&mut vm, self, p, &win, inner.w);
        if let Some(pid) = named(&p.st.filter.text).filter(|_| win.passed == 0) {
            let says = format!(" process {pid} neither ran nor waited: Enter opens its page");
            vm.lines.push(Line::of(says, Tone::Dim));
        }
        vm
    }
}
