//! `waits`: where work waits, as the pane of that name shows it.

use super::{Moment, OF_TICK, Out, Rows, Table, columns};
use crate::diagnose::Severity;
use crate::view::context::Cx;
use crate::view::panes::resources::{Kind, Resource};
use crate::view::table::Value;

pub(super) static TABLE: Table = Table {
    name: "waits",
    about: "each resource of the host with what waits for it, as in the console",
    time: OF_TICK,
    own: COLUMNS,
    rows: Rows::OfTick(rows),
};

fn rows(m: &Moment<'_>, out: &mut Out<'_>) {
    let Some(cx) = Cx::at(m.run, m.now.tick.seq, m.view) else { return };
    for r in cx.resources() {
        out.row(|line| put(line, r));
    }
}

columns! {
    |r: &Resource|
    resource: text, "cpu, memory, softirq, sockets, cgroups, or a disk or network device by name"
        = r.name.as_str();
    kind: text, "cpu, disk, softirq, memory, network, sockets or cgroup" = kind(r.kind).0;
    busy_pct: float ("%"), "how much of it is in use" = number(&r.busy);
    wait: float, "how much waits for it, in wait_unit" = r.wait;
    wait_unit: text, "what wait counts" = kind(r.kind).1;
    errors_per_s: float ("1/s"), "what it lost" = number(&r.errors);
    worst: text, "what stands out in it" = known(&r.worst);
    by: text, "who uses it most, or whom a finding names" = known(&r.by);
    severity: text, "of the worst active finding about it" = r.mark.map(Severity::name);
}

/// Its name, and what is counted of what waits for it.
fn kind(k: Kind) -> (&'static str, &'static str) {
    match k {
        Kind::Cpu => ("cpu", "threads"),
        Kind::Disk => ("disk", "requests"),
        Kind::Softirq => ("softirq", "squeezes/s"),
        Kind::Memory => ("memory", "% of the time"),
        Kind::Network => ("network", "bytes"),
        Kind::Sockets => ("sockets", "sockets"),
        Kind::Cgroup => ("cgroup", "ms/s"),
    }
}

fn number(v: &Value) -> Option<f64> {
    match v {
        Value::Num(n) => Some(*n),
        Value::Text(_) | Value::Unknown | Value::Empty => None,
    }
}

fn known(text: &str) -> Option<&str> {
    Some(text).filter(|t| !t.is_empty())
}
