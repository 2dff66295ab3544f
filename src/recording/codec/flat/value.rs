//! What a value is taken apart into.

use super::column::Column;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flat {
    /// Tokens; see [`token`](super::token).
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
    pub fn cells(&self) -> usize {
        self.columns.iter().fold(self.nums.len(), |n, c| n.saturating_add(c.cells()))
    }
    /// Its size, for limits: [`Column::units`], and numbers, bytes of the shape and of texts.
    pub fn units(&self) -> usize {
        let rest = [self.nums.len(), self.shape.len(), self.texts.total()];
        let columns = self.columns.iter().map(Column::units);
        columns.chain(rest).fold(0, usize::saturating_add)
    }
    /// Hash of everything, to verify what was rebuilt from differences.
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
    pub first: usize,
    /// One past the last column.
    pub end: usize,
}

/// Name of the field that identifies rows among its sibling columns.
pub(super) const KEY_FIELD: &str = "cookie";

/// Byte strings, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    pub fn get(&self, n: usize) -> Option<&[u8]> {
        let end = *self.ends.get(n)?;
        let start = n.checked_sub(1).and_then(|p| self.ends.get(p)).copied().unwrap_or(0);
        self.bytes.get(start..end)
    }
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|n| self.get(n))
    }
    pub fn total(&self) -> usize {
        self.bytes.len()
    }
}
