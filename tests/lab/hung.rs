//! Tasks that do not come back from a sleep, and tasks that are in D at every reading and do.

use crate::kit::block::{Dir, FrozenDisk, Loop, load};
use crate::kit::cgroup::Cgroup;
use crate::kit::gate::{Place, beside};
use crate::kit::product::{Found, check};
use crate::kit::sh::{Held, run};
use crate::kit::undo::Undo;
use crate::kit::{pause, secs, wait_for};

/// State and function of each thread of a process.
fn sleeps(pid: u32) -> Vec<(char, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |dir: std::path::PathBuf| {
        let stat = std::fs::read_to_string(dir.join("stat")).ok()?;
        let wchan = std::fs::read_to_string(dir.join("wchan")).ok()?;
        Some((stat.rsplit_once(") ")?.1.chars().next()?, wchan))
    };
    tasks.filter_map(|t| of(t.ok()?.path())).collect()
}

fn wait_in(what: &str, pid: u32, function: &str) {
    wait_for(what, secs(10), || {
        sleeps(pid).iter().any(|(state, f)| *state == 'D' && f == function).then_some(())
    });
}

fn is_blocked(f: Found<'_>) -> bool {
    f.kind() == "blocked"
}

/// A file system that a backup froze, and did not thaw. No disk has anything to do.
#[test]
fn a_writer_of_a_frozen_file_system_hangs() {
    beside(Place::Hung, &["mkfs.ext4", "mount", "fsfreeze", "dd"], || {
        let dir = Dir::new();
        let image = dir.image("disk.img", 64);
        let mnt = dir.path.join("mnt").to_str().unwrap().to_owned();
        std::fs::create_dir(&mnt).unwrap();
        run(&["mkfs.ext4", "-q", "-F", &image]);
        run(&["mount", "-o", "loop", &image, &mnt]);
        let mut mount = Undo::default();
        mount.command(&["umount", &mnt]);
        run(&["fsfreeze", "-f", &mnt]);
        // Dropped after the thaw, without which it cannot end.
        let mut writer: Option<Held> = None;
        let mut thaw = Undo::default();
        thaw.command(&["fsfreeze", "-u", &mnt]);
        let of = format!("of={mnt}/file");
        let dd = ["dd", "if=/dev/zero", &of, "bs=4k", "count=1"];
        let writer = writer.insert(Held::start(&dd));
        wait_in("a writer in D", writer.pid(), "percpu_rwsem_wait");
        let report = check("hung-frozen", "14s", &[]);
        writer.assert_running();
        report.exactly(is_blocked, &["task-hung"], &[]);
        let f = report.the("task-hung", is_blocked);
        assert_eq!(f.subject()["function"], "percpu_rwsem_wait", "{}", f.text());
        assert_eq!((f.severity(), f.cause()), ("warn", None), "{}", f.text());
        assert!(f.text().contains(&format!("dd/{}", writer.pid())), "{}", f.text());
    });
}

/// The same below a disk: that one hangs, and with it who writes to it. It is one story.
#[test]
fn writers_of_a_hung_disk_are_its_consequence() {
    beside(Place::Hung, &["losetup", "mkfs.ext4", "mount", "fsfreeze", "dd"], || {
        let mut frozen = FrozenDisk::new();
        frozen.write(0);
        frozen.write(8);
        wait_in("a writer in D", frozen.writers[1].pid(), "submit_bio_wait");
        let report = check("hung-disk", "15s", &[]);
        frozen.writers.iter_mut().for_each(Held::assert_running);
        let function = |f: Found<'_>| f.subject()["function"] == "submit_bio_wait";
        let f = report.the("task-hung", function);
        assert_eq!(f.cause(), Some("disk-hung"), "{}", f.text());
        assert!(f.text().contains("2 tasks hang in submit_bio_wait (disk)"), "{}", f.text());
        for f in report.findings().into_iter().filter(|f| is_blocked(*f)) {
            assert_eq!(f.cause(), Some("disk-hung"), "{}", f.text());
        }
    });
}

/// Thirty-two writers of a slow disk are in D whenever anybody looks, each in a sleep of 64 ms.
#[test]
fn writers_of_a_slow_disk_do_not_hang() {
    beside(Place::Disk, &["losetup", "fio", "dd"], || {
        let dir = Dir::new();
        let dev = Loop::new(&dir.image("disk.img", 128), true);
        let (number, _) = dir.lower_disk();
        let group = Cgroup::new("blkio", "slow");
        group.set("blkio.throttle.write_iops_device", &format!("{number} 500"));
        let many = "--bs=4k --ioengine=psync --numjobs=32 --group_reporting";
        let mut writers = load(&dev.dev, many, |fio| group.enter_and(fio));
        let blocked = |pid| sleeps(pid).iter().filter(|(state, _)| *state == 'D').count();
        wait_for("thirty writers in D", secs(20), || (blocked(writers.pid()) >= 30).then_some(()));
        pause(1000);
        let report = check("hung-not", "25s", &[]);
        writers.assert_running();
        report.exactly(|f| is_blocked(f) && f.text().contains("fio/"), &[], &[]);
        assert!(blocked(writers.pid()) >= 25, "they are in D all the time");
    });
}

/// A parent in vfork is in D until its child executes something, and waits of its own will.
#[test]
fn a_parent_in_vfork_does_not_hang() {
    beside(Place::Anywhere, &["python3"], || {
        let lend = "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.syscall(58) or libc.sleep(60)";
        let mut parent = Held::start(&["python3", "-c", lend]);
        wait_in("a parent in D", parent.pid(), "kernel_clone");
        let report = check("hung-vfork", "14s", &[]);
        parent.assert_running();
        report.exactly(|f| is_blocked(f) && f.text().contains("python3"), &[], &[]);
    });
}
