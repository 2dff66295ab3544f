//! What commands print, as a user sees it.

use std::path::Path;

use stallscope::recording::Reader;
use stallscope::report::doctor;
use stallscope::sample::tick::HealthState;

use crate::support::files::DEMO;
use crate::support::program::transcript;

/// The recording by the name that it has in the README.
fn of_the_demo(args: &[&str]) -> String {
    transcript(&[&[args, &[DEMO]].concat()]).replace(DEMO, "demo.stall")
}

#[test]
fn reports_of_the_demo() {
    insta::assert_snapshot!("check-demo", of_the_demo(&["check"]));
    insta::assert_snapshot!("info-demo", of_the_demo(&["info"]));
}

/// What it says of the box that the demo was recorded on, and of the same one if it allowed less.
#[test]
fn doctor_of_two_boxes() {
    let mut demo = Reader::file(Path::new(DEMO)).unwrap();
    let (host, tick) = (demo.host(), demo.tick(0).unwrap());
    insta::assert_snapshot!("doctor-demo", doctor::text(&host, &tick.health));

    let mut health = tick.health.clone();
    for h in &mut health {
        if h.signals.iter().any(|s| s.source == "ebpf") {
            let (reason, remedy) = ("CAP_BPF is missing".into(), "run as root".into());
            (h.state, h.signals) = (HealthState::Off { reason, remedy }, Vec::new());
        } else if h.signals.iter().any(|s| s.source == "/proc/softirqs") {
            h.state = HealthState::Failed { error: "/proc/softirqs: Permission denied".into() };
        }
    }
    insta::assert_snapshot!("doctor-restricted", doctor::text(&host, &health));
}

#[test]
fn rules() {
    insta::assert_snapshot!("rules", transcript(&[&["rules"]]));
    insta::assert_snapshot!("rules-of-a-name", transcript(&[&["rules", "tcp-zero-window-stall"]]));
}

/// One clear message each on stderr, nothing on stdout.
#[test]
fn usage_errors() {
    let said = transcript(&[
        &["check", "--frobnicate"],
        &["bogus"],
        &["check", "one", "two"],
        &["check", "box.stall", "--duration", "5s"],
        &["replay"],
        &["replay", "x", "--speed", "100"],
        &["replay", "x", "--at", "noon"],
        &["export", "x"],
        &["check", "--format", "xml"],
        &["check", "--duration"],
        &["check", "--duration", "5"],
        &["check", "--duration", ""],
        &["check", "--duration", "-3s"],
        &["check", "--duration", "0s"],
        &["check", "--duration", "25h"],
        &["check", "--duration", "10 parsecs"],
        &["check", "--duration", "99999999999999999999s"],
        &["check", "--interval", "1ms"],
        &["check", "--interval", "NaNs"],
        &["check", "--interval", "10s", "--duration", "1s"],
        &["check", "--interval", "60s"],
        &["rules", "no-such-rule"],
        &["rules", "rto-strom"],
        &["rules", "disk-errors"],
        &["help", "recordin"],
        &["help", "chekc"],
        &["help", "check", "rules"],
        &["man", "chekc"],
        &["man", "check", "-o", "x"],
        &["completions", "tcsh"],
        &["--color", "blue"],
        &["record", "-o", "-", "--rotate", "1h"],
        &["record", "-o", "-", "--max-size", "10M"],
        &["record", "-o", "-", "--append"],
        &["record", "-o", "-", "--thin"],
        &["record", "--rotate", "10"],
        &["record", "--max-size", "10k"],
        &["record", "--sync", "sometimes"],
        &["record", "a.stall"],
        &["check", "--append"],
        &["explain", "a", "b"],
        &[],
    ]);
    insta::assert_snapshot!("usage-errors", said);
}

/// What is not there, or is something else. "No findings" about a namespace that is none would be
/// a false all-clear.
#[test]
fn errors_of_files() {
    let said = transcript(&[
        &["check", "/nonexistent"],
        &["check", "/dev/null"],
        &["check", "/etc/passwd"],
        &["info", "/proc"],
        &["export", "/nonexistent", "-o", "x"],
        &["explain", "/nonexistent"],
        &["explain", "/tmp"],
        &["record", "-o", "/nonexistent/a.stall"],
        &["man", "-o", "/nonexistent"],
        &["man", "-o", "/dev/null"],
        &["record", "-o", "/dev/full"],
        &["check", "--duration", "1s", "--netns", "/nonexistent"],
        &["check", "--duration", "1s", "--netns", ""],
        &["check", "--duration", "1s", "--netns", "/etc/passwd"],
        &["check", "--duration", "1s", "--netns", "/tmp"],
        &["check", "--duration", "1s", "--netns", "/dev/null"],
    ]);
    insta::assert_snapshot!("errors-of-files", said);
}
