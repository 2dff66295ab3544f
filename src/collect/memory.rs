//! `/proc/meminfo`, `/proc/vmstat` and `vm.dirty_*`, by name.

use std::time::Duration;

use super::hot::HotFile;
use super::names::NameTable;
use super::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::parse::{fields, lines, number, whole_lines};
use crate::sample::memory::MemorySample;
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Extent, Signal};

/// Sysctls below `/proc/sys/vm` that decide when writers are held back.
const SYSCTLS: [&str; 7] = [
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_expire_centisecs",
    "dirty_ratio",
    "dirty_writeback_centisecs",
    "min_free_kbytes",
];
/// They are read again after this time: one costs more than all of vmstat's rows.
const SYSCTLS_AGE: Duration = Duration::from_secs(10);

/// Reads it. See the module head.
pub struct MemoryCollector {
    host: HostFs,
    meminfo: HotFile,
    vmstat: HotFile,
    sysctls: Vec<(&'static str, u64)>,
    sysctls_at: Option<MonoNs>,
    names: NameTable,
    /// What the last reading lacks, and why; nothing at first.
    lacks: Option<(&'static str, String)>,
}

impl Collector for MemoryCollector {
    type Sample = MemorySample;
    const ID: CollectorId = CollectorId::Memory;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        let mut meminfo = HotFile::record(host, "proc/meminfo");
        meminfo
            .read()
            .map_err(|e| Unavailable::because("/proc/meminfo", &e, "mount the host's /proc"))?;
        Ok(Self {
            host: host.clone(),
            meminfo,
            vmstat: HotFile::new(host, "proc/vmstat"),
            sysctls: Vec::new(),
            sysctls_at: None,
            names: NameTable::default(),
            lacks: None,
        })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<MemorySample, CollectError> {
        if self.sysctls_at.is_none_or(|t| cx.at.since(t) >= SYSCTLS_AGE) {
            self.sysctls_at = Some(cx.at);
            let read = |n: &&'static str| {
                Some((*n, self.host.read_number(format!("proc/sys/vm/{n}")).ok()?))
            };
            self.sysctls = SYSCTLS.iter().filter_map(read).collect();
        }
        let meminfo = self.meminfo.read().map_err(|e| CollectError::read("proc/meminfo", e))?;
        let vmstat = self.vmstat.read().unwrap_or_default();
        let empty = [("meminfo", meminfo.is_empty()), ("vmstat", vmstat.is_empty())];
        let sysctls = &self.sysctls;
        let (names, values) = self.names.collect(
            |emit| {
                walk_meminfo(meminfo, emit);
                walk_vmstat(vmstat, emit);
                for (name, value) in sysctls {
                    emit((b"sys", name.as_bytes(), *value));
                }
            },
            |g, n| format!("{}.{}", String::from_utf8_lossy(g), String::from_utf8_lossy(n)),
        );
        let sample = MemorySample { names, values };
        let key = ["meminfo.MemTotal", "vmstat.pgfault"];
        let lacking = empty.iter().zip(key).find(|(_, key)| sample.get(key).is_none());
        self.lacks = lacking.map(|((file, empty), _)| {
            let why = if *empty { "is empty or not readable" } else { "cannot be parsed" };
            (*file, format!("/proc/{file} {why}"))
        });
        Ok(sample)
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        let (name, source) = ("memory", "meminfo, vmstat");
        out.push(match &self.lacks {
            None => Signal::ok(name, source),
            Some((file, why)) => {
                let what = if *file == "meminfo" { "memory" } else { "reclaim and writeback" };
                Signal::degraded(name, source, why, "mount the host's /proc")
                    .unseen(what, Extent::Whole)
            }
        });
    }
}

/// `Name:   123 kB` per line; the unit is dropped (huge page counts have none).
pub fn walk_meminfo<'a>(bytes: &'a [u8], emit: &mut dyn FnMut((&'a [u8], &'a [u8], u64))) {
    for line in lines(whole_lines(bytes)) {
        let mut f = fields(line);
        let (Some(name), Some(value)) = (f.next(), f.next().and_then(number)) else { continue };
        if let Some(name) = name.strip_suffix(b":") {
            emit((b"meminfo", name, value));
        }
    }
}

/// `name 123` per line.
pub fn walk_vmstat<'a>(bytes: &'a [u8], emit: &mut dyn FnMut((&'a [u8], &'a [u8], u64))) {
    for line in lines(whole_lines(bytes)) {
        let mut f = fields(line);
        if let (Some(name), Some(value), None) = (f.next(), f.next().and_then(number), f.next()) {
            emit((b"vmstat", name, value));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::collect::testing::fixtures;
    use crate::sample::{Interest, SignalStatus};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn sample(c: &mut MemoryCollector) -> MemorySample {
        let interest = Interest::default();
        let interval = Duration::from_secs(1);
        c.sample(&SampleContext { at: clock::mono(), interval, interest: &interest }).unwrap()
    }

    fn open(host: &HostFs) -> MemoryCollector {
        MemoryCollector::open(host, &CollectOptions::default()).unwrap()
    }

    #[test]
    fn the_captured_files_are_read_by_name() {
        let s = sample(&mut open(&HostFs::at(fixtures().join("6.18"))));
        assert!(s.names.is_sorted());
        let get = |n: &str| s.get(n).unwrap();
        // Pages of 4 kB on one side, kB on the other: the same quantity, read a moment later.
        assert!(get("meminfo.Dirty").abs_diff(4 * get("vmstat.nr_dirty")) < 4096);
        assert!(get("meminfo.MemTotal") > get("meminfo.MemFree"));
        assert!(get("vmstat.nr_dirty_threshold") > get("vmstat.nr_dirty_background_threshold"));
        assert_eq!((get("sys.dirty_ratio"), get("sys.dirty_bytes")), (20, 0));
        assert_eq!(s.get("vmstat.no_such_name"), None);
    }

    #[test]
    fn live_names_are_shared_and_values_are_new() {
        let mut c = open(&HostFs::live());
        let (a, b) = (sample(&mut c), sample(&mut c));
        assert!(Arc::ptr_eq(&a.names, &b.names));
        assert!(a.get("vmstat.pgfault") <= b.get("vmstat.pgfault"));
    }

    /// A file that holds nothing of ours must not look like a box with memory to spare.
    #[test]
    fn a_file_without_its_names_degrades_the_signal() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        let vmstat = "pgfault 1\n";
        for (meminfo, vmstat, says) in [
            ("", vmstat, "/proc/meminfo is empty"),
            ("\0garbage\n", vmstat, "/proc/meminfo cannot be parsed"),
            ("MemTotal: 1 kB\n", "", "/proc/vmstat is empty"),
            ("MemTotal: 1 kB\n", "rubbish\n", "/proc/vmstat cannot be parsed"),
            ("MemTotal: 1 kB\n", vmstat, ""),
        ] {
            std::fs::write(dir.path().join("proc/meminfo"), meminfo).unwrap();
            std::fs::write(dir.path().join("proc/vmstat"), vmstat).unwrap();
            let mut c = open(&HostFs::at(dir.path()));
            sample(&mut c);
            let mut signals = Vec::new();
            c.signals(&mut signals);
            match &signals[0].status {
                SignalStatus::Ok => assert_eq!(says, ""),
                SignalStatus::Degraded { reason, .. } => {
                    assert!(!says.is_empty() && reason.contains(says), "{reason}");
                    assert!(signals[0].unseen.is_some());
                }
                other @ SignalStatus::Missing { .. } => panic!("{other:?}"),
            }
        }
    }

    const MEMINFO: &[u8] = include_bytes!("../../tests/fixtures/6.18/proc/meminfo");

    fn all(bytes: &[u8]) -> Vec<(Vec<u8>, u64)> {
        let mut out = Vec::new();
        walk_meminfo(bytes, &mut |(_, n, v)| out.push((n.to_vec(), v)));
        out
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            walk_meminfo(&bytes, &mut |_| {});
            walk_vmstat(&bytes, &mut |_| {});
        }

        #[test]
        fn truncation_shortens_and_changes_nothing(cut in 0usize..1600) {
            let part = all(&MEMINFO[..cut.min(MEMINFO.len())]);
            prop_assert!(all(MEMINFO).starts_with(&part));
        }
    }
}
