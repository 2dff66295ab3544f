//! A sample as the difference from the one before it, and back. Lossless.
//!
//! Samples of one shape differ in few numbers; how those of two shapes compare is found by
//! `reshape`. Rows of a table with a key are compared with the
//! row of the same key, wide rows (`tcp_info`) with the most similar one near by, all others by
//! position. Where most cells of a column moved by the same amount (ages, counters at a steady
//! rate), that amount is written once and only the exceptions follow.
//!
//! A sample is written whole, or as the difference from the last one of the same shape (of the
//! last four), from the last one whatever its shape, or from what the last ones had
//! together: a row that was gone for a while is a difference from what it was. What a difference
//! looks like is in `compact` and `uncompact`; `undelta` reads the layout from before.

use std::collections::HashMap;

use super::flat::{Column, Flat, FlatError, Part, TableOf, put_varint};
use crate::recording::file::limits::MOST_UNITS;
use super::undelta::{number, read_full, read_next, read_reshaped, too_large, torn};
use super::{compact, memory, reshape, uncompact};

/// Earlier samples that a difference may refer to: the last ones of different shapes.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    samples: Vec<Flat>,
    /// The rows of lists that were seen lately, of small samples.
    memory: Option<Flat>,
}

/// Shapes that are remembered: a collector that reads in turns has several.
const SHAPES: usize = 4;
/// A difference of up to so many bytes is not worth to look for another one.
const WORTH: usize = 16;
/// Numbers that the older ones of them may hold together.
const OLDER_CELLS: usize = 1 << 16;

/// How a sample is written.
mod how {
    /// Whole.
    pub(crate) const FULL: u64 = 0;
    /// As the difference from the last one, which has another shape. No longer written.
    pub(crate) const OLD_RESHAPED: u64 = 1;
    /// Plus the number of the earlier sample with the same shape, from the last one back. No
    /// longer written.
    pub(crate) const OLD_SAME_SHAPE: u64 = 2;
    /// As the difference from the last one, which has another shape.
    pub(crate) const RESHAPED: u64 = 8;
    /// As the difference from what the last ones had together.
    pub(crate) const REMEMBERED: u64 = 9;
    /// Plus the number of the earlier sample with the same shape, from the last one back.
    pub(crate) const SAME_SHAPE: u64 = 16;
}

impl Recent {
    /// Writes `now` and remembers it.
    pub fn encode(&mut self, now: Flat, out: &mut Vec<u8>) {
        let mut same = self.of_shape(&now);
        if same.is_some_and(|i| i > 0) && now.cells() > OLDER_CELLS {
            // More has changed since then than another shape costs.
            same = None;
        }
        let start = out.len();
        match (same.and_then(|i| Some((i, self.samples.get(i)?))), self.samples.first()) {
            (Some((i, prev)), _) => {
                put_varint(out, how::SAME_SHAPE + i as u64);
                compact::put(prev, &now, None, out);
            }
            (None, Some(prev)) if reshaped(how::RESHAPED, prev, &now, out) => {}
            (None, _) => {
                put_varint(out, how::FULL);
                full(&now, out);
            }
        }
        // A memory of the shape of the last sample has no row more than that.
        let more = |m: &&Flat| same != Some(0) || m.shape != now.shape;
        if let Some(memory) = self.memory.as_ref().filter(more)
            && out.len() - start > WORTH
        {
            let mut other = Vec::new();
            if reshaped(how::REMEMBERED, memory, &now, &mut other)
                && other.len() < out.len() - start
            {
                out.truncate(start);
                out.append(&mut other);
                same = self.of_shape(&now);
            }
        }
        self.keep(same, now);
    }

    /// Reads what [`Self::encode`] wrote after the same samples.
    ///
    /// # Errors
    /// When the bytes are not of a sample, or of another series.
    pub fn decode(&mut self, bytes: &[u8], at: &mut usize) -> Result<&Flat, FlatError> {
        self.decode_within(MOST_UNITS, bytes, at)
    }

    /// The same of a sample that has at most so many [`Flat::units`].
    ///
    /// # Errors
    /// Also when it has more.
    pub fn decode_within(
        &mut self,
        most: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<&Flat, FlatError> {
        let how = number(bytes, at)?;
        let lacking = || FlatError("a difference without its sample".to_owned());
        let (now, same) = match how {
            how::FULL => (read_full(most, bytes, at)?, None),
            how::OLD_RESHAPED | how::RESHAPED => {
                let prev = self.samples.first().ok_or_else(lacking)?;
                (read_reshaped(prev, how == how::RESHAPED, most, bytes, at)?, None)
            }
            how::REMEMBERED => {
                let prev = self.memory.as_ref().ok_or_else(lacking)?;
                let now = read_reshaped(prev, true, most, bytes, at)?;
                let same = self.of_shape(&now);
                (now, same)
            }
            n => {
                let is_old = n < how::RESHAPED;
                let first = if is_old { how::OLD_SAME_SHAPE } else { how::SAME_SHAPE };
                let i = n.checked_sub(first).and_then(|i| usize::try_from(i).ok());
                let i = i.filter(|i| *i < self.samples.len()).ok_or_else(lacking)?;
                let prev = self.samples.remove(i);
                let read = if is_old { read_next } else { uncompact::read_next };
                (read(prev, most, bytes, at)?, None)
            }
        };
        if now.units() > most {
            return too_large();
        }
        self.keep(same, now);
        self.samples.first().map_or_else(torn, Ok)
    }

    /// The sample that was written or read last.
    #[must_use]
    pub fn current(&self) -> Option<&Flat> {
        self.samples.first()
    }

    /// Numbers that are remembered.
    pub(crate) fn cells(&self) -> usize {
        self.samples.iter().chain(&self.memory).map(Flat::cells).sum()
    }

    fn of_shape(&self, now: &Flat) -> Option<usize> {
        self.samples.iter().position(|p| p.shape == now.shape)
    }

    /// Remembers a sample, in the place of the `same` earlier one.
    fn keep(&mut self, same: Option<usize>, now: Flat) {
        self.memory = memory::after(self.memory.take(), &now);
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

pub(crate) fn zigzag(d: u64) -> u64 {
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
    let mut room = Vec::new();
    for c in &now.columns {
        put_varint(out, c.width() as u64);
        put_varint(out, c.rows() as u64);
        for part in c.parts() {
            fresh(part, c.rows(), &mut room, out);
        }
    }
    put_tables(&now.tables, out);
}

pub(crate) fn put_tables(tables: &[TableOf], out: &mut Vec<u8>) {
    put_varint(out, tables.len() as u64);
    for t in tables {
        put_varint(out, t.key as u64);
        put_varint(out, t.first as u64);
        put_varint(out, t.end as u64);
    }
}

/// Where a leaf of the new sample was in the one before.
pub(crate) fn before(map: Option<&[Option<usize>]>, i: usize) -> Option<usize> {
    map.map_or(Some(i), |m| m.get(i).copied().flatten())
}

pub(crate) fn keys(c: Option<&Column>) -> Vec<u64> {
    c.map(Column::firsts).unwrap_or_default()
}

pub(crate) fn unmoved(len: usize) -> Vec<Run> {
    if len == 0 { Vec::new() } else { vec![Run { from: Some(0), len }] }
}

/// Writes a difference from a sample of another shape. False: a reader would refuse to compare
/// the two, and nothing was written.
fn reshaped(how: u64, prev: &Flat, now: &Flat, out: &mut Vec<u8>) -> bool {
    let mut lists = Vec::new();
    let map = reshape::map(&prev.shape, &now.shape, MOST_UNITS, &mut |l| {
        let runs = l.align(prev, now);
        put_runs(&runs, &mut lists);
        Ok(runs)
    });
    let Ok(map) = map else { return false };
    put_varint(out, how);
    reshape::put_shape(&prev.shape, &now.shape, out);
    out.extend_from_slice(&lists);
    compact::put(prev, now, Some(&map), out);
    true
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
pub(crate) struct Run {
    /// First row there; `None` for new rows.
    pub(crate) from: Option<usize>,
    pub(crate) len: usize,
}

pub(crate) fn extend(runs: &mut Vec<Run>, from: Option<usize>) {
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

pub(crate) fn align_keys(prev: &[u64], now: &[u64]) -> Vec<Run> {
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

pub(crate) fn align(prev: &Column, now: &Column) -> Vec<Run> {
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

pub(crate) fn put_runs(runs: &[Run], out: &mut Vec<u8>) {
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

/// The numbers of one part of a column, each as the difference from the row before it.
fn fresh(part: &Part, rows: usize, room: &mut Vec<u64>, out: &mut Vec<u8>) {
    if *part == Part::Same(0) {
        put_varint(out, 0);
        return;
    }
    part.unpack(rows, room);
    let before = std::iter::once(&0).chain(room.iter());
    sparse(room.iter().zip(before).map(|(n, last)| n.wrapping_sub(*last)), out);
}

/// By what most cells moved, if more of them moved by that than stood still.
pub(crate) fn bias(diffs: &[u64]) -> u64 {
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
mod tests;
