//! The collector against captured, constructed and live files.

use super::DisksCollector;
use crate::collect::testing::fixtures;
use crate::collect::{CollectOptions, Collector, HostFs, SampleContext};
use crate::sample::disks::{DiskClass, DiskRow, DisksSample};
use crate::sample::subject::DiskId;
use crate::sample::time::MonoNs;
use crate::sample::{Interest, SignalStatus};
use std::sync::Arc;
use std::time::Duration;

fn fixture(kernel: &str) -> HostFs {
    HostFs::at(fixtures().join(kernel))
}

fn open(host: &HostFs) -> DisksCollector {
    DisksCollector::open(host, &CollectOptions::default()).unwrap()
}

fn sample_at(c: &mut DisksCollector, secs: u64) -> DisksSample {
    let interest = Interest::default();
    let at = MonoNs(secs * 1_000_000_000);
    c.sample(&SampleContext { at, interval: Duration::from_secs(1), interest: &interest }).unwrap()
}

fn row<'a>(s: &'a DisksSample, name: &str) -> &'a DiskRow {
    s.disks.iter().find(|d| &*d.name == name).unwrap()
}

fn names(s: &DisksSample) -> Vec<&str> {
    s.disks.iter().map(|d| &*d.name).collect()
}

#[test]
fn the_captured_guest_shows_its_disk_and_the_bound_loop() {
    let s = sample_at(&mut open(&fixture("6.18")), 0);
    // loop1 to loop7 are unbound and untouched.
    assert_eq!(names(&s), ["loop0", "vda", "zram0"]);
    let vda = row(&s, "vda");
    assert_eq!(vda.id, DiskId { major: 254, minor: 0 });
    assert_eq!((vda.attrs.class, vda.attrs.rotational), (DiskClass::Virtual, None));
    assert_eq!(vda.attrs.scheduler.as_deref(), Some("mq-deadline"));
    assert_eq!(vda.attrs.hw_queues, Some(1));
    // Field 11 is the sum of the four kinds, give or take rounding: 31874+33978+349+45.
    let sum = vda.stat.rd_ticks
        + vda.stat.wr_ticks
        + vda.stat.discard.unwrap().ticks
        + vda.stat.flush.unwrap().ticks;
    assert!(vda.stat.weighted.abs_diff(sum) <= 4, "{} {sum}", vda.stat.weighted);
    let l = row(&s, "loop0");
    assert_eq!(l.attrs.class, DiskClass::Stack);
    assert_eq!(l.attrs.backing_file.as_deref(), Some("/tmp/wf-part.img"));
    assert_eq!(l.attrs.size_sectors, Some(16 * 2048));
}

#[test]
fn a_stack_of_partition_and_dm_is_linked_by_name() {
    let s = sample_at(&mut open(&fixture("4.19")), 0);
    assert_eq!(names(&s), ["sda", "sda1", "nvme0n1", "dm-0"]);
    let sda = row(&s, "sda");
    assert_eq!((sda.attrs.class, sda.attrs.rotational), (DiskClass::Hdd, Some(true)));
    assert_eq!(sda.inflight, Some((3, 8)));
    assert_eq!(sda.attrs.queue_depth, Some(32));
    let part = row(&s, "sda1");
    assert_eq!(part.attrs.class, DiskClass::Partition);
    assert_eq!(part.attrs.parent.as_deref(), Some("sda"));
    assert_eq!(part.attrs.holders, ["dm-0"]);
    let dm = row(&s, "dm-0");
    assert_eq!(
        (dm.attrs.class, dm.attrs.slaves.as_slice()),
        (DiskClass::Stack, &["sda1".into()][..])
    );
    assert_eq!(dm.attrs.dm_name.as_deref(), Some("vg0-data"));
    assert_eq!(dm.stat.in_flight, -1);
    let ebs = row(&s, "nvme0n1");
    assert_eq!((ebs.attrs.class, ebs.attrs.rotational), (DiskClass::Virtual, None));
    assert_eq!((ebs.attrs.hw_queues, ebs.inflight), (Some(2), Some((128, 0))));
    assert_eq!(ebs.stat.flush, None);
}

#[test]
fn without_sysfs_the_counters_remain_and_the_signals_say_what_is_missing() {
    let mut c = open(&fixture("3.10"));
    let s = sample_at(&mut c, 0);
    assert_eq!(names(&s), ["sda", "sda1", "md0"]);
    assert_eq!(row(&s, "md0").stat.rd_ios, 2_883_541);
    assert_eq!(row(&s, "sda").stat.discard, None);
    assert_eq!(row(&s, "sda").inflight, None);
    let mut signals = Vec::new();
    c.signals(&mut signals);
    let text = serde_json::to_string(&signals).unwrap();
    assert!(
        text.contains(r#""signal":"disk queue attributes","source":"sysfs","status":"missing""#),
        "{text}"
    );
}

#[test]
fn devices_may_come_and_go_and_attributes_are_read_again_after_ten_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let put = |rel: &str, text: &str| {
        let path = dir.path().join(rel);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let line =
        |minor: u32, name: &str, n: u64| format!("8 {minor} {name} {n} 0 0 0 0 0 0 0 0 0 0\n");
    put("sys/class/block/sda/queue/scheduler", "[none] bfq\n");
    put(
        "proc/diskstats",
        &(line(0, "sda", 1) + &line(16, "sdb", 1) + "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n"),
    );
    let mut c = open(&HostFs::at(dir.path()));
    let first = sample_at(&mut c, 0);
    assert_eq!(names(&first), ["sda", "sdb"]);

    put("sys/class/block/sda/queue/scheduler", "none [bfq]\n");
    put(
        "proc/diskstats",
        &(line(0, "sda", 2) + &line(32, "sdc", 9) + "7 0 loop0 5 0 0 0 0 0 0 0 0 0 0\ntorn 1"),
    );
    let second = sample_at(&mut c, 1);
    assert_eq!(names(&second), ["sda", "sdc", "loop0"]);
    assert_eq!(second.bad_rows, 1);
    assert!(Arc::ptr_eq(&row(&first, "sda").attrs, &row(&second, "sda").attrs));
    let later = sample_at(&mut c, 11);
    assert_eq!(row(&later, "sda").attrs.scheduler.as_deref(), Some("bfq"));
}

#[test]
fn md_and_dm_tell_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let put = |rel: &str, text: &str| {
        let path = dir.path().join(rel);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("proc/diskstats", "9 6 md6 0 0 0 0 0 0 0 0 0 0 0\n253 0 dm-0 0 0 0 0 0 0 0 0 0 0 0\n");
    for (file, text) in [
        ("level", "raid6\n"),
        // During a reshape: new and old.
        ("raid_disks", "5 (4)\n"),
        ("sync_action", "reshape\n"),
        ("sync_speed", "98304\n"),
        ("degraded", "0\n"),
    ] {
        put(&format!("sys/class/block/md6/md/{file}"), text);
    }
    put("sys/class/block/dm-0/dm/uuid", "LVM-8eLK2oAdXy\n");
    let mut c = open(&HostFs::at(dir.path()));
    let s = sample_at(&mut c, 0);
    let md = row(&s, "md6").attrs.md.clone().unwrap();
    assert_eq!((md.level.as_deref(), md.raid_disks), (Some("raid6"), Some(5)));
    assert_eq!((md.sync_action.as_deref(), md.sync_speed_kb), (Some("reshape"), Some(98_304)));
    assert_eq!(row(&s, "dm-0").attrs.dm_kind.as_deref(), Some("LVM"));
    assert_eq!(row(&s, "dm-0").attrs.md, None);
    // Back to rest: there is no speed then.
    put("sys/class/block/md6/md/sync_action", "idle\n");
    put("sys/class/block/md6/md/sync_speed", "none\n");
    let md = row(&sample_at(&mut c, 11), "md6").attrs.md.clone().unwrap();
    assert_eq!((md.sync_action.as_deref(), md.sync_speed_kb), (Some("idle"), None));
}

#[test]
fn live_disks_are_those_of_sysfs() {
    let host = HostFs::live();
    let s = sample_at(&mut open(&host), 0);
    assert_eq!(s.bad_rows, 0);
    for d in &s.disks {
        let dev = host.read_trimmed(format!("sys/class/block/{}/dev", d.name)).unwrap();
        assert_eq!(dev, d.id.to_string());
        assert!(d.attrs.size_sectors.is_some(), "{}", d.name);
    }
}

proptest::proptest! {
    #[test]
    fn any_file_is_survived(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join("proc/diskstats"), bytes).unwrap();
        let _ = sample_at(&mut open(&HostFs::at(dir.path())), 0);
    }
}

/// A disk that is not in the file, or in a line that cannot be understood, is not judged: that
/// must not look like a disk without trouble.
#[test]
fn a_file_without_a_readable_disk_degrades_the_signal() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("proc")).unwrap();
    let good = " 254 0 vda 1 0 8 1 0 0 0 0 0 1 1\n";
    for (text, works, says) in [
        (String::new(), false, "lists no disk"),
        ("\0\0garbage\n".to_owned(), false, "1 line of"),
        ("x\ny\n".to_owned(), false, "2 lines of"),
        (format!("{good}x\n"), false, "1 line of"),
        (good.to_owned(), true, ""),
    ] {
        std::fs::write(dir.path().join("proc/diskstats"), &text).unwrap();
        let mut c = open(&HostFs::at(dir.path()));
        sample_at(&mut c, 0);
        let mut signals = Vec::new();
        c.signals(&mut signals);
        let s = signals.iter().find(|s| s.signal == "disk counters").unwrap();
        assert_eq!(s.status == SignalStatus::Ok, works, "{text:?}");
        assert_eq!(s.unseen.is_none(), works, "{text:?}");
        if let SignalStatus::Degraded { reason, .. } = &s.status {
            assert!(reason.contains(says), "{text:?}: {reason}");
        }
    }
}
