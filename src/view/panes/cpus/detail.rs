//! A CPU: where its time goes, its softirqs and interrupts, what waits for it.

use std::fmt::Write as _;

use crate::metrics::bpf::irq::RunFigures;
use crate::metrics::rate::per_second;
use crate::sample::CollectorId;
use crate::sample::subject::CpuId;
use crate::view::context::Cx;
use crate::view::lines::{chart, field, findings_on, gone};
use crate::view::panes::cpus::Cpus;
use crate::view::panes::{RowDetail, cpus, runq};
use crate::view::state::RowKey;
use crate::view::vm::{Line, Tone};
use crate::view::{text, units, vitals};

impl RowDetail for Cpus {
    fn title(&self, _cx: &Cx<'_>, _key: RowKey) -> &'static str {
        "CPU"
    }
    fn lines(&self, cx: &Cx<'_>, key: RowKey, w: u16) -> Vec<Line> {
        let RowKey::Cpu(cpu) = key else { return Vec::new() };
        lines(cx, cpu, w)
    }
    /// Whose thread used most of it.
    fn process(&self, cx: &Cx<'_>, key: RowKey) -> Option<u32> {
        let RowKey::Cpu(cpu) = key else { return None };
        let threads = cx.sched?.value.threads.iter();
        let here = threads.filter(|t| t.thread.last_cpu == Some(cpu) && t.run_ns > 0);
        here.max_by_key(|t| t.run_ns).map(|t| t.thread.task.pid)
    }
}

fn lines(cx: &Cx<'_>, cpu: CpuId, w: u16) -> Vec<Line> {
    let mut out = vec![Line::of(format!(" {cpu}"), Tone::Strong)];
    out.extend(findings_on(cx, RowKey::Cpu(cpu)));
    out.push(Line::new());
    let Some(s) = cx.cpu.and_then(|c| c.value.cpu(cpu)) else { return gone("CPU") };
    let p = units::pct;
    out.push(field(
        "time %",
        format!(
            "user {}  system {}  softirq {}  irq {}  iowait {}  steal {}  idle {}",
            p(s.user),
            p(s.system),
            p(s.softirq),
            p(s.irq),
            p(s.iowait),
            p(s.steal),
            p(s.idle)
        ),
    ));
    let share = |f: fn(&crate::metrics::cpu::CpuShare) -> f64| {
        move |d: &crate::metrics::Derived| Some(f(&d.cpu.as_ref()?.cpu(cpu)?))
    };
    out.push(chart(cx, "softirq %", w, 100.0, units::pct, share(|s| s.softirq)));
    out.push(chart(cx, "busy %", w, 100.0, units::pct, share(|s| vitals::busy(*s))));
    out.push(chart(cx, "steal %", w, 100.0, units::pct, share(|s| s.steal)));
    out.push(Line::new());
    out.extend(vectors(cx, cpu));
    out.extend(vector_times(cx, cpu));
    out.extend(interrupt_times(cx, cpu));
    out.extend(interrupts(cx, cpu));
    out.extend(waits(cx, cpu));
    out.extend(waiters(cx, cpu));
    out
}

fn vectors(cx: &Cx<'_>, cpu: CpuId) -> Vec<Line> {
    let Some(s) = cx.softirq else { return Vec::new() };
    let rates = s.value.per_cpu.iter().find(|c| c.0 == cpu).map(|c| &c.1);
    let mut text = String::new();
    for (name, rate) in s.value.vectors.iter().zip(rates.into_iter().flatten()) {
        if *rate >= 0.05 {
            let _ = write!(text, "{} {}/s  ", text::clean(name), units::count(*rate));
        }
    }
    let mut out = vec![field("softirqs", if text.is_empty() { "none".to_owned() } else { text })];
    if let Some(n) = s.value.softnet(cpu) {
        let backlog = n.backlog.map_or(units::UNKNOWN.to_owned(), |b| b.to_string());
        out.push(field(
            "softnet",
            format!(
                "{} packets/s  dropped {}/s  squeezed {}/s  backlog {backlog}",
                units::count(n.processed_s),
                units::count(n.dropped_s),
                units::count(n.squeeze_s)
            ),
        ));
    }
    out
}

/// Time of each vector, by eBPF.
fn vector_times(cx: &Cx<'_>, cpu: CpuId) -> Vec<Line> {
    let Some(b) = cx.irq_bpf else {
        let why = cx.no_ebpf(CollectorId::IrqBpf);
        return why.map(|why| field("softirq time", why)).into_iter().collect();
    };
    let mut list: Vec<(&'static str, RunFigures, Option<f64>)> = Vec::new();
    if let Some(c) = b.value.cpu(cpu) {
        list.extend(c.vectors.iter().map(|v| (v.name(), v.run, v.timed)));
        list.sort_by(|a, b| b.1.pct.total_cmp(&a.1.pct));
        list.extend(c.hard.map(|h| ("interrupts", h, None)));
    }
    let mut out = Vec::new();
    for (name, run, timed) in list {
        out.push(field("time", format!("{name:<11} {}", run_text(&run))));
        if let Some(t) = timed {
            let part = units::pct(100.0 * t);
            out.push(field("timed", format!("{name:<11} {part:>4}% of the runs, sampled")));
        }
    }
    out
}

/// `  4.1% of core  12.3k/s  mean 3.1us  p99 9.0us  max 21us`
fn run_text(r: &RunFigures) -> String {
    let ns = |v: Option<f64>| v.map_or("-".to_owned(), |v| units::secs(v / 1e9));
    let mut out = format!("{:>4}% of core {:>6}/s", units::pct(r.pct), units::count(r.runs_s));
    let _ = write!(out, "  mean {:<6}", ns(r.mean_ns));
    if r.p99_ns.is_some() {
        let _ = write!(out, " p99 {:<6}", ns(r.p99_ns.map(|v| v as f64)));
    }
    if r.max_ns.is_some() {
        let _ = write!(out, " max {}", ns(r.max_ns.map(|v| v as f64)));
    }
    out
}

/// Time of the interrupts of this CPU, by eBPF.
fn interrupt_times(cx: &Cx<'_>, cpu: CpuId) -> Vec<Line> {
    let Some(b) = cx.irq_bpf else { return Vec::new() };
    let here = b.value.lines.iter().filter(|l| l.cpu == cpu).take(6);
    here.map(|l| {
        let name = cpus::irq_name(cx, l.irq).unwrap_or_default();
        let name = text::cut(&name, 20).into_owned();
        field("irq time", format!("{:>4} {name:<20} {}", l.irq, run_text(&l.run)))
    })
    .collect()
}

/// Waits for this CPU, by eBPF.
fn waits(cx: &Cx<'_>, cpu: CpuId) -> Vec<Line> {
    let Some(c) = cx.runq_bpf.and_then(|b| b.value.cpu(cpu)) else { return Vec::new() };
    let ns = |v: u64| units::secs(v as f64 / 1e9);
    let mut line = field(
        "run queue",
        format!("{} switches/s  {:.1} waiting", units::count(c.switches_s), c.waiting),
    );
    if let Some(l) = c.latency {
        let max = l.max_ns.map_or(">68s".to_owned(), ns);
        let text = format!(
            "  wait p50 {} p90 {} p99 {} max {max}  {} over 1ms",
            ns(l.p50_ns),
            ns(l.p90_ns),
            ns(l.p99_ns),
            units::int(c.long)
        );
        line.add(text, Tone::Plain);
    }
    vec![line]
}

/// The interrupts that fire most on this CPU, from the last two samples.
fn interrupts(cx: &Cx<'_>, cpu: CpuId) -> Vec<Line> {
    let back = cx.analysis.history().back_from(cx.now.tick.seq).take(20);
    let mut samples = back.filter_map(|m| m.tick.samples.softirq.as_ref());
    let (Some(now), Some(before)) = (samples.next(), samples.next()) else { return Vec::new() };
    let dt = now.span.mid().since(before.span.mid());
    let column =
        |s: &crate::sample::softirq::SoftirqSample| s.irq_cpus.iter().position(|c| *c == cpu);
    let (Some(a), Some(b)) = (column(&before.data), column(&now.data)) else { return Vec::new() };
    let mut rates: Vec<(f64, String)> = Vec::new();
    for (i, row) in now.data.irqs.iter().enumerate() {
        let old = before.data.irqs.get(i).filter(|o| o.irq == row.irq);
        let old = old.or_else(|| before.data.irqs.iter().find(|o| o.irq == row.irq));
        let grown = old
            .and_then(|o| o.counts.get(a))
            .zip(row.counts.get(b))
            .and_then(|(a, b)| b.checked_sub(*a));
        if let Some(rate) = grown.and_then(|d| per_second(d as f64, dt)).filter(|r| *r > 0.0) {
            let name = text::clean(&row.name);
            let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
            rates.push((rate, format!("{} {name}", text::clean(&row.irq))));
        }
    }
    rates.sort_by(|a, b| b.0.total_cmp(&a.0));
    let list = rates.into_iter().take(6);
    list.map(|(r, s)| field("interrupt", format!("{:>5}/s  {s}", units::count(r)))).collect()
}

fn waiters(cx: &Cx<'_>, cpu: CpuId) -> Vec<Line> {
    let Some(s) = cx.sched else { return Vec::new() };
    let here = s.value.threads.iter().filter(|t| t.thread.last_cpu == Some(cpu));
    here.take(8)
        .map(|t| {
            let name = text::cut(&runq::title(t), 26).into_owned();
            field("thread", format!("{name:<26} waited {}/s", units::millis(t.wait_ms_s())))
        })
        .collect()
}
