//! File systems: full, without inodes, turned read-only, and one that does not answer.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::Value;

use crate::kit::block::{Dir, Loop};
use crate::kit::gate::{Place, beside};
use crate::kit::product::{Found, check};
use crate::kit::sh::{attempt, run};
use crate::kit::undo::Undo;
use crate::kit::{pause, secs, wait_for};
use crate::sockets::under;

/// A file system of 16 MiB in a loop device; dropped in the order of its fields.
struct Mounted {
    path: String,
    _mount: Undo,
    disk: Loop,
    _dir: Dir,
}

impl Mounted {
    fn new(name: &str, mkfs: &[&str], options: &str) -> Self {
        let dir = Dir::new();
        let image = dir.image("fs.img", 16);
        run(&[&["mkfs.ext4", "-q", "-F"], mkfs, &[&image]].concat());
        let disk = Loop::new(&image, false);
        let path = dir.path.join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(&path).unwrap();
        run(&["mount", "-o", options, &disk.dev, &path]);
        let mut mount = Undo::default();
        mount.command(&["umount", &path]);
        Self { path, _mount: mount, disk, _dir: dir }
    }

    /// Writes until nothing more fits; how the kernel puts it.
    fn fill(&self) -> rustix::fs::StatVfs {
        let mut file = File::create(format!("{}/fill", self.path)).unwrap();
        let chunk = [7_u8; 8 << 10];
        let e = loop {
            if let Err(e) = file.write_all(&chunk) {
                break e;
            }
        };
        assert_eq!(e.kind(), std::io::ErrorKind::StorageFull, "{e}");
        file.sync_all().unwrap();
        rustix::fs::statvfs(&*self.path).unwrap()
    }

    fn is_about(&self) -> impl Fn(Found<'_>) -> bool + use<'_> {
        |f| f.subject()["mount"].as_str() == Some(&self.path)
    }
}

const TOOLS: [&str; 4] = ["losetup", "mkfs.ext4", "mount", "umount"];

/// Filled to the last block; its name needs quotes, and escapes in mountinfo.
#[test]
fn a_full_file_system() {
    beside(Place::Files, &TOOLS, || {
        let fs = Mounted::new("it's a\tname\\", &[], "defaults");
        let now = fs.fill();
        assert_eq!(now.f_bavail, 0);
        let report = check("fs-full", "6s", &[]);
        report.exactly(fs.is_about(), &["fs-full"], &[]);
        let f = report.the("fs-full", fs.is_about());
        assert_eq!(f.severity(), "crit");
        assert_eq!(f.number("avail"), 0.0);
        let kept = (now.f_bfree - now.f_bavail) * now.f_frsize;
        assert_eq!(f.number("bfree"), kept as f64);
    });
}

/// Seen from a mount namespace that does not have it, as that of a container or of a sandboxed
/// service: process 1 has it. Without the right to look there, it is named as unseen.
#[test]
fn a_full_file_system_beyond_our_mount_namespace() {
    beside(Place::Files, &[&TOOLS[..], &["unshare", "setpriv"]].concat(), || {
        let fs = Mounted::new("mnt", &[], "defaults");
        fs.fill();
        // A process 1 of our own: a sandbox may keep us from that of the host.
        let inner = format!("umount {} && exec \"$0\" \"$@\"", fs.path);
        let outer = "unshare -m sh -c \"$0\" \"$@\"; exit $?";
        let look = |rights: &str| -> Value {
            let mut c = Command::new("unshare");
            c.args(["-p", "-f", "-m", "--mount-proc", "sh", "-c", outer, &inner]);
            c.args(["setpriv", "--bounding-set", rights, env!("CARGO_BIN_EXE_stallscope")]);
            c.args(["check", "--format", "json", "--duration", "3s", "--no-bpf"]);
            let out = c.output().unwrap();
            serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"))
        };
        let is_full = |report: &Value| {
            let all = report["findings"].as_array().unwrap();
            all.iter().any(|f| f["rule"] == "fs-full" && f["subject"]["mount"] == fs.path.as_str())
        };
        let report = look("+all");
        assert!(is_full(&report), "{report:#}");
        let report = look("-sys_ptrace");
        assert!(!is_full(&report), "{report:#}");
        let spots = report["blind_spots"].as_array().unwrap();
        let spot = spots.iter().find(|s| s["signal"] == "file systems");
        assert_eq!(spot.map(|s| &s["remedy"]), Some(&"grant CAP_SYS_PTRACE".into()), "{report:#}");
    });
}

/// A file that is deleted and still open fills it: the command that the finding names lists the
/// descriptor.
#[test]
fn a_deleted_file_that_is_still_open() {
    beside(Place::Files, &[&TOOLS[..], &["find", "sort"]].concat(), || {
        let fs = Mounted::new("mnt", &[], "defaults");
        let held = File::create(format!("{}/gone", fs.path)).unwrap();
        let mut to = &held;
        while to.write_all(&[7; 8 << 10]).is_ok() {}
        held.sync_all().unwrap();
        std::fs::remove_file(format!("{}/gone", fs.path)).unwrap();
        let report = check("fs-deleted", "6s", &[]);
        let f = report.the("fs-full", fs.is_about());
        f.is_by(std::process::id());
        let all = f.next();
        let find = all.iter().find(|n| n.starts_with("find ")).unwrap();
        let found = run(&["sh", "-c", find]);
        let fd = format!("/proc/{}/fd/{}", std::process::id(), held.as_raw_fd());
        assert!(found.contains(&fd), "{find}\n{found}");
    });
}

/// Made with 16 inodes, of which 5 are to be had; this process goes on trying.
#[test]
fn a_file_system_without_inodes() {
    beside(Place::Files, &TOOLS, || {
        let fs = Mounted::new("mnt", &["-N", "16"], "defaults");
        let made = (0..100).take_while(|n| File::create(format!("{}/{n}", fs.path)).is_ok());
        assert_eq!(made.count(), 5);
        let quiet = check("fs-inodes-quiet", "6s", &[]);
        quiet.exactly(fs.is_about(), &["fs-inodes"], &[]);
        let f = quiet.the("fs-inodes", fs.is_about());
        assert_eq!(f.severity(), "crit");
        assert!(f.text().contains("no attempt seen in "), "{}", f.text());
        let load = || {
            for n in 0..10 {
                let e = File::create(format!("{}/more-{n}", fs.path)).unwrap_err();
                assert_eq!(e.kind(), std::io::ErrorKind::StorageFull, "{e}");
                std::fs::create_dir(format!("{}/dir-{n}", fs.path)).unwrap_err();
            }
            pause(50);
        };
        let report = under(load, || check("fs-inodes", "6s", &[]));
        report.the("fs-inodes", fs.is_about()).is_by(std::process::id());
    });
}

/// An error of the file system, made by its own test switch: the kernel remounts it read-only.
#[test]
fn a_file_system_that_the_kernel_made_read_only() {
    beside(Place::Files, &TOOLS, || {
        let fs = Mounted::new("mnt", &[], "errors=remount-ro");
        let switch = format!("/sys/fs/ext4/{}/trigger_fs_error", fs.disk.name());
        std::fs::write(&switch, "1").unwrap_or_else(|e| panic!("{switch}: {e}"));
        wait_for("writes fail with EROFS", secs(10), || {
            let e = File::create(format!("{}/f", fs.path)).err()?;
            (e.kind() == std::io::ErrorKind::ReadOnlyFilesystem).then_some(())
        });
        let report = check("fs-read-only", "6s", &[]);
        report.exactly(fs.is_about(), &["fs-read-only"], &[]);
        assert_eq!(report.the("fs-read-only", fs.is_about()).severity(), "crit");
    });
}

/// Full, without an inode, and read-only: by choice.
#[test]
fn an_archive_is_no_finding() {
    beside(Place::Files, &TOOLS, || {
        let fs = Mounted::new("mnt", &["-N", "16"], "defaults");
        fs.fill();
        run(&["mount", "-o", "remount,ro", &fs.path]);
        check("fs-archive", "6s", &[]).exactly(fs.is_about(), &[], &[]);
    });
}

/// Two file systems whose server stands still: ticks come as ever, the full one beside them is
/// found, and the program ends although its threads wait for an answer.
#[test]
fn a_server_that_stands_still() {
    beside(Place::Hung, &TOOLS, || {
        let full = Mounted::new("full", &[], "defaults");
        full.fill();
        let dir = Dir::new();
        let (first, second) = (Stopped::new(&dir, "first"), Stopped::new(&dir, "second"));
        let report = check("fs-hung", "9s", &[]);
        report.exactly(full.is_about(), &["fs-full"], &[]);
        let signals = report.json["coverage"].as_array().unwrap();
        let signal = signals.iter().find(|s| s["signal"] == "file systems").unwrap();
        let reason = signal["reason"].as_str().unwrap();
        assert!(reason.starts_with(&format!("{} has not responded for ", first.path)), "{reason}");
        assert!(reason.ends_with(" s, and 1 more"), "{reason}");
        let ticks = report.json["ticks"].as_u64().unwrap();
        assert!(ticks >= 9, "{ticks} ticks in 9 s");
        drop(second);
    });
}

/// A FUSE server that says hello and then takes no request any more. Goes on when it is dropped.
struct Stopped {
    path: String,
    _go_on: Sender<()>,
    _mount: Undo,
}

impl Stopped {
    fn new(dir: &Dir, name: &str) -> Self {
        let path = dir.path.join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(&path).unwrap();
        let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let data = std::ffi::CString::new(data).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("lab", &*path, "fuse", flags, Some(&*data)).unwrap();
        let mut mount = Undo::default();
        let at = path.clone();
        mount.then(move || {
            let _ = attempt(&["umount", "-l", &at]);
        });
        let (go_on, wait) = channel();
        let (hello, said) = channel();
        std::thread::spawn(move || serve(device, &hello, &wait));
        said.recv().unwrap();
        Self { path, _go_on: go_on, _mount: mount }
    }
}

/// include/uapi/linux/fuse.h: requests begin with 40 bytes (length, opcode, unique), answers with
/// 16 (length, error, unique).
fn serve(mut device: File, hello: &Sender<()>, wait: &Receiver<()>) {
    const INIT: u32 = 26;
    let mut request = vec![0; 1 << 20];
    while let Ok(n) = device.read(&mut request) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        assert!(n >= 40);
        let body = if word(4) == INIT {
            let mut body = [7_u32.to_ne_bytes(), 31_u32.to_ne_bytes()].concat();
            body.resize(64, 0);
            body
        } else {
            Vec::new()
        };
        let error = if body.is_empty() { -38_i32 } else { 0 };
        let mut answer = (16 + body.len() as u32).to_ne_bytes().to_vec();
        answer.extend(error.to_ne_bytes());
        answer.extend(&request[8..16]);
        answer.extend(body);
        let _ = device.write_all(&answer);
        if error == 0 {
            let _ = hello.send(());
            let _ = wait.recv();
        }
    }
}
