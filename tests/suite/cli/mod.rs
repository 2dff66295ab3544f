//! The command line of the built program: help, errors, exit codes, closed pipes, hostile
//! arguments. Needs no root.

mod outputs;
mod thresholds;
mod why;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::process::{Output, Stdio};

use crate::support::files::Dir;
use crate::support::program::{after, fed, json, program, refused, run, stderr, stdout};

#[test]
fn version_is_that_of_the_package() {
    let o = run(["--version"]);
    assert_eq!(stdout(&o).trim(), concat!("stallscope ", env!("CARGO_PKG_VERSION")));
}

/// `info *` in a directory where others may make files.
#[test]
fn usage_errors_repeat_no_escapes() {
    let evil = "b\n\x1b[31m\u{9b}2J\u{202e}";
    let harmless = |c: char| c == '\n' || stallscope::text::is_plain(c);
    for args in [&["info", "a", evil][..], &["check", "--duration", evil], &[evil]] {
        let o = run(args);
        refused(&o, 2, "--help");
        let plain: Vec<_> = args.iter().map(|a| if *a == evil { "b" } else { a }).collect();
        assert_eq!(stderr(&o).lines().count(), stderr(&run(plain)).lines().count());
        assert!(stderr(&o).chars().all(harmless), "{:?}", stderr(&o));
    }
    // Some words resemble a topic, which takes lines of their own.
    let o = run(["help", evil]);
    refused(&o, 2, "--help");
    assert!(stderr(&o).chars().all(harmless), "{:?}", stderr(&o));
    let first = stderr(&o).lines().next().unwrap().to_owned();
    assert!(first.contains("for '[TOPIC|COMMAND]'"), "{first}");
}

#[test]
fn the_console_without_a_terminal_names_the_way_out() {
    let o = run::<&str>([]);
    refused(&o, 2, "stallscope check");
    assert_eq!(stderr(&o).lines().count(), 1, "one line: {}", stderr(&o));
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

/// Under limits that a shell sets before: `ulimit` of its argument.
fn limited(limit: &str, args: &[&str]) -> Output {
    after(&format!("ulimit {limit}"), args).output().unwrap()
}

/// Too few descriptors, or too little address space: one line, and nothing half done.
#[test]
fn limits_that_are_too_small_are_named_at_the_start() {
    let dir = Dir::new();
    let tape = dir.file("box.stall");
    let tape = tape.to_str().unwrap();
    for args in [
        &["check", "--duration", "1s"][..],
        &["doctor"],
        &["record", "-o", tape],
        &["serve", "--listen", "127.0.0.1:0"],
    ] {
        for files in ["8", "10", "16", "24", "64"] {
            let o = limited(&format!("-n {files}"), args);
            refused(&o, 3, &format!("only {files} open files allowed"));
            assert_eq!(stderr(&o).lines().count(), 1, "{}", stderr(&o));
        }
        let o = limited("-v 200000", args);
        refused(&o, 3, "of address space allowed");
        assert_eq!(stderr(&o).lines().count(), 1, "{}", stderr(&o));
    }
    assert!(!dir.file("box.stall").exists());
    // The soft limit alone is nobody's last word.
    let o = limited("-S -n 20", &["doctor", "--netns", "self", "--no-bpf"]);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    assert!(!stdout(&o).contains("open files"), "{}", stdout(&o));
}

/// What the user left out is no part of the all-clear, in text and in JSON, live and recorded.
#[test]
fn an_all_clear_names_what_was_left_out() {
    let dir = Dir::new();
    let tape = dir.file("box.stall");
    let tape = tape.to_str().unwrap();
    let left_out = "other network namespaces left out (--netns)";
    let args = ["check", "--duration", "1s", "--netns", "self", "--no-bpf", "--record", tape];
    let live = stdout(&run(args));
    let verdict = live.lines().last().unwrap();
    let covers = "No findings in what is readable: ";
    assert!(verdict.starts_with(covers) || verdict.contains("; not checked: "), "{verdict}");
    assert!(
        verdict.contains(left_out) && verdict.contains("eBPF left out (--no-bpf)"),
        "{verdict}"
    );
    assert_eq!(stdout(&run(["check", tape])).lines().last().unwrap(), verdict);

    let v = json(&run(["check", "--format", "json", tape]));
    let spots = v["blind_spots"].as_array().unwrap();
    let named = |what: &str| spots.iter().find(|s| s["what"] == what).unwrap()["lack"].clone();
    assert_eq!(named("eBPF"), "left out (--no-bpf)");
    assert_eq!(named("other network namespaces"), "left out (--netns)");
    assert!(v["verdict"].as_str().unwrap().contains(left_out), "{v}");

    let doctor = stdout(&run(["doctor", "--netns", "self", "--no-bpf"]));
    let line = doctor.lines().find(|l| l.contains("not checked here")).unwrap();
    assert!(line.contains(left_out), "{doctor}");
}

#[test]
fn check_answers_in_json() {
    let o = run(["check", "--format", "json", "--duration", "1s", "--netns", "self"]);
    let v = json(&o);
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
    json(&o);
    let o = run(["rules", "--format", "json"]);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    json(&o);
}

/// Runs `explain` over `text` on standard input.
fn explain(args: &[&str], text: &[u8]) -> Output {
    fed(&[&["explain"], args].concat(), text)
}

const STALLED: &str = "\
ESTAB 0 33624 10.9.0.1:40000 10.9.0.2:5000 timer:(persist,5.660ms,0) ino:77 sk:1a <->
\t skmem:(r0,rb131072,t0,tb628992,f0,w34456,o0,bl0,d0) cubic rto:212 backoff:5 mss:1448 \
bytes_sent:128608 bytes_acked:127481 segs_out:99 data_segs_out:92 lastsnd:7000 lastack:1124 \
delivered:93 rwnd_limited:7502ms(99.5%) notsent:33624
";

#[test]
fn explain_says_what_it_found_and_understood() {
    let text = format!("[root@db7 ~]# ss -tinmoe\n{STALLED}what is \x1b[31mthis?\x07\n");
    let o = explain(&[], text.as_bytes());
    assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
    let out = stdout(&o);
    for part in [
        "stallscope explain  pasted text",
        "tcp-zero-window-stall",
        "(suspected)",
        "Understood: ss 1 socket in 1 sample (2 lines)",
        "Not understood: 1 line: 4 \"what is this?\"",
        "Not judged: ",
        "disk-capped-cloud",
        "(disks: not in the pasted text)",
    ] {
        assert!(out.contains(part), "{part} is missing in:\n{out}");
    }
    assert!(!out.contains("since 00:00"), "nobody stamped the text:\n{out}");
    assert!(out.chars().all(|c| c == '\n' || !c.is_control()), "{out:?}");
    assert_eq!(stderr(&o), "");
    // A dash is standard input, too; a file is a file.
    assert_eq!(stdout(&explain(&["-"], text.as_bytes())), out);
    let dir = Dir::new();
    let o = program().arg("explain").arg(dir.with("paste", &text)).output().unwrap();
    assert_eq!((o.status.code(), stdout(&o)), (Some(1), out));
}

#[test]
fn explain_as_json_is_that_of_check() {
    let o = explain(&["--format", "json"], STALLED.as_bytes());
    assert_eq!(o.status.code(), Some(1));
    let v = json(&o);
    assert_eq!((&v["schema"], &v["source"]), (&1.into(), &"paste".into()));
    assert_eq!(v["findings"][0]["rule"], "tcp-zero-window-stall");
    assert_eq!(v["findings"][0]["confidence"], "suspected");
    for unknown in [&v["started"], &v["duration_s"], &v["findings"][0]["first_seen"]] {
        assert!(unknown.is_null(), "{v}");
    }
    assert_eq!(v["understood"]["formats"][0]["format"], "ss");
    assert_eq!(v["understood"]["not_understood"], 0);
}

#[test]
fn explain_without_findings_is_0_and_without_sense_is_3() {
    let o = explain(&[], b"ESTAB 0 0 10.9.0.1:40000 10.9.0.2:5000\n");
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    assert!(stdout(&o).contains("No findings"));
    let random: Vec<u8> =
        (0..100_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (text, says) in [
        (&b""[..], "is empty"),
        (b"\n \n\t\n", "is empty"),
        (b"hello", "nothing recognised"),
        (b"State Recv-Q Send-Q Local Address:Port Peer Address:Port\n", "nothing recognised"),
        (&random, "nothing recognised"),
    ] {
        let o = explain(&[], text);
        refused(&o, 3, says);
        assert_eq!(stderr(&o).lines().count(), 1, "{}", stderr(&o));
    }
    refused(&run(["explain", "/nonexistent"]), 3, "/nonexistent");
    refused(&run(["explain", "/tmp"]), 3, "/tmp");
    refused(&run(["explain", "/no\x1b[31mx\u{9b}2J\ny"]), 3, "/no");
    refused(&run(["explain", "a", "b"]), 2, "b");
}

/// Our own namespace by its path is the same as `self`.
#[test]
fn own_namespace_by_path_is_read() {
    let o = run(["check", "--format", "json", "--duration", "1s", "--netns", "/proc/self/ns/net"]);
    let v = json(&o);
    let tcp = v["coverage"].as_array().unwrap().iter().find(|s| s["signal"] == "TCP sockets");
    assert_eq!(tcp.unwrap()["status"], "ok", "{v}");
}

/// Every rule that the list names has a page.
#[test]
fn every_listed_rule_explains_itself() {
    let list = json(&run(["rules", "--format", "json"]));
    for rule in list["rules"].as_array().unwrap() {
        let id = rule["id"].as_str().unwrap();
        let o = run(["rules", id]);
        assert_eq!(o.status.code(), Some(0), "{id}");
        assert!(stdout(&o).contains(id), "{id}");
    }
    // What only pasted text tells is no rule of a live run; any other word is a mistake.
    for (id, says) in [("disk-errors", "pasted text"), ("no-such", "`stallscope rules` lists")] {
        let o = run(["rules", id]);
        assert_eq!(o.status.code(), Some(2), "{id}");
        assert!(stderr(&o).contains(says), "{}", stderr(&o));
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
        &["help"],
        &["help", "check"],
        &["help", "rules"],
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
    for args in [&["rules", "--format", "json"][..], &["help"], &["help", "costs"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let o = program().args(args).stdout(full).output().unwrap();
        assert_eq!(o.status.code(), Some(3), "{args:?}: {}", stderr(&o));
        assert!(stderr(&o).contains("stdout"), "{args:?}: {}", stderr(&o));
    }
}

/// Who saw nothing says so: whenever the interrupt comes, an all-clear has a reading behind it.
#[test]
fn an_interrupt_before_the_first_reading_is_no_all_clear() {
    for wait_ms in [5, 10, 20, 40, 60, 80, 120] {
        let mut child = program()
            .args(["check", "--format", "json", "--duration", "1h", "--interval", "60s"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let from = stallscope::clock::mono();
        let then = stallscope::sample::time::MonoNs(from.0 + wait_ms * 1_000_000);
        stallscope::clock::sleep_until(then);
        let pid = rustix::process::Pid::from_child(&child);
        // Not INT: what a script runs in the background ignores it until there is a handler.
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        // Without a code: it came before there was a handler.
        match child.wait().unwrap().code() {
            None | Some(3) => assert_eq!(text, "", "after {wait_ms} ms"),
            code => {
                let v: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert!(v["ticks"].as_u64() >= Some(1), "{code:?} after {wait_ms} ms: {v}");
            }
        }
    }
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
    stallscope::clock::sleep_until(stallscope::sample::time::MonoNs(from.0 + 1_000_000_000));
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
