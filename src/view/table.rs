//! Tables: columns as data, top rows without sorting all of them, cells of fixed width.
//!
//! A pane hands over its rows as small copyable references; a [`Column`] knows how to get a
//! value out of one. Sorting, filtering, the header and the chooser all use the same value.

use std::borrow::Cow;

use super::context::Cx;
use super::state::{PaneState, RowKey, Sort};
use super::vm::{Line, LineStyle, Piece, Tone};
use super::{text, units};
use crate::diagnose::Severity;

/// What a column says about a row, before it is formatted.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number, in the unit of the column: seconds, bytes, percent or a count.
    Num(f64),
    /// A word. It has passed [`text::clean`].
    Text(Cow<'static, str>),
    /// Not measured.
    Unknown,
    /// Does not apply to this row.
    Empty,
}

impl Value {
    /// A number that may be unknown.
    #[must_use]
    pub fn num(v: Option<f64>) -> Self {
        v.map_or(Self::Unknown, Self::Num)
    }
    /// An integer that may be unknown.
    pub fn int(v: Option<impl Into<u64>>) -> Self {
        v.map_or(Self::Unknown, |v| Self::Num(v.into() as f64))
    }
    /// A name from the kernel.
    #[must_use]
    pub fn name(s: &str) -> Self {
        Self::Text(Cow::Owned(text::clean(s).into_owned()))
    }

    /// Unknown values sort after known ones, cells that do not apply after both.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Num(_) | Self::Text(_) => 0,
            Self::Unknown => 1,
            Self::Empty => 2,
        }
    }
}

/// Unit of a column's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Words.
    Text,
    /// Words of the form `address:port`.
    Endpoint,
    /// Words of the form `comm/tid`.
    Task,
    /// Words whose end matters most: paths.
    Path,
    /// Whole numbers.
    Count,
    /// Numbers.
    Number,
    /// Seconds.
    Time,
    /// Bytes.
    Bytes,
    /// Percent.
    Percent,
}

impl Unit {
    /// Not numbers.
    pub(super) const fn is_words(self) -> bool {
        matches!(self, Self::Text | Self::Endpoint | Self::Task | Self::Path)
    }
}

/// Which end of a column is the interesting one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Small values, or `a`.
    Low,
    /// Big values.
    High,
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text in a tone.
    Text(Cow<'static, str>, Tone),
    /// A small chart, as wide as the cell, newest at the right.
    Spark(Vec<Option<u8>>, Tone),
}

/// A column of rows of type `R`.
pub struct Column<R> {
    /// Its name everywhere: head of the column, chooser, field of the filter.
    pub key: &'static str,
    /// Another name for filters: the one in `ss`.
    pub also: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Columns it needs.
    pub width: u16,
    /// Columns it can make use of.
    pub max: u16,
    /// 0 is never dropped; the higher, the sooner. [`HIDDEN`]: shown only when chosen.
    pub priority: u8,
    /// Unit.
    pub unit: Unit,
    /// Which end to sort to the top.
    pub first: First,
    /// What it says.
    pub value: fn(&Cx<'_>, R) -> Value,
    /// How it is written, if not the way of its unit. Gets the width.
    pub cell: Option<fn(&Cx<'_>, R, u16) -> Cell>,
}

/// Priority of columns that are shown only when chosen.
pub const HIDDEN: u8 = u8::MAX;

impl<R> Column<R> {
    /// A column with ordinary settings.
    #[must_use]
    pub const fn new(
        key: &'static str,
        width: u16,
        unit: Unit,
        value: fn(&Cx<'_>, R) -> Value,
    ) -> Self {
        let first = if unit.is_words() { First::Low } else { First::High };
        Self {
            key,
            also: key,
            help: "",
            width,
            max: width,
            priority: 1,
            unit,
            first,
            value,
            cell: None,
        }
    }
    /// Is it so much per second, or a part of it? Columns are called by that.
    pub(super) fn is_rate(&self) -> bool {
        !self.unit.is_words() && (self.key.ends_with("/s") || self.key.ends_with('%'))
    }
    /// Sets the other name for filters.
    #[must_use]
    pub const fn also(mut self, name: &'static str) -> Self {
        self.also = name;
        self
    }
    /// Sets the priority.
    #[must_use]
    pub const fn prio(mut self, p: u8) -> Self {
        self.priority = p;
        self
    }
    /// Lets it grow.
    #[must_use]
    pub const fn grow(mut self, max: u16) -> Self {
        self.max = max;
        self
    }
    /// Sets the help line.
    #[must_use]
    pub const fn about(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }
    /// Sets how it is written.
    #[must_use]
    pub const fn write(mut self, cell: fn(&Cx<'_>, R, u16) -> Cell) -> Self {
        self.cell = Some(cell);
        self
    }
    /// Sets the end that is sorted to the top.
    #[must_use]
    pub const fn first(mut self, first: First) -> Self {
        self.first = first;
        self
    }
}

/// What the chooser, the sorting keys and the filter need to know about a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    /// As in [`Column`].
    pub key: &'static str,
    /// As in [`Column`].
    pub also: &'static str,
    /// As in [`Column`].
    pub help: &'static str,
    /// As in [`Column`].
    pub priority: u8,
    /// As in [`Column`].
    pub unit: Unit,
    /// As in [`Column`].
    pub first: First,
}

impl<R> From<&Column<R>> for ColumnInfo {
    fn from(c: &Column<R>) -> Self {
        Self {
            key: c.key,
            also: c.also,
            help: c.help,
            priority: c.priority,
            unit: c.unit,
            first: c.first,
        }
    }
}

/// Rows of one kind: what a pane with a table provides.
pub trait Table: Sync {
    /// A small reference to a row.
    type Row: Copy + 'static;
    /// All columns, in order. The first rule of `PaneState::sort` picks one of them.
    fn columns(&self) -> &'static [Column<Self::Row>];
    /// All rows, in the pane's own order.
    fn rows(&self, cx: &Cx<'_>) -> Vec<Self::Row>;
    /// Identity of a row.
    fn key(&self, cx: &Cx<'_>, row: Self::Row) -> RowKey;
    /// The mark that findings put on a row.
    fn mark(&self, cx: &Cx<'_>, row: Self::Row) -> Option<Severity>;
    /// Score of the order `trouble`; the highest comes first.
    fn trouble(&self, cx: &Cx<'_>, row: Self::Row) -> f64;
    /// Order of rows that are equal otherwise; `None` for the pane's own order. It must not
    /// change from tick to tick, or equal rows change places.
    fn tie(&self, _cx: &Cx<'_>, _row: Self::Row) -> Option<u64> {
        None
    }
    /// Whether a column has anything to show now: one that depends on a source that is off gives
    /// its space to others.
    fn offers(&self, _cx: &Cx<'_>, _column: &'static str) -> bool {
        true
    }
    /// What the order of trouble lists without a filter. Rows may be left out of it, and others
    /// stand for them, unless a filter or another order asks for every row.
    fn listed(&self, cx: &Cx<'_>) -> Vec<Self::Row> {
        self.rows(cx)
    }
    /// Text in which a filter without a field searches, appended to `out`.
    fn search(&self, cx: &Cx<'_>, row: Self::Row, out: &mut String);
}

/// Which columns fit, and how wide each is. A column that the user did not choose is left out
/// unless the table `offers` it.
#[must_use]
pub fn fit<R>(
    columns: &[Column<R>],
    st: &PaneState,
    width: u16,
    offers: impl Fn(&'static str) -> bool,
) -> Vec<(usize, u16)> {
    let own = |c: &Column<R>| c.priority != HIDDEN && offers(c.key);
    let mut shown: Vec<usize> = columns
        .iter()
        .enumerate()
        .filter(|(_, c)| st.columns.get(c.key).copied().unwrap_or_else(|| own(c)))
        .map(|(i, _)| i)
        .collect();
    // Two columns for the mark; one blank before each column.
    let room = usize::from(width.saturating_sub(MARK));
    let need = |shown: &[usize]| -> usize {
        shown.iter().map(|i| usize::from(columns[*i].width) + 1).sum()
    };
    let mut dropped = Vec::new();
    while shown.len() > 1 && need(&shown) > room {
        // Chosen columns count as important.
        let rank = |i: usize| {
            let c = &columns[i];
            if st.columns.get(c.key) == Some(&true) { 1 } else { c.priority }
        };
        let Some(worst) =
            shown.iter().enumerate().max_by_key(|(at, i)| (rank(**i), *at)).map(|x| x.0)
        else {
            break;
        };
        dropped.push(shown.remove(worst));
    }
    // A wide column that had to go may leave room for narrow ones.
    while let Some(i) = dropped.pop() {
        shown.push(i);
        if need(&shown) > room {
            shown.pop();
        }
    }
    shown.sort_unstable();
    let mut left = room.saturating_sub(need(&shown));
    let mut widths: Vec<(usize, u16)> = shown.iter().map(|i| (*i, columns[*i].width)).collect();
    // The rest goes one by one to the columns that can use it.
    while left > 0 {
        let before = left;
        for (i, w) in &mut widths {
            if left > 0 && *w < columns[*i].max {
                *w += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    widths
}

/// Columns of the mark in front of each row.
pub const MARK: u16 = 2;

/// The line of titles.
#[must_use]
pub fn header<R>(columns: &[Column<R>], widths: &[(usize, u16)], sort: Sort) -> Line {
    let mark = if sort.reversed() { "▴" } else { "▾" };
    let mut line = match sort {
        // The order of the marks in front of the rows.
        Sort::Trouble { .. } => {
            Line::of(format!("{mark:>w$}", w = usize::from(MARK)), Tone::Accent)
        }
        _ => Line::of(" ".repeat(usize::from(MARK)), Tone::Dim),
    };
    for (i, w) in widths {
        let c = &columns[*i];
        let sorted = matches!(sort, Sort::Column { index, .. } if index == *i);
        let tone = if sorted { Tone::Accent } else { Tone::Dim };
        line.add(if sorted { mark } else { " " }, tone);
        line.add(aligned(c.key, *w, is_right(c.unit), c.unit), tone);
    }
    line.style = LineStyle::Header;
    line
}

/// A row.
#[must_use]
pub fn row<R: Copy>(
    columns: &[Column<R>],
    widths: &[(usize, u16)],
    cx: &Cx<'_>,
    row: R,
    mark: Option<Severity>,
) -> Line {
    let mut line = Line::new();
    line.add(format!("{:>2}", mark.map_or("", Severity::mark)), mark.map_or(Tone::Dim, tone_of));
    for (i, w) in widths {
        let c = &columns[*i];
        line.add(" ", Tone::Plain);
        match c.cell.map_or_else(|| format_value(&(c.value)(cx, row), c.unit), |f| f(cx, row, *w)) {
            Cell::Text(s, tone) => line.add(aligned(&s, *w, is_right(c.unit), c.unit), tone),
            Cell::Spark(levels, tone) => line.push(spark_cell(levels, *w, tone)),
        }
    }
    line
}

fn spark_cell(mut levels: Vec<Option<u8>>, w: u16, tone: Tone) -> Piece {
    let w = usize::from(w);
    if levels.len() > w {
        levels.drain(..levels.len() - w);
    }
    while levels.len() < w {
        levels.insert(0, None);
    }
    Piece::Spark(levels, tone)
}

/// Writes a value the way of its unit.
#[must_use]
pub fn format_value(v: &Value, unit: Unit) -> Cell {
    match v {
        Value::Text(t) => Cell::Text(t.clone(), Tone::Plain),
        Value::Unknown => Cell::Text(units::UNKNOWN.into(), Tone::Dim),
        Value::Empty => Cell::Text("".into(), Tone::Dim),
        Value::Num(n) => {
            let tone = if *n == 0.0 { Tone::Dim } else { Tone::Plain };
            Cell::Text(number(*n, unit).into(), tone)
        }
    }
}

/// Writes a number the way of its unit.
#[must_use]
pub fn number(n: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => units::int(n.max(0.0) as u64),
        Unit::Time => units::secs(n),
        Unit::Bytes => units::bytes(n),
        Unit::Percent => units::pct(n),
        Unit::Number | Unit::Text | Unit::Endpoint | Unit::Task | Unit::Path => units::count(n),
    }
}

/// The tone of a severity.
#[must_use]
pub fn tone_of(s: Severity) -> Tone {
    match s {
        Severity::Crit => Tone::Crit,
        Severity::Warn => Tone::Warn,
        Severity::Info => Tone::Info,
    }
}

fn is_right(unit: Unit) -> bool {
    !unit.is_words()
}

/// `s` in exactly `w` columns.
fn aligned(s: &str, w: u16, right: bool, unit: Unit) -> String {
    let w = usize::from(w);
    let s = match unit {
        Unit::Endpoint => text::cut_endpoint(s, w),
        Unit::Task => text::cut_task(s, w),
        Unit::Path => text::cut_front(s, w),
        // Half a number is a wrong number.
        _ if right && text::width(s) > w => Cow::Owned("#".repeat(w)),
        _ => text::cut(s, w),
    };
    let pad = " ".repeat(w.saturating_sub(text::width(&s)));
    if right { format!("{pad}{s}") } else { format!("{s}{pad}") }
}
