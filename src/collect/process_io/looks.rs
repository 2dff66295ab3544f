//! `Looks`: on which devices the open files of processes are.
//!
//! A look goes through `/proc/PID/fd` in steps, and goes on in the next round where the budget ends: a
//! server may have ten thousand descriptors.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, Statx, StatxFlags};
use rustix::io::Errno;

use crate::clock;
use crate::collect::HostFs;
use crate::collect::descriptors::{Descriptors, Step, behind};
use crate::sample::process_io::{Access, OpenDisks, OpenOn};
use crate::sample::subject::{DiskId, TaskId};
use crate::sample::time::MonoNs;

/// A process is looked at again after this time.
const AGE: Duration = Duration::from_secs(5);
/// What was seen counts for so long where no other look follows.
const KEEP: Duration = Duration::from_secs(15);
/// Descriptors of a process, from the lowest number on.
const MAX_DESCRIPTORS: usize = 256;
/// Devices of a process.
const MAX_DEVICES: usize = 8;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// What was seen, nothing if that was not allowed, and when.
    known: HashMap<TaskId, (Option<Arc<OpenDisks>>, MonoNs)>,
    /// The one that the last round did not finish.
    look: Option<Look>,
}

/// A look at one process.
#[derive(Debug)]
struct Look {
    task: TaskId,
    descriptors: Descriptors,
    visited: usize,
    seen: OpenDisks,
}

impl Looks {
    /// Looks at those of `busy` that were not looked at lately: one step, and more as long as they
    /// fit into `budget` of CPU time.
    pub(super) fn round(
        &mut self,
        host: &HostFs,
        at: MonoNs,
        budget: Duration,
        busy: impl Iterator<Item = TaskId>,
    ) {
        let start = clock::thread_cpu();
        let (mut spent, mut longest) = (Duration::ZERO, Duration::ZERO);
        self.known.retain(|_, (_, seen_at)| at.since(*seen_at) < KEEP);
        let mut busy = busy;
        loop {
            if self.look.is_none() {
                let fresh = |t: &TaskId| {
                    self.known.get(t).is_some_and(|(_, seen_at)| at.since(*seen_at) < AGE)
                };
                let Some(task) = busy.find(|t| !fresh(t)) else { break };
                self.look = Look::open(host, task).ok();
                if self.look.is_none() {
                    self.known.insert(task, (None, at));
                }
            }
            if let Some(look) = &mut self.look {
                let task = look.task;
                let seen = match look.step() {
                    Ok(Step::More) => None,
                    Ok(Step::Done) => Some(Some(Arc::new(std::mem::take(&mut look.seen)))),
                    // It is gone, or not ours to read any more.
                    Err(_) => Some(None),
                };
                if let Some(seen) = seen {
                    self.look = None;
                    self.put(task, seen, at);
                }
            }
            let now = clock::thread_cpu().saturating_sub(start);
            longest = longest.max(now.saturating_sub(spent));
            spent = now;
            if spent + longest > budget {
                break;
            }
        }
    }

    /// Samples share what stays the same.
    fn put(&mut self, task: TaskId, seen: Option<Arc<OpenDisks>>, at: MonoNs) {
        let old = self.known.get(&task).and_then(|(old, _)| old.clone());
        let seen = if old == seen { old } else { seen };
        self.known.insert(task, (seen, at));
    }

    /// Where its open files were when it was last looked at.
    pub(super) fn of(&self, task: TaskId) -> Option<Arc<OpenDisks>> {
        self.known.get(&task)?.0.clone()
    }
}

impl Look {
    fn open(host: &HostFs, task: TaskId) -> Result<Self, Errno> {
        let descriptors = Descriptors::open(host, task.pid)?;
        Ok(Self { task, descriptors, visited: 0, seen: OpenDisks::default() })
    }

    fn step(&mut self) -> io::Result<Step> {
        let Self { descriptors, visited, seen, .. } = self;
        descriptors.step(|dir, name| {
            if *visited >= MAX_DESCRIPTORS {
                seen.more = true;
                return ControlFlow::Break(());
            }
            *visited += 1;
            match open_on(dir, name) {
                Ok(Some(on)) => add(seen, on),
                // Closed meanwhile.
                Ok(None) | Err(Errno::NOENT) => {}
                Err(_) => seen.more = true,
            }
            ControlFlow::Continue(())
        })
    }
}

/// The device that a descriptor is about; `None` if it is neither a regular file nor a block device.
fn open_on(dir: &File, name: &std::ffi::CStr) -> Result<Option<OpenOn>, Errno> {
    let file = behind(dir, name, StatxFlags::TYPE)?;
    let Some(dev) = device(&file) else { return Ok(None) };
    // The link has the mode with which the file was opened; one that was opened with O_PATH has
    // none.
    let link = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(link.st_mode);
    let access = match (mode.contains(Mode::RUSR), mode.contains(Mode::WUSR)) {
        (true, true) => Access::Both,
        (true, false) => Access::Read,
        (false, true) => Access::Write,
        (false, false) => return Ok(None),
    };
    Ok(Some(OpenOn { dev, access }))
}

fn device(file: &Statx) -> Option<DiskId> {
    match FileType::from_raw_mode(file.stx_mode.into()) {
        FileType::RegularFile => {
            Some(DiskId { major: file.stx_dev_major, minor: file.stx_dev_minor })
        }
        FileType::BlockDevice => {
            Some(DiskId { major: file.stx_rdev_major, minor: file.stx_rdev_minor })
        }
        _ => None,
    }
}

fn add(seen: &mut OpenDisks, new: OpenOn) {
    match seen.on.binary_search_by_key(&new.dev, |o| o.dev) {
        Ok(n) => {
            if let Some(old) = seen.on.get_mut(n) {
                old.access = old.access.and(new.access);
            }
        }
        Err(_) if seen.on.len() >= MAX_DEVICES => seen.more = true,
        Err(n) => seen.on.insert(n, new),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::MetadataExt;

    use rustix::fs::OFlags;

    use super::*;

    const MUCH: Duration = Duration::from_secs(60);

    fn id_of(file: &File) -> DiskId {
        let dev = file.metadata().unwrap().dev();
        DiskId { major: rustix::fs::major(dev), minor: rustix::fs::minor(dev) }
    }

    /// Where builds are: on a disk, more often than the directory for temporary files.
    fn beside_the_program() -> tempfile::TempDir {
        tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
    }

    /// A child with these as its standard streams.
    fn child(read: &File, write: &File) -> std::process::Child {
        let mut sleep = std::process::Command::new("sleep");
        sleep.arg("60").stdin(read.try_clone().unwrap()).stdout(write.try_clone().unwrap());
        sleep.stderr(std::process::Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn the_device_of_a_file_and_what_it_is_open_for() {
        let dir = beside_the_program();
        let path = dir.path().join("f");
        let write = File::create(&path).unwrap();
        let read = File::open(&path).unwrap();
        let dev = id_of(&write);
        let on = |read: &File, write: &File| {
            let mut child = child(read, write);
            // It opens its libraries first.
            clock::sleep_until(clock::mono() + Duration::from_millis(300));
            let mut looks = Looks::default();
            let task = TaskId { pid: child.id(), tid: child.id(), start: 1 };
            looks.round(&HostFs::live(), MonoNs(0), MUCH, [task].into_iter());
            child.kill().unwrap();
            child.wait().unwrap();
            looks.of(task).unwrap().on.iter().find(|o| o.dev == dev).map(|o| o.access)
        };
        let null = File::open("/dev/null").unwrap();
        // Whoever runs the tests may leave it a file. Character devices do not count.
        let left = on(&null, &null);
        let and = |a: Access| Some(left.map_or(a, |l| l.and(a)));
        assert_eq!(on(&read, &null), and(Access::Read));
        assert_eq!(on(&null, &write), and(Access::Write));
        assert_eq!(on(&read, &write), Some(Access::Both));
    }

    #[test]
    fn what_is_opened_for_its_path_alone_is_open_for_nothing() {
        let dir = beside_the_program();
        File::create(dir.path().join("f")).unwrap();
        let path = rustix::fs::open(dir.path().join("f"), OFlags::PATH, Mode::empty()).unwrap();
        let fds = File::open("/proc/self/fd").unwrap();
        let name = |n: i32| std::ffi::CString::new(n.to_string()).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&path);
        assert_eq!(open_on(&fds, &name(fd)), Ok(None));
        let file = OpenOptions::new().write(true).open(dir.path().join("f")).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let on = OpenOn { dev: id_of(&file), access: Access::Write };
        assert_eq!(open_on(&fds, &name(fd)), Ok(Some(on)));
        assert_eq!(open_on(&fds, c"99999"), Err(Errno::NOENT));
    }

    /// A budget that is used up allows for one step per round; and another look follows later.
    #[test]
    fn a_look_goes_on_in_the_next_round() {
        let root = tempfile::tempdir().unwrap();
        let fds = root.path().join("proc/7/fd");
        std::fs::create_dir_all(&fds).unwrap();
        let file = root.path().join("f");
        File::create(&file).unwrap();
        for n in 0..100 {
            std::os::unix::fs::symlink(&file, fds.join(n.to_string())).unwrap();
        }
        let host = HostFs::at(root.path());
        let task = TaskId { pid: 7, tid: 7, start: 1 };
        let mut looks = Looks::default();
        let mut rounds = 0;
        while looks.of(task).is_none() {
            looks.round(&host, MonoNs(0), Duration::ZERO, [task].into_iter());
            rounds += 1;
            assert!(rounds < 20);
        }
        assert!(rounds >= 3, "{rounds}");
        let all = looks.of(task).unwrap();
        assert_eq!((all.on.len(), all.more), (1, false), "{all:?}");
        for n in 100..300 {
            std::os::unix::fs::symlink(&file, fds.join(n.to_string())).unwrap();
        }
        looks.round(&host, MonoNs(4_000_000_000), MUCH, [task].into_iter());
        assert!(Arc::ptr_eq(&all, &looks.of(task).unwrap()), "it was looked at 4 s ago");
        looks.round(&host, MonoNs(5_000_000_000), MUCH, [task].into_iter());
        assert!(looks.of(task).unwrap().more, "not all of 300 are looked at");
        std::fs::remove_dir_all(&fds).unwrap();
        looks.round(&host, MonoNs(10_000_000_000), MUCH, [task].into_iter());
        assert_eq!(looks.of(task), None);
    }

    #[test]
    fn eight_devices_are_kept() {
        let mut seen = OpenDisks::default();
        for minor in (0..8).rev() {
            add(&mut seen, OpenOn { dev: DiskId { major: 8, minor }, access: Access::Read });
        }
        add(&mut seen, OpenOn { dev: DiskId { major: 8, minor: 3 }, access: Access::Write });
        assert!(!seen.more && seen.on[3].access == Access::Both, "{seen:?}");
        add(&mut seen, OpenOn { dev: DiskId { major: 9, minor: 0 }, access: Access::Read });
        assert!(seen.more && seen.on.len() == 8);
    }
}
