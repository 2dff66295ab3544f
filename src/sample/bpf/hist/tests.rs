//! Buckets and quantiles against plain arithmetic.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::sample::bpf::layout::{
    HIST_MAX_NS, SHORT_NS, block, bucket_by_table, bucket_from, bucket_of, bucket_of_short,
    bucket_table, irq, timed,
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

/// A turn after so many timed runs, `apart` ns from each other, from nothing.
fn singles(runs: u64, apart: u64) -> u64 {
    let (mut turn, mut since) = (0, 0);
    for t in (1..=runs).map(|i| i * apart) {
        let (next, ends) = timed::single(turn, t - since, t);
        if ends {
            since = t;
        }
        turn = next;
    }
    turn
}

#[test]
fn softirqs_are_timed_one_by_one_until_many_came_often() {
    for runs in [0, 1, 7, 8, 9, timed::STREAK - 1] {
        let turn = singles(runs, 32_767);
        assert!(!timed::sampling(turn) && timed::left(turn) == 0 && timed::group(turn) == 1);
        assert_eq!((timed::runs(turn), timed::pending(turn)), (runs, 0));
    }
    let many = singles(timed::STREAK, 32_767);
    assert!(timed::sampling(many) && timed::left(many) + 1 == timed::group(many));
    assert_eq!(timed::runs(many), timed::STREAK);
    // 33 us are too long: 30,518 a second.
    let all = singles(100 * timed::STREAK, 32_768);
    assert!(!timed::sampling(all) && timed::runs(all) == 100 * timed::STREAK);
    // One pause, and all begins anew; but not the count.
    let last = singles(timed::STREAK - 1, 1_000);
    assert!(timed::sampling(timed::single(last, 262_143, 0).0));
    let (anew, ends) = timed::single(last, 262_144, 0);
    assert!(ends && anew == timed::STREAK << 24);
    assert_eq!(timed::seldom(many), (timed::STREAK + 1) << 24);
    // 33 us each: 98 us for one and two that were passed over.
    assert!(timed::often(98_303, 3) && !timed::often(98_304, 3));
}

#[test]
fn the_timed_softirq_stands_for_those_passed_over() {
    let mut turn = timed::sampled(0, 12_345);
    let group = timed::group(turn);
    for passed in 0..group - 1 {
        assert_eq!((timed::left(turn), timed::pending(turn)), (group - 1 - passed, passed));
        // After a pause none of them is left, and none to count for.
        let ended = timed::ended(turn);
        assert!(timed::sampling(ended) && timed::runs(ended) == 1);
        assert_eq!((timed::left(ended), timed::group(ended), timed::pending(ended)), (0, 1, 0));
        turn = timed::passed(turn);
    }
    assert_eq!((timed::left(turn), timed::group(turn), timed::runs(turn)), (0, group, 1));
    // A long one counts for itself alone, the next for the others.
    let next = timed::alone(turn);
    assert_eq!((timed::left(next), timed::group(next), timed::runs(next)), (0, group, 2));
    // One of them has its own time: one less to stand for, wherever it comes.
    let mut turn = timed::late(timed::passed(timed::sampled(0, 12_345)));
    assert_eq!((timed::pending(turn), timed::group(turn)), (1, group - 1));
    while timed::left(turn) > 0 {
        turn = timed::passed(turn);
    }
    assert_eq!((timed::group(turn), timed::pending(turn)), (group - 1, group - 2));
    assert!(timed::sampling(turn));
    // The next group has what comes out of the clock, whatever was before.
    assert_eq!(timed::sampled(turn, 99) & 0xff, timed::sampled(0, 99) & 0xff);
}

/// As often each, also where the clock counts in steps of 40 ns, and in steps of 52.083.
#[test]
fn two_to_five_softirqs_are_passed_over() {
    for step in [1_000.0, 40.0, 1e9 / 19.2e6] {
        let mut seen = [0u32; 4];
        for i in 0..10_000_u64 {
            let t = (i as f64 * step) as u64;
            seen[timed::left(timed::sampled(0, t)) as usize - 2] += 1;
        }
        assert!(seen.iter().all(|n| (2_400..2_600).contains(n)), "{step}: {seen:?}");
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
