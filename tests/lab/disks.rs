//! Disk faults, on loop devices over files.

use stallscope::clock;

use crate::kit::block::{Dir, FrozenDisk, Loop, writer};
use crate::kit::cgroup::Cgroup;
use crate::kit::gate::{Place, beside, lab};
use crate::kit::product::{Found, check, check_both};
use crate::kit::sh::Held;
use crate::kit::{secs, wait_for};

/// Columns of `/proc/diskstats` after the name.
const WR_IOS: usize = 4;
const IN_FLIGHT: usize = 8;
const IO_TICKS: usize = 9;

/// A loop device whose file lies on a frozen file system: a write goes in and never comes
/// out. await is 0 and IOPS are 0; only the request in flight tells.
#[test]
fn k9_write_that_never_completes() {
    beside(Place::Hung, &["losetup", "mkfs.ext4", "mount", "fsfreeze", "dd"], || {
        let mut frozen = FrozenDisk::new();
        frozen.write(0);

        let mut before: Option<Vec<u64>> = None;
        wait_for("a write in flight without completion", secs(10), || {
            let now = frozen.disk.counters();
            let old = before.get_or_insert_with(|| now.clone());
            let stuck = now[IN_FLIGHT] >= 1
                && old[IN_FLIGHT] >= 1
                && now[WR_IOS] == old[WR_IOS]
                && now[IO_TICKS] >= old[IO_TICKS] + 500;
            if old[IN_FLIGHT] == 0 {
                before = Some(now);
            }
            stuck.then_some(())
        });
        let report = check("k9", "9s", &[]);
        frozen.writers.iter_mut().for_each(Held::assert_running);
        let disk = |f: Found<'_>| f.disk() == Some(frozen.disk.name());
        report.exactly(disk, &["disk-hung"], &[]);
        assert_eq!(report.the("disk-hung", disk).severity(), "crit", "longer than 5 s");
        // The disks below have nothing to do and must not be blamed.
        report.exactly(|f| f.disk().is_some(), &["disk-hung"], &[]);
    });
}

/// A limit below the device: 500 writes/s whatever the depth. The loop worker inherits the
/// writer's cgroup, so the loop device queues in front of the throttled lower disk exactly as
/// a guest's disk queues in front of a provider's limit.
#[test]
fn k11_capped_lower_disk() {
    lab(&["losetup", "fio", "dd"], || {
        let dir = Dir::new();
        let image = dir.image("disk.img", 256);
        let dev = Loop::new(&image, true);
        let (number, lower) = dir.lower_disk();
        let group = Cgroup::new("blkio", "cap");
        group.set("blkio.throttle.write_iops_device", &format!("{number} 500"));
        let mut load = writer(&dev.dev, 32, |fio| group.enter_and(fio));
        let mut last = (clock::mono(), dev.counters()[WR_IOS]);
        wait_for("a plateau at 500 writes/s", secs(20), || {
            let (now, ios) = (clock::mono(), dev.counters()[WR_IOS]);
            let dt = now.since(last.0).as_secs_f64();
            if dt < 1.0 {
                return None;
            }
            let rate = (ios - last.1) as f64 / dt;
            last = (now, ios);
            (400.0..600.0).contains(&rate).then_some(())
        });
        let reports = check_both("k11", "18s");
        load.assert_running();
        for (report, source) in reports.iter().zip(["ebpf", "diskstats"]) {
            // Not a worn-out flash, not a spinning disk, and not the lower disk, which idles.
            report.exactly(
                |f| f.disk().is_some_and(|d| d == dev.name() || d == lower),
                &["disk-capped-cloud"],
                &[],
            );
            let f = report.the("disk-capped-cloud", |f| f.disk() == Some(dev.name()));
            assert_eq!((report.source("block latency"), f.uses_ebpf()), (source, source == "ebpf"));
            f.is_mostly_by("fio");
            if source == "ebpf" {
                // All of it is on the loop device. 64 ms is the mean (32 requests at 500/s); the
                // throttle works in slices of 100 ms, and most requests wait for the next one.
                let (p50, share) = (f.evidence("device-p50"), f.evidence("device-share"));
                eprintln!("lab: k11: p50 {p50:?} ms, {share:?} % on the device");
                assert!(p50.is_some_and(|ms| (30.0..110.0).contains(&ms)), "{}", f.text());
                assert!(share.is_some_and(|s| s > 90.0), "{}", f.text());
            }
        }
    });
}
