//! What `stallscope serve` answers: the last tick as metrics, in the text formats that Prometheus
//! reads. Counters are the kernel's own, gauges and findings are those of the console. A figure
//! that is not known is absent, never 0; every list has a maximum, given in the table of metrics.

mod families;
mod machine;
mod network;
mod page;
mod readings;

pub use families::{FAMILIES, Family, Kind, listed};
pub use page::Format;
pub use readings::Readings;

use std::time::Duration;

use crate::analysis::{Analysis, TickView};
use crate::diagnose::Severity;
use crate::metrics::coverage::coverage;
use crate::sample::SignalStatus;
use crate::view::context::Cx;
use crate::view::panes::resources::Kind as Where;
use crate::view::state::ViewState;
use crate::view::table::Value;
use families::{Id, MAX_FINDINGS};
use page::Page;

/// The page of the newest tick of a run, whose ticks the readings took in as well. `None` before the
/// first one.
#[must_use]
pub fn exposition(run: &Analysis, readings: &Readings, format: Format) -> Option<String> {
    let now = run.latest()?;
    let view = ViewState::default();
    // Who uses a resource is no label: there are too many of them.
    let cx = Cx::at(run, now.tick.seq, &view)?.without_processes();
    let mut page = Page::new();
    program(&mut page, run, readings, now);
    signals(&mut page, now);
    findings(&mut page, now);
    resources(&mut page, &cx);
    machine::add(&mut page, readings, &cx);
    network::add(&mut page, readings, &cx);
    Some(page.render(format))
}

fn seconds(d: Duration) -> f64 {
    d.as_secs_f64()
}

/// What this is, and what it costs.
fn program(page: &mut Page, run: &Analysis, readings: &Readings, now: TickView<'_>) {
    let host = run.host();
    page.add(Id::Build, &[version(&host.tool)], 1.0);
    page.add(Id::Host, &[&host.hostname, &host.kernel], 1.0);
    page.add(Id::HostCpus, &[], f64::from(host.cpus));
    page.add(Id::Interval, &[], seconds(host.interval));
    page.add(Id::LastTick, &[], now.tick.wall.0 as f64 / 1e9);
    page.add(Id::Ticks, &[], readings.ticks as f64);
    page.add(Id::TicksMissed, &[], readings.missed as f64);
    page.add(Id::SelfCpu, &[], readings.own().map(|o| seconds(o.cpu)));
    let resident = readings.own().and_then(|o| o.rss_bytes);
    page.add(Id::SelfResident, &[], resident.map(|b| b as f64));
}

/// `0.1.0` of `stallscope 0.1.0`.
fn version(tool: &str) -> &str {
    tool.strip_prefix("stallscope ").unwrap_or(tool)
}

fn signals(page: &mut Page, now: TickView<'_>) {
    for s in coverage(&now.tick.health) {
        let (available, degraded) = match s.status {
            SignalStatus::Ok => (1.0, 0.0),
            SignalStatus::Degraded { .. } => (1.0, 1.0),
            SignalStatus::Missing { .. } => (0.0, 0.0),
        };
        page.add(Id::Signal, &[&s.signal], available);
        page.add(Id::SignalDegraded, &[&s.signal], degraded);
    }
}

fn findings(page: &mut Page, now: TickView<'_>) {
    let mut all: Vec<_> = now.findings.all().collect();
    // Causes and consequences are each in order; the sort keeps the causes first.
    all.sort_by_key(|f| std::cmp::Reverse(f.fire.severity));
    for severity in [Severity::Info, Severity::Warn, Severity::Crit] {
        let n = all.iter().filter(|f| f.fire.severity == severity).count();
        page.add(Id::Findings, &[severity.name()], n as f64);
    }
    for f in &all {
        if page.count(Id::Finding) >= MAX_FINDINGS {
            break;
        }
        let subject = f.subject.to_string();
        page.add(Id::Finding, &[f.rule.0, f.fire.severity.name(), &subject], 1.0);
    }
    let dropped = all.len() - page.count(Id::Finding);
    page.add(Id::FindingsDropped, &[], dropped as f64);
}

/// Where work waits, in base units.
fn resources(page: &mut Page, cx: &Cx<'_>) {
    for r in cx.resources() {
        let number = |v: &Value| match v {
            Value::Num(n) => Some(*n),
            Value::Text(_) | Value::Unknown | Value::Empty => None,
        };
        let severity = r.mark.map_or(0.0, |s| 1.0 + f64::from(s as u8));
        page.add(Id::ResourceSeverity, &[&r.name], severity);
        page.add(Id::ResourceBusy, &[&r.name], number(&r.busy).map(|pct| pct / 100.0));
        let (measure, per_unit) = measure(r.kind);
        // That none of them is stuck is only known of sockets that were read.
        let is_read = r.kind != Where::Sockets || !cx.suspects.totals.is_empty();
        let wait = r.wait.filter(|_| is_read).map(|n| n / per_unit);
        page.add(Id::ResourceWaiting, &[&r.name, measure], wait);
        page.add(Id::ResourceErrors, &[&r.name], number(&r.errors));
    }
}

/// In what the console counts what waits for a resource, and how much of that is one of our units.
fn measure(kind: Where) -> (&'static str, f64) {
    match kind {
        Where::Cpu => ("threads", 1.0),
        Where::Disk => ("requests", 1.0),
        Where::Softirq => ("squeezes_per_second", 1.0),
        Where::Memory => ("stall_ratio", 100.0),
        Where::Network => ("queued_bytes", 1.0),
        Where::Sockets => ("stuck_sockets", 1.0),
        Where::Cgroup => ("throttled_seconds_per_second", 1000.0),
    }
}
