//! CPUs: what each does with its time, who runs on it and how much waits for it, with softirqs by
//! vector and the last minute. Time in softirqs is from eBPF, which measures it; else the share is
//! from `/proc/stat`, and how often from `/proc/softirqs`. Drops and squeezes are from `softnet_stat`.

mod detail;

use std::fmt::Write as _;

use super::{ListPane, PaneCx, PaneId, PaneVm};
use crate::diagnose::Severity;
use crate::metrics::Derived;
use crate::metrics::bpf::IrqFigures;
use crate::metrics::cpu::{CpuShare, SoftnetFigures, ThreadWait};
use crate::sample::CollectorId;
use crate::sample::subject::CpuId;
use crate::view::context::Cx;
use crate::view::series::{self, Buckets};
use crate::view::state::RowKey;
use crate::view::table::{self, Cell, Column, HIDDEN, Table, Unit, Value};
use crate::view::vm::{Line, Size, Tone};
use crate::view::{text, units, vitals};

/// Who ran less in the interval is not worth a name: 1% of a second.
const LEAST_RUN_NS: u64 = 10_000_000;

fn share(cx: &Cx<'_>, cpu: CpuId) -> Option<CpuShare> {
    cx.cpu?.value.cpu(cpu)
}
fn softnet<'a>(cx: &Cx<'a>, cpu: CpuId) -> Option<&'a SoftnetFigures> {
    cx.softirq?.value.softnet(cpu)
}
/// % of the core if that is measured, else runs per second.
fn vector(cx: &Cx<'_>, cpu: CpuId, name: &str) -> Value {
    match timed(cx) {
        Some(b) => Value::num(b.vector_pct(cpu, name)),
        None => Value::num(cx.softirq.and_then(|s| s.value.rate(cpu, name))),
    }
}
/// eBPF's figures, if they include the time of softirqs.
fn timed<'a>(cx: &Cx<'a>) -> Option<&'a IrqFigures> {
    cx.irq_bpf.map(|b| b.value).filter(|b| b.softirqs)
}
/// % of the core in softirqs, from the better source.
fn soft_pct(cx: &Cx<'_>, cpu: CpuId) -> Option<f64> {
    match timed(cx) {
        Some(b) => b.soft_pct(cpu),
        None => share(cx, cpu).map(|s| s.softirq),
    }
}
/// The longest softirq of the interval, seconds.
fn longest_run(cx: &Cx<'_>, cpu: CpuId) -> Value {
    let Some(b) = timed(cx) else { return Value::Unknown };
    let runs = b.cpu(cpu).map_or(&[][..], |c| &c.vectors);
    let max = runs.iter().filter_map(|v| v.run.max_ns).max();
    max.map_or(Value::Empty, |ns| Value::Num(ns as f64 / 1e9))
}
fn busy_pct(cx: &Cx<'_>, cpu: CpuId) -> Option<f64> {
    share(cx, cpu).map(vitals::busy)
}
/// The thread that ran most, of those that ran there last.
fn top_thread<'a>(cx: &Cx<'a>, cpu: CpuId) -> Option<&'a ThreadWait> {
    let threads = cx.sched?.value.threads.iter();
    let here = threads.filter(|t| t.thread.last_cpu == Some(cpu) && t.run_ns >= LEAST_RUN_NS);
    here.max_by_key(|t| t.run_ns)
}
fn task_name(t: &ThreadWait) -> String {
    format!("{}/{}", text::clean(&t.thread.comm), t.thread.task.tid)
}
fn runs_s(cx: &Cx<'_>, cpu: CpuId) -> Value {
    let Some(b) = timed(cx) else { return Value::Unknown };
    Value::Num(b.cpu(cpu).map_or(0.0, |c| c.vectors.iter().map(|v| v.run.runs_s).sum()))
}
fn hard_s(cx: &Cx<'_>, cpu: CpuId) -> Value {
    let Some(b) = cx.irq_bpf.map(|b| b.value).filter(|b| b.hardirqs) else { return Value::Unknown };
    Value::Num(b.cpu(cpu).and_then(|c| c.hard).map_or(0.0, |r| r.runs_s))
}

macro_rules! figures {
    ($($name:ident = |$cx:ident, $c:ident| $body:expr;)+) => {
        $( fn $name($cx: &Cx<'_>, $c: CpuId) -> Value { $body } )+
    };
}
figures! {
    cpu = |_cx, c| Value::Num(f64::from(c.0));
    si = |cx, c| Value::num(soft_pct(cx, c));
    hi = |cx, c| match cx.irq_bpf.and_then(|b| b.value.hard_pct(c)) {
        Some(v) => Value::Num(v),
        None => Value::num(share(cx, c).map(|s| s.irq)),
    };
    user = |cx, c| Value::num(share(cx, c).map(|s| s.user));
    system = |cx, c| Value::num(share(cx, c).map(|s| s.system));
    iowait = |cx, c| Value::num(share(cx, c).map(|s| s.iowait));
    steal = |cx, c| Value::num(share(cx, c).map(|s| s.steal));
    idle = |cx, c| Value::num(share(cx, c).map(|s| s.idle));
    busy = |cx, c| Value::num(busy_pct(cx, c));
    runq = |cx, c| Value::num(vitals::waiting_for(cx, c));
    top = |cx, c| match (top_thread(cx, c), cx.sched) {
        (Some(t), _) => Value::Text(task_name(t).into()),
        (None, Some(_)) => Value::Empty,
        (None, None) => Value::Unknown,
    };
    net_rx = |cx, c| vector(cx, c, "NET_RX");
    net_tx = |cx, c| vector(cx, c, "NET_TX");
    block = |cx, c| vector(cx, c, "BLOCK");
    sched = |cx, c| vector(cx, c, "SCHED");
    timer = |cx, c| vector(cx, c, "TIMER");
    tasklet = |cx, c| vector(cx, c, "TASKLET");
    rcu = |cx, c| vector(cx, c, "RCU");
    hrtimer = |cx, c| vector(cx, c, "HRTIMER");
    squeeze = |cx, c| Value::num(softnet(cx, c).map(|s| s.squeeze_s));
    dropped = |cx, c| Value::num(softnet(cx, c).map(|s| s.dropped_s));
    packets = |cx, c| Value::num(softnet(cx, c).map(|s| s.processed_s));
}

/// One bar per bucket on a fixed scale of 0 to 100%: rows of CPUs can be compared.
fn last_minute(cx: &Cx<'_>, w: u16, of: impl Fn(&Derived) -> Option<f64>) -> Cell {
    let interval = cx.analysis.host().interval;
    let b = Buckets::new(cx.mono(), std::time::Duration::from_secs(60), interval, usize::from(w));
    let v = series::maxima(cx, b, |m| of(&m.derived));
    Cell::Spark(series::levels(&v, 100.0), Tone::Plain)
}
fn soft_cell(cx: &Cx<'_>, c: CpuId, w: u16) -> Cell {
    last_minute(cx, w, |d| match d.irq_bpf.as_ref().filter(|b| b.softirqs) {
        Some(b) => b.soft_pct(c),
        None => Some(d.cpu.as_ref()?.cpu(c)?.softirq),
    })
}
fn busy_cell(cx: &Cx<'_>, c: CpuId, w: u16) -> Cell {
    last_minute(cx, w, |d| Some(vitals::busy(d.cpu.as_ref()?.cpu(c)?)))
}

/// A vector: percent where time is measured, else a rate.
macro_rules! vector_cell {
    ($name:ident, $value:ident) => {
        fn $name(cx: &Cx<'_>, c: CpuId, _w: u16) -> Cell {
            let unit = if timed(cx).is_some() { Unit::Percent } else { Unit::Number };
            table::format_value(&$value(cx, c), unit)
        }
    };
}
vector_cell!(net_rx_cell, net_rx);
vector_cell!(net_tx_cell, net_tx);
vector_cell!(block_cell, block);
vector_cell!(sched_cell, sched);
vector_cell!(timer_cell, timer);
vector_cell!(rcu_cell, rcu);
vector_cell!(tasklet_cell, tasklet);
vector_cell!(hrtimer_cell, hrtimer);

static COLUMNS: [Column<CpuId>; 27] = [
    Column::new("cpu", 4, Unit::Count, cpu)
        .prio(0)
        .first(crate::view::table::First::Low)
        .about("CPU number"),
    Column::new("busy%", 5, Unit::Percent, busy)
        .prio(0)
        .about("all but idle and waiting for I/O: 100 - id - wa"),
    Column::new("us%", 5, Unit::Percent, user).prio(1).about("user, nice included"),
    Column::new("sy%", 5, Unit::Percent, system).prio(2).about("kernel"),
    Column::new("si%", 5, Unit::Percent, si)
        .prio(1)
        .about("share of the core spent in software interrupts"),
    Column::new("hi%", 5, Unit::Percent, hi)
        .prio(8)
        .about("share of the core spent in hardware interrupt handlers"),
    Column::new("wa%", 5, Unit::Percent, iowait).prio(3).about("idle, I/O pending"),
    Column::new("st%", 5, Unit::Percent, steal).prio(4).about("taken by the hypervisor"),
    Column::new("runq", 5, Unit::Number, runq)
        .prio(1)
        .about("threads that wait for it, on average"),
    Column::new("top", 12, Unit::Task, top)
        .prio(1)
        .grow(24)
        .about("thread that ran most, of those that ran there last"),
    Column::new("busy", 8, Unit::Text, busy)
        .prio(3)
        .grow(30)
        .write(busy_cell)
        .about("busy% of the last minute, 0 to 100"),
    Column::new("net_rx", 6, Unit::Number, net_rx)
        .prio(5)
        .write(net_rx_cell)
        .about("NET_RX: % of the core (eBPF), or per second"),
    Column::new("net_tx", 6, Unit::Number, net_tx)
        .prio(6)
        .write(net_tx_cell)
        .about("NET_TX: % of the core (eBPF), or per second"),
    Column::new("block", 5, Unit::Number, block)
        .prio(6)
        .write(block_cell)
        .about("BLOCK: % of the core (eBPF), or per second"),
    Column::new("sched", 5, Unit::Number, sched)
        .prio(7)
        .write(sched_cell)
        .about("SCHED: % of the core (eBPF), or per second"),
    Column::new("timer", 5, Unit::Number, timer)
        .prio(8)
        .write(timer_cell)
        .about("TIMER: % of the core (eBPF), or per second"),
    Column::new("softirq", 8, Unit::Text, si)
        .prio(4)
        .grow(30)
        .write(soft_cell)
        .about("si% of the last minute, 0 to 100"),
    Column::new("squeeze", 7, Unit::Number, squeeze)
        .prio(8)
        .about("times the softirq budget ran out, per second"),
    Column::new("drop", 5, Unit::Number, dropped)
        .prio(9)
        .about("packets dropped at the backlog, per second"),
    Column::new("max", 5, Unit::Time, longest_run)
        .prio(8)
        .about("longest softirq of the interval (eBPF; of those timed)"),
    Column::new("runs/s", 6, Unit::Number, runs_s)
        .prio(HIDDEN)
        .about("softirqs run per second (eBPF)"),
    Column::new("irq/s", 5, Unit::Number, hard_s)
        .prio(9)
        .about("interrupt handlers run per second (eBPF)"),
    Column::new("id%", 5, Unit::Percent, idle).prio(HIDDEN).about("idle"),
    Column::new("pkt/s", 5, Unit::Number, packets)
        .prio(HIDDEN)
        .about("packets processed per second"),
    Column::new("rcu", 5, Unit::Number, rcu)
        .prio(HIDDEN)
        .write(rcu_cell)
        .about("RCU: % of the core (eBPF), or per second"),
    Column::new("tasklet", 7, Unit::Number, tasklet)
        .prio(HIDDEN)
        .write(tasklet_cell)
        .about("TASKLET: % of the core (eBPF), or per second"),
    Column::new("hrtimer", 7, Unit::Number, hrtimer)
        .prio(HIDDEN)
        .write(hrtimer_cell)
        .about("HRTIMER: % of the core (eBPF), or per second"),
];

/// The pane.
pub struct Cpus;

impl Table for Cpus {
    type Row = CpuId;

    fn columns(&self) -> &'static [Column<CpuId>] {
        &COLUMNS
    }
    fn rows(&self, cx: &Cx<'_>) -> Vec<CpuId> {
        match (cx.cpu, cx.softirq) {
            (Some(c), _) => c.value.cpus.iter().map(|c| c.0).collect(),
            (None, Some(s)) => s.value.per_cpu.iter().map(|c| c.0).collect(),
            (None, None) => {
                timed(cx).map_or_else(Vec::new, |b| b.cpus.iter().map(|c| c.cpu).collect())
            }
        }
    }
    fn key(&self, _cx: &Cx<'_>, r: CpuId) -> RowKey {
        RowKey::Cpu(r)
    }
    fn mark(&self, cx: &Cx<'_>, r: CpuId) -> Option<Severity> {
        cx.marks.cpu(r)
    }
    /// In steps of ten percent, so that idle CPUs do not change places; of two that are as busy, the
    /// one with more softirqs.
    fn trouble(&self, cx: &Cx<'_>, r: CpuId) -> f64 {
        let mark = self.mark(cx, r).map_or(0.0, |s| 1e6 * (1.0 + f64::from(s as u8)));
        let step = |pct: Option<f64>| pct.map_or(0.0, |p| ((p - 5.0) / 10.0).round().max(0.0));
        mark + 100.0 * step(busy_pct(cx, r)) + step(soft_pct(cx, r))
    }
    fn offers(&self, cx: &Cx<'_>, column: &'static str) -> bool {
        timed(cx).is_some() || !matches!(column, "max" | "irq/s")
    }
    fn search(&self, _cx: &Cx<'_>, r: CpuId, out: &mut String) {
        let _ = write!(out, "{r}");
    }
}

/// Lines below the list: softnet, and interrupts where their time is measured.
fn footer(cx: &Cx<'_>, inner: Size) -> u16 {
    let irqs = cx.irq_bpf.is_some_and(|b| b.value.hardirqs);
    match inner.h {
        0..=4 => 0,
        8.. if irqs => 2,
        _ => 1,
    }
}

/// Name of an interrupt in `/proc/interrupts`: the last word is the handler's.
#[must_use]
pub fn irq_name(cx: &Cx<'_>, irq: u32) -> Option<String> {
    let number = irq.to_string();
    let back = cx.analysis.history().back_from(cx.now.tick.seq).take(40);
    let mut samples = back.filter_map(|m| m.tick.samples.softirq.as_ref());
    let name = samples
        .find_map(|s| s.data.irqs.iter().find(|r| *r.irq == *number).map(|r| r.name.clone()))?;
    let name = text::clean(&name);
    name.split_whitespace().last().map(str::to_owned)
}

/// ` hard irqs 4.3% of a core  worst 45 eth0-rx-0 cpu3 4.1%  12.3k/s of 3.1us`
fn irq_line(cx: &Cx<'_>, b: &IrqFigures, w: u16) -> Line {
    let mut line = Line::of(" hard irqs", Tone::Dim);
    let all: f64 = b.cpus.iter().filter_map(|c| c.hard).map(|h| h.pct).sum();
    line.add(format!(" {}% of a core", units::pct(all)), Tone::Dim);
    let Some(worst) = b.lines.first() else { return line };
    let name = irq_name(cx, worst.irq).unwrap_or_default();
    let name = text::cut(&name, usize::from(w.saturating_sub(62)).clamp(8, 30)).into_owned();
    let mean =
        worst.run.mean_ns.map_or(String::new(), |ns| format!(" of {}", units::secs(ns / 1e9)));
    let tone = if worst.run.pct >= 5.0 { Tone::Strong } else { Tone::Dim };
    line.add(
        format!(
            "  worst {} {name} {} {}%  {}/s{mean}",
            worst.irq,
            worst.cpu,
            units::pct(worst.run.pct),
            units::count(worst.run.runs_s),
        ),
        tone,
    );
    line
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

impl ListPane for Cpus {
    const ID: PaneId = PaneId::Cpus;
    const NAME: &'static str = "cpus";
    const TITLE: &'static str = "CPUs";
    const HELP: &'static str = "go to the CPUs and their softirqs; again: zoom";

    fn other_lines(&self, p: &PaneCx<'_>, inner: Size) -> u16 {
        footer(p.cx, inner)
    }
    fn wants(&self, p: &PaneCx<'_>) -> u16 {
        u16::try_from(self.rows(p.cx).len() + 3).unwrap_or(u16::MAX)
    }
    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        let cx = p.cx;
        let (title, note) = match cx.irq_bpf {
            Some(b) if b.value.softirqs => {
                ("% of core", super::note(p, "eBPF time", CollectorId::IrqBpf, Some(b.at)))
            }
            _ => {
                let at = cx.softirq.map(|s| s.at).or(cx.cpu.map(|c| c.at));
                ("% of core, events/s", super::note(p, "softirqs", CollectorId::Softirq, at))
            }
        };
        let title = vec![(title.into(), Tone::Plain)];
        let mut vm = PaneVm { title, note, ..PaneVm::default() };
        if cx.cpu.is_none() && cx.softirq.is_none() && timed(cx).is_none() {
            vm.lines = super::empty_lines(p, CollectorId::Softirq, inner.w);
            return vm;
        }
        let rows = self.list_rows(p, inner);
        let win = super::window(self, p, rows);
        vm.title.extend(super::order_title(self, p, &win));
        super::add_table(&mut vm, self, p, &win, inner.w);
        let footer = footer(cx, inner);
        if footer > 0 {
            while vm.lines.len() < rows + 1 {
                vm.lines.push(Line::new());
            }
            if let Some(b) = cx.irq_bpf.filter(|_| footer > 1) {
                vm.lines.push(irq_line(cx, b.value, inner.w).whole(inner.w));
            }
            vm.lines.push(softnet_line(cx).whole(inner.w));
        }
        vm
    }
}
