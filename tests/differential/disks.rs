//! Our disk figures against the raw `/proc/diskstats` and `iostat -x`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use stallscope::clock;
use stallscope::collect::CollectOptions;
use stallscope::collect::disks::DisksCollector;
use stallscope::metrics::disks::{DiskFigures, derive};
use stallscope::sample::Interest;

use crate::kit::block::{Dir, Loop};
use crate::kit::gate::{lab, with_disk};
use crate::kit::sh::run;
use crate::{open, read};

/// The columns after the name, by device name.
fn raw() -> BTreeMap<String, Vec<u64>> {
    let text = std::fs::read_to_string("/proc/diskstats").unwrap();
    text.lines()
        .map(|l| {
            let words: Vec<&str> = l.split_whitespace().collect();
            (words[2].to_owned(), words[3..].iter().map(|w| w.parse().unwrap()).collect())
        })
        .collect()
}

/// Rates of every disk under a real load lie between those of the narrowest and the widest
/// plain reading around ours: no tolerance.
#[test]
fn rates_agree_with_plain_arithmetic() {
    // In turn with the tests that add and remove devices.
    with_disk(Path::new(env!("CARGO_TARGET_TMPDIR")), plain_arithmetic);
}

fn plain_arithmetic() {
    let mut collector: DisksCollector = open(&CollectOptions::default());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("diff-{}", std::process::id()));
    let mut file = File::create(&path).unwrap();
    let a0 = raw();
    let first = read(&mut collector, &Interest::default());
    let a1 = raw();
    let begun = clock::mono();
    while clock::mono().since(begun).as_millis() < 600 {
        file.write_all(&[3; 12_000]).unwrap();
        file.sync_data().unwrap();
    }
    let b0 = raw();
    let second = read(&mut collector, &Interest::default());
    let b1 = raw();
    std::fs::remove_file(&path).unwrap();

    let dt = second.span.mid().since(first.span.mid()).as_secs_f64();
    let figures = derive(&first, &second);
    let mut busy = 0;
    for f in &figures {
        let name = &*f.name;
        let [a0, a1, b0, b1] = [&a0, &a1, &b0, &b1].map(|r| &r[name]);
        let between = |what: &str, ours: f64, col: usize, scale: f64| {
            let least = b0[col].saturating_sub(a1[col]) as f64 * scale;
            let most = b1[col].saturating_sub(a0[col]) as f64 * scale;
            // Only rounding of f64 is left.
            let eps = 1e-9 * most.max(1.0);
            assert!(
                least - eps <= ours && ours <= most + eps,
                "{name} {what}: {least} <= {ours} <= {most}"
            );
        };
        between("r/s", f.r_s, 0, 1.0 / dt);
        between("w/s", f.w_s, 4, 1.0 / dt);
        between("rkB/s", f.rkb_s, 2, 0.5 / dt);
        between("wkB/s", f.wkb_s, 6, 0.5 / dt);
        between("rrqm/s", f.rrqm_s, 1, 1.0 / dt);
        between("wrqm/s", f.wrqm_s, 5, 1.0 / dt);
        between("util", f.util, 9, 0.1 / dt);
        if let Some(fs) = f.f_s {
            between("f/s", fs, 15, 1.0 / dt);
        }
        busy += u32::from(f.w_s > 0.0);
    }
    assert!(busy > 0 || figures.is_empty(), "600 ms of fsync reached some disk");
}

/// Figures of a loop device that does a known load strictly inside both windows: both tools
/// then see the same requests.
#[test]
fn figures_agree_with_iostat() {
    lab(&["iostat", "losetup", "fio", "dd"], || {
        let dir = Dir::new();
        let dev = Loop::new(&dir.image("disk.img", 64), true);
        let mut collector: DisksCollector = open(&CollectOptions::default());
        let first = read(&mut collector, &Interest::default());
        let mut iostat = Command::new("iostat")
            .args(["-x", "-d", "-k", "-y", dev.name(), "4", "1"])
            .env("LC_ALL", "C")
            .env("S_TIME_FORMAT", "ISO")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The headline is written right before the first reading; half a second later the
        // reading is done for sure, and the load starts. It ends two seconds before the second.
        let mut lines = BufReader::new(iostat.stdout.take().unwrap()).lines();
        let begun = clock::mono();
        stallscope::clock::sleep_until(stallscope::sample::time::MonoNs(begun.0 + 500_000_000));
        let file = format!("--filename={}", dev.dev);
        run(&[
            "fio",
            "--name=d",
            &file,
            "--direct=1",
            "--rw=randrw",
            "--rwmixread=40",
            "--bs=8k",
            "--ioengine=libaio",
            "--iodepth=4",
            "--rate_iops=1000,1500",
            "--number_ios=3000",
            "--thread",
        ]);
        assert!(clock::mono().since(begun).as_millis() < 3500, "the load must end inside");
        let mut shown = None;
        for line in lines.by_ref() {
            let line = line.unwrap();
            if line.starts_with("Device") || line.starts_with(dev.name()) {
                shown = Some(shown.map_or(line.clone(), |s: String| format!("{s}\n{line}")));
            }
        }
        let second = read(&mut collector, &Interest::default());
        iostat.wait().unwrap();
        let shown = shown.expect("a report of iostat");
        let (head, row) = shown.split_once('\n').unwrap();
        let theirs: BTreeMap<&str, f64> = head
            .split_whitespace()
            .zip(row.split_whitespace())
            .skip(1)
            .map(|(k, v)| (k, v.parse().unwrap()))
            .collect();
        let figures = derive(&first, &second);
        let ours = figures.iter().find(|f| &*f.name == dev.name()).unwrap();
        compare(ours, &theirs, &shown);
    });
}

fn compare(ours: &DiskFigures, theirs: &BTreeMap<&str, f64>, shown: &str) {
    assert!(theirs["w/s"] > 100.0 && theirs["r/s"] > 100.0, "no load in iostat's window: {shown}");
    // Rates: the same requests over windows that differ by the start and the exit of a
    // process, which the ratio of the write rates tells exactly.
    let stretch = theirs["w/s"] / ours.w_s;
    assert!((0.95..1.15).contains(&stretch), "windows of about 4 s: {stretch}\n{shown}");
    let rates = [
        ("r/s", ours.r_s),
        ("rkB/s", ours.rkb_s),
        ("wkB/s", ours.wkb_s),
        ("aqu-sz", ours.aqu_sz),
        ("%util", ours.util),
    ];
    for (name, n) in rates {
        // Printed with two digits; relative error of the stretch itself is 0.005 / w/s.
        let eps = 0.006 + 2e-4 * theirs[name];
        assert!((n * stretch - theirs[name]).abs() <= eps, "{name}: {n} * {stretch}\n{shown}");
    }
    // Quotients do not depend on the window: equal to the last printed digit.
    for (name, n) in [
        ("r_await", ours.r_await),
        ("w_await", ours.w_await),
        ("rareq-sz", ours.rareq_kb),
        ("wareq-sz", ours.wareq_kb),
    ] {
        let n = n.unwrap();
        assert!((n - theirs[name]).abs() <= 0.00501, "{name}: {n}\n{shown}");
    }
}
