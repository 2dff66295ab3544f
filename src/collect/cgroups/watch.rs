//! Groups that somebody changes while we look: a limit that is set in the middle of an incident
//! is read in the next tick, and not when the turn of its group comes.
//!
//! inotify reports writes to files of cgroupfs and new directories as on any file system (the
//! events come from the VFS, since Linux 2.6.13), and needs no privilege. Where it is not to be
//! had, because `fs.inotify.max_user_instances` or `max_user_watches` is used up, groups are
//! looked at when their turn comes.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// A watch keeps an inode in the kernel's memory, some 1 KiB.
const MAX_WATCHES: usize = 1024;
/// Events that are taken at a time; the kernel holds `fs.inotify.max_queued_events` (16,384) and
/// drops the rest, which the regular look makes up for.
const MAX_EVENTS: usize = 4096;

/// A group as the collector names it: hierarchy and path.
pub(super) type Key = (usize, Arc<str>);

/// What has changed since the last look.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Groups with a file that was written to.
    pub written: HashSet<Key>,
    /// Groups that got a child.
    pub grown: HashSet<Key>,
}

/// The watches of this collector.
#[derive(Debug)]
pub(super) struct Watches {
    inotify: Option<OwnedFd>,
    groups: HashMap<i32, Key>,
}

impl Watches {
    pub(super) fn new() -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        Self { inotify, groups: HashMap::new() }
    }

    /// Watches the directory of a group, if there is room. A second call for the same directory
    /// changes nothing.
    pub(super) fn add(&mut self, dir: &Path, key: Key) {
        let Some(fd) = &self.inotify else { return };
        if self.groups.len() >= MAX_WATCHES {
            return;
        }
        let flags = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::ONLYDIR;
        if let Ok(wd) = inotify::add_watch(fd, dir, flags) {
            self.groups.insert(wd, key);
        }
    }

    /// Takes what the kernel reported; never blocks.
    pub(super) fn changes(&mut self) -> Changes {
        let mut out = Changes::default();
        let Some(fd) = &self.inotify else { return out };
        let mut buf = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(fd, &mut buf);
        for _ in 0..MAX_EVENTS {
            // Nothing more, or an error that the next look meets again.
            let Ok(event) = events.next() else { break };
            if event.events().contains(ReadFlags::IGNORED) {
                // The directory is gone, and the watch with it.
                self.groups.remove(&event.wd());
                continue;
            }
            let Some(key) = self.groups.get(&event.wd()) else { continue };
            if event.events().contains(ReadFlags::CREATE) {
                out.grown.insert(key.clone());
            } else if event.file_name().is_some_and(|name| is_setting(name.to_bytes())) {
                out.written.insert(key.clone());
            }
        }
        out
    }
}

/// Not what every start of a process writes to, nor what the kernel itself reports: it notifies
/// of `memory.events`, `pids.events` and `cgroup.events` at every one of theirs.
fn is_setting(name: &[u8]) -> bool {
    !matches!(name, b"cgroup.procs" | b"cgroup.threads" | b"tasks") && !name.ends_with(b".events")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn writes_to_settings_and_new_children_are_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cpu.max"), "max 100000\n").unwrap();
        std::fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        std::fs::write(dir.path().join("memory.events"), "").unwrap();
        let mut watches = Watches::new();
        let key: Key = (0, "/db".into());
        watches.add(dir.path(), key.clone());
        let none = watches.changes();
        assert!(none.written.is_empty() && none.grown.is_empty(), "{none:?}");
        std::fs::write(dir.path().join("cgroup.procs"), "1\n").unwrap();
        std::fs::write(dir.path().join("memory.events"), "oom 1\n").unwrap();
        let none = watches.changes();
        assert!(none.written.is_empty() && none.grown.is_empty(), "{none:?}");
        std::fs::write(dir.path().join("cpu.max"), "10000 100000\n").unwrap();
        let one = watches.changes();
        assert!(one.written.contains(&key) && one.grown.is_empty(), "{one:?}");
        std::fs::create_dir(dir.path().join("child")).unwrap();
        let one = watches.changes();
        assert!(one.grown.contains(&key) && one.written.is_empty(), "{one:?}");
        assert!(watches.changes().grown.is_empty());
        // A group that is gone frees its watch.
        drop(dir);
        watches.changes();
        assert!(watches.groups.is_empty());
    }
}
