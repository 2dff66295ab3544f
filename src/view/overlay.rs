//! Overlays: the keys and the column chooser. Both derive from tables.

use super::keymap::{self, GROUPS, KEYMAP};
use super::layout::focused_pane;
use super::panes;
use super::state::{Mode, PaneState, ViewState};
use super::table::{ColumnInfo, HIDDEN};
use super::vm::{Area, Frame, FrameKind, Line, LineStyle, Node, Size, Tone, Vm, to_text};

pub(super) fn draw(vm: &mut Vm, v: &ViewState, size: Size) {
    match &v.mode {
        Mode::Help { scroll } => {
            let lines = help_lines(v);
            boxed(vm, size, "Keys", lines, *scroll, 76);
        }
        Mode::HelpSearch { input } => {
            let typed = input.string().to_lowercase();
            let mut lines = help_lines(v);
            lines.retain(|l| to_text(std::slice::from_ref(l), 0).to_lowercase().contains(&typed));
            if lines.is_empty() {
                lines.push(Line::of(" nothing has that", Tone::Dim));
            }
            boxed(vm, size, "Keys", lines, 0, 76);
        }
        Mode::Columns { pane, at } => {
            let Some(st) = v.pane(*pane) else { return };
            let mut lines = Vec::new();
            for (i, c) in panes::pane(*pane).columns().iter().enumerate() {
                let on = st.columns.get(c.key).copied().unwrap_or(c.priority != HIDDEN);
                let mut line = Line::of(if on { " [x] " } else { " [ ] " }, Tone::Plain);
                line.add(format!("{:<13} ", c.key), Tone::Strong);
                line.add(c.help, Tone::Dim);
                if i == *at {
                    line.style = LineStyle::Selected;
                }
                lines.push(line);
            }
            let room = usize::from(size.h.saturating_sub(4)).max(1);
            boxed(vm, size, "Columns", lines, (*at + 1).saturating_sub(room), 70);
        }
        Mode::Sort { pane } => {
            let Some(st) = v.pane(*pane) else { return };
            let columns = panes::pane(*pane).columns();
            let mut lines = Vec::new();
            for (letter, index) in letters(&columns, st) {
                let column = index.and_then(|i| columns.get(i));
                let (name, help) = column.map_or(("trouble", "worst first"), |c| (c.key, c.help));
                let mut line = Line::of(format!(" {letter} "), Tone::Key);
                line.add(format!("{name:<13} "), Tone::Strong);
                lines.push(line.with(help, Tone::Dim));
            }
            boxed(vm, size, "Sort by", lines, 0, 70);
        }
        Mode::Normal | Mode::Filter { .. } | Mode::Goto { .. } | Mode::Command { .. } => {}
    }
}

/// A letter for the order of trouble and for each column that is shown: one of its name, where no
/// other took all of them.
#[must_use]
pub fn letters(columns: &[ColumnInfo], st: &PaneState) -> Vec<(char, Option<usize>)> {
    let mut out: Vec<(char, Option<usize>)> = vec![('t', None)];
    for (index, c) in columns.iter().enumerate() {
        if !st.columns.get(c.key).copied().unwrap_or(c.priority != HIDDEN) {
            continue;
        }
        let own = c.key.chars().filter(char::is_ascii_lowercase);
        let mut all = own.chain('a'..='z').chain('A'..='Z');
        if let Some(free) = all.find(|l| out.iter().all(|o| o.0 != *l)) {
            out.push((free, Some(index)));
        }
    }
    out
}

/// Lines of the help.
#[must_use]
pub fn help_lines(v: &ViewState) -> Vec<Line> {
    let mut out = Vec::new();
    for group in GROUPS {
        out.push(Line::of(format!(" {group}"), Tone::Accent));
        for b in KEYMAP.iter().filter(|b| b.group == *group) {
            let keys = keymap::key_names(v, b);
            let mut line = Line::of(format!("   {keys:<16} "), Tone::Key);
            line.add(b.help, Tone::Plain);
            out.push(line);
        }
    }
    let pane = panes::pane(focused_pane(v));
    out.push(Line::of(format!(" Columns of {}", pane.heading()), Tone::Accent));
    for c in pane.columns() {
        out.push(Line::of(format!("   {:<16} ", c.key), Tone::Key).with(c.help, Tone::Plain));
    }
    out.push(Line::of(" Marks", Tone::Accent));
    for (mark, what, tone) in [
        ("!!", "critical: work is stuck or lost", Tone::Crit),
        ("!", "warning: work is slower than it should be", Tone::Warn),
        ("-", "worth knowing", Tone::Info),
        ("n/a", "not measured; 0 means measured and zero", Tone::Dim),
        ("####", "the number does not fit", Tone::Dim),
    ] {
        out.push(Line::of(format!("   {mark:<16} "), tone).with(what, Tone::Plain));
    }
    out
}

fn boxed(vm: &mut Vm, size: Size, title: &'static str, lines: Vec<Line>, scroll: usize, w: u16) {
    let w = w.min(size.w);
    let want = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    // The footer shows how to leave.
    let h = want.min(size.h.saturating_sub(1).max(1));
    let area = Area::new((size.w - w) / 2, (size.h - h) / 2, w, h);
    vm.nodes.push((area, Node::Clear));
    let inside = area.inside(FrameKind::Box);
    let rows = usize::from(inside.h);
    let scroll = scroll.min(lines.len().saturating_sub(rows));
    let note = if lines.len() > rows {
        format!("{}-{} of {}", scroll + 1, scroll + rows, lines.len())
    } else {
        String::new()
    };
    vm.nodes.push((
        area,
        Node::Frame(Frame {
            kind: FrameKind::Box,
            title: vec![(title.into(), Tone::Strong)],
            note: (note.into(), Tone::Dim),
            focused: true,
        }),
    ));
    vm.lines(inside, lines.into_iter().skip(scroll).take(rows).collect());
}
