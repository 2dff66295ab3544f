//! SoftIRQs per CPU: share of the core, rates per vector, one row of heat over time. From
//! `/proc/stat`, `/proc/softirqs` and `softnet_stat`.

use std::fmt::Write as _;

use super::{Pane, PaneCx, PaneVm};
use crate::collect::CollectorId;
use crate::diagnose::Severity;
use crate::model::derive::cpu::{CpuShare, SoftnetFigures};
use crate::model::subject::CpuId;
use crate::view::context::Cx;
use crate::view::series::{self, Buckets};
use crate::view::state::{PaneId, RowKey};
use crate::view::table::{Cell, Column, ColumnInfo, HIDDEN, Table, Unit, Value};
use crate::view::units;
use crate::view::vm::{Line, Size, Tone};

fn share(cx: &Cx<'_>, cpu: CpuId) -> Option<CpuShare> {
    cx.cpu?.value.cpu(cpu)
}
fn softnet<'a>(cx: &Cx<'a>, cpu: CpuId) -> Option<&'a SoftnetFigures> {
    cx.softirq?.value.softnet(cpu)
}
fn vector(cx: &Cx<'_>, cpu: CpuId, name: &str) -> Value {
    Value::num(cx.softirq.and_then(|s| s.value.rate(cpu, name)))
}

macro_rules! figures {
    ($($name:ident = |$cx:ident, $c:ident| $body:expr;)+) => {
        $( fn $name($cx: &Cx<'_>, $c: CpuId) -> Value { $body } )+
    };
}
figures! {
    cpu = |_cx, c| Value::Num(f64::from(c.0));
    si = |cx, c| Value::num(share(cx, c).map(|s| s.softirq));
    hi = |cx, c| Value::num(share(cx, c).map(|s| s.irq));
    user = |cx, c| Value::num(share(cx, c).map(|s| s.user));
    system = |cx, c| Value::num(share(cx, c).map(|s| s.system));
    iowait = |cx, c| Value::num(share(cx, c).map(|s| s.iowait));
    steal = |cx, c| Value::num(share(cx, c).map(|s| s.steal));
    idle = |cx, c| Value::num(share(cx, c).map(|s| s.idle));
    net_rx = |cx, c| vector(cx, c, "NET_RX");
    net_tx = |cx, c| vector(cx, c, "NET_TX");
    block = |cx, c| vector(cx, c, "BLOCK");
    sched = |cx, c| vector(cx, c, "SCHED");
    timer = |cx, c| vector(cx, c, "TIMER");
    tasklet = |cx, c| vector(cx, c, "TASKLET");
    rcu = |cx, c| vector(cx, c, "RCU");
    squeeze = |cx, c| Value::num(softnet(cx, c).map(|s| s.squeeze_s));
    dropped = |cx, c| Value::num(softnet(cx, c).map(|s| s.dropped_s));
    packets = |cx, c| Value::num(softnet(cx, c).map(|s| s.processed_s));
}

/// One bar per bucket on a fixed scale of 0 to 100%: rows of CPUs can be compared.
fn heat(cx: &Cx<'_>, c: CpuId, w: u16) -> Cell {
    let b = Buckets::new(
        cx.mono(),
        std::time::Duration::from_secs(60),
        cx.analysis.host().interval,
        usize::from(w),
    );
    let v = series::maxima(cx, b, |m| Some(m.derived.cpu.as_ref()?.cpu(c)?.softirq));
    Cell::Spark(series::levels(&v, 100.0), Tone::Plain)
}

static COLUMNS: [Column<CpuId>; 19] = [
    Column::new("cpu", "cpu", 4, Unit::Count, cpu)
        .prio(0)
        .first(crate::view::table::First::Low)
        .about("CPU number"),
    Column::new("si", "si%", 5, Unit::Percent, si)
        .prio(0)
        .about("share of the core spent in software interrupts"),
    Column::new("net_rx", "net_rx", 6, Unit::Number, net_rx).prio(1).about("NET_RX per second"),
    Column::new("net_tx", "net_tx", 6, Unit::Number, net_tx).prio(5).about("NET_TX per second"),
    Column::new("block", "block", 5, Unit::Number, block).prio(3).about("BLOCK per second"),
    Column::new("sched", "sched", 5, Unit::Number, sched).prio(6).about("SCHED per second"),
    Column::new("timer", "timer", 5, Unit::Number, timer).prio(7).about("TIMER per second"),
    Column::new("history", "si% over time", 20, Unit::Text, si)
        .prio(2)
        .grow(40)
        .write(heat)
        .about("si% of the last minute, 0 to 100"),
    Column::new("squeeze", "sqz/s", 5, Unit::Number, squeeze)
        .prio(8)
        .about("times the softirq budget ran out, per second"),
    Column::new("drop", "drop", 5, Unit::Number, dropped)
        .prio(9)
        .about("packets dropped at the backlog, per second"),
    Column::new("user", "us%", 5, Unit::Percent, user).prio(10).about("user"),
    Column::new("system", "sy%", 5, Unit::Percent, system).prio(10).about("kernel"),
    Column::new("iowait", "wa%", 5, Unit::Percent, iowait).prio(11).about("idle, I/O pending"),
    Column::new("steal", "st%", 5, Unit::Percent, steal).prio(11).about("taken by hypervisor"),
    Column::new("irq", "hi%", 5, Unit::Percent, hi).prio(12).about("hardware interrupts"),
    Column::new("idle", "id%", 5, Unit::Percent, idle).prio(HIDDEN).about("idle"),
    Column::new("packets", "pkt/s", 5, Unit::Number, packets)
        .prio(HIDDEN)
        .about("packets processed per second"),
    Column::new("rcu", "rcu", 5, Unit::Number, rcu).prio(HIDDEN).about("RCU per second"),
    Column::new("tasklet", "taskl", 5, Unit::Number, tasklet)
        .prio(HIDDEN)
        .about("TASKLET per second"),
];

/// The pane.
pub struct Softirq;

impl Table for Softirq {
    type Row = CpuId;

    fn columns(&self) -> &'static [Column<CpuId>] {
        &COLUMNS
    }
    fn rows(&self, cx: &Cx<'_>) -> Vec<CpuId> {
        match (cx.cpu, cx.softirq) {
            (Some(c), _) => c.value.cpus.iter().map(|c| c.0).collect(),
            (None, Some(s)) => s.value.per_cpu.iter().map(|c| c.0).collect(),
            (None, None) => Vec::new(),
        }
    }
    fn key(&self, _cx: &Cx<'_>, r: CpuId) -> RowKey {
        RowKey::Cpu(r)
    }
    fn mark(&self, cx: &Cx<'_>, r: CpuId) -> Option<Severity> {
        cx.marks.cpu(r)
    }
    /// In steps of five percent: idle CPUs do not dance.
    fn trouble(&self, cx: &Cx<'_>, r: CpuId) -> f64 {
        let mark = self.mark(cx, r).map_or(0.0, |s| 1e6 * (1.0 + f64::from(s as u8)));
        mark + share(cx, r).map_or(0.0, |s| ((s.softirq - 5.0) / 10.0).round().max(0.0))
    }
    fn search(&self, _cx: &Cx<'_>, r: CpuId, out: &mut String) {
        let _ = write!(out, "{r}");
    }
}

fn footer(inner: Size) -> u16 {
    u16::from(inner.h >= 5)
}

fn softnet_line(cx: &Cx<'_>) -> Line {
    let Some(s) = cx.softirq else { return Line::of(" softnet n/a", Tone::Dim) };
    let mut line = Line::new();
    let drops: f64 = s.value.softnet.iter().map(|c| c.dropped_s).sum();
    let squeezes: f64 = s.value.softnet.iter().map(|c| c.squeeze_s).sum();
    let most = |f: fn(&SoftnetFigures) -> f64| {
        let row = s.value.softnet.iter().filter(|c| f(c) > 0.0);
        let row = row.max_by(|a, b| f(a).total_cmp(&f(b)));
        row.and_then(|r| r.cpu).map_or(String::new(), |c| format!(" {c}"))
    };
    line.add(" softnet", Tone::Dim);
    let tone = |v: f64| if v > 0.0 { Tone::Strong } else { Tone::Dim };
    line.add(format!(" drop {}/s{}", units::count(drops), most(|c| c.dropped_s)), tone(drops));
    line.add(
        format!("  squeeze {}/s{}", units::count(squeezes), most(|c| c.squeeze_s)),
        tone(squeezes),
    );
    if let Some(rx) = s.value.total("NET_RX") {
        line.add(format!("  net_rx {}/s", units::count(rx)), Tone::Dim);
    }
    line
}

impl Pane for Softirq {
    fn id(&self) -> PaneId {
        PaneId::Softirq
    }
    fn name(&self) -> &'static str {
        "softirq"
    }
    fn title(&self) -> &'static str {
        "SoftIRQ"
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
    fn list_rows(&self, _p: &PaneCx<'_>, inner: Size) -> usize {
        usize::from(inner.h.saturating_sub(1 + footer(inner))).max(1)
    }
    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        let cx = p.cx;
        let at = cx.softirq.map(|s| s.at).or(cx.cpu.map(|c| c.at));
        let mut vm = PaneVm {
            title: vec![("% of core, events/s".into(), Tone::Plain)],
            note: super::note(p, "softirqs", CollectorId::Softirq, at),
            ..PaneVm::default()
        };
        if cx.cpu.is_none() && cx.softirq.is_none() {
            vm.lines = super::empty_lines(p, CollectorId::Softirq, inner.w);
            return vm;
        }
        let rows = self.list_rows(p, inner);
        let win = super::window(self, p, rows);
        vm.title.extend(super::order_title(self, p, &win));
        super::add_table(&mut vm, self, p, &win, inner.w);
        if footer(inner) > 0 {
            while vm.lines.len() < rows + 1 {
                vm.lines.push(Line::new());
            }
            vm.lines.push(softnet_line(cx));
        }
        vm
    }
}
