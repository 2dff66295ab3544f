//! The columns of a sample as differences from the previous ones: columns, and numbers of a row,
//! that did not change are skipped. In this order:
//!
//! - of each table its rows: 0 when they are as before, else 1 and the runs
//! - how many columns changed; of each its distance from the one before it, then
//!   - 0 when it is as wide as before (and, outside of tables, has the same rows), else its width
//!     plus 1 (and its runs)
//!   - which of the numbers of a row changed: count and distances. All of them where a row has one,
//!     or another width than before, so that a wide row takes a byte for each
//!   - for each of them the rows that are copies (up to [`FEW_ROWS`]: their differences; more: by
//!     what most of them moved, and the sparse differences from that), then the new rows as
//!     sparse differences, each from the new row before it

use std::rc::Rc;

use super::flat::{Column, Part, TableOf};
use super::limits::Budget;
use super::rows::{Run, align, align_keys, is_unmoved, put_runs, read_runs, rows, unmoved};
use super::sparse::{add_sparse, difference, each_sparse, put_difference, put_sparse};
use super::wire::{CodecError, Input, put_varint};

/// Up to this many rows are not worth a common amount.
const FEW_ROWS: usize = 4;
/// Widest row.
const MAX_WIDTH: usize = 1 << 12;

/// Writes the columns `now`; `prev` gives the one that each was before.
pub(super) fn put_columns<'p>(
    prev: &dyn Fn(usize) -> Option<&'p Column>,
    now: &[Column],
    tables: &[TableOf],
    out: &mut Vec<u8>,
) {
    let none = Column::default();
    let mut runs = put_tables_rows(prev, now, tables, out);
    let changed = |(i, c): &(usize, &Column)| {
        let old = prev(*i).unwrap_or(&none);
        let known = runs.get(*i).and_then(Option::as_ref);
        known.is_some_and(|r| !is_unmoved(r, old.rows())) || *c != old
    };
    let changed: Vec<(usize, &Column)> = now.iter().enumerate().filter(changed).collect();
    put_varint(out, changed.len() as u64);
    let (mut last, mut room) = (0, Room::default());
    for (i, new) in changed {
        put_varint(out, (i - last) as u64);
        last = i;
        let old = prev(i).unwrap_or(&none);
        room.put_column(old, new, runs.get_mut(i).and_then(Option::take), out);
    }
}

/// Reads `count` columns; `before` gives what each was, and `keys` how many rows the key of each
/// table had.
pub(super) fn read_columns(
    before: impl Iterator<Item = Column>,
    count: usize,
    tables: &[TableOf],
    keys: &[usize],
    most: usize,
    input: &mut Input<'_>,
) -> Result<Vec<Column>, CodecError> {
    let runs = read_tables_rows(tables, keys, count, input)?;
    let (mut budget, mut room) = (Budget::new(most), Room::default());
    let mut left = input.count(count)?;
    let mut next = if left > 0 { input.count(count)? } else { 0 };
    let mut out = Vec::new();
    for (i, (mut old, known)) in before.zip(runs).enumerate() {
        if left == 0 || i != next {
            let rows = old.rows();
            budget.take_rows(rows, old.width())?;
            old.parts_mut().iter_mut().try_for_each(|p| settle(&mut budget, p, rows))?;
            out.push(old);
            continue;
        }
        out.push(room.read_column(old, known, &mut budget, input)?);
        left -= 1;
        if left > 0 {
            next = next.saturating_add(input.place()?);
        }
    }
    if left > 0 { input.torn() } else { Ok(out) }
}

/// Rows of a column that is in a table: one list for all columns of a table.
type TableRows = Option<Rc<[Run]>>;

fn put_tables_rows<'p>(
    prev: &dyn Fn(usize) -> Option<&'p Column>,
    now: &[Column],
    tables: &[TableOf],
    out: &mut Vec<u8>,
) -> Vec<TableRows> {
    let keys = |c: Option<&Column>| c.map(Column::firsts).unwrap_or_default();
    let mut all: Vec<TableRows> = vec![None; now.len()];
    for t in tables {
        // A key is one number wide: it is a column of cookies.
        let (old, new) = (prev(t.key), now.get(t.key));
        let runs = match (old, new) {
            (Some(old), Some(new)) if old == new => unmoved(new.rows()),
            _ => align_keys(&keys(old), &keys(new)),
        };
        if is_unmoved(&runs, old.map_or(0, Column::cells)) {
            put_varint(out, 0);
        } else {
            put_varint(out, 1);
            put_runs(&runs, out);
        }
        fill(&mut all, t, runs);
    }
    all
}

fn read_tables_rows(
    tables: &[TableOf],
    keys: &[usize],
    columns: usize,
    input: &mut Input<'_>,
) -> Result<Vec<TableRows>, CodecError> {
    let mut all: Vec<TableRows> = vec![None; columns];
    for (t, before) in tables.iter().zip(keys) {
        let is_same = input.number()? == 0;
        fill(&mut all, t, if is_same { unmoved(*before) } else { read_runs(*before, input)? });
    }
    Ok(all)
}

fn fill(all: &mut [TableRows], t: &TableOf, runs: Vec<Run>) {
    let runs: Rc<[Run]> = runs.into();
    for slot in all.get_mut(t.first..t.end).unwrap_or_default() {
        *slot = Some(runs.clone());
    }
}

/// Takes what a number of all rows needs beyond what its rows suggested, as a writer counts it: by
/// the numbers alone.
fn settle(budget: &mut Budget, part: &mut Part, rows: usize) -> Result<(), CodecError> {
    part.narrow_again();
    budget.take(part.units(rows).saturating_sub(rows))
}

/// One number of all rows: its current and previous values, and how to get from one to the other.
/// Reused for each column, to save allocations.
#[derive(Debug, Default)]
struct Room {
    now: Vec<u64>,
    old: Vec<u64>,
    /// By how much the rows that are copies moved.
    copied: Vec<u64>,
    /// The rows that are new, each as the difference from the new row before it.
    fresh: Vec<u64>,
}

/// Writing.
impl Room {
    fn put_column(&mut self, old: &Column, new: &Column, known: TableRows, out: &mut Vec<u8>) {
        let in_table = known.is_some();
        let runs = known.unwrap_or_else(|| align(old, new).into());
        let (width, in_place) = (new.width(), is_unmoved(&runs, old.rows()));
        if old.width() == width && (in_table || in_place) {
            put_varint(out, 0);
        } else {
            put_varint(out, width as u64 + 1);
            if !in_table {
                put_runs(&runs, out);
            }
        }
        let old = Some(old).filter(|o| o.width() == width);
        let is_listed = old.is_some() && width > 1;
        let (start, mut changed, mut last) = (out.len(), 0, 0);
        for (c, n) in new.parts().iter().enumerate() {
            let p = old.and_then(|o| Some((o, o.parts().get(c)?)));
            // The usual case, and fast to check.
            let is_same = is_listed && in_place && p.is_some_and(|(_, p)| p == n);
            if is_same || !self.moved(n, p, new.rows(), &runs) && is_listed {
                continue;
            }
            if is_listed {
                put_varint(out, (c - last) as u64);
                (last, changed) = (c, changed + 1);
            }
            self.put(out);
        }
        if is_listed {
            let mut count = Vec::new();
            put_varint(&mut count, changed);
            out.splice(start..start, count);
        }
    }

    /// The differences of the copied rows, and the new rows. False: they are all zero.
    fn moved(
        &mut self,
        new: &Part,
        old: Option<(&Column, &Part)>,
        all: usize,
        runs: &[Run],
    ) -> bool {
        new.unpack(all, &mut self.now);
        // Columns of a table that was another one before may be shorter than its keys.
        self.now.resize(rows(runs), 0);
        if let Some((column, old)) = old {
            old.unpack(column.rows(), &mut self.old);
            let need = runs.iter().filter_map(|r| Some(r.from? + r.len)).max().unwrap_or(0);
            self.old.resize(need.max(column.rows()), 0);
        }
        self.copied.clear();
        self.fresh.clear();
        let (mut row, mut last) = (0, 0u64);
        for r in runs {
            let new = self.now.get(row..row + r.len).unwrap_or_default();
            row += r.len;
            if let (Some(from), true) = (r.from, old.is_some()) {
                let old = self.old.get(from..from + r.len).unwrap_or_default();
                self.copied.extend(new.iter().zip(old).map(|(n, o)| n.wrapping_sub(*o)));
            } else {
                for n in new {
                    self.fresh.push(n.wrapping_sub(last));
                    last = *n;
                }
            }
        }
        self.copied.iter().chain(&self.fresh).any(|d| *d != 0)
    }

    fn put(&self, out: &mut Vec<u8>) {
        if self.copied.len() <= FEW_ROWS {
            for d in &self.copied {
                put_difference(out, *d);
            }
        } else {
            let bias = bias(&self.copied);
            put_difference(out, bias);
            put_sparse(self.copied.iter().map(|d| d.wrapping_sub(bias)), out);
        }
        if !self.fresh.is_empty() {
            put_sparse(self.fresh.iter().copied(), out);
        }
    }
}

/// The amount by which most cells moved, if more moved by it than stayed the same.
fn bias(diffs: &[u64]) -> u64 {
    let (mut candidate, mut votes) = (0, 0u32);
    for d in diffs {
        if votes == 0 {
            (candidate, votes) = (*d, 1);
        } else if *d == candidate {
            votes += 1;
        } else {
            votes -= 1;
        }
    }
    let of = |v: u64| diffs.iter().filter(|d| **d == v).count();
    if candidate != 0 && of(candidate) > of(0) { candidate } else { 0 }
}

/// Reading.
impl Room {
    fn read_column(
        &mut self,
        mut old: Column,
        known: TableRows,
        budget: &mut Budget,
        input: &mut Input<'_>,
    ) -> Result<Column, CodecError> {
        let head = input.number()?;
        let width = match head.checked_sub(1) {
            None => old.width(),
            Some(w) => usize::try_from(w).unwrap_or(usize::MAX),
        };
        if width > MAX_WIDTH {
            return input.torn();
        }
        let before = old.rows();
        let runs = match known {
            Some(r) => r,
            None if head == 0 => unmoved(before).into(),
            None => read_runs(before, input)?.into(),
        };
        let rows = rows(&runs);
        if rows == 0 && width > 0 {
            // It would take memory but no bytes.
            return input.torn();
        }
        budget.take_rows(rows, width)?;
        let mut changed = Changed::read(width, width > 1 && width == old.width(), input)?;
        if width == old.width() && is_unmoved(&runs, before) {
            let parts = old.parts_mut();
            while let Some(c) = changed.next(input)? {
                let Some(part) = parts.get_mut(c) else { return input.torn() };
                add_in_place(part, rows, input)?;
                settle(budget, part, rows)?;
            }
            return Ok(old);
        }
        let old = Some(&old).filter(|o| o.width() == width);
        let mut next = changed.next(input)?;
        let mut parts = Vec::new();
        for c in 0..width {
            let p = old.and_then(|o| Some((o, o.parts().get(c)?)));
            let is_changed = next == Some(c);
            let mut part = self.read_part(p, rows, &runs, is_changed, input)?;
            settle(budget, &mut part, rows)?;
            parts.push(part);
            if is_changed {
                next = changed.next(input)?;
            }
        }
        Ok(Column::from_parts(rows, parts))
    }

    /// One number of all rows, some of which have moved.
    fn read_part(
        &mut self,
        old: Option<(&Column, &Part)>,
        rows: usize,
        runs: &[Run],
        is_changed: bool,
        input: &mut Input<'_>,
    ) -> Result<Part, CodecError> {
        let is_copy = |r: &&Run| old.is_some() && r.from.is_some();
        let copies: usize = runs.iter().filter(is_copy).map(|r| r.len).sum();
        if !is_changed && copies == 0 {
            return Ok(Part::Same(0));
        }
        for (room, len) in [(&mut self.copied, copies), (&mut self.fresh, rows - copies)] {
            room.clear();
            room.resize(len, 0);
        }
        if is_changed {
            read_copied(&mut self.copied, input)?;
            if !self.fresh.is_empty() {
                add_sparse(&mut self.fresh, input)?;
            }
        }
        if let Some((column, old)) = old {
            old.unpack(column.rows(), &mut self.old);
        }
        Ok(self.part(old.is_some(), runs))
    }

    /// The numbers of all rows, of the differences that were read. `has_old` says whether there
    /// is a column that rows can be copies of.
    fn part(&mut self, has_old: bool, runs: &[Run]) -> Part {
        self.now.clear();
        let (mut copied, mut fresh) = (self.copied.iter(), self.fresh.iter());
        let mut last = 0u64;
        for r in runs {
            if let Some(from) = r.from.filter(|_| has_old) {
                // Columns of a table that was another one before may be shorter than its keys.
                let old = self.old.get(from..).unwrap_or_default().iter().copied();
                let old = old.chain(std::iter::repeat(0)).take(r.len);
                self.now.extend(old.zip(copied.by_ref()).map(|(o, by)| o.wrapping_add(*by)));
            } else {
                self.now.extend(fresh.by_ref().take(r.len).map(|by| {
                    last = last.wrapping_add(*by);
                    last
                }));
            }
        }
        Part::of(&self.now)
    }
}

/// Which numbers of a row changed.
struct Changed {
    width: usize,
    is_listed: bool,
    left: usize,
    last: usize,
}

impl Changed {
    fn read(width: usize, is_listed: bool, input: &mut Input<'_>) -> Result<Self, CodecError> {
        let left = if is_listed { input.count(width)? } else { width };
        Ok(Self { width, is_listed, left, last: 0 })
    }

    fn next(&mut self, input: &mut Input<'_>) -> Result<Option<usize>, CodecError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.last = if self.is_listed {
            self.last.saturating_add(input.count(self.width)?)
        } else {
            self.width - self.left
        };
        self.left = left;
        if self.last < self.width { Ok(Some(self.last)) } else { input.torn() }
    }
}

/// Adds the differences of rows that have not moved.
fn add_in_place(part: &mut Part, rows: usize, input: &mut Input<'_>) -> Result<(), CodecError> {
    if rows <= FEW_ROWS {
        for row in 0..rows {
            let by = difference(input)?;
            if by != 0 && !part.add(rows, row, by) {
                return input.torn();
            }
        }
        return Ok(());
    }
    part.add_to_all(rows, difference(input)?);
    each_sparse(input, &mut |row, by| part.add(rows, row, by))
}

/// The differences of the rows that are copies.
fn read_copied(to: &mut [u64], input: &mut Input<'_>) -> Result<(), CodecError> {
    if to.len() <= FEW_ROWS {
        for cell in to {
            *cell = difference(input)?;
        }
        return Ok(());
    }
    to.fill(difference(input)?);
    add_sparse(to, input)
}
