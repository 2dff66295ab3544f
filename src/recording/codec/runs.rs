//! Which values of a node are which of the sample before: runs of values that were there, and of
//! new ones. Written for the elements of lists only; for all else they follow from that.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::column::Column;
use super::schema::{Kind, Schema, Tree};
use super::wire::{CodecError, Input, put_varint, too_large, zigzag};

/// A run of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first of them in the sample before; `None` for new ones.
    pub(super) from: Option<usize>,
    pub(super) len: usize,
}

/// Runs that may follow from others: each takes memory, and hostile ones take no bytes.
const MAX_RUNS: usize = 1 << 20;

/// Writes how many runs there are, then of each its length (times 2, plus 1 for new ones) and of
/// others how far they are from the value that was expected next.
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

/// Reads the runs of a list that had `before` elements.
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

/// Values of all runs; hostile ones may have more than there is.
pub(super) fn rows(runs: &[Run]) -> usize {
    runs.iter().fold(0, |n, r| n.saturating_add(r.len))
}

/// All `len` values of before, in place.
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

fn extend(runs: &mut Vec<Run>, from: Option<usize>, len: usize) {
    if len == 0 {
        return;
    }
    if let Some(last) = runs.last_mut() {
        let follows = match (last.from, from) {
            (Some(a), Some(b)) => a + last.len == b,
            (None, None) => true,
            _ => false,
        };
        if follows {
            last.len += len;
            return;
        }
    }
    runs.push(Run { from, len });
}

/// Runs of what is inside of values, of which each holds as many as `len` says: elements of lists
/// by their place, the child of a choice where it was chosen before and is again.
pub(super) fn inside(
    runs: &[Run],
    old: &Column,
    new: &Column,
    len: impl Fn(u64) -> usize,
) -> Result<Vec<Run>, CodecError> {
    if is_unmoved(runs, old.rows()) && old == new {
        return Ok(unmoved(new.sum(0..new.rows(), len)));
    }
    let (starts, mut out, mut row) = (starts(old, &len), Vec::new(), 0);
    for r in runs {
        for k in 0..r.len {
            let now = new.get(row).map_or(0, &len);
            row += 1;
            let before = r.from.and_then(|f| Some((*starts.get(f + k)?, starts.get(f + k + 1)?)));
            let both = before.map_or(0, |(start, end)| now.min(end.saturating_sub(start)));
            extend(&mut out, before.map(|b| b.0), both);
            extend(&mut out, None, now - both);
        }
        if out.len() > MAX_RUNS {
            return too_large();
        }
    }
    Ok(out)
}

/// The number of elements that a list says it has.
pub(super) fn length(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Where what is inside of each value begins, and where that of the last one ends.
fn starts(column: &Column, len: impl Fn(u64) -> usize) -> Vec<usize> {
    let mut end = 0usize;
    let ends = column.numbers().into_iter().map(|n| {
        end = end.saturating_add(len(n));
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// Runs of the elements of a list, for a writer that looks at them. `None`: by their place.
pub(super) fn matched(
    schema: &Schema,
    list: usize,
    runs: &[Run],
    prev: &Tree,
    now: &Tree,
) -> Option<Vec<Run>> {
    let (old, new) = (prev.column(list), now.column(list));
    let is_as_long = is_unmoved(runs, old.rows()) && old == new;
    let keys = schema.keys(list);
    let words = if keys.is_empty() { schema.words(list, prev, now) } else { &[] };
    let same = |n: &usize| prev.column(*n) == now.column(*n);
    if keys.is_empty() && words.is_empty() || is_as_long && keys.iter().all(same) {
        return None;
    }
    let keys = |t: &Tree| -> Vec<(u64, u64)> {
        let mut columns = keys.iter().map(|n| t.column(*n).numbers());
        let (first, second) = (columns.next().unwrap_or_default(), columns.next());
        let second = second.unwrap_or_else(|| vec![0; first.len()]);
        first.into_iter().zip(second).collect()
    };
    let (old_keys, new_keys) = (keys(prev), keys(now));
    let (old_starts, new_starts) = (starts(old, length), starts(new, length));
    let (mut out, mut row) = (Vec::new(), 0);
    for r in runs {
        for k in 0..r.len {
            let part =
                |starts: &[usize], row: usize| Some(*starts.get(row)?..*starts.get(row + 1)?);
            let now_rows = part(&new_starts, row)?;
            row += 1;
            let before = r.from.and_then(|f| part(&old_starts, f + k)).unwrap_or(0..0);
            if !words.is_empty() {
                align_similar(words, (prev, before), (now, now_rows), &mut out);
                continue;
            }
            let at = before.start;
            align(old_keys.get(before)?, new_keys.get(now_rows)?, at, &mut out);
        }
    }
    Some(out)
}

/// Rows are the same by the first of their keys, unless several have the same (a process and its
/// threads): then by both, or else by their place. Those of before begin at `at`.
fn align(prev: &[(u64, u64)], now: &[(u64, u64)], at: usize, out: &mut Vec<Run>) {
    if prev == now {
        return extend(out, Some(at), now.len());
    }
    let is_unique = now.iter().map(|k| k.0).collect::<HashSet<_>>().len() == now.len();
    if !is_unique && now.iter().collect::<HashSet<_>>().len() < now.len() {
        let both = prev.len().min(now.len());
        extend(out, Some(at), both);
        return extend(out, None, now.len() - both);
    }
    let key = |k: &(u64, u64)| (k.0, if is_unique { 0 } else { k.1 });
    let mut places: Option<HashMap<(u64, u64), usize>> = None;
    let mut next = 0usize;
    for wanted in now.iter().map(key) {
        // Usually the next one, or one a little further on because others are gone.
        let is_it = |i: &usize| prev.get(*i).map(key) == Some(wanted);
        let near = (next..next.saturating_add(4)).find(is_it);
        let from = near.or_else(|| {
            let all = prev.iter().enumerate().map(|(i, k)| (key(k), i));
            places.get_or_insert_with(|| all.collect()).get(&wanted).copied()
        });
        extend(out, from.map(|f| at + f), 1);
        next = from.map_or(next, |f| f + 1);
    }
}

/// Elements of this many numbers are aligned by similarity.
const WIDE: usize = 8;
/// How far the most similar one may be.
const NEAR: usize = 8;

/// For elements without a key, such as `tcp_info`.
fn align_similar(
    words: &[usize],
    (prev, before): (&Tree, Range<usize>),
    (now, rows): (&Tree, Range<usize>),
    out: &mut Vec<Run>,
) {
    let mut next = before.start;
    for row in rows {
        let alike = |p: usize| {
            let same = |w: &&usize| prev.column(**w).get(p) == now.column(**w).get(row);
            if before.contains(&p) { words.iter().filter(same).count() } else { 0 }
        };
        let mut best = (alike(next), next);
        if best.0 * 2 < words.len() {
            for p in next.saturating_sub(NEAR)..next + NEAR {
                best = best.max((alike(p), p));
            }
        }
        let from = (best.0 * 4 >= words.len()).then_some(best.1);
        extend(out, from, 1);
        next = from.map_or(next, |f| f + 1);
    }
}

/// Name of a field whose numbers identify the rows of the lists beside it.
const KEY_FIELD: &str = "cookie";

impl Schema {
    /// The nodes of which the elements of a list are known again: their first two numbers or texts.
    /// None for plain numbers, which are known by their place.
    fn keys(&self, list: usize) -> Vec<usize> {
        let mut out = Vec::new();
        let Some(node) = self.get(list) else { return out };
        if let Some(element) = self.child(list, 0) {
            self.leaves(element, &mut out);
            let is_number = out == [element] && node.kind == Kind::List;
            if is_number && node.label != KEY_FIELD {
                out.clear();
            }
        }
        out
    }

    /// The numbers of the elements of a list that are all blocks of one length, if they are many.
    fn words(&self, list: usize, prev: &Tree, now: &Tree) -> &[usize] {
        let block = || {
            let element = self.child(list, 0)?;
            let place = now.column(element).constant()?;
            let is_block = self.get(element)?.kind == Kind::Bytes;
            let is_same = prev.column(element).constant() == Some(place);
            self.child(element, usize::try_from(place).ok().filter(|_| is_block && is_same)?)
        };
        let words = block().map(|b| self.children(b)).unwrap_or_default();
        if words.len() >= WIDE { words } else { &[] }
    }

    /// False where something comes that not every element has.
    fn leaves(&self, node: usize, out: &mut Vec<usize>) -> bool {
        let Some(n) = self.get(node).filter(|n| !n.kind.is_list() && !n.kind.is_choice()) else {
            return false;
        };
        if !n.kind.is_plain() {
            out.push(node);
        }
        n.children.iter().all(|c| out.len() < 2 && self.leaves(*c, out)) && out.len() < 2
    }
}
