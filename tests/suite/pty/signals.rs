//! Signals: every one that kills gives the terminal back first; those that the shell ignores for
//! us stay ignored; USR1 is a mark.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::process::Signal;
use rustix::termios::{LocalModes, tcgetattr};
use stallscope::recording::{Event, Reader};

use crate::support::files::Dir;
use crate::support::terminal::{Session, shell};

/// Does the terminal hand over lines, as a shell wants it?
fn takes_lines(s: &Session) -> bool {
    let path = s.master.tty_name().unwrap();
    let tty = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let modes = tcgetattr(tty.as_fd()).unwrap().local_modes;
    modes.contains(LocalModes::ICANON | LocalModes::ECHO)
}

#[test]
fn every_signal_that_kills_gives_the_terminal_back_first() {
    let fatal = [
        (Signal::QUIT, "Quit"),
        (Signal::USR2, "User defined signal 2"),
        (Signal::ALARM, "Alarm clock"),
        (Signal::VTALARM, "Virtual timer expired"),
        (Signal::PROF, "Profiling timer expired"),
        (Signal::XCPU, "CPU time limit exceeded"),
        (Signal::ABORT, "Aborted"),
        (Signal::SEGV, "Segmentation fault"),
        (Signal::BUS, "Bus error"),
        (Signal::ILL, "Illegal instruction"),
        (Signal::FPE, "Floating point exception"),
        (Signal::SYS, "Bad system call"),
        (Signal::TRAP, "Trace/breakpoint trap"),
    ];
    for (signal, name) in fatal {
        let mut s = Session::spawn(24, 80, &[], shell(":", "--no-bpf"));
        s.shows("1 Sockets");
        assert!(!takes_lines(&s), "the console reads keys, not lines");
        s.signal(signal);
        let end = s.exit();
        assert_eq!(end.signal(), Some(name), "the shell must see what it died of");
        s.assert_restored();
        assert!(takes_lines(&s), "raw mode is left after {name}");
    }
}

/// What was ignored when we started stays ignored: nohup, `trap ''`, a job of a script.
#[test]
fn signals_that_were_ignored_stay_ignored() {
    for (name, signal) in
        [("HUP", Signal::HUP), ("INT", Signal::INT), ("QUIT", Signal::QUIT), ("USR2", Signal::USR2)]
    {
        let before = format!("trap '' {name}");
        let mut s = Session::spawn(30, 120, &[], shell(&before, "--no-bpf"));
        s.shows("1 Sockets");
        s.signal(signal);
        s.keys("?");
        s.shows("go to the sockets");
        s.keys("?");
        s.keys("q");
        assert!(s.exit().success(), "{name}");
        s.assert_restored();
    }
}

/// USR1 marks what the console records, as it does for `record`; without a recording it says so.
#[test]
fn usr1_is_a_mark() {
    let dir = Dir::new();
    let mut cmd = shell(":", "--no-bpf --interval 200ms");
    cmd.cwd(dir.path());
    let mut s = Session::spawn(36, 160, &[], cmd);
    s.until("a sample", |s| s.text().contains("netlink"));
    s.signal(Signal::USR1);
    s.shows("no recording in progress");
    s.keys("r");
    s.shows("REC ");
    s.signal(Signal::USR1);
    s.shows(" as SIGUSR1");
    s.keys("q");
    assert!(s.exit().success());
    let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    assert_eq!(marks(&file), ["SIGUSR1"]);
}

/// The same of `check --record`.
#[test]
fn usr1_is_a_mark_in_check() {
    let dir = Dir::new();
    let file = dir.file("a.stall");
    let mut cmd = shell(":", "check --no-bpf --interval 200ms --duration 60s --record a.stall");
    cmd.cwd(dir.path());
    let mut s = Session::spawn(24, 80, &[], cmd);
    s.until("a recorded tick", |_| Reader::file(&file).is_ok_and(|r| !r.is_empty()));
    s.signal(Signal::USR1);
    s.until("a mark", |_| Reader::file(&file).is_ok() && !marks(&file).is_empty());
    s.signal(Signal::INT);
    assert_eq!(s.exit().signal(), None);
    assert_eq!(marks(&file), ["SIGUSR1"]);
}

fn marks(file: &Path) -> Vec<String> {
    let events = Reader::file(file).unwrap().events().unwrap().list;
    let mark = |r| match r {
        Event::Mark { text } => Some(text),
        _ => None,
    };
    events.into_iter().filter_map(|m| mark(m.event)).collect()
}
