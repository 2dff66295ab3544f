//! The built program over a recording: `check FILE`, `export`, `replay` on a pseudo-terminal.
//!
//! Screens are polled with a deadline; nothing here waits for a fixed time.
#![allow(clippy::disallowed_methods, reason = "deadlines of the tests' own")]

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::thin::thinned_but;
use crate::support::files::Dir;
use crate::support::long::{long, reader, record};
use crate::support::program::{fed, json, program, refused, run, stderr, stdout};
use crate::support::terminal::{DEADLINE, Session};

/// The long run as a file.
fn file(dir: &Dir) -> PathBuf {
    dir.with("long.stall", &long().0.bytes)
}

fn replay(args: &[&str]) -> Session {
    Session::start(36, 120, &[], &[&["replay"], args].concat())
}

#[test]
fn check_tells_everything_that_came_and_went() {
    let dir = Dir::new();
    let path = file(&dir);
    let o = program().args(["check", "--format", "json"]).arg(&path).output().unwrap();
    assert_eq!(o.status.code(), Some(1), "{o:?}");
    let v = json(&o);
    assert_eq!(v["source"], "recording");
    assert_eq!(v["host"], "long");
    assert_eq!(v["ticks"].as_u64(), Some(long().1.len() as u64));
    assert_eq!(v["unread"], serde_json::json!([]));
    assert!(v["findings"].as_array().unwrap().len() > 20, "{v}");
    // Through a pipe, as text, its beginning.
    let (made, ticks) = long();
    let o = fed(&["check", "-"], &record(&made.host, &ticks[..300]).bytes);
    assert_eq!(o.status.code(), Some(1));
    let text = stdout(&o);
    assert!(text.starts_with("stallscope check  long  6.12.0"), "{text}");
}

#[test]
fn a_part_and_a_redacted_part_are_recordings() {
    let dir = Dir::new();
    let path = file(&dir);
    for redact in [false, true] {
        let out = dir.file(&format!("part-{redact}.stall"));
        let mut c = program();
        c.arg("export")
            .arg(&path)
            .args(["--from", &clock(400), "--to", &clock(700), "-o"])
            .arg(&out);
        if redact {
            c.arg("--redact");
        }
        let o = c.output().unwrap();
        assert_eq!(o.status.code(), Some(0), "{o:?}");
        assert!(String::from_utf8_lossy(&o.stdout).contains("groups"), "{o:?}");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(&out).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        let v = json(&program().args(["check", "--format", "json"]).arg(&out).output().unwrap());
        let ticks = v["ticks"].as_u64().unwrap();
        assert!((300..=420).contains(&ticks), "{ticks}");
        assert_eq!(v["host"] == "long", !redact);
        // Never over what is there.
        let o = c.output().unwrap();
        assert_eq!(o.status.code(), Some(3), "{o:?}");
    }
}

/// What the range has to do with the recording is said in its own words, and nothing is made.
#[test]
fn a_part_of_a_time_that_is_not_there() {
    let dir = Dir::new();
    let path = file(&dir);
    let out = dir.file("part.stall");
    let export = |args: &[&str]| {
        let o = program().arg("export").arg(&path).args(args).arg("-o").arg(&out).output().unwrap();
        let made = std::fs::remove_file(&out).is_ok();
        (o.status.code(), stderr(&o), made)
    };
    let (first, last) = (clock(0), clock(long().1.len() - 1));
    for (args, code, says) in [
        (&["--from", "2300-01-01"][..], 3, "--from is after its last tick"),
        (&["--from", "9999-12-30T00:00:00Z"], 3, "--from is after its last tick"),
        (&["--from", "+500h"], 3, "--from is after its last tick"),
        (&["--to", "1600-01-01"], 3, "--to is before its first tick"),
        (&["--to", "-500h"], 3, "--to is before its first tick"),
        (&["--from", "2300-01-01", "--to", "2400-01-01"], 3, "--from is after its last tick"),
        (&["--from", "+5m", "--to", "+1m"], 2, "--from is after --to"),
    ] {
        let (exit, err, made) = export(args);
        assert_eq!((exit, made), (Some(code), false), "{args:?}: {err}");
        assert!(err.contains(says) && err.lines().count() == 1, "{args:?}: {err}");
        let named = if says.contains("last") { &last } else { &first };
        assert!(code == 2 || err.contains(named.as_str()), "{args:?} names {named}: {err}");
    }
    let everything = ["--from", "1600-01-01", "--to", "2300-01-01"];
    assert_eq!(export(&everything), (Some(0), String::new(), true));
}

#[test]
fn a_redacted_part_of_nothing_readable_is_none() {
    let dir = Dir::new();
    let made = record(&long().0.host, &long().1[300..400]);
    let mut bytes = made.bytes;
    // A bit in each keyframe: not one tick can be rebuilt.
    for g in reader(&bytes).groups() {
        bytes[g.offset as usize + 200] ^= 4;
    }
    let (path, out) = (dir.file("hurt.stall"), dir.file("part.stall"));
    std::fs::write(&path, bytes).unwrap();
    let o =
        program().arg("export").arg(&path).arg("--redact").arg("-o").arg(&out).output().unwrap();
    refused(&o, 3, "none of its 100 ticks in that time can be read");
    assert!(!out.exists());
}

#[test]
fn what_is_no_recording_is_one_clear_line() {
    let dir = Dir::new();
    let made = &long().0.bytes;
    let write = |name: &str, bytes: &[u8]| dir.with(name, bytes).to_str().unwrap().to_owned();
    let mut newer = made[..200].to_vec();
    newer[12] = 9;
    let cases = [
        (write("empty", b""), "is empty"),
        (
            write("text", b"not a recording, but long enough to look like something"),
            "is not a stallscope recording",
        ),
        (write("short", &made[..40]), "ends before its first block"),
        (write("newer", &newer), "has format version 9"),
        (dir.path().to_str().unwrap().to_owned(), "is a directory"),
        (dir.file("none").to_str().unwrap().to_owned(), "No such file"),
        ("/dev/null".to_owned(), "is not a regular file"),
    ];
    for (path, says) in &cases {
        for command in [&["check"][..], &["export", "-o", "/nonexistent/x"]] {
            let o = program().args(command).arg(path).output().unwrap();
            refused(&o, 3, says);
            let err = stderr(&o);
            assert!(err.lines().count() == 1 && err.contains(path.as_str()), "{path}: {err}");
        }
    }
    let o = run(["replay", &cases[0].0]);
    assert_eq!(o.status.code(), Some(2), "no terminal: {o:?}");
}

/// Time of day of a tick of the long run, UTC.
fn clock(tick: usize) -> String {
    let wall = long().1[tick].wall.0;
    let t = jiff::Timestamp::from_nanosecond(i128::from(wall)).unwrap();
    t.strftime("%H:%M:%S").to_string()
}

#[test]
fn replay_goes_to_times_findings_and_ends_and_says_where_it_is() {
    let dir = Dir::new();
    let path = file(&dir);
    let path = path.to_str().unwrap();
    let n = long().1.len();
    let mut s = replay(&["--at", &clock(700), path]);
    // The first picture rests on a few ticks, then the findings on all.
    s.shows("REPLAY paused").shows(&clock(700)).shows("long").hides("findings only from");
    s.keys("]").shows(&clock(701));
    s.keys("[[").shows(&clock(699));
    s.keys("\x1b[F").shows(&clock(n - 1));
    s.keys("\x1b[H").shows(&clock(0));
    s.keys(&format!("t{}\r", clock(1200))).shows(&clock(1200));
    s.keys("t-5m\r").hides(&clock(1200));
    s.keys("tnonsense\r").shows("is not a time");
    // The findings of the whole run rest on all of it in the end.
    s.keys(&format!("t{}\r", clock(1000))).shows(&clock(1000)).hides("findings only from");
    s.keys("}").hides(&clock(1000)).shows("FINDINGS");
    assert!(s.keys("q").exit().success());
}

/// Back from a place before its findings are known in full: those of the place that is on the
/// screen then become whole.
#[test]
fn going_back_while_a_place_is_judged_ends_with_whole_findings() {
    let dir = Dir::new();
    let path = file(&dir);
    let n = long().1.len();
    let mut s = replay(&["--at", &clock(10), path.to_str().unwrap()]);
    s.shows("REPLAY paused").shows(&clock(10)).hides("findings only from");
    let mut caught = 0;
    for place in (1_100..n).step_by(700).take(3) {
        s.keys(&format!("t{}\r", clock(place))).shows(&format!("{}\n", clock(place)));
        // The second picture: from 120 ticks before.
        let look = format!("findings only from {}", clock(place - 120));
        let end = Instant::now() + DEADLINE;
        while !s.text().contains(&look) && s.text().contains("findings only from") {
            assert!(Instant::now() < end, "{}", s.text());
            std::thread::sleep(Duration::from_millis(1));
        }
        caught += usize::from(s.text().contains(&look));
        s.keys(&format!("t{}\r", clock(place - 100)));
        s.shows(&format!("{}\n", clock(place - 100))).hides("findings only from");
    }
    println!("{caught} pictures were left before they were whole");
}

/// Whoever has moved on in memory is not led away by the answer to an earlier question.
#[test]
fn a_step_in_memory_takes_back_the_question_before_it() {
    let dir = Dir::new();
    let path = file(&dir);
    let n = long().1.len();
    let mut s = replay(&["--at", &clock(10), path.to_str().unwrap()]);
    s.shows("REPLAY paused").shows(&clock(10)).hides("findings only from");
    for step in 1..=3 {
        // Typed at once: the step comes before any answer.
        s.keys(&format!("t{}\r[", clock(n - 20))).hides("seeking");
        s.shows(&format!("{}\n", clock(10 - step)));
    }
    // The answer to this one is behind those that were taken back.
    s.keys(&format!("t{}\r", clock(n / 2))).shows(&format!("{}\n", clock(n / 2)));
}

#[test]
fn replay_plays_at_a_speed_pauses_and_stops_at_the_end() {
    let dir = Dir::new();
    let path = file(&dir);
    let n = long().1.len();
    let mut s = replay(&["--speed", "64", path.to_str().unwrap()]);
    s.shows("REPLAY 64x");
    // It goes by in a moment: any time from then on will do.
    let plays = |text: &str| {
        let shown = text.lines().next()?.trim_end().rsplit_once("2023-11-14 ");
        Some(shown.is_none_or(|(_, time)| time >= clock(100).as_str()))
    };
    let end = Instant::now() + DEADLINE;
    while plays(&s.text()) != Some(true) {
        assert!(Instant::now() < end, "{}", s.text());
        std::thread::sleep(Duration::from_millis(1));
    }
    s.keys(" ").shows("REPLAY paused");
    s.keys("-").shows("speed 32x");
    s.keys(":interval 2s\r").shows("recorded every 1s: that cannot be changed");
    // A step stops it, too.
    s.keys(" ").shows("REPLAY 32x").keys("[").shows("REPLAY paused");
    s.keys(&format!("t{}\r", clock(n - 20))).shows(&clock(n - 20));
    s.keys("+ ").shows("end of the recording").shows(&clock(n - 1)).shows("REPLAY paused");
}

#[test]
fn a_file_that_is_being_written_is_followed() {
    let dir = Dir::new();
    let path = dir.file("growing.stall");
    let bytes = &long().0.bytes;
    let half = bytes.len() / 2;
    let mut f = std::fs::File::create(&path).unwrap();
    f.write_all(&bytes[..half]).unwrap();
    let mut s = replay(&["--follow", path.to_str().unwrap()]);
    s.shows("REPLAY 1x");
    f.write_all(&bytes[half..]).unwrap();
    s.keys("\x1b[F").shows(&clock(long().1.len() - 1)[..5]);
}

/// The older ticks of the new file are fewer: what is followed goes on where it was.
#[test]
fn a_file_that_was_thinned_meanwhile_is_followed() {
    let dir = Dir::new();
    let (path, beside) = (dir.file("box.stall"), dir.file("box.new"));
    let (made, ticks) = long();
    std::fs::write(&path, record(&made.host, &ticks[..400]).bytes).unwrap();
    let mut s = replay(&["--follow", "--speed", "16", path.to_str().unwrap()]);
    s.shows("REPLAY 16x").shows(&clock(399));
    let bytes = thinned_but(&record(&made.host, &ticks[..430]), Duration::from_secs(120));
    assert!(reader(&bytes).len() < 300, "thinned");
    // Its last group is still to come.
    let torn = reader(&bytes).groups().last().unwrap().offset as usize;
    std::fs::write(&beside, &bytes[..torn]).unwrap();
    std::fs::rename(&beside, &path).unwrap();
    s.shows(&clock(419));
    let mut new = std::fs::File::options().append(true).open(&path).unwrap();
    new.write_all(&bytes[torn..]).unwrap();
    s.shows(&clock(429)).shows("REPLAY");
}
