//! The built program where it may not, or cannot, load: it runs on, says what is missing and
//! how to unlock it, and answers with the same exit code. And it leaves nothing behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use aya::programs::loaded_programs;
use serde_json::Value;

use crate::kit::gate::lab;
use crate::kit::sh::Held;
use crate::kit::{secs, wait_for};

const PROGRAM: &str = env!("CARGO_BIN_EXE_stallscope");
/// What the programs measure, each by its own object; all of it has another source.
const SIGNALS: [&str; 5] =
    ["run-queue latency", "softirq time", "block latency", "TCP events", "file creation"];

/// Where anybody may execute it: the build directory may be closed to others.
fn reachable() -> (tempfile::TempDir, String) {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("stallscope");
    std::fs::copy(PROGRAM, &to).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = to.to_str().unwrap().to_owned();
    (dir, text)
}

/// Exit code and report of a command line that ends in one of ours.
#[track_caller]
fn answer(argv: &[&str]) -> (i32, Value) {
    let out = Command::new(argv[0]).args(&argv[1..]).stdin(Stdio::null()).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(!err.contains("panicked"), "{err}");
    let v = serde_json::from_slice(&out.stdout)
        .unwrap_or_else(|e| panic!("{argv:?}: {e}: {}{err}", String::from_utf8_lossy(&out.stdout)));
    (out.status.code().unwrap(), v)
}

/// The signal of that name in `doctor`'s or `check`'s report.
#[track_caller]
fn signal<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report.get("signals").or_else(|| report.get("coverage")).unwrap();
    let named: Vec<&Value> =
        all.as_array().unwrap().iter().filter(|s| s["signal"] == name).collect();
    assert_eq!(named.len(), 1, "one line for {name}: {all}");
    named[0]
}

/// `doctor` and `check` under `prefix`: all four come from their other source, for a reason
/// that holds `reason`, with a remedy that holds `remedy`, and the exit codes are those of a healthy run.
#[track_caller]
fn all_off(prefix: &[&str], program: &str, extra: &[&str], reason: &str, remedy: &str) {
    let doctor = [prefix, &[program, "doctor", "--format", "json"], extra].concat();
    let short = ["check", "--format", "json", "--duration", "1s", "--netns", "self"];
    let check = [prefix, &[program], &short, extra].concat();
    for argv in [doctor, check] {
        let (code, report) = answer(&argv);
        for name in SIGNALS {
            let s = signal(&report, name);
            assert_eq!(s["status"], "degraded", "{s}");
            assert_ne!(s["source"], "ebpf", "{s}");
            assert!(s["reason"].as_str().unwrap().contains(reason), "{s}");
            assert!(s["remedy"].as_str().unwrap().contains(remedy), "{s}");
        }
        // `check` may find something on a busy machine, and says so with 1.
        let alarming = report["findings"].as_array().is_some_and(|all| {
            all.iter().any(|f| matches!(f["severity"].as_str(), Some("warn" | "crit")))
        });
        assert_eq!(code, i32::from(alarming), "{argv:?}");
    }
}

#[test]
fn switched_off_loads_nothing() {
    lab(&[], || {
        let before = ids();
        all_off(&[], PROGRAM, &["--no-bpf"], "switched off by --no-bpf", "without --no-bpf");
        assert_eq!(ids(), before);
    });
}

#[test]
fn other_users_are_told_which_capability_is_missing() {
    lab(&["setpriv"], || {
        let (_dir, program) = reachable();
        let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];
        all_off(&nobody, &program, &[], "no CAP_BPF, no CAP_PERFMON", "setcap cap_bpf,cap_perfmon");
    });
}

#[test]
fn root_without_the_capabilities_is_told_which() {
    lab(&["setpriv"], || {
        for (bounds, reason) in [
            ("-bpf,-perfmon,-sys_admin", "no CAP_BPF, no CAP_PERFMON"),
            ("-bpf,-sys_admin", "no CAP_BPF"),
            ("-perfmon,-sys_admin", "no CAP_PERFMON"),
        ] {
            let prefix = ["setpriv", "--inh-caps", bounds, "--bounding-set", bounds, "--"];
            all_off(&prefix, PROGRAM, &[], reason, "grant CAP_");
        }
    });
}

/// Runs a shell line in a mount namespace of its own, shared as systemd makes it, before it
/// becomes our program.
fn hidden(line: &str) -> Vec<String> {
    let line = format!("set -e; {line}; mount --make-rshared /; exec \"$@\"");
    ["unshare", "-m", "--propagation", "private", "sh", "-c", &line, "sh"].map(String::from).into()
}

const NO_TYPES: &str = "mount --bind /dev/null /sys/kernel/btf/vmlinux";
const NO_TRACEFS: &str = "umount -l /sys/kernel/debug/tracing 2>/dev/null || true; \
     umount -l /sys/kernel/debug 2>/dev/null || true; \
     umount -l /sys/kernel/tracing 2>/dev/null || true";

/// Without BTF the run queue is measured from wakeups, softirqs as ever, and the others say
/// what they miss. tracefs is mounted for the loader's thread and for nobody else.
#[test]
fn without_types_and_tracefs_the_rest_runs_and_no_mount_leaks() {
    lab(&["unshare", "mount", "umount"], || {
        let prefix = hidden(&format!("{NO_TYPES}; {NO_TRACEFS}"));
        let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
        let (code, report) =
            answer(&[&prefix[..], &[PROGRAM, "doctor", "--format", "json"]].concat());
        assert_eq!(code, 0);
        let runq = signal(&report, "run-queue latency");
        assert_eq!(runq["status"], "degraded", "{runq}");
        let reason = runq["reason"].as_str().unwrap();
        assert!(reason.contains("measured from wakeups") && reason.contains("BTF"), "{reason}");
        assert!(reason.contains("tracefs is mounted for this thread only"), "{reason}");
        assert_eq!(signal(&report, "softirq time")["status"], "ok");
        for name in ["block latency", "TCP events", "file creation"] {
            let s = signal(&report, name);
            assert_eq!(s["status"], "degraded", "{s}");
            assert!(s["reason"].as_str().unwrap().contains("BTF"), "{s}");
            assert!(s["remedy"].as_str().unwrap().contains("CONFIG_DEBUG_INFO_BTF"), "{s}");
        }
        // Where the mounts are while it runs.
        let check = [PROGRAM, "check", "--duration", "60s", "--netns", "self"];
        let held = Held::start(&[&prefix[..], &check].concat());
        let loader = wait_for("the loader's own tracefs", secs(10), || {
            threads(held.pid()).into_iter().find(has_tracefs)
        });
        let others = threads(held.pid()).into_iter().filter(|t| *t != loader);
        let leaked: Vec<String> = others.filter(has_tracefs).collect();
        assert_eq!(leaked, Vec::<String>::new(), "only the loader's thread sees it");
        // What the host unmounts must not stay busy through us.
        let info = std::fs::read_to_string(format!("{loader}/mountinfo")).unwrap();
        let root = info.lines().find(|l| l.split(' ').nth(4) == Some("/")).unwrap();
        assert!(root.contains("master:") && !root.contains("shared:"), "{root}");
    });
}

/// `/proc/PID/task/TID` of each thread.
fn threads(pid: u32) -> Vec<String> {
    let Ok(dir) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    dir.flatten().map(|e| e.path().to_string_lossy().into_owned()).collect()
}

fn has_tracefs(thread: &String) -> bool {
    let info = std::fs::read_to_string(format!("{thread}/mountinfo")).unwrap_or_default();
    // The main thread is a shell until it becomes our program.
    let comm = std::fs::read_to_string(format!("{thread}/comm")).unwrap_or_default();
    info.contains(" - tracefs ") && comm.starts_with("read-")
}

/// Ids of all programs in the kernel.
fn ids() -> BTreeSet<u32> {
    loaded_programs().filter_map(Result::ok).map(|p| p.id()).collect()
}

/// Ids of the programs that came since, if all four collectors attached one.
fn ours(before: &BTreeSet<u32>) -> Option<BTreeSet<u32>> {
    let new: Vec<_> = loaded_programs()
        .filter_map(Result::ok)
        .filter(|p| !before.contains(&p.id()))
        .map(|p| (p.id(), p.name_as_str().unwrap_or("").to_owned()))
        .collect();
    let all = ["runq", "softirq_entry", "block_complete", "drop_skb"];
    let there = all.iter().all(|name| new.iter().any(|(_, n)| n == name));
    there.then(|| new.into_iter().map(|(id, _)| id).collect())
}

/// Nothing is pinned: however it ends, the kernel detaches and frees every program.
#[test]
fn nothing_stays_after_kill_9() {
    lab(&[], || {
        let before = ids();
        let mut child = Command::new(PROGRAM)
            .args(["check", "--duration", "60s", "--netns", "self"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let programs = wait_for("all programs", secs(10), || ours(&before));
        assert!(programs.len() >= 10, "{} programs", programs.len());
        child.kill().unwrap();
        child.wait().unwrap();
        wait_for("all programs are gone", secs(10), || ids().is_disjoint(&programs).then_some(()));
        assert!(!Path::new("/sys/fs/bpf/stallscope").exists());
    });
}

const SYS_ADMIN: u64 = 1 << 21;
const SYS_RESOURCE: u64 = 1 << 24;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

/// Once attached, the loader's thread has no right left in force that loads anything; of the
/// others, those that enter namespaces keep theirs. `tests/suite/pty` looks at all rights.
#[test]
fn the_loader_gives_up_its_rights() {
    lab(&[], || {
        let before = ids();
        let held = Held::start(&[PROGRAM, "check", "--duration", "60s"]);
        wait_for("all programs", secs(10), || ours(&before));
        let effective = |thread: &str, kind: &str| -> u64 {
            let status = std::fs::read_to_string(format!("{thread}/status")).unwrap();
            let line = status.lines().find_map(|l| l.strip_prefix(kind)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        let loading = SYS_ADMIN | SYS_RESOURCE | PERFMON | BPF;
        let loader = wait_for("rights given up", secs(10), || {
            let all = threads(held.pid());
            let name = |t: &String| std::fs::read_to_string(format!("{t}/comm")).unwrap();
            let t = all.into_iter().find(|t| name(t).trim() == "read-bpf")?;
            (effective(&t, "CapEff:") & loading == 0).then_some(t)
        });
        wait_for("the right to mount is gone for good", secs(10), || {
            (effective(&loader, "CapPrm:") & (SYS_ADMIN | SYS_RESOURCE) == 0).then_some(())
        });
        assert_eq!(effective(&loader, "CapInh:"), 0);
        let all = threads(held.pid());
        let may_enter = all.iter().filter(|t| effective(t, "CapEff:") & SYS_ADMIN != 0);
        assert_eq!(may_enter.count(), 2, "the readers of other namespaces");
    });
}

/// `doctor` of a healthy machine says that all four come from eBPF.
#[test]
fn doctor_names_the_source() {
    lab(&[], || {
        let (code, report) = answer(&[PROGRAM, "doctor", "--format", "json"]);
        assert_eq!(code, 0);
        for name in SIGNALS {
            assert_eq!(signal(&report, name)["source"], "ebpf");
        }
    });
}

/// Programs tell the host's numbers of processes, and this `/proc` has others: nobody is named.
#[test]
fn in_a_pid_namespace_nobody_is_named_by_the_wrong_number() {
    lab(&["unshare"], || {
        let line = ["unshare", "--pid", "--fork", "--mount-proc", PROGRAM, "doctor"];
        let (code, report) = answer(&[&line[..], &["--format", "json"]].concat());
        assert_eq!(code, 0);
        let s = signal(&report, "file creation");
        assert_eq!(s["source"], "statvfs", "{s}");
        assert!(s["reason"].as_str().unwrap().contains("namespace of process ids"), "{s}");
    });
}
