//! A sample as the difference from the one before, and back. Lossless. Node by node, parents
//! first; of those that are not as expected:
//!
//! - the distance from the node before; 0 ends the sample
//! - its numbers as differences: of values that were there before (up to [`FEW_ROWS`]: one by one;
//!   more: by what most of them moved, and the sparse differences from that), then of new values,
//!   sparse, each from the new one before it
//! - of a list, 0 if its elements are known by their place, else 1 and their runs
//!
//! Expected is that values that were there before stay, that new ones are 0, and that lists of one
//! struct that were as long as each other change together: a table costs its rows once.

use std::rc::Rc;

use super::column::Column;
use super::limits::{Budget, MAX_ROWS};
use super::runs::{Run, inside, is_unmoved, length, matched, put_runs, read_runs, rows};
use super::schema::{Kind, NODE_UNITS, Node, ROOT, Schema, Tree};
use super::sparse::{add_sparse, difference, each_sparse, put_difference, put_sparse};
use super::wire::{CodecError, Input, put_varint, too_large};

/// Up to this many rows are not worth a common amount.
const FEW_ROWS: usize = 4;

/// What a run counts for, for limits, where it follows from others.
const RUN_UNITS: usize = 3;

/// Writes `now`; returns what it takes to read it besides the sample itself, in units. Fails where
/// a reader would find that the two differ too much.
pub(super) fn put(
    schema: &Schema,
    prev: &Tree,
    now: &Tree,
    out: &mut Vec<u8>,
) -> Result<usize, CodecError> {
    let mut walk = Walk::new(schema, prev);
    let (mut last, mut scratch) = (0, Scratch::default());
    for (n, node) in walk.nodes() {
        let runs = walk.runs(node);
        let (old, new) = (prev.column(n), now.column(n));
        let mut put = |scratch: &Scratch| {
            put_varint(out, (n - last) as u64);
            last = n;
            scratch.put(out);
        };
        if node.kind.is_list() {
            if let Some((_, elements)) = walk.sibling(node, old).filter(|s| s.0 == *new) {
                walk.done(node, runs, vec![elements], old, new);
                continue;
            }
            let by_place = inside(&runs, old, new, length)?;
            let by_key = matched(schema, n, &runs, prev, now).filter(|m| *m != by_place);
            let is_changed = scratch.compare(old, new, &runs);
            if is_changed || by_key.is_some() || walk.sibling(node, old).is_some() {
                put(&scratch);
                put_varint(out, u64::from(by_key.is_some()));
                if let Some(runs) = &by_key {
                    put_runs(runs, out);
                }
            }
            walk.done(node, runs, vec![by_key.unwrap_or(by_place).into()], old, new);
            continue;
        }
        if !node.kind.is_plain() && scratch.compare(old, new, &runs) {
            put(&scratch);
        }
        let inner = chosen(node, &runs, old, new)?;
        walk.done(node, runs, inner, old, new);
    }
    put_varint(out, 0);
    Ok(walk.units)
}

/// Reads what [`put`] wrote after the same sample, which is changed in place: most of it stays. At
/// most so many units.
pub(super) fn read(
    schema: &Schema,
    mut prev: Tree,
    most: usize,
    input: &mut Input<'_>,
) -> Result<Tree, CodecError> {
    let mut walk = Walk::new(schema, &prev);
    prev.columns.resize(schema.len(), Column::default());
    let (mut budget, mut scratch) = (Budget::new(most), Scratch::default());
    budget.take(schema.len().saturating_mul(NODE_UNITS))?;
    let mut next = input.place()?;
    for (n, node) in walk.nodes() {
        let runs = walk.runs(node);
        let old = prev.columns.get_mut(n).map(std::mem::take).unwrap_or_default();
        let (is_changed, count) = (n == next, rows(&runs));
        if !node.kind.is_plain() && !walk.is_reserved(node) {
            budget.take_rows(count, 1)?;
        }
        let new = if node.kind.is_plain() {
            walk.done(node, runs, Vec::new(), &old, &old);
            old
        } else if node.kind.is_list() {
            let sibling = if is_changed { None } else { walk.sibling(node, &old) };
            let (new, elements) = if let Some(same) = sibling {
                same
            } else {
                let new = scratch.read(old.clone(), &runs, is_changed, input)?;
                let elements = read_elements(&runs, &old, &new, is_changed, input)?;
                (new, elements)
            };
            // Before there is any of it.
            let width: usize = node.children.iter().map(|c| schema.width(*c)).sum();
            budget.take(rows(&elements).saturating_mul(width))?;
            walk.done(node, runs, vec![elements], &old, &new);
            new
        } else if node.kind.is_choice() {
            let new = scratch.read(old.clone(), &runs, is_changed, input)?;
            let inner = chosen(node, &runs, &old, &new)?;
            walk.done(node, runs, inner, &old, &new);
            new
        } else {
            let new = scratch.read(old, &runs, is_changed, input)?;
            walk.done(node, runs, Vec::new(), &Column::EMPTY, &Column::EMPTY);
            new
        };
        // Beyond what its rows suggested, as a writer counts it: by the numbers alone.
        let more = new.units().saturating_sub(count.max(1));
        budget.take(more.saturating_add(std::mem::take(&mut walk.units)))?;
        if let Some(c) = prev.columns.get_mut(n) {
            *c = new;
        }
        if is_changed {
            next = match input.place()? {
                0 => 0,
                gap => n.saturating_add(gap),
            };
        }
    }
    if next > 0 { input.torn() } else { Ok(prev) }
}

/// Which elements of a list are which.
fn read_elements(
    runs: &[Run],
    old: &Column,
    new: &Column,
    is_changed: bool,
    input: &mut Input<'_>,
) -> Result<Runs, CodecError> {
    let len = new.sum(0..new.rows(), length);
    if len > MAX_ROWS {
        return too_large();
    }
    let is_by_key = is_changed && input.number()? == 1;
    let elements = if is_by_key {
        read_runs(old.sum(0..old.rows(), length), input)?
    } else {
        inside(runs, old, new, length)?
    };
    if rows(&elements) == len { Ok(elements.into()) } else { input.torn() }
}

/// One list for all nodes whose values belong together.
type Runs = Rc<[Run]>;

/// The nodes so far: which of their values are which. The same for writer and reader.
struct Walk<'s> {
    schema: &'s Schema,
    done: Vec<Done>,
    /// What the runs take.
    units: usize,
}

struct Done {
    runs: Runs,
    /// Of what is inside: the elements of a list, each child of a choice.
    inner: Vec<Runs>,
    /// Lengths of a list.
    old: Column,
    new: Column,
    reserved: bool,
}

impl<'s> Walk<'s> {
    fn new(schema: &'s Schema, prev: &Tree) -> Self {
        let from = (!prev.columns.is_empty()).then_some(0);
        let runs = Rc::from([Run { from, len: 1 }]);
        let (old, new) = (Column::EMPTY, Column::EMPTY);
        Self {
            schema,
            done: vec![Done { runs, inner: Vec::new(), old, new, reserved: false }],
            units: 0,
        }
    }
    fn nodes(&self) -> impl Iterator<Item = (usize, &'s Node)> + use<'s> {
        let schema = self.schema;
        (ROOT + 1..schema.len()).filter_map(|n| Some((n, schema.get(n)?)))
    }
    /// Was the space for the numbers of a node taken with that of the list that it is in?
    fn is_reserved(&self, node: &Node) -> bool {
        match self.schema.get(node.parent) {
            Some(n) if n.kind.is_plain() => self.done.get(node.parent).is_some_and(|d| d.reserved),
            n => n.is_some_and(|n| n.kind.is_list()),
        }
    }
    /// Which values of a node are which.
    fn runs(&self, node: &Node) -> Runs {
        let above = self.done.get(node.parent);
        let kind = self.schema.get(node.parent).map_or(Kind::Tuple, |n| n.kind);
        let of = match kind {
            k if k.is_plain() => above.map(|d| &d.runs),
            k if k.is_list() => above.and_then(|d| d.inner.first()),
            _ => above.and_then(|d| d.inner.get(node.place)),
        };
        of.cloned().unwrap_or_else(|| Rc::from([]))
    }
    /// The lengths and elements of a list before in the same struct that was as long as this one.
    fn sibling(&self, node: &Node, old: &Column) -> Option<(Column, Runs)> {
        let above = self.schema.get(node.parent).filter(|n| n.kind == Kind::Struct)?;
        let before = above.children.iter().take(node.place).filter_map(|n| {
            let is_list = self.schema.get(*n).is_some_and(|n| n.kind.is_list());
            self.done.get(*n).filter(|d| is_list && d.old == *old)
        });
        before.map(|d| Some((d.new.clone(), d.inner.first()?.clone()))).next()?
    }
    fn done(&mut self, node: &Node, runs: Runs, inner: Vec<Runs>, old: &Column, new: &Column) {
        let is_list = node.kind.is_list();
        let runs_of = |r: &Runs| if r.len() > 1 { r.len().saturating_mul(RUN_UNITS) } else { 0 };
        self.units = inner.iter().map(runs_of).fold(self.units, usize::saturating_add);
        let kept = |c: &Column| if is_list { c.clone() } else { Column::EMPTY };
        let reserved = self.is_reserved(node);
        self.done.push(Done { runs, inner, old: kept(old), new: kept(new), reserved });
    }
}

/// Which values of each child of a choice are which.
fn chosen(node: &Node, runs: &Runs, old: &Column, new: &Column) -> Result<Vec<Runs>, CodecError> {
    if !node.kind.is_choice() {
        return Ok(Vec::new());
    }
    let of = |(place, _)| {
        let chosen = |n| usize::from(node.kind.chooses(n, place));
        inside(runs, old, new, chosen).map(Runs::from)
    };
    node.children.iter().enumerate().map(of).collect()
}

/// The numbers of a node, and how to get from the ones before to them. Reused for each node, to
/// save allocations.
#[derive(Debug, Default)]
struct Scratch {
    now: Vec<u64>,
    old: Vec<u64>,
    /// By how much the values that were there before moved.
    copied: Vec<u64>,
    /// The values that are new, each as the difference from the new one before it.
    fresh: Vec<u64>,
}

/// Writing.
impl Scratch {
    /// Computes the differences. False: all are as expected.
    fn compare(&mut self, old: &Column, new: &Column, runs: &[Run]) -> bool {
        self.copied.clear();
        self.fresh.clear();
        let stays = old.constant().is_some_and(|n| new.constant() == Some(n));
        if is_unmoved(runs, old.rows()) && old == new
            || stays && runs.iter().all(|r| r.from.is_some())
        {
            self.copied.resize(new.rows(), 0);
            return false;
        }
        new.unpack(&mut self.now);
        old.unpack(&mut self.old);
        let (mut row, mut last) = (0, 0u64);
        for r in runs {
            let new = self.now.get(row..row + r.len).unwrap_or_default();
            row += r.len;
            if let Some(from) = r.from {
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
            self.copied.iter().for_each(|d| put_difference(out, *d));
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

/// The amount by which most numbers moved, if more moved by it than stayed the same.
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
impl Scratch {
    fn read(
        &mut self,
        mut old: Column,
        runs: &[Run],
        is_changed: bool,
        input: &mut Input<'_>,
    ) -> Result<Column, CodecError> {
        let rows = rows(runs);
        Ok(if is_unmoved(runs, old.rows()) {
            if is_changed {
                add_in_place(&mut old, input)?;
                old.narrow_again();
            }
            old
        } else {
            let copies = runs.iter().filter(|r| r.from.is_some()).map(|r| r.len).sum();
            match old.constant().filter(|_| !is_changed && copies == rows) {
                Some(n) => Column::same(rows, n),
                None => self.moved(&old, runs, (copies, rows - copies), is_changed, input)?,
            }
        })
    }

    fn moved(
        &mut self,
        old: &Column,
        runs: &[Run],
        (copies, fresh): (usize, usize),
        is_changed: bool,
        input: &mut Input<'_>,
    ) -> Result<Column, CodecError> {
        for (list, len) in [(&mut self.copied, copies), (&mut self.fresh, fresh)] {
            list.clear();
            list.resize(len, 0);
        }
        if is_changed {
            read_copied(&mut self.copied, input)?;
            if fresh > 0 {
                add_sparse(&mut self.fresh, input)?;
            }
        }
        old.unpack(&mut self.old);
        self.now.clear();
        let (mut copied, mut fresh) = (self.copied.iter(), self.fresh.iter());
        let mut last = 0u64;
        for r in runs {
            if let Some(from) = r.from {
                // What a hostile schema adds later was not there before.
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
        Ok(Column::of(&self.now))
    }
}

/// Adds the differences of values that have not moved.
fn add_in_place(column: &mut Column, input: &mut Input<'_>) -> Result<(), CodecError> {
    if column.rows() <= FEW_ROWS {
        for row in 0..column.rows() {
            let by = difference(input)?;
            if by != 0 && !column.add(row, by) {
                return input.torn();
            }
        }
        return Ok(());
    }
    column.add_to_all(difference(input)?);
    each_sparse(input, &mut |row, by| column.add(row, by))
}

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
