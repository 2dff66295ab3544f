//! Lines that the detail views share: a name and its value, a figure over the last minute, the
//! findings about a row.

use super::context::Cx;
use super::state::RowKey;
use super::vm::{Line, Piece, Tone};
use super::{series, table, text, units};
use crate::diagnose::Finding;
use crate::metrics::Derived;
use crate::sample::subject::Subject;

/// Findings about a row.
pub(super) fn findings_on(cx: &Cx<'_>, row: RowKey) -> Vec<Line> {
    let mut out = Vec::new();
    for f in cx.now.findings.all().chain(&cx.now.findings.annotations) {
        let hit = match (row, &f.subject) {
            (RowKey::Socket(id, _), _) if f.fire.sockets.contains(&id) => true,
            (RowKey::Task(id), _) if f.fire.tasks.contains(&id) => true,
            (RowKey::Disk(id), Subject::Disk { dev, .. }) => *dev == id,
            (RowKey::Cpu(id), Subject::Cpu { cpu }) => *cpu == id,
            (RowKey::Task(id), Subject::Task { task, .. }) => *task == id,
            (RowKey::Process(pid), Subject::Task { task, .. }) if task.pid == pid => true,
            (RowKey::Process(pid), _) => {
                f.fire.tasks.iter().any(|t| t.pid == pid)
                    || f.fire.by.iter().any(|c| c.who.pid() == Some(pid))
            }
            _ => false,
        };
        if hit {
            let line = finding(cx, f, " ");
            let age = units::age(cx.mono().since(f.since));
            out.push(line.right(format!("  {age} "), Tone::Dim));
        }
    }
    out
}

/// A finding in one line: mark, rule, what it says.
pub(super) fn finding(cx: &Cx<'_>, f: &Finding, indent: &str) -> Line {
    let s = cx.now.findings.severity(f);
    let mut line = Line::of(format!("{indent}{:<2} ", s.mark()), table::tone_of(s));
    line.add(format!("{}  ", f.rule), Tone::Strong);
    line.with(text::clean(&f.fire.summary).into_owned(), Tone::Plain)
}

/// Width of the names on the left.
pub(super) const LABEL: usize = 14;

/// ` name          text`.
pub(super) fn field(name: &'static str, value: impl Into<String>) -> Line {
    let mut line = Line::of(format!(" {name:<LABEL$}"), Tone::Dim);
    line.add(value.into(), Tone::Plain);
    line
}

/// ` name          ▁▂▃  max 5`: a figure over the last minute.
pub(super) fn chart(
    cx: &Cx<'_>,
    name: &'static str,
    w: u16,
    floor: f64,
    write: fn(f64) -> String,
    f: impl Fn(&Derived) -> Option<f64>,
) -> Line {
    let n = usize::from(w).saturating_sub(LABEL + 26).clamp(4, 60);
    let now = f(cx.now.derived);
    let (levels, top) = series::spark(cx, n, floor, f);
    let mut line = Line::of(format!(" {name:<LABEL$}"), Tone::Dim);
    line.push(Piece::Spark(levels, Tone::Plain));
    let show = |v: Option<f64>| v.map_or_else(|| units::UNKNOWN.to_owned(), write);
    line.add(format!(" {:>6}", show(now)), Tone::Plain);
    line.add(format!("  max {}", show(top)), Tone::Dim);
    line
}

/// The line to show when the thing is gone.
pub(super) fn gone(what: &str) -> Vec<Line> {
    vec![Line::of(format!(" this {what} does not exist at the time shown"), Tone::Dim)]
}

/// CPU bandwidth control of its cgroup: waiting that no idle CPU can cure.
pub(super) fn throttling(cx: &Cx<'_>, path: &str) -> Option<Line> {
    let groups = cx.now.derived.cgroups.as_ref()?;
    let g = groups.iter().find(|g| &*g.path == path && g.cpu.is_some())?;
    let c = g.cpu?;
    let limit = c.limit_cores.map_or("no limit".to_owned(), |l| format!("{l:.2} cores"));
    Some(field(
        "throttled",
        format!(
            "{}/s in {} of {} periods, {limit}",
            units::millis(c.throttled_ms_s),
            c.throttled,
            c.periods
        ),
    ))
}
