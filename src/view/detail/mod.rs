//! Detail views: everything about one finding, or about one row of a pane, as lines to scroll.
//! What a row opens into is with its pane.

mod finding;
mod log;
mod rule;

use std::borrow::Cow;

use super::context::Cx;
use super::state::{Detail, FindingKey, OpenDetail, RowKey};
use super::vm::{Area, Frame, FrameKind, Line, Node, Tone, Vm};
use super::{panes, text};
use crate::sample::subject::Subject;

/// Draws an open detail view.
pub(super) fn draw(vm: &mut Vm, cx: &Cx<'_>, open: &OpenDetail, area: Area) {
    if area.h == 0 || area.w == 0 {
        return;
    }
    let inside = area.inside(FrameKind::Rule);
    let lines = lines(cx, &open.what, inside.w);
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
            title: vec![(title(cx, &open.what), Tone::Strong)],
            note: (note.into(), Tone::Dim),
            focused: true,
        }),
    ));
    vm.lines(inside, lines.into_iter().skip(scroll).take(rows).collect());
    if let Detail::Row(key) = &open.what {
        vm.visible.extend(pane(*key).asks(cx, *key));
        vm.watched.extend(pane(*key).watches(cx, *key));
    }
}

fn pane(key: RowKey) -> &'static dyn panes::Pane {
    panes::pane(key.pane())
}

fn title(cx: &Cx<'_>, what: &Detail) -> Cow<'static, str> {
    match what {
        Detail::Finding(key) => finding::title(cx, key).into(),
        Detail::Rule(_) => "Rule".into(),
        Detail::Log => "Findings, active and ended".into(),
        Detail::Row(key) => pane(*key).title(cx, *key).into(),
    }
}

/// All lines of a detail view, for a screen.
#[must_use]
pub fn lines(cx: &Cx<'_>, what: &Detail, w: u16) -> Vec<Line> {
    match what {
        Detail::Finding(key) => finding::lines(cx, key, w, finding::split(w)),
        Detail::Rule(id) => rule::lines(*id, &cx.analysis.host().rules, w),
        Detail::Log => log::lines(cx, w),
        Detail::Row(key) => pane(*key).lines(cx, *key, w),
    }
}

/// The same for a file or the clipboard. Nothing stands beside each other: whoever takes a line
/// from there takes one command, not half of something else with it.
#[must_use]
pub fn lines_to_keep(cx: &Cx<'_>, what: &Detail, w: u16) -> Vec<Line> {
    match what {
        Detail::Finding(key) => finding::lines(cx, key, w, None),
        Detail::Rule(_) | Detail::Log | Detail::Row(_) => lines(cx, what, w),
    }
}

/// What `y` copies: the next command of a finding, else all lines.
#[must_use]
pub fn copy_text(cx: &Cx<'_>, what: &Detail) -> Option<String> {
    let command = match what {
        Detail::Finding(key) => finding::find(cx, key).and_then(|f| f.fire.next.first().cloned()),
        Detail::Row(key) => pane(*key).next_command(cx, *key),
        Detail::Rule(_) | Detail::Log => None,
    };
    if let Some(c) = command {
        return Some(text::clean(&c).into_owned());
    }
    let all = super::vm::to_text(&lines_to_keep(cx, what, 120), 120);
    (!all.trim().is_empty()).then_some(all)
}

/// What Enter opens from here: what a finding or an event is about.
#[must_use]
pub fn next(cx: &Cx<'_>, what: &Detail) -> Option<Detail> {
    let key = match what {
        Detail::Row(key) => return pane(*key).leads_to(cx, *key).map(Detail::Row),
        Detail::Finding(key) => key,
        Detail::Rule(_) | Detail::Log => return None,
    };
    let f = finding::find(cx, key)?;
    let row = match &f.subject {
        Subject::Disk { dev, .. } => RowKey::Disk(*dev),
        Subject::Cpu { cpu } => RowKey::Cpu(*cpu),
        Subject::Task { task, .. } => RowKey::Task(*task),
        _ => RowKey::Socket(*f.fire.sockets.first()?, 0),
    };
    Some(Detail::Row(row))
}

/// The process that it is about, or of whom it speaks first.
#[must_use]
pub fn process(cx: &Cx<'_>, what: &Detail) -> Option<u32> {
    let key = match what {
        Detail::Row(key) => *key,
        Detail::Rule(_) | Detail::Log => return None,
        Detail::Finding(key) => {
            let f = finding::find(cx, key)?;
            let named = f.fire.by.iter().find_map(|c| c.who.pid());
            if let Subject::Task { task, .. } = &f.subject {
                return Some(task.pid);
            }
            let task = f.fire.tasks.first().map(|t| t.pid);
            match named.or(task) {
                Some(pid) => return Some(pid),
                None => RowKey::Socket(*f.fire.sockets.first()?, 0),
            }
        }
    };
    pane(key).process(cx, key)
}

/// An identity for tests and the strip.
#[must_use]
pub fn finding_key(f: &crate::diagnose::Finding) -> FindingKey {
    FindingKey { rule: f.rule, subject: f.subject.clone() }
}
