//! Lines that the detail views share: a name and its value, a figure over the last minute, the
//! findings about a row; and two blocks of lines beside each other.

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

/// Columns that the left one of two blocks leaves free, so that it does not run into the right one.
pub(super) const GAP: usize = 2;

/// Two blocks beside each other, the right one from column `at` on. The lines of the left one are
/// at most that wide and have nothing at the right edge.
pub(super) fn beside(left: Vec<Line>, right: Vec<Line>, at: usize) -> Vec<Line> {
    let rows = left.len().max(right.len());
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    let row = |_| {
        let mut line = left.next().unwrap_or_default();
        // Where the right one has ended there is nothing to fill up to.
        if let Some(r) = right.next() {
            line.fit(at);
            line.left.extend(r.left);
            line.right = r.right;
        }
        line
    };
    (0..rows).map(row).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::view::vm::to_text;

    fn block(words: &[&str]) -> Vec<Line> {
        words.iter().map(|w| Line::of((*w).to_owned(), Tone::Plain)).collect()
    }

    #[test]
    fn blocks_stand_beside_each_other_whichever_is_longer() {
        let text = |l: &[&str], r: &[&str]| to_text(&beside(block(l), block(r), 8), 20);
        assert_eq!(text(&["by", "java"], &["next"]), "by      next\njava\n");
        assert_eq!(text(&["by"], &["next", "ss -t"]), "by      next\n        ss -t\n");
        assert_eq!(text(&[], &["next"]), "        next\n");
        assert_eq!(text(&["by"], &[]), "by\n");
        assert_eq!(text(&[], &[]), "");
        // Two columns each.
        assert_eq!(text(&["\u{6570}\u{636e}"], &["x"]), "\u{6570}\u{636e}    x\n");
    }

    #[test]
    fn charts_and_the_right_edge_of_the_right_block_stay() {
        let mut chart = Line::of("a ", Tone::Dim);
        chart.push(Piece::Spark(vec![Some(1), None, Some(8)], Tone::Plain));
        let edge = Line::of("b", Tone::Plain).right("30s", Tone::Dim);
        assert_eq!(to_text(&beside(vec![chart], vec![edge], 7), 16), "a 1.8  b     30s\n");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_the_right_block_is_straight(
            left in proptest::collection::vec("[a-z\u{6570} ]{0,40}", 0..6),
            right in proptest::collection::vec("[a-z\u{6570} ]{0,40}", 0..6),
            at in 4usize..30,
        ) {
            let wrapped = |list: &[String], w: usize| -> Vec<String> {
                list.iter().flat_map(|s| text::wrap(s, w)).collect()
            };
            let lines = |list: &[String]| -> Vec<Line> {
                list.iter().map(|s| Line::of(s.clone(), Tone::Plain)).collect()
            };
            let (l, r) = (wrapped(&left, at - GAP), wrapped(&right, 20));
            let both = beside(lines(&l), lines(&r), at);
            prop_assert_eq!(both.len(), l.len().max(r.len()));
            for (i, line) in both.iter().enumerate() {
                let shown = to_text(std::slice::from_ref(line), 0);
                let (l, r) = (l.get(i), r.get(i));
                let l = l.map_or("", |l| l.as_str());
                let blank = " ".repeat(at - text::width(l));
                let want = format!("{l}{blank}{}", r.map_or("", |r| r.as_str()));
                prop_assert_eq!(shown.trim_end_matches('\n'), want.trim_end());
            }
        }
    }
}
