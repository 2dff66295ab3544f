//! The bins of the run-queue program, see [`layout::runq`](crate::sample::bpf::layout::runq).

use super::maps::Stripes;
use crate::sample::bpf::hist::{Counts, LINE};
use crate::sample::bpf::layout::bucket_range;
use crate::sample::bpf::layout::runq::{BIN, BIN_FROM, BIN_SHIFT, BINS};

/// How many waits the bins of a CPU count, and their sum.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Bins {
    pub(super) count: u64,
    /// ns: each taken as long as the middle of its bin.
    pub(super) ns: u64,
}

impl Bins {
    /// Takes the counts of the bins of a CPU, and adds them to their buckets.
    pub(super) fn gather<const W: usize>(map: &Stripes<W>, cpu: usize, to: &mut Counts) -> Self {
        let mut out = Self::default();
        map.lines(cpu, BIN, BINS / LINE, |i, line| {
            let bins = line.iter().zip(BUCKET_OF.iter().skip(i * LINE)).enumerate();
            bins.for_each(|(k, (n, bucket))| out.add(i * LINE + k, *n, *bucket, to));
        });
        out
    }

    fn add(&mut self, bin: usize, count: u64, bucket: u8, to: &mut Counts) {
        let from = from(bin);
        let middle = from + (1 << BIN_SHIFT >> 1);
        self.count = self.count.wrapping_add(count);
        self.ns = self.ns.wrapping_add(middle.wrapping_mul(count));
        to.add(usize::from(bucket), count);
    }
}

/// The shortest wait that a bin counts, ns.
const fn from(bin: usize) -> u64 {
    BIN_FROM + ((bin as u64) << BIN_SHIFT)
}

/// The bucket in which each bin lies.
static BUCKET_OF: [u8; BINS] = {
    let mut out = [0; BINS];
    let (mut bin, mut bucket) = (0, 0);
    while bin < BINS {
        while bucket_range(bucket).1 <= from(bin) {
            bucket += 1;
        }
        out[bin] = bucket as u8;
        bin += 1;
    }
    out
};
const _: () = assert!(BINS.is_multiple_of(LINE));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::bpf::Hist;
    use crate::sample::bpf::layout::bucket_of;
    use crate::sample::bpf::layout::runq::{
        BIN_TO, HOT, LONG_NS, READ_FEW_NS, READ_NS, SAMPLE_NS, read_due, read_until, sample_due,
        stands_for,
    };

    /// Every wait that the program puts into a bin comes out in the bucket of that wait, and
    /// not further than 16 ns from its length.
    #[test]
    fn a_bin_lies_within_one_bucket() {
        for wait in BIN_FROM..BIN_TO {
            let word = HOT + (wait >> BIN_SHIFT) as usize;
            assert!((BIN..BIN + BINS).contains(&word), "{wait}");
            let (mut bins, mut counts) = (Bins::default(), Counts::default());
            bins.add(word - BIN, 1, BUCKET_OF[word - BIN], &mut counts);
            assert_eq!(Hist::from(counts), [(bucket_of(wait) as u16, 1)].into(), "{wait}");
            assert!(bins.ns.abs_diff(wait) <= 16, "{wait}: {bins:?}");
        }
    }

    #[test]
    fn bins_of_one_bucket_are_one() {
        // 2048 to 2303 ns is one bucket of eight bins.
        let (mut bins, mut counts) = (Bins::default(), Counts::default());
        for (from, count) in [(2048, 2), (2272, 3), (2304, 1)] {
            let bin = (from - BIN_FROM) as usize >> BIN_SHIFT;
            bins.add(bin, count, BUCKET_OF[bin], &mut counts);
        }
        let (a, b) = (bucket_of(2048) as u16, bucket_of(2304) as u16);
        assert_eq!(bins, Bins { count: 6, ns: 2 * 2064 + 3 * 2288 + 2320 });
        assert_eq!(Hist::from(counts), [(a, 5), (b, 1)].into());
    }

    #[test]
    fn a_long_wait_stands_for_itself_alone() {
        for (wait, waits) in [(64, 40), (READ_FEW_NS, 40), (READ_NS, 40), (READ_NS + 1, 1)] {
            assert_eq!(stands_for(wait, 40), waits, "{wait}");
        }
        assert_eq!(stands_for(LONG_NS - 1, 40), 1);
        assert_eq!(stands_for(64, 1), 1);
    }

    /// What is left of the time is a difference of the rq clock, ns: below 0 when it is over.
    #[test]
    fn readings_and_samples_are_due_in_turn() {
        let left = |ns: i64| (read_due(ns as u64), sample_due(ns as u64));
        let (read, sample) = (READ_NS as i64, SAMPLE_NS as i64);
        for ns in [0, 1, read - 1, read] {
            assert_eq!(left(ns), (false, false), "{ns}");
        }
        for ns in [-1, -sample] {
            assert_eq!(left(ns), (true, false), "{ns}");
        }
        // Over for long, never begun (the word is still 0), or more than there ever was.
        for ns in [-sample - 1, -1_000_000_000_000, i64::MIN, i64::MAX, read + 1] {
            assert_eq!(left(ns), (true, true), "{ns}");
        }
        // After a reading neither is due; after a sample, which ends the time, a reading is next.
        for (waits, for_ns) in [(1, READ_FEW_NS), (16, READ_FEW_NS), (17, READ_NS), (9999, READ_NS)]
        {
            let until = read_until(u64::MAX - 7, waits);
            assert_eq!(until.wrapping_sub(u64::MAX - 7), for_ns);
            assert!(!read_due(for_ns) && !sample_due(for_ns));
        }
    }
}
