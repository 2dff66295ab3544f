//! Overlays: the keys and the column chooser. Both derive from tables.

use super::keymap::{self, GROUPS, KEYMAP};
use super::layout::focused_pane;
use super::lines::{GAP, beside};
use super::state::{Mode, PaneState, ViewState};
use super::table::{ColumnInfo, HIDDEN};
use super::vm::{Area, Frame, FrameKind, Line, LineStyle, Node, Size, Tone, Vm, to_text};
use super::{panes, text};

pub(super) fn draw(vm: &mut Vm, v: &ViewState, size: Size) {
    match &v.mode {
        Mode::Help { scroll } => {
            let (lines, w) = help_shown(v, size);
            boxed(vm, size, "Keys", lines, *scroll, w);
        }
        Mode::HelpSearch { input } => {
            let typed = input.string().to_lowercase();
            let mut lines = help_lines(v);
            lines.retain(|l| to_text(std::slice::from_ref(l), 0).to_lowercase().contains(&typed));
            if lines.is_empty() {
                lines.push(Line::of(" nothing has that", Tone::Dim));
            }
            boxed(vm, size, "Keys", lines, 0, HELP);
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

/// Columns of the help with its frame.
const HELP: u16 = 76;
/// Columns from which on it may stand in two columns.
const WIDE: u16 = 120;
/// Columns of a name, with the blanks around it.
const NAME: usize = 20;

/// The help as it is shown and how wide it is: in two columns where the screen is wide and one
/// column is higher than the screen.
pub(super) fn help_shown(v: &ViewState, size: Size) -> (Vec<Line>, u16) {
    let one = help_lines(v);
    if size.w < WIDE || one.len() <= usize::from(boxed_rows(size)) {
        return (one, HELP);
    }
    let w = size.w.min(2 * HELP);
    let at = usize::from(w.saturating_sub(2)) / 2;
    // Half a box may be too narrow for what is in it: that goes on below.
    let mut left = help(v, at.saturating_sub(GAP));
    let half = left.iter().map(Vec::len).sum::<usize>().div_ceil(2);
    let mut lines = 0;
    let fits = |part: &&Vec<Line>| {
        lines += part.len();
        lines <= half
    };
    let right = left.split_off(left.iter().take_while(fits).count());
    (beside(left.concat(), right.concat(), at), w)
}

/// Lines of the help, one for each thing.
#[must_use]
pub fn help_lines(v: &ViewState) -> Vec<Line> {
    help(v, usize::MAX).concat()
}

/// The help in at most `w` columns, in parts that stay together: each key, column or mark, and a
/// heading with the first of what is below it.
fn help(v: &ViewState, w: usize) -> Vec<Vec<Line>> {
    type Entry = (String, &'static str, Tone);
    let mut sections: Vec<(String, Vec<Entry>)> = Vec::new();
    for group in GROUPS {
        let keys = KEYMAP.iter().filter(|b| b.group == *group);
        let entries = keys.map(|b| (keymap::key_names(v, b), b.help, Tone::Key));
        sections.push(((*group).to_owned(), entries.collect()));
    }
    let pane = panes::pane(focused_pane(v));
    let columns = pane.columns().into_iter().map(|c| (c.key.to_owned(), c.help, Tone::Key));
    sections.push((format!("Columns of {}", pane.heading()), columns.collect()));
    let marks = [
        ("!!", "critical: work is stuck or lost", Tone::Crit),
        ("!", "warning: work is slower than it should be", Tone::Warn),
        ("-", "worth knowing", Tone::Info),
        ("n/a", "not measured; 0 means measured and zero", Tone::Dim),
        ("####", "the number does not fit", Tone::Dim),
    ];
    let marks = marks.into_iter().map(|(mark, what, tone)| (mark.to_owned(), what, tone));
    sections.push(("Marks".to_owned(), marks.collect()));
    let mut out = Vec::new();
    let mut part = Vec::new();
    for (title, entries) in sections {
        part.push(Line::of(format!(" {title}"), Tone::Accent));
        for (name, says, tone) in entries {
            part.extend(entry(&name, says, tone, w));
            out.push(std::mem::take(&mut part));
        }
    }
    out
}

/// A name and what it means, which goes on below itself.
fn entry(name: &str, says: &str, tone: Tone, w: usize) -> Vec<Line> {
    let first = Line::of(format!("   {name:<16} "), tone);
    let room = w.saturating_sub(first.width().max(NAME)).max(10);
    let mut begin = Some(first);
    let line = |says| {
        let line = begin.take().unwrap_or_else(|| Line::of(" ".repeat(NAME), Tone::Plain));
        line.with(says, Tone::Plain)
    };
    text::wrap(says, room).into_iter().map(line).collect()
}

/// Most lines in a box: what its frame and the footer leave.
fn boxed_rows(size: Size) -> u16 {
    size.h.saturating_sub(3)
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
