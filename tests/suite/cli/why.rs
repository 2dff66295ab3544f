//! `why` of processes of this test, without root.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::program::{json, refused, run, stdout};

/// A child that ends with its test.
struct Held(Child);

impl Held {
    fn shell(script: &str) -> Self {
        let mut shell = Command::new("sh");
        Self(shell.args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pipe that nobody writes to: it waits for another process, all of the time.
#[test]
fn a_reader_of_a_pipe_waits_for_another_process() {
    let reader = Held::shell("read line");
    let out = run(["why", &reader.pid(), "--duration", "3s", "--no-bpf"]);
    let text = stdout(&out);
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with(&format!("sh/{} waits for another process for 100%", reader.pid())),
        "{text}"
    );
    assert!(first.contains("read on pipe "), "{text}");
    assert!(text.contains("\n  100.0%  peer process\n"), "{text}");
    assert_eq!(out.status.code(), Some(0), "no finding explains it");
}

/// What was recorded gives the same answer, and the classes are all of the time.
#[test]
fn a_recording_gives_the_same_answer() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("w.stall");
    let file = file.to_str().unwrap();
    let busy = Held::shell("while :; do sleep 0.02; done");
    let pid = busy.pid();
    let common = ["--format", "json"];
    let args = ["why", &pid, "--duration", "3s", "--no-bpf", "--record", file];
    let live = json(&run([&args[..], &common].concat()));
    let played = json(&run([&["why", file, "--pid", &pid][..], &common].concat()));
    for field in ["conclusion", "classes", "places", "top_threads", "samples", "threads"] {
        assert_eq!(live[field], played[field], "{field}");
    }
    assert_eq!((&live["source"], &played["source"]), (&"live".into(), &"recording".into()));
    let sum: f64 = live["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c: &Value| c["share"].as_f64().unwrap())
        .sum();
    assert!((sum - 1.0).abs() < 1e-6, "{live:#}");
    refused(&run(["why", file, "--pid", "1"]), 3, "process 1 was not watched");
}

/// What may hold it back is said, or why that is not known; what is not known is no zero.
#[test]
fn limits_are_known_or_said_to_be_not() {
    let reader = Held::shell("read line");
    let pid = reader.pid();
    let args = ["why", &pid, "--duration", "3s", "--no-bpf"];
    let all = json(&run([&args[..], &["--format", "json"]].concat()));
    let limits = all["limits"].as_array().unwrap();
    for what in ["open-files", "cpu", "memory", "tasks"] {
        let of_kind: Vec<&Value> = limits.iter().filter(|l| l["what"] == what).collect();
        assert!(!of_kind.is_empty(), "{what}: {all:#}");
        for l in of_kind {
            let is_known = l["known"] == true;
            assert_eq!(l["missing"].is_null(), is_known, "{l}");
            assert!(is_known || l["limit"].is_null() && l["used"].is_null(), "{l}");
        }
    }
    let files = limits.iter().find(|l| l["what"] == "open-files").unwrap();
    if files["known"] == true {
        let listed = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        assert_eq!(files["used"].as_f64(), Some(listed as f64), "{files}");
    }
    let text = stdout(&run(args));
    assert!(text.contains("\nlimits\n") && text.contains("  open files: "), "{text}");
}

/// What a process calls itself does not reach the terminal as it is.
#[test]
fn a_name_with_escapes_is_shown_harmless() {
    let script = r"printf 'a\033[2Jb' > /proc/$$/comm; read line";
    let named = Held::shell(script);
    let out = run(["why", &named.pid(), "--duration", "2s", "--no-bpf"]);
    let text = stdout(&out);
    assert!(!text.contains('\x1b') && text.contains("[2Jb/"), "{text:?}");
}

#[test]
fn who_is_not_there_is_said_in_one_line() {
    for (args, code, says) in [
        (&["why", "4194303"][..], 3, "4194303: no such process"),
        (&["why", "no-such-name"], 3, "no process is called that"),
        (&["why", "/no/such/group"], 3, "no cgroup with processes"),
        (&["why", "1", "--pid", "1"], 2, "--pid is for a recording"),
        (&["why", "1", "--duration", "1s"], 2, "nothing to compare"),
        (&["why", "1", "--duration", "2h"], 2, "1s to 1h"),
    ] {
        refused(&run(args), code, says);
    }
}
