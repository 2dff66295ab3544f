//! Buckets and quantiles against plain arithmetic.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::collect::bpf::layout::{
    HIST_MAX_NS, SHORT_NS, block, bucket_of, bucket_of_short, bucket_table,
};
use proptest::prelude::*;

#[test]
fn buckets_are_without_gaps() {
    for b in 0..LAST_BUCKET {
        let (low, high) = bucket_range(b);
        assert_eq!((bucket_of(low), bucket_of(high - 1)), (b, b));
        assert_eq!(bucket_range(b + 1).0, high);
    }
    assert_eq!(bucket_of(HIST_MAX_NS), LAST_BUCKET);
    assert_eq!(bucket_of(u64::MAX), LAST_BUCKET);
}

#[test]
fn the_table_of_short_waits_says_the_same() {
    let table = bucket_table();
    for ns in 0..SHORT_NS {
        assert_eq!(bucket_of_short(&table, ns), bucket_of(ns), "{ns}");
    }
}

#[test]
fn quantiles_and_bounds() {
    let b = |ns| bucket_of(ns) as u16;
    let h = Hist(vec![(b(1000), 90), (b(1_000_000), 9), (b(10_000_000), 1)]);
    let near = |got: Option<u64>, want: u64| {
        let got = got.unwrap();
        assert!(got.abs_diff(want) * 16 <= want, "{got} is more than 6.25 % off {want}");
    };
    near(h.quantile(0.5), 1000);
    near(h.quantile(0.9), 1000);
    near(h.quantile(0.95), 1_000_000);
    near(h.quantile(1.0), 10_000_000);
    assert!(h.bound().unwrap() > 10_000_000);
    assert_eq!(h.at_least(500_000), 10);
    assert_eq!(Hist::default().quantile(0.5), None);
    assert_eq!(Hist::default().bound(), None);
    assert_eq!(Hist(vec![(LAST_BUCKET as u16, 1)]).bound(), None, "over 68 s: no bound");
}

#[test]
fn differences_of_two_readings() {
    let old = Hist(vec![(3, 5), (7, 1)]);
    let new = Hist(vec![(1, 2), (3, 5), (7, 4)]);
    assert_eq!(new.since(&old), Some(Hist(vec![(1, 2), (7, 3)])));
    assert_eq!(old.since(&new), None, "backwards: attached anew");
    assert_eq!(Hist(vec![(3, 9)]).since(&old), None, "a bucket is gone");
    assert_eq!(new.since(&Hist::default()), Some(new.clone()));
}

#[test]
fn sizes_fall_into_the_class_that_holds_them() {
    for (bytes, class) in
        [(0, 0), (1, 0), (4096, 0), (4097, 1), (8192, 1), (1 << 20, 8), (16 << 20, 12)]
    {
        assert_eq!(block::size_class(bytes), class, "{bytes}");
    }
    assert_eq!(block::size_class(u64::from(u32::MAX)), block::SIZES - 1);
    for bytes in (1u64..1 << 25).step_by(1777) {
        let class = (0..40).find(|c| bytes <= 4096 << c).unwrap().min(block::SIZES - 1);
        assert_eq!(block::size_class(bytes), class, "{bytes}");
    }
}

proptest! {
    #[test]
    fn a_buckets_middle_is_at_most_a_sixteenth_off(ns in 64u64..HIST_MAX_NS) {
        let (low, high) = bucket_range(bucket_of(ns));
        prop_assert!(low <= ns && ns < high);
        prop_assert!(ns.abs_diff(middle(bucket_of(ns) as u16)) * 16 <= ns);
    }

    #[test]
    fn merge_then_since_gives_the_other_back(
        a in prop::collection::btree_map(0u16..242, 1u64..1000, 0..20),
        b in prop::collection::btree_map(0u16..242, 1u64..1000, 0..20),
    ) {
        let (a, b) = (Hist(a.into_iter().collect()), Hist(b.into_iter().collect()));
        let mut sum = a.clone();
        sum.merge(&b);
        prop_assert_eq!(sum.count(), a.count() + b.count());
        prop_assert_eq!(sum.since(&a), Some(b));
    }
}
