//! The command line of the built program: help, errors, exit codes, closed pipes, hostile
//! arguments. Needs no root.
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

fn program() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_stallscope"));
    c.stdin(Stdio::null()).env_remove("RUST_BACKTRACE");
    c
}

fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    program().args(args).output().unwrap()
}

fn stdout(o: &Output) -> String {
    String::from_utf8(o.stdout.clone()).unwrap()
}

fn stderr(o: &Output) -> String {
    String::from_utf8(o.stderr.clone()).unwrap()
}

/// Exit code, one clear line on stderr, nothing on stdout, no panic.
#[track_caller]
fn refused(o: &Output, code: i32, says: &str) {
    let err = stderr(o);
    assert_eq!(o.status.code(), Some(code), "{err}");
    assert!(err.contains(says), "should say {says:?}: {err}");
    assert!(!err.contains("panicked"), "{err}");
    assert_eq!(stdout(o), "", "an error belongs on stderr");
    assert!(
        err.bytes().all(|b| b == b'\n' || (b >= 0x20 && b != 0x7f)),
        "control bytes reach the terminal: {err:?}"
    );
}

#[test]
fn help_names_the_commands_and_the_exit_codes() {
    let o = run(["--help"]);
    assert_eq!(o.status.code(), Some(0));
    let text = stdout(&o);
    for word in ["check", "doctor", "rules", "Exit codes:", "--netns", "findings at warn or worse"]
    {
        assert!(text.contains(word), "{word} is missing in:\n{text}");
    }
    assert!(stderr(&o).is_empty());
    // A command's own help must not run it.
    for command in ["check", "doctor", "rules"] {
        let o = run([command, "--help"]);
        assert_eq!(o.status.code(), Some(0), "{command}");
        assert!(stdout(&o).contains("Usage: stallscope"), "{command}");
    }
}

#[test]
fn version_is_that_of_the_package() {
    let o = run(["--version"]);
    assert_eq!(stdout(&o).trim(), concat!("stallscope ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn usage_errors_are_code_2() {
    for (args, says) in [
        (&["check", "--frobnicate"][..], "--frobnicate"),
        (&["bogus"], "bogus"),
        (&["check", "extra"], "extra"),
        (&["check", "--format", "xml"], "json"),
        (&["check", "--duration"], "--duration"),
        (&["check", "--duration", "5"], "not a time"),
        (&["check", "--duration", ""], "--duration"),
        (&["check", "--duration", "-3s"], "-3"),
        (&["check", "--duration", "0s"], "1s to 24h"),
        (&["check", "--duration", "25h"], "1s to 24h"),
        (&["check", "--duration", "10 parsecs"], "not a time"),
        (&["check", "--duration", "99999999999999999999s"], "not a time"),
        (&["check", "--interval", "1ms"], "100ms to 60s"),
        (&["check", "--interval", "NaNs"], "not a time"),
        (&["check", "--interval", "10s", "--duration", "1s"], "shorter than --interval"),
        (&["check", "--interval", "60s"], "shorter than --interval"),
        (&["rules", "no-such-rule"], "no-such-rule"),
        (&["--color", "blue"], "blue"),
    ] {
        refused(&run(args), 2, says);
    }
}

#[test]
fn the_console_without_a_terminal_names_the_way_out() {
    let o = run::<&str>([]);
    refused(&o, 2, "stallscope check");
    assert_eq!(stderr(&o).lines().count(), 1, "one line: {}", stderr(&o));
}

#[test]
fn a_namespace_that_is_none_is_code_3() {
    refused(&run(["check", "--duration", "1s", "--netns", "/nonexistent"]), 3, "/nonexistent");
    refused(&run(["check", "--duration", "1s", "--netns", ""]), 3, "--netns");
    // These exist. "No findings" about them would be a false all-clear.
    for path in ["/etc/passwd", "/tmp", "/dev/null"] {
        refused(&run(["check", "--duration", "1s", "--netns", path]), 3, path);
    }
}

#[test]
fn hostile_arguments_are_shown_harmless() {
    // Escape sequences, bells and newlines in what we echo back.
    refused(&run(["check", "--netns", "/no\x1b[31mx\x07\u{9b}2J\ny"]), 3, "/no");
    refused(&run(["rules", "\x1b]0;owned\x07"]), 2, "no rule");
    // Not UTF-8.
    refused(&run([OsStr::new("rules"), OsStr::from_bytes(b"\xff\xfe")]), 2, "UTF-8");
    // Longer than any line.
    let long = "9".repeat(100_000);
    refused(&run(["check", "--duration", &format!("{long}s")]), 2, "--duration");
    refused(&run(["check", "--netns", &format!("/{}", "a/".repeat(3000))]), 3, "--netns");
}

#[test]
fn check_answers_in_json() {
    let o = run(["check", "--format", "json", "--duration", "1s", "--netns", "self"]);
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(v["schema"], 1);
    assert_eq!(v["source"], "live");
    assert!(v["ticks"].as_u64() >= Some(2), "{v}");
    assert!(v["tool"].as_str().unwrap().starts_with("stallscope "));
    let started = v["started"].as_str().unwrap();
    assert!(started.ends_with('Z') && started.len() == 20, "{started}");
    for s in v["coverage"].as_array().unwrap() {
        let status = s["status"].as_str().unwrap();
        assert!(["ok", "degraded", "missing"].contains(&status), "{s}");
        // What is not fully there must say why; silence would read as "fine".
        assert!(status == "ok" || !s["reason"].as_str().unwrap().is_empty(), "{s}");
    }
    let alarming = v["findings"]
        .as_array()
        .unwrap()
        .iter()
        .any(|f| matches!(f["severity"].as_str(), Some("warn" | "crit")));
    assert_eq!(o.status.code(), Some(i32::from(alarming)), "0: nothing, 1: warn or worse");
    assert!(stderr(&o).is_empty(), "{}", stderr(&o));
}

#[test]
fn check_answers_in_text_without_control_bytes() {
    let o = run(["check", "--duration", "1s", "--netns", "self"]);
    assert!(matches!(o.status.code(), Some(0 | 1)), "{}", stderr(&o));
    let text = stdout(&o);
    assert!(text.starts_with("stallscope check"), "{text}");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
}

#[test]
fn doctor_and_rules_answer() {
    let o = run(["doctor", "--format", "json"]);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    serde_json::from_slice::<serde_json::Value>(&o.stdout).unwrap();
    let o = run(["rules", "--format", "json"]);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    serde_json::from_slice::<serde_json::Value>(&o.stdout).unwrap();
}

/// Our own namespace by its path is the same as `self`.
#[test]
fn own_namespace_by_path_is_read() {
    let o = run(["check", "--format", "json", "--duration", "1s", "--netns", "/proc/self/ns/net"]);
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    let tcp = v["coverage"].as_array().unwrap().iter().find(|s| s["signal"] == "TCP sockets");
    assert_eq!(tcp.unwrap()["status"], "ok", "{v}");
}

/// Every rule that the list names has a page.
#[test]
fn every_listed_rule_explains_itself() {
    let list: serde_json::Value =
        serde_json::from_slice(&run(["rules", "--format", "json"]).stdout).unwrap();
    for rule in list["rules"].as_array().unwrap() {
        let id = rule["id"].as_str().unwrap();
        let o = run(["rules", id]);
        assert_eq!(o.status.code(), Some(0), "{id}");
        assert!(stdout(&o).contains(id), "{id}");
    }
}

/// The reader is gone before anything is written, as in `stallscope check | head -c0`.
#[test]
fn a_closed_pipe_is_no_error() {
    for args in [
        &["check", "--duration", "1s", "--netns", "self"][..],
        &["rules"],
        &["doctor"],
        &["--help"],
    ] {
        let mut child =
            program().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let o = child.wait_with_output().unwrap();
        let alarm = args[0] == "check" && o.status.code() == Some(1);
        assert!(o.status.code() == Some(0) || alarm, "{args:?}: {}: {}", o.status, stderr(&o));
        assert_eq!(stderr(&o), "", "{args:?}");
    }
}

/// Any other write error is one.
#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let o = program().args(["rules", "--format", "json"]).stdout(full).output().unwrap();
    assert_eq!(o.status.code(), Some(3), "{}", stderr(&o));
    assert!(stderr(&o).contains("stdout"), "{}", stderr(&o));
}

/// An interrupt ends the watching early with a report over what was seen.
#[test]
fn interrupt_ends_check_with_a_report() {
    let mut child = program()
        .args([
            "check",
            "--format",
            "json",
            "--duration",
            "1h",
            "--interval",
            "100ms",
            "--netns",
            "self",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The handler is in place once the reader threads run; they show up as threads.
    let tasks = format!("/proc/{}/task", child.id());
    let begun = stallscope::clock::mono();
    while std::fs::read_dir(&tasks).unwrap().count() < 5 {
        assert!(stallscope::clock::mono().since(begun).as_secs() < 10, "no reader threads");
        std::thread::yield_now();
    }
    // Several ticks' worth, so that at least one has been taken in.
    let from = stallscope::clock::mono();
    stallscope::clock::sleep_until(stallscope::model::time::MonoNs(from.0 + 1_000_000_000));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut text = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        text += &line.unwrap();
    }
    let code = child.wait().unwrap().code();
    let v: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(v["ticks"].as_u64() >= Some(1), "{v}");
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
    assert!(stallscope::clock::mono().since(begun).as_secs() < 20);
}
