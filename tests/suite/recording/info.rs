//! `stallscope info`: the program itself, over good and bad files.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use stallscope::recording::{ActiveFinding, Event, TickSummary, Writer};
use stallscope::sample::tick::{CollectorHealth, HealthState, HostInfo};
use stallscope::sample::{Signal, SignalStatus};
use stallscope::text::is_plain;

use crate::support::files::Dir;
use crate::support::program::{fed, json, program, refused, stderr, stdout};
use crate::support::recordings::{note, recording, script, stamp};

fn info(args: &[&str], file: &Path) -> Output {
    program().arg("info").args(args).arg(file).output().unwrap()
}

#[test]
fn it_tells_what_is_inside() {
    let (bytes, _) = recording(&script(), 130, true);
    let dir = Dir::new();
    let file = dir.with("x.stall", &bytes);
    let out = info(&["--format", "json"], &file);
    assert!(out.status.success(), "{}", stderr(&out));
    let v = json(&out);
    assert_eq!((&v["schema"], &v["format"], &v["sealed"]), (&1.into(), &1.into(), &true.into()));
    assert_eq!(v["size"], bytes.len());
    assert_eq!((&v["content"]["ticks"], &v["groups"]), (&130.into(), &3.into()));
    assert_eq!(v["first"], "2026-01-05T14:15:00Z");
    assert_eq!(v["last"], "2026-01-05T14:17:09Z");
    let s = &v["segments"][0];
    assert_eq!((&s["host"]["hostname"], &s["ticks"]), (&"db7".into(), &130.into()));
    let f0 = &v["findings"][0];
    assert_eq!((&f0["rule"], &f0["severity"]), (&"tcp-rto-storm".into(), &"crit".into()));
    assert_eq!((&f0["first_tick"], &f0["last_tick"]), (&21.into(), &129.into()));
    assert_eq!(v["events"][0]["text"], "here");
    assert_eq!((&v["torn_bytes"], &v["damage"]), (&0.into(), &Value::Array(Vec::new())));
    assert!(v["content"]["sections"]["sockets"].as_u64().unwrap() > 1000);
    let text = stdout(&info(&[], &file));
    for want in [
        "130 in 3 groups",
        "kernel 6.18.44",
        "mark: here",
        "crit tcp-rto-storm: peer 10.0.0.2:3306",
        "3 of 3 groups verified",
    ] {
        assert!(text.contains(want), "{want} in\n{text}");
    }
}

/// Names in a file are whatever its author likes.
#[test]
fn no_name_in_a_file_reaches_the_terminal_as_it_is() {
    let evil = "db7\n\x1b[31m\u{9b}2J\u{202e}";
    let made = |name: &str| {
        let script = script();
        let host = HostInfo {
            hostname: name.into(),
            kernel: name.into(),
            tool: name.into(),
            ..script.host()
        };
        let mut w = Writer::new(Vec::new(), &host).unwrap();
        for n in 0..3 {
            let mut tick = script.tick(n);
            let signal = SignalStatus::Missing { reason: name.into(), remedy: name.into() };
            let signal = Signal {
                signal: name.to_owned().into(),
                source: "".into(),
                status: signal,
                unseen: None,
            };
            tick.health[0].signals.push(signal);
            tick.health.push(CollectorHealth {
                state: HealthState::Failed { error: name.into() },
                ..tick.health[0].clone()
            });
            let finding =
                ActiveFinding { rule: name.into(), subject: name.into(), severity: name.into() };
            w.tick(&tick, &TickSummary { findings: vec![finding], ..note(n) }).unwrap();
        }
        w.event(stamp(&script.tick(2)), Event::Mark { text: name.into() }).unwrap();
        w.seal().unwrap()
    };
    let dir = Dir::new();
    let run = |bytes: &[u8], command: &str, name: &str| {
        let mut c = program();
        c.arg(command).arg(dir.with(&format!("{command}{name}"), bytes));
        if command == "export" {
            c.arg("--redact").arg("-o").arg(dir.file(&format!("part{name}")));
        }
        let out = c.output().unwrap();
        stdout(&out) + &stderr(&out)
    };
    let (evil_file, plain_file) = (made(evil), made("plain"));
    for command in ["info", "check", "export"] {
        let (text, plain) = (run(&evil_file, command, evil), run(&plain_file, command, "plain"));
        // `check` names the signal that is missing, and why.
        let named = if command == "check" { "plain: plain" } else { "plain" };
        assert!(plain.contains(named), "{plain}");
        assert_eq!(text.lines().count(), plain.lines().count(), "{text:?}\n{plain}");
        assert!(text.chars().all(|c| c == '\n' || is_plain(c)), "{command}: {text:?}");
        // Not a recording: an error that names it.
        let text = run(b"dear mother, this is no recording", command, evil);
        assert_eq!(text.lines().count(), 1, "{text:?}");
        assert!(text.trim_end().chars().all(is_plain), "{command}: {text:?}");
    }
}

#[test]
fn a_pipe_tells_the_same_as_a_file() {
    let dir = Dir::new();
    for (ticks, sealed) in [(130, true), (70, false)] {
        let (bytes, _) = recording(&script(), ticks, sealed);
        let file = dir.with("x.stall", &bytes);
        for args in [&["info"][..], &["info", "--format", "json"]] {
            let of_file = info(&args[1..], &file);
            let of_pipe = fed(&[args, &["-"]].concat(), &bytes);
            assert_eq!(of_pipe.status.code(), Some(0), "{of_pipe:?}");
            let want = stdout(&of_file).replace(file.to_str().unwrap(), "standard input");
            assert_eq!(stdout(&of_pipe), want);
        }
    }
    let (good, _) = recording(&script(), 1, false);
    for (bytes, want) in [
        (&b""[..], "is empty"),
        (
            b"#!/bin/sh\necho secret, and enough of it to look like something\n",
            "not a stallscope recording",
        ),
        (&good[..40], "ends before its first block"),
    ] {
        for command in ["info", "check"] {
            let out = fed(&[command, "-"], bytes);
            refused(&out, 3, want);
            let text = stderr(&out);
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(text.contains("standard input"), "{command}: {text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }
}

#[test]
fn it_names_damage_and_torn_ends() {
    let (mut bytes, _) = recording(&script(), 130, false);
    let half = bytes.len() / 2;
    bytes[half] ^= 4;
    bytes.truncate(bytes.len() - 10);
    let dir = Dir::new();
    let out = info(&["--format", "json"], &dir.with("x.stall", &bytes));
    assert!(out.status.success());
    let v = json(&out);
    assert_eq!(v["sealed"], false);
    assert!(v["torn_bytes"].as_u64().unwrap() > 0);
    assert_eq!(v["damage"].as_array().unwrap().len(), 1, "{}", v["damage"]);
    let (ticks, lost) = (&v["content"]["ticks"], &v["content"]["lost"]);
    assert_eq!(ticks.as_u64().unwrap() + lost.as_u64().unwrap(), 129);
}

#[test]
fn bad_files_get_one_clear_line_and_exit_3() {
    let dir = Dir::new();
    let (mut newer, _) = recording(&script(), 1, false);
    newer.truncate(150);
    newer[12] = 7;
    for (path, want) in [
        (dir.with("empty", b""), "is empty"),
        (dir.with("script", b"#!/bin/sh\necho secret\n"), "is not a stallscope recording"),
        (dir.with("newer", &newer), "has format version 7"),
        (dir.path().to_owned(), "is a directory"),
        (dir.fifo("fifo"), "is not a regular file"),
        (dir.file("none"), "No such file"),
    ] {
        let out = info(&[], &path);
        refused(&out, 3, want);
        let text = stderr(&out);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        assert!(!text.contains("secret"), "contents of the file are not repeated");
    }
}
