//! What goes wrong is told in one line, and leaves nothing behind.

use std::fs;

use crate::support::files::{DEMO, Dir};
use crate::support::program::{refused, run, stderr, stdout};
use crate::support::recordings::recording;
use crate::support::script::Script;

/// Refused with one line, and the directory has what it had.
#[track_caller]
fn fails(dir: &Dir, args: &[&str], code: i32, says: &str) {
    let before = dir.count();
    let o = run([&["report"], args].concat());
    refused(&o, code, says);
    assert!(code == 2 || stderr(&o).lines().count() == 1, "{}", stderr(&o));
    assert_eq!(dir.count(), before, "something is left");
}

#[test]
fn a_file_is_not_overwritten_unless_that_is_asked_for() {
    let dir = Dir::new();
    let out = dir.with("page.html", "mine");
    let path = out.to_str().unwrap();
    fails(&dir, &[DEMO, "-o", path], 3, "page.html: already exists; use --force to replace it");
    assert_eq!(fs::read_to_string(&out).unwrap(), "mine");
    let o = run(["report", DEMO, "-o", path, "--force"]);
    assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
    assert!(stdout(&o).starts_with(&format!("{path}: 5 findings, 96 ticks, ")), "{}", stdout(&o));
    assert!(fs::read_to_string(&out).unwrap().starts_with("<!DOCTYPE html>"));
    assert_eq!(dir.count(), 1);
    // The name says which of the two.
    let md = dir.file("ticket.MD");
    run(["report", DEMO, "-o", md.to_str().unwrap()]);
    assert!(fs::read_to_string(md).unwrap().starts_with("# Incident report"));
}

/// Not even when that is asked for: it may be the one that is read, and there is no other copy.
#[test]
fn a_recording_is_never_replaced() {
    let dir = Dir::new();
    let copy = dir.file("copy.stall");
    fs::copy(DEMO, &copy).unwrap();
    let path = copy.to_str().unwrap();
    let why = "is a recording; it is not replaced";
    fails(&dir, &[path, "-o", path, "--format", "html", "--force"], 3, why);
    let table = ["export", path, "--format", "csv", "--table", "disks", "--force", "-o", path];
    refused(&run(table), 3, why);
    assert_eq!(fs::read(&copy).unwrap(), fs::read(DEMO).unwrap());
    assert_eq!(dir.count(), 1);
}

#[test]
fn what_cannot_be_written_or_read() {
    let dir = Dir::new();
    let own = dir.path().to_str().unwrap();
    let out = dir.file("x.html");
    let out = out.to_str().unwrap();
    fails(&dir, &[DEMO, "-o", own], 3, "is a directory; give a file in it");
    fails(
        &dir,
        &[DEMO, "-o", "/nonexistent/x.html"],
        3,
        "/nonexistent/x.html: cannot write: No su",
    );
    fails(&dir, &[DEMO, "-o", "/dev/null", "--force"], 3, "/dev/null: cannot write: is not a reg");
    fails(&dir, &["/nonexistent", "-o", out], 3, "/nonexistent: No such file");
    fails(&dir, &["/etc/passwd", "-o", out], 3, "is not a stallscope recording");
    fails(&dir, &[DEMO, "-o", out, "--from", "10:00", "--to", "09:00"], 2, "--from is after --to");
    let late = ["--from", "2030-01-01 00:00"];
    fails(&dir, &[&[DEMO, "-o", out], &late[..]].concat(), 3, "--from is after its last tick");
    fails(&dir, &["-o", out, "--from", "-5m"], 2, "--from and --to are for a recording");
    fails(&dir, &[DEMO], 2, "--output");
    fails(&dir, &[DEMO, "-o", out, "--duration", "5s"], 2, "--duration");
    let hostile = dir.path().join("a\x1b[2J\n.html").join("b");
    fails(&dir, &[DEMO, "-o", hostile.to_str().unwrap()], 3, "cannot write: No such file");
}

#[test]
fn a_recording_without_ticks_is_no_all_clear() {
    let dir = Dir::new();
    let empty = dir.with("empty.stall", recording(&Script::healthy(), 0, true).0);
    let out = dir.file("x.html");
    let args = [empty.to_str().unwrap(), "-o", out.to_str().unwrap()];
    fails(&dir, &args, 3, "empty.stall: has no ticks: nothing was recorded");
}

/// Half a recording: what is there is reported, what is missing is told.
#[test]
fn half_a_recording_is_reported_with_what_it_lacks() {
    let dir = Dir::new();
    let mut bytes = recording(&Script::three_faults(), 130, true).0;
    // Damage in the middle, which costs the rest of a group of 60 ticks.
    let at = bytes.len() / 2;
    bytes[at..at + 64].fill(0x55);
    let half = dir.with("half.stall", bytes);
    let half = half.to_str().unwrap();
    let check = run(["check", half]);
    let o = run(["report", half, "-o", "-", "--format", "md"]);
    assert_eq!(o.status.code(), check.status.code(), "{}", stderr(&o));
    let (text, err) = (stdout(&o), stderr(&o));
    assert!(text.contains("### Not readable in this recording"), "{text}");
    assert!(err.starts_with("stallscope: not in the report: "), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(text.contains("missing"), "{text}");
}
