//! The built program on a pseudo-terminal: entry, keys, signals, and what it leaves behind.
//!
//! Screens are polled with a deadline; nothing here waits for a fixed time.
#![allow(clippy::disallowed_methods, reason = "deadlines of the tests' own")]

mod input;
mod limits;
mod progress;
mod signals;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use portable_pty::PtySize;
use rustix::process::{Pid, Signal};
use rustix::thread::{CapabilitySet, capabilities};
use stallscope::rights::{self, Duty};

use crate::support::files::{DEMO, Dir};
use crate::support::program::{refused, run};
use crate::support::skip;
use crate::support::terminal::{DEADLINE, Session};

#[test]
fn paints_takes_keys_and_leaves_a_summary() {
    let mut s = Session::start(36, 120, &[], &["--interval", "200ms"]);
    s.shows("1 Sockets");
    assert!(s.alternate());
    s.shows("LIVE 200ms");
    // Rates appear with the second tick.
    s.until("a sample of the disks", Session::has_aged_disks);
    s.keys("?");
    s.shows("go to the sockets");
    s.keys("\x1b");
    s.hides("go to the sockets");
    s.keys(" ");
    s.shows("FROZEN");
    s.keys(" ");
    s.shows("LIVE");
    s.keys("q");
    assert!(s.exit().success());
    s.assert_restored();
    s.shows("watched for");
    assert!(s.text().lines().count() <= 10);
}

/// A key is answered at once, not with the next tick.
#[test]
fn keys_do_not_wait_for_ticks() {
    let mut s = Session::start(36, 120, &[], &["--interval", "30s"]);
    s.until("a sample", |s| s.text().contains("netlink"));
    let begun = Instant::now();
    for _ in 0..3 {
        s.keys("?");
        s.shows("go to the sockets");
        s.keys("?");
        s.hides("go to the sockets");
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    s.keys("q");
    assert!(s.exit().success());
}

/// The next reading would come in a minute; with another interval it comes at once.
#[test]
fn the_interval_changes_while_it_runs() {
    let mut s = Session::start(36, 120, &[], &["--interval", "60s", "--no-bpf"]);
    s.shows("LIVE 60s");
    s.until("a sample", |s| s.text().contains("netlink"));
    s.keys(":interval 200ms\r").shows("LIVE 200ms");
    // Rates appear with the second tick.
    s.until("a sample of the disks", Session::has_aged_disks);
    s.keys("-").shows("LIVE 500ms");
    s.keys("+").shows("LIVE 200ms");
    s.keys(":interval 5h\r").shows("interval 5h: 100ms to 60s is expected");
    s.keys("q");
    assert!(s.exit().success());
    s.assert_restored();
}

#[test]
fn shrinks_to_nothing_and_grows_back() {
    let mut s = Session::start(24, 80, &[], &[]);
    s.shows("1 Sockets");
    for (rows, cols) in [(2, 20), (1, 1), (50, 160)] {
        s.screen.lock().unwrap().screen_mut().set_size(rows, cols);
        s.master.resize(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }).unwrap();
        if cols == 20 {
            s.until("the findings line", |s| s.text().trim_start().starts_with("no find"));
        }
    }
    s.shows("4 Run queue");
    s.keys("q");
    assert!(s.exit().success());
    s.assert_restored();
}

#[test]
fn signals_restore_the_terminal() {
    for sig in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut s = Session::start(24, 80, &[], &[]);
        s.shows("1 Sockets");
        s.signal(sig);
        assert_eq!(s.exit().exit_code(), 0, "{sig:?}");
        s.assert_restored();
    }
}

/// A terminal that does not read blocks `write(2)`, not the program.
#[test]
fn a_stalled_terminal_can_be_left() {
    let mut s = Session::start(50, 200, &[], &["--interval", "200ms"]);
    s.shows("1 Sockets");
    let stalled = s.stalled.clone();
    let stall = stalled.lock().unwrap();
    // Full repaints until the pty is full and the writing thread sleeps in the kernel.
    let screen = format!("/proc/{}/task", s.pid().as_raw_nonzero());
    let blocked = || {
        std::fs::read_dir(&screen).unwrap().flatten().any(|t| {
            let read = |f| std::fs::read_to_string(t.path().join(f)).unwrap_or_default();
            read("comm").trim() == "screen" && read("syscall").starts_with("1 ")
        })
    };
    let end = Instant::now() + DEADLINE;
    while !blocked() {
        assert!(Instant::now() < end, "the pty never fills");
        s.keys("\x0c");
        std::thread::sleep(Duration::from_millis(5));
    }
    s.signal(Signal::TERM);
    assert_eq!(s.exit().exit_code(), 0);
    drop(stall);
}

#[test]
fn ctrl_z_stops_and_continuing_paints_again() {
    let mut s = Session::start(24, 80, &[], &[]);
    s.shows("1 Sockets");
    for how in ["\x1a", "TSTP"] {
        if how == "TSTP" {
            s.signal(Signal::TSTP);
        } else {
            s.keys(how);
        }
        s.until("the stop", |s| Session::state(s.pid()) == 'T');
        s.until("the normal screen", |s| !s.alternate());
        s.signal(Signal::CONT);
        s.until("the alternate screen", Session::alternate);
        s.shows("1 Sockets");
    }
    s.keys("q");
    assert!(s.exit().success());
    s.assert_restored();
}

#[test]
fn without_colours_the_selection_is_still_seen() {
    let mut s = Session::start(24, 80, &[("NO_COLOR", "1")], &[]);
    s.keys("4");
    s.until("a list of threads", Session::lists_threads);
    s.until("an inverse row", |s| {
        let p = s.screen.lock().unwrap();
        let screen = p.screen();
        (0..24).any(|y| screen.cell(y, 10).is_some_and(vt100::Cell::inverse))
    });
    s.keys("q");
    assert!(s.exit().success());
    let colours = s.bytes.lock().unwrap();
    let text = String::from_utf8_lossy(&colours);
    assert!(!text.contains("\x1b[38;5;"), "colours in spite of NO_COLOR");
}

#[test]
fn a_dumb_terminal_gets_ascii() {
    let mut s = Session::start(24, 80, &[("TERM", "dumb")], &[]);
    s.shows("1 Sockets");
    s.shows("- 1 Sockets -");
    assert!(s.text().is_ascii());
    s.keys("q");
    assert!(s.exit().success());
}

#[test]
fn w_writes_a_file_and_says_where() {
    let dir = Dir::new();
    let mut s = Session::within(dir.path(), 24, 80, &[]);
    s.until("a sample", |s| s.text().contains("netlink"));
    s.keys("w");
    s.shows("written to ./stallscope-sockets-");
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(files.len(), 1);
    let text = std::fs::read_to_string(files[0].as_ref().unwrap().path()).unwrap();
    assert!(text.starts_with("stallscope sockets"));
    s.keys("q");
    assert!(s.exit().success());
}

/// `r` records what is in memory first; `r` again closes the file. Quitting closes one, too.
#[test]
fn r_records_and_closes() {
    use stallscope::recording::Reader;
    let dir = Dir::new();
    let mut s = Session::within(dir.path(), 36, 160, &["--interval", "200ms", "--no-bpf"]);
    let files = || {
        let all = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
        all.filter(|p| p.extension().is_some_and(|e| e == "stall")).collect::<Vec<_>>()
    };
    s.shows("watched for 1s");
    for n in 1..=2 {
        s.keys("r");
        s.shows("the last ");
        s.shows("REC ");
        s.keys(if n == 1 { "r" } else { "q" });
        if n == 1 {
            s.shows("recorded ");
            assert!(!s.text().contains("REC "), "{}", s.text());
        }
    }
    assert!(s.exit().success());
    s.assert_restored();
    s.shows(" ticks, ");
    let all = files();
    assert_eq!(all.len(), 2, "{all:?}");
    for f in all {
        let mut r = Reader::file(&f).unwrap();
        assert!(r.is_sealed());
        assert!(r.len() >= 5, "it begins before the key was pressed: {} ticks", r.len());
        let mut last = None;
        for i in 0..r.len() {
            let seq = r.tick(i).unwrap().seq.0;
            assert!(last.is_none_or(|l| seq == l + 1), "a tick is missing before {seq}");
            last = Some(seq);
        }
    }
}

#[test]
fn record_of_the_console_is_open_before_the_screen() {
    let dir = Dir::new();
    let file = dir.file("a.stall");
    let path = file.to_str().unwrap();
    let mut s = Session::start(24, 120, &[], &["--no-bpf", "--record", path]);
    s.shows("REC ");
    s.signal(Signal::TERM);
    assert_eq!(s.exit().exit_code(), 0);
    assert!(stallscope::recording::Reader::file(&file).unwrap().is_sealed());
    let mut s = Session::start(24, 120, &[], &["--record", path]);
    assert_eq!(s.exit().exit_code(), 3);
    s.shows("--append");
}

/// `m` marks what is being recorded; before and after it says how to record.
#[test]
fn m_marks_the_recording() {
    use stallscope::recording::{Event, Reader};
    let dir = Dir::new();
    let mut s = Session::within(dir.path(), 36, 160, &["--interval", "200ms", "--no-bpf"]);
    s.shows("watched for ");
    s.keys("m");
    s.shows("no recording in progress");
    s.keys("r");
    s.shows("REC ");
    s.keys("m");
    s.shows(" as console 1");
    s.keys("m");
    s.shows(" as console 2");
    // A mark is gone back to from a later tick.
    let clock = |s: &Session| {
        let text = s.text();
        text.lines().next().and_then(|l| l.split_whitespace().last()).map(str::to_owned)
    };
    let then = clock(&s);
    s.until("a later tick", |s| clock(s) != then);
    s.keys("(");
    s.shows("mark: console ");
    s.keys("q");
    assert!(s.exit().success());
    let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    let mut r = Reader::file(&file).unwrap();
    let marks = r.events().unwrap().list.into_iter().filter_map(|m| match m.event {
        Event::Mark { text } => Some((text, m.at)),
        _ => None,
    });
    let marks: Vec<_> = marks.collect();
    assert_eq!(marks.len(), 2);
    assert_eq!((marks[0].0.as_str(), marks[1].0.as_str()), ("console 1", "console 2"));
    assert!(marks[0].1.mono < marks[1].1.mono);
}

#[test]
fn y_copies_through_the_terminal() {
    let mut s = Session::start(24, 80, &[], &[]);
    s.until("a sample", |s| s.text().contains("netlink"));
    s.keys("4");
    s.until("a thread", Session::lists_threads);
    s.keys("y");
    s.shows("sent to the clipboard");
    s.until("OSC 52", |s| {
        let b = s.bytes.lock().unwrap();
        b.windows(5).any(|w| w == b"\x1b]52;")
    });
    s.keys("q");
    assert!(s.exit().success());
}

/// What is wrong with the capabilities of the threads of a process, by `rights::TABLE`; its main
/// thread does `main`, and threads of these names must be there.
fn beyond_their_duty(pid: Pid, main: Duty, must: &[&str]) -> Vec<String> {
    let had = capabilities(None).unwrap().permitted;
    let dir = format!("/proc/{}/task", pid.as_raw_nonzero());
    let mut wrong = Vec::new();
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let Ok(status) = std::fs::read(entry.path().join("status")) else { continue };
        let t = rights::held(&status).unwrap();
        let duty = match t.thread.as_str() {
            "stallscope" => main,
            "assemble" | "keys" | "screen" | "judge" | "ahead" => Duty::Figures,
            "recorder" => Duty::Recorder,
            "save" => Duty::Console,
            "read-hostsocket" => Duty::HostSockets,
            "read-netnswalke" => Duty::Namespaces,
            "read-files" => Duty::Counters,
            "read-tasks" => Duty::Tasks,
            "read-waits" => Duty::Waits,
            "read-mounts" => Duty::Mounts,
            "read-bpf" => Duty::ReadBpf,
            other => panic!("a thread that has no duty: {other}"),
        };
        let row = duty.row();
        let (held, all) = (had & row.held, had & (row.held | row.lent));
        // It loads a program of its own, and borrows rights for a moment ten times a second.
        let borrows =
            duty == Duty::Waits && all.contains(t.effective) && t.effective.contains(held);
        let effective = if borrows { held } else { t.effective };
        let sealed = t.bounding.is_empty() || !had.contains(CapabilitySet::SETPCAP);
        if (effective, t.permitted) != (held, all) || !sealed || t.no_new_privs != Some(true) {
            wrong.push(format!("{t:?}, not {held:?} and {all:?}"));
        }
        seen.push(t.thread);
    }
    wrong.extend(must.iter().filter(|m| !seen.iter().any(|s| s == *m)).map(|m| format!("no {m}")));
    wrong
}

fn assert_least_rights(s: &Session, main: Duty, must: &[&str]) {
    // Between its begin and its first act, which gives up the rest, a thread has the rights of the
    // one that began it.
    const BEGINS: Duration = Duration::from_secs(1);
    let end = Instant::now() + DEADLINE;
    let mut since: HashMap<String, Instant> = HashMap::new();
    loop {
        // The loader of kernel programs needs its rights until they are attached, those of its
        // fallback for two seconds more.
        let wrong = beyond_their_duty(s.pid(), main, must);
        since.retain(|w, _| wrong.contains(w));
        for w in &wrong {
            let seen = since.entry(w.clone()).or_insert_with(Instant::now);
            assert!(w.contains("read-bpf") || seen.elapsed() < BEGINS, "{wrong:#?}");
        }
        if wrong.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{wrong:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const READERS: [&str; 6] =
    ["read-hostsocket", "read-netnswalke", "read-files", "read-tasks", "read-bpf", "assemble"];

/// As root, each thread keeps what `rights::TABLE` says; as anybody else nothing, without an
/// error. From the first frame on, and whatever is begun later.
#[test]
fn threads_keep_only_the_rights_that_they_need() {
    let dir = Dir::new();
    let mut s = Session::within(dir.path(), 24, 100, &["--interval", "200ms"]);
    s.shows("1 Sockets");
    assert_least_rights(&s, Duty::Console, &[&READERS[..], &["screen"]].concat());
    s.keys("r");
    s.shows("REC ");
    assert_least_rights(&s, Duty::Console, &["recorder"]);
    s.keys("q");
    assert!(s.exit().success());

    let file = dir.file("a.stall");
    let mut s = Session::start(24, 100, &[], &["record", "-o", file.to_str().unwrap()]);
    s.shows(" ticks  ");
    assert_least_rights(&s, Duty::Figures, &[&READERS[..], &["recorder"]].concat());
    s.signal(Signal::TERM);
    assert!(s.exit().success());

    let mut s = Session::start(24, 100, &[], &["replay", DEMO]);
    s.shows("REPLAY");
    assert_least_rights(&s, Duty::Files, &["judge", "screen"]);
    s.keys("q");
    assert!(s.exit().success());
}

/// Root records in the home of whoever is logged in: a directory that root can write to by
/// DAC_OVERRIDE only.
#[test]
fn root_records_in_the_directory_of_another_user() {
    let dir = Dir::new();
    if std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).is_err() {
        skip("needs root");
        return;
    }
    let made = |start: &str, end: &str| {
        let all = std::fs::read_dir(dir.path()).unwrap().flatten();
        let name = |e: std::fs::DirEntry| e.file_name().into_string().unwrap();
        all.map(name).filter(|n| n.starts_with(start) && n.ends_with(end)).count()
    };
    let mut s = Session::within(dir.path(), 24, 160, &["--interval", "200ms", "--no-bpf"]);
    s.shows("watched for ");
    s.keys("r");
    s.shows("REC ");
    s.keys("w");
    s.until("the pane's text", |_| made("stallscope-", ".txt") == 1);
    s.keys("q");
    assert!(s.exit().success());
    assert_eq!(made("stallscope-", ".stall"), 1, "{}", s.text());
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    refused(&run::<&str>([]), 2, "stallscope check");
}
