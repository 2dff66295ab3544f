//! Order of rows: only the rows that are shown are sorted, however many there are.

use std::cmp::Ordering;

use super::context::Cx;
use super::filter::Filter;
use super::mean::Means;
use super::state::Sort;
use super::table::{First, Table, Value};

/// Rows in order, with the order computed only where it is needed.
pub struct Ordered<R> {
    rows: Vec<(SortKey, u64, R)>,
    total: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum SortKey {
    Num(f64),
    Text(Box<str>),
    Last(u8),
}

impl SortKey {
    fn of(v: Value, first: First, reverse: bool) -> (Self, bool) {
        let descending = (first == First::High) != reverse;
        let key = match v {
            Value::Num(n) if !n.is_nan() => Self::Num(if descending { -n } else { n }),
            Value::Text(t) => Self::Text(t.to_lowercase().into()),
            other => Self::Last(other.rank()),
        };
        (key, descending)
    }
    fn cmp(&self, other: &Self, text_descending: bool) -> Ordering {
        match (self, other) {
            (Self::Num(a), Self::Num(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) if text_descending => b.cmp(a),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Last(a), Self::Last(b)) => a.cmp(b),
            (Self::Last(_), _) | (Self::Text(_), Self::Num(_)) => Ordering::Greater,
            (_, Self::Last(_)) | (Self::Num(_), Self::Text(_)) => Ordering::Less,
        }
    }
}

/// The rows that are listed, in the table's own order, and how many there are without the filter.
fn chosen<T: Table + ?Sized>(
    t: &T,
    cx: &Cx<'_>,
    sort: Sort,
    filter: &Filter,
) -> (Vec<T::Row>, usize) {
    if filter.is_empty() && matches!(sort, Sort::Trouble { .. }) {
        let rows = t.listed(cx);
        let total = rows.len();
        return (rows, total);
    }
    let mut rows = t.rows(cx);
    let total = rows.len();
    if !filter.is_empty() {
        let mut scratch = String::new();
        rows.retain(|r| filter.accepts(t, cx, *r, &mut scratch));
    }
    (rows, total)
}

/// The rows at the top of an order.
pub struct Top<R> {
    /// In order.
    pub rows: Vec<R>,
    /// Rows that passed the filter.
    pub passed: usize,
    /// Rows without the filter.
    pub total: usize,
}

/// The first `n` rows by trouble, as [`Ordered::slice`] has them: the landing screen of a host with
/// 100,000 sockets shows twenty, and needs no list of the others.
pub fn top<T: Table + ?Sized>(
    t: &T,
    cx: &Cx<'_>,
    reverse: bool,
    filter: &Filter,
    n: usize,
) -> Top<T::Row> {
    let (all, total) = chosen(t, cx, Sort::Trouble { reverse }, filter);
    let passed = all.len();
    let before =
        |a: &(f64, u64, T::Row), b: &(f64, u64, T::Row)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    let n = n.max(1);
    let mut kept: Vec<(f64, u64, T::Row)> = Vec::with_capacity(2 * n);
    // What is not before this one is not among the first n.
    let mut last: Option<(f64, u64, T::Row)> = None;
    for (i, row) in all.into_iter().enumerate() {
        let s = t.trouble(cx, row);
        let key = if reverse { s } else { -s };
        if last.as_ref().is_some_and(|l| key.total_cmp(&l.0) == Ordering::Greater) {
            continue;
        }
        let one = (key, t.tie(cx, row).unwrap_or(i as u64), row);
        if last.as_ref().is_some_and(|l| before(&one, l) != Ordering::Less) {
            continue;
        }
        kept.push(one);
        if kept.len() == 2 * n {
            kept.select_nth_unstable_by(n - 1, before);
            kept.truncate(n);
            last = kept.last().copied();
        }
    }
    kept.sort_unstable_by(before);
    kept.truncate(n);
    Top { rows: kept.into_iter().map(|k| k.2).collect(), passed, total }
}

impl<R: Copy + 'static> Ordered<R> {
    /// The rows of `t` that pass the filter, ready to be ordered.
    pub fn new<T: Table<Row = R> + ?Sized>(
        t: &T,
        cx: &Cx<'_>,
        sort: Sort,
        filter: &Filter,
    ) -> Self {
        let (all, total) = chosen(t, cx, sort, filter);
        let columns = t.columns();
        let column = match sort {
            Sort::Trouble { .. } | Sort::Natural { .. } => None,
            Sort::Column { index, .. } => columns.get(index),
        };
        let means = column.map(|c| Means::of(t, cx, c, total));
        let mut rows = Vec::with_capacity(all.len());
        for (i, row) in all.into_iter().enumerate() {
            let place = i as u64;
            let key = match (sort, column) {
                (Sort::Column { reverse, .. }, Some(c)) => {
                    let value = match ((c.value)(cx, row), &means) {
                        (Value::Num(now), Some(m)) => Value::Num(m.with(now, || t.key(cx, row))),
                        (value, _) => value,
                    };
                    SortKey::of(value, c.first, reverse).0
                }
                (Sort::Natural { reverse }, _) => {
                    SortKey::Num(if reverse { -(place as f64) } else { place as f64 })
                }
                (_, _) => {
                    let s = t.trouble(cx, row);
                    SortKey::Num(if sort.reversed() { s } else { -s })
                }
            };
            let tie = t.tie(cx, row).unwrap_or(place);
            rows.push((key, tie, row));
        }
        let descending = column.is_some_and(|c| (c.first == First::High) != sort.reversed());
        let mut out = Self { rows, total };
        out.prepare(descending);
        out
    }

    /// Text keys need the direction in every comparison: sort them once, here.
    fn prepare(&mut self, text_descending: bool) {
        if self.rows.iter().any(|r| matches!(r.0, SortKey::Text(_))) {
            self.rows.sort_by(|a, b| a.0.cmp(&b.0, text_descending).then(a.1.cmp(&b.1)));
            for (i, r) in self.rows.iter_mut().enumerate() {
                r.0 = SortKey::Num(i as f64);
            }
        }
    }

    /// Rows that passed the filter.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }
    /// None?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// Rows before filtering.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    fn compare(a: &(SortKey, u64, R), b: &(SortKey, u64, R)) -> Ordering {
        a.0.cmp(&b.0, false).then(a.1.cmp(&b.1))
    }

    /// Place of the first row that `is` holds for, in order. Costs one pass.
    pub fn rank(&self, is: impl Fn(R) -> bool) -> Option<usize> {
        let found = self.rows.iter().find(|r| is(r.2))?;
        Some(self.rows.iter().filter(|r| Self::compare(r, found) == Ordering::Less).count())
    }

    /// The rows from place `start`, at most `n`, in order. Costs one pass, whatever the number
    /// of rows.
    pub fn slice(&mut self, start: usize, n: usize) -> Vec<R> {
        let len = self.rows.len();
        let (start, end) = (start.min(len), start.saturating_add(n).min(len));
        if start == end {
            return Vec::new();
        }
        if start > 0 {
            self.rows.select_nth_unstable_by(start, Self::compare);
        }
        let rest = &mut self.rows[start..];
        if end < len {
            rest.select_nth_unstable_by(end - start, Self::compare);
        }
        let window = &mut rest[..end - start];
        window.sort_unstable_by(Self::compare);
        window.iter().map(|r| r.2).collect()
    }
}
