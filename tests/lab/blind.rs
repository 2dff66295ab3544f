//! What cannot be looked at: an all-clear says so, and no limit of the system ends in a panic or
//! in waiting. What is out of reach is counted here by root, who sees all of it.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::kit::gate::{Place, beside, lab};
use crate::kit::net::Pair;
use crate::kit::sh::{Held, run};
use crate::kit::{secs, wait_for};

/// The program where any user can start it, and files that any user can write beside it.
struct Public(tempfile::TempDir);

impl Public {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("stlab").tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        // By another process: a child that a test beside this one begins has what is open here for a
        // moment, and a program that somebody may still write to is not executed (ETXTBSY).
        run(&["cp", env!("CARGO_BIN_EXE_stallscope"), dir.path().to_str().unwrap()]);
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `prefix stallscope args`; killed if it does not end.
    fn run(&self, prefix: &[&str], args: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60"]).args(prefix).arg(self.path("stallscope")).args(args);
        let out = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!said.contains("panicked"), "{prefix:?} {args:?}: {said}");
        assert!(matches!(out.status.code(), Some(0 | 1 | 3)), "{prefix:?} {args:?}: {out:?}");
        out
    }

    fn check(&self, prefix: &[&str], more: &[&str]) -> Value {
        let args = [&["check", "--format", "json", "--duration", "1s"], more].concat();
        let out = self.run(prefix, &args);
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"))
    }
}

const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

fn blind<'a>(report: &'a Value, what: &str) -> Option<&'a Value> {
    let all = report["blind_spots"].as_array().unwrap();
    all.iter().find(|b| b["what"].as_str().unwrap().contains(what))
}

fn verdict(report: &Value) -> &str {
    report["verdict"].as_str().unwrap()
}

/// Other namespaces: by processes, and by mounts.
fn others() -> (BTreeSet<u64>, BTreeSet<u64>) {
    let own = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let links = all.filter_map(|e| std::fs::metadata(e.path().join("ns/net")).ok());
    let mounts = std::fs::read_dir("/run/netns").unwrap().flatten();
    let mounts = mounts.filter_map(|e| std::fs::metadata(e.path()).ok());
    let ids = |m: std::fs::Metadata| m.ino();
    (
        links.map(ids).filter(|i| *i != own).collect(),
        mounts.map(ids).filter(|i| *i != own).collect(),
    )
}

/// Waits until the process is in a network namespace of its own.
fn namespace_of(held: &Held) -> u64 {
    let own = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
    let link = format!("/proc/{}/ns/net", held.pid());
    wait_for("a namespace of its own", secs(10), || {
        std::fs::metadata(&link).ok().map(|m| m.ino()).filter(|i| *i != own)
    })
}

/// Two namespaces with a mount, one of them with a process, and one that only a process holds.
#[test]
fn namespaces_out_of_reach_are_counted() {
    lab(&["ip", "setpriv", "unshare", "capsh"], || {
        let _pair = Pair::new();
        let holder = Held::start(&["unshare", "-n", "sleep", "3600"]);
        let alone = namespace_of(&holder);
        let public = Public::new();
        let (by_process, by_mount) = others();
        assert!(by_process.contains(&alone) && !by_mount.contains(&alone));
        assert!(by_mount.len() >= 2);

        // Nobody sees the mounts, and by the files of /proc/PID/net how many namespaces there
        // are; nothing tells which of the one are which of the other.
        let tape = public.path("nobody.stall");
        let tape = tape.to_str().unwrap();
        let report = public.check(&NOBODY, &["--record", tape]);
        let most = by_process.len().max(by_mount.len());
        let spaces = blind(&report, "network namespace").unwrap();
        assert_eq!(spaces["what"], format!("{most}+ network namespaces"), "{report}");
        assert_eq!(
            (spaces["count"].as_u64(), &spaces["remedy"]),
            (Some(most as u64), &"run as root".into())
        );
        assert!(verdict(&report).contains("network namespaces and eBPF need root"), "{report}");
        // What was not seen is in the recording, too.
        let replayed: Value =
            serde_json::from_slice(&public.run(&[], &["check", "--format", "json", tape]).stdout)
                .unwrap();
        assert_eq!(replayed["blind_spots"], report["blind_spots"]);
        assert_eq!(verdict(&replayed), verdict(&report));

        // Root that may not trace comes in by the mounts; of the third it only knows.
        let report = public
            .check(&["capsh", "--drop=cap_sys_ptrace", "--", "-c", "exec \"$0\" \"$@\""], &[]);
        let rest = by_process.difference(&by_mount).count() as u64;
        let spaces = blind(&report, "network namespace").unwrap();
        assert_eq!(spaces["count"].as_u64(), Some(rest), "{report}");
        assert_eq!(spaces["remedy"], "grant CAP_SYS_PTRACE", "{report}");

        // All of it: nothing to add.
        let report = public.check(&[], &[]);
        assert_eq!(blind(&report, "network namespace"), None, "{report}");
        let doctor = public.run(&[], &["doctor"]);
        let doctor = String::from_utf8_lossy(&doctor.stdout);
        assert!(!doctor.contains("grant CAP_SYS_PTRACE"), "{doctor}");
    });
}

/// A file that is there and holds nothing of what it should, and no `/proc` at all.
#[test]
fn files_that_hold_nothing_are_no_health() {
    beside(Place::Anywhere, &["unshare", "mount"], || {
        let public = Public::new();
        let garbage = public.path("garbage");
        std::fs::write(&garbage, "\0\0garbage\n").unwrap();
        for cover in [Path::new("/dev/null"), &garbage] {
            for (file, what) in [
                ("diskstats", "disks"),
                ("meminfo", "memory"),
                ("vmstat", "reclaim and writeback"),
                ("stat", "CPU time"),
                ("pressure/cpu", "cpu pressure"),
            ] {
                let mount =
                    format!("mount --bind {} /proc/{file} && exec \"$0\" \"$@\"", cover.display());
                let report = public.check(&["unshare", "-m", "sh", "-c", &mount], &["--no-bpf"]);
                assert!(blind(&report, what).is_some(), "{file}: {report}");
                assert!(verdict(&report).contains(what), "{file}: {}", verdict(&report));
            }
        }
        let gone = ["unshare", "-m", "sh", "-c", "umount -l /proc && exec \"$0\" \"$@\""];
        for args in
            [&["check", "--duration", "1s"][..], &["doctor"], &["record", "--duration", "1s"]]
        {
            let out = public.run(&gone, args);
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(3), "{args:?}: {out:?}");
            assert!(said.contains("/proc is not mounted") && said.lines().count() == 1, "{said}");
        }
    });
}

/// From no thread at all to enough of them: what has none is named, and everything ends.
#[test]
fn threads_that_the_system_refuses_are_degraded_signals() {
    beside(Place::Anywhere, &["timeout"], || {
        let group = Path::new("/sys/fs/cgroup/pids/stlab-threads");
        if let Err(e) = std::fs::create_dir(group) {
            eprintln!("SKIPPED: no pids controller of cgroup v1 here: {e}");
            return;
        }
        let public = Public::new();
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", group.display());
        let prefix = ["sh", "-c", &enter];
        let mut complete = 0;
        for threads in 1..12 {
            std::fs::write(group.join("pids.max"), threads.to_string()).unwrap();
            let doctor = public.run(&prefix, &["doctor"]);
            let out = public.run(&prefix, &["check", "--format", "json", "--duration", "1s"]);
            assert_eq!(doctor.status.code() == Some(3), out.status.code() == Some(3));
            if out.status.code() == Some(3) {
                let said = String::from_utf8_lossy(&out.stderr);
                assert!(said.contains("pids.max") && said.lines().count() == 1, "{said}");
                continue;
            }
            let report: Value = serde_json::from_slice(&out.stdout).unwrap();
            let lacks = |b: &Value| b["lack"].as_str().unwrap().contains("more threads");
            let lacking = report["blind_spots"].as_array().unwrap().iter().any(lacks);
            assert_eq!(lacking, verdict(&report).contains("more threads"), "{report}");
            complete += u32::from(!lacking);
        }
        std::fs::remove_dir(group).unwrap();
        assert!(complete > 0, "eleven threads are enough");
    });
}
