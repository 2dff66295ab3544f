//! The pane of processes, and the page that says why one is slow.

use std::sync::Arc;

use stallscope::sample::cgroups::{CgroupCpu, CgroupPids, CgroupRow, CgroupsSample};
use stallscope::sample::limits::{LimitsSample, OpenFiles};
use stallscope::sample::processes::{BlockedTask, ProcessesSample};
use stallscope::sample::subject::{CgroupId, TaskId};
use stallscope::sample::tick::Tick;
use stallscope::sample::waits::{Futex, Sleep, ThreadWaits, WaitsSample};
use stallscope::ui::Theme;
use stallscope::view::build::shown;
use stallscope::view::panes::PaneId;
use stallscope::view::state::{Detail, Focus, RowKey};
use stallscope::view::vm::Size;

use crate::support::console::{Console, styled};
use crate::support::script::{Script, stamp};

const BIG: Size = Size::new(120, 36);
const CLASSIC: Size = Size::new(80, 24);
const SMALL: Size = Size::new(40, 12);

/// The process that is watched.
const JAVA: u32 = 2200;

/// Threads of a process with a hostile name: one of them waits for a mutex half of the time and runs
/// a quarter, one waits for a question, and one hangs in D.
fn watched(t: &mut Tick, n: u64) {
    let at = t.mono;
    let sleep = |state, wchan: &str, call: &str, samples| Sleep {
        state,
        wchan: Some(wchan.into()),
        syscall: Some(call.into()),
        samples,
        ..Sleep::default()
    };
    let thread = |tid, comm: &str, run_ns, sleeps| ThreadWaits {
        task: TaskId { pid: JAVA, tid, start: 1 },
        comm: comm.into(),
        cgroup: Some("/kube/pod7".into()),
        run_ns,
        run_delay_ns: Some(0),
        utime: n,
        samples: 10,
        sleeps,
        ..ThreadWaits::default()
    };
    let mutex = Sleep {
        futex: Some(Futex { op: 0x80, val: 2, ..Futex::default() }),
        ..sleep('S', "futex_wait_queue", "futex", 8)
    };
    t.samples.waits = Some(stamp(
        at,
        WaitsSample {
            threads: vec![
                thread(
                    2200,
                    "ja\x1b[2Jva",
                    n * 250_000_000,
                    vec![mutex, sleep('S', "ep_poll", "epoll_wait", 4)],
                ),
                thread(2299, "acceptor", 0, vec![sleep('S', "inet_csk_accept", "accept4", 10)]),
                thread(2300, "flusher", 0, vec![sleep('D', "jbd2_log_wait_commit", "fsync", 10)]),
            ],
            ..WaitsSample::default()
        },
    ));
    blocked(t, n);
}

/// The same in a cgroup with limits, one of which is that of the group above it.
fn limited(t: &mut Tick, n: u64) {
    watched(t, n);
    let at = t.mono;
    let files =
        OpenFiles { pid: JAVA, comm: "java".into(), open: 1013, soft: 1024, hard: Some(4096) };
    let limits =
        LimitsSample { counts_files: true, processes: vec![files], ..LimitsSample::default() };
    t.samples.limits = Some(stamp(at, limits));
    let cpu = |quota_us, used: f64| CgroupCpu {
        quota_us,
        period_us: 100_000,
        usage_ns: Some((n as f64 * used * 1e9) as u64),
        ..CgroupCpu::default()
    };
    let pod = CgroupRow {
        id: CgroupId(71),
        path: "/kube/pod7".into(),
        mount: "/sys/fs/cgroup".into(),
        cpu: Some(cpu(Some(100_000), 0.98)),
        memory_bytes: Some(500_000_000),
        memory_limit_bytes: Some(512_000_000),
        pids: Some(CgroupPids { current: 90, max: None, failures: None }),
        ..CgroupRow::default()
    };
    let kube = CgroupRow {
        id: CgroupId(70),
        path: "/kube".into(),
        cpu: Some(cpu(None, 1.0)),
        memory_limit_bytes: None,
        pids: Some(CgroupPids { current: 95, max: Some(100), failures: None }),
        ..pod.clone()
    };
    t.samples.cgroups = Some(stamp(at, CgroupsSample { groups: vec![kube, pod], unread: 0 }));
}

/// Nobody watches, but a thread in D is seen.
fn blocked(t: &mut Tick, _: u64) {
    let task = TaskId { pid: JAVA, tid: 2300, start: 1 };
    let row = BlockedTask {
        task,
        comm: "flusher".into(),
        wchan: Some("jbd2_log_wait_commit".into()),
        ..BlockedTask::default()
    };
    t.samples.processes =
        Some(stamp(t.mono, ProcessesSample { total: 90, blocked: vec![row], unread: 0 }));
}

fn console(change: fn(&mut Tick, u64), size: Size) -> Console {
    Console::after(Script { change, ..Script::three_faults() }, size, 60)
}

#[test]
fn the_pane_has_those_that_wait_first() {
    for size in [BIG, CLASSIC, SMALL] {
        let mut c = console(blocked, size);
        c.keys("6");
        assert_eq!(c.view.focus, Focus::Pane(PaneId::Processes));
        let screen = styled(&c.draw(Theme::default()));
        insta::assert_snapshot!(format!("processes@{}x{}", size.w, size.h), screen);
    }
}

#[test]
fn the_page_says_why_it_is_slow() {
    for size in [BIG, CLASSIC] {
        let mut c = console(watched, size);
        let screen = styled(&c.keys("6<enter>").draw(Theme::default()));
        assert!(!screen.contains('\x1b'), "a name is shown, not obeyed");
        insta::assert_snapshot!(format!("process@{}x{}", size.w, size.h), screen);
    }
}

#[test]
fn the_page_says_what_limits_it() {
    let mut c = console(limited, BIG);
    let text = c.keys("6<enter>").text();
    for says in [
        "open files    1013 of 1024, process 2200  99%",
        "CPU quota     0.98 of 1.00 cores, cgroup /kube/pod7  98%",
        "memory        500.0 MB of 512.0 MB, cgroup /kube/pod7  98%",
        "tasks         95 of 100, cgroup /kube  95%",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    // Without a reading, and on a kernel that counts no open files.
    let mut c = console(
        |t, n| {
            watched(t, n);
            t.samples.cgroups = None;
            t.samples.limits = Some(stamp(t.mono, LimitsSample::default()));
        },
        BIG,
    );
    let text = c.keys("6<enter>").text();
    for says in [
        "open files    n/a: this kernel does not count them (needs Linux 6.2)",
        "CPU quota     n/a: cgroup /kube/pod7 and 1 more were not read",
        "tasks         n/a: cgroup /kube/pod7 and 1 more were not read",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
}

/// A deadlocked process runs no thread, and is in no row.
#[test]
fn a_number_opens_the_page_of_a_process_that_is_in_no_row() {
    for typed in ["/4242<enter>", "/pid=4242<enter>"] {
        let mut c = console(blocked, BIG);
        let text = c.keys("6").keys(typed).text();
        assert!(
            text.contains("process 4242 neither ran nor waited: Enter opens its page"),
            "{text}"
        );
        c.keys("<enter>");
        assert_eq!(c.vm().watched, [4242]);
    }
    // Another one that is listed has the number in its name.
    let mut c = console(blocked, BIG);
    c.keys("6/220<enter><enter>");
    assert_eq!(c.vm().watched, [JAVA]);
    // What is no number names nobody.
    let mut c = console(blocked, BIG);
    c.keys("6/nobody<enter><enter>");
    assert!(c.vm().watched.is_empty());
}

/// A frame is drawn for every key.
#[test]
fn the_answer_is_worked_out_once_per_tick() {
    let mut c = console(watched, BIG);
    let study = |c: &Console| {
        let cx = shown(&c.analysis, &c.view).unwrap();
        c.view.studies.of(&cx, JAVA)
    };
    let first = study(&c);
    c.keys("6<enter>").text();
    assert!(Arc::ptr_eq(&first, &study(&c)));
    c.ticks(1);
    let second = study(&c);
    assert!(!Arc::ptr_eq(&first, &second));
    c.keys("[").text();
    assert!(!Arc::ptr_eq(&second, &study(&c)), "another moment");
}

#[test]
fn what_nobody_watched_is_told() {
    let mut c = console(blocked, BIG);
    insta::assert_snapshot!("process-unwatched@120x36", c.keys("6<enter>").text());
}

#[test]
fn only_the_process_of_the_open_page_is_watched() {
    let mut c = console(blocked, BIG);
    assert!(c.vm().watched.is_empty());
    c.keys("6");
    assert!(c.vm().watched.is_empty());
    c.keys("<enter>");
    assert_eq!(c.vm().watched, [JAVA]);
    c.keys("<esc>");
    assert!(c.vm().watched.is_empty());
}

/// From each pane and from a finding, one key leads to the process.
#[test]
fn one_key_leads_to_the_process() {
    let page = |keys: &str| {
        let mut c = console(watched, BIG);
        c.keys(keys);
        c.view.details.last().map(|d| d.what.clone())
    };
    let process = |pid| Some(Detail::Row(RowKey::Process(pid)));
    assert_eq!(page("6p"), process(JAVA));
    assert_eq!(page("4p"), process(JAVA));
    assert_eq!(page("4<enter>p"), process(JAVA));
    // The page of a process leads to no other one.
    assert_eq!(page("4pp"), process(JAVA));
    // Whom a finding names.
    assert_eq!(page("fp"), process(7));
    // Who owns the socket; who used most of the CPU.
    assert_eq!(page("1p"), process(2214));
    assert!(matches!(page("3p"), Some(Detail::Row(RowKey::Process(_)))));
    // A disk belongs to nobody.
    let mut c = console(watched, BIG);
    c.keys("2p");
    assert!(c.view.details.is_empty() && c.text().contains("no process is known here"));
}

#[test]
fn a_process_that_ended_is_told() {
    fn gone(t: &mut Tick, _: u64) {
        let data = WaitsSample { gone: vec![7], ..WaitsSample::default() };
        t.samples.waits = Some(stamp(t.mono, data));
    }
    let mut c = console(gone, BIG);
    let text = c.keys("fp").text();
    assert!(text.contains("It has ended, or cannot be read."), "{text}");
}
