//! Who of many has the largest parts of something.

use super::super::super::culprit::{MAX_CULPRITS, Resource, Share};

/// Less than this is not what the others wait for, %.
pub(crate) const LEAST: f64 = 5.0;
/// Who has less than this part of what the first one has is one of those who wait.
const BESIDE: f64 = 0.2;

/// Those with the largest parts of `whole`, in the same unit, largest first and equals in their
/// order. Parts are read at other times than the whole: together they may be more, and are the whole
/// then.
pub(crate) fn largest<T>(all: Vec<(T, f64)>, whole: f64, of: &Resource) -> Vec<(T, Share)> {
    let whole = whole.max(all.iter().fold(0.0, |sum, (_, part)| sum + part));
    let mut all: Vec<(T, f64)> = all.into_iter().filter(|(_, part)| *part > 0.0).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let least = BESIDE * all.first().map_or(0.0, |(_, part)| *part);
    let named = all.into_iter().filter(|(_, part)| *part >= least).take(MAX_CULPRITS);
    let shares = named.filter_map(|(who, part)| Some((who, Share::new(part, whole, of.clone())?)));
    shares.filter(|(_, share)| share.percent() >= LEAST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(all: &[(u32, f64)], whole: f64) -> Vec<(u32, f64)> {
        let largest = largest(all.to_vec(), whole, &Resource::AllCpus);
        largest.into_iter().map(|(who, share)| (who, share.percent())).collect()
    }

    #[test]
    fn the_three_largest_are_named() {
        let all = [(5, 100.0), (7, 500.0), (6, 250.0), (4, 110.0)];
        assert_eq!(named(&all, 2000.0), [(7, 25.0), (6, 12.5), (4, 5.5)]);
        // Together they show 120%: each gets its part of that.
        assert_eq!(named(&[(1, 900.0), (2, 300.0)], 1000.0), [(1, 75.0), (2, 25.0)]);
        assert_eq!(named(&[(2, 1.0), (1, 1.0)], 0.0), [(2, 50.0), (1, 50.0)]);
        assert_eq!(named(&[], 0.0), []);
    }

    #[test]
    fn who_has_little_is_not_named() {
        // 4.9% of the whole.
        assert_eq!(named(&[(1, 49.0), (2, 50.0)], 1000.0), [(2, 5.0)]);
        // Less than a fifth of the first.
        assert_eq!(named(&[(1, 170.0), (2, 830.0)], 1000.0), [(2, 83.0), (1, 17.0)]);
        assert_eq!(named(&[(1, 160.0), (2, 840.0)], 1000.0), [(2, 84.0)]);
    }
}
