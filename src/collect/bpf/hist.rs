//! Histograms as they come out of the kernel: sparse, cumulative, 8 buckets per octave.

use serde::{Deserialize, Serialize};

use super::layout::{BUCKETS, LAST_BUCKET, bucket_range};
use super::maps::Stripes;

/// A time of the kernel's in whole us: what is below no figure shows, and a recording would hold
/// noise.
pub(super) fn whole_us(ns: u64) -> u64 {
    ns - ns % 1000
}

/// Buckets that are not empty, in order, with their counts since the program was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hist(pub Vec<(u16, u64)>);

impl Hist {
    /// Sum of all counts.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, n)| sum.wrapping_add(*n))
    }

    /// What was added since `older`. `None` when a count went backwards: the program was
    /// attached anew in between.
    #[must_use]
    pub fn since(&self, older: &Self) -> Option<Self> {
        let mut old = older.0.iter().peekable();
        let mut out = Vec::new();
        for &(bucket, count) in &self.0 {
            let mut before = 0;
            while let Some(&&(b, n)) = old.peek() {
                if b > bucket {
                    break;
                }
                old.next();
                if b == bucket {
                    before = n;
                } else if n > 0 {
                    return None;
                }
            }
            match count.checked_sub(before)? {
                0 => {}
                n => out.push((bucket, n)),
            }
        }
        if old.any(|(_, n)| *n > 0) {
            return None;
        }
        Some(Self(out))
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for &(bucket, count) in &other.0 {
            match self.0.binary_search_by_key(&bucket, |(b, _)| *b) {
                Ok(i) => {
                    if let Some((_, n)) = self.0.get_mut(i) {
                        *n = n.wrapping_add(count);
                    }
                }
                Err(i) => self.0.insert(i, (bucket, count)),
            }
        }
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
        for &(bucket, count) in &self.0 {
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
        let (bucket, _) = self.0.iter().rev().find(|(_, n)| *n > 0)?;
        let (_, high) = bucket_range(usize::from(*bucket));
        (usize::from(*bucket) < LAST_BUCKET).then_some(high)
    }

    /// How many counts lie in buckets that begin at `ns` or later.
    #[must_use]
    pub fn at_least(&self, ns: u64) -> u64 {
        self.0
            .iter()
            .filter(|(b, _)| bucket_range(usize::from(*b)).0 >= ns)
            .fold(0, |sum, (_, n)| sum.wrapping_add(*n))
    }

    /// Takes the counts of a histogram in a map, which begins at word `at` of the stripe.
    pub(super) fn gather<const W: usize>(map: &Stripes<W>, stripe: usize, at: usize) -> Self {
        let mut buckets = [(0, 0); BUCKETS];
        let mut len = 0;
        map.used(stripe, at, BUCKETS, |bucket, n| {
            if let Some(to) = buckets.get_mut(len) {
                *to = (bucket as u16, n);
                len += 1;
            }
        });
        // One allocation, of what is needed.
        Self(buckets.get(..len).unwrap_or_default().to_vec())
    }
}

/// The middle of a bucket, ns.
fn middle(bucket: u16) -> u64 {
    let bucket = usize::from(bucket);
    let (low, high) = bucket_range(bucket);
    if bucket >= LAST_BUCKET { low } else { low + (high - low) / 2 }
}

#[cfg(test)]
#[path = "hist_tests.rs"]
mod tests;
