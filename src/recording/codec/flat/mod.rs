//! Any sample as columns: its structure apart from its numbers and texts.
//!
//! A sample is serialised once into a [`Flat`]: `shape` says what it looks like (with the names
//! of fields, so that readers of another version can skip what they do not know and default
//! what they miss), `nums` and `texts` hold the leaves, and every sequence whose elements are
//! alike and purely numeric becomes a [`Column`]. Two readings of a collector mostly have the
//! same shape, so that the second is a few changed numbers; see [`super::delta`].

mod column;
mod de;
mod ser;
#[cfg(test)]
mod tests;

pub use column::{Column, Part};
pub use de::{from_flat, from_flat_within};
pub use ser::{Names, to_flat};

/// A value taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flat {
    /// Tokens; see [`token`].
    pub shape: Vec<u8>,
    /// Numbers in the order of their tokens; floats by their bits, signed ones wrapped.
    pub nums: Vec<u64>,
    /// Strings in the order of their tokens.
    pub texts: Texts,
    /// Sequences of like numbers.
    pub columns: Vec<Column>,
    /// Columns that are one table: same length, rows identified by a key column.
    pub tables: Vec<TableOf>,
}

impl Flat {
    /// Numbers that it holds.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.columns.iter().fold(self.nums.len(), |n, c| n.saturating_add(c.cells()))
    }
    /// Its size, for limits: [`Column::units`], and numbers, bytes of the shape and of texts.
    #[must_use]
    pub fn units(&self) -> usize {
        let rest = [self.nums.len(), self.shape.len(), self.texts.total()];
        let columns = self.columns.iter().map(Column::units);
        columns.chain(rest).fold(0, usize::saturating_add)
    }
    /// Hash of everything, to verify what was rebuilt from differences.
    #[must_use]
    pub fn hash(&self) -> u32 {
        let mut h = crc32fast::hash(&self.shape);
        let mut mix = |n: u64| {
            let x = (u64::from(h) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            h = (x >> 32) as u32 ^ x as u32;
        };
        let columns = self.columns.iter().flat_map(Column::numbers);
        self.nums.iter().copied().chain(columns).for_each(&mut mix);
        for text in self.texts.iter() {
            mix(u64::from(crc32fast::hash(text)));
        }
        h
    }
}

/// Columns `first..end` are fields of one struct, with equal lengths; `key` identifies rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOf {
    /// The column of cookies.
    pub key: usize,
    /// First column.
    pub first: usize,
    /// One past the last column.
    pub end: usize,
}

/// Name of the field that identifies rows among its sibling columns.
pub const KEY_FIELD: &str = "cookie";

/// Byte strings, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    /// Appends one.
    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }
    /// Number of texts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    /// None at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// The n-th.
    #[must_use]
    pub fn get(&self, n: usize) -> Option<&[u8]> {
        let end = *self.ends.get(n)?;
        let start = n.checked_sub(1).and_then(|p| self.ends.get(p)).copied().unwrap_or(0);
        self.bytes.get(start..end)
    }
    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|n| self.get(n))
    }
    /// Bytes of all texts together.
    #[must_use]
    pub fn total(&self) -> usize {
        self.bytes.len()
    }
}

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

/// Appends a LEB128 number.
pub fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Reads a LEB128 number at `at`, which moves on.
#[must_use]
#[inline]
pub fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    // Most are small.
    match bytes.get(*at) {
        Some(b) if *b < 0x80 => {
            *at += 1;
            Some(u64::from(*b))
        }
        _ => long_varint(bytes, at),
    }
}

fn long_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let b = *bytes.get(*at)?;
        *at += 1;
        n |= u64::from(b & 0x7f).checked_shl(shift)?;
        if b < 0x80 {
            return Some(n);
        }
    }
    None
}

/// A value that cannot be taken apart or put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FlatError(pub String);

impl serde::ser::Error for FlatError {
    fn custom<T: std::fmt::Display>(msg: T) -> Self {
        Self(msg.to_string())
    }
}
impl serde::de::Error for FlatError {
    fn custom<T: std::fmt::Display>(msg: T) -> Self {
        Self(msg.to_string())
    }
}
