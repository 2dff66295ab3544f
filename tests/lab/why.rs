//! Waits that are made for real, one kind at a time: `why` has to put at least 95% of the injected
//! time into the right class, and all of the time into some class.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::{Command, Output, Stdio};

use rustix::mount::{MountFlags, mount};
use serde_json::Value;

use crate::actor::actor;
use crate::kit::block::{Dir, Loop, load};
use crate::kit::cgroup::Cgroup;
use crate::kit::gate::{Place, beside, lab};
use crate::kit::sh::{Held, run};
use crate::kit::undo::Undo;
use crate::kit::{pause, secs, wait_for};

fn stallscope(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stallscope"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

/// What it says in JSON.
fn product(args: &[&str]) -> Value {
    let out = stallscope(&[args, &["--format", "json"]].concat());
    let text = String::from_utf8_lossy(&out.stdout);
    let err = String::from_utf8_lossy(&out.stderr);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}{err}"))
}

fn why(whom: &str, duration: &str, extra: &[&str]) -> Value {
    product(&[&["why", whom, "--duration", duration], extra].concat())
}

fn shares(classes: &Value) -> Vec<(String, f64)> {
    let share = |c: &Value| (c["class"].as_str().unwrap().to_owned(), c["share"].as_f64().unwrap());
    classes.as_array().unwrap().iter().map(share).collect()
}

fn share_of(classes: &Value, class: &str) -> f64 {
    shares(classes).into_iter().filter(|c| c.0 == class).map(|c| c.1).sum()
}

/// The thread that waits does so in this class, and the classes are all of its time.
#[track_caller]
fn waits(kind: &str, report: &Value, class: &str, at_least: f64) {
    let worst = &report["top_threads"][0];
    let share = share_of(&worst["classes"], class);
    eprintln!("lab: why: {kind}: {class} {:.1}%: {}", share * 100.0, report["conclusion"]);
    assert!(share >= at_least, "{kind}: {report:#}");
    let sum: f64 = shares(&report["classes"]).iter().map(|c| c.1).sum();
    assert!((sum - 1.0).abs() <= 0.02, "{kind}: {sum} of the time: {report:#}");
}

#[test]
fn sleeps_are_in_their_class() {
    beside(Place::Anywhere, &["setpriv", "env"], || {
        std::thread::scope(|s| {
            for (kind, class) in [
                ("mutex", "lock"),
                ("pipe", "peer"),
                ("child", "peer"),
                ("silent peer", "network"),
                ("slow reader", "network"),
                ("no request", "idle"),
                ("sleep", "idle"),
            ] {
                s.spawn(move || {
                    let held = actor(kind);
                    pause(1000);
                    let report = why(&held.pid().to_string(), "5s", &["--no-bpf"]);
                    waits(kind, &report, class, 0.95);
                });
            }
            s.spawn(|| {
                let held = actor("sleep");
                pause(500);
                let pid = held.pid().to_string();
                run(&["kill", "-STOP", &pid]);
                waits("stopped", &why(&pid, "5s", &["--no-bpf"]), "stopped", 0.95);
                run(&["kill", "-CONT", &pid]);
            });
        });
    });
}

/// Direct writes through a cgroup that allows 20 a second: nearly all of the time goes to the disk.
#[test]
fn a_throttled_disk_is_a_disk() {
    beside(Place::Disk, &["losetup", "fio", "dd", "setpriv"], || {
        let dir = Dir::new();
        let dev = Loop::new(&dir.image("disk.img", 64), true);
        let group = Cgroup::new("blkio", "why");
        group.set("blkio.throttle.write_iops_device", &format!("{} 20", dev.number()));
        for (kind, options) in [
            ("psync", "--bs=4k --ioengine=psync"),
            ("libaio", "--bs=4k --ioengine=libaio --iodepth=4"),
            ("fsync", "--bs=4k --ioengine=psync --direct=0 --fsync=1"),
        ] {
            let mut fio = load(&dev.dev, options, |fio| group.enter_and(fio));
            pause(1500);
            let report = why(&fio.pid().to_string(), "6s", &["--no-bpf"]);
            fio.assert_running();
            // fio's own threads that only wait for the one that writes are idle.
            waits(kind, &report, "disk", 0.95);
        }
    });
}

/// A lock of a file: who holds it is named, and is the next one to ask about.
#[test]
fn the_lock_of_a_file_names_who_holds_it() {
    beside(Place::Anywhere, &["flock", "setpriv"], || {
        let dir = Dir::new();
        let file = dir.path.join("lock").display().to_string();
        let holder = Held::start(&["flock", &file, "sleep", "3600"]);
        let is_held = || std::fs::read_to_string("/proc/locks").unwrap();
        let pid = format!(" {} ", holder.pid());
        wait_for("the lock", secs(10), || is_held().contains(&pid).then_some(()));
        let waiter = Held::start(&["flock", &file, "true"]);
        pause(500);
        for how in [&[][..], &["--no-bpf"]] {
            let report = why(&waiter.pid().to_string(), "4s", how);
            waits("file lock", &report, "lock", 0.95);
            let says = report["conclusion"].as_str().unwrap();
            let held = format!("held by flock/{}", holder.pid());
            assert!(says.contains(&held), "{says}");
            let next = format!("stallscope why {}", holder.pid());
            assert_eq!(report["next"][0], next.as_str(), "{report:#}");
        }
        // Nobody asks about it, and a recording has it as well.
        let tape = dir.path.join("a.stall").display().to_string();
        run(&[env!("CARGO_BIN_EXE_stallscope"), "record", "-o", &tape, "--duration", "6s"]);
        let report = product(&["why", &tape, "--pid", &waiter.pid().to_string()]);
        waits("file lock, unasked", &report, "lock", 0.95);
        let says = report["conclusion"].as_str().unwrap();
        assert!(says.contains(&format!("held by flock/{}", holder.pid())), "{says}");
    });
}

/// Two loops share a CPU, and one has a tenth of one by quota: waiting for a CPU and being held back
/// are two things.
#[test]
fn waits_for_a_cpu_are_told_apart() {
    lab(&["chrt", "taskset", "setpriv"], || {
        let spin = ["taskset", "-c", "0", "sh", "-c", "while :; do :; done"];
        let both = [Held::start(&spin), Held::start(&spin)];
        pause(500);
        let report = why(&both[0].pid().to_string(), "5s", &[]);
        let classes = &report["classes"];
        let (queued, ran) =
            (share_of(classes, "run-queue"), share_of(classes, "user") + share_of(classes, "sys"));
        eprintln!("lab: why: two on a CPU: ran {ran:.3}, run queue {queued:.3}");
        assert!((0.4..0.6).contains(&queued) && (0.4..0.6).contains(&ran), "{report:#}");
        drop(both);

        // The kernel leaves others a twentieth of a CPU that a real-time loop would have.
        let loser = Held::start(&spin);
        let hog = Held::start(&[
            "chrt",
            "-f",
            "5",
            "taskset",
            "-c",
            "0",
            "sh",
            "-c",
            "while :; do :; done",
        ]);
        pause(1_500);
        let report = why(&loser.pid().to_string(), "5s", &[]);
        waits("real-time loop", &report, "run-queue", 0.9);
        drop((loser, hog));

        let group = Cgroup::new("cpu", "why");
        group.set("cpu.cfs_period_us", "100000");
        group.set("cpu.cfs_quota_us", "10000");
        let held = Held::start(&["sh", "-c", &group.enter_and("sh -c 'while :; do :; done'")]);
        wait_for("ten throttled periods", secs(10), || {
            group.stat("cpu.stat", "nr_throttled").filter(|n| *n > 10)
        });
        let report = why(&held.pid().to_string(), "8s", &[]);
        let classes = &report["classes"];
        let (held_back, ran) =
            (share_of(classes, "throttled"), share_of(classes, "user") + share_of(classes, "sys"));
        eprintln!("lab: why: a tenth of a CPU: ran {ran:.3}, throttled {held_back:.3}");
        assert!((0.08..0.12).contains(&ran) && held_back >= 0.85, "{report:#}");
        assert_eq!(report["findings"][0]["rule"], "cfs-throttle", "{report:#}");
    });
}

/// A process that ends while it is watched is an answer or a message, never a hang.
#[test]
fn a_process_may_end_in_mid_watch() {
    beside(Place::Anywhere, &["setpriv"], || {
        let short = Held::start(&["sleep", "3"]);
        let out = Command::new(env!("CARGO_BIN_EXE_stallscope"))
            .args(["why", &short.pid().to_string(), "--duration", "30s", "--no-bpf"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert_eq!(out.status.code(), Some(0), "{text}");
        assert!(text.contains("is idle"), "{text}");
        drop(short);
    });
}

/// Sixteen threads queue for one mutex; locks that are held for a moment, idle workers and those
/// that accept in turn are no convoy.
#[test]
fn threads_that_queue_for_a_lock_are_a_convoy() {
    beside(Place::Still, &["setpriv", "env"], || {
        // What needs a CPU comes after the other.
        let at_a_time = [
            &[("convoy", true), ("sleepy convoy", true), ("pool", false), ("turns", false)][..],
            &[("short locks", false)],
        ];
        for actors in at_a_time {
            std::thread::scope(|s| {
                for (kind, is_one) in actors {
                    s.spawn(move || queues(kind, *is_one));
                }
            });
        }
    });
}

fn queues(kind: &str, is_one: bool) {
    let held = actor(kind);
    pause(500);
    let report = why(&held.pid().to_string(), "9s", &["--no-bpf"]);
    let classes = &report["classes"];
    let lock = share_of(classes, "lock");
    eprintln!("lab: why: {kind}: lock {:.1}%: {}", lock * 100.0, report["conclusion"]);
    let all = report["findings"].as_array().unwrap();
    let rules: Vec<&str> = all.iter().filter_map(|f| f["rule"].as_str()).collect();
    assert_eq!(rules.contains(&"lock-convoy"), is_one, "{kind}: {report:#}");
    if is_one {
        let f = all.iter().find(|f| f["rule"] == "lock-convoy").unwrap();
        let f = &f["subject"];
        assert_eq!((&f["kind"], &f["pid"]), (&"process".into(), &held.pid().into()));
        assert!(f["count"].as_u64().is_some_and(|n| (13..=16).contains(&n)), "{report:#}");
    }
}

/// Nobody asks about any of these, and yet the convoy is found and recorded with what it waits for;
/// the others are none, and one that only sleeps is not even recorded.
#[test]
fn a_convoy_that_nobody_asked_about_is_found_and_recorded() {
    lab(&["setpriv", "env"], || {
        let convoy = actor("convoy");
        let others = ["short locks", "pool", "turns", "pipe", "sleep"].map(actor);
        pause(1000);
        let dir = tempfile::tempdir().unwrap();
        let tape = dir.path().join("a.stall");
        let tape = tape.to_str().unwrap();
        run(&[env!("CARGO_BIN_EXE_stallscope"), "record", "-o", tape, "--duration", "14s"]);
        let pid = convoy.pid().to_string();
        let report = product(&["check", tape]);
        let all = report["findings"].as_array().unwrap();
        let convoys: Vec<&Value> = all.iter().filter(|f| f["rule"] == "lock-convoy").collect();
        let [found] = convoys[..] else { panic!("{report:#}") };
        assert_eq!(found["subject"]["pid"], convoy.pid(), "{report:#}");

        let report = product(&["why", tape, "--pid", &pid]);
        let lock = share_of(&report["classes"], "lock");
        eprintln!("lab: why: unasked convoy: lock {:.1}%: {}", lock * 100.0, report["conclusion"]);
        assert!(lock > 0.6, "{report:#}");
        let rules: Vec<&Value> =
            report["findings"].as_array().unwrap().iter().map(|f| &f["rule"]).collect();
        assert!(rules.contains(&&Value::from("lock-convoy")), "{report:#}");

        let [.., pipe, sleep] = &others;
        let report = product(&["why", tape, "--pid", &pipe.pid().to_string()]);
        waits("unasked pipe", &report, "peer", 0.95);
        let told = stallscope(&["why", tape, "--pid", &sleep.pid().to_string()]);
        let told = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(told.contains("no thread of process"), "{told}");
        // Nobody is asked about either.
        let told = stallscope(&["why", tape]);
        assert!(String::from_utf8_lossy(&told.stderr).contains("--pid"));
    });
}

/// A file system whose server answers the first question and no other one, as one that is stuck.
struct StuckFuse {
    // Dropped in this order.
    _undo: Undo,
    _requests: File,
    dir: Dir,
}

impl StuckFuse {
    fn new() -> Self {
        let dir = Dir::new();
        let path = dir.path.to_str().unwrap();
        let mut requests = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", requests.as_raw_fd());
        let options = CString::new(options).unwrap();
        mount("stlab", path, "fuse", MountFlags::empty(), options.as_c_str()).unwrap();
        let mut undo = Undo::default();
        undo.command(&["umount", "-l", path]);
        // struct fuse_in_header begins with len, opcode, unique; FUSE_INIT is 26.
        let mut asked = vec![0; 1 << 17];
        let n = requests.read(&mut asked).unwrap();
        assert!(n >= 40 && asked[4..8] == 26_u32.to_ne_bytes(), "{:?}", &asked[..n.min(40)]);
        // struct fuse_out_header with unique, and struct fuse_init_out of version 7.31.
        let mut answer = [0_u8; 16 + 64];
        answer[..4].copy_from_slice(&80_u32.to_ne_bytes());
        answer[8..16].copy_from_slice(&asked[8..16]);
        answer[16..20].copy_from_slice(&7_u32.to_ne_bytes());
        answer[20..24].copy_from_slice(&31_u32.to_ne_bytes());
        answer[36..40].copy_from_slice(&4096_u32.to_ne_bytes());
        assert_eq!(requests.write(&answer).unwrap(), answer.len());
        Self { _undo: undo, _requests: requests, dir }
    }
}

#[test]
fn a_fuse_server_that_does_not_answer_is_a_remote_file_system() {
    beside(Place::Files, &["umount", "cat", "setpriv"], || {
        let fuse = StuckFuse::new();
        let file = fuse.dir.path.join("file");
        let reader = Held::start(&["cat", file.to_str().unwrap()]);
        pause(1000);
        let report = why(&reader.pid().to_string(), "5s", &["--no-bpf"]);
        waits("FUSE", &report, "remote-fs", 0.95);
        // The kernel answers for a server that is gone.
        drop(fuse);
        drop(reader);
    });
}

/// A group at its limit whose tasks are not killed but wait for memory: what `memory.high` does for
/// a while, this does for good.
#[test]
fn a_group_at_its_memory_limit_waits_for_memory() {
    beside(Place::Anywhere, &["tail", "setpriv"], || {
        let group = Cgroup::new("memory", "why");
        group.set("memory.limit_in_bytes", "32M");
        group.set("memory.oom_control", "1");
        let held = Held::start(&["sh", "-c", &group.enter_and("tail /dev/zero")]);
        wait_for("a task waits at the limit", secs(20), || {
            group.stat("memory.oom_control", "under_oom ").filter(|n| *n == 1)
        });
        let report = why(&held.pid().to_string(), "5s", &["--no-bpf"]);
        waits("memory limit", &report, "memory", 0.95);
    });
}
