//! The reading half of [`super::compact`]. Trusts nothing, as [`super::undelta`].

use std::rc::Rc;

use super::cells::{Room, copies};
use super::compact::{FEW_ROWS, FIRST, MOST_WIDTH, WHOLE, is_whole};
use super::delta::{Run, unmoved};
use super::flat::{Column, Flat, FlatError, Part, TableOf};
use super::reshape::Mapping;
use super::undelta::{
    afford, behind, column_of, count, number, read_head, read_runs, read_tables, read_texts_over,
    settle, torn, unzigzag,
};

/// Reads what [`put_difference`] wrote.
pub(crate) fn difference(bytes: &[u8], at: &mut usize) -> Result<u64, FlatError> {
    let Some(first) = bytes.get(*at).copied() else { return torn() };
    *at += 1;
    let mut z = u64::from(first & 0x3f);
    if first & 0x80 != 0 {
        z |= number(bytes, at)? << FIRST;
    }
    let d = unzigzag(z);
    Ok(if first & 0x40 == 0 { d } else { d.wrapping_mul(WHOLE) })
}

/// Gives each place and number that `put_sparse` wrote. `take` says whether there is such a
/// place.
fn each_sparse(
    bytes: &[u8],
    at: &mut usize,
    take: &mut impl FnMut(usize, u64) -> bool,
) -> Result<(), FlatError> {
    let head = number(bytes, at)?;
    let n = usize::try_from(head >> 1).unwrap_or(usize::MAX);
    if n > bytes.len().saturating_sub(*at) {
        return torn();
    }
    let mut next = 0usize;
    let mut place = |gap: u64| {
        let i = next.saturating_add(usize::try_from(gap).unwrap_or(usize::MAX));
        next = i.saturating_add(1);
        i
    };
    if head & 1 == 1 {
        for _ in 0..n {
            let gap = number(bytes, at)?;
            let v = if gap & 1 == 1 { 1 } else { difference(bytes, at)? };
            if !take(place(gap >> 1), v) {
                return torn();
            }
        }
        return Ok(());
    }
    let mut gaps = *at;
    *at = behind(bytes, *at, n)?;
    for _ in 0..n {
        let i = place(number(bytes, &mut gaps)?);
        if !take(i, unzigzag(number(bytes, at)?)) {
            return torn();
        }
    }
    Ok(())
}

pub(crate) fn add_sparse(to: &mut [u64], bytes: &[u8], at: &mut usize) -> Result<(), FlatError> {
    let mut add =
        |i: usize, v: u64| to.get_mut(i).map(|cell| *cell = cell.wrapping_add(v)).is_some();
    each_sparse(bytes, at, &mut add)
}

/// A sample of the same shape, made of the one before in place.
pub(crate) fn read_next(
    prev: Flat,
    most: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Flat, FlatError> {
    let Flat { shape, mut nums, texts, columns, tables } = prev;
    add_sparse(&mut nums, bytes, at)?;
    let texts = read_texts_over(texts, bytes, at)?;
    let tables = tables_or(tables, columns.len(), bytes, at)?;
    let keys = |t: &TableOf| columns.get(t.key).map_or(0, Column::cells);
    let runs = read_rows(&tables, keys, columns.len(), bytes, at)?;
    let columns = read_columns(columns.into_iter(), runs, most, bytes, at)?;
    Ok(Flat { shape, nums, texts, columns, tables })
}

/// A sample of another shape.
pub(crate) fn read_mapped(
    prev: &Flat,
    shape: Vec<u8>,
    map: &Mapping,
    most: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Flat, FlatError> {
    let mut out = read_head(prev, shape, map, add_sparse, most, bytes, at)?;
    let n = map.columns.len();
    out.tables = tables_or(prev.tables.clone(), n, bytes, at)?;
    let column = |i| column_of(prev, map, i);
    let keys = |t: &TableOf| column(t.key).map_or(0, Column::cells);
    let runs = read_rows(&out.tables, keys, n, bytes, at)?;
    let before = (0..n).map(|i| column(i).cloned().unwrap_or_default());
    out.columns = read_columns(before, runs, most, bytes, at)?;
    Ok(out)
}

fn tables_or(
    before: Vec<TableOf>,
    columns: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Vec<TableOf>, FlatError> {
    let head = number(bytes, at)?;
    if head > 0 {
        return read_tables(columns, bytes, at);
    }
    if before.iter().any(|t| t.end > columns) { torn() } else { Ok(before) }
}

/// Rows of the columns that are in tables.
fn read_rows(
    tables: &[TableOf],
    keys: impl Fn(&TableOf) -> usize,
    columns: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Vec<Option<Rc<[Run]>>>, FlatError> {
    let mut out = vec![None; columns];
    for t in tables {
        let runs: Rc<[Run]> = if number(bytes, at)? == 0 {
            unmoved(keys(t)).into()
        } else {
            read_runs(keys(t), bytes, at)?.into()
        };
        for slot in out.get_mut(t.first..t.end).unwrap_or_default() {
            *slot = Some(runs.clone());
        }
    }
    Ok(out)
}

fn read_columns(
    before: impl Iterator<Item = Column>,
    runs: Vec<Option<Rc<[Run]>>>,
    most: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Vec<Column>, FlatError> {
    let mut left = count(bytes, at, runs.len())?;
    let (mut left_cells, mut room) = (most, Room::default());
    let mut next = if left > 0 { count(bytes, at, runs.len())? } else { 0 };
    let mut out = Vec::new();
    for (i, (mut old, known)) in before.zip(runs).enumerate() {
        if left == 0 || i != next {
            let rows = old.rows();
            afford(&mut left_cells, rows, old.width())?;
            old.parts_mut().iter_mut().try_for_each(|p| settle(&mut left_cells, p, rows))?;
            out.push(old);
            continue;
        }
        out.push(room.read_column(old, known, &mut left_cells, bytes, at)?);
        left -= 1;
        if left > 0 {
            let gap = number(bytes, at)?;
            next = next.saturating_add(usize::try_from(gap).unwrap_or(usize::MAX));
        }
    }
    if left > 0 { torn() } else { Ok(out) }
}

impl Room {
    fn read_column(
        &mut self,
        mut old: Column,
        known: Option<Rc<[Run]>>,
        left: &mut usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<Column, FlatError> {
        let head = number(bytes, at)?;
        let width = match head.checked_sub(1) {
            None => old.width(),
            Some(w) => usize::try_from(w).unwrap_or(usize::MAX),
        };
        if width > MOST_WIDTH {
            return torn();
        }
        let before = old.rows();
        let runs = match known {
            Some(r) => r,
            None if head == 0 => unmoved(before).into(),
            None => read_runs(before, bytes, at)?.into(),
        };
        let rows = runs.iter().fold(0usize, |n, r| n.saturating_add(r.len));
        afford(left, rows, width)?;
        let mut changed = Changed::read(width, bytes, at)?;
        if width == old.width() && is_whole(&runs, before) {
            let parts = old.parts_mut();
            while let Some(c) = changed.next(bytes, at)? {
                let Some(part) = parts.get_mut(c) else { return torn() };
                add_in_place(part, rows, bytes, at)?;
                settle(left, part, rows)?;
            }
            return Ok(old);
        }
        let old = Some(&old).filter(|o| o.width() == width);
        let mut next = changed.next(bytes, at)?;
        let mut parts = Vec::new();
        for c in 0..width {
            let p = old.and_then(|o| Some((o, o.parts().get(c)?)));
            let is_changed = next == Some(c);
            let mut part = self.read_part(p, rows, &runs, is_changed, bytes, at)?;
            settle(left, &mut part, rows)?;
            parts.push(part);
            if is_changed {
                next = changed.next(bytes, at)?;
            }
        }
        Ok(Column::from_parts(rows, parts))
    }

    /// One number of all rows, some of which are not where they were.
    fn read_part(
        &mut self,
        old: Option<(&Column, &Part)>,
        rows: usize,
        runs: &[Run],
        is_changed: bool,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<Part, FlatError> {
        let copies = copies(old.is_some(), runs);
        if !is_changed && copies == 0 {
            return Ok(Part::Same(0));
        }
        self.clear(copies, rows - copies);
        if is_changed {
            read_copied(&mut self.copied, bytes, at)?;
            if !self.fresh.is_empty() {
                add_sparse(&mut self.fresh, bytes, at)?;
            }
        }
        if let Some((column, old)) = old {
            old.unpack(column.rows(), &mut self.old);
        }
        Ok(self.part(old.is_some(), runs))
    }
}

/// Which numbers of a row changed.
struct Changed {
    width: usize,
    left: usize,
    last: usize,
}

impl Changed {
    fn read(width: usize, bytes: &[u8], at: &mut usize) -> Result<Self, FlatError> {
        let left = if width == 1 { 1 } else { count(bytes, at, width)? };
        Ok(Self { width, left, last: 0 })
    }
    /// The next one of them, none when there is no other.
    fn next(&mut self, bytes: &[u8], at: &mut usize) -> Result<Option<usize>, FlatError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        if self.width != 1 {
            self.last = self.last.saturating_add(count(bytes, at, self.width)?);
        }
        if self.last < self.width { Ok(Some(self.last)) } else { torn() }
    }
}

/// Adds the differences of rows that are all where they were.
fn add_in_place(
    part: &mut Part,
    rows: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<(), FlatError> {
    if rows <= FEW_ROWS {
        for row in 0..rows {
            let by = difference(bytes, at)?;
            if by != 0 && !part.add(rows, row, by) {
                return torn();
            }
        }
        return Ok(());
    }
    part.add_to_all(rows, difference(bytes, at)?);
    each_sparse(bytes, at, &mut |row, by| part.add(rows, row, by))
}

/// The differences of the rows that are copies.
fn read_copied(to: &mut [u64], bytes: &[u8], at: &mut usize) -> Result<(), FlatError> {
    if to.len() <= FEW_ROWS {
        for cell in to {
            *cell = difference(bytes, at)?;
        }
        return Ok(());
    }
    let by = difference(bytes, at)?;
    to.fill(by);
    add_sparse(to, bytes, at)
}
