//! Who tries to create files, by process and file system: where a file system has no inode left,
//! nothing else tells, as such attempts leave no trace.
//!
//! Programs at the functions in which the kernel asks its security modules (5.5 with BTF,
//! `CONFIG_SECURITY`, `CONFIG_FUNCTION_TRACER`); where a security module forbids that, one at the
//! tracepoint of ext4. Each CPU has a row for 32 processes and file
//! systems; one that is new takes the place of the one that has not come for longest.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::load::{self, Hook, Kernel, Loaded};
use super::maps::Stripes;
use super::rights::refused;
use super::{Coverage, objects, offsets};
use crate::collect::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::sample::bpf::files::{
    Creates, Creator, FilesBpfSample, MAX_CREATORS, MAX_FILESYSTEMS, Sees,
};
use crate::sample::bpf::layout::files as l;
use crate::sample::subject::DiskId;
use crate::sample::{CollectorId, Signal};

/// Kernel memory per possible CPU.
pub(super) const BYTES_PER_CPU: usize = l::WORDS * 8;

const NAME: &str = "file creation";
const MISSED_EVERY: u32 = 60;

/// Programs and the functions that they are attached to.
const PROGRAMS: [(&str, &str); 4] = [
    ("inode_create", "security_inode_create"),
    ("inode_mkdir", "security_inode_mkdir"),
    ("inode_mknod", "security_inode_mknod"),
    ("inode_symlink", "security_inode_symlink"),
];

/// Reads it. See the module head.
pub struct FilesBpf {
    host: HostFs,
    loaded: Loaded,
    stripes: Stripes<{ l::WORDS }>,
    /// Each CPU as it was read last.
    cpus: Vec<Cpu>,
    /// Why other file systems are not seen.
    only_ext4: Option<String>,
    missed: Option<u64>,
    samples: u32,
}

/// Attempts of all, and key and attempts of each row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cpu {
    attempts: u64,
    rows: [(u64, u64); l::ROWS],
}

/// Attempts by file system and process.
type Counts = BTreeMap<(DiskId, u32), u64>;

impl Collector for FilesBpf {
    type Sample = FilesBpfSample;
    const ID: CollectorId = CollectorId::FilesBpf;

    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        load::host_pids(host)?;
        Self::at_functions(host, &kernel).or_else(|e| {
            // The first reason is the one to tell.
            Self::at_tracepoint(host, &kernel, &e.reason).map_err(|_| e)
        })
    }

    fn sample(&mut self, _cx: &SampleContext<'_>) -> Result<FilesBpfSample, CollectError> {
        load::forget_kernel();
        self.stripes.refresh().map_err(|e| CollectError::read("map FILES", e))?;
        if self.samples.is_multiple_of(MISSED_EVERY) {
            self.missed = self.loaded.missed();
        }
        self.samples = self.samples.wrapping_add(1);
        let mut counts = Counts::new();
        let mut attempts = 0_u64;
        for (cpu, before) in self.cpus.iter_mut().enumerate() {
            let word = |w| self.stripes.get(cpu, w);
            let now = word(l::CREATES);
            if now != before.attempts {
                grown(before, now, word, &mut counts);
            }
            attempts = attempts.saturating_add(now);
        }
        let name =
            |pid: u32| self.host.read_trimmed(format!("proc/{pid}/comm")).ok().map(Arc::from);
        Ok(FilesBpfSample {
            attempts,
            filesystems: listed(&counts, name),
            sees: if self.only_ext4.is_none() { Sees::All } else { Sees::Ext4 },
            missed: self.missed,
        })
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        let counted = self.cpus.iter().fold(0, |sum: u64, c| sum.saturating_add(c.attempts));
        let coverage = Coverage { counted, lost: self.missed.unwrap_or(0) };
        out.push(match &self.only_ext4 {
            None => coverage.signal(NAME),
            Some(why) => Signal::degraded(NAME, "ebpf", format!("on ext4 only: {why}"), ""),
        });
    }
}

impl FilesBpf {
    fn at_functions(host: &HostFs, kernel: &Kernel) -> Result<Self, Unavailable> {
        Self::with(host, kernel, &PROGRAMS.map(|(program, f)| (program, Hook::Function(f))))
    }

    fn at_tracepoint(host: &HostFs, kernel: &Kernel, why: &str) -> Result<Self, Unavailable> {
        let types = kernel.types.as_ref().map_err(Clone::clone)?;
        if !types.helper {
            return Err(refused());
        }
        let hook = Hook::Raw("ext4_request_inode");
        let only_ext4 = Some(why.to_owned());
        Ok(Self { only_ext4, ..Self::with(host, kernel, &[("ext4_request", hook)])? })
    }

    fn with(
        host: &HostFs,
        kernel: &Kernel,
        programs: &[(&'static str, Hook)],
    ) -> Result<Self, Unavailable> {
        let types = kernel.types.as_ref().map_err(Clone::clone)?;
        let mut globals = offsets::files(&types.own)?;
        globals.push(("BY_HELPER", types.by_helper));
        let mut loaded = Loaded::new(kernel, objects::FILES, &globals, &sizes(kernel.cpus))?;
        for (program, hook) in programs {
            loaded.attach(kernel, program, *hook)?;
        }
        let stripes = loaded.stripes("FILES", kernel.cpus)?;
        Ok(Self {
            host: host.clone(),
            loaded,
            cpus: vec![Cpu::default(); stripes.count()],
            stripes,
            only_ext4: None,
            missed: None,
            samples: 0,
        })
    }

    /// Opens it as on a host that forbids programs at functions of the kernel.
    ///
    /// # Errors
    /// As [`Collector::open`].
    #[doc(hidden)]
    pub fn open_ext4(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        Self::at_tracepoint(host, &*load::kernel(host, opts)?, "for a test")
    }
}

/// Entries of the map.
pub(super) fn sizes(cpus: usize) -> [(&'static str, u32); 1] {
    [("FILES", cpus as u32)]
}

/// Adds what the rows of a CPU have more than before, and keeps what they have now.
fn grown(before: &mut Cpu, attempts: u64, word: impl Fn(usize) -> u64, counts: &mut Counts) {
    before.attempts = attempts;
    for (i, old) in before.rows.iter_mut().enumerate() {
        let at = i * l::ROW_WORDS;
        let (key, count) = (word(at + l::KEY), word(at + l::COUNT));
        // Fewer than before: another took the row and has lost it again.
        let more = if key == old.0 { count.checked_sub(old.1).unwrap_or(count) } else { count };
        *old = (key, count);
        if key != 0 && more > 0 {
            let dev = key as u32;
            let dev =
                DiskId { major: dev >> l::MINOR_BITS, minor: dev & ((1 << l::MINOR_BITS) - 1) };
            let sum = counts.entry((dev, (key >> l::DEV_BITS) as u32)).or_default();
            *sum = sum.saturating_add(more);
        }
    }
}

/// By file system, most attempts first.
fn listed(counts: &Counts, name: impl Fn(u32) -> Option<Arc<str>>) -> Vec<Creates> {
    let mut all: Vec<Creates> = Vec::new();
    for ((dev, pid), count) in counts {
        let creator = Creator { pid: *pid, comm: None, count: *count };
        match all.last_mut().filter(|c| c.dev == *dev) {
            Some(c) => {
                c.count = c.count.saturating_add(*count);
                c.creators.push(creator);
            }
            None => all.push(Creates { dev: *dev, count: *count, creators: vec![creator] }),
        }
    }
    all.sort_by_key(|c| std::cmp::Reverse(c.count));
    all.truncate(MAX_FILESYSTEMS);
    for c in &mut all {
        c.creators.sort_by_key(|c| (std::cmp::Reverse(c.count), c.pid));
        c.creators.truncate(MAX_CREATORS);
        c.creators.iter_mut().for_each(|c| c.comm = name(c.pid));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: u64 = 8 << l::MINOR_BITS | 17;

    fn key(pid: u64) -> u64 {
        pid << l::DEV_BITS | DEV
    }

    /// A stripe with these rows.
    fn stripe(rows: &[(u64, u64)]) -> [u64; l::WORDS] {
        let mut words = [0; l::WORDS];
        for (i, (key, count)) in rows.iter().enumerate() {
            words[i * l::ROW_WORDS + l::KEY] = *key;
            words[i * l::ROW_WORDS + l::COUNT] = *count;
        }
        words
    }

    /// What each process tried since the reading before, by readings of the same CPU.
    fn read(readings: &[&[(u64, u64)]]) -> Vec<Vec<(u32, u64)>> {
        let mut cpu = Cpu::default();
        let one = |rows: &&[(u64, u64)]| {
            let words = stripe(rows);
            let mut counts = Counts::new();
            grown(&mut cpu, 0, |w| words[w], &mut counts);
            let dev = DiskId { major: 8, minor: 17 };
            assert!(counts.keys().all(|(d, _)| *d == dev), "{counts:?}");
            counts.into_iter().map(|((_, pid), n)| (pid, n)).collect()
        };
        readings.iter().map(one).collect()
    }

    #[test]
    fn rows_count_from_reading_to_reading() {
        let told = read(&[
            &[(key(100), 5), (0, 0), (key(200), 1)],
            &[(key(100), 5), (key(300), 2), (key(200), 4)],
            // One row has another process now; the same process came back to the other.
            &[(key(400), 7), (key(300), 2), (key(200), 3)],
        ]);
        assert_eq!(told[0], [(100, 5), (200, 1)]);
        assert_eq!(told[1], [(200, 3), (300, 2)]);
        assert_eq!(told[2], [(200, 3), (400, 7)]);
    }

    /// The program sets the count to 0, then the key, then counts.
    #[test]
    fn a_row_that_is_being_taken_counts_nothing_twice() {
        let told = read(&[&[(key(100), 50)], &[(key(100), 0)], &[(key(200), 0)], &[(key(200), 1)]]);
        assert_eq!(told, [vec![(100, 50)], vec![], vec![], vec![(200, 1)]]);
    }

    #[test]
    fn those_with_most_attempts_are_listed() {
        let dev = |minor| DiskId { major: 8, minor };
        let mut counts = Counts::new();
        for pid in 1..=20 {
            counts.insert((dev(1), pid), u64::from(pid));
        }
        counts.insert((dev(2), 7), 1000);
        (3..40).for_each(|minor| {
            counts.insert((dev(minor), 9), 2);
        });
        let all = listed(&counts, |pid| Some(format!("p{pid}").into()));
        assert_eq!(all.len(), MAX_FILESYSTEMS);
        assert_eq!((all[0].dev, all[0].count, all[0].creators.len()), (dev(2), 1000, 1));
        assert_eq!((all[1].dev, all[1].count), (dev(1), 210));
        let pids: Vec<u32> = all[1].creators.iter().map(|c| c.pid).collect();
        assert_eq!(pids, [20, 19, 18, 17, 16, 15, 14, 13]);
        assert_eq!(all[1].creators[0].comm.as_deref(), Some("p20"));
    }
}
