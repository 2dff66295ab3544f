//! The product, run as a user runs it, and assertions over its report.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{advice, steal};

/// One `check` run.
pub struct Report {
    name: String,
    pub json: Value,
    code: Option<i32>,
    /// What the hypervisor is to blame for, by the kernel's account of the same time.
    foreign: &'static [&'static str],
}

/// One finding of it.
#[derive(Clone, Copy)]
pub struct Found<'a>(&'a Value);

impl<'a> Found<'a> {
    pub fn rule(self) -> &'a str {
        self.0["rule"].as_str().unwrap_or("")
    }
    pub fn alarming(self) -> bool {
        matches!(self.0["severity"].as_str(), Some("warn" | "crit"))
    }
    pub fn severity(self) -> &'a str {
        self.0["severity"].as_str().unwrap_or("")
    }
    pub fn subject(self) -> &'a Value {
        &self.0["subject"]
    }
    pub fn kind(self) -> &'a str {
        self.subject()["kind"].as_str().unwrap_or("")
    }
    pub fn netns(self) -> Option<u64> {
        self.subject()["netns"].as_u64()
    }
    /// When its condition began, as the report writes times.
    pub fn first_seen(self) -> Option<&'a str> {
        self.0["first_seen"].as_str()
    }
    /// Is it still so at the end?
    #[allow(dead_code, reason = "not every suite has such tests")]
    pub fn is_active(self) -> bool {
        self.0["active"] == true
    }
    /// The rule whose finding explains this one.
    pub fn cause(self) -> Option<&'a str> {
        self.0["cause"]["rule"].as_str()
    }
    pub fn disk(self) -> Option<&'a str> {
        (self.kind() == "disk").then(|| self.subject()["name"].as_str()).flatten()
    }
    /// What it is about, as other programs print it: a disk, an address or a port.
    pub fn object(self) -> Option<String> {
        let s = self.subject();
        let text = |field: &str| s[field].as_str().map(str::to_owned);
        match self.kind() {
            "disk" => text("name"),
            "link" => text("dev").or_else(|| text("name")),
            "peer" => {
                text("remote").map(|r| r.trim_end_matches(":0").trim_end_matches(":*").to_owned())
            }
            "listener" => text("local").and_then(|l| Some(l.rsplit_once(':')?.1.to_owned())),
            _ => None,
        }
    }
    /// The number of a piece of evidence.
    #[track_caller]
    pub fn number(self, field: &str) -> f64 {
        let all = self.0["evidence"].as_array().unwrap();
        let found = all.iter().find(|e| e["field"] == field).and_then(|e| e["value"].as_f64());
        found.unwrap_or_else(|| panic!("no number {field} in {}", self.text()))
    }
    pub fn text(self) -> String {
        self.0.to_string()
    }
    /// Whom it names as culprits.
    pub fn by(self) -> &'a [Value] {
        self.0["by"].as_array().map_or(&[], Vec::as_slice)
    }
    /// That most of it is of a process with this name: its number.
    #[allow(dead_code, reason = "not every suite has such tests")]
    pub fn is_mostly_by(self, comm: &str) -> u64 {
        let first = self.by().first().unwrap_or_else(|| panic!("nobody named: {}", self.text()));
        assert_eq!(first["comm"], comm, "{}", self.text());
        assert!(first["share"].as_f64().is_some_and(|s| s >= 50.0), "{}", self.text());
        eprintln!("lab: by {}", first["text"]);
        first["pid"].as_u64().unwrap()
    }
    /// That it names this process first.
    #[allow(dead_code, reason = "not every suite has such tests")]
    pub fn is_by(self, pid: u32) {
        let first = self.by().first().unwrap_or_else(|| panic!("nobody named: {}", self.text()));
        assert_eq!(first["pid"], pid, "{}", self.text());
        eprintln!("lab: by {}", first["text"]);
    }
    /// The commands to type next.
    pub fn next(self) -> Vec<&'a str> {
        self.0["next"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }
    /// The number of a piece of evidence.
    pub fn evidence(self, field: &str) -> Option<f64> {
        let all = self.0["evidence"].as_array()?;
        all.iter().find(|e| e["field"] == field)?["value"].as_f64()
    }
    /// Each figure that crossed a threshold, with it: how close a run was to another verdict.
    fn margins(self) -> impl Iterator<Item = String> {
        let all = self.0["evidence"].as_array().into_iter().flatten();
        all.filter(|e| !e["threshold"].is_null())
            .map(|e| format!("{} {} at {}", e["field"], e["value"], e["threshold"]))
    }
    /// Does any evidence come from eBPF?
    pub fn uses_ebpf(self) -> bool {
        let all = self.0["evidence"].as_array();
        let own = |e: &Value| e["text"].as_str().is_some_and(|t| t.starts_with("eBPF: "));
        all.is_some_and(|a| a.iter().any(own))
    }
}

/// Where the recording of the report `name` is.
pub fn tape(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-reports").join(format!("{name}.stall"))
}

/// Runs `check --format json`. `name` labels the report and the recording in the target
/// directory, which are kept for looking at after a failure.
pub fn check(name: &str, duration: &str, extra: &[&str]) -> Report {
    let tape = tape(name);
    let dir = tape.parent().unwrap();
    std::fs::create_dir_all(dir).unwrap();
    let _ = std::fs::remove_file(&tape);
    let steal = steal::Watch::start();
    let out = Command::new(env!("CARGO_BIN_EXE_stallscope"))
        .args(["check", "--format", "json", "--duration", duration])
        .args(extra)
        .arg("--record")
        .arg(&tape)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout);
    let stderr = String::from_utf8_lossy(&out.stderr);
    let json: Value = serde_json::from_str(&stdout)
        .unwrap_or_else(|e| panic!("{name}: no JSON ({e}): {stdout}\nstderr: {stderr}"));
    let pretty = serde_json::to_string_pretty(&json).unwrap();
    std::fs::write(dir.join(format!("{name}.json")), pretty).unwrap();
    let code = out.status.code();
    let report = Report { name: name.to_owned(), json, code, foreign: steal.may() };
    report.summarise();
    report.agrees_with_exit_code();
    report.agrees_with_its_recording(&tape);
    report
}

/// Two [`check`]s of one fault at the same time: with eBPF, and without.
#[allow(dead_code, reason = "not every suite has such tests")]
pub fn check_both(name: &str, duration: &str) -> [Report; 2] {
    std::thread::scope(|s| {
        let without = format!("{name}-no-bpf");
        let without = s.spawn(move || check(&without, duration, &["--no-bpf"]));
        let with = check(name, duration, &[]);
        [with, without.join().unwrap_or_else(|e| std::panic::resume_unwind(e))]
    })
}

/// As [`check`], where each figure depends on the CPUs that this machine has: a run while the
/// hypervisor takes them says nothing, whatever it found, and is made again.
#[allow(dead_code, reason = "not every suite has such tests")]
pub fn check_undisturbed(name: &str, duration: &str) -> Report {
    for _ in 0..2 {
        let report = check(name, duration, &[]);
        if report.foreign.is_empty() {
            return report;
        }
        eprintln!("lab: {name}: void, once more");
    }
    check(name, duration, &[])
}

impl Report {
    /// Where a signal came from.
    pub fn source(&self, signal: &str) -> &str {
        let all = self.json["coverage"].as_array().unwrap();
        let lines: Vec<&Value> = all.iter().filter(|s| s["signal"] == signal).collect();
        assert_eq!(lines.len(), 1, "{}: one line for {signal}", self.name);
        lines[0]["source"].as_str().unwrap()
    }

    pub fn findings(&self) -> Vec<Found<'_>> {
        self.json["findings"].as_array().unwrap().iter().map(Found).collect()
    }

    /// Annotations, which never alarm.
    pub fn annotations(&self) -> Vec<Found<'_>> {
        self.json["annotations"].as_array().into_iter().flatten().map(Found).collect()
    }

    /// There is an annotation of `rule` about an affected subject.
    #[track_caller]
    pub fn annotates(&self, rule: &str, affected: impl Fn(Found<'_>) -> bool) -> Found<'_> {
        let found = self.annotations().into_iter().find(|f| f.rule() == rule && affected(*f));
        found.unwrap_or_else(|| {
            let json = serde_json::to_string_pretty(&self.json).unwrap_or_default();
            panic!("{}: no annotation of {rule}\n{json}", self.name)
        })
    }

    fn summarise(&self) {
        eprintln!("lab: {}: {} ticks", self.name, self.json["ticks"]);
        for f in self.findings().into_iter().chain(self.annotations()) {
            let summary = f.0["summary"].as_str().unwrap_or("");
            eprintln!(
                "lab: {}:   {} {} [{}]: {summary}",
                self.name,
                f.severity(),
                f.rule(),
                f.kind()
            );
            f.margins().for_each(|m| eprintln!("lab: {}:     {m}", self.name));
        }
    }

    /// Every run is also recorded, and the recording must say what the live run said, to the
    /// byte. A recording that does not is kept.
    fn agrees_with_its_recording(&self, tape: &Path) {
        let out = Command::new(env!("CARGO_BIN_EXE_stallscope"))
            .args(["check", "--format", "json"])
            .arg(tape)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), self.code, "{}: {}: {stderr}", self.name, tape.display());
        let replayed: Value = serde_json::from_slice(&out.stdout).unwrap();
        for part in ["findings", "annotations", "coverage", "blind_spots", "verdict", "ticks"] {
            let (live, again) = (self.json[part].to_string(), replayed[part].to_string());
            assert_eq!(live, again, "{}: {part} of {}", self.name, tape.display());
        }
    }

    fn agrees_with_exit_code(&self) {
        let want = i32::from(self.findings().iter().any(|f| f.alarming()));
        assert_eq!(self.code, Some(want), "{}: exit code against findings", self.name);
    }

    /// Judges the findings about the affected subjects at warn or worse: every rule of `must`
    /// is there, and none besides `must` and `may`. Each `may` is argued where it is given; what
    /// the hypervisor takes is no fault of ours, and told as often as it takes it.
    /// Findings about other subjects are no business of the test, except in a quiet run.
    #[track_caller]
    pub fn exactly(&self, affected: impl Fn(Found<'_>) -> bool, must: &[&str], may: &[&str]) {
        let all = self.findings();
        let alarms: Vec<_> = all.iter().filter(|f| f.alarming() && affected(**f)).collect();
        let fired: BTreeSet<&str> = alarms.iter().map(|f| f.rule()).collect();
        let missing: Vec<_> = must.iter().filter(|r| !fired.contains(**r)).collect();
        let allowed: BTreeSet<&str> = must.iter().chain(may).chain(self.foreign).copied().collect();
        let wrong: Vec<_> = fired.difference(&allowed).collect();
        assert!(
            missing.is_empty() && wrong.is_empty(),
            "{}: must fire but did not: {missing:?}; fired but must not: {wrong:?}\n{}",
            self.name,
            serde_json::to_string_pretty(&self.json).unwrap_or_default()
        );
        advice::try_all(&self.name, &alarms);
    }

    /// The finding of `rule` about an affected subject.
    #[track_caller]
    pub fn the<'a>(&'a self, rule: &str, affected: impl Fn(Found<'_>) -> bool) -> Found<'a> {
        let mut all: Vec<_> =
            self.findings().into_iter().filter(|f| f.rule() == rule && affected(*f)).collect();
        assert_eq!(all.len(), 1, "{}: findings of {rule}", self.name);
        all.remove(0)
    }
}
