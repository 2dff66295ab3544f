//! Targets that are refused: one clear line, exit 3, nothing touched.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::support::files::Dir;
use crate::support::program::{program, refused, run, stderr};
use crate::support::recorder::{read, record};
use crate::support::skip;
use crate::support::terminal::Session;

#[track_caller]
fn is_refused(path: &Path, append: bool, says: &str) {
    let mut c = program();
    c.args(["record", "--duration", "1s", "-o"]).arg(path);
    if append {
        c.arg("--append");
    }
    let o = c.output().unwrap();
    refused(&o, 3, says);
    assert_eq!(stderr(&o).lines().count(), 1, "{}", stderr(&o));
    assert!(!stderr(&o).contains("mother"), "nothing of a file's contents is told");
}

#[test]
fn what_is_no_place_for_a_recording() {
    let dir = Dir::new();
    std::fs::create_dir(dir.file("sub")).unwrap();
    dir.fifo("fifo");
    symlink("victim", dir.file("dangling")).unwrap();
    std::fs::write(dir.file("real"), "dear mother").unwrap();
    let ours = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(dir.file("real"), ours).unwrap();
    symlink("real", dir.file("link")).unwrap();
    for append in [false, true] {
        is_refused(&dir.file("sub"), append, "is a directory");
        is_refused(&dir.file("fifo"), append, "a FIFO with no reader");
        is_refused(&dir.file("dangling"), append, "symbolic link");
        is_refused(&dir.file("link"), append, "symbolic link");
        is_refused(&dir.file("none/a.stall"), append, "directory does not exist");
        is_refused(Path::new("/proc/self/a.stall"), append, "a.stall: ");
    }
    is_refused(&dir.file("real"), false, "--append");
    is_refused(&dir.file("real"), true, "not a stallscope recording");
    assert!(!dir.file("victim").exists());
    assert_eq!(std::fs::read_to_string(dir.file("real")).unwrap(), "dear mother");
    is_refused(Path::new("/dev/full"), false, "No space left");
}

/// In a directory such as /tmp anybody can put a file where a recording is expected.
#[test]
fn what_others_may_have_put_there() {
    let dir = Dir::new();
    let path = dir.file("a.stall");
    assert_eq!(record(&path, &["--duration", "1s"]).end(), (Some(0), String::new()));
    let whole = std::fs::read(&path).unwrap();
    let mode = |mode: u32| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for others in [0o666, 0o620, 0o602] {
        mode(others);
        is_refused(&path, true, "is writable by others");
    }
    mode(0o600);
    std::fs::hard_link(&path, dir.file("b.stall")).unwrap();
    is_refused(&path, true, "has 2 names (hard links)");
    std::fs::remove_file(dir.file("b.stall")).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    mode(0o644);
    let mut more = record(&path, &["--duration", "1s", "--append"]);
    assert_eq!(more.end(), (Some(0), String::new()), "others may read it");
    assert_eq!(read(&path).segments, 2);
}

/// A file or a FIFO of another user, where root would write.
#[test]
fn what_belongs_to_somebody_else() {
    if !rustix::process::geteuid().is_root() {
        skip("only root can make a file that belongs to somebody else");
        return;
    }
    let dir = Dir::new();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let path = dir.file("a.stall");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    chown(&path, Some(65_534), Some(65_534)).unwrap();
    is_refused(&path, true, "belongs to user 65534, but you are user 0");
    assert_eq!(std::fs::read(&path).unwrap(), b"");
    let fifo = dir.fifo("fifo");
    chown(&fifo, Some(65_534), Some(65_534)).unwrap();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    let reader = rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).unwrap();
    is_refused(&fifo, false, "is a FIFO owned by user 65534");
    assert_eq!(rustix::io::read(&reader, &mut [0; 64]), Ok(0), "it got nothing");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left behind");
}

/// It is said once, and the other file is left alone.
#[test]
fn somebody_takes_the_name_in_mid_run() {
    let dir = Dir::new();
    let path = dir.file("a.stall");
    for how in [&["--thin"][..], &["--rotate", "10s"], &["--max-size", "1M"], &[]] {
        let mut r = record(&path, &[&["--interval", "100ms"], how].concat());
        r.wait_for_ticks(2);
        let moved = dir.file("moved.stall");
        std::fs::rename(&path, &moved).unwrap();
        std::fs::write(&path, "dear mother").unwrap();
        let before = read(&moved).ticks.len();
        r.until("it goes on", |_| read(&moved).ticks.len() > before + 2);
        r.signal(rustix::process::Signal::TERM);
        let (code, err) = r.end();
        let says = "a.stall: another file has this name now; the recording stays in the old one";
        assert_eq!((code, err.lines().count()), (Some(0), 1), "{how:?}: {err}");
        assert!(err.contains(says), "{how:?}: {err}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "dear mother");
        assert!(read(&moved).sealed);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn somebody_without_permission() {
    let dir = Dir::new();
    let path = dir.file("a.stall");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    let mut c = program();
    c.args(["record", "--duration", "1s", "-o"]).arg(&path);
    if rustix::process::geteuid().is_root() {
        c.uid(65_534).gid(65_534);
    }
    // Where the build is out of reach of others, there is nothing to test.
    let Ok(o) = c.output() else { return };
    assert_eq!(o.status.code(), Some(3), "{}", stderr(&o));
    assert!(stderr(&o).contains("Permission denied"), "{}", stderr(&o));
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_second_recorder_harms_nothing() {
    let dir = Dir::new();
    let path = dir.file("a.stall");
    let mut first = record(&path, &["--interval", "100ms"]);
    first.wait_for_ticks(1);
    is_refused(&path, false, "another recorder");
    is_refused(&path, true, "another recorder");
    let more = first.ticks() + 2;
    first.wait_for_ticks(more);
    first.signal(rustix::process::Signal::TERM);
    assert_eq!(first.end().0, Some(0));
    let seen = read(&path);
    assert!(seen.sealed && seen.damage == 0 && seen.segments == 1);
}

#[test]
fn limits_need_a_file() {
    for args in [
        &["record", "-o", "-", "--rotate", "1h"][..],
        &["record", "-o", "-", "--max-size", "10M"],
        &["record", "-o", "-", "--append"],
        &["record", "-o", "-", "--thin"],
        &["record", "--rotate", "10"],
        &["record", "--max-size", "10k"],
        &["record", "--sync", "sometimes"],
        &["record", "a.stall"],
        &["check", "--append"],
    ] {
        let o = run(args);
        assert_eq!(o.status.code(), Some(2), "{args:?}: {}", stderr(&o));
    }
}

/// On a terminal: one line that is drawn over, then what was recorded.
#[test]
fn progress_is_one_line() {
    let dir = Dir::new();
    let args = ["record", "--no-bpf", "--duration", "1s", "--interval", "200ms", "-o"];
    let file = dir.file("a.stall");
    let mut s = Session::start(24, 80, &[], &[&args[..], &[file.to_str().unwrap()]].concat());
    let (status, text) = s.rest();
    assert!(status.success());
    assert!(text.contains("00:00:00  ") && text.contains("0 findings"), "{text:?}");
    let last = text.trim_end().rsplit("\x1b[K").next().unwrap();
    assert!(last.contains(" ticks, ") && last.contains("a.stall"), "{text:?}");
    assert_eq!(s.text().lines().count(), 1, "{text:?}");
}
