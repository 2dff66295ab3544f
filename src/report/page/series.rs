//! Values over all of a recording, in as many buckets as a plot can show. How long the recording
//! is may not be known: whenever the buckets are full, two become one. Of each bucket the least
//! and the greatest value are kept, so that a spike stays one.

use crate::sample::time::WallNs;

/// Buckets of a series at most.
pub(super) const BUCKETS: usize = 300;

/// What was measured in a bucket; `low > high` stands for nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    low: f32,
    high: f32,
}

const NOTHING: Bucket = Bucket { low: f32::INFINITY, high: f32::NEG_INFINITY };

impl Bucket {
    fn with(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// A value over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Series(Vec<Bucket>);

/// A bucket in which something was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Number of the bucket.
    pub(super) bucket: usize,
    /// The least value in it.
    pub(super) low: f64,
    /// The greatest.
    pub(super) high: f64,
}

impl Series {
    fn note(&mut self, bucket: usize, v: f64) {
        let v = v as f32;
        if !v.is_finite() || bucket >= BUCKETS {
            return;
        }
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, NOTHING);
        }
        if let Some(b) = self.0.get_mut(bucket) {
            *b = b.with(Bucket { low: v, high: v });
        }
    }

    fn halve(&mut self) {
        let pairs = self.0.chunks(2);
        self.0 = pairs.map(|p| p.iter().fold(NOTHING, |a, b| a.with(*b))).collect();
    }

    /// What was measured, in order.
    pub(super) fn points(&self) -> impl Iterator<Item = Point> + '_ {
        let known = self.0.iter().enumerate().filter(|(_, b)| b.low <= b.high);
        known.map(|(bucket, b)| Point { bucket, low: f64::from(b.low), high: f64::from(b.high) })
    }
}

/// Names a series of [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeriesId(usize);

/// Series with the buckets that they share.
#[derive(Clone, Debug)]
pub(super) struct Store {
    start: Option<WallNs>,
    /// Length of a bucket, ns.
    len: i64,
    all: Vec<Series>,
}

impl Store {
    /// With buckets of `len` ns at first.
    pub(super) fn new(len: i64) -> Self {
        Self { start: None, len: len.max(1), all: Vec::new() }
    }

    /// Another series.
    pub(super) fn add(&mut self) -> SeriesId {
        self.all.push(Series::default());
        SeriesId(self.all.len() - 1)
    }

    /// The bucket of a time. Makes room for it.
    pub(super) fn bucket(&mut self, at: WallNs) -> usize {
        let since = at.0.saturating_sub(self.start.get_or_insert(at).0).max(0);
        while since / self.len >= BUCKETS as i64 {
            self.len = self.len.saturating_mul(2);
            self.all.iter_mut().for_each(Series::halve);
        }
        (since / self.len) as usize
    }

    /// Notes a value.
    pub(super) fn note(&mut self, id: SeriesId, bucket: usize, v: f64) {
        if let Some(s) = self.all.get_mut(id.0) {
            s.note(bucket, v);
        }
    }

    /// One of them.
    pub(super) fn get(&self, id: SeriesId) -> Option<&Series> {
        self.all.get(id.0)
    }

    /// The middle of a bucket.
    pub(super) fn middle(&self, bucket: usize) -> WallNs {
        let start = self.start.map_or(0, |s| s.0);
        let n = i64::try_from(bucket).unwrap_or(i64::MAX);
        WallNs(start.saturating_add(self.len.saturating_mul(n)).saturating_add(self.len / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: i64 = 1_000_000_000;

    fn filled(seconds: i64, value: impl Fn(i64) -> f64) -> (Store, SeriesId) {
        let mut store = Store::new(SEC);
        let id = store.add();
        for s in 0..seconds {
            let bucket = store.bucket(WallNs(s * SEC));
            store.note(id, bucket, value(s));
        }
        (store, id)
    }

    #[test]
    fn a_week_has_as_many_buckets_as_a_minute_and_every_spike() {
        let spike = 400_001;
        let value = |s| if s == spike { 9.0 } else { 1.0 + f64::from(s == 7) };
        let (store, id) = filled(604_800, value);
        let points: Vec<_> = store.get(id).unwrap_or(&Series::default()).points().collect();
        assert!((BUCKETS / 2..=BUCKETS).contains(&points.len()), "{}", points.len());
        // 604800 s in at most 300 buckets of 2^n s: 2048 s = 2^11, 296 buckets.
        assert_eq!((store.len, points.len()), (2048 * SEC, 296));
        let high: Vec<_> = points.iter().filter(|p| p.high > 2.5).collect();
        assert_eq!(high.len(), 1);
        assert_eq!((high[0].bucket, high[0].low), (400_001 / 2048, 1.0));
        assert_eq!(points[0].high, 2.0, "what was noted before the buckets grew is still there");
        assert_eq!(store.middle(1).0, (2048 + 1024) * SEC);
    }

    #[test]
    fn what_was_not_measured_is_no_point() {
        let (store, id) = filled(10, |s| if s == 3 { f64::NAN } else { 0.0 });
        let points = store.get(id).map(|s| s.points().map(|p| p.bucket).collect::<Vec<_>>());
        assert_eq!(points, Some(vec![0, 1, 2, 4, 5, 6, 7, 8, 9]));
    }

    /// A recording may have any clock.
    #[test]
    fn no_time_is_too_far() {
        let mut store = Store::new(1);
        let id = store.add();
        for at in [i64::MIN, i64::MAX, 0, i64::MIN] {
            let bucket = store.bucket(WallNs(at));
            assert!(bucket < BUCKETS);
            store.note(id, bucket, 1.0);
        }
        let _ = store.middle(usize::MAX);
    }
}
