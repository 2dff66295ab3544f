//! Buckets and quantiles against plain arithmetic.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::collect::bpf::layout::{
    HIST_MAX_NS, SHORT_NS, block, bucket_by_table, bucket_from, bucket_of, bucket_of_short,
    bucket_table, irq,
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
        assert_eq!(bucket_by_table(&table, ns), bucket_of(ns), "{ns}");
    }
}

/// The program at softirqs asks for these alone.
#[test]
fn four_octaves_have_their_buckets() {
    let from = 1 << irq::SHORT_FROM;
    for ns in from..from << 4 {
        assert_eq!(bucket_from(irq::SHORT_FROM, ns), bucket_of(ns), "{ns}");
    }
}

#[test]
fn the_table_says_the_same_at_every_border() {
    let table = bucket_table();
    for border in (0..=LAST_BUCKET).map(|b| bucket_range(b).0) {
        for ns in border.saturating_sub(2)..border + 2 {
            assert_eq!(bucket_by_table(&table, ns), bucket_of(ns), "{ns}");
        }
    }
    assert_eq!(bucket_by_table(&table, u64::MAX), LAST_BUCKET);
}

#[test]
fn quantiles_and_bounds() {
    let b = |ns| bucket_of(ns) as u16;
    let h = Hist::from([(b(1000), 90), (b(1_000_000), 9), (b(10_000_000), 1)]);
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
    assert_eq!(Hist::from([(LAST_BUCKET as u16, 1)]).bound(), None, "over 68 s: no bound");
}

#[test]
fn differences_of_two_readings() {
    let old = Hist::from([(3, 5), (7, 1)]);
    let new = Hist::from([(1, 2), (3, 5), (7, 4)]);
    assert_eq!(new.since(&old), Some(Hist::from([(1, 2), (7, 3)])));
    assert_eq!(old.since(&new), None, "backwards: attached anew");
    assert_eq!(Hist::from([(3, 9)]).since(&old), None, "a bucket is gone");
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

#[test]
fn bits_side_by_side_are_one_run() {
    let got = |bits| runs(bits).collect::<Vec<_>>();
    assert_eq!(got(0), []);
    assert_eq!(got(u32::MAX), [(0, 32)]);
    assert_eq!(got(1 | 2 | 1 << 30 | 1 << 31), [(0, 2), (30, 2)]);
    assert_eq!(got(0b1011_0100), [(2, 1), (4, 2), (7, 1)]);
}

/// Buckets in a line that had none before are found, for the known ones do not add up then.
#[test]
fn only_lines_that_had_counts_are_read_unless_some_are_missing() {
    let map = Hist::from([(3, 5), (70, 2), (241, 1)]);
    let asked = std::cell::RefCell::new(Vec::new());
    let read = |lines: u32| -> Hist {
        asked.borrow_mut().push(lines);
        map.buckets().filter(|(b, _)| lines >> (b / 8) & 1 == 1).collect()
    };
    let known = Hist::from([(1, 1), (70, 1), (240, 1)]);
    assert_eq!(known.again(8, read), map);
    assert_eq!(asked.take(), [1 | 1 << 8 | 1 << 30], "they add up");
    assert_eq!(Hist::from([(3, 5), (70, 2)]).again(8, read), map);
    assert_eq!(asked.take(), [1 | 1 << 8, ALL_LINES], "one is missing");
    assert_eq!(Hist::default().again(8, read), map);
    assert_eq!(asked.take(), [0, ALL_LINES], "read for the first time");
}

#[test]
fn what_is_written_are_the_buckets() {
    let h = Hist::from([(0, 1), (7, 2), (8, 3), (241, u64::MAX)]);
    let text = serde_json::to_string(&h).unwrap();
    assert_eq!(text, "[[0,1],[7,2],[8,3],[241,18446744073709551615]]");
    assert_eq!(serde_json::from_str::<Hist>(&text).unwrap(), h);
    assert_eq!((h.top(), h.lines, h.counts.len()), (Some(241), 1 | 2 | 1 << 30, 3));
    assert_eq!(serde_json::from_str::<Hist>("[[9,0]]").unwrap(), Hist::default(), "none is 0");
    let error = serde_json::from_str::<Hist>("[[256,1]]").unwrap_err().to_string();
    assert!(error.contains("expected buckets below 256"), "{error}");
    assert_eq!(Hist::default().top(), None);
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
        let (a, b) = (Hist::from_iter(a), Hist::from_iter(b));
        let mut sum = a.clone();
        sum.merge(&b);
        prop_assert_eq!(sum.count(), a.count() + b.count());
        prop_assert_eq!(sum.since(&a), Some(b.clone()));
        prop_assert!(b.is_empty() || a.since(&sum).is_none());
        prop_assert_eq!(sum.buckets().map(|(b, _)| b).max(), sum.top());
        prop_assert_eq!(sum.buckets().collect::<Hist>(), sum);
    }
}
