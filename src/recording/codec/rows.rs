//! Matches rows: the rows of a list or column as runs of rows of the previous one and of new rows.

use std::collections::HashMap;

use super::flat::Column;
use super::wire::{CodecError, Input, put_varint, zigzag};

/// A run of rows: copies from the previous sample, or new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// First row there; `None` for new rows.
    pub(super) from: Option<usize>,
    pub(super) len: usize,
}

/// Writes how many runs there are, then of each its length (times 2, plus 1 for new rows) and of
/// copies how far they are from the row that was expected next.
pub(super) fn put_runs(runs: &[Run], out: &mut Vec<u8>) {
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

/// Reads the runs of a list that had `before` rows.
pub(super) fn read_runs(before: usize, input: &mut Input<'_>) -> Result<Vec<Run>, CodecError> {
    let (mut out, mut expected) = (Vec::new(), 0u64);
    for _ in 0..input.count(0)? {
        let head = input.number()?;
        let len = usize::try_from(head >> 1).unwrap_or(usize::MAX);
        if len == 0 {
            return Err(CodecError("a run of no rows".to_owned()));
        }
        let from = if head & 1 == 1 {
            None
        } else {
            let from = expected.wrapping_add(input.signed()?);
            expected = from.wrapping_add(len as u64);
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            if from.checked_add(len).is_none_or(|end| end > before) {
                return Err(CodecError("rows for a sample that has none".to_owned()));
            }
            Some(from)
        };
        out.push(Run { from, len });
    }
    Ok(out)
}

/// Rows of all runs; hostile ones may have more than there is.
pub(super) fn rows(runs: &[Run]) -> usize {
    runs.iter().fold(0, |n, r| n.saturating_add(r.len))
}

/// All `len` rows of before, in place.
pub(super) fn unmoved(len: usize) -> Vec<Run> {
    if len == 0 { Vec::new() } else { vec![Run { from: Some(0), len }] }
}

pub(super) fn is_unmoved(runs: &[Run], len: usize) -> bool {
    match runs {
        [] => len == 0,
        [r] => r.from == Some(0) && r.len == len,
        _ => false,
    }
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

/// Rows are the same by their keys.
pub(super) fn align_keys(prev: &[u64], now: &[u64]) -> Vec<Run> {
    if prev == now {
        return unmoved(now.len());
    }
    let mut places: Option<HashMap<u64, usize>> = None;
    let (mut runs, mut next) = (Vec::new(), 0usize);
    for key in now {
        // Usually the next one, or one a little further on because others are gone.
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

/// Columns this wide, such as `tcp_info`, are aligned by similarity.
const WIDE: usize = 8;
/// How far the most similar row may be.
const NEAR: usize = 8;

/// Rows of a column without a key.
pub(super) fn align(prev: &Column, now: &Column) -> Vec<Run> {
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
        // Buckets of a histogram, rows per CPU: the first number identifies the row.
        return align_keys(&old, &new);
    }
    let mut runs = unmoved(before.min(rows));
    if rows > before {
        runs.push(Run { from: None, len: rows - before });
    }
    runs
}

/// The first number of each row, if they ascend.
fn ascending(c: &Column) -> Option<Vec<u64>> {
    let keys = c.firsts();
    keys.windows(2).all(|w| w[0] < w[1]).then_some(keys)
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
