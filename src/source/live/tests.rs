//! Due times, also when the interval changes, and thinning.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn at(ms: u64) -> MonoNs {
    MonoNs(ms * 1_000_000)
}

fn every(interval: Duration) -> Schedule {
    Schedule::new(MonoNs(0), interval)
}

#[test]
fn due_times_skip_what_was_missed() {
    let s = every(1000 * MS);
    assert_eq!(s.next_due(at(0), 0, 1), 1);
    assert_eq!(s.next_due(at(5000), 0, 1), 6, "five deadlines passed: no burst to catch up");
    assert_eq!(s.next_due(at(0), 0, 4), 4);
}

#[test]
fn a_new_interval_counts_from_the_last_deadline() {
    // Longer: no tick comes earlier than it should.
    let s = every(1000 * MS).changed(at(3400), 5000 * MS);
    assert_eq!((s.last(at(3400)), s.deadline(4), s.deadline(5)), (3, at(8000), at(13_000)));
    // Shorter, and passed already: at once.
    let s = every(60_000 * MS).changed(at(20_000), 1000 * MS);
    assert_eq!((s.deadline(1), s.deadline(2)), (at(20_000), at(21_000)));
    assert_eq!(s.last(at(20_000)), 1);
    // Shorter, and still to come.
    let s = every(1000 * MS).changed(at(3050), 100 * MS);
    assert_eq!((s.deadline(4), s.last(at(3099)), s.last(at(3100))), (at(3100), 3, 4));
    // What was due before is due now.
    assert!(s.deadline(3) <= at(3050));
}

#[test]
fn keys_that_are_held_down_make_no_burst_of_readings() {
    let mut s = every(60_000 * MS);
    for ms in [30_000, 10_000, 5000, 2000, 1000, 500, 200, 100] {
        s = s.changed(at(50_000), ms * MS);
    }
    // The first change made one due at once; the others count from there.
    assert_eq!((s.last(at(50_000)), s.deadline(2)), (1, at(50_100)));
    for ms in [200, 500, 1000] {
        s = s.changed(at(50_050), ms * MS);
    }
    assert_eq!((s.last(at(50_999)), s.deadline(2)), (1, at(51_000)));
}

#[test]
fn who_waits_for_a_later_deadline_takes_the_first_of_the_new_ones() {
    let s = every(1000 * MS).changed(at(3400), 60_000 * MS);
    assert_eq!(s.replanned(at(3400), 4), 4);
    assert_eq!(s.replanned(at(3400), 16), 4, "it read rarely");
    assert_eq!(s.replanned(at(3400), 3), 3, "it is overdue: it reads at once");
}

#[test]
fn a_change_wakes_who_waits_for_a_minute() {
    let scheduler = Scheduler::new(Schedule::new(clock::mono(), 60_000 * MS));
    let (waits, ready) = channel();
    let sleeper = {
        let scheduler = scheduler.clone();
        thread::spawn(move || {
            let known = scheduler.now();
            let _ = waits.send(());
            scheduler.sleep(known, known.deadline(1))
        })
    };
    ready.recv().expect("it runs");
    let begun = clock::mono();
    scheduler.set_interval(100 * MS);
    assert!(!sleeper.join().expect("no panic"), "the schedule is another one");
    assert!(clock::mono().since(begun) < 30_000 * MS);
    assert_eq!(scheduler.now().interval, 100 * MS);
    // The same interval again is no change.
    let known = scheduler.now();
    scheduler.set_interval(100 * MS);
    assert_eq!(scheduler.now(), known);
    assert!(scheduler.sleep(known, known.base), "due");
}

#[test]
fn a_new_interval_makes_a_slow_role_read_every_time_again() {
    let mut r = role();
    r.adapt(600 * MS);
    assert_eq!(r.every, 2);
    assert!(!r.follow());
    r.scheduler.set_interval(10_000 * MS);
    assert!(r.follow());
    assert_eq!((r.every, r.schedule.interval), (1, 10_000 * MS));
    // Who waits for a reading far away reads soon.
    r.scheduler.set_interval(100 * MS);
    let k = r.wait(&mut [], 16);
    assert!((r.schedule.first..16).contains(&k), "{k}");
    assert_eq!(r.schedule.interval, 100 * MS);
}

fn role() -> RoleThread {
    let (reports, _) = channel();
    let (_, watched) = watch::channel(Arc::new(Interest::default()));
    let scheduler = Scheduler::new(Schedule::new(clock::mono(), 1000 * MS));
    RoleThread::new(Role::Files, scheduler, reports, watched)
}

#[test]
fn overloaded_roles_slow_down_and_recover() {
    let mut r = role();
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
