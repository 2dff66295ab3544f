//! Which number, text and column of a sample stands where another one had it, although their
//! shapes differ: lists of rows with texts get longer and shorter, options come and go.
//!
//! Both shapes are walked side by side. Elements of a list are matched by their first two
//! leaves (a process and its thread, an inode and its owner), then by the first alone, then by
//! place; the writer says how, the reader follows.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::delta::{Run, extend};
use super::flat::{Flat, FlatError, put_varint, token, varint};
use crate::recording::file::limits::MOST_UNITS;
use super::undelta::{count, slice, too_large};

/// Deeper shapes are refused.
const MAX_DEPTH: u32 = 80;

/// For each leaf of a sample, the one of the sample before.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    pub(crate) nums: Vec<Option<usize>>,
    pub(crate) texts: Vec<Option<usize>>,
    pub(crate) columns: Vec<Option<usize>>,
}

/// A place in a sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct At {
    pub(crate) shape: usize,
    pub(crate) num: usize,
    pub(crate) text: usize,
    pub(crate) column: usize,
}

/// Where the elements of two lists are.
pub(crate) struct Lists<'a> {
    prev: &'a [At],
    now: &'a [At],
}

impl Lists<'_> {
    /// Elements of the list before.
    pub(crate) fn before(&self) -> usize {
        self.prev.len()
    }
    /// Elements of the list now.
    pub(crate) fn len(&self) -> usize {
        self.now.len()
    }
    /// Which elements are which, for the writer.
    pub(crate) fn align(&self, prev: &Flat, now: &Flat) -> Vec<Run> {
        let mut both: HashMap<u64, usize> = HashMap::new();
        let mut first: HashMap<u64, usize> = HashMap::new();
        for (i, at) in self.prev.iter().enumerate().rev() {
            let (a, b) = keys(prev, *at);
            first.insert(a, i);
            both.insert(b, i);
        }
        let (mut runs, mut next) = (Vec::new(), 0);
        for at in self.now {
            let (a, b) = keys(now, *at);
            let by_key = both.get(&b).or_else(|| first.get(&a)).copied();
            let from = by_key.or_else(|| self.prev.len().checked_sub(1).map(|last| next.min(last)));
            extend(&mut runs, from);
            next = from.map_or(next, |f| f + 1);
        }
        runs
    }
}

/// Tokens of a row among which its first leaves are.
const KEY_TOKENS: usize = 64;

/// Hashes of the first leaf, and of the first two.
pub(crate) fn keys(f: &Flat, at: At) -> (u64, u64) {
    let mut hash = DefaultHasher::new();
    let (mut a, mut leaves) = (0, 0);
    let (mut num, mut text, mut shape) = (at.num, at.text, at.shape);
    // A row without leaves must not be looked for them in all rows behind it.
    let mut tokens = 0;
    while leaves < 2 && tokens < KEY_TOKENS {
        tokens += 1;
        let Some(t) = f.shape.get(shape) else { break };
        shape += 1;
        match *t {
            token::BOOL..=token::CHAR | token::VARIANT => {
                f.nums.get(num).hash(&mut hash);
                num += 1;
            }
            token::STR => {
                f.texts.get(text).hash(&mut hash);
                text += 1;
            }
            token::STRUCT | token::TUPLE => {
                if varint(&f.shape, &mut shape).is_none() {
                    break;
                }
                if *t == token::STRUCT {
                    let _ = varint(&f.shape, &mut shape);
                }
                continue;
            }
            token::SOME => continue,
            _ => break,
        }
        leaves += 1;
        if leaves == 1 {
            a = hash.finish();
        }
        // Behind a leaf of a struct is the name of the next field; of a tuple there is none.
        // Names that are taken for leaves only make the key less useful.
        let _ = varint(&f.shape, &mut shape);
    }
    (a, hash.finish())
}

/// Walks both shapes. `align` says which elements of two lists are which.
pub(crate) fn map(
    prev: &[u8],
    now: &[u8],
    most: usize,
    align: &mut dyn FnMut(&Lists<'_>) -> Result<Vec<Run>, FlatError>,
) -> Result<Mapping, FlatError> {
    let left = (prev.len() + now.len()).saturating_mul(STEPS_PER_BYTE).saturating_add(STEPS);
    let mut out = Walk { prev, now, align, map: Mapping::default(), left };
    let mut at = At::default();
    skip(now, &mut at, 0)?;
    if at.shape != now.len() {
        return Err(FlatError("a shape with something behind it".to_owned()));
    }
    if at.num > most {
        return too_large();
    }
    out.map.nums = vec![None; at.num];
    out.map.texts = vec![None; at.text];
    out.map.columns = vec![None; at.column];
    out.pair(&mut At::default(), &mut At::default(), 0)?;
    Ok(out.map)
}

struct Walk<'a> {
    prev: &'a [u8],
    now: &'a [u8],
    align: &'a mut dyn FnMut(&Lists<'_>) -> Result<Vec<Run>, FlatError>,
    map: Mapping,
    /// Bytes of shapes that may still be walked over.
    left: usize,
}

/// Bytes of shapes that are walked over at most, and more per byte of the shapes: what is nested
/// is walked over once for each level, and many rows may be like a long one from before.
const STEPS: usize = 1 << 20;
const STEPS_PER_BYTE: usize = 64;

impl Walk<'_> {
    fn spend(&mut self, from: usize, to: usize) -> Result<(), FlatError> {
        let left = self.left.checked_sub(to.saturating_sub(from));
        self.left = left.ok_or_else(|| FlatError("shapes that are too unlike".to_owned()))?;
        Ok(())
    }

    /// Two values at the same place; both places move behind them.
    fn pair(&mut self, p: &mut At, n: &mut At, depth: u32) -> Result<(), FlatError> {
        let (before, start) = (*p, *n);
        skip(self.prev, p, depth)?;
        skip(self.now, n, depth)?;
        self.spend(before.shape, p.shape)?;
        self.spend(start.shape, n.shape)?;
        let (Some(a), Some(b)) = (self.prev.get(before.shape), self.now.get(start.shape)) else {
            return torn();
        };
        if a != b {
            return Ok(());
        }
        let (mut p, mut n) = (before, start);
        (p.shape, n.shape) = (p.shape + 1, n.shape + 1);
        match *b {
            token::UNIT | token::NONE => {}
            token::BOOL..=token::CHAR | token::VARIANT => self.num(&p, &n),
            token::STR => set(&mut self.map.texts, n.text, p.text),
            token::COLUMN => set(&mut self.map.columns, n.column, p.column),
            token::BYTES | token::PACKED => {
                let (a, b) = (number(self.prev, &mut p)?, number(self.now, &mut n)?);
                let per =
                    if *self.now.get(start.shape).unwrap_or(&0) == token::BYTES { 4 } else { 8 };
                for i in 0..a.min(b).div_ceil(per) {
                    set(&mut self.map.nums, n.num + i, p.num + i);
                }
            }
            token::SOME => self.pair(&mut p, &mut n, depth + 1)?,
            token::VARIANT_OF => {
                let same = number(self.prev, &mut p)? == number(self.now, &mut n)?;
                return if same { self.pair(&mut p, &mut n, depth + 1) } else { Ok(()) };
            }
            token::TUPLE | token::STRUCT | token::MAP => self.fields(*b, p, n, depth)?,
            token::SEQ => self.lists(p, n, depth)?,
            _ => {}
        }
        Ok(())
    }

    fn num(&mut self, p: &At, n: &At) {
        set(&mut self.map.nums, n.num, p.num);
    }

    fn fields(&mut self, kind: u8, mut p: At, mut n: At, depth: u32) -> Result<(), FlatError> {
        let (a, b) = (number(self.prev, &mut p)?, number(self.now, &mut n)?);
        let per = if kind == token::MAP { 2 } else { 1 };
        for _ in 0..a.min(b).saturating_mul(per) {
            if kind == token::STRUCT && number(self.prev, &mut p)? != number(self.now, &mut n)? {
                return Ok(());
            }
            self.pair(&mut p, &mut n, depth + 1)?;
        }
        Ok(())
    }

    fn lists(&mut self, mut p: At, mut n: At, depth: u32) -> Result<(), FlatError> {
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

fn torn<T>() -> Result<T, FlatError> {
    Err(FlatError("a shape that ends too early".to_owned()))
}

fn number(shape: &[u8], at: &mut At) -> Result<usize, FlatError> {
    match varint(shape, &mut at.shape).map(usize::try_from) {
        Some(Ok(n)) => Ok(n),
        _ => torn(),
    }
}

/// Begins of the elements of a list whose length is next.
pub(crate) fn elements(shape: &[u8], at: &mut At, depth: u32) -> Result<Vec<At>, FlatError> {
    let len = number(shape, at)?;
    let mut out = Vec::new();
    for _ in 0..len {
        out.push(*at);
        skip(shape, at, depth + 1)?;
    }
    Ok(out)
}

/// Moves over one value. Each takes at least a byte of the shape, so that hostile lengths end.
pub(crate) fn skip(shape: &[u8], at: &mut At, depth: u32) -> Result<(), FlatError> {
    if depth > MAX_DEPTH {
        return Err(FlatError("nested too deep".to_owned()));
    }
    let Some(t) = shape.get(at.shape) else { return torn() };
    at.shape += 1;
    match *t {
        token::UNIT | token::NONE => {}
        token::BOOL..=token::CHAR | token::VARIANT => at.num += 1,
        token::STR => at.text += 1,
        token::BYTES => at.num = at.num.saturating_add(number(shape, at)?.div_ceil(4)),
        token::PACKED => at.num = at.num.saturating_add(number(shape, at)?.div_ceil(8)),
        token::SOME => skip(shape, at, depth + 1)?,
        token::VARIANT_OF => {
            number(shape, at)?;
            skip(shape, at, depth + 1)?;
        }
        token::COLUMN => {
            let (num, text) = (at.num, at.text);
            skip(shape, at, depth + 1)?;
            (at.num, at.text) = (num, text);
            at.column += 1;
        }
        token::TUPLE | token::STRUCT | token::MAP | token::SEQ => {
            let len = number(shape, at)?;
            let per = if *t == token::MAP { 2 } else { 1 };
            for _ in 0..len.saturating_mul(per) {
                if *t == token::STRUCT {
                    number(shape, at)?;
                }
                skip(shape, at, depth + 1)?;
            }
        }
        t => return Err(FlatError(format!("token {t} is not known"))),
    }
    if at.num > MOST_UNITS { too_large() } else { Ok(()) }
}

/// Bytes that are looked for as one.
const WORD: usize = 6;
/// Bytes that go on as before so far are not looked for elsewhere.
const LONG: usize = 48;

/// A shape as pieces of the one before and literals: literal length, literals, piece's begin
/// and length, until a piece of no length.
pub(crate) fn put_shape(prev: &[u8], now: &[u8], out: &mut Vec<u8>) {
    let mut places: Option<HashMap<&[u8], usize>> = None;
    let equal = |p: usize, n: usize| {
        let (a, b) = (prev.get(p..).unwrap_or_default(), now.get(n..).unwrap_or_default());
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    };
    let (mut at, mut literal, mut next) = (0, 0, 0);
    while at < now.len() {
        // Going on behind the last piece keeps lists of like rows in step; behind it may stand
        // another number, such as the length of a list.
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
    put_varint(out, literal.len() as u64);
    out.extend_from_slice(literal);
    put_varint(out, len as u64);
    if len > 0 {
        put_varint(out, from as u64);
    }
}

/// Longest shape: lists of rows with texts are capped at some thousands.
const MOST_SHAPE: usize = 1 << 22;

pub(crate) fn read_shape(
    prev: &[u8],
    most: usize,
    bytes: &[u8],
    at: &mut usize,
) -> Result<Vec<u8>, FlatError> {
    let most = most.min(MOST_SHAPE);
    let mut out = Vec::new();
    loop {
        let len = count(bytes, at, 0)?;
        out.extend_from_slice(slice(bytes, at, len)?);
        let len = count(bytes, at, prev.len())?;
        if len == 0 {
            return Ok(out);
        }
        let mut from = count(bytes, at, prev.len())?;
        out.extend_from_slice(slice(prev, &mut from, len)?);
        if out.len() > most {
            return Err(FlatError("a shape that is too long".to_owned()));
        }
    }
}
