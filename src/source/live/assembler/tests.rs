//! Ticks from scripted reports.

use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::super::{MORE_THREADS, Obituary};
use super::*;

fn assembler() -> (Sender<Report>, mpsc::Receiver<Event>, Assembler) {
    let (reports, inbox) = channel();
    let (out, events) = mpsc::channel(2);
    let schedule = Schedule::new(clock::mono(), Duration::from_millis(100));
    (reports, events, Assembler::new(Scheduler::new(schedule), inbox, out))
}

fn opened(role: Role, on: &[CollectorId]) -> Report {
    Report::Opened { role, off: Vec::new(), on: on.to_vec() }
}

fn read(role: Role, failed: &[CollectorId]) -> Report {
    let mut samples = Samples::default();
    if failed.is_empty() && role == Role::Files {
        samples.psi = Some(Arc::new(crate::sample::Stamped {
            span: crate::sample::time::Span::at(MonoNs(1)),
            cpu: Duration::ZERO,
            data: crate::sample::psi::PsiSample::default(),
        }));
    }
    let failed = failed.iter().map(|id| (*id, "no such file".to_owned())).collect();
    Report::Read {
        role,
        samples,
        failed,
        signals: vec![(CollectorId::Psi, Vec::new())],
        every: 1,
        next: 0,
    }
}

fn tick(events: &mut mpsc::Receiver<Event>) -> Arc<Tick> {
    match events.try_recv() {
        Ok(Event::Tick(t)) => t,
        other => panic!("no tick: {other:?}"),
    }
}

fn state(t: &Tick, id: CollectorId) -> &HealthState {
    &t.health.iter().find(|h| h.id == id).expect("listed").state
}

/// The tick goes out at its grace time without the role that hangs, and the next one does
/// not wait for it at all.
#[test]
fn a_role_that_hangs_is_late_and_holds_nobody_up() {
    let (_keep, mut events, mut a) = assembler();
    for r in [Role::HostSockets, Role::NetnsWalker, Role::Bpf, Role::Waits] {
        a.take(opened(r, &[]));
    }
    a.take(opened(Role::Files, &[CollectorId::Psi]));
    a.take(opened(Role::Tasks, &[CollectorId::Sched]));
    a.take(read(Role::Files, &[]));
    assert_eq!(a.waiting_for(), [Role::Tasks]);
    assert!(a.gather(clock::mono()), "the grace time has passed");
    assert!(a.emit(a.base));
    let t = tick(&mut events);
    assert_eq!(state(&t, CollectorId::Psi), &HealthState::Fresh);
    assert!(matches!(state(&t, CollectorId::Sched), HealthState::Late { .. }));
    a.take(read(Role::Files, &[]));
    assert!(a.waiting_for().is_empty(), "nobody waits for it again");
    a.take(read(Role::Tasks, &[]));
    assert!(a.late.is_empty(), "it reported: it counts again");
}

/// A thread that the system refused, or that panicked, is a collector that is off: nobody
/// waits for it, and it is named with a reason.
#[test]
fn a_role_without_a_thread_is_off_and_nobody_waits_for_it() {
    let (reports, mut events, mut a) = assembler();
    for r in [Role::HostSockets, Role::NetnsWalker, Role::Tasks, Role::Waits] {
        a.take(opened(r, &[]));
    }
    a.take(opened(Role::Files, &[CollectorId::Psi]));
    let (reason, remedy) = ("cannot start its thread".to_owned(), MORE_THREADS);
    a.take(Report::Gone { role: Role::Bpf, reason, remedy });
    a.take(read(Role::Files, &[]));
    assert!(a.waiting_for().is_empty());
    assert!(a.emit(a.base));
    let t = tick(&mut events);
    for id in [CollectorId::RunqBpf, CollectorId::BlockBpf] {
        assert!(matches!(state(&t, id), HealthState::Off { remedy, .. } if remedy == MORE_THREADS));
    }
    // The same for one that dies while it reads.
    let (role, reader) = (Role::Files, reports.clone());
    let died = thread::spawn(move || {
        let _obituary = Obituary { role, reports: reader };
        panic!("on purpose");
    });
    assert!(died.join().is_err());
    assert!(a.gather(clock::mono()));
    assert!(a.emit(a.base));
    assert!(matches!(
        state(&tick(&mut events), CollectorId::Psi),
        HealthState::Off { reason, .. } if reason.contains("failed")
    ));
}

/// Loading kernel programs can take longer than a tick: until then they are late, not
/// forgotten.
#[test]
fn a_role_that_has_not_opened_is_late() {
    let (_keep, mut events, mut a) = assembler();
    a.take(opened(Role::Files, &[CollectorId::Psi]));
    a.take(read(Role::Files, &[]));
    assert!(a.emit(a.base));
    let t = tick(&mut events);
    assert_eq!(t.health.len(), CollectorId::ALL.len());
    assert!(matches!(state(&t, CollectorId::RunqBpf), HealthState::Late { .. }));
}

#[test]
fn a_failed_reading_is_named_and_a_slow_consumer_finds_the_gap() {
    let (_keep, mut events, mut a) = assembler();
    a.take(opened(Role::Files, &[CollectorId::Psi]));
    a.take(read(Role::Files, &[CollectorId::Psi]));
    for _ in 0..5 {
        assert!(a.emit(a.base), "a full queue is no end");
    }
    let first = tick(&mut events);
    assert!(
        matches!(state(&first, CollectorId::Psi), HealthState::Failed { error } if error == "no such file")
    );
    assert_eq!(tick(&mut events).gap, None);
    assert!(a.emit(a.base));
    let after = tick(&mut events);
    assert_eq!(after.gap, Some(Gap { ticks: 3 }));
    assert_eq!(after.seq, Seq(2), "numbers have no holes; the gap says what is missing");
    drop(events);
    assert!(!a.emit(a.base), "nobody listens: stop");
}

/// A tick that comes late stands for the deadlines that passed meanwhile, and says so.
#[test]
fn deadlines_that_passed_are_a_gap() {
    let (_keep, mut events, mut a) = assembler();
    let ms = |n: u64| Duration::from_millis(n);
    let mut gap = |after: u64| {
        assert!(a.emit(a.base + ms(after)));
        tick(&mut events).gap.map_or(0, |g| g.ticks)
    };
    assert_eq!(gap(170), 0, "before the first tick nothing is missing");
    assert_eq!(gap(200), 0);
    assert_eq!(gap(399), 0, "late, but within its interval");
    assert_eq!(gap(400), 0);
    assert_eq!(gap(780), 2, "500 and 600; 700 is the late one");
    assert_eq!(gap(800), 0);
    assert_eq!(gap(60_800), 599);
}

/// What was missed before a tick that found no room is missing all the same.
#[test]
fn a_lost_tick_leaves_its_gap_behind() {
    let (_keep, mut events, mut a) = assembler();
    for after in [0, 100, 400, 500] {
        assert!(a.emit(a.base + Duration::from_millis(after)));
    }
    assert_eq!((tick(&mut events).gap, tick(&mut events).gap), (None, None));
    assert!(a.emit(a.base + Duration::from_millis(600)));
    assert_eq!(tick(&mut events).gap, Some(Gap { ticks: 4 }), "200, 300, 400 and 500");
}

/// What was planned at the interval before is neither waited for nor missed.
#[test]
fn a_change_of_the_interval_is_no_gap_and_calls_everybody() {
    let (_keep, mut events, mut a) = assembler();
    for r in ROLES {
        let on = [CollectorId::Psi];
        a.take(opened(r, if r == Role::Files { &on[..] } else { &[] }));
    }
    let mut thinned = read(Role::Files, &[]);
    if let Report::Read { every, next, .. } = &mut thinned {
        (*every, *next) = (4, 4);
    }
    a.take(thinned);
    assert!(a.emit(a.base));
    a.k = 1;
    assert!(a.waiting_for().is_empty(), "it reads every fourth time");
    a.scheduler.set_interval(Duration::from_secs(60));
    a.follow();
    a.k = a.schedule.first;
    assert_eq!(a.waiting_for(), [Role::Files]);
    a.take(read(Role::Files, &[]));
    // Many of the deadlines that there were before.
    assert!(a.emit(a.base + Duration::from_secs(50)));
    assert_eq!((tick(&mut events).gap, tick(&mut events).gap), (None, None));
    assert!(a.emit(a.schedule.deadline(a.k + 3)));
    assert_eq!(tick(&mut events).gap, Some(Gap { ticks: 3 }), "from here on it counts again");
}
