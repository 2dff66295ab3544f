//! A sample as the difference from the one before it, and back. Lossless.
//!
//! Samples of one shape differ in few numbers; how those of two shapes compare is found by
//! `reshape`. Rows of a table with a key are compared with the
//! row of the same key, wide rows (`tcp_info`) with the most similar one near by, all others by
//! position. Where most cells of a column moved by the same amount (ages, counters at a steady
//! rate), that amount is written once and only the exceptions follow.

use std::collections::HashMap;

use super::flat::{Column, Flat, FlatError, Part, TableOf, put_varint};
use super::reshape::{self, Mapping};
use super::undelta::{number, read_full, read_next, read_reshaped, torn};

/// Earlier samples that a difference may refer to: the last ones of different shapes.
#[derive(Debug, Default)]
pub struct Recent {
    samples: Vec<Flat>,
}

/// Shapes that are remembered: a collector that reads in turns has several.
const SHAPES: usize = 4;
/// Numbers that the older ones of them may hold together.
const OLDER_CELLS: usize = 1 << 16;

/// How a sample is written.
mod how {
    /// Whole.
    pub(super) const FULL: u64 = 0;
    /// As the difference from the last one, which has another shape.
    pub(super) const RESHAPED: u64 = 1;
    /// Plus the number of the earlier sample with the same shape, from the last one back.
    pub(super) const SAME_SHAPE: u64 = 2;
}

impl Recent {
    /// Writes `now` and remembers it.
    pub fn encode(&mut self, now: Flat, out: &mut Vec<u8>) {
        let mut same = self.samples.iter().position(|p| p.shape == now.shape);
        if same.is_some_and(|i| i > 0) && now.cells() > OLDER_CELLS {
            // More has changed since then than another shape costs.
            same = None;
        }
        match (same.and_then(|i| Some((i, self.samples.get(i)?))), self.samples.first()) {
            (Some((i, prev)), _) => {
                put_varint(out, how::SAME_SHAPE + i as u64);
                delta(prev, &now, None, out);
            }
            (None, Some(prev)) => {
                put_varint(out, how::RESHAPED);
                reshaped(prev, &now, out);
            }
            (None, None) => {
                put_varint(out, how::FULL);
                full(&now, out);
            }
        }
        self.keep(same, now);
    }

    /// Reads what [`Self::encode`] wrote after the same samples.
    ///
    /// # Errors
    /// When the bytes are not of a sample, or of another series.
    pub fn decode(&mut self, bytes: &[u8], at: &mut usize) -> Result<&Flat, FlatError> {
        let how = number(bytes, at)?;
        let lacking = || FlatError("a difference without its sample".to_owned());
        let (now, same) = match how {
            how::FULL => (read_full(bytes, at)?, None),
            how::RESHAPED => {
                let prev = self.samples.first().ok_or_else(lacking)?;
                (read_reshaped(prev, bytes, at)?, None)
            }
            n => {
                let i = usize::try_from(n - how::SAME_SHAPE).unwrap_or(usize::MAX);
                let prev = (i < self.samples.len()).then(|| self.samples.remove(i));
                (read_next(prev.ok_or_else(lacking)?, bytes, at)?, None)
            }
        };
        self.keep(same, now);
        self.samples.first().map_or_else(torn, Ok)
    }

    /// The sample that was written or read last.
    #[must_use]
    pub fn current(&self) -> Option<&Flat> {
        self.samples.first()
    }

    fn keep(&mut self, same: Option<usize>, now: Flat) {
        if let Some(i) = same {
            self.samples.remove(i);
        }
        self.samples.insert(0, now);
        let mut cells = 0usize;
        let within = |s: &&Flat| {
            cells = cells.saturating_add(s.cells());
            cells <= OLDER_CELLS
        };
        let older = self.samples.iter().skip(1).take(SHAPES - 1).take_while(within).count();
        self.samples.truncate(1 + older);
    }
}

/// Columns this wide are aligned by similarity.
const WIDE: usize = 8;
/// How far the most similar row may be.
const NEAR: usize = 8;

fn zigzag(d: u64) -> u64 {
    let d = d.cast_signed();
    ((d << 1) ^ (d >> 63)).cast_unsigned()
}

fn full(now: &Flat, out: &mut Vec<u8>) {
    put_varint(out, now.shape.len() as u64);
    out.extend_from_slice(&now.shape);
    put_varint(out, now.nums.len() as u64);
    for n in &now.nums {
        put_varint(out, *n);
    }
    put_varint(out, now.texts.len() as u64);
    for t in now.texts.iter() {
        put_varint(out, t.len() as u64);
    }
    for t in now.texts.iter() {
        out.extend_from_slice(t);
    }
    put_varint(out, now.columns.len() as u64);
    let mut room = Room::default();
    for c in &now.columns {
        put_varint(out, c.width() as u64);
        put_varint(out, c.rows() as u64);
        room.cells(c, None, &[Run { from: None, len: c.rows() }], out);
    }
    put_tables(&now.tables, out);
}

fn put_tables(tables: &[TableOf], out: &mut Vec<u8>) {
    put_varint(out, tables.len() as u64);
    for t in tables {
        put_varint(out, t.key as u64);
        put_varint(out, t.first as u64);
        put_varint(out, t.end as u64);
    }
}

/// Where a leaf of the new sample was in the one before.
fn before(map: Option<&[Option<usize>]>, i: usize) -> Option<usize> {
    map.map_or(Some(i), |m| m.get(i).copied().flatten())
}

fn delta(prev: &Flat, now: &Flat, map: Option<&Mapping>, out: &mut Vec<u8>) {
    let nums = map.map(|m| &m.nums[..]);
    let old = |i: usize| before(nums, i).and_then(|i| prev.nums.get(i)).copied().unwrap_or(0);
    sparse(now.nums.iter().enumerate().map(|(i, n)| n.wrapping_sub(old(i))), out);
    let from = map.map(|m| &m.texts[..]);
    let old = |i: usize| before(from, i).and_then(|i| prev.texts.get(i));
    let texts = || now.texts.iter().enumerate().filter(|(i, t)| old(*i) != Some(*t));
    put_varint(out, texts().count() as u64);
    let mut last = 0;
    for (i, text) in texts() {
        put_varint(out, (i - last) as u64);
        last = i;
        put_varint(out, text.len() as u64);
        out.extend_from_slice(text);
    }
    put_tables(&now.tables, out);
    let columns = map.map(|m| &m.columns[..]);
    let column = |i: usize| before(columns, i).and_then(|i| prev.columns.get(i));
    let mut runs: Vec<Option<Vec<Run>>> = vec![None; now.columns.len()];
    for t in &now.tables {
        // A key is one number wide: it is a column of cookies.
        let by_key = match (column(t.key), now.columns.get(t.key)) {
            (Some(old), Some(new)) if old == new => unmoved(new.rows()),
            (old, new) => align_keys(&keys(old), &keys(new)),
        };
        put_runs(&by_key, out);
        for slot in runs.get_mut(t.first..t.end).unwrap_or_default() {
            *slot = Some(by_key.clone());
        }
    }
    let mut room = Room::default();
    for (i, (c, known)) in now.columns.iter().zip(runs).enumerate() {
        let before = column(i);
        put_varint(out, c.width() as u64);
        let runs = known.unwrap_or_else(|| {
            let runs = align(before.unwrap_or(&Column::default()), c);
            put_runs(&runs, out);
            runs
        });
        room.cells(c, before, &runs, out);
    }
}

fn keys(c: Option<&Column>) -> Vec<u64> {
    c.map(Column::firsts).unwrap_or_default()
}

fn unmoved(len: usize) -> Vec<Run> {
    if len == 0 { Vec::new() } else { vec![Run { from: Some(0), len }] }
}

fn reshaped(prev: &Flat, now: &Flat, out: &mut Vec<u8>) {
    reshape::put_shape(&prev.shape, &now.shape, out);
    let mut lists = Vec::new();
    let map = reshape::map(&prev.shape, &now.shape, &mut |l| {
        let runs = l.align(prev, now);
        put_runs(&runs, &mut lists);
        Ok(runs)
    });
    // Both shapes are of our own making: there is always a mapping.
    let map = map.unwrap_or_default();
    out.extend_from_slice(&lists);
    delta(prev, now, Some(&map), out);
}

/// Numbers of which most are zero: how many are not, how far apart, and which.
fn sparse(values: impl Iterator<Item = u64> + Clone, out: &mut Vec<u8>) {
    let set = values.enumerate().filter(|(_, v)| *v != 0);
    put_varint(out, set.clone().count() as u64);
    let mut last = 0;
    for (i, _) in set.clone() {
        put_varint(out, (i - last) as u64);
        last = i;
    }
    for (_, v) in set {
        put_varint(out, zigzag(v));
    }
}

/// Rows in a row: copies of rows of the sample before, or new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// First row there; `None` for new rows.
    pub(super) from: Option<usize>,
    pub(super) len: usize,
}

pub(super) fn extend(runs: &mut Vec<Run>, from: Option<usize>) {
    if let Some(last) = runs.last_mut() {
        let follows = match (last.from, from) {
            (Some(a), Some(b)) => a + last.len == b,
            (None, None) => true,
            _ => false,
        };
        if follows {
            last.len += 1;
            return;
        }
    }
    runs.push(Run { from, len: 1 });
}

/// The first number of each row, if they ascend.
fn ascending(c: &Column) -> Option<Vec<u64>> {
    let keys = c.firsts();
    keys.windows(2).all(|w| w[0] < w[1]).then_some(keys)
}

fn align_keys(prev: &[u64], now: &[u64]) -> Vec<Run> {
    if prev == now {
        return unmoved(now.len());
    }
    let mut places: Option<HashMap<u64, usize>> = None;
    let (mut runs, mut next) = (Vec::new(), 0usize);
    for key in now {
        // Mostly the next one, or one that is a little further because others went.
        let near = (next..next.saturating_add(4)).find(|i| prev.get(*i) == Some(key));
        let from = near.or_else(|| {
            let all = prev.iter().enumerate().map(|(i, k)| (*k, i));
            places.get_or_insert_with(|| all.collect()).get(key).copied()
        });
        extend(&mut runs, from);
        next = from.map_or(next, |f| f + 1);
    }
    runs
}

fn align(prev: &Column, now: &Column) -> Vec<Run> {
    let (before, rows) = (prev.rows(), now.rows());
    if prev.width() != now.width() {
        return if rows == 0 { Vec::new() } else { vec![Run { from: None, len: rows }] };
    }
    if now.width() >= WIDE && before != rows {
        return align_similar(prev, now);
    }
    if now.width() > 1
        && let (Some(old), Some(new)) = (ascending(prev), ascending(now))
    {
        // Buckets of a histogram, rows by CPU: the first number says which.
        return align_keys(&old, &new);
    }
    let both = before.min(rows);
    let mut runs = Vec::new();
    if both > 0 {
        runs.push(Run { from: Some(0), len: both });
    }
    if rows > both {
        runs.push(Run { from: None, len: rows - both });
    }
    runs
}

fn align_similar(prev: &Column, now: &Column) -> Vec<Run> {
    let width = now.width();
    let (mut runs, mut next) = (Vec::new(), 0usize);
    for i in 0..now.rows() {
        let mine = now.row(i);
        let alike = |p: usize| {
            if p >= prev.rows() {
                return 0;
            }
            mine.iter().zip(prev.parts()).filter(|(a, b)| b.get(p) == Some(**a)).count()
        };
        let mut best = (alike(next), next);
        if best.0 * 2 < width {
            for p in next.saturating_sub(NEAR)..(next + NEAR).min(prev.rows()) {
                best = best.max((alike(p), p));
            }
        }
        let from = (best.0 * 4 >= width).then_some(best.1);
        extend(&mut runs, from);
        next = from.map_or(next, |f| f + 1);
    }
    runs
}

fn put_runs(runs: &[Run], out: &mut Vec<u8>) {
    put_varint(out, runs.len() as u64);
    let mut expected = 0;
    for r in runs {
        put_varint(out, (r.len as u64) << 1 | u64::from(r.from.is_none()));
        if let Some(from) = r.from {
            put_varint(out, zigzag((from as u64).wrapping_sub(expected)));
            expected = (from + r.len) as u64;
        }
    }
}

/// Room for the numbers of one part of a column.
#[derive(Debug, Default)]
struct Room {
    now: Vec<u64>,
    old: Vec<u64>,
    copied: Vec<u64>,
    fresh: Vec<u64>,
}

impl Room {
    /// The numbers of a column, one part after the other: differences of the copied rows, then
    /// the new rows, each as the difference from the new row before it.
    fn cells(&mut self, now: &Column, prev: Option<&Column>, runs: &[Run], out: &mut Vec<u8>) {
        let prev = prev.filter(|p| p.width() == now.width());
        // Columns of a table that was another one before may be shorter than its keys.
        let need = runs.iter().filter_map(|r| Some(r.from? + r.len)).max().unwrap_or(0);
        let only_copies = runs.iter().all(|r| r.from.is_some()) && !runs.is_empty();
        let whole = only_copies && prev.is_some_and(|p| need <= p.rows());
        let rows = runs.iter().map(|r| r.len).sum();
        let unmoved = *runs == [Run { from: Some(0), len: now.rows() }];
        for (c, n) in now.parts().iter().enumerate() {
            let p = prev.and_then(|p| Some((p, p.parts().get(c)?)));
            let moved = match (n, p) {
                (Part::Same(n), Some((_, Part::Same(p)))) if whole => Some(n.wrapping_sub(*p)),
                (n, Some((_, p))) if whole && unmoved && n == p => Some(0),
                _ => None,
            };
            if let Some(by) = moved {
                // All rows moved by that much, none by another amount, none is new.
                put_varint(out, zigzag(by));
                put_varint(out, 0);
                put_varint(out, 0);
                continue;
            }
            n.unpack(now.rows(), &mut self.now);
            self.now.resize(rows, 0);
            if let Some((prev, p)) = p {
                p.unpack(prev.rows(), &mut self.old);
                self.old.resize(need.max(prev.rows()), 0);
            }
            self.part(p.is_some(), runs, out);
        }
    }

    fn part(&mut self, copies: bool, runs: &[Run], out: &mut Vec<u8>) {
        self.copied.clear();
        self.fresh.clear();
        let (mut row, mut last) = (0, 0u64);
        for r in runs {
            let new = self.now.get(row..row + r.len).unwrap_or_default();
            row += r.len;
            if let (Some(from), true) = (r.from, copies) {
                let old = self.old.get(from..from + r.len).unwrap_or_default();
                self.copied.extend(new.iter().zip(old).map(|(n, o)| n.wrapping_sub(*o)));
            } else {
                for n in new {
                    self.fresh.push(n.wrapping_sub(last));
                    last = *n;
                }
            }
        }
        if copies {
            let bias = bias(&self.copied);
            put_varint(out, zigzag(bias));
            sparse(self.copied.iter().map(|d| d.wrapping_sub(bias)), out);
        }
        sparse(self.fresh.iter().copied(), out);
    }
}

/// By what most cells moved, if more of them moved by that than stood still.
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

#[cfg(test)]
#[path = "delta_tests.rs"]
mod tests;
