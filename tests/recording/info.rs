//! `stallscope info`: the program itself, over good and bad files.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use stallscope::recording::{FindingNote, Note, Remark, Writer};
use stallscope::sample::tick::{CollectorHealth, HealthState, HostInfo};
use stallscope::sample::{Signal, SignalStatus};
use stallscope::text::is_plain;

use super::{note, recording, script, stamp};

fn info(args: &[&str], file: &Path) -> Output {
    let exe = env!("CARGO_BIN_EXE_stallscope");
    Command::new(exe).arg("info").args(args).arg(file).output().unwrap()
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let f = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(f.path(), bytes).unwrap();
    f
}

#[test]
fn it_tells_what_is_inside() {
    let (bytes, _) = recording(&script(), 130, true);
    let f = file(&bytes);
    let out = info(&["--format", "json"], f.path());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
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
    assert_eq!(v["remarks"][0]["text"], "here");
    assert_eq!((&v["torn_bytes"], &v["damage"]), (&0.into(), &Value::Array(Vec::new())));
    assert!(v["content"]["sections"]["sockets"].as_u64().unwrap() > 1000);
    let out = info(&[], f.path());
    let text = String::from_utf8(out.stdout).unwrap();
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
                FindingNote { rule: name.into(), subject: name.into(), severity: name.into() };
            w.tick(&tick, &Note { findings: vec![finding], ..note(n) }).unwrap();
        }
        w.remark(stamp(&script.tick(2)), Remark::Mark { text: name.into() }).unwrap();
        w.seal().unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let run = |bytes: &[u8], command: &str, name: &str| {
        let path = dir.path().join(format!("{command}{name}"));
        std::fs::write(&path, bytes).unwrap();
        let mut c = Command::new(env!("CARGO_BIN_EXE_stallscope"));
        c.arg(command).arg(&path);
        if command == "export" {
            c.arg("--redact").arg("-o").arg(dir.path().join(format!("part{name}")));
        }
        let out = c.output().unwrap();
        String::from_utf8(out.stdout).unwrap() + &String::from_utf8(out.stderr).unwrap()
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

fn piped(args: &[&str], bytes: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stallscope"))
        .args(args)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    std::thread::scope(|s| {
        // What is refused early is not read to its end.
        s.spawn(move || _ = input.write_all(bytes));
        child.wait_with_output().unwrap()
    })
}

#[test]
fn a_pipe_tells_the_same_as_a_file() {
    for (ticks, sealed) in [(130, true), (70, false)] {
        let (bytes, _) = recording(&script(), ticks, sealed);
        let f = file(&bytes);
        for args in [&["info"][..], &["info", "--format", "json"]] {
            let of_file = info(&args[1..], f.path());
            let of_pipe = piped(args, &bytes);
            assert_eq!(of_pipe.status.code(), Some(0), "{of_pipe:?}");
            let name = f.path().to_str().unwrap();
            let want = String::from_utf8(of_file.stdout).unwrap().replace(name, "standard input");
            assert_eq!(String::from_utf8(of_pipe.stdout).unwrap(), want);
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
            let out = piped(&[command], bytes);
            let text = String::from_utf8(out.stderr).unwrap();
            assert_eq!(out.status.code(), Some(3), "{command}: {text}");
            assert!(out.stdout.is_empty());
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(text.contains(want) && text.contains("standard input"), "{command}: {text}");
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
    let out = info(&["--format", "json"], file(&bytes).path());
    assert!(out.status.success());
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(v["sealed"], false);
    assert!(v["torn_bytes"].as_u64().unwrap() > 0);
    assert_eq!(v["damage"].as_array().unwrap().len(), 1, "{}", v["damage"]);
    let (ticks, lost) = (&v["content"]["ticks"], &v["content"]["lost"]);
    assert_eq!(ticks.as_u64().unwrap() + lost.as_u64().unwrap(), 129);
}

#[test]
fn bad_files_get_one_clear_line_and_exit_3() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (mut newer, _) = recording(&script(), 1, false);
    newer.truncate(150);
    newer[12] = 7;
    let files = [file(b""), file(b"#!/bin/sh\necho secret\n"), file(&newer)];
    for (path, want) in [
        (files[0].path(), "is empty"),
        (files[1].path(), "is not a stallscope recording"),
        (files[2].path(), "has format version 7"),
        (dir.path(), "is a directory"),
        (fifo.as_path(), "is not a regular file"),
        (&dir.path().join("none"), "No such file"),
    ] {
        let out = info(&[], path);
        let text = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(3), "{text}");
        assert!(out.stdout.is_empty());
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(want) && text.contains(path.to_str().unwrap()), "{text}");
        assert!(!text.contains("secret"), "contents of the file are not repeated");
    }
}
