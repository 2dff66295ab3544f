//! Due times, thinning and the order of roles.

use super::*;

#[test]
fn due_times_skip_what_was_missed() {
    let (base, i) = (MonoNs(0), Duration::from_secs(1));
    let s = |n: u64| MonoNs(n * 1_000_000_000);
    assert_eq!(next_due(base, i, MonoNs(1), 0, 1), 1);
    assert_eq!(next_due(base, i, s(5), 0, 1), 6, "five deadlines passed: no burst to catch up");
    assert_eq!(next_due(base, i, MonoNs(1), 0, 4), 4);
}

#[test]
fn overloaded_roles_slow_down_and_recover() {
    let (reports, _inbox) = channel();
    let (_tx, watched) = watch::channel(Arc::new(Interest::default()));
    let mut r = RoleThread {
        role: Role::Files,
        base: MonoNs(0),
        interval: Duration::from_secs(1),
        every: 1,
        reports,
        watched,
    };
    r.adapt(Duration::from_millis(600));
    assert_eq!(r.every, 2);
    r.adapt(Duration::from_millis(600));
    assert_eq!(r.every, 2, "0.6 s of 2 s is neither much nor little");
    r.adapt(Duration::from_millis(100));
    assert_eq!(r.every, 1);
    for _ in 0..10 {
        r.adapt(Duration::from_secs(3600));
    }
    assert_eq!(r.every, MAX_THINNING);
}
