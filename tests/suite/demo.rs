//! The recording of the README's tour says what the tour says, on any machine.

use std::collections::BTreeSet;

use crate::support::files::DEMO;
use crate::support::program::{json, run};

fn said(args: &[&str]) -> (Option<i32>, serde_json::Value) {
    let out = run([args, &[DEMO, "--format", "json"]].concat());
    (out.status.code(), json(&out))
}

/// Made by `tests/lab/demo.rs` on 6.18: a peer that swallows everything, a disk limited to 500
/// requests/s, three busy loops on CPU 0 of two. The limit is a cgroup's, on the disk below the
/// loop device: both ends of it are named.
#[test]
fn three_faults_and_nothing_else() {
    let (code, report) = said(&["check"]);
    assert_eq!(code, Some(1));
    let all = report["findings"].as_array().unwrap();
    let alarms: BTreeSet<&str> = all
        .iter()
        .filter(|f| f["severity"] != "info")
        .map(|f| f["rule"].as_str().unwrap())
        .collect();
    let want =
        ["cgroup-io-throttle", "disk-capped-cloud", "runq-latency-idle-elsewhere", "tcp-rto-storm"];
    assert_eq!(alarms, BTreeSet::from(want), "{all:?}");
    let summary = |rule: &str| {
        let f = all.iter().find(|f| f["rule"] == rule).unwrap();
        f["summary"].as_str().unwrap().to_owned()
    };
    assert!(summary("disk-capped-cloud").contains("capped at 500 IOPS"));
    assert!(
        summary("cgroup-io-throttle")
            .contains("is throttled to its limit of 500/s of writes on vda")
    );
    assert!(summary("tcp-rto-storm").contains("3 connections to 10.9.0.2:5000"));
    assert!(summary("runq-latency-idle-elsewhere").contains("for cpu0 while cpu1 is"));
}

#[test]
fn whole_and_small() {
    let (code, info) = said(&["info"]);
    assert_eq!((code, &info["sealed"]), (Some(0), &serde_json::Value::Bool(true)));
    assert_eq!(info["damage"].as_array().map(Vec::len), Some(0));
    assert!(std::fs::metadata(DEMO).unwrap().len() < 300_000);
}

/// The recording has what the page of a process shows: what those who are blamed wait for, though
/// nobody asked about them at the time, and by which finding.
#[test]
fn who_is_blamed_waits_for_what_it_uses() {
    let (_, report) = said(&["check"]);
    let all = report["findings"].as_array().unwrap();
    for (rule, class, least) in
        [("runq-latency-idle-elsewhere", "run-queue", 0.55), ("disk-capped-cloud", "disk", 0.85)]
    {
        let f = all.iter().find(|f| f["rule"] == rule).unwrap();
        let pid = f["by"][0]["pid"].to_string();
        let out = run(["why", DEMO, "--pid", &pid, "--format", "json"]);
        let answer = json(&out);
        let classes = answer["classes"].as_array().unwrap();
        let share = classes.iter().find(|c| c["class"] == class).and_then(|c| c["share"].as_f64());
        assert!(share.is_some_and(|s| s >= least), "{rule} {pid}: {answer:#}");
        let explains = answer["findings"].as_array().unwrap();
        assert!(explains.iter().any(|f| f["rule"] == rule), "{answer:#}");
        assert_eq!(out.status.code(), Some(1), "{answer:#}");
    }
}
