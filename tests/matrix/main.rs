//! Other kernels: the program booted on Debian's 6.1 and 6.12 in qemu, as root, without
//! types, without rights and under lockdown. Needs root, qemu and a network to fetch the
//! kernels from: it runs under STALLSCOPE_MATRIX=1 only.
//!
//! Each kernel boots once and runs several sections; see `init.sh`. What the collectors count
//! is checked inside the guest (`guest.rs`) against the guest's own counters.

#![allow(clippy::unwrap_used, missing_docs)]

mod boot;
mod fetch;
#[path = "../lab/kit/gate.rs"]
#[allow(dead_code, unreachable_pub, reason = "the lab uses all of it")]
mod gate;
mod guest;
mod image;
mod verdict;

use std::sync::OnceLock;

use boot::Boot;
use verdict::{agent, check, doctor, finds, formats, signal};

const TOOLS: [&str; 8] =
    ["qemu-system-x86_64", "busybox", "apt-get", "apt-cache", "dpkg-deb", "xz", "strip", "ldd"];

/// Signals of the kernel programs that every kernel here has.
const COUNTED: [&str; 7] = [
    "run-queue latency",
    "softirq time",
    "interrupt time",
    "block latency",
    "TCP events",
    "file creation",
    "waits of all processes",
];

fn matrix(test: impl FnOnce()) {
    gate::suite("STALLSCOPE_MATRIX", &TOOLS, test);
}

fn on_6_1() -> &'static Boot {
    static BOOT: OnceLock<Boot> = OnceLock::new();
    BOOT.get_or_init(|| Boot::run("6.1", "live,groups,nobtf,user,formats", ""))
}

fn on_6_12() -> &'static Boot {
    static BOOT: OnceLock<Boot> = OnceLock::new();
    BOOT.get_or_init(|| Boot::run("6.12", "live,groups,nobtf,user,formats", ""))
}

fn counts(boot: &Boot) {
    doctor(boot, "doctor", |d| {
        let tested = d["ebpf_tested_kernels"].as_array().unwrap();
        assert!(tested.iter().any(|k| k == boot.line), "{tested:?} lacks {}", boot.line);
        for name in COUNTED {
            assert_eq!(signal(d, name)["status"], "ok", "{name}: {d:#}");
        }
    });
    check(boot, "check");
    agent(boot, "guest");
}

#[test]
fn kernel_6_1_counts() {
    matrix(|| counts(on_6_1()));
}

#[test]
fn kernel_6_12_counts() {
    matrix(|| counts(on_6_12()));
}

/// Without types the run queue is measured from wakeups, interrupts as ever, and the others
/// say what is missing. tracefs is not mounted there: the program mounts it for itself only.
fn without_btf(boot: &Boot) {
    doctor(boot, "nobtf-doctor", |d| {
        let runq = signal(d, "run-queue latency");
        assert_eq!(runq["status"], "degraded", "{runq}");
        let reason = runq["reason"].as_str().unwrap();
        assert!(reason.contains("from wakeups") && reason.contains("/sys/kernel/btf"), "{reason}");
        assert!(reason.contains("tracefs is mounted for this thread only"), "{reason}");
        for name in ["softirq time", "interrupt time"] {
            assert_eq!(signal(d, name)["status"], "ok", "{name}");
        }
    });
    check(boot, "nobtf-check");
    agent(boot, "nobtf-guest");
    assert_eq!(boot.read("nobtf-tracefs.out").trim(), "0", "the private mount spread");
}

#[test]
fn kernel_6_1_without_btf_measures_from_wakeups() {
    matrix(|| without_btf(on_6_1()));
}

#[test]
fn kernel_6_12_without_btf_measures_from_wakeups() {
    matrix(|| without_btf(on_6_12()));
}

/// No root: everything else runs, and what would unlock the programs is named.
fn without_root(boot: &Boot) {
    doctor(boot, "user-doctor", |d| {
        assert_eq!(d["uid"], 65534, "{d:#}");
        let refused: Vec<_> = d["signals"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|s| s["reason"].as_str().is_some_and(|r| r.contains("no CAP_BPF")))
            .collect();
        // One line for each kind of program, or for each signal that they give.
        assert!(refused.len() >= 4, "{d:#}");
        for s in refused {
            assert_ne!(s["status"], "ok", "{s}");
            assert!(s["remedy"].as_str().unwrap().contains("run as root"), "{s}");
        }
    });
    check(boot, "user-check");
    agent(boot, "user-guest");
}

#[test]
fn kernel_6_1_without_root_says_what_is_missing() {
    matrix(|| without_root(on_6_1()));
}

#[test]
fn kernel_6_12_without_root_says_what_is_missing() {
    matrix(|| without_root(on_6_12()));
}

/// There are no helpers that read memory; typed loads are allowed in this lockdown too.
#[test]
fn kernel_6_12_under_lockdown_counts() {
    matrix(|| {
        let boot = Boot::run("6.12", "live", "lockdown=confidentiality");
        assert!(boot.read("lockdown.out").contains("[confidentiality]"));
        counts(&boot);
    });
}

/// cgroups of version 2 that are short of something are named, and nothing else is blamed.
fn groups(boot: &Boot) {
    let memory = finds(boot, "memory", &[("oom-kill", "/oom"), ("cgroup-mem-stall", "/high")]);
    let victim = "kernel log: tail/";
    assert!(memory.to_string().contains(victim), "no {victim} in {memory:#}");
    finds(boot, "weights", &[("weight-starved", "/light"), ("task-limit", "/tasks")]);
}

#[test]
fn kernel_6_1_short_groups_are_named() {
    matrix(|| groups(on_6_1()));
}

#[test]
fn kernel_6_12_short_groups_are_named() {
    matrix(|| groups(on_6_12()));
}

/// The fixtures of the parser tests are what these kernels say today.
#[test]
fn kernel_6_1_formats_are_as_captured() {
    matrix(|| formats(on_6_1(), "6.1"));
}

#[test]
fn kernel_6_12_formats_are_as_captured() {
    matrix(|| formats(on_6_12(), "6.12"));
}
