//! Disk faults that are no outage: limits, settings, callers that wait, floods of writeback.

use stallscope::clock;
use stallscope::sample::time::MonoNs;

use crate::kit::block::{Dir, Loop, load, writeback, writer};
use crate::kit::cgroup::Cgroup;
use crate::kit::gate::{Place, beside, lab};
use crate::kit::product::{Found, check, check_undisturbed};
use crate::kit::sh::{Held, run};
use crate::kit::undo::Undo;
use crate::kit::{secs, wait_for};

/// Columns of `/proc/diskstats` after the name.
const RD_IOS: usize = 0;
const WR_IOS: usize = 4;
const WR_SECTORS: usize = 6;

/// Requests of any kind per second over the next second.
fn passed(dev: &Loop) -> f64 {
    let all = || dev.counters()[RD_IOS] + dev.counters()[WR_IOS];
    let (begun, before) = (clock::mono(), all());
    clock::sleep_until(MonoNs(begun.0 + 1_000_000_000));
    (all() - before) as f64 / clock::mono().since(begun).as_secs_f64()
}

fn exec(fio: &str) -> String {
    format!("exec {fio}")
}

/// Writes per second over the next second.
fn rate(dev: &Loop) -> f64 {
    let (begun, before) = (clock::mono(), dev.counters()[WR_IOS]);
    clock::sleep_until(MonoNs(begun.0 + 1_000_000_000));
    (dev.counters()[WR_IOS] - before) as f64 / clock::mono().since(begun).as_secs_f64()
}

/// About any cgroup but those of the tests beside this one.
fn about_cgroups(ours: &Cgroup) -> impl Fn(Found<'_>) -> bool + use<'_> {
    |f| {
        let path = f.subject()["path"].as_str().unwrap_or("");
        f.kind() == "cgroup" && (!path.contains("stlab") || path.contains(&ours.name))
    }
}

/// One synchronous writer on a fast device: it is the writer that waits, and no alarm. The only other
/// writer has its file elsewhere, and is not named.
#[test]
fn k8_one_synchronous_writer() {
    lab(&["losetup", "fio", "dd"], || {
        let dir = Dir::new();
        let dev = Loop::new(&dir.image("disk.img", 256), true);
        let mut other = writes_elsewhere(&dir);
        let mut one = load(&dev.dev, "--bs=4k --ioengine=psync", exec);
        wait_for("500 writes/s", secs(10), || (rate(&dev) > 500.0).then_some(()));
        let report = check_undisturbed("k8-qd1", "14s");
        one.assert_running();
        other.assert_running();
        let disk = |f: Found<'_>| f.disk() == Some(dev.name());
        report.exactly(disk, &[], &[]);
        // Not of the bytes of all disks: where the others have their files is known.
        let f = report.annotates("disk-qd1-bound", disk);
        let pid = f.is_mostly_by("fio");
        assert_eq!(f.by().len(), 1, "{}", f.text());
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(line.contains(&dev.dev), "{pid}: {line}");
        assert!(
            f.text().contains(&format!("of the bytes written to {}", dev.name())),
            "{}",
            f.text()
        );
    });
}

/// Writes 10 MB/s to a file of this directory, through the page cache.
fn writes_elsewhere(dir: &Dir) -> Held {
    let file = dir.path.join("other");
    let options = "--name=other --rw=write --bs=1M --size=64M --fallocate=none --time_based";
    let rate = "--runtime=600 --rate=10m --thread --eta=never";
    let line = format!("exec fio {options} {rate} --filename={} >/dev/null", file.display());
    Held::start(&["sh", "-c", &line])
}

/// Each write is followed by a flush of the device, which is an fsync of the file below. How long
/// one takes is up to the disk of this machine, so nothing else writes to it.
#[test]
fn k8_flush_after_each_write() {
    lab(&["losetup", "fio", "dd"], || {
        let dir = Dir::new();
        let dev = Loop::new(&dir.image("disk.img", 256), true);
        let mut commits = load(&dev.dev, "--bs=4k --ioengine=psync --fsync=1", exec);
        let flushes = |d: &Loop| d.counters().get(15).copied().zip(d.counters().get(16).copied());
        wait_for("300 ms of flushes a second", secs(10), || {
            let (n, t) = flushes(&dev)?;
            clock::sleep_until(MonoNs(clock::mono().0 + 1_000_000_000));
            let (m, u) = flushes(&dev)?;
            (m - n >= 50 && u - t >= 330).then_some(())
        });
        let report = check_undisturbed("k8-flush", "14s");
        commits.assert_running();
        let disk = |f: Found<'_>| f.disk() == Some(dev.name());
        report.exactly(disk, &[], &[]);
        report.annotates("fs-flush-bound", disk).is_mostly_by("fio");
    });
}

/// A limit on the device itself: requests wait above it, and it looks idle.
#[test]
fn k10_cgroup_limit_on_the_disk_itself() {
    beside(Place::Disk, &["losetup", "fio", "dd"], || {
        let dir = Dir::new();
        let dev = Loop::new(&dir.image("disk.img", 256), true);
        let group = Cgroup::new("blkio", "iolimit");
        group.set("blkio.throttle.write_iops_device", &format!("{} 500", dev.number()));
        let options = "--bs=4k --ioengine=psync --numjobs=8 --group_reporting";
        let mut eight = load(&dev.dev, options, |fio| group.enter_and(fio));
        wait_for("500 writes/s", secs(20), || (450.0..=550.0).contains(&rate(&dev)).then_some(()));
        let report = check("k10-limit", "14s", &[]);
        eight.assert_running();
        let affected = |f: Found<'_>| about_cgroups(&group)(f) || f.disk() == Some(dev.name());
        report.exactly(affected, &["cgroup-io-throttle"], &[]);
        let f = report.the("cgroup-io-throttle", affected);
        let path = f.subject()["path"].as_str().unwrap();
        assert!(path.ends_with(&group.name), "the group is named: {path}");
        // Its eight jobs are threads of one process.
        f.is_mostly_by("fio");
    });
}

/// Writers that do not wait for their I/O, held to a limit of each kind: no pressure, no queue, only
/// a rate that stays where the limit is.
#[test]
fn k10_asynchronous_writes_at_their_limit() {
    beside(Place::Disk, &["losetup", "fio", "dd"], || {
        at_its_limit("write_iops_device", "500", "--rw=randwrite --bs=4k --iodepth=32", "writes");
        at_its_limit("write_bps_device", "8388608", "--rw=write --bs=1M --iodepth=8", "writes");
    });
}

/// The same of readers.
#[test]
fn k10_asynchronous_reads_at_their_limit() {
    beside(Place::Disk, &["losetup", "fio", "dd"], || {
        at_its_limit("read_iops_device", "200", "--rw=randread --bs=4k --iodepth=8", "reads");
        at_its_limit("read_bps_device", "10485760", "--rw=read --bs=128k --iodepth=4", "reads");
    });
}

fn at_its_limit(file: &str, limit: &str, options: &str, what: &str) {
    let dir = Dir::new();
    let dev = Loop::new(&dir.image("disk.img", 256), true);
    let group = Cgroup::new("blkio", &format!("aio-{what}"));
    group.set(&format!("blkio.throttle.{file}"), &format!("{} {limit}", dev.number()));
    let options = format!("--ioengine=libaio {options}");
    let mut aio = load(&dev.dev, &options, |fio| group.enter_and(fio));
    wait_for("its first second", secs(20), || (passed(&dev) > 2.0).then_some(()));
    let report = check(&format!("k10-aio-{file}"), "12s", &[]);
    aio.assert_running();
    let affected = |f: Found<'_>| about_cgroups(&group)(f) || f.disk() == Some(dev.name());
    report.exactly(affected, &["cgroup-io-throttle"], &[]);
    let f = report.the("cgroup-io-throttle", affected);
    let path = f.subject()["path"].as_str().unwrap();
    assert!(path.ends_with(&group.name), "the group is named: {path}");
    assert!(f.text().contains(&format!("of {what} on {}", dev.name())), "{}", f.text());
    f.is_mostly_by("fio");
    assert!((99.0..=103.0).contains(&f.number("mean-rate")), "{}", f.text());
}

/// Near a limit and not held by it: a writer that paces itself below. Alone, as the pressure that
/// tells both apart is the host's in cgroup v1.
#[test]
fn k10_near_a_limit_that_does_not_hold() {
    lab(&["losetup", "fio", "dd"], || {
        let dir = Dir::new();
        let dev = Loop::new(&dir.image("disk.img", 256), true);
        let group = Cgroup::new("blkio", "near");
        group.set("blkio.throttle.write_iops_device", &format!("{} 500", dev.number()));
        let mut paced = load(&dev.dev, &paced_at(470), |fio| group.enter_and(fio));
        wait_for("470 writes/s", secs(20), || (440.0..=490.0).contains(&rate(&dev)).then_some(()));
        check("k10-paced", "12s", &[]).exactly(about_cgroups(&group), &[], &[]);
        paced.assert_running();
    });
}

/// A writer in a group below the one that has the limit, which in v1 does not hold for it.
#[test]
fn k10_near_a_limit_of_the_parent() {
    beside(Place::Disk, &["losetup", "fio", "dd"], || {
        let dir = Dir::new();
        let dev = Loop::new(&dir.image("disk.img", 256), true);
        let group = Cgroup::new("blkio", "parent");
        group.set("blkio.throttle.write_iops_device", &format!("{} 500", dev.number()));
        let child = group.child("child");
        let mut free = load(&dev.dev, &paced_at(505), |fio| child.enter_and(fio));
        wait_for("505 writes/s", secs(20), || (503.0..=508.0).contains(&rate(&dev)).then_some(()));
        check("k10-child", "12s", &[]).exactly(about_cgroups(&group), &[], &[]);
        free.assert_running();
    });
}

fn paced_at(rate: u32) -> String {
    format!("--ioengine=libaio --iodepth=8 --bs=4k --rate_iops={rate}")
}

/// 20 MB/s below a file system, and a writer that has its data flushed: the queue of the loop
/// device is full of writeback. It is filled in gulps of 6 s, and what iostat calls its length is
/// that of the requests that end: below the rule's 32 for two of them. So a flush takes 20 s, and
/// more than a gulp is looked at.
#[test]
fn k11_flush_of_dirty_pages() {
    lab(&["losetup", "mkfs.ext4", "mount", "dd"], || {
        let dir = Dir::new();
        let image = dir.image("disk.img", 480);
        let dev = Loop::new(&image, true);
        let mnt = dir.path.join("mnt").to_str().unwrap().to_owned();
        std::fs::create_dir(&mnt).unwrap();
        run(&["mkfs.ext4", "-q", "-F", &dev.dev]);
        run(&["mount", &dev.dev, &mnt]);
        let mut mount = Undo::default();
        mount.command(&["umount", &mnt]);
        let (number, _) = dir.lower_disk();
        let group = Cgroup::new("blkio", "flush");
        let limit = "blkio.throttle.write_bps_device";
        group.set(limit, &format!("{number} 20971520"));
        // Small enough to be flushed by dd itself: what the flusher writes is nobody's, and no
        // limit of v1 holds for it.
        let dd = format!("dd if=/dev/zero of={mnt}/f bs=1M count=400 conv=fsync,notrunc");
        let line = format!("sh -c 'while {dd} status=none; do :; done'");
        let mut dd = Held::start(&["sh", "-c", &group.enter_and(&line)]);
        wait_for("64 MB under writeback at 20 MB/s", secs(40), || {
            let before = dev.counters()[WR_SECTORS];
            (rate(&dev) > 5.0 && writeback() >= 64 << 20).then_some(())?;
            let sectors = dev.counters()[WR_SECTORS] - before;
            (sectors * 512 < 40_000_000).then_some(())
        });
        let report = check("k11-flush", "10s", &[]);
        dd.assert_running();
        // Lets the flush end at full speed, or nothing could be unmounted for a while.
        group.set(limit, &format!("{number} 0"));
        let disk = |f: Found<'_>| f.disk() == Some(dev.name());
        // Ten flat seconds would show the limit as well.
        report.exactly(disk, &["disk-writeback-storm"], &["disk-capped-cloud"]);
        let f = report.the("disk-writeback-storm", disk);
        // It may have made all the pages dirty before anybody looked.
        if f.by().is_empty() {
            assert!(f.text().contains("pages made dirty before"), "{}", f.text());
        } else if f.by()[0]["kind"] == "cgroup" {
            // Then no process is charged for what the disk gets, but the group that dd is alone in.
            let (path, share) = (f.by()[0]["path"].as_str(), f.by()[0]["share"].as_f64());
            assert_eq!(path, Some(&*format!("/{}", group.name)), "{}", f.text());
            assert!(share.is_some_and(|s| s >= 50.0), "{}", f.text());
        } else {
            f.is_mostly_by("dd");
        }
    });
}

/// 100 writes/s of 0.1 ms, then a limit of 20/s below: each takes 50 ms, and nothing queues. What is
/// normal is up to the disk of this machine, so nothing else writes to it: beside another test's
/// writer a write takes 5 ms, and 50 ms are not ten times as long.
#[test]
fn k11_a_device_that_becomes_slow() {
    lab(&["losetup", "fio", "dd"], || {
        let dir = Dir::new();
        let dev = Loop::new(&dir.image("disk.img", 256), true);
        let (number, _) = dir.lower_disk();
        let group = Cgroup::new("blkio", "slow");
        let options = "--bs=4k --ioengine=psync --rate_iops=100";
        let mut one = load(&dev.dev, options, |fio| group.enter_and(fio));
        wait_for("100 writes/s", secs(10), || (rate(&dev) > 80.0).then_some(()));
        let report = std::thread::scope(|s| {
            let report = s.spawn(|| check("k11-slow", "22s", &[]));
            // The program must have seen what is normal first.
            clock::sleep_until(MonoNs(clock::mono().0 + 9_000_000_000));
            group.set("blkio.throttle.write_iops_device", &format!("{number} 20"));
            report.join().unwrap()
        });
        one.assert_running();
        let disk = |f: Found<'_>| f.disk() == Some(dev.name());
        report.exactly(disk, &["disk-slow-device"], &[]);
    });
}

/// Writes of 1 MiB through a queue that takes 128 kB at once.
#[test]
fn max_sectors_cuts_large_writes() {
    beside(Place::Disk, &["losetup", "fio", "dd"], || {
        let dir = Dir::new();
        let mut dev = Loop::new(&dir.image("disk.img", 256), true);
        dev.set("max_sectors_kb", "128");
        let mut large = load(&dev.dev, "--bs=1M --ioengine=psync --numjobs=2", exec);
        wait_for("writes of 128 kB", secs(10), || {
            let before = dev.counters();
            let n = rate(&dev);
            let after = dev.counters();
            let kb = (after[WR_SECTORS] - before[WR_SECTORS]) as f64
                / 2.0
                / (after[WR_IOS] - before[WR_IOS]).max(1) as f64;
            (n > 100.0 && (127.0..=128.5).contains(&kb)).then_some(())
        });
        let report = check("max-sectors", "10s", &[]);
        large.assert_running();
        let disk = |f: Found<'_>| f.disk() == Some(dev.name());
        // An annotation at info or a warning, as the pieces wait.
        report.exactly(disk, &[], &["disk-request-split"]);
        let f = report.the("disk-request-split", disk);
        assert!(f.text().contains("max_sectors_kb 128"), "{}", f.text());
        assert!(f.by().iter().all(|c| c["comm"] == "fio") && !f.by().is_empty(), "{}", f.text());
    });
}

/// bfq in front of a device that does tens of thousands of writes a second, if it has a CPU: no test
/// runs beside this one.
#[test]
fn bfq_on_a_fast_device() {
    lab(&["losetup", "fio", "dd"], || {
        let dir = Dir::new();
        let mut dev = Loop::new(&dir.image("disk.img", 256), true);
        dev.set("scheduler", "bfq");
        let mut load = writer(&dev.dev, 8, exec);
        wait_for("2000 writes/s", secs(10), || (rate(&dev) > 2000.0).then_some(()));
        let report = check("bfq", "12s", &[]);
        load.assert_running();
        let disk = |f: Found<'_>| f.disk() == Some(dev.name());
        report.exactly(disk, &["disk-bfq-on-fast-ssd"], &[]);
    });
}
