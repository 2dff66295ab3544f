//! The learner on measured and made-up loads.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::metrics::disks::tests::over;
use crate::sample::disks::DiskCounters;
use proptest::prelude::*;

/// A second of writes at this queue.
fn second(iops: f64, queue: f64, kb: f64) -> DiskFigures {
    over(
        1000,
        DiskCounters {
            wr_ios: iops as u64,
            wr_sectors: (iops * kb * 2.0) as u64,
            wr_ticks: (queue * 1000.0) as u32,
            io_ticks: if queue >= 0.9 { 1000 } else { 300 },
            ..DiskCounters::default()
        },
    )
}

fn fed(seconds: impl IntoIterator<Item = (f64, f64, f64)>) -> Option<Cap> {
    let mut l = Learner::default();
    let mut out = None;
    for (s, (iops, queue, kb)) in seconds.into_iter().enumerate() {
        out = l.push(MonoNs((s as u64 + 1) * 1_000_000_000), &second(iops, queue, kb));
    }
    out.map(|c| (*c).clone())
}

/// Measured with a limit of 500 writes/s below a loop device: 500, 501, 505, 511 at a queue of
/// 0.98, 3.98, 15.92, 31.80.
#[test]
fn a_limit_of_requests_is_learned_over_all_depths() {
    let depths = [(500.0, 0.98), (501.0, 3.98), (505.0, 15.92), (511.0, 31.8)];
    let load = depths.iter().flat_map(|(x, l)| std::iter::repeat_n((*x, *l, 4.0), 12));
    let cap = fed(std::iter::repeat_n((20.0, 0.01, 4.0), 5).chain(load)).unwrap();
    let p = cap.iops.unwrap();
    assert!((500.0..=511.0).contains(&p.rate), "{p:?}");
    assert_eq!(p.points, 48, "every second of the load stands behind it");
    assert!((p.queue.0 - 0.98).abs() < 0.01 && (p.queue.1 - 31.8).abs() < 0.01, "{p:?}");
    assert_eq!((p.burst, p.begin_seen, cap.kb_s), (None, true, None));
}

/// 3000 IOPS for 20 s, then 500: the bucket held 20 * 2500 requests.
#[test]
fn credit_that_was_used_up_is_the_burst() {
    let load = [(3000.0, 20), (500.0, 15)];
    let load = load.iter().flat_map(|(x, n)| std::iter::repeat_n((*x, 16.0, 4.0), *n));
    let cap = fed(std::iter::repeat_n((20.0, 0.01, 4.0), 5).chain(load)).unwrap();
    let p = cap.iops.unwrap();
    assert_eq!(p.rate, 500.0);
    let b = p.burst.unwrap();
    assert_eq!(b.lasted, Duration::from_secs(20));
    assert!((b.amount - 50_000.0).abs() < 1.0 && (b.rate - 3000.0).abs() < 0.1, "{b:?}");
}

#[test]
fn large_requests_show_a_limit_of_bytes() {
    let cap = fed(std::iter::repeat_n((40.0, 24.0, 512.0), 12)).unwrap();
    assert_eq!(cap.iops, None);
    let p = cap.kb_s.unwrap();
    assert_eq!(p.rate, 40.0 * 512.0);
    assert!(!p.begin_seen, "busy since the first look");
}

#[test]
fn what_varies_grows_or_never_queues_is_no_limit() {
    let swings = [3000.0, 3600.0, 2500.0, 4100.0, 2900.0];
    assert_eq!(fed((0..40).map(|i| (swings[i % 5], 24.0, 4.0))), None);
    assert_eq!(fed((1..40).map(|i| (1000.0 * f64::from(i), f64::from(i), 4.0))), None);
    assert_eq!(fed(std::iter::repeat_n((500.0, 1.0, 4.0), 60)), None, "one synchronous caller");
    assert_eq!(fed(std::iter::repeat_n((500.0, 4.0, 4.0), 60)), None, "one depth proves nothing");
}

#[test]
fn a_limit_that_was_raised_is_forgotten() {
    let load = [(500.0, 20), (4000.0, 40)];
    let swings = |i: usize| if i.is_multiple_of(2) { 1.0 } else { 1.3 };
    let load = load.iter().flat_map(|(x, n)| {
        (0..*n).map(move |i| (if *x > 1000.0 { x * swings(i) } else { *x }, 16.0, 4.0))
    });
    assert_eq!(fed(load), None);
}

/// 16827 IOPS on a volume of 300 GiB: 1800 + 50 * 300 = 16800.
#[test]
fn the_nearest_published_tier() {
    let t = Tier::by_iops(300 << 21, 16_827.0).unwrap();
    assert_eq!((t.name, t.rate), ("ESSD PL1", 16_800.0));
    assert!(t.fits() && (t.off - 27.0 / 16_800.0).abs() < 1e-9);
    // 40 GiB: 2120 as ultra disk, 2280 as PL0, 3000 as SSD, 3800 as PL1.
    let t = Tier::by_iops(40 << 21, 3300.0).unwrap();
    assert_eq!((t.name, t.fits()), ("cloud SSD", false));
    let t = Tier::by_kb(100 << 21, 171.0 * 1024.0).unwrap();
    assert_eq!((t.name, t.rate), ("ESSD PL1", 170.0 * 1024.0));
}

proptest! {
    #[test]
    fn any_load_is_survived(
        load in proptest::collection::vec((0.0f64..1e6, 0.0f64..1e3, 0.5f64..2048.0), 0..80),
    ) {
        if let Some(cap) = fed(load) {
            for p in [cap.iops, cap.kb_s].into_iter().flatten() {
                prop_assert!(p.rate.is_finite() && p.points >= LEAST);
                prop_assert!(p.queue.0 <= p.queue.1);
            }
        }
    }
}
