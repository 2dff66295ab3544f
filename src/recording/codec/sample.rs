//! A sample as the difference from another one, and back. Lossless. In this order:
//!
//! - where the shape is another one, the shape as pieces of the other, and of each list in it
//!   which rows are which
//! - numbers: sparse differences; texts: count, then distance, length and bytes of each that
//!   changed
//! - tables: 0 when they are as before, else count plus 1 and key, first and end of each
//! - the columns
//!
//! A sample that is written whole is the difference from an empty one.

use std::collections::HashMap;

use super::columns::{put_columns, read_columns};
use super::flat::{Column, Flat, TableOf, Texts};
use super::limits::{Budget, MAX_UNITS};
use super::matching::{Mapping, map, put_shape, read_shape};
use super::rows::{put_runs, read_runs, rows};
use super::sparse::{add_sparse, put_sparse};
use super::wire::{CodecError, Input, put_bytes, put_varint};

/// Writes `now` as the difference from an empty sample, which `read_other_shape` reads.
pub(super) fn put_whole(now: &Flat, out: &mut Vec<u8>) {
    put_shape(&[], &now.shape, out);
    put_leaves(&Flat::default(), now, None, out);
}

/// Writes `now` as the difference from a sample of the same shape.
pub(super) fn put_same_shape(prev: &Flat, now: &Flat, out: &mut Vec<u8>) {
    put_leaves(prev, now, None, out);
}

/// Reads it; `prev` is changed in place, for most of it stays.
pub(super) fn read_same_shape(
    prev: Flat,
    most: usize,
    input: &mut Input<'_>,
) -> Result<Flat, CodecError> {
    let Flat { shape, mut nums, texts, columns, tables } = prev;
    add_sparse(&mut nums, input)?;
    let texts = read_texts_over(texts, input)?;
    let tables = read_tables(tables, columns.len(), input)?;
    let keys: Vec<usize> =
        tables.iter().map(|t| columns.get(t.key).map_or(0, Column::cells)).collect();
    let n = columns.len();
    let columns = read_columns(columns.into_iter(), n, &tables, &keys, most, input)?;
    Ok(Flat { shape, nums, texts, columns, tables })
}

/// Writes `now` as the difference from a sample of another shape. False: a reader would refuse to
/// compare the two, and nothing was written.
pub(super) fn put_other_shape(prev: &Flat, now: &Flat, out: &mut Vec<u8>) -> bool {
    let mut lists = Vec::new();
    let map = map(&prev.shape, &now.shape, MAX_UNITS, &mut |l| {
        let runs = l.align(prev, now);
        put_runs(&runs, &mut lists);
        Ok(runs)
    });
    let Ok(map) = map else { return false };
    put_shape(&prev.shape, &now.shape, out);
    out.extend_from_slice(&lists);
    put_leaves(prev, now, Some(&map), out);
    true
}

pub(super) fn read_other_shape(
    prev: &Flat,
    most: usize,
    input: &mut Input<'_>,
) -> Result<Flat, CodecError> {
    let shape = read_shape(&prev.shape, most, input)?;
    let map = map(&prev.shape, &shape, most, &mut |l| {
        let runs = read_runs(l.before(), input)?;
        if rows(&runs) == l.len() { Ok(runs) } else { input.torn() }
    })?;
    let old = |i: &Option<usize>| i.and_then(|i| prev.nums.get(i)).copied().unwrap_or(0);
    let mut nums: Vec<u64> = map.nums.iter().map(old).collect();
    add_sparse(&mut nums, input)?;
    let texts = read_texts_of(prev, &map, most, input)?;
    let n = map.columns.len();
    let tables = read_tables(prev.tables.clone(), n, input)?;
    let column = |i: usize| map.columns.get(i).copied().flatten().and_then(|i| prev.columns.get(i));
    let keys: Vec<usize> = tables.iter().map(|t| column(t.key).map_or(0, Column::cells)).collect();
    let before = (0..n).map(|i| column(i).cloned().unwrap_or_default());
    let columns = read_columns(before, n, &tables, &keys, most, input)?;
    Ok(Flat { shape, nums, texts, columns, tables })
}

/// Writes what is not the shape. Without a map every leaf is in its place.
fn put_leaves(prev: &Flat, now: &Flat, map: Option<&Mapping>, out: &mut Vec<u8>) {
    let nums = map.map(|m| &m.nums[..]);
    let old = |i: usize| before(nums, i).and_then(|i| prev.nums.get(i)).copied().unwrap_or(0);
    put_sparse(now.nums.iter().enumerate().map(|(i, n)| n.wrapping_sub(old(i))), out);
    let from = map.map(|m| &m.texts[..]);
    let old = |i: usize| before(from, i).and_then(|i| prev.texts.get(i));
    let texts = || now.texts.iter().enumerate().filter(|(i, t)| old(*i) != Some(*t));
    put_varint(out, texts().count() as u64);
    let mut last = 0;
    for (i, text) in texts() {
        put_varint(out, (i - last) as u64);
        last = i;
        put_bytes(out, text);
    }
    put_tables(&prev.tables, &now.tables, out);
    let columns = map.map(|m| &m.columns[..]);
    let old = |i: usize| before(columns, i).and_then(|i| prev.columns.get(i));
    put_columns(&old, &now.columns, &now.tables, out);
}

/// Where a leaf of the new sample was in the one before.
fn before(map: Option<&[Option<usize>]>, i: usize) -> Option<usize> {
    map.map_or(Some(i), |m| m.get(i).copied().flatten())
}

/// Texts that are new, by their place.
fn read_texts<'b>(
    texts: usize,
    input: &mut Input<'b>,
) -> Result<HashMap<usize, &'b [u8]>, CodecError> {
    let (mut changed, mut last) = (HashMap::new(), 0usize);
    for _ in 0..input.count(0)? {
        last = last.saturating_add(input.count(texts)?);
        let len = input.count(0)?;
        changed.insert(last, input.slice(len)?);
    }
    Ok(changed)
}

/// Texts of a sample of the same shape: the ones before, but for those that are new.
fn read_texts_over(before: Texts, input: &mut Input<'_>) -> Result<Texts, CodecError> {
    let changed = read_texts(before.len(), input)?;
    if changed.is_empty() {
        return Ok(before);
    }
    let mut out = Texts::default();
    for (i, t) in before.iter().enumerate() {
        out.push(changed.get(&i).copied().unwrap_or(t));
    }
    Ok(out)
}

/// Texts of a sample of another shape.
fn read_texts_of(
    prev: &Flat,
    map: &Mapping,
    most: usize,
    input: &mut Input<'_>,
) -> Result<Texts, CodecError> {
    let changed = read_texts(map.texts.len(), input)?;
    let (mut out, mut budget) = (Texts::default(), Budget::new(most));
    for (i, from) in map.texts.iter().enumerate() {
        let old = from.and_then(|i| prev.texts.get(i));
        let text = changed.get(&i).copied().or(old).unwrap_or_default();
        // Many rows may be like a single one from before, with its long text.
        budget.take_rows(text.len(), 1)?;
        out.push(text);
    }
    Ok(out)
}

/// Tables that a column may be in: structs within structs.
const MAX_TABLES: usize = 64;

fn put_tables(prev: &[TableOf], now: &[TableOf], out: &mut Vec<u8>) {
    if prev == now {
        return put_varint(out, 0);
    }
    put_varint(out, now.len() as u64 + 1);
    for t in now {
        for n in [t.key, t.first, t.end] {
            put_varint(out, n as u64);
        }
    }
}

fn read_tables(
    before: Vec<TableOf>,
    columns: usize,
    input: &mut Input<'_>,
) -> Result<Vec<TableOf>, CodecError> {
    let Some(count) = input.count(0)?.checked_sub(1) else {
        return if before.iter().any(|t| t.end > columns) { input.torn() } else { Ok(before) };
    };
    let (mut out, mut budget) = (Vec::new(), Budget::new(columns.saturating_mul(MAX_TABLES)));
    for _ in 0..count {
        let t = TableOf { key: input.place()?, first: input.place()?, end: input.place()? };
        if t.key < t.first || t.key >= t.end || t.end > columns {
            return Err(CodecError("a table without its columns".to_owned()));
        }
        budget.take(t.end - t.first)?;
        out.push(t);
    }
    Ok(out)
}
