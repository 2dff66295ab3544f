//! Histograms as they come out of the kernel: sparse, cumulative, 8 buckets per octave.

use std::fmt;
use std::sync::Arc;

use serde::de::{Error as _, SeqAccess, Unexpected, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::layout::{BUCKETS, LAST_BUCKET, bucket_range};
use crate::sample::heap::{Heap, block};

/// The counts of buckets since the program was attached.
///
/// Kept as they are in the map, a cache line of buckets at a time and without lines that are
/// empty. Copies share them: what did not change is in two readings at least. Outside of memory
/// it is the list of [`Hist::buckets`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Hist {
    /// Which lines there are.
    lines: u32,
    /// One for each bit of `lines`; none is all 0.
    counts: Arc<[Line]>,
}

/// Buckets of a line: a cache line of a map.
pub(crate) const LINE: usize = 8;
/// Counts of buckets side by side.
pub(crate) type Line = [u64; LINE];
/// Lines of a histogram.
const LINES: usize = BUCKETS / LINE;
const _: () = assert!(LINES == 32);
/// Those with buckets in use. What is behind them in a map can be something else.
pub(crate) const ALL_LINES: u32 = u32::MAX >> (LINES - 1 - LAST_BUCKET / LINE);

impl FromIterator<(u16, u64)> for Hist {
    /// Buckets that do not exist are left out.
    fn from_iter<I: IntoIterator<Item = (u16, u64)>>(buckets: I) -> Self {
        let mut counts = Counts::default();
        buckets.into_iter().for_each(|(bucket, n)| counts.add(usize::from(bucket), n));
        counts.into()
    }
}

impl<const N: usize> From<[(u16, u64); N]> for Hist {
    fn from(buckets: [(u16, u64); N]) -> Self {
        buckets.into_iter().collect()
    }
}

impl fmt::Debug for Hist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

impl Serialize for Hist {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut seq = s.serialize_seq(Some(self.buckets().count()))?;
        for bucket in self.buckets() {
            seq.serialize_element(&bucket)?;
        }
        seq.end()
    }
}

impl<'de> Deserialize<'de> for Hist {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Buckets;
        impl<'de> Visitor<'de> for Buckets {
            type Value = Hist;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "buckets below {BUCKETS} with their counts")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Hist, A::Error> {
                let mut counts = Counts::default();
                while let Some((bucket, n)) = seq.next_element::<(u16, u64)>()? {
                    if usize::from(bucket) >= BUCKETS {
                        let got = Unexpected::Unsigned(bucket.into());
                        return Err(A::Error::invalid_value(got, &self));
                    }
                    counts.add(usize::from(bucket), n);
                }
                Ok(counts.into())
            }
        }
        d.deserialize_seq(Buckets)
    }
}

impl Heap for Hist {
    fn heap(&self, before: Option<&Self>) -> usize {
        // Nothing was counted: all of these share one block.
        let shared = self.is_empty() || before == Some(self);
        if shared { 0 } else { block(2 * size_of::<usize>() + size_of_val(&*self.counts)) }
    }
    fn settle(&mut self, before: Option<&Self>) {
        if let Some(b) = before.filter(|b| *b == self) {
            self.counts.clone_from(&b.counts);
        }
    }
}

impl Hist {
    /// The buckets that are not empty, in order, with their counts.
    pub fn buckets(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.lines().flat_map(|(i, line)| {
            let used = line.iter().enumerate().filter(|(_, n)| **n > 0);
            used.map(move |(k, n)| ((i * LINE + k) as u16, *n))
        })
    }

    /// The lines with their places.
    fn lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        ones(self.lines).zip(self.counts.iter())
    }

    /// The highest bucket that is not empty.
    #[must_use]
    pub fn top(&self) -> Option<u16> {
        let line = self.counts.last()?;
        let k = line.iter().rposition(|n| *n > 0)?;
        Some((self.lines.ilog2() as usize * LINE + k) as u16)
    }

    /// True when nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// Sum of all counts.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.as_flattened().iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }

    /// What was added since `older`. `None` when a count went backwards: the program was
    /// attached anew in between.
    #[must_use]
    pub fn since(&self, older: &Self) -> Option<Self> {
        if older.lines & !self.lines != 0 {
            return None;
        }
        let mut out = Counts::from(self);
        for (i, line) in older.lines() {
            for (k, n) in line.iter().enumerate().filter(|(_, n)| **n > 0) {
                out.take(i, k, *n)?;
            }
        }
        Some(out.into())
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        if self.is_empty() {
            *self = other.clone();
            return;
        }
        let mut sum = Counts::from(&*self);
        other.buckets().for_each(|(bucket, n)| sum.add(usize::from(bucket), n));
        *self = sum.into();
    }

    /// The value in ns below which the share `q` (0 to 1) of the counts lies: the middle of
    /// its bucket, at most 6.25 % off. `None` when empty.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).clamp(1, total);
        let mut seen = 0u64;
        for (bucket, count) in self.buckets() {
            seen = seen.saturating_add(count);
            if seen >= rank {
                return Some(middle(bucket));
            }
        }
        None
    }

    /// Upper end of the highest bucket in use, ns: nothing was longer. `None` when empty, or
    /// when something was over 68 s.
    #[must_use]
    pub fn bound(&self) -> Option<u64> {
        let bucket = usize::from(self.top()?);
        (bucket < LAST_BUCKET).then_some(bucket_range(bucket).1)
    }

    /// How many counts lie in buckets that begin at `ns` or later.
    #[must_use]
    pub fn at_least(&self, ns: u64) -> u64 {
        self.buckets()
            .filter(|(b, _)| bucket_range(usize::from(*b)).0 >= ns)
            .fold(0, |sum, (_, n)| sum.wrapping_add(n))
    }

    /// The counts as they are now, where they are `total`: all lines are read only when those
    /// of `self` do not add up to that.
    pub(crate) fn again(&self, total: u64, read: impl Fn(u32) -> Self) -> Self {
        let now = read(self.lines);
        if now.count() == total { now } else { read(ALL_LINES) }
    }
}

/// The places of the bits that are set, from the lowest on.
fn ones(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (place < u32::BITS).then_some(place as usize)
    })
}

/// A histogram that is being added up.
pub(crate) struct Counts {
    lines: [Line; LINES],
    /// Which of them may have counts.
    used: u32,
}

impl Default for Counts {
    fn default() -> Self {
        Self { lines: [[0; LINE]; LINES], used: 0 }
    }
}

impl From<&Hist> for Counts {
    fn from(hist: &Hist) -> Self {
        let mut out = Self { used: hist.lines, ..Self::default() };
        for (i, line) in hist.lines() {
            out.lines.iter_mut().skip(i).take(1).for_each(|to| *to = *line);
        }
        out
    }
}

impl Counts {
    /// Puts line `i` in the place of what was there.
    pub(crate) fn put(&mut self, i: usize, line: Line) {
        if let Some(to) = self.lines.get_mut(i) {
            *to = line;
            self.used |= 1 << i;
        }
    }

    /// Adds to a bucket.
    pub(crate) fn add(&mut self, bucket: usize, n: u64) {
        let line = bucket / LINE;
        if let Some(to) = self.lines.get_mut(line).and_then(|l| l.get_mut(bucket % LINE)) {
            *to = to.wrapping_add(n);
            self.used |= u32::from(n > 0) << line;
        }
    }

    /// Takes from a bucket; `None` when there is less.
    fn take(&mut self, line: usize, k: usize, n: u64) -> Option<()> {
        let from = self.lines.get_mut(line)?.get_mut(k)?;
        *from = from.checked_sub(n)?;
        Some(())
    }
}

impl From<Counts> for Hist {
    fn from(mut counts: Counts) -> Self {
        // Moved together on the stack: one allocation, of what is needed.
        let (mut lines, mut len) = (0, 0);
        for i in ones(counts.used) {
            let Some(line) = counts.lines.get(i).copied() else { break };
            if line.iter().fold(0, |all, n| all | n) == 0 {
                continue;
            }
            if let Some(to) = counts.lines.get_mut(len) {
                *to = line;
            }
            lines |= 1 << i;
            len += 1;
        }
        if len == 0 {
            return Self::default();
        }
        Self { lines, counts: counts.lines.get(..len).unwrap_or_default().into() }
    }
}

/// The middle of a bucket, ns.
fn middle(bucket: u16) -> u64 {
    let bucket = usize::from(bucket);
    let (low, high) = bucket_range(bucket);
    if bucket >= LAST_BUCKET { low } else { low + (high - low) / 2 }
}

#[cfg(test)]
mod tests;
