//! The numbers of a node, stored as narrowly as possible: writer and reader hold whole tables of
//! sockets in this form, and most numbers are small, or the same in every row.

use std::ops::Range;

/// One number of every row, in as few bytes as the largest needs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
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

impl Part {
    /// `bits` has every bit that a number has.
    fn narrow(bits: u64, numbers: impl Iterator<Item = u64>) -> Self {
        match bits {
            0..=0xff => Self::B1(numbers.map(|n| n as u8).collect()),
            0x100..=0xffff => Self::B2(numbers.map(|n| n as u16).collect()),
            0x1_0000..=0xffff_ffff => Self::B4(numbers.map(|n| n as u32).collect()),
            _ => Self::B8(numbers.collect()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Column {
    rows: usize,
    part: Part,
}

impl Default for Column {
    fn default() -> Self {
        Self::EMPTY
    }
}

// One of the widths is that of the result.
#[allow(clippy::useless_conversion)]
impl Column {
    pub(super) const EMPTY: Self = Self { rows: 0, part: Part::Same(0) };

    pub(super) fn of(numbers: &[u64]) -> Self {
        let first = numbers.first().copied().unwrap_or(0);
        let (bits, other) = numbers.iter().fold((0, 0), |(b, o), n| (b | n, o | (n ^ first)));
        let part = match other {
            0 => Part::Same(first),
            _ => Part::narrow(bits, numbers.iter().copied()),
        };
        Self { rows: numbers.len(), part }
    }

    /// `rows` times the same number.
    pub(super) fn same(rows: usize, n: u64) -> Self {
        Self { rows, part: Part::Same(n) }
    }

    pub(super) fn push(&mut self, n: u64) {
        fn fits<N: TryFrom<u64>>(all: &mut Vec<N>, n: u64) -> bool {
            N::try_from(n).map(|n| all.push(n)).is_ok()
        }
        let is_done = match &mut self.part {
            Part::Same(same) => {
                if self.rows == 0 {
                    *same = n;
                }
                *same == n
            }
            Part::B1(all) => fits(all, n),
            Part::B2(all) => fits(all, n),
            Part::B4(all) => fits(all, n),
            Part::B8(all) => fits(all, n),
        };
        if !is_done {
            let mut all = self.numbers();
            all.push(n);
            self.part = Part::narrow(all.iter().fold(0, |b, n| b | n), all.into_iter());
        }
        self.rows += 1;
    }

    /// Gives back what was reserved for more rows.
    pub(super) fn shrink(&mut self) {
        each!(&mut self.part, _n => (), all => all.shrink_to_fit());
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn get(&self, row: usize) -> Option<u64> {
        if row >= self.rows {
            return None;
        }
        each!(&self.part, n => Some(*n), all => all.get(row).map(|n| u64::from(*n)))
    }

    /// The number that is the same in every row, if there is one.
    pub(super) fn constant(&self) -> Option<u64> {
        if let Part::Same(n) = self.part { Some(n) } else { None }
    }

    pub(super) fn unpack(&self, out: &mut Vec<u64>) {
        out.clear();
        each!(
            &self.part,
            n => out.resize(self.rows, *n),
            all => out.extend(all.iter().map(|n| u64::from(*n)))
        );
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        let mut out = Vec::new();
        self.unpack(&mut out);
        out
    }

    /// Sum of what `of` makes of the numbers of some rows.
    pub(super) fn sum(&self, rows: Range<usize>, of: impl Fn(u64) -> usize) -> usize {
        let len = rows.end.min(self.rows).saturating_sub(rows.start);
        each!(
            &self.part,
            n => len.saturating_mul(of(*n)),
            all => {
                let some = all.iter().skip(rows.start).take(len);
                some.fold(0, |sum: usize, n| sum.saturating_add(of(u64::from(*n))))
            }
        )
    }

    /// Adds to the number of a row; false when there is no such row.
    pub(super) fn add(&mut self, row: usize, by: u64) -> bool {
        let Some(old) = self.get(row) else { return false };
        let new = old.wrapping_add(by);
        if !self.set(row, new) {
            let all = self.numbers();
            let bits = all.iter().fold(new, |b, n| b | n);
            self.part = Part::narrow(bits, all.into_iter());
            self.set(row, new);
        }
        true
    }

    /// False: the number needs more space.
    fn set(&mut self, row: usize, new: u64) -> bool {
        if let Part::Same(n) = self.part {
            return n == new;
        }
        each!(&mut self.part, _n => false, all => match (all.get_mut(row), new.try_into()) {
            (Some(cell), Ok(new)) => { *cell = new; true }
            _ => false,
        })
    }

    /// Adds to all numbers: in place, where they stay as wide.
    pub(super) fn add_to_all(&mut self, by: u64) {
        match &mut self.part {
            _ if by == 0 => {}
            Part::Same(n) => *n = n.wrapping_add(by),
            Part::B1(all) if stay::<u8>(all, by) => move_all(all, by as u8, u8::wrapping_add),
            Part::B2(all) if stay::<u16>(all, by) => move_all(all, by as u16, u16::wrapping_add),
            Part::B4(all) if stay::<u32>(all, by) => move_all(all, by as u32, u32::wrapping_add),
            Part::B8(all) => move_all(all, by, u64::wrapping_add),
            _ => {
                let mut all = self.numbers();
                move_all(&mut all, by, u64::wrapping_add);
                *self = Self::of(&all);
            }
        }
    }

    /// Frees what is no longer needed: the width depends only on the current numbers, not on
    /// earlier ones.
    pub(super) fn narrow_again(&mut self) {
        let ((first, bits, other), most) = match &self.part {
            Part::Same(_) | Part::B1(_) | Part::B2(_) => return,
            Part::B4(all) => (sum_up(all), 0xffff),
            Part::B8(all) => (sum_up(all), 0xffff_ffff),
        };
        if other == 0 {
            self.part = Part::Same(first);
        } else if bits <= most {
            self.part = Part::narrow(bits, self.numbers().into_iter());
        }
    }

    /// Its size, for limits: its numbers; half of their bytes, where that is more. An empty one
    /// takes memory too.
    pub(super) fn units(&self) -> usize {
        let half = match &self.part {
            Part::Same(_) | Part::B1(_) | Part::B2(_) => 0,
            Part::B4(all) => all.len().saturating_mul(2),
            Part::B8(all) => all.len().saturating_mul(4),
        };
        half.max(self.rows).max(1)
    }

    /// Does every number fit into this many bytes?
    pub(super) fn fits(&self, bytes: usize) -> bool {
        let most = u64::MAX >> (64 - 8 * bytes.clamp(1, 8));
        each!(&self.part, n => *n <= most, all => all.iter().all(|n| u64::from(*n) <= most))
    }

    /// Writes the numbers of some rows, `N` bytes each, `stride` bytes apart.
    pub(super) fn write<const N: usize>(&self, rows: Range<usize>, stride: usize, out: &mut [u8]) {
        fn put<const N: usize>(cell: &mut [u8], n: u64) {
            if let (Some(cell), Some(b)) = (cell.get_mut(..N), n.to_le_bytes().first_chunk::<N>()) {
                cell.copy_from_slice(b);
            }
        }
        let cells = out.chunks_mut(stride.max(1));
        each!(
            &self.part,
            n => if *n != 0 {
                cells.take(rows.len()).for_each(|c| put::<N>(c, *n));
            },
            all => {
                let numbers = all.get(rows).unwrap_or_default();
                cells.zip(numbers).for_each(|(c, n)| put::<N>(c, u64::from(*n)));
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

/// How wide the numbers are kept does not matter.
impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
            && (self.part == other.part
                || (0..self.rows).all(|row| self.get(row) == other.get(row)))
    }
}
impl Eq for Column {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_as_narrow_as_they_are_and_grow_when_they_must() {
        let mut c = Column::default();
        let mut all = Vec::new();
        for (n, units) in [(5, 1), (5, 2), (300, 3), (70_000, 8), (1 << 40, 20)] {
            c.push(n);
            all.push(n);
            assert_eq!((c.units(), &c), (units, &Column::of(&all)));
            assert_eq!((c.rows(), c.numbers()), (all.len(), all.clone()));
        }
        assert!(c.add(0, u64::MAX) && !c.add(5, 1), "there are five");
        c.add_to_all(1 << 50);
        all[0] -= 1;
        for n in &mut all {
            *n += 1 << 50;
        }
        assert_eq!((c.get(0), c.get(5)), (Some(4 + (1 << 50)), None));
        assert_eq!(c, Column::of(&all));
        assert_eq!(c.sum(1..3, |n| n as usize & 0xff), 5 + 44);
    }

    #[test]
    fn all_move_in_place_while_they_stay_as_wide() {
        let mut c = Column::of(&[7, 250]);
        c.add_to_all(5);
        assert_eq!(c.part, Part::B1(vec![12, 255]));
        c.add_to_all(1);
        assert_eq!(c.part, Part::B2(vec![13, 256]), "too large for a byte");
        c.add_to_all((0u64).wrapping_sub(13));
        assert_eq!(c.part, Part::B2(vec![0, 243]));
        c.add_to_all((0u64).wrapping_sub(1));
        assert_eq!(c.part, Part::B8(vec![u64::MAX, 242]), "below zero");
        c.add_to_all(1 << 40);
        assert_eq!(c.part, Part::B8(vec![(1 << 40) - 1, 242 + (1 << 40)]));
        assert_eq!(c.units(), 8);
        c.add_to_all((0u64).wrapping_sub((1 << 40) - 1));
        c.narrow_again();
        assert_eq!(c.part, Part::B1(vec![0, 243]), "as narrow as if it had never been wide");
        let mut c = Column { rows: 2, part: Part::B4(vec![9, 9]) };
        c.narrow_again();
        assert_eq!(c.part, Part::Same(9));
    }
}
