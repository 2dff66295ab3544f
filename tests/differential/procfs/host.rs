//! Files of the whole host: CPU time, disks, memory, pressure, mounts.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt as _;

use procfs_core::process::MountInfo;
use procfs_core::{
    CpuTime, DiskStat, FromBufRead as _, FromBufReadSI as _, KernelStats, Meminfo, VmStat,
    get_pressure,
};
use stallscope::collect::cpu::parse_stat;
use stallscope::collect::filesystems::parse_mounts;
use stallscope::collect::memory::{walk_meminfo, walk_vmstat};
use stallscope::collect::psi::parse_pressure;
use stallscope::parse::disks::parse_line;
use stallscope::parse::lines;
use stallscope::sample::cpu::CpuTimes;

use super::{captured, files, system, utf8};

#[test]
fn cpu_times_and_counts_of_tasks() {
    for (path, bytes) in files("stat") {
        let ours = parse_stat(&bytes).unwrap();
        let theirs = KernelStats::from_buf_read(&bytes[..], &system()).unwrap();
        let at = path.display();
        assert_eq!(ours.total, times(&theirs.total), "{at}");
        let cpus: Vec<CpuTimes> = ours.cpus.iter().map(|c| c.1).collect();
        assert_eq!(cpus, theirs.cpu_time.iter().map(times).collect::<Vec<_>>(), "{at}");
        assert_eq!(ours.ctxt, Some(theirs.ctxt), "{at}");
        assert_eq!(ours.procs_running, theirs.procs_running, "{at}");
        assert_eq!(ours.procs_blocked, theirs.procs_blocked, "{at}");
    }
}

/// Kinds that an old kernel does not print are 0 with us.
fn times(t: &CpuTime) -> CpuTimes {
    CpuTimes {
        user: t.user,
        nice: t.nice,
        system: t.system,
        idle: t.idle,
        iowait: t.iowait.unwrap_or(0),
        irq: t.irq.unwrap_or(0),
        softirq: t.softirq.unwrap_or(0),
        steal: t.steal.unwrap_or(0),
        guest: t.guest.unwrap_or(0),
        guest_nice: t.guest_nice.unwrap_or(0),
    }
}

/// All lines: of 11, 15 and 17 counters.
#[test]
fn counters_of_disks() {
    let mut kinds = [0; 3];
    for (path, bytes) in files("diskstats") {
        for line in lines(&bytes) {
            let ours = parse_line(line).unwrap();
            let theirs = DiskStat::from_line(&utf8(line)).unwrap();
            let (o, t, at) = (&ours.stat, &theirs, format!("{path:?}: {}", utf8(line)));
            let id = (i64::from(ours.id.major), i64::from(ours.id.minor));
            assert_eq!(id, (t.major.into(), t.minor.into()), "{at}");
            assert_eq!(utf8(ours.name), t.name, "{at}");
            assert_eq!(
                [o.rd_ios, o.rd_merges, o.rd_sectors, o.wr_ios, o.wr_merges, o.wr_sectors],
                [t.reads, t.merged, t.sectors_read, t.writes, t.writes_merged, t.sectors_written],
                "{at}"
            );
            // Of 32 bits in the kernel.
            let all = [t.time_reading, t.time_writing, t.time_in_progress];
            assert_eq!([o.rd_ticks, o.wr_ticks, o.io_ticks], all.map(|n| n as u32), "{at}");
            assert_eq!(o.weighted, t.weighted_time_in_progress as u32, "{at}");
            // A small negative number, however it is printed, is one with us.
            assert_eq!(o.in_flight as u32, t.in_progress as u32, "{at}");
            let discard = o.discard.map(|d| [d.ios, d.merges, d.sectors, d.ticks.into()]);
            let all = [t.discards, t.discards_merged, t.sectors_discarded, t.time_discarding];
            assert_eq!(all, discard.map_or([None; 4], |d| d.map(Some)), "{at}");
            let flush = o.flush.map(|f| (f.ios, f.ticks.into()));
            assert_eq!(flush, t.flushes.zip(t.time_flushing), "{at}");
            kinds[usize::from(o.discard.is_some()) + usize::from(o.flush.is_some())] += 1;
        }
    }
    assert!(
        kinds.iter().all(|n| *n > 0),
        "lines without discards, without flushes, with: {kinds:?}"
    );
}

#[test]
fn sizes_of_memory() {
    for (path, bytes) in files("meminfo") {
        let mut ours = HashMap::new();
        walk_meminfo(&bytes, &mut |(_, name, value)| ours.extend([(utf8(name), value)]));
        let m = Meminfo::from_buf_read(&bytes[..]).unwrap();
        let kb = [
            ("MemTotal", Some(m.mem_total)),
            ("MemFree", Some(m.mem_free)),
            ("MemAvailable", m.mem_available),
            ("Buffers", Some(m.buffers)),
            ("Cached", Some(m.cached)),
            ("SwapCached", Some(m.swap_cached)),
            ("Active(anon)", m.active_anon),
            ("Inactive(file)", m.inactive_file),
            ("SwapTotal", Some(m.swap_total)),
            ("SwapFree", Some(m.swap_free)),
            ("Dirty", Some(m.dirty)),
            ("Writeback", Some(m.writeback)),
            ("Shmem", m.shmem),
            ("Slab", Some(m.slab)),
            ("SReclaimable", m.s_reclaimable),
            ("KernelStack", m.kernel_stack),
            ("CommitLimit", m.commit_limit),
            ("Committed_AS", Some(m.committed_as)),
            ("VmallocTotal", Some(m.vmalloc_total)),
            ("Hugepagesize", m.hugepagesize),
            ("DirectMap4k", m.direct_map_4k),
        ];
        for (name, bytes) in kb {
            assert_eq!(ours.get(name).map(|kb| kb * 1024), bytes, "{path:?}: {name}");
        }
        assert_eq!(ours.get("HugePages_Total"), m.hugepages_total.as_ref(), "{path:?}");
    }
}

#[test]
fn counters_of_memory() {
    for (path, bytes) in files("vmstat") {
        let mut ours = BTreeMap::new();
        walk_vmstat(&bytes, &mut |(_, name, n)| ours.extend([(utf8(name), n as i64)]));
        let theirs = VmStat::from_buf_read(&bytes[..]).unwrap().0;
        assert!(ours.len() > 50, "{path:?}: {}", ours.len());
        assert_eq!(ours, theirs.into_iter().collect(), "{path:?}");
    }
}

/// The crate wants both lines; the one of the CPU came with 5.13.
#[test]
fn totals_of_pressure() {
    let mut compared = 0;
    for name in ["cpu", "io", "memory"].map(|n| format!("pressure/{n}")) {
        // A kernel without CONFIG_PSI has none.
        let live = std::fs::read(format!("/proc/{name}")).map(|b| (name.clone().into(), b));
        for (path, bytes) in captured(&name).into_iter().chain(live) {
            let ours = parse_pressure(&bytes).unwrap();
            let Ok((some, full)) = get_pressure(&bytes[..]) else {
                assert_eq!(ours.full_us, None, "{path:?}");
                continue;
            };
            assert_eq!((ours.some_us, ours.full_us), (some.total, Some(full.total)), "{path:?}");
            compared += 1;
        }
    }
    assert!(compared > 0);
}

/// What the kernel writes for a blank, a tab, a newline, a backslash and a hash.
const ESCAPES: [(&str, &str); 5] =
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\")];

fn plain(field: &str) -> String {
    ESCAPES.iter().fold(field.to_owned(), |s, (code, c)| s.replace(code, c))
}

/// The crate leaves escapes as they are and keeps options in a map, without their order.
#[test]
fn file_systems_and_their_options() {
    let odd = b"43 27 7:0 / /mnt/a\\040b ro,relatime shared:2 master:1 - ext4 /dev/x\\0111 \
        rw,errors=remount-ro\n44 27 0:40 / /nobody rw - tmpfs none rw,size=4k\n";
    let all = files("self/mountinfo").into_iter().chain([("odd".into(), odd.to_vec())]);
    let mut compared = 0;
    for (path, bytes) in all {
        let text = utf8(&bytes);
        let infos: Vec<_> = text.lines().map(|l| MountInfo::from_line(l).unwrap()).collect();
        for ours in parse_mounts(&bytes) {
            let theirs = infos.iter().find(|i| u64::try_from(i.mnt_id) == Ok(ours.id)).unwrap();
            let (row, at) = (&ours.row, format!("{path:?}: {theirs:?}"));
            assert_eq!(format!("{}:{}", row.dev.major, row.dev.minor), theirs.majmin, "{at}");
            let place = theirs.mount_point.to_str().unwrap();
            assert_eq!(utf8(ours.path.as_os_str().as_bytes()), plain(place), "{at}");
            assert_eq!((&*row.mount, &*row.kind), (&*plain(place), &*theirs.fs_type), "{at}");
            let source = theirs.mount_source.as_deref().map(plain);
            let unnamed = source.is_none() && matches!(&*row.source, "" | "none");
            assert!(unnamed || source.as_deref() == Some(&*row.source), "{at}: {}", row.source);
            assert_options(&row.mount_options, &theirs.mount_options, &at);
            assert_options(&row.options, &theirs.super_options, &at);
            compared += 1;
        }
    }
    assert!(compared > 2, "{compared} file systems");
}

/// Options without a value are all there; of the others, some.
fn assert_options(ours: &str, theirs: &HashMap<String, Option<String>>, at: &str) {
    for option in ours.split(',').filter(|o| !o.is_empty()) {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        assert_eq!(theirs.get(name).map(Option::as_deref), Some(value), "{at}: {option}");
    }
    for name in theirs.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name) {
        assert!(ours.split(',').any(|o| o == name), "{at}: {name}");
    }
}
