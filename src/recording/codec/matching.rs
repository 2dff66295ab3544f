//! Matches the numbers, texts and columns of two samples whose shapes differ: lists of rows with
//! texts grow and shrink, optional values come and go.
//!
//! Both shapes are walked side by side. Elements of a list are matched by their first two leaves (a
//! process and its thread, an inode and its owner), then by the first one, then by position; the
//! writer decides, the reader follows.

use std::collections::HashMap;

use super::flat::{At, Flat, elements, key_hashes, shape_number, skip, token};
use super::rows::{Run, extend};
use super::wire::{CodecError, Input, put_bytes, put_varint, too_large};

/// For each leaf of a sample, the one of the sample before.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    pub(super) nums: Vec<Option<usize>>,
    pub(super) texts: Vec<Option<usize>>,
    pub(super) columns: Vec<Option<usize>>,
}

/// Where the elements of two lists are.
pub(super) struct Lists<'a> {
    prev: &'a [At],
    now: &'a [At],
}

impl Lists<'_> {
    pub(super) fn before(&self) -> usize {
        self.prev.len()
    }
    pub(super) fn len(&self) -> usize {
        self.now.len()
    }
    /// Which elements are which, for the writer.
    pub(super) fn align(&self, prev: &Flat, now: &Flat) -> Vec<Run> {
        let mut both: HashMap<u64, usize> = HashMap::new();
        let mut first: HashMap<u64, usize> = HashMap::new();
        for (i, at) in self.prev.iter().enumerate().rev() {
            let (a, b) = key_hashes(prev, *at);
            first.insert(a, i);
            both.insert(b, i);
        }
        let (mut runs, mut next) = (Vec::new(), 0);
        for at in self.now {
            let (a, b) = key_hashes(now, *at);
            let by_key = both.get(&b).or_else(|| first.get(&a)).copied();
            let from = by_key.or_else(|| self.prev.len().checked_sub(1).map(|last| next.min(last)));
            extend(&mut runs, from);
            next = from.map_or(next, |f| f + 1);
        }
        runs
    }
}

/// Walks both shapes. `align` says which elements of two lists are which.
pub(super) fn map(
    prev: &[u8],
    now: &[u8],
    most: usize,
    align: &mut dyn FnMut(&Lists<'_>) -> Result<Vec<Run>, CodecError>,
) -> Result<Mapping, CodecError> {
    let left = (prev.len() + now.len()).saturating_mul(STEPS_PER_BYTE).saturating_add(STEPS);
    let mut out = Walk { prev, now, align, map: Mapping::default(), left };
    let mut at = At::default();
    skip(now, &mut at, 0)?;
    if at.shape != now.len() {
        return Err(CodecError("a shape followed by something else".to_owned()));
    }
    if at.num > most {
        return too_large();
    }
    out.map.nums = vec![None; at.num];
    out.map.texts = vec![None; at.text];
    out.map.columns = vec![None; at.column];
    if !prev.is_empty() {
        out.pair(&mut At::default(), &mut At::default(), 0)?;
    }
    Ok(out.map)
}

struct Walk<'a> {
    prev: &'a [u8],
    now: &'a [u8],
    align: &'a mut dyn FnMut(&Lists<'_>) -> Result<Vec<Run>, CodecError>,
    map: Mapping,
    /// Bytes of shapes that may still be walked over.
    left: usize,
}

/// Most bytes of shapes that may be walked, plus some per byte of the shapes: nested parts are
/// walked once per level, and many rows may be like one long earlier row.
const STEPS: usize = 1 << 20;
const STEPS_PER_BYTE: usize = 64;

impl Walk<'_> {
    fn spend(&mut self, from: usize, to: usize) -> Result<(), CodecError> {
        let left = self.left.checked_sub(to.saturating_sub(from));
        self.left = left.ok_or_else(|| CodecError("shapes that differ too much".to_owned()))?;
        Ok(())
    }

    /// Two values at the same position; moves both positions past them.
    fn pair(&mut self, p: &mut At, n: &mut At, depth: u32) -> Result<(), CodecError> {
        let (before, start) = (*p, *n);
        skip(self.prev, p, depth)?;
        skip(self.now, n, depth)?;
        self.spend(before.shape, p.shape)?;
        self.spend(start.shape, n.shape)?;
        // Both exist: `skip` passed them.
        let (a, b) = (self.prev.get(before.shape), self.now.get(start.shape));
        let Some(b) = b.filter(|b| Some(*b) == a) else { return Ok(()) };
        let (mut p, mut n) = (before, start);
        (p.shape, n.shape) = (p.shape + 1, n.shape + 1);
        match *b {
            token::UNIT | token::NONE => {}
            token::BOOL..=token::CHAR | token::VARIANT => set(&mut self.map.nums, n.num, p.num),
            token::STR => set(&mut self.map.texts, n.text, p.text),
            token::COLUMN => set(&mut self.map.columns, n.column, p.column),
            token::BYTES | token::PACKED => {
                let per = if *b == token::BYTES { 4 } else { 8 };
                let (a, b) = (shape_number(self.prev, &mut p)?, shape_number(self.now, &mut n)?);
                for i in 0..a.min(b).div_ceil(per) {
                    set(&mut self.map.nums, n.num + i, p.num + i);
                }
            }
            token::SOME => self.pair(&mut p, &mut n, depth + 1)?,
            token::VARIANT_OF => {
                let same = shape_number(self.prev, &mut p)? == shape_number(self.now, &mut n)?;
                return if same { self.pair(&mut p, &mut n, depth + 1) } else { Ok(()) };
            }
            token::TUPLE | token::STRUCT | token::MAP => self.fields(*b, p, n, depth)?,
            token::SEQ => self.lists(p, n, depth)?,
            _ => {}
        }
        Ok(())
    }

    fn fields(&mut self, kind: u8, mut p: At, mut n: At, depth: u32) -> Result<(), CodecError> {
        let (a, b) = (shape_number(self.prev, &mut p)?, shape_number(self.now, &mut n)?);
        let per = if kind == token::MAP { 2 } else { 1 };
        for _ in 0..a.min(b).saturating_mul(per) {
            if kind == token::STRUCT
                && shape_number(self.prev, &mut p)? != shape_number(self.now, &mut n)?
            {
                return Ok(());
            }
            self.pair(&mut p, &mut n, depth + 1)?;
        }
        Ok(())
    }

    fn lists(&mut self, mut p: At, mut n: At, depth: u32) -> Result<(), CodecError> {
        let prev = elements(self.prev, &mut p, depth)?;
        let now = elements(self.now, &mut n, depth)?;
        let runs = (self.align)(&Lists { prev: &prev, now: &now })?;
        let from = runs.iter().flat_map(|r| (0..r.len).map(move |k| r.from.map(|f| f + k)));
        for (mut n, from) in now.into_iter().zip(from) {
            if let Some(mut p) = from.and_then(|f| prev.get(f)).copied() {
                self.pair(&mut p, &mut n, depth + 1)?;
            }
        }
        Ok(())
    }
}

fn set(map: &mut [Option<usize>], now: usize, prev: usize) {
    if let Some(slot) = map.get_mut(now) {
        *slot = Some(prev);
    }
}

/// Bytes that are searched for together.
const WORD: usize = 6;
/// If this many bytes continue as before, no other match is searched for.
const LONG: usize = 48;

/// A shape as pieces of the one before and literals: literal length, literals, piece's begin
/// and length, until a piece of no length.
pub(super) fn put_shape(prev: &[u8], now: &[u8], out: &mut Vec<u8>) {
    let mut places: Option<HashMap<&[u8], usize>> = None;
    let equal = |p: usize, n: usize| {
        let (a, b) = (prev.get(p..).unwrap_or_default(), now.get(n..).unwrap_or_default());
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    };
    let (mut at, mut literal, mut next) = (0, 0, 0);
    while at < now.len() {
        // Continuing after the last piece keeps lists of like rows in step; another number, such as
        // the length of a list, may come in between.
        let skipped = next + (at - literal);
        let ahead = [next, skipped, skipped + 1].map(|p| (equal(p, at), p));
        let mut best = ahead.into_iter().max();
        let rest = now.len() - at;
        if best.is_none_or(|b| b.0 < LONG.min(rest)) {
            let places = places.get_or_insert_with(|| {
                let mut all = HashMap::new();
                for (i, w) in prev.windows(WORD).enumerate() {
                    all.entry(w).or_insert(i);
                }
                all
            });
            let word = now.get(at..at + WORD);
            best = best.max(word.and_then(|w| places.get(w)).map(|p| (equal(*p, at), *p)));
        }
        let Some((len, from)) = best.filter(|b| b.0 >= WORD) else {
            at += 1;
            continue;
        };
        put_piece(now.get(literal..at).unwrap_or_default(), from, len, out);
        at += len;
        (literal, next) = (at, from + len);
    }
    put_piece(now.get(literal..).unwrap_or_default(), 0, 0, out);
}

fn put_piece(literal: &[u8], from: usize, len: usize, out: &mut Vec<u8>) {
    put_bytes(out, literal);
    put_varint(out, len as u64);
    if len > 0 {
        put_varint(out, from as u64);
    }
}

/// Longest shape made of an earlier one: lists of rows with texts are capped at some thousands.
const MAX_SHAPE: usize = 1 << 22;

/// Reads a shape of at most this length.
pub(super) fn read_shape(
    prev: &[u8],
    most: usize,
    input: &mut Input<'_>,
) -> Result<Vec<u8>, CodecError> {
    let most = if prev.is_empty() { most } else { most.min(MAX_SHAPE) };
    let mut out = Vec::new();
    loop {
        let len = input.count(0)?;
        out.extend_from_slice(input.slice(len)?);
        let len = input.count(prev.len())?;
        if len > 0 {
            let from = input.count(prev.len())?;
            let piece = from.checked_add(len).and_then(|end| prev.get(from..end));
            out.extend_from_slice(piece.map_or_else(|| input.torn(), Ok)?);
        }
        if out.len() > most {
            return Err(CodecError("a shape that is too long".to_owned()));
        }
        if len == 0 {
            return Ok(out);
        }
    }
}
