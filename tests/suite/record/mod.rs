//! The real recorder: killed, refused, stalled, piped, signalled. What it wrote is read back
//! with the library. Needs no root; a full disk is in the lab.

mod flight;
mod kill;
mod targets;

use std::io::Write;
use std::os::fd::AsFd;
use std::process::Stdio;

use rustix::process::Signal;
use stallscope::recording::Event;

use crate::support::files::Dir;
use crate::support::program::{after, json, program, stderr};
use crate::support::recorder::{Running, ms, pause, read, record};

/// TERM, INT and HUP close the file; USR1 puts a mark into it.
#[test]
fn signals_close_the_file_and_mark_it() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let dir = Dir::new();
        let mut r = record(&dir.file("a.stall"), &["--interval", "100ms"]);
        r.wait_for_ticks(2);
        r.signal(Signal::USR1);
        let marked = r.ticks() + 2;
        r.wait_for_ticks(marked);
        r.signal(signal);
        assert_eq!(r.end(), (Some(0), String::new()), "{signal:?}");
        let seen = read(&dir.file("a.stall"));
        assert!(seen.sealed, "{signal:?}");
        let marks = seen.events.iter().filter(|r| matches!(r, Event::Mark { .. })).count();
        assert_eq!(marks, 1);
    }
}

/// What `nohup` does.
#[test]
fn an_ignored_hangup_stays_ignored() {
    let dir = Dir::new();
    let path = dir.file("a.stall");
    let args = ["record", "--interval", "100ms", "--no-bpf", "--netns", "self", "-o"];
    let mut c = after("trap '' HUP", &args);
    c.arg(&path);
    let mut r = Running::start(c, &path);
    r.wait_for_ticks(1);
    r.signal(Signal::HUP);
    let more = r.ticks() + 3;
    r.wait_for_ticks(more);
    r.signal(Signal::TERM);
    assert_eq!(r.end().0, Some(0));
}

#[test]
fn a_duration_ends_it() {
    let dir = Dir::new();
    let args = ["--interval", "100ms", "--duration", "1s"];
    let mut r = record(&dir.file("a.stall"), &args);
    assert_eq!(r.end(), (Some(0), String::new()));
    let seen = read(&dir.file("a.stall"));
    // It ends with the first tick that is one second away from the first one, give or take half
    // an interval; on a busy box both come off the beat.
    let span = seen.span();
    assert!(span >= ms(950), "{span:?}");
    let until_last = seen.ticks[seen.ticks.len() - 2].mono.since(seen.ticks[0].mono);
    assert!(until_last < ms(950), "{until_last:?}");
    seen.every_beat_is_accounted_for(ms(100));
}

/// A pipe gives the same bytes as a file would, closed at the end.
#[test]
fn a_pipe_is_a_recording() {
    let o = program()
        .args(["record", "-o", "-", "--duration", "1s", "--interval", "100ms", "--no-bpf"])
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!((o.status.code(), stderr(&o)), (Some(0), String::new()));
    let dir = Dir::new();
    std::fs::write(dir.file("a.stall"), &o.stdout).unwrap();
    let seen = read(&dir.file("a.stall"));
    assert!(seen.sealed && seen.damage == 0);
    assert!(seen.span() >= ms(950), "{:?}", seen.span());
    seen.every_beat_is_accounted_for(ms(100));
}

/// Into a file by the shell: `>` and, behind something else, `>>`.
#[test]
fn standard_output_may_be_a_file() {
    let dir = Dir::new();
    for before in ["", "before"] {
        let path = dir.file(&format!("out{before}"));
        std::fs::write(&path, before).unwrap();
        let out = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        let args = ["record", "-o", "-", "--duration", "1s", "--interval", "200ms", "--no-bpf"];
        let o = program().args(args).stdout(out).output().unwrap();
        assert_eq!((o.status.code(), stderr(&o)), (Some(0), String::new()));
        let bytes = std::fs::read(&path).unwrap();
        let copy = dir.file("copy");
        std::fs::write(&copy, bytes.strip_prefix(before.as_bytes()).unwrap()).unwrap();
        let seen = read(&copy);
        assert!(seen.sealed && seen.span() >= ms(900), "{before}");
        seen.every_beat_is_accounted_for(ms(200));
    }
}

/// `stallscope record -o - | head -c 100`
#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let mut child = program()
        .args(["record", "-o", "-", "--interval", "100ms", "--no-bpf"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let o = child.wait_with_output().unwrap();
    assert_eq!((o.status.code(), stderr(&o)), (Some(0), String::new()));
}

/// The reader takes nothing for two seconds: ticks go on as if nothing was, and all of them
/// are in the recording, for they fit into the queue.
#[test]
fn a_stalled_write_delays_no_tick() {
    let dir = Dir::new();
    let fifo = dir.fifo("fifo");
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    let pipe = rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).unwrap();
    rustix::pipe::fcntl_setpipe_size(&pipe, 4096).unwrap();
    let mut r = record(&fifo, &["--interval", "100ms", "--duration", "4s"]);
    let mut ready = [rustix::event::PollFd::new(&pipe, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ready, None).unwrap();
    // The length of the fault, not a hope: the 4 KiB are full with the first tick.
    pause(std::time::Duration::from_secs(2));
    rustix::io::ioctl_fionbio(pipe.as_fd(), false).unwrap();
    let mut copy = std::fs::File::create(dir.file("copy")).unwrap();
    std::io::copy(&mut std::fs::File::from(pipe), &mut copy).unwrap();
    copy.flush().unwrap();
    assert_eq!(r.end(), (Some(0), String::new()));
    let seen = read(&dir.file("copy"));
    let gaps_only = seen.events.iter().all(|r| matches!(r, Event::Gap { .. }));
    assert!(seen.sealed && gaps_only, "{:?}", seen.events);
    assert!(seen.span() >= ms(3950), "{:?}", seen.span());
    seen.every_beat_is_accounted_for(ms(100));
    let steps = seen.ticks.windows(2).map(|w| w[1].mono.since(w[0].mono).as_millis());
    let worst = steps.max().unwrap();
    assert!(worst < 1000, "a tick came {worst} ms after the one before");
}

/// Somebody deletes the file: what comes after is in a new one of the same name.
#[test]
fn a_deleted_file_is_begun_anew() {
    let dir = Dir::new();
    let path = dir.file("a.stall");
    let mut r = record(&path, &["--interval", "200ms"]);
    r.wait_for_ticks(2);
    std::fs::remove_file(&path).unwrap();
    r.wait_for_ticks(2);
    r.signal(Signal::TERM);
    let (code, err) = r.end();
    assert_eq!(code, Some(0));
    assert!(err.contains("deleted") && err.lines().count() == 1, "{err}");
    assert!(read(&path).sealed);
}

#[test]
fn check_records_beside_its_report() {
    let dir = Dir::new();
    let path = dir.file("a.stall");
    let check = |extra: &[&str]| {
        let args = ["check", "--duration", "1s", "--interval", "200ms", "--format", "json"];
        let mut c = program();
        c.args(args).args(["--no-bpf", "--record"]).arg(&path).args(extra);
        c.output().unwrap()
    };
    let o = check(&[]);
    let v = json(&o);
    let seen = read(&path);
    assert!(seen.sealed);
    assert_eq!(v["ticks"], seen.ticks.len());
    let again = check(&[]);
    assert_eq!((again.status.code(), again.stdout.len()), (Some(3), 0));
    assert!(stderr(&again).contains("--append"), "{}", stderr(&again));
    assert!(matches!(check(&["--append"]).status.code(), Some(0 | 1)));
    assert_eq!(read(&path).segments, 2);
    let o = program().args(["check", "--record", "-"]).output().unwrap();
    assert_eq!(o.status.code(), Some(2));
}
