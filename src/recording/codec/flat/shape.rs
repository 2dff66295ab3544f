//! The shape of a value: a string of tokens, and how to walk over it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::value::Flat;
use crate::recording::codec::limits::MAX_UNITS;
use crate::recording::codec::wire::{CodecError, too_large, varint};

/// The tokens of a shape. Lengths and name numbers follow as LEB128.
pub mod token {
    /// `()`, a unit struct.
    pub const UNIT: u8 = 0;
    /// A bool: one number.
    pub const BOOL: u8 = 1;
    /// Unsigned integers: one number each.
    pub const U8: u8 = 2;
    /// 16 bits.
    pub const U16: u8 = 3;
    /// 32 bits.
    pub const U32: u8 = 4;
    /// 64 bits.
    pub const U64: u8 = 5;
    /// A signed integer of up to 64 bits, sign-extended: one number.
    pub const INT: u8 = 6;
    /// An `f32`, by its bits.
    pub const F32: u8 = 7;
    /// An `f64`, by its bits.
    pub const F64: u8 = 8;
    /// A char: one number.
    pub const CHAR: u8 = 9;
    /// A string: one text.
    pub const STR: u8 = 10;
    /// A byte string: length; packed into numbers, four bytes each, little endian.
    pub const BYTES: u8 = 11;
    /// No value.
    pub const NONE: u8 = 12;
    /// A value follows.
    pub const SOME: u8 = 13;
    /// A variant without fields: one number, its name.
    pub const VARIANT: u8 = 14;
    /// A variant with a value: name; the value follows (a tuple or struct for several).
    pub const VARIANT_OF: u8 = 15;
    /// A sequence: length; the elements follow.
    pub const SEQ: u8 = 16;
    /// A sequence of like elements: the shape of one follows, the numbers are a column.
    pub const COLUMN: u8 = 17;
    /// A tuple: length; the elements follow.
    pub const TUPLE: u8 = 18;
    /// A map: length; keys and values follow.
    pub const MAP: u8 = 19;
    /// A struct: length; for each field its name and its value.
    pub const STRUCT: u8 = 20;
    /// A tuple of bytes: length; the bytes are packed into numbers, eight each, little endian.
    pub const PACKED: u8 = 21;
}

/// Deeper shapes are refused.
pub(super) const MAX_DEPTH: u32 = 80;

/// A place in a value: in its shape, and which leaves come next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct At {
    pub(crate) shape: usize,
    pub(crate) num: usize,
    pub(crate) text: usize,
    pub(crate) column: usize,
}

fn torn<T>() -> Result<T, CodecError> {
    Err(CodecError("a shape that ends too early".to_owned()))
}

/// The length or name that comes next.
pub(crate) fn shape_number(shape: &[u8], at: &mut At) -> Result<usize, CodecError> {
    match varint(shape, &mut at.shape).map(usize::try_from) {
        Some(Ok(n)) => Ok(n),
        _ => torn(),
    }
}

/// Where the elements of a list begin whose length comes next.
pub(crate) fn elements(shape: &[u8], at: &mut At, depth: u32) -> Result<Vec<At>, CodecError> {
    let len = shape_number(shape, at)?;
    let mut out = Vec::new();
    for _ in 0..len {
        out.push(*at);
        skip(shape, at, depth + 1)?;
    }
    Ok(out)
}

/// Moves over one value. Each takes at least a byte of the shape, so that hostile lengths end.
pub(crate) fn skip(shape: &[u8], at: &mut At, depth: u32) -> Result<(), CodecError> {
    if depth > MAX_DEPTH {
        return Err(CodecError("nested too deeply".to_owned()));
    }
    let Some(t) = shape.get(at.shape) else { return torn() };
    at.shape += 1;
    match *t {
        token::UNIT | token::NONE => {}
        token::BOOL..=token::CHAR | token::VARIANT => at.num += 1,
        token::STR => at.text += 1,
        token::BYTES => at.num = at.num.saturating_add(shape_number(shape, at)?.div_ceil(4)),
        token::PACKED => at.num = at.num.saturating_add(shape_number(shape, at)?.div_ceil(8)),
        token::SOME => skip(shape, at, depth + 1)?,
        token::VARIANT_OF => {
            shape_number(shape, at)?;
            skip(shape, at, depth + 1)?;
        }
        token::COLUMN => {
            // Its leaves are in the column.
            let (num, text) = (at.num, at.text);
            skip(shape, at, depth + 1)?;
            (at.num, at.text) = (num, text);
            at.column += 1;
        }
        token::TUPLE | token::STRUCT | token::MAP | token::SEQ => {
            let len = shape_number(shape, at)?;
            let per = if *t == token::MAP { 2 } else { 1 };
            for _ in 0..len.saturating_mul(per) {
                if *t == token::STRUCT {
                    shape_number(shape, at)?;
                }
                skip(shape, at, depth + 1)?;
            }
        }
        t => return Err(CodecError(format!("token {t} is not known"))),
    }
    if at.num > MAX_UNITS { too_large() } else { Ok(()) }
}

/// Tokens of a row among which its first leaves are.
const KEY_TOKENS: usize = 64;

/// What identifies a row: hashes of its first leaf, and of its first two.
pub(crate) fn key_hashes(f: &Flat, at: At) -> (u64, u64) {
    let mut hash = DefaultHasher::new();
    let (mut a, mut leaves) = (0, 0);
    let (mut num, mut text, mut shape) = (at.num, at.text, at.shape);
    // A row without leaves must not search all later rows for them.
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
        // A leaf of a struct is followed by the name of the next field; a leaf of a tuple is not.
        // Names that are taken for leaves only make the key less useful.
        let _ = varint(&f.shape, &mut shape);
    }
    (a, hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_leaves_are_not_searched_to_the_end_of_the_shape() {
        let rows = [token::TUPLE, 0].repeat(10_000);
        let shape = [&[token::SEQ, 0x90, 0x4e][..], &rows, &[token::U8]].concat();
        let of = |n| {
            let flat = Flat { shape: shape.clone(), nums: vec![n], ..Flat::default() };
            key_hashes(&flat, At { shape: 3, ..At::default() })
        };
        assert_eq!(of(1), of(2));
    }
}
