//! `Search`: who keeps deleted files open on file systems that are nearly full. Their space is in use
//! and in no directory: `du` does not find it.
//!
//! All descriptors of all processes are looked at (`statx` of `/proc/PID/fd/N`: no link is left), some
//! hundreds in a second, and from the beginning again a while after the end. Files that are only
//! mapped, and those of processes that are not ours to see, are not found.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs::File;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FileType, StatxFlags};
use rustix::io::Errno;

use crate::clock;
use crate::collect::HostFs;
use crate::collect::descriptors::{Descriptors, Step, behind};
use crate::sample::filesystems::{Deleted, FilesystemRow, Holder};
use crate::sample::subject::DiskId;
use crate::sample::time::MonoNs;

/// Part of the space, %, below which what is left matters: where the rule begins to look.
const LITTLE: u64 = 7;
/// CPU time of one round, but for one step more ...
const BUDGET: Duration = Duration::from_millis(4);
/// ... and time from one to the next.
const EVERY: Duration = Duration::from_millis(900);
/// From one search to the next.
const PAUSE: Duration = Duration::from_secs(20);
/// Holders of one file system that are told.
const MAX_HOLDERS: usize = 8;
/// Deleted files that are kept in mind: of more, those that are found first.
const MAX_FILES: usize = 65_536;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Processes that are still to be looked at.
    todo: Vec<u32>,
    /// The one that the last round did not finish.
    look: Option<(u32, Descriptors)>,
    found: Found,
    denied: u32,
    /// When the last round began, and when the last search ended.
    began: Option<MonoNs>,
    ended: Option<MonoNs>,
    told: Option<Arc<Deleted>>,
}

/// Deleted files so far.
#[derive(Debug, Default)]
struct Found {
    /// The bytes of each file, by file system and process.
    by_holder: BTreeMap<(DiskId, u32), BTreeMap<u64, u64>>,
    files: usize,
}

impl Search {
    /// What was found: by the last search, and before that by the first one so far.
    pub(super) fn told(&self) -> Option<Arc<Deleted>> {
        self.told.clone()
    }

    /// Goes on, if there is a file system to search for.
    pub(super) fn round(&mut self, host: &HostFs, at: MonoNs, all: &[FilesystemRow]) {
        let full: BTreeSet<DiskId> =
            all.iter().filter(|r| is_nearly_full(r)).map(|r| r.dev).collect();
        if full.is_empty() {
            *self = Self::default();
            return;
        }
        let lately = |then: Option<MonoNs>, span| then.is_some_and(|t| at.since(t) < span);
        let is_between = self.todo.is_empty() && self.look.is_none();
        if lately(self.began, EVERY) || is_between && lately(self.ended, PAUSE) {
            return;
        }
        self.began = Some(at);
        if is_between {
            self.begin(host);
        }
        let start = clock::thread_cpu();
        while self.step(host, &full) {
            if clock::thread_cpu().saturating_sub(start) >= BUDGET {
                break;
            }
        }
        let left = self.todo.len() + usize::from(self.look.is_some());
        if left == 0 {
            self.ended = Some(at);
        }
        // Until the first search has ended, what it has so far is better than nothing.
        if left == 0 || self.told.as_ref().is_none_or(|t| t.left > 0) {
            self.tell(host, left as u32);
        }
    }

    fn begin(&mut self, host: &HostFs) {
        self.found = Found::default();
        self.denied = 0;
        let names = host.list("proc").unwrap_or_default();
        self.todo = names.iter().filter_map(|n| n.parse().ok()).collect();
    }

    /// Looks at some descriptors of one process; false after the last one.
    fn step(&mut self, host: &HostFs, full: &BTreeSet<DiskId>) -> bool {
        let (pid, mut descriptors) = if let Some(look) = self.look.take() {
            look
        } else {
            let Some(pid) = self.todo.pop() else { return false };
            match Descriptors::open(host, pid) {
                Ok(d) => (pid, d),
                Err(e) => {
                    self.denied += u32::from(e == Errno::ACCESS || e == Errno::PERM);
                    return true;
                }
            }
        };
        let step = descriptors.step(|dir, name| {
            self.found.look_at(pid, dir, name, full);
            ControlFlow::Continue(())
        });
        if matches!(step, Ok(Step::More)) {
            self.look = Some((pid, descriptors));
        }
        true
    }

    fn tell(&mut self, host: &HostFs, left: u32) {
        let mut holders: Vec<Holder> = Vec::new();
        for ((dev, pid), files) in &self.found.by_holder {
            let bytes = files.values().fold(0_u64, |sum, n| sum.saturating_add(*n));
            let Ok(comm) = host.read_trimmed(format!("proc/{pid}/comm")) else { continue };
            let files = files.len() as u32;
            holders.push(Holder { dev: *dev, pid: *pid, comm, bytes, files });
        }
        holders.sort_by_key(|h| (h.dev, Reverse(h.bytes), h.pid));
        let mut of_one = (DiskId::default(), 0);
        holders.retain(|h| {
            of_one = if of_one.0 == h.dev { (h.dev, of_one.1 + 1) } else { (h.dev, 1) };
            of_one.1 <= MAX_HOLDERS
        });
        let new = Deleted { holders, denied: self.denied, left };
        if self.told.as_deref() != Some(&new) {
            self.told = Some(Arc::new(new));
        }
    }
}

impl Found {
    fn look_at(&mut self, pid: u32, dir: &File, name: &CStr, full: &BTreeSet<DiskId>) {
        let wanted = StatxFlags::TYPE | StatxFlags::NLINK | StatxFlags::INO | StatxFlags::BLOCKS;
        let Ok(file) = behind(dir, name, wanted) else { return };
        let dev = DiskId { major: file.stx_dev_major, minor: file.stx_dev_minor };
        let is_file = FileType::from_raw_mode(file.stx_mode.into()) == FileType::RegularFile;
        if is_file && file.stx_nlink == 0 && full.contains(&dev) && self.files < MAX_FILES {
            let bytes = file.stx_blocks.saturating_mul(512);
            let of_holder = self.by_holder.entry((dev, pid)).or_default();
            self.files += usize::from(of_holder.insert(file.stx_ino, bytes).is_none());
        }
    }
}

fn is_nearly_full(r: &FilesystemRow) -> bool {
    let Some(s) = r.space.filter(|_| !r.mounted_read_only() && !r.takes_no_writes()) else {
        return false;
    };
    let (used, avail) = (s.used_bytes(), s.avail_bytes());
    used > 0
        && u128::from(avail) * 100 <= u128::from(LITTLE) * u128::from(used.saturating_add(avail))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::sample::filesystems::Space;

    fn row(dev: DiskId, avail: u64) -> FilesystemRow {
        let space = Space { block: 4096, blocks: 100, free: avail, avail, ..Space::default() };
        FilesystemRow { dev, space: Some(space), ..FilesystemRow::default() }
    }

    /// Rounds a second apart, until the first search has ended.
    fn search(search: &mut Search, host: &HostFs, all: &[FilesystemRow]) -> usize {
        for n in 1..100_000 {
            search.round(host, MonoNs(n * 1_000_000_000), all);
            if search.told().is_none_or(|t| t.left == 0) {
                return n as usize;
            }
        }
        panic!("it does not end");
    }

    fn searched(all: &[FilesystemRow]) -> Option<Arc<Deleted>> {
        let mut new = Search::default();
        search(&mut new, &HostFs::live(), all);
        new.told()
    }

    /// A hundred thousand descriptors take a second of CPU time: it is spread over many rounds, and
    /// what is found is told on the way.
    #[test]
    fn many_descriptors_are_looked_at_in_many_rounds() {
        let root = tempfile::tempdir().unwrap();
        let fds = root.path().join("proc/7/fd");
        std::fs::create_dir_all(&fds).unwrap();
        std::fs::write(root.path().join("proc/7/comm"), "many\n").unwrap();
        for n in 0..20_000 {
            std::os::unix::fs::symlink("/dev/null", fds.join(n.to_string())).unwrap();
        }
        let (mut one, host) = (Search::default(), HostFs::at(root.path()));
        let all = [row(DiskId { major: 8, minor: 1 }, 0)];
        one.round(&host, MonoNs(1_000_000_000), &all);
        assert_eq!(one.told().unwrap().left, 1, "4 ms are not enough for 20,000");
        one.round(&host, MonoNs(1_800_000_000), &all);
        let rounds = search(&mut one, &host, &all);
        assert!(rounds > 1, "{rounds}");
        assert_eq!(one.told().as_deref(), Some(&Deleted::default()));
        std::fs::remove_dir_all(&fds).unwrap();
        one.round(&host, MonoNs((rounds as u64 + 5) * 1_000_000_000), &all);
        assert!(one.todo.is_empty() && one.look.is_none(), "the next search waits for 20 s");
    }

    #[test]
    fn a_deleted_file_that_we_hold_is_found_with_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone");
        let mut held = File::create(&path).unwrap();
        held.write_all(&vec![7; 100_000]).unwrap();
        held.sync_all().unwrap();
        let again = held.try_clone().unwrap();
        std::fs::remove_file(&path).unwrap();
        let now = rustix::fs::fstat(&held).unwrap();
        let dev =
            DiskId { major: rustix::fs::major(now.st_dev), minor: rustix::fs::minor(now.st_dev) };
        let found = searched(&[row(dev, 3)]).unwrap();
        let me = found.holders.iter().find(|h| h.pid == std::process::id()).unwrap();
        // Other tests of this process may hold some, too.
        assert!(me.files >= 1 && me.bytes >= now.st_blocks as u64 * 512, "{me:?}");
        assert!(me.bytes < 1 << 30, "two descriptors of one file are one file: {me:?}");
        drop(again);
    }

    #[test]
    fn nobody_is_looked_at_where_there_is_room() {
        let dev = DiskId { major: 8, minor: 1 };
        assert_eq!(searched(&[row(dev, 8)]), None);
        assert!(is_nearly_full(&row(dev, 7)) && is_nearly_full(&row(dev, 0)));
        let empty = FilesystemRow { space: Some(Space::default()), ..row(dev, 0) };
        assert!(!is_nearly_full(&empty));
        assert!(searched(&[row(dev, 0)]).unwrap().holders.is_empty(), "no such device here");
    }
}
