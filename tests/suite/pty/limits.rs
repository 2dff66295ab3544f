//! A limit on the size of files (`ulimit -f`) is a full disk: nothing is killed, no report is
//! lost, nothing partial is left.

use std::fs::File;
use std::path::Path;
use std::process::Output;

use stallscope::recording::Reader;

use crate::support::files::{Dir, GOLDEN};
use crate::support::program::{after, refused, stderr, stdout};
use crate::support::terminal::{Session, shell};

/// Blocks of 512 bytes, in bash 1 KiB: room for some ticks, not for those of a few seconds.
const SOME_ROOM: &str = "ulimit -f 40";
const NO_ROOM: &str = "ulimit -f 0";

#[test]
fn a_file_size_limit_pauses_the_recording_of_the_console() {
    let dir = Dir::new();
    let mut cmd = shell(SOME_ROOM, "--no-bpf --interval 100ms --record a.stall");
    cmd.cwd(dir.path());
    let mut s = Session::spawn(30, 160, &[], cmd);
    s.shows("REC PAUSED file size limit");
    s.keys("q");
    assert!(s.exit().success());
    s.assert_restored();
    let file = dir.file("a.stall");
    let mut r = Reader::file(&file).unwrap();
    assert!(!r.is_empty(), "what fitted is there");
    for i in 0..r.len() {
        r.tick(i).unwrap();
    }
    assert_eq!(r.damage().count(), 0, "it ends with a whole block");
}

/// Runs a command under a limit, in a directory.
fn limited(limit: &str, dir: &Path, args: &[&str]) -> Output {
    after(limit, args).current_dir(dir).output().unwrap()
}

#[test]
fn a_file_size_limit_costs_check_no_report() {
    let dir = Dir::new();
    let args =
        ["check", "--no-bpf", "--duration", "2s", "--interval", "200ms", "--record", "a.stall"];
    let out = limited("ulimit -f 8", dir.path(), &args);
    assert!(stdout(&out).starts_with("stallscope check"), "{}", stdout(&out));
    let says = stderr(&out);
    assert_eq!(out.status.code(), Some(3), "{says}");
    assert_eq!(says.lines().count(), 1, "{says}");
    assert!(says.contains("a.stall: file size limit reached (ulimit -f); "), "{says}");
    assert!(says.contains("ticks are not in the recording"), "{says}");
}

/// The same of `record`, whose whole purpose is the file.
#[test]
fn a_file_size_limit_is_told_by_record() {
    let dir = Dir::new();
    let args = ["record", "--no-bpf", "--duration", "2s", "--interval", "200ms", "-o", "a.stall"];
    let out = limited("ulimit -f 8", dir.path(), &args);
    let says = stderr(&out);
    assert_eq!(out.status.code(), Some(3), "{says}");
    assert!(says.contains("file size limit reached (ulimit -f); recording is paused"), "{says}");
}

/// It is one of each file: who lets the recorder begin new ones loses nothing.
#[test]
fn a_file_size_limit_begins_a_new_part() {
    let dir = Dir::new();
    let args = [
        "record",
        "--no-bpf",
        "--duration",
        "6s",
        "--interval",
        "100ms",
        "--rotate",
        "10M",
        "-o",
        "a.stall",
    ];
    let out = limited(SOME_ROOM, dir.path(), &args);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let files = std::fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().path());
    let files: Vec<_> = files.collect();
    assert!(files.len() > 1, "{files:?}");
    let mut all = Vec::new();
    for f in &files {
        let mut r = Reader::file(f).unwrap();
        assert_eq!(r.damage().count(), 0);
        let len = r.len();
        all.extend((0..len).map(|i| r.tick(i).unwrap().seq.0));
    }
    all.sort_unstable();
    assert!(all.windows(2).all(|w| w[0] + 1 == w[1]), "a tick is missing: {all:?}");
}

#[test]
fn a_file_size_limit_leaves_no_partial_export() {
    let dir = Dir::new();
    for redact in [&[][..], &["--redact"]] {
        for limit in [NO_ROOM, "ulimit -f 1"] {
            let args = ["export", GOLDEN, "-o", "part.stall"];
            let out = limited(limit, dir.path(), &[&args[..], redact].concat());
            refused(&out, 3, "part.stall: cannot write: File too large");
            assert_eq!(stderr(&out).lines().count(), 1, "{}", stderr(&out));
            assert!(!dir.file("part.stall").exists(), "a partial export is left");
        }
    }
}

/// Reports into a file that may not grow: one line and exit code 3, not a death by signal.
#[test]
fn a_file_size_limit_of_the_output_is_one_line() {
    let dir = Dir::new();
    let report = File::create(dir.file("report.txt")).unwrap();
    let out = after(NO_ROOM, &["rules"]).stdout(report).output().unwrap();
    let says = stderr(&out);
    assert_eq!(out.status.code(), Some(3), "{says}");
    assert!(says.contains("cannot write to stdout: File too large"), "{says}");
}

/// `w` leaves no half of a pane behind.
#[test]
fn a_file_size_limit_leaves_no_partial_pane() {
    let dir = Dir::new();
    let mut cmd = shell(NO_ROOM, "--no-bpf");
    cmd.cwd(dir.path());
    let mut s = Session::spawn(30, 120, &[], cmd);
    s.until("a sample", |s| s.text().contains("netlink"));
    s.keys("w");
    s.shows("cannot write to .: File too large");
    assert_eq!(dir.count(), 0);
    s.keys("q");
    assert!(s.exit().success());
    s.assert_restored();
}
