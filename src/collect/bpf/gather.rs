//! Histograms out of maps.

use super::maps::Stripes;
use crate::sample::bpf::hist::{ALL_LINES, Counts, Hist, LINE};

/// A time of the kernel's in whole us: what is below no figure shows, and a recording would hold
/// noise.
pub(super) fn whole_us(ns: u64) -> u64 {
    ns - ns % 1000
}

impl Hist {
    /// Takes the counts of a histogram in a map, which begins at word `at` of the stripe, where
    /// `self` was read before and the counts are `total` now: other lines of the map are read only
    /// when those of `self` do not add up to that.
    pub(super) fn gather_again<const W: usize>(
        &self,
        map: &Stripes<W>,
        stripe: usize,
        at: usize,
        total: u64,
    ) -> Self {
        self.again(total, |lines| Counts::read(map, stripe, at, lines).into())
    }
}

impl Counts {
    /// Takes those lines of a histogram in a map that have a bit in `wanted`.
    fn read<const W: usize>(map: &Stripes<W>, stripe: usize, at: usize, wanted: u32) -> Self {
        let mut out = Self::default();
        for (first, len) in runs(wanted) {
            map.lines(stripe, at + first * LINE, len, |i, line| out.put(first + i, line));
        }
        out
    }

    /// Takes a histogram of a map.
    pub(super) fn read_all<const W: usize>(map: &Stripes<W>, stripe: usize, at: usize) -> Self {
        Self::read(map, stripe, at, ALL_LINES)
    }
}

/// Bits side by side that are set: the first, and how many. Such lines are read in one go.
fn runs(mut bits: u32) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let first = bits.trailing_zeros();
        let len = bits.checked_shr(first)?.trailing_ones();
        bits &= u32::MAX.checked_shl(first + len).unwrap_or(0);
        Some((first as usize, len as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_side_by_side_are_one_run() {
        let got = |bits| runs(bits).collect::<Vec<_>>();
        assert_eq!(got(0), []);
        assert_eq!(got(u32::MAX), [(0, 32)]);
        assert_eq!(got(1 | 2 | 1 << 30 | 1 << 31), [(0, 2), (30, 2)]);
        assert_eq!(got(0b1011_0100), [(2, 1), (4, 2), (7, 1)]);
    }
}
