//! Detail views: everything about one finding, socket, disk, CPU or thread, as lines to scroll.

mod cpu;
mod disk;
mod event;
mod finding;
mod requests;
mod socket;
mod thread;
mod unix;

use super::context::Cx;
use super::state::{Detail, FindingKey, OpenDetail, RowKey, ViewState};
use super::vm::{Area, Frame, FrameKind, Line, Node, Piece, Tone, Vm};
use super::{panes, text, units};
use crate::metrics::Derived;
use crate::sample::subject::Subject;

/// Draws an open detail view.
pub(super) fn draw(vm: &mut Vm, cx: &Cx<'_>, v: &ViewState, open: &OpenDetail, area: Area) {
    if area.h == 0 || area.w == 0 {
        return;
    }
    let inside = area.inside(FrameKind::Rule);
    let lines = lines(cx, v, &open.what, inside.w);
    let rows = usize::from(inside.h);
    let scroll = open.scroll.min(lines.len().saturating_sub(rows));
    let note = if lines.len() > rows {
        format!("{}-{} of {}", scroll + 1, scroll + rows, lines.len())
    } else {
        String::new()
    };
    vm.nodes.push((
        area,
        Node::Frame(Frame {
            kind: FrameKind::Rule,
            title: vec![(title(cx, &open.what).into(), Tone::Strong)],
            note: (note.into(), Tone::Dim),
            focused: true,
        }),
    ));
    vm.lines(inside, lines.into_iter().skip(scroll).take(rows).collect());
    if let Detail::Row(RowKey::Socket(id, alt)) = &open.what {
        let asked = panes::sockets::find(cx, *id, *alt).and_then(|r| r.asked(cx));
        vm.visible.push(asked.unwrap_or((*id, 0)));
    }
}

fn title(cx: &Cx<'_>, what: &Detail) -> &'static str {
    let unix = |id, alt| panes::sockets::find(cx, id, alt).is_some_and(|r| r.unix(cx).is_some());
    match what {
        Detail::Row(RowKey::Socket(id, alt)) if unix(*id, *alt) => "UNIX socket",
        Detail::Finding(_) => "Finding",
        Detail::Row(RowKey::Socket(..)) => "Socket: where is the packet?",
        Detail::Row(RowKey::Disk(_)) => "Disk",
        Detail::Row(RowKey::Cpu(_)) => "CPU",
        Detail::Row(RowKey::Task(_)) => "Thread",
        Detail::Row(RowKey::Event(_)) => "Network event",
    }
}

/// All lines of a detail view.
#[must_use]
pub fn lines(cx: &Cx<'_>, v: &ViewState, what: &Detail, w: u16) -> Vec<Line> {
    match what {
        Detail::Finding(key) => finding::lines(cx, key, w),
        Detail::Row(RowKey::Socket(id, alt)) => socket::lines(cx, *id, *alt, w),
        Detail::Row(RowKey::Disk(id)) => disk::lines(cx, *id, w),
        Detail::Row(RowKey::Cpu(id)) => cpu::lines(cx, *id, w),
        Detail::Row(RowKey::Task(id)) => thread::lines(cx, v, *id, w),
        Detail::Row(RowKey::Event(id)) => event::lines(cx, *id, w),
    }
}

/// What `y` copies: the next command of a finding, else all lines.
#[must_use]
pub fn copy_text(cx: &Cx<'_>, v: &ViewState, what: &Detail) -> Option<String> {
    let command = match what {
        Detail::Finding(key) => finding::find(cx, key).and_then(|f| f.fire.next.first().cloned()),
        Detail::Row(RowKey::Socket(id, alt)) => socket::next_command(cx, *id, *alt),
        Detail::Row(RowKey::Event(id)) => event::next_command(cx, *id),
        Detail::Row(_) => None,
    };
    if let Some(c) = command {
        return Some(text::clean(&c).into_owned());
    }
    let all = super::vm::to_text(&lines(cx, v, what, 120), 120);
    (!all.trim().is_empty()).then_some(all)
}

/// What Enter opens from here: what a finding or an event is about.
#[must_use]
pub fn next(cx: &Cx<'_>, what: &Detail) -> Option<Detail> {
    if let Detail::Row(RowKey::Event(id)) = what {
        let socket = panes::events::find(cx, *id)?.socket?;
        panes::sockets::find(cx, socket, 0)?;
        return Some(Detail::Row(RowKey::Socket(socket, 0)));
    }
    let Detail::Finding(key) = what else { return None };
    let f = finding::find(cx, key)?;
    let row = match &f.subject {
        Subject::Disk { dev, .. } => RowKey::Disk(*dev),
        Subject::Cpu { cpu } => RowKey::Cpu(*cpu),
        Subject::Task { task, .. } => RowKey::Task(*task),
        _ => RowKey::Socket(*f.fire.sockets.first()?, 0),
    };
    Some(Detail::Row(row))
}

/// Findings about a row.
pub(super) fn findings_on(cx: &Cx<'_>, row: RowKey) -> Vec<Line> {
    let mut out = Vec::new();
    for f in cx.now.findings.all().chain(&cx.now.findings.notes) {
        let hit = match (row, &f.subject) {
            (RowKey::Socket(id, _), _) if f.fire.sockets.contains(&id) => true,
            (RowKey::Task(id), _) if f.fire.tasks.contains(&id) => true,
            (RowKey::Disk(id), Subject::Disk { dev, .. }) => *dev == id,
            (RowKey::Cpu(id), Subject::Cpu { cpu }) => *cpu == id,
            (RowKey::Task(id), Subject::Task { task, .. }) => *task == id,
            _ => false,
        };
        if hit {
            let s = cx.now.findings.severity(f);
            let mut line = Line::of(format!(" {:<2} ", s.mark()), super::table::tone_of(s));
            line.add(format!("{}  ", f.rule), Tone::Strong);
            line.add(text::clean(&f.fire.summary).into_owned(), Tone::Plain);
            out.push(line.right(format!("  since {} ", cx.clock(f.first_seen)), Tone::Dim));
        }
    }
    out
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
    let (levels, top) = super::series::spark(cx, n, floor, f);
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

/// An identity for tests and the strip.
#[must_use]
pub fn finding_key(f: &crate::diagnose::Finding) -> FindingKey {
    FindingKey { rule: f.rule, subject: f.subject.clone() }
}
