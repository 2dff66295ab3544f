//! Answers from made-up accounts.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::diagnose::Findings;
use crate::metrics::waits::{Part, ThreadFigures, WaitFigures};
use crate::sample::time::WallNs;

fn place(wchan: &str, syscall: &str, file: Option<(&str, u64)>) -> Place {
    let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
    Place {
        wchan: some(wchan),
        syscall: some(syscall),
        inode: file.map(|f| f.1).filter(|i| *i != 0),
        file: file.map(|f| f.0.to_owned()),
        mutex: None,
        may_be_condition: false,
        holder: None,
    }
}

fn thread(tid: u32, comm: &str, parts: &[(Class, Option<Place>, u64)]) -> ThreadFigures {
    let part = |(class, place, ms): &(Class, Option<Place>, u64)| Part {
        class: *class,
        place: place.clone(),
        time: Duration::from_millis(*ms),
    };
    ThreadFigures {
        task: TaskId { pid: 700, tid, start: 1 },
        comm: comm.into(),
        dt: Duration::from_millis(parts.iter().map(|p| p.2).sum()),
        samples: 50,
        parts: parts.iter().map(part).collect(),
        ..ThreadFigures::default()
    }
}

/// With nothing else known.
fn told(account: &Account) -> Answer {
    let findings = Findings::default();
    let time = WallNs(0)..=WallNs(0);
    Answer::of(account, &Known { findings: &findings, time, tables: Vec::new(), window: None })
}

fn answer(threads: Vec<ThreadFigures>) -> Answer {
    let mut account = Account::default();
    let _ = account.push(&WaitFigures { threads, ..WaitFigures::default() }, |_| true);
    told(&account)
}

#[test]
fn one_thread_that_waits_for_a_disk() {
    let wal = place("jbd2_log_wait_commit", "fsync", Some(("/var/lib/db/wal", 0)));
    let a = answer(vec![thread(
        700,
        "db",
        &[(Class::User, None, 500), (Class::Disk, Some(wal), 4000), (Class::Idle, None, 500)],
    )]);
    assert_eq!(
        a.conclusion,
        "db/700 waits for a disk for 89% of the time that it is not idle: fsync of \
         /var/lib/db/wal (jbd2_log_wait_commit)."
    );
    assert_eq!(a.share(a.time_of(Class::Disk)), 0.8);
    assert_eq!(a.next, ["grep . /proc/700/io; iostat -x 1 3"]);
}

#[test]
fn a_pool_of_idle_threads_does_not_hide_the_one_that_waits() {
    let poll = || Some(place("ep_poll", "epoll_wait", Some(("[eventpoll]", 0))));
    let mut all: Vec<ThreadFigures> =
        (1..=7).map(|i| thread(700 + i, "pool", &[(Class::Idle, poll(), 5000)])).collect();
    let lock = place("futex_wait_queue", "futex", None);
    all.push(thread(708, "worker", &[(Class::Lock, Some(lock), 4000), (Class::User, None, 1000)]));
    let a = answer(all);
    assert_eq!(
        a.conclusion,
        "pool/700 waits for a lock for 80% of the time that its 8 threads are not idle: futex \
         (futex_wait_queue)."
    );
    assert_eq!(a.worst[0].task.tid, 708);
    assert_eq!(a.worst[0].what, "futex (futex_wait_queue)");
}

/// Its idle threads are not recorded: that is no answer about all of it.
#[test]
fn of_a_process_that_nobody_asked_about_some_is_missing() {
    let lock = place("futex_wait_queue", "futex", None);
    let threads = vec![thread(708, "worker", &[(Class::Lock, Some(lock), 5000)])];
    let of = |asked: &[u32]| {
        let (threads, asked) = (threads.clone(), asked.to_vec());
        let figures = WaitFigures { threads, asked, everyone: true, ..WaitFigures::default() };
        let mut account = Account::default();
        let _ = account.push(&figures, |_| true);
        let findings = Findings::default();
        Answer::of(
            &account,
            &Known {
                findings: &findings,
                time: WallNs(0)..=WallNs(0),
                tables: Vec::new(),
                window: None,
            },
        )
        .missing
    };
    assert!(of(&[700]).is_empty());
    assert_eq!(of(&[]), ["its threads that are idle: nobody asked about it at the time"]);
}

#[test]
fn who_waits_for_work_is_idle() {
    let poll = place("ep_poll", "epoll_wait", Some(("[eventpoll]", 0)));
    let a = answer(vec![thread(
        700,
        "nginx",
        &[(Class::Idle, Some(poll), 4980), (Class::User, None, 20)],
    )]);
    assert_eq!(a.conclusion, "nginx/700 is idle: for 99% of the time it waits for work to come.");
    assert!(a.next.len() <= 1 && a.findings.is_empty());
}

#[test]
fn few_samples_and_hidden_functions_are_said() {
    let mut t = thread(700, "x", &[(Class::Other, Some(place("", "", None)), 1000)]);
    t.samples = 7;
    let a = answer(vec![t]);
    assert_eq!(a.conclusion, "What x/700 sleeps in for 100% of the time could not be read.");
    assert_eq!(a.missing.len(), 2, "{:?}", a.missing);
    assert!(a.missing[0].contains("7 samples per thread"), "{:?}", a.missing);
    assert!(a.missing[1].contains("not readable"), "{:?}", a.missing);
}

#[test]
fn nothing_seen_is_not_idle() {
    let a = answer(Vec::new());
    assert!(a.conclusion.contains("not seen for long enough"), "{}", a.conclusion);
}

/// The first ticks have no `tcp_info` of the socket.
#[test]
fn what_is_known_later_holds_for_the_same_socket_before() {
    let recv = || Some(place("sk_wait_data", "recvfrom", Some(("socket", 7))));
    let other = || Some(place("sk_wait_data", "recvfrom", Some(("socket", 8))));
    let mut account = Account::default();
    for (class, place) in [
        (Class::Other, recv()),
        (Class::Other, other()),
        (Class::Network, recv()),
        (Class::Network, recv()),
    ] {
        let threads = vec![thread(700, "x", &[(class, place, 1000)])];
        let _ = account.push(&WaitFigures { threads, ..WaitFigures::default() }, |_| true);
    }
    let a = told(&account);
    assert_eq!(a.time_of(Class::Network), Duration::from_secs(3));
    assert_eq!(a.time_of(Class::Other), Duration::from_secs(1), "another socket");
}

/// It is gone, and who has its number now was not seen: what is looked up by that number is nobody's.
#[test]
fn a_process_that_is_gone_has_no_limits() {
    let mut account = Account::default();
    let threads = vec![thread(700, "sleep", &[(Class::Idle, None, 1000)])];
    let gone = vec![700];
    account.push(&WaitFigures { threads, gone, ..WaitFigures::default() }, |_| true);
    let a = told(&account);
    assert!(a.conclusion.ends_with(" It has ended, or cannot be read any more."), "{a:?}");
    let why = "what its limits were: it cannot be read any more";
    assert!(a.limits.is_empty() && a.missing.iter().any(|m| m == why), "{:?}", a.missing);
}

/// A process ends, and another one gets its number: they are two, whoever is meant.
#[test]
fn a_process_that_has_the_number_of_another_one_is_not_that_one() {
    let began = |tid, comm: &str, class, start| {
        let t = thread(tid, comm, &[(class, None, 1000)]);
        ThreadFigures { task: TaskId { start, ..t.task }, ..t }
    };
    let ticks = [
        vec![began(700, "sleep", Class::Idle, 5), began(701, "worker", Class::Disk, 6)],
        vec![began(700, "sh", Class::User, 9), began(702, "its own", Class::User, 10)],
        vec![began(700, "sh", Class::User, 9)],
    ];
    let watch = |meant| {
        let mut account = Account::of(meant);
        let there: Vec<bool> = ticks
            .iter()
            .map(|threads| {
                let figures = WaitFigures { threads: threads.clone(), ..WaitFigures::default() };
                account.push(&figures, |_| true)
            })
            .collect();
        let mut names: Vec<String> = account.threads().map(|t| t.comm.clone()).collect();
        names.sort();
        (there, names, account)
    };
    let (there, names, account) = watch(Meant::First);
    assert_eq!((there, names), (vec![true, false, false], vec!["sleep".into(), "worker".into()]));
    assert_eq!(account.successor(700), Some("sh"));
    let a = told(&account);
    let said = " It has ended; pid 700 is another process now, sh.";
    assert!(a.conclusion.ends_with(said), "{}", a.conclusion);
    assert!(a.missing.iter().any(|m| m == "what its limits were: it has ended"), "{:?}", a.missing);
    assert_eq!(a.next, ["stallscope why 700  # the process that has the pid now"]);
    let (there, names, account) = watch(Meant::Last);
    assert_eq!((there, names), (vec![true; 3], vec!["its own".into(), "sh".into()]));
    assert_eq!(account.successor(700), None);
}
