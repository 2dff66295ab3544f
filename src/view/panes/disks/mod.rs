//! Disks as a stack: what sits on what, with queue, latency and use of each layer. From
//! `/proc/diskstats` and `/sys/block`; where requests wait, from eBPF.

mod detail;
mod processes;
mod requests;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::{ListPane, PaneCx, PaneId, PaneVm};
use crate::diagnose::Severity;
use crate::metrics::bpf::block::{BlockDiskFigures, Stage};
use crate::metrics::disks::DiskFigures;
use crate::sample::CollectorId;
use crate::sample::disks::DiskClass;
use crate::sample::subject::DiskId;
use crate::view::context::Cx;
use crate::view::series;
use crate::view::state::{Cursor, RowKey, Sort};
use crate::view::table::{self, Cell, Column, HIDDEN, Table, Unit, Value};
use crate::view::vm::{Line, Piece, Size, Tone};
use crate::view::{text, units};

/// A row: index into the figures, depth in the stack.
#[derive(Clone, Copy, Debug)]
pub struct DiskRef {
    index: u32,
    depth: u8,
}

impl DiskRef {
    /// Its figures.
    #[must_use]
    pub fn get<'a>(self, cx: &Cx<'a>) -> Option<&'a DiskFigures> {
        cx.disks?.value.get(self.index as usize)
    }
}

/// Figures of a disk in this moment.
#[must_use]
pub fn find<'a>(cx: &Cx<'a>, id: DiskId) -> Option<&'a DiskFigures> {
    cx.disks?.value.iter().find(|d| d.id == id)
}

/// Devices without any I/O that nobody asks about: empty loop devices, RAM disks.
fn is_noise(d: &DiskFigures) -> bool {
    let empty_loop = d.name.starts_with("loop") && d.attrs.backing_file.is_none();
    (empty_loop || d.attrs.class == DiskClass::Memory || d.attrs.size_sectors == Some(0))
        && d.completed == 0
        && d.aqu_sz == 0.0
}

/// Disks from the bottom of each stack upwards, as `lsblk` lists them. A layer over several
/// disks is listed below the first of them.
fn tree(disks: &[DiskFigures], cx: &Cx<'_>) -> Vec<DiskRef> {
    let by_name: HashMap<&str, usize> =
        disks.iter().enumerate().map(|(i, d)| (&*d.name, i)).collect();
    let mut above: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut has_below = HashSet::new();
    for (i, d) in disks.iter().enumerate() {
        let below = d.attrs.slaves.iter().map(String::as_str).chain(d.attrs.parent.as_deref());
        for b in below.filter_map(|n| by_name.get(n)) {
            if *b != i {
                above.entry(*b).or_default().push(i);
                has_below.insert(i);
            }
        }
    }
    let mut roots: Vec<usize> = (0..disks.len()).filter(|i| !has_below.contains(i)).collect();
    let worst = |i: &usize| disks.get(*i).and_then(|d| cx.marks.disk(d.id));
    roots.sort_by_key(|i| std::cmp::Reverse(worst(i)));
    let mut out = Vec::new();
    let mut seen = HashSet::new();
    let mut stack: Vec<(usize, u8)> = roots.into_iter().rev().map(|i| (i, 0)).collect();
    // Layers cannot form a cycle; if the files say so, this still ends.
    while let Some((i, depth)) = stack.pop() {
        let Some(d) = disks.get(i) else { continue };
        if !seen.insert(i) {
            continue;
        }
        let over = above.get(&i).map_or(&[][..], Vec::as_slice);
        let plain_partition = d.attrs.class == DiskClass::Partition && over.is_empty();
        if (is_noise(d) || plain_partition) && cx.marks.disk(d.id).is_none() {
            continue;
        }
        out.push(DiskRef { index: i as u32, depth });
        stack.extend(over.iter().rev().map(|o| (*o, depth.saturating_add(1))));
    }
    out
}

macro_rules! figure {
    ($name:ident, |$d:ident| $body:expr) => {
        fn $name(cx: &Cx<'_>, r: DiskRef) -> Value {
            r.get(cx).map_or(Value::Unknown, |$d| $body)
        }
    };
}
figure!(dev, |d| Value::name(&d.name));
figure!(r_s, |d| Value::Num(d.r_s));
figure!(w_s, |d| Value::Num(d.w_s));
figure!(bytes_s, |d| Value::Num(d.kb_s() * 1024.0));
figure!(queue, |d| Value::Num(d.aqu_sz));
figure!(await_s, |d| if d.completed == 0 {
    Value::Empty
} else {
    Value::num(d.await_ms.map(|v| v / 1e3))
});
figure!(r_await, |d| d.r_await.map_or(Value::Empty, |v| Value::Num(v / 1e3)));
figure!(w_await, |d| d.w_await.map_or(Value::Empty, |v| Value::Num(v / 1e3)));
figure!(f_await, |d| d.f_await.map_or(Value::Empty, |v| Value::Num(v / 1e3)));
figure!(f_s, |d| Value::num(d.f_s));
figure!(util, |d| Value::Num(d.util_shown()));
figure!(areq, |d| d.areq_kb().map_or(Value::Empty, |v| Value::Num(v * 1024.0)));
figure!(merged, |d| d.merged_pct().map_or(Value::Empty, Value::Num));
figure!(in_flight, |d| Value::int(d.in_flight));
figure!(class, |d| Value::Text(class_name(d.attrs.class).into()));
figure!(scheduler, |d| d.attrs.scheduler.as_deref().map_or(Value::Unknown, Value::name));
figure!(on, |d| Value::Text(label(d).into()));

/// Requests of a disk in this moment, by eBPF. Layers have none: dm, md, partitions.
#[must_use]
pub fn requests<'a>(cx: &Cx<'a>, id: DiskId) -> Option<&'a BlockDiskFigures> {
    cx.block_bpf?.value.disk(id)
}

/// % of the time of requests that was waiting for the device.
fn queue_pct(cx: &Cx<'_>, r: DiskRef) -> Value {
    let Some(d) = r.get(cx) else { return Value::Unknown };
    if cx.block_bpf.is_none() {
        return Value::Unknown;
    }
    let share = requests(cx, d.id).and_then(BlockDiskFigures::queue_share);
    share.map_or(Value::Empty, |s| Value::Num(s * 100.0))
}
fn split_cell(cx: &Cx<'_>, r: DiskRef, _w: u16) -> Cell {
    match queue_pct(cx, r) {
        Value::Num(q) => {
            let q = q.round().clamp(0.0, 100.0);
            let tone = if q >= 50.0 { Tone::Strong } else { Tone::Plain };
            Cell::Text(format!("{q:.0}/{:.0}", 100.0 - q).into(), tone)
        }
        Value::Empty => Cell::Text("--".into(), Tone::Dim),
        v => table::format_value(&v, Unit::Percent),
    }
}
fn p99(cx: &Cx<'_>, r: DiskRef, stage: Stage) -> Value {
    let Some(d) = r.get(cx) else { return Value::Unknown };
    if cx.block_bpf.is_none() {
        return Value::Unknown;
    }
    let l = requests(cx, d.id).and_then(|b| b.latency(stage));
    l.map_or(Value::Empty, |l| Value::Num(l.p99_ns as f64 / 1e9))
}
fn p99_total(cx: &Cx<'_>, r: DiskRef) -> Value {
    p99(cx, r, Stage::Total)
}
fn p99_device(cx: &Cx<'_>, r: DiskRef) -> Value {
    p99(cx, r, Stage::Device)
}
fn splits(cx: &Cx<'_>, r: DiskRef) -> Value {
    let d = r.get(cx).and_then(|d| requests(cx, d.id));
    d.map_or(Value::Unknown, |d| Value::num(d.splits_s))
}

/// What people call the device: volume or backing file.
#[must_use]
pub fn label(d: &DiskFigures) -> String {
    let a = &d.attrs;
    let name = a.dm_name.as_deref().or(a.backing_file.as_deref()).or(a.model.as_deref());
    text::clean(name.unwrap_or_default()).trim().to_owned()
}

/// Name of a class.
#[must_use]
pub fn class_name(c: DiskClass) -> &'static str {
    match c {
        DiskClass::Hdd => "hdd",
        DiskClass::Ssd => "ssd",
        DiskClass::Nvme => "nvme",
        DiskClass::Virtual => "virtual",
        DiskClass::Stack => "stack",
        DiskClass::Partition => "part",
        DiskClass::Memory => "memory",
        DiskClass::Other => "other",
    }
}

fn dev_cell(cx: &Cx<'_>, r: DiskRef, _w: u16) -> Cell {
    let Some(d) = r.get(cx) else { return Cell::Text("".into(), Tone::Dim) };
    let name = text::clean(&d.name);
    let indent = usize::from(r.depth.min(8));
    let text = match indent {
        0 => name.into_owned(),
        n => format!("{}└ {name}", " ".repeat(n - 1)),
    };
    Cell::Text(text.into(), Tone::Plain)
}

static COLUMNS: [Column<DiskRef>; 21] = [
    Column::new("dev", 8, Unit::Text, dev)
        .prio(0)
        .grow(18)
        .write(dev_cell)
        .about("device, and what it sits on"),
    Column::new("r/s", 5, Unit::Number, r_s).prio(3).about("reads completed per second"),
    Column::new("w/s", 5, Unit::Number, w_s).prio(3).about("writes completed per second"),
    Column::new("B/s", 5, Unit::Bytes, bytes_s).prio(4).about("bytes per second"),
    Column::new("qlen", 5, Unit::Number, queue)
        .prio(1)
        .about("mean queue: requests waiting or in the device"),
    Column::new("await", 5, Unit::Time, await_s)
        .prio(1)
        .about("mean time of a request, queue included"),
    Column::new("q/dev", 5, Unit::Percent, queue_pct)
        .prio(2)
        .write(split_cell)
        .about("% of await before / in the device (eBPF)"),
    Column::new("util", 4, Unit::Percent, util)
        .prio(2)
        .about("% of the time with a request in flight"),
    Column::new("p99", 5, Unit::Time, p99_total)
        .prio(4)
        .about("99th percentile of request time, queue included (eBPF)"),
    Column::new("dev99", 5, Unit::Time, p99_device)
        .prio(5)
        .about("99th percentile in the device alone (eBPF)"),
    Column::new("r_await", 7, Unit::Time, r_await).prio(6).about("await of reads"),
    Column::new("w_await", 7, Unit::Time, w_await).prio(6).about("await of writes"),
    Column::new("areq-sz", 7, Unit::Bytes, areq).prio(5).about("mean size of a request"),
    Column::new("inflight", 8, Unit::Count, in_flight).prio(7).about("in flight now"),
    Column::new("f/s", 5, Unit::Number, f_s).prio(8).about("flushes per second"),
    Column::new("f_await", 7, Unit::Time, f_await).prio(8).about("await of flushes"),
    Column::new("merge%", 6, Unit::Percent, merged).prio(9).about("merged requests"),
    Column::new("class", 7, Unit::Text, class).prio(10).about("kind of device"),
    Column::new("sched", 11, Unit::Text, scheduler).prio(11).about("I/O scheduler"),
    Column::new("split/s", 7, Unit::Number, splits)
        .prio(10)
        .about("bios split because too large, per second (eBPF)"),
    Column::new("label", 12, Unit::Text, on)
        .prio(HIDDEN)
        .grow(30)
        .about("volume, backing file or model"),
];

/// The pane.
pub struct Disks;

impl Table for Disks {
    type Row = DiskRef;

    fn columns(&self) -> &'static [Column<DiskRef>] {
        &COLUMNS
    }
    fn rows(&self, cx: &Cx<'_>) -> Vec<DiskRef> {
        cx.disks.map_or_else(Vec::new, |d| tree(d.value, cx))
    }
    fn key(&self, cx: &Cx<'_>, r: DiskRef) -> RowKey {
        RowKey::Disk(r.get(cx).map_or_else(DiskId::default, |d| d.id))
    }
    fn mark(&self, cx: &Cx<'_>, r: DiskRef) -> Option<Severity> {
        cx.marks.disk(r.get(cx)?.id)
    }
    fn trouble(&self, cx: &Cx<'_>, r: DiskRef) -> f64 {
        let mark = self.mark(cx, r).map_or(0.0, |s| 1e6 * (1.0 + f64::from(s as u8)));
        mark + r.get(cx).map_or(0.0, |d| d.aqu_sz)
    }
    fn offers(&self, cx: &Cx<'_>, column: &'static str) -> bool {
        cx.block_bpf.is_some() || !matches!(column, "q/dev" | "p99" | "dev99" | "split/s")
    }
    fn search(&self, cx: &Cx<'_>, r: DiskRef, out: &mut String) {
        if let Some(d) = r.get(cx) {
            let _ = write!(out, "{} {} {}", d.name, label(d), class_name(d.attrs.class));
        }
    }
}

/// Charts below the list, if there is space.
const CHARTS: u16 = 2;

fn charts(inner: Size) -> u16 {
    if inner.h >= 8 { CHARTS } else { u16::from(inner.h >= 5) }
}

/// L and await of a disk over time with their greatest values, and the pressure. Their current
/// values are in the row.
fn chart_lines(cx: &Cx<'_>, id: DiskId, name: &str, inner: Size) -> Vec<Line> {
    let name = text::cut(name, 9);
    let other = text::width(&name) + 31;
    let n = (usize::from(inner.w).saturating_sub(other) / 2).clamp(2, 60);
    let (l, most_l) = series::spark(cx, n, 1.0, |d| d.disk(id).map(|d| d.aqu_sz));
    let (a, most_a) = series::spark(cx, n, 0.1, |d| d.disk(id).and_then(|d| d.await_ms));
    // Without a request there is no await; that does not mean unknown.
    let show = |v: Option<f64>, write: fn(f64) -> String| v.map_or("-".to_owned(), write);
    let mut line =
        Line::of(format!(" {name} qlen max {:<4} ", show(most_l, units::count)), Tone::Dim);
    line.push(Piece::Spark(l, Tone::Plain));
    line.add(format!(" await max {:<4} ", show(most_a, units::millis)), Tone::Dim);
    line.push(Piece::Spark(a, Tone::Plain));
    let psi = cx.now.derived.psi;
    let show =
        |v: Option<f64>| v.map_or(units::UNKNOWN.to_owned(), |v| format!("{}%", units::pct(v)));
    let some = psi.and_then(|p| p.io_some);
    let tone = if some.is_some_and(|v| v >= 10.0) { Tone::Strong } else { Tone::Dim };
    let mut pressure = Line::of(" io pressure ", Tone::Dim);
    pressure.add(format!("some {}", show(some)), tone);
    pressure.add(format!("  full {}", show(psi.and_then(|p| p.io_full))), Tone::Dim);
    vec![line, pressure.whole(inner.w)]
}

impl ListPane for Disks {
    const ID: PaneId = PaneId::Disks;
    const NAME: &'static str = "disks";
    const TITLE: &'static str = "Disks";
    const HELP: &'static str = "go to the disks; again: zoom";
    const SORT: Sort = Sort::Natural { reverse: false };

    fn other_lines(&self, _p: &PaneCx<'_>, inner: Size) -> u16 {
        charts(inner)
    }
    fn wants(&self, p: &PaneCx<'_>) -> u16 {
        u16::try_from(self.rows(p.cx).len()).unwrap_or(u16::MAX).saturating_add(1 + CHARTS)
    }
    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        let cx = p.cx;
        let at = cx.disks.map(|d| d.at);
        let source = if cx.block_bpf.is_some() { "diskstats + eBPF" } else { "diskstats" };
        let mut vm =
            PaneVm { note: super::note(p, source, CollectorId::Disks, at), ..PaneVm::default() };
        if cx.disks.is_none() {
            vm.lines = super::empty_lines(p, CollectorId::Disks, inner.w);
            return vm;
        }
        let rows = self.list_rows(p, inner);
        let win = super::window(self, p, rows);
        vm.title.extend(super::order_title(self, p, &win));
        super::add_table(&mut vm, self, p, &win, inner.w);
        let charts = charts(inner);
        let chosen = win.selected.filter(|_| p.st.cursor != Cursor::Top).or(Some(0));
        let d = chosen.and_then(|i| win.rows.get(i)).and_then(|r| r.get(cx));
        if let (Some(d), true) = (d, charts > 0) {
            while vm.lines.len() < rows + 1 {
                vm.lines.push(Line::new());
            }
            let name = text::clean(&d.name);
            vm.lines.extend(chart_lines(cx, d.id, &name, inner).into_iter().take(charts.into()));
        }
        vm
    }
}
