//! The reading half of [`super::delta`]. Trusts nothing: lengths are bounded before memory is
//! taken, and a sample that is too large is refused.

use std::collections::HashMap;
use std::rc::Rc;

use super::cells::{self, Room};
use super::delta::Run;
use super::flat::{Column, Flat, FlatError, Part, TableOf, Texts, varint};
use crate::recording::file::limits::MOST_ROWS;
use super::reshape::{self, Mapping};
use super::uncompact;

pub(crate) fn torn<T>() -> Result<T, FlatError> {
    Err(FlatError("the sample ends too early".to_owned()))
}

#[inline]
pub(crate) fn number(bytes: &[u8], at: &mut usize) -> Result<u64, FlatError> {
    varint(bytes, at).map_or_else(torn, Ok)
}

/// A count of things of which each takes at least a byte here, or is already in memory.
pub(crate) fn count(bytes: &[u8], at: &mut usize, most: usize) -> Result<usize, FlatError> {
    let n = usize::try_from(number(bytes, at)?).unwrap_or(usize::MAX);
    if n > most.max(bytes.len().saturating_sub(*at)) { torn() } else { Ok(n) }
}

pub(crate) fn unzigzag(z: u64) -> u64 {
    (z >> 1) ^ (z & 1).wrapping_neg()
}

pub(crate) fn read_full(most: usize, bytes: &[u8], at: &mut usize) -> Result<Flat, FlatError> {
    let (mut out, mut left) = (Flat::default(), most);
    let len = count(bytes, at, 0)?;
    take_off(&mut left, len)?;
    out.shape.extend_from_slice(slice(bytes, at, len)?);
    let nums = count(bytes, at, 0)?;
    take_off(&mut left, nums)?;
    for _ in 0..nums {
        out.nums.push(number(bytes, at)?);
    }
    let texts = count(bytes, at, 0)?;
    let mut lens = Vec::new();
    for _ in 0..texts {
        lens.push(count(bytes, at, 0)?);
    }
    for len in lens {
        out.texts.push(slice(bytes, at, len)?);
    }
    let mut room = Room::default();
    for _ in 0..count(bytes, at, 0)? {
        let width = count(bytes, at, 1 << 12)?;
        let rows = usize::try_from(number(bytes, at)?).unwrap_or(usize::MAX);
        afford(&mut left, rows, width)?;
        let fresh = [Run { from: None, len: rows }];
        out.columns.push(read_cells(&mut room, None, width, &fresh, &mut left, bytes, at)?);
    }
    out.tables = read_tables(out.columns.len(), bytes, at)?;
    Ok(out)
}

/// Takes `rows` of `width` numbers off what is left of the units of a sample: constant cells take
/// no bytes, so that the length of the payload bounds nothing. An empty column takes memory, too.
pub(crate) fn afford(left: &mut usize, rows: usize, width: usize) -> Result<(), FlatError> {
    if rows > MOST_ROWS {
        return too_large();
    }
    take_off(left, rows.max(1).saturating_mul(width.max(1)))
}

/// Takes what a number of all rows turned out to be more than its rows told, as a writer counts
/// it: by the numbers alone.
pub(crate) fn settle(left: &mut usize, part: &mut Part, rows: usize) -> Result<(), FlatError> {
    part.narrow_again();
    take_off(left, part.units(rows).saturating_sub(rows))
}

fn take_off(left: &mut usize, units: usize) -> Result<(), FlatError> {
    match left.checked_sub(units) {
        Some(rest) => *left = rest,
        None => return too_large(),
    }
    Ok(())
}

pub(crate) fn too_large<T>() -> Result<T, FlatError> {
    Err(FlatError("a sample that is larger than its bytes can tell".to_owned()))
}

pub(crate) fn slice<'b>(
    bytes: &'b [u8],
    at: &mut usize,
    len: usize,
) -> Result<&'b [u8], FlatError> {
    let end = at.checked_add(len);
    let Some(part) = end.and_then(|e| bytes.get(*at..e)) else { return torn() };
    *at += len;
    Ok(part)
}

/// Tables that a column may be in: structs within structs.
const MOST_TABLES: usize = 64;

pub(crate) fn read_tables(
    columns: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Vec<TableOf>, FlatError> {
    let (mut out, mut left) = (Vec::new(), columns.saturating_mul(MOST_TABLES));
    for _ in 0..count(bytes, at, 0)? {
        let mut next = || number(bytes, at).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let t = TableOf { key: next()?, first: next()?, end: next()? };
        if t.key < t.first || t.key >= t.end || t.end > columns {
            return Err(FlatError("a table without its columns".to_owned()));
        }
        afford(&mut left, t.end - t.first, 1)?;
        out.push(t);
    }
    Ok(out)
}

/// A sample of the same shape, made of the one before in place: most of it stays.
pub(crate) fn read_next(
    prev: Flat,
    most: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Flat, FlatError> {
    let Flat { shape, mut nums, texts, columns, .. } = prev;
    read_sparse(&mut nums, bytes, at)?;
    let texts = read_texts_over(texts, bytes, at)?;
    let tables = read_tables(columns.len(), bytes, at)?;
    let rows = |t: &TableOf| columns.get(t.key).map_or(0, Column::cells);
    let known = read_table_runs(&tables, rows, columns.len(), bytes, at)?;
    let (mut left, mut room) = (most, Room::default());
    let mut out = Flat { shape, nums, texts, columns: Vec::new(), tables };
    for (before, known) in columns.into_iter().zip(known) {
        let (width, runs) = read_column_head(before.rows(), known, &mut left, bytes, at)?;
        let still = matches!(*runs, [Run { from: Some(0), len }] if len == before.rows());
        out.columns.push(if still && width == before.width() {
            read_cells_in_place(before, &mut left, bytes, at)?
        } else {
            let before = Some(&before).filter(|b| b.width() == width);
            read_cells(&mut room, before, width, &runs, &mut left, bytes, at)?
        });
    }
    Ok(out)
}

/// Texts that are new, by their place.
fn read_texts<'b>(
    texts: usize,
    bytes: &'b [u8],
    at: &mut usize,
) -> Result<HashMap<usize, &'b [u8]>, FlatError> {
    let (mut changed, mut last) = (HashMap::new(), 0usize);
    for _ in 0..count(bytes, at, 0)? {
        last = last.saturating_add(count(bytes, at, texts)?);
        let len = count(bytes, at, 0)?;
        changed.insert(last, slice(bytes, at, len)?);
    }
    Ok(changed)
}

/// Texts of a sample of the same shape: the ones before, but for those that are new.
pub(crate) fn read_texts_over(
    before: Texts,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Texts, FlatError> {
    let changed = read_texts(before.len(), bytes, at)?;
    if changed.is_empty() {
        return Ok(before);
    }
    let mut out = Texts::default();
    for (i, t) in before.iter().enumerate() {
        out.push(changed.get(&i).copied().unwrap_or(t));
    }
    Ok(out)
}

/// Rows of the tables: one list for all columns of a table.
fn read_table_runs(
    tables: &[TableOf],
    rows: impl Fn(&TableOf) -> usize,
    columns: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Vec<Option<Rc<[Run]>>>, FlatError> {
    let mut runs = vec![None; columns];
    for t in tables {
        let by_key: Rc<[Run]> = read_runs(rows(t), bytes, at)?.into();
        for slot in runs.get_mut(t.first..t.end).unwrap_or_default() {
            *slot = Some(by_key.clone());
        }
    }
    Ok(runs)
}

/// Width and rows of a column, affordable.
fn read_column_head(
    before: usize,
    known: Option<Rc<[Run]>>,
    left: &mut usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<(usize, Rc<[Run]>), FlatError> {
    let width = count(bytes, at, 1 << 12)?;
    let runs = match known {
        Some(r) => r,
        None => read_runs(before, bytes, at)?.into(),
    };
    let rows = runs.iter().fold(0usize, |n, r| n.saturating_add(r.len));
    afford(left, rows, width)?;
    Ok((width, runs))
}

/// Adds sparse differences to the numbers they belong to.
pub(crate) type Sparse = fn(&mut [u64], &[u8], &mut usize) -> Result<(), FlatError>;

/// Numbers and texts of a sample of another shape: those that it has in common with the one
/// before it, and what changed.
pub(crate) fn read_head(
    prev: &Flat,
    shape: Vec<u8>,
    map: &Mapping,
    sparse: Sparse,
    most: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Flat, FlatError> {
    let (mut out, mut left) = (Flat { shape, ..Flat::default() }, most);
    let old = |i: &Option<usize>| i.and_then(|i| prev.nums.get(i)).copied().unwrap_or(0);
    out.nums.extend(map.nums.iter().map(old));
    sparse(&mut out.nums, bytes, at)?;
    let changed = read_texts(map.texts.len(), bytes, at)?;
    for (i, from) in map.texts.iter().enumerate() {
        let old = from.and_then(|i| prev.texts.get(i));
        let text = changed.get(&i).copied().or(old).unwrap_or_default();
        // Many rows may be like a single one from before, with its long text.
        afford(&mut left, text.len(), 1)?;
        out.texts.push(text);
    }
    Ok(out)
}

/// The column that column `i` of another shape was before.
pub(crate) fn column_of<'p>(prev: &'p Flat, map: &Mapping, i: usize) -> Option<&'p Column> {
    map.columns.get(i).copied().flatten().and_then(|i| prev.columns.get(i))
}

fn read_mapped(
    prev: &Flat,
    shape: Vec<u8>,
    map: &Mapping,
    most: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Flat, FlatError> {
    let mut out = read_head(prev, shape, map, read_sparse, most, bytes, at)?;
    let columns = map.columns.len();
    let column = |i| column_of(prev, map, i);
    out.tables = read_tables(columns, bytes, at)?;
    let rows = |t: &TableOf| column(t.key).map_or(0, Column::cells);
    let known = read_table_runs(&out.tables, rows, columns, bytes, at)?;
    let (mut left, mut room) = (most, Room::default());
    for (i, known) in known.into_iter().enumerate() {
        let before = column(i);
        let rows = before.map_or(0, Column::rows);
        let (width, runs) = read_column_head(rows, known, &mut left, bytes, at)?;
        let before = before.filter(|b| b.width() == width);
        out.columns.push(read_cells(&mut room, before, width, &runs, &mut left, bytes, at)?);
    }
    Ok(out)
}

/// A sample of another shape; compact, or in the older layout.
pub(crate) fn read_reshaped(
    prev: &Flat,
    is_compact: bool,
    most: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Flat, FlatError> {
    let shape = reshape::read_shape(&prev.shape, most, bytes, at)?;
    let map = reshape::map(&prev.shape, &shape, most, &mut |l| {
        let runs = read_runs(l.before(), bytes, at)?;
        let len = runs.iter().fold(0usize, |n, r| n.saturating_add(r.len));
        if len == l.len() { Ok(runs) } else { torn() }
    })?;
    let read = if is_compact { uncompact::read_mapped } else { read_mapped };
    read(prev, shape, &map, most, bytes, at)
}

/// Adds what [`sparse`] wrote to `to`.
fn read_sparse(to: &mut [u64], bytes: &[u8], at: &mut usize) -> Result<(), FlatError> {
    let mut add =
        |i: usize, v: u64| to.get_mut(i).map(|cell| *cell = cell.wrapping_add(v)).is_some();
    each_sparse(bytes, at, &mut add)
}

/// Where `n` numbers from `at` on end.
pub(crate) fn behind(bytes: &[u8], at: usize, n: usize) -> Result<usize, FlatError> {
    let Some(last) = n.checked_sub(1) else { return Ok(at) };
    let rest = bytes.get(at..).unwrap_or_default().iter().enumerate();
    let end = rest.filter(|(_, b)| **b < 0x80).nth(last);
    end.map_or_else(torn, |(i, _)| Ok(at + i + 1))
}

/// What [`sparse`] wrote, one by one: place and number. `take` says whether there is such a
/// place.
fn each_sparse(
    bytes: &[u8],
    at: &mut usize,
    take: &mut impl FnMut(usize, u64) -> bool,
) -> Result<(), FlatError> {
    let n = count(bytes, at, 0)?;
    let mut gaps = *at;
    *at = behind(bytes, *at, n)?;
    let mut place = 0usize;
    for _ in 0..n {
        let gap = usize::try_from(number(bytes, &mut gaps)?).unwrap_or(usize::MAX);
        place = place.saturating_add(gap);
        let v = unzigzag(number(bytes, at)?);
        if !take(place, v) {
            return torn();
        }
    }
    Ok(())
}

pub(crate) fn read_runs(
    before: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Vec<Run>, FlatError> {
    let (mut out, mut expected) = (Vec::new(), 0u64);
    for _ in 0..count(bytes, at, 0)? {
        let head = number(bytes, at)?;
        let len = usize::try_from(head >> 1).unwrap_or(usize::MAX);
        if len == 0 {
            return Err(FlatError("a run of no rows".to_owned()));
        }
        let from = if head & 1 == 1 {
            None
        } else {
            let from = expected.wrapping_add(unzigzag(number(bytes, at)?));
            expected = from.wrapping_add(len as u64);
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            if from.checked_add(len).is_none_or(|end| end > before) {
                return Err(FlatError("rows of a sample that has them not".to_owned()));
            }
            Some(from)
        };
        out.push(Run { from, len });
    }
    Ok(out)
}

/// The numbers of a column whose rows are the ones from before: only what changed is touched.
fn read_cells_in_place(
    mut c: Column,
    left: &mut usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Column, FlatError> {
    let rows = c.rows();
    for part in c.parts_mut() {
        part.add_to_all(rows, unzigzag(number(bytes, at)?));
        each_sparse(bytes, at, &mut |row, by| part.add(rows, row, by))?;
        // New rows: there are none.
        if number(bytes, at)? != 0 {
            return torn();
        }
        settle(left, part, rows)?;
    }
    Ok(c)
}

fn read_cells(
    room: &mut Room,
    prev: Option<&Column>,
    width: usize,
    runs: &[Run],
    left: &mut usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Column, FlatError> {
    // Afforded by the caller.
    let rows: usize = runs.iter().map(|r| r.len).sum();
    let copies = cells::copies(prev.is_some(), runs);
    let mut parts = Vec::new();
    for c in 0..width {
        let old = prev.and_then(|p| Some((p, p.parts().get(c)?)));
        if let Some((prev, part)) = old {
            part.unpack(prev.rows(), &mut room.old);
            cells::fill(&mut room.copied, copies, unzigzag(number(bytes, at)?));
            read_sparse(&mut room.copied, bytes, at)?;
        } else if bytes.get(*at) == Some(&0) {
            // The same as in the row before, in all of them: zero.
            *at += 1;
            parts.push(Part::Same(0));
            continue;
        }
        cells::fill(&mut room.fresh, rows - copies, 0);
        read_sparse(&mut room.fresh, bytes, at)?;
        let mut part = room.part(old.is_some(), runs);
        settle(left, &mut part, rows)?;
        parts.push(part);
    }
    Ok(Column::from_parts(rows, parts))
}
