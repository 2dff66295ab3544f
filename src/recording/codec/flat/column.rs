//! The numbers of like elements, stored as narrowly as possible: writer and reader hold whole
//! tables of sockets in this form, and most numbers are small, or the same in every row.

use crate::sample::packed::Form;

/// One number of every element, in as few bytes as the largest needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The same in all.
    Same(u64),
    B1(Vec<u8>),
    B2(Vec<u16>),
    B4(Vec<u32>),
    B8(Vec<u64>),
}

/// Does the same with the numbers of every width.
macro_rules! each {
    ($part:expr, $same:ident => $a:expr, $all:ident => $b:expr) => {
        match $part {
            Part::Same($same) => $a,
            Part::B1($all) => $b,
            Part::B2($all) => $b,
            Part::B4($all) => $b,
            Part::B8($all) => $b,
        }
    };
}

// One of the widths is that of the result.
#[allow(clippy::useless_conversion)]
impl Part {
    pub fn of(numbers: &[u64]) -> Self {
        let first = numbers.first().copied().unwrap_or(0);
        let (bits, other) = numbers.iter().fold((0, 0), |(b, o), n| (b | n, o | (n ^ first)));
        if other == 0 { Self::Same(first) } else { Self::narrow(bits, numbers.iter().copied()) }
    }

    /// `bits` has every bit that a number has.
    fn narrow(bits: u64, numbers: impl Iterator<Item = u64>) -> Self {
        match bits {
            0..=0xff => Self::B1(numbers.map(|n| n as u8).collect()),
            0x100..=0xffff => Self::B2(numbers.map(|n| n as u16).collect()),
            0x1_0000..=0xffff_ffff => Self::B4(numbers.map(|n| n as u32).collect()),
            _ => Self::B8(numbers.collect()),
        }
    }

    /// The number of an element; the caller knows how many there are.
    pub fn get(&self, row: usize) -> Option<u64> {
        each!(self, n => Some(*n), all => all.get(row).map(|n| u64::from(*n)))
    }

    /// All numbers of `rows` elements.
    pub fn unpack(&self, rows: usize, out: &mut Vec<u64>) {
        out.clear();
        each!(self, n => out.resize(rows, *n), all => out.extend(all.iter().map(|n| u64::from(*n))));
    }

    /// Adds to the number of one of `rows` elements; false when there is no such element.
    pub fn add(&mut self, rows: usize, row: usize, by: u64) -> bool {
        let Some(old) = self.get(row).filter(|_| row < rows) else { return false };
        let new = old.wrapping_add(by);
        if !self.set(row, new) {
            let mut all = Vec::new();
            self.unpack(rows, &mut all);
            let bits = all.iter().fold(new, |b, n| b | n);
            *self = Self::narrow(bits, all.into_iter());
            self.set(row, new);
        }
        true
    }

    /// False: the number needs more space.
    fn set(&mut self, row: usize, new: u64) -> bool {
        if let Self::Same(n) = self {
            return *n == new;
        }
        each!(self, _n => false, all => match (all.get_mut(row), new.try_into()) {
            (Some(cell), Ok(new)) => { *cell = new; true }
            _ => false,
        })
    }

    /// Adds to the numbers of all of `rows` elements: in place, where they stay as wide.
    pub fn add_to_all(&mut self, rows: usize, by: u64) {
        match self {
            _ if by == 0 => {}
            Self::Same(n) => *n = n.wrapping_add(by),
            Self::B1(all) if stay::<u8>(all, by) => move_all(all, by as u8, u8::wrapping_add),
            Self::B2(all) if stay::<u16>(all, by) => move_all(all, by as u16, u16::wrapping_add),
            Self::B4(all) if stay::<u32>(all, by) => move_all(all, by as u32, u32::wrapping_add),
            Self::B8(all) => move_all(all, by, u64::wrapping_add),
            _ => {
                let mut all = Vec::new();
                self.unpack(rows, &mut all);
                move_all(&mut all, by, u64::wrapping_add);
                *self = Self::of(&all);
            }
        }
    }

    /// Frees what is no longer needed: the width depends only on the current numbers, not on
    /// earlier ones.
    pub fn narrow_again(&mut self) {
        let (first, bits, other) = match self {
            Self::Same(_) | Self::B1(_) | Self::B2(_) => return,
            Self::B4(all) => sum_up(all),
            Self::B8(all) => sum_up(all),
        };
        let fits = match self {
            Self::B4(_) => bits > 0xffff,
            _ => bits > 0xffff_ffff,
        };
        if other == 0 {
            *self = Self::Same(first);
        } else if !fits {
            let mut all = Vec::new();
            self.unpack(0, &mut all);
            *self = Self::narrow(bits, all.into_iter());
        }
    }

    /// Its size, for limits: the numbers of `rows` elements; half of their bytes, where that is
    /// more.
    pub fn units(&self, rows: usize) -> usize {
        let half = match self {
            Self::Same(_) | Self::B1(_) | Self::B2(_) => 0,
            Self::B4(all) => all.len().saturating_mul(2),
            Self::B8(all) => all.len().saturating_mul(4),
        };
        half.max(rows)
    }

    /// Does every number fit into this many bytes?
    fn fits(&self, bytes: usize) -> bool {
        let most = u64::MAX >> (64 - 8 * bytes.clamp(1, 8));
        match self {
            Self::Same(n) => *n <= most,
            Self::B1(_) => true,
            Self::B2(all) => bytes >= 2 || all.iter().all(|n| u64::from(*n) <= most),
            Self::B4(all) => bytes >= 4 || all.iter().all(|n| u64::from(*n) <= most),
            Self::B8(all) => bytes >= 8 || all.iter().all(|n| *n <= most),
        }
    }

    /// Writes the numbers of some elements, `N` bytes each, `stride` bytes apart.
    fn write<const N: usize>(&self, from: usize, to: usize, stride: usize, out: &mut [u8]) {
        fn put<const N: usize>(cell: Option<&mut [u8]>, n: u64) {
            if let (Some(cell), Some(b)) = (cell, n.to_le_bytes().first_chunk::<N>()) {
                cell.copy_from_slice(b);
            }
        }
        let cells = out.chunks_mut(stride.max(1));
        each!(
            self,
            n => if *n != 0 {
                cells.take(to - from).for_each(|c| put::<N>(c.get_mut(..N), *n));
            },
            all => {
                let numbers = all.get(from..to).unwrap_or_default();
                for (c, n) in cells.zip(numbers) {
                    put::<N>(c.get_mut(..N), u64::from(*n));
                }
            }
        );
    }
}

/// The first of the numbers, the bits that any of them has, and those in which any differs from
/// the first.
fn sum_up<N: Copy + Into<u64>>(all: &[N]) -> (u64, u64, u64) {
    let first = all.first().map_or(0, |n| (*n).into());
    let (bits, other) = all.iter().fold((0, 0), |(b, o), n| {
        let n: u64 = (*n).into();
        (b | n, o | (n ^ first))
    });
    (first, bits, other)
}

/// Does every number, moved by this much, still fit its width?
fn stay<N: Copy + Into<u64> + TryFrom<u64>>(all: &[N], by: u64) -> bool {
    all.iter().all(|n| N::try_from((*n).into().wrapping_add(by)).is_ok())
}

fn move_all<N: Copy>(all: &mut [N], by: N, add: fn(N, N) -> N) {
    for n in all {
        *n = add(*n, by);
    }
}

#[derive(Clone, Debug, Default)]
pub struct Column {
    rows: usize,
    parts: Vec<Part>,
}

/// Elements that are written at a time: their bytes stay in the CPU's nearest cache.
const BLOCK: usize = 64;

impl Column {
    /// `width` numbers per element (0: there is none), all numbers of an element one after the
    /// other.
    pub fn of(width: usize, data: &[u64]) -> Self {
        let rows = data.len().checked_div(width).unwrap_or(0);
        if width == 1 {
            return Self { rows, parts: vec![Part::of(data)] };
        }
        let first = data.get(..width).unwrap_or_default();
        let mut seen = vec![(0u64, 0u64); width];
        for row in data.chunks_exact(width.max(1)) {
            for ((n, first), (bits, other)) in row.iter().zip(first).zip(&mut seen) {
                *bits |= n;
                *other |= n ^ first;
            }
        }
        let part = |(c, ((bits, other), first)): (usize, (&(u64, u64), &u64))| {
            if *other == 0 {
                return Part::Same(*first);
            }
            let numbers = data.get(c..).unwrap_or_default().iter().step_by(width);
            Part::narrow(*bits, numbers.copied())
        };
        Self { rows, parts: seen.iter().zip(first).enumerate().map(part).collect() }
    }
    /// Of its parts, each with `rows` numbers.
    pub fn from_parts(rows: usize, parts: Vec<Part>) -> Self {
        Self { rows, parts }
    }
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Numbers per element; 0 for an empty sequence.
    pub fn width(&self) -> usize {
        self.parts.len()
    }
    pub fn cells(&self) -> usize {
        self.rows.saturating_mul(self.parts.len())
    }
    /// Its size, for limits: that of its parts. An empty one takes memory too.
    pub fn units(&self) -> usize {
        if self.rows == 0 {
            return self.parts.len().max(1);
        }
        self.parts.iter().fold(0, |n, p| n.saturating_add(p.units(self.rows)))
    }
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
    pub fn parts_mut(&mut self) -> &mut [Part] {
        &mut self.parts
    }
    /// A number.
    pub fn get(&self, row: usize, part: usize) -> Option<u64> {
        if row < self.rows { self.parts.get(part)?.get(row) } else { None }
    }
    /// The numbers of an element; 0 for those that are not there.
    pub fn row(&self, row: usize) -> Vec<u64> {
        (0..self.width()).map(|c| self.get(row, c).unwrap_or(0)).collect()
    }
    /// The first number of every element.
    pub fn firsts(&self) -> Vec<u64> {
        let mut out = Vec::new();
        if let Some(p) = self.parts.first() {
            p.unpack(self.rows, &mut out);
        }
        out
    }
    /// All numbers, element by element.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        let row = |r: usize| self.parts.iter().map(move |p| p.get(r).unwrap_or(0));
        (0..self.rows).flat_map(row)
    }

    /// The bytes of all elements in `form`. `None`: they are of another kind.
    pub fn bytes(&self, form: Form, len: usize) -> Option<Vec<u8>> {
        let (word, width) = match form {
            Form::Words { word, width } => (word, width),
            Form::Blocks => (4, len.div_ceil(4)),
        };
        let right = width > 0 && width == self.width() && self.parts.iter().all(|p| p.fits(word));
        if !right {
            return None;
        }
        let stride = word * width;
        let mut out = Vec::new();
        if form == Form::Blocks {
            out.extend_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
        }
        let head = out.len();
        out.resize(head + self.rows.checked_mul(stride)?, 0);
        let blocks = out.get_mut(head..)?.chunks_mut(BLOCK * stride);
        for (i, block) in blocks.enumerate() {
            let (from, to) = (i * BLOCK, ((i + 1) * BLOCK).min(self.rows));
            for (c, p) in self.parts.iter().enumerate() {
                let Some(out) = block.get_mut(c * word..) else { break };
                match word {
                    1 => p.write::<1>(from, to, stride, out),
                    2 => p.write::<2>(from, to, stride, out),
                    4 => p.write::<4>(from, to, stride, out),
                    _ => p.write::<8>(from, to, stride, out),
                }
            }
        }
        Some(out)
    }
}

/// How wide the numbers are kept does not matter.
impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        let same =
            |(a, b): (&Part, &Part)| a == b || (0..self.rows).all(|row| a.get(row) == b.get(row));
        self.rows == other.rows
            && self.width() == other.width()
            && self.parts.iter().zip(&other.parts).all(same)
    }
}
impl Eq for Column {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_are_kept_as_narrow_as_they_are_and_grow_when_they_must() {
        let data = [5, 300, 70_000, 1 << 40, 5, 301, 70_001, 1 << 41];
        let mut c = Column::of(4, &data);
        assert!(matches!(c.parts(), [Part::Same(5), Part::B2(_), Part::B4(_), Part::B8(_)]));
        assert_eq!(c.numbers().collect::<Vec<_>>(), data);
        assert_eq!((c.rows(), c.width(), c.cells()), (2, 4, 8));
        assert!(c.parts_mut()[0].add(2, 1, 1));
        assert!(c.parts_mut()[1].add(2, 0, u64::MAX));
        c.parts_mut()[2].add_to_all(2, 1 << 50);
        assert!(!c.parts_mut()[0].add(2, 2, 1), "there are two");
        assert!(!c.parts_mut()[3].add(2, 2, 1), "there are two");
        let now = [5, 299, 70_000 + (1 << 50), 1 << 40, 6, 301, 70_001 + (1 << 50), 1 << 41];
        assert_eq!(c.numbers().collect::<Vec<_>>(), now);
        assert_eq!(c, Column::of(4, &now));
        c.parts_mut()[1].add(2, 1, (0u64).wrapping_sub(302));
        assert_eq!(c.get(1, 1), Some(u64::MAX), "below zero takes all bits");
        assert_eq!((c.get(2, 0), c.get(0, 4)), (None, None));
    }

    #[test]
    fn all_move_in_place_while_they_stay_as_wide() {
        let mut p = Part::of(&[7, 250]);
        p.add_to_all(2, 5);
        assert_eq!(p, Part::B1(vec![12, 255]));
        p.add_to_all(2, 1);
        assert_eq!(p, Part::B2(vec![13, 256]), "too large for a byte");
        p.add_to_all(2, (0u64).wrapping_sub(13));
        assert_eq!(p, Part::B2(vec![0, 243]));
        p.add_to_all(2, (0u64).wrapping_sub(1));
        assert_eq!(p, Part::B8(vec![u64::MAX, 242]), "below zero");
        p.add_to_all(2, 1 << 40);
        assert_eq!(p, Part::B8(vec![(1 << 40) - 1, 242 + (1 << 40)]));
        assert_eq!(Column::from_parts(2, vec![p.clone(), Part::Same(1)]).units(), 8 + 2);
        p.add_to_all(2, (0u64).wrapping_sub((1 << 40) - 1));
        p.narrow_again();
        assert_eq!(p, Part::B1(vec![0, 243]), "as narrow as if it had never been wide");
        let mut p = Part::B4(vec![9, 9]);
        p.narrow_again();
        assert_eq!(p, Part::Same(9));
    }

    #[test]
    fn bytes_are_those_of_the_elements() {
        let data: Vec<u64> = (0..200).flat_map(|n| [n, 7, 0xdead_0000 + n]).collect();
        let c = Column::of(3, &data);
        let want: Vec<u8> = data.iter().flat_map(|n| (*n as u32).to_le_bytes()).collect();
        let words = |word, width| Form::Words { word, width };
        assert_eq!(c.bytes(words(4, 3), 0).unwrap(), want);
        assert_eq!(c.bytes(words(4, 2), 0), None, "other elements");
        assert_eq!(c.bytes(words(2, 3), 0), None, "too large");
        let blocks = c.bytes(Form::Blocks, 10).unwrap();
        assert_eq!((&blocks[..4], &blocks[4..]), (&10u32.to_le_bytes()[..], &want[..]));
        assert_eq!(c.bytes(Form::Blocks, 13), None);
    }
}
