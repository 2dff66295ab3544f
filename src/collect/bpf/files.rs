//! Who tries to create files, by process and file system: where a file system has no inode left,
//! nothing else tells, as such attempts leave no trace.
//!
//! ext4 has a tracepoint for each inode that it is asked for. For the others, programs run at the
//! functions in which the kernel asks its security modules (5.5 with BTF, `CONFIG_SECURITY`,
//! `CONFIG_FUNCTION_TRACER`), unless a security module forbids that. Each CPU has 64 rows for processes
//! and file systems; a new one takes the place of one that has not come for long.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::load::{self, Hook, Kernel, Loaded};
use super::maps::Stripes;
use super::rights::refused;
use super::{Coverage, objects, offsets};
use crate::clock;
use crate::collect::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::sample::bpf::files::{Creates, Creator, FilesBpfSample, MAX_CREATORS, MAX_FILESYSTEMS};
use crate::sample::bpf::layout::files as l;
use crate::sample::subject::DiskId;
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Signal};

/// Kernel memory per possible CPU.
pub(super) const BYTES_PER_CPU: usize = l::WORDS * 8;

const NAME: &str = "file creation";

/// Programs and the functions that they are attached to.
const PROGRAMS: [(&str, &str); 4] = [
    ("inode_create", "security_inode_create"),
    ("inode_mkdir", "security_inode_mkdir"),
    ("inode_mknod", "security_inode_mknod"),
    ("inode_symlink", "security_inode_symlink"),
];

/// The tracepoint of ext4.
const EXT4: (&str, &str) = ("ext4_request", "ext4_request_inode");

/// Reads it. See the module head.
pub struct FilesBpf {
    host: HostFs,
    loaded: Loaded,
    stripes: Stripes<{ l::WORDS }>,
    /// Each CPU as it was read last.
    cpus: Vec<Cpu>,
    ext4: bool,
    /// Why other file systems are not seen.
    only_ext4: Option<Unavailable>,
    read_at: MonoNs,
    missed: Option<u64>,
}

/// Attempts of all, and key and attempts of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cpu {
    attempts: u64,
    rows: [(u64, u64); l::ROWS],
}

impl Default for Cpu {
    fn default() -> Self {
        Self { attempts: 0, rows: [(0, 0); l::ROWS] }
    }
}

/// Attempts by file system and process; process 0 stands for all of them.
type Counts = BTreeMap<(DiskId, u32), u64>;

impl Collector for FilesBpf {
    type Sample = FilesBpfSample;
    const ID: CollectorId = CollectorId::FilesBpf;

    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        let all = |ext4| Self::with(host, &kernel, Some(&PROGRAMS), ext4);
        // Without ext4 in this kernel, or its module: the functions tell of all.
        let only = all(true).or_else(|_| all(false));
        only.or_else(|e| {
            // The first reason is the one to tell.
            let ext4 = Self::with(host, &kernel, None, true).map_err(|_| e.clone())?;
            Ok(Self { only_ext4: Some(e), ..ext4 })
        })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<FilesBpfSample, CollectError> {
        load::forget_kernel();
        self.stripes.refresh().map_err(|e| CollectError::read("map FILES", e))?;
        self.missed = self.loaded.missed();
        let mut counts = Counts::new();
        let mut attempts = 0_u64;
        for (cpu, before) in self.cpus.iter_mut().enumerate() {
            let word = |w| self.stripes.get(cpu, w);
            // Before the rows, which have all that it counts.
            let now = word(l::CREATES);
            if now != before.attempts {
                attempts = attempts.saturating_add(now.saturating_sub(before.attempts));
                before.attempts = now;
                grown(&mut before.rows, word, &mut counts);
            }
        }
        let name =
            |pid: u32| self.host.read_trimmed(format!("proc/{pid}/comm")).ok().map(Arc::from);
        let filesystems = listed(&counts, name);
        let told = filesystems.iter().fold(0, |sum: u64, c| sum.saturating_add(c.count));
        let covered_ns = cx.at.since(self.read_at).as_nanos() as u64;
        self.read_at = cx.at;
        Ok(FilesBpfSample {
            functions: self.only_ext4.is_none(),
            ext4: self.ext4,
            covered_ns,
            filesystems,
            unlisted: attempts.saturating_sub(told),
            missed: self.missed,
        })
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        let counted = self.cpus.iter().fold(0, |sum: u64, c| sum.saturating_add(c.attempts));
        let coverage = Coverage { counted, lost: self.missed.unwrap_or(0) };
        out.push(match &self.only_ext4 {
            None => coverage.signal(NAME),
            Some(Unavailable { reason, remedy }) => {
                Signal::degraded(NAME, "ebpf", format!("on ext4 only: {reason}"), remedy.clone())
            }
        });
    }
}

impl FilesBpf {
    /// With programs at these functions, and where `ext4` at its tracepoint.
    fn with(
        host: &HostFs,
        kernel: &Kernel,
        functions: Option<&[(&'static str, &'static str)]>,
        ext4: bool,
    ) -> Result<Self, Unavailable> {
        load::host_pids(host)?;
        let types = kernel.types.as_ref().map_err(Clone::clone)?;
        if ext4 && !types.helper {
            return Err(refused());
        }
        let mut globals = offsets::files(&types.own)?;
        globals.push(("BY_HELPER", types.by_helper));
        globals.push(("EXT4_TELLS", u32::from(ext4)));
        let mut loaded = Loaded::new(kernel, objects::FILES, &globals, &sizes(kernel.cpus))?;
        if ext4 {
            loaded.attach(kernel, EXT4.0, Hook::Raw(EXT4.1))?;
        }
        for (program, function) in functions.unwrap_or_default() {
            loaded.attach(kernel, program, Hook::Function(function))?;
        }
        let stripes = loaded.stripes("FILES", kernel.cpus)?;
        Ok(Self {
            host: host.clone(),
            loaded,
            cpus: vec![Cpu::default(); stripes.count()],
            stripes,
            ext4,
            only_ext4: None,
            read_at: clock::mono(),
            missed: None,
        })
    }

    /// Opens it as on a host that has no ext4, or forbids programs at functions of the kernel.
    ///
    /// # Errors
    /// As [`Collector::open`].
    #[doc(hidden)]
    pub fn open_part(
        host: &HostFs,
        opts: &CollectOptions,
        ext4: bool,
    ) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        let functions = (!ext4).then_some(&PROGRAMS[..]);
        let only_ext4 = ext4.then(|| Unavailable::new("for a test", ""));
        Ok(Self { only_ext4, ..Self::with(host, &kernel, functions, ext4)? })
    }
}

/// Entries of the map.
pub(super) fn sizes(cpus: usize) -> [(&'static str, u32); 1] {
    [("FILES", cpus as u32)]
}

/// Adds what the rows of a CPU have more than before, and keeps what they have now.
fn grown(before: &mut [(u64, u64)], word: impl Fn(usize) -> u64, counts: &mut Counts) {
    for (i, old) in before.iter_mut().enumerate() {
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
        if all.last().is_none_or(|c| c.dev != *dev) {
            all.push(Creates { dev: *dev, ..Creates::default() });
        }
        let Some(c) = all.last_mut() else { continue };
        // Process 0 comes first. Where its row was given away, the others are what is known.
        if *pid == 0 {
            c.count = *count;
        } else {
            c.creators.push(Creator { pid: *pid, comm: None, count: *count });
        }
    }
    for c in &mut all {
        let sum = c.creators.iter().fold(0, |sum: u64, c| sum.saturating_add(c.count));
        c.count = c.count.max(sum);
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

    const DEV: u64 = 8 << l::MINOR_BITS | 0x11;

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
            grown(&mut cpu.rows, |w| words[w], &mut counts);
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
        // Of 1200, 1000 are told apart.
        counts.insert((dev(2), 0), 1200);
        counts.insert((dev(2), 7), 1000);
        (3..40).for_each(|minor| {
            counts.insert((dev(minor), 9), 2);
        });
        let all = listed(&counts, |pid| Some(format!("p{pid}").into()));
        assert_eq!(all.len(), MAX_FILESYSTEMS);
        assert_eq!((all[0].dev, all[0].count, all[0].creators.len()), (dev(2), 1200, 1));
        assert_eq!((all[1].dev, all[1].count), (dev(1), 210));
        let pids: Vec<u32> = all[1].creators.iter().map(|c| c.pid).collect();
        assert_eq!(pids, [20, 19, 18, 17]);
        assert_eq!(all[1].creators[0].comm.as_deref(), Some("p20"));
    }
}
