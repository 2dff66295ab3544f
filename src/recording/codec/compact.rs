//! How a difference is written since format feature 1: only what changed takes room.
//!
//! A sample mostly repeats the one before. In the older layout, which [`super::undelta`] reads,
//! every column has its head; here columns, and the numbers of a row, that did not change are
//! passed over. The reading half is [`super::uncompact`]. In this order:
//!
//! - numbers: [sparse](put_sparse) differences; texts: count, then distance, length and bytes of
//!   each that changed
//! - tables: 0 when they are as before, else count plus 1 and key, first and end of each; then of
//!   each table its rows: 0 when they are as before, else count plus 1 and the runs
//! - columns: how many changed; of each its distance from the one before it, then 0 when it is as
//!   wide as before (and, outside of tables, has the same rows), else its width plus 1 (and its
//!   runs); then which of the numbers of a row changed (count and distances, where a row has
//!   several), and for each of them the rows that are copies (up to 4: their differences; more:
//!   by what most of them moved, and the sparse differences from that), then the new rows as
//!   sparse differences, each from the new row before it
//!
//! Differences are zigzag. Those that are whole thousands (ns in us) are written as thousands:
//! the first byte of a number holds six bits, then the flag of thousands, then whether LEB128 of
//! the rest follows.

use std::rc::Rc;

use super::cells::Room;
use super::delta::{
    Run, align, align_keys, before, bias, keys, put_runs, put_tables, unmoved, zigzag,
};
use super::flat::{Column, Flat, Part, put_varint};
use super::reshape::Mapping;

/// Up to so many numbers are written place by place; more, all places first: that compresses
/// better.
pub(crate) const FEW: usize = 256;
/// Up to so many rows are not worth a common amount.
pub(crate) const FEW_ROWS: usize = 4;
/// Widest row.
pub(crate) const MOST_WIDTH: usize = 1 << 12;

/// Writes `now` as the difference from `prev`.
pub(crate) fn put(prev: &Flat, now: &Flat, map: Option<&Mapping>, out: &mut Vec<u8>) {
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
        put_varint(out, text.len() as u64);
        out.extend_from_slice(text);
    }
    if prev.tables == now.tables {
        put_varint(out, 0);
    } else {
        put_varint(out, now.tables.len() as u64 + 1);
        put_tables(&now.tables, out);
    }
    let columns = map.map(|m| &m.columns[..]);
    put_columns(&|i| before(columns, i).and_then(|i| prev.columns.get(i)), now, out);
}

/// Rows of the tables, and the columns that changed.
fn put_columns<'p>(prev: &dyn Fn(usize) -> Option<&'p Column>, now: &Flat, out: &mut Vec<u8>) {
    let none = Column::default();
    let mut runs: Vec<Option<Rc<[Run]>>> = vec![None; now.columns.len()];
    for t in &now.tables {
        // A key is one number wide: it is a column of cookies.
        let (old, new) = (prev(t.key), now.columns.get(t.key));
        let by_key = match (old, new) {
            (Some(old), Some(new)) if old == new => unmoved(new.rows()),
            _ => align_keys(&keys(old), &keys(new)),
        };
        if is_whole(&by_key, old.map_or(0, Column::cells)) {
            put_varint(out, 0);
        } else {
            put_varint(out, 1);
            put_runs(&by_key, out);
        }
        let by_key: Rc<[Run]> = by_key.into();
        for slot in runs.get_mut(t.first..t.end).unwrap_or_default() {
            *slot = Some(by_key.clone());
        }
    }
    let changed = |(i, c): &(usize, &Column)| {
        let old = prev(*i).unwrap_or(&none);
        let known = runs.get(*i).and_then(Option::as_ref);
        known.is_some_and(|r| !is_whole(r, old.rows())) || *c != old
    };
    let changed: Vec<(usize, &Column)> = now.columns.iter().enumerate().filter(changed).collect();
    put_varint(out, changed.len() as u64);
    let (mut last, mut room) = (0, Room::default());
    for (i, new) in changed {
        put_varint(out, (i - last) as u64);
        last = i;
        let old = prev(i).unwrap_or(&none);
        room.put_column(old, new, runs.get_mut(i).and_then(Option::take), out);
    }
}

/// All rows of before, in place.
pub(crate) fn is_whole(runs: &[Run], rows: usize) -> bool {
    match runs {
        [] => rows == 0,
        [r] => r.from == Some(0) && r.len == rows,
        _ => false,
    }
}

impl Room {
    fn put_column(
        &mut self,
        old: &Column,
        new: &Column,
        known: Option<Rc<[Run]>>,
        out: &mut Vec<u8>,
    ) {
        let in_table = known.is_some();
        let runs = known.unwrap_or_else(|| align(old, new).into());
        let (width, in_place) = (new.width(), is_whole(&runs, old.rows()));
        if old.width() == width && (in_table || in_place) {
            put_varint(out, 0);
        } else {
            put_varint(out, width as u64 + 1);
            if !in_table {
                put_runs(&runs, out);
            }
        }
        let old = Some(old).filter(|o| o.width() == width);
        let (start, mut changed, mut last) = (out.len(), 0, 0);
        for (c, n) in new.parts().iter().enumerate() {
            let p = old.and_then(|o| Some((o, o.parts().get(c)?)));
            // Mostly the case, and quickly seen.
            let same = in_place && p.is_some_and(|(_, p)| p == n);
            if width > 1 && (same || !self.moved(n, p, new.rows(), &runs)) {
                continue;
            }
            if width > 1 {
                put_varint(out, (c - last) as u64);
                (last, changed) = (c, changed + 1);
            } else {
                self.moved(n, p, new.rows(), &runs);
            }
            self.put(out);
        }
        if width != 1 {
            let mut count = Vec::new();
            put_varint(&mut count, changed);
            out.splice(start..start, count);
        }
    }

    /// The differences of the copied rows, and the new rows, each as the difference from the new
    /// row before it. False: they are all zero.
    fn moved(
        &mut self,
        new: &Part,
        old: Option<(&Column, &Part)>,
        rows: usize,
        runs: &[Run],
    ) -> bool {
        new.unpack(rows, &mut self.now);
        // Columns of a table that was another one before may be shorter than its keys.
        self.now.resize(runs.iter().map(|r| r.len).sum(), 0);
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

/// Numbers of which most are zero: how many are not, times 2, plus 1 when they are few. Then
/// each as its distance from the one before, times 2, plus 1 when it is 1, else followed by
/// itself; of many, first all distances and then all numbers.
fn put_sparse(values: impl Iterator<Item = u64> + Clone, out: &mut Vec<u8>) {
    let set = values.enumerate().filter(|(_, v)| *v != 0);
    let n = set.clone().count();
    let few = n <= FEW;
    put_varint(out, (n as u64) << 1 | u64::from(few));
    let mut next = 0;
    for (i, v) in set.clone() {
        let gap = (i - next) as u64;
        next = i + 1;
        if few {
            put_varint(out, gap << 1 | u64::from(v == 1));
            if v != 1 {
                put_difference(out, v);
            }
        } else {
            put_varint(out, gap);
        }
    }
    if !few {
        for (_, v) in set {
            put_varint(out, zigzag(v));
        }
    }
}

/// Ns in us.
pub(crate) const WHOLE: u64 = 1000;
/// Bits of the first byte.
pub(crate) const FIRST: u32 = 6;

/// A signed number; see the module head.
fn put_difference(out: &mut Vec<u8>, d: u64) {
    let signed = d.cast_signed();
    let thousands = d != 0 && signed % WHOLE.cast_signed() == 0;
    let z = zigzag(if thousands { (signed / WHOLE.cast_signed()).cast_unsigned() } else { d });
    let rest = z >> FIRST;
    let first = (z & 0x3f) as u8 | u8::from(thousands) << 6 | u8::from(rest != 0) << 7;
    out.push(first);
    if rest != 0 {
        put_varint(out, rest);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::uncompact::{add_sparse, difference};
    use super::*;
    use proptest::prelude::*;

    fn size(d: i64) -> usize {
        let mut out = Vec::new();
        put_difference(&mut out, d.cast_unsigned());
        out.len()
    }

    #[test]
    fn whole_microseconds_take_the_room_of_microseconds() {
        assert_eq!((size(0), size(-31), size(31_000), size(1_000_000)), (1, 1, 1, 2));
        assert_eq!((size(1_234_000), size(1_234_001)), (2, 4));
    }

    proptest! {
        #[test]
        fn differences_come_back(d: i64, shift in 0u32..64, thousands: bool) {
            let d = (d >> shift).cast_unsigned();
            let d = if thousands { d.wrapping_mul(1000) } else { d };
            let (mut out, mut at) = (Vec::new(), 0);
            put_difference(&mut out, d);
            prop_assert_eq!(difference(&out, &mut at).unwrap(), d);
            prop_assert_eq!(at, out.len());
        }
        #[test]
        fn sparse_numbers_come_back(values in prop::collection::vec((0u8..4, any::<u64>()), 0..600)) {
            let values: Vec<u64> = values.iter().map(|(k, v)| if *k < 2 { 0 } else { *v }).collect();
            let (mut out, mut at) = (Vec::new(), 0);
            put_sparse(values.iter().copied(), &mut out);
            let mut back = vec![0; values.len()];
            add_sparse(&mut back, &out, &mut at).unwrap();
            prop_assert_eq!((back, at), (values, out.len()));
        }
    }
}
