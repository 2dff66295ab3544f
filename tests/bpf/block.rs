//! Block latency against fio's own percentiles and `/proc/diskstats`.

use stallscope::collect::bpf::block::BlockBpf;
use stallscope::sample::bpf::Hist;
use stallscope::sample::bpf::block::{BlockBpfSample, BlockDisk, BlockOp, BlockOpKind};
use stallscope::sample::subject::DiskId;

use crate::agree::{apart, part_of_tool, rows, rows_of_tool, total};
use crate::kit::block::{Dir, Loop};
use crate::kit::gate::lab;
use crate::kit::sh::run;
use crate::kit::{secs, wait_for};
use crate::lab::{open, sample};

fn id_of(name: &str) -> DiskId {
    let dev = std::fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap();
    let (major, minor) = dev.trim().split_once(':').unwrap();
    DiskId { major: major.parse().unwrap(), minor: minor.parse().unwrap() }
}

fn disk(s: &BlockBpfSample, id: DiskId) -> BlockDisk {
    s.disks.iter().find(|d| d.id == id).cloned().unwrap_or_default()
}

fn op(d: &BlockDisk, kind: BlockOpKind) -> BlockOp {
    d.ops.iter().find(|o| o.op == kind).cloned().unwrap_or_default()
}

fn fio(dev: &str, extra: &[&str]) -> serde_json::Value {
    let dev = format!("--filename={dev}");
    let base = [
        "fio",
        "--name=t",
        &dev,
        "--direct=1",
        "--time_based",
        "--runtime=3",
        "--output-format=json",
        "--percentile_list=50:90:99",
        "--thread",
    ];
    let text = run(&[&base[..], extra].concat());
    let json = text.get(text.find('{').unwrap()..).unwrap();
    serde_json::from_str::<serde_json::Value>(json).unwrap()["jobs"][0].clone()
}

fn near(what: &str, ours: u64, theirs: u64, least: f64, most: f64) {
    let ratio = ours as f64 / theirs as f64;
    println!("{what}: {ours} ns, fio {theirs} ns");
    assert!((least..most).contains(&ratio), "{what}: {ours} ns, fio {theirs} ns");
}

#[test]
fn reads_take_as_long_as_fio_says() {
    lab(&["fio", "losetup"], || {
        let dir = Dir::new();
        let image = dir.image("fio", 64);
        let disk_of = Loop::new(&image, true);
        let id = id_of(disk_of.name());
        let mut block: BlockBpf = open();
        let before = op(&disk(&sample(&mut block), id), BlockOpKind::Read);
        let job = fio(&disk_of.dev, &["--rw=randread", "--bs=4k", "--ioengine=psync"]);
        let s = sample(&mut block);
        let d = disk(&s, id);
        let read = op(&d, BlockOpKind::Read);
        assert_eq!((d.discarded, d.no_start, d.errors), (0, 0, 0));
        let ios = job["read"]["total_ios"].as_u64().unwrap();
        let (count, bytes) = (read.count - before.count, read.bytes - before.bytes);
        nearly("reads", count, ios);
        assert_eq!(bytes, count * 4096);
        let total = read.total.since(&before.total).unwrap();
        assert_eq!(total.count(), count);
        // Requests begin after fio's clock and end before it: less by a system call and by
        // what fio's thread waits for its CPU, never more than a bucket.
        let theirs = |p: &str| job["read"]["clat_ns"]["percentile"][p].as_u64().unwrap();
        near("p50", total.quantile(0.5).unwrap(), theirs("50.000000"), 0.3, 1.13);
        near("p90", total.quantile(0.9).unwrap(), theirs("90.000000"), 0.1, 1.13);
        near("p99", total.quantile(0.99).unwrap(), theirs("99.000000"), 0.01, 1.13);
    });
}

/// Each event is counted, but for the few for which the kernel runs no program at all: on the
/// 6.18 of the development machine up to 6 in 1000 under load. An empty program on the same
/// tracepoint misses exactly as many, `recursion_misses` stays 0, and ftrace sees them all.
fn nearly(what: &str, ours: u64, theirs: u64) {
    println!("{what}: {ours} of {theirs}");
    assert!(ours <= theirs && theirs - ours <= theirs / 100 + 8, "{what}: {ours} of {theirs}");
}

/// With eight requests in flight on a disk that serves one at a time, most of the time is
/// spent in the queue, and the parts add up to the whole.
#[test]
fn queue_and_device_add_up() {
    lab(&["fio", "losetup"], || {
        let dir = Dir::new();
        let disk_of = Loop::new(&dir.image("fio", 64), true);
        let id = id_of(disk_of.name());
        let mut block: BlockBpf = open();
        let job =
            fio(&disk_of.dev, &["--rw=randwrite", "--bs=16k", "--ioengine=libaio", "--iodepth=8"]);
        let d = disk(&sample(&mut block), id);
        let write = op(&d, BlockOpKind::Write);
        let ios = job["write"]["total_ios"].as_u64().unwrap();
        nearly("writes", write.count, ios);
        assert_eq!(write.sizes, [(2, write.count)], "16 KiB each");
        assert_eq!(write.total.count(), write.count);
        // The first requests may come before the time of issue is stamped.
        let timed = write.device.count();
        assert_eq!(timed + d.no_issue, write.count);
        assert!(timed > ios / 2, "{timed} of {ios} have a time of issue");
        let mean = |h: &Hist| {
            let sum: f64 = h
                .buckets()
                .map(|(b, n)| Hist::from([(b, 1)]).quantile(0.5).unwrap() as f64 * n as f64)
                .sum();
            sum / h.count() as f64
        };
        let (q, dev, all) = (mean(&write.queued), mean(&write.device), mean(&write.total));
        println!("queued {q:.0} + device {dev:.0} = total {all:.0} ns");
        assert!(((q + dev) / all - 1.0).abs() < 0.13, "{q} + {dev} != {all}");
        let slat = job["write"]["lat_ns"]["mean"].as_f64().unwrap();
        near("mean", all as u64, slat as u64, 0.4, 1.07);
    });
}

/// libbpf-tools' `biolatency`, attached at the same time to the same requests: from issue to
/// completion, by stamps of its own at both.
#[test]
fn writes_take_as_long_as_biolatency_says() {
    lab(&["fio", "losetup", "biolatency"], || {
        let dir = Dir::new();
        let disk_of = Loop::new(&dir.image("fio", 64), true);
        let id = id_of(disk_of.name());
        let mut block: BlockBpf = open();
        let (before, text, after) = std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                let writes = ["--rw=randwrite", "--bs=16k", "--ioengine=libaio", "--iodepth=8"];
                fio(&disk_of.dev, &[&writes[..], &["--runtime=6"]].concat())
            });
            let mut write = || op(&disk(&sample(&mut block), id), BlockOpKind::Write);
            wait_for("writes", secs(5), || (write().device.count() > 100).then_some(()));
            let before = write();
            let text = run(&["biolatency", "-D", "3", "1"]);
            let after = write();
            load.join().unwrap();
            (before, text, after)
        });
        let ours = after.device.since(&before.device).unwrap();
        let theirs = rows_of_tool(part_of_tool(&text, "disk", disk_of.name()));
        let (count, outliers) = (total(&theirs), apart(&rows(&ours), &theirs, as_long));
        println!("{} writes, biolatency {count}, {:.2} % apart", ours.count(), outliers * 100.0);
        assert!(count > 1000.0, "{text}");
        // It starts after us and ends before.
        assert!(ours.count() as f64 > count * 0.99 && count * 2.0 > ours.count() as f64);
        assert!(outliers <= 0.05, "{outliers}\n{ours:?}\n{text}");
    });
}

/// How much two meters of the same request may differ.
fn as_long(ns: f64) -> f64 {
    ns * 1.13 + 3_000.0
}

/// A write larger than the device takes in one piece is split, and counted.
#[test]
fn splits_are_counted() {
    lab(&["fio", "losetup"], || {
        let dir = Dir::new();
        let mut disk_of = Loop::new(&dir.image("fio", 64), true);
        disk_of.set("max_sectors_kb", "64");
        let id = id_of(disk_of.name());
        let mut block: BlockBpf = open();
        let job = fio(&disk_of.dev, &["--rw=write", "--bs=256k", "--ioengine=psync"]);
        let s = sample(&mut block);
        assert!(s.splits);
        let d = disk(&s, id);
        let ios = job["write"]["total_ios"].as_u64().unwrap();
        let write = op(&d, BlockOpKind::Write);
        // 256 KiB make four requests of 64 KiB, so three cuts.
        nearly("requests", write.count, ios * 4);
        nearly("splits", d.splits, ios * 3);
        assert_eq!(write.bytes, write.count * (64 << 10));
    });
}
