//! The bins of the run-queue program, see [`layout::runq`](super::layout::runq).

use super::hist::Hist;
use super::layout::bucket_of;
use super::layout::runq::{BIN, BIN_SHIFT, BINS};
use super::maps::Stripes;

/// What the bins of a CPU count.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Bins {
    /// The waits, by bucket.
    pub(super) waits: Hist,
    /// How many.
    pub(super) count: u64,
    /// Their sum, ns: each taken as long as the middle of its bin.
    pub(super) ns: u64,
}

impl Bins {
    /// Takes the counts of the bins of a CPU.
    pub(super) fn gather<const W: usize>(map: &Stripes<W>, cpu: usize) -> Self {
        let mut out = Self::default();
        map.used(cpu, BIN, BINS, |bin, count| out.add(bin, count));
        out
    }

    /// Adds a bin; they come in order.
    fn add(&mut self, bin: usize, count: u64) {
        let from = ((BIN + bin) as u64) << BIN_SHIFT;
        let middle = from + (1 << BIN_SHIFT >> 1);
        self.count = self.count.wrapping_add(count);
        self.ns = self.ns.wrapping_add(middle.wrapping_mul(count));
        let bucket = bucket_of(from) as u16;
        match self.waits.0.last_mut().filter(|(last, _)| *last == bucket) {
            Some((_, n)) => *n = n.wrapping_add(count),
            None => self.waits.0.push((bucket, count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::bpf::layout::runq::{BIN_FROM, BIN_TO};

    /// Every wait that the program puts into a bin comes out in the bucket of that wait, and
    /// not further than 16 ns from its length.
    #[test]
    fn a_bin_lies_within_one_bucket() {
        for wait in BIN_FROM..BIN_TO {
            let word = (wait >> BIN_SHIFT) as usize;
            assert!((BIN..BIN + BINS).contains(&word), "{wait}");
            let mut bins = Bins::default();
            bins.add(word - BIN, 1);
            assert_eq!(bins.waits, Hist(vec![(bucket_of(wait) as u16, 1)]), "{wait}");
            assert!(bins.ns.abs_diff(wait) <= 16, "{wait}: {bins:?}");
        }
    }

    #[test]
    fn bins_of_one_bucket_are_one() {
        // 2048 to 2303 ns is one bucket of eight bins.
        let mut bins = Bins::default();
        for (from, count) in [(2048, 2), (2272, 3), (2304, 1)] {
            bins.add((from >> BIN_SHIFT) - BIN, count);
        }
        let (a, b) = (bucket_of(2048) as u16, bucket_of(2304) as u16);
        let want =
            Bins { waits: Hist(vec![(a, 5), (b, 1)]), count: 6, ns: 2 * 2064 + 3 * 2288 + 2320 };
        assert_eq!(bins, want);
    }
}
