//! The files of one recording: FILE, which is being written, and its parts, which were FILE
//! before a rotation and are named `STEM.YYYYMMDDTHHMMSSZ.EXT` after their first tick. Deletes
//! only what carries such a name, is a regular file, begins with a block of ours, and is not
//! locked by another recorder.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags};

use super::target::is_recording;
use crate::model::time::WallNs;

/// Names tried when one is taken.
const TRIES: u32 = 1000;
/// Length of `YYYYMMDDTHHMMSSZ`.
const STAMP: usize = 16;

/// A file that was FILE once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    path: PathBuf,
    bytes: u64,
    /// When it was written last, seconds since 1970.
    last: i64,
    /// Time in its name, and its number among those of that time.
    order: (String, u32),
}

/// The parts of a recording, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    list: Vec<Part>,
}

impl Parts {
    /// Those that lie beside `file`, also from earlier runs.
    pub(super) fn find(file: &Path) -> Self {
        let mut list = Vec::new();
        let dir = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(order) = name.to_str().and_then(|n| part_of(file, n)) else { continue };
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_file() {
                let (path, bytes) = (dir.join(name), meta.len());
                list.push(Part { path, bytes, last: meta.mtime(), order });
            }
        }
        list.sort_by(|a, b| a.order.cmp(&b.order));
        Self { list }
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.list.iter().map(|p| p.bytes).sum()
    }

    /// Gives `file` its name as a part.
    pub(super) fn set_aside(file: &Path, first: WallNs) -> io::Result<PathBuf> {
        use rustix::io::Errno;
        for n in 1..=TRIES {
            let to = part_name(file, first, n);
            match rustix::fs::renameat_with(CWD, file, CWD, &to, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(to),
                // File systems that cannot: nobody else makes files of this name.
                Err(Errno::INVAL | Errno::NOSYS) if !to.exists() => {
                    std::fs::rename(file, &to)?;
                    return Ok(to);
                }
                Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Takes in a part that has been closed.
    pub(super) fn add(&mut self, path: PathBuf, bytes: u64, now: WallNs) {
        let last = now.0 / 1_000_000_000;
        self.list.push(Part { path, bytes, last, order: Default::default() });
    }

    /// Deletes the oldest one; false when there is none that we may delete.
    pub(super) fn drop_oldest(&mut self) -> bool {
        while !self.list.is_empty() {
            if remove(&self.list.remove(0).path) {
                return true;
            }
        }
        false
    }

    /// Deletes those that were written last before `now - age`.
    pub(super) fn drop_older(&mut self, now: WallNs, age: Duration) {
        let limit = (now.0 / 1_000_000_000).saturating_sub_unsigned(age.as_secs());
        while self.list.first().is_some_and(|p| p.last < limit) {
            remove(&self.list.remove(0).path);
        }
    }
}

fn remove(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::open(path, flags, Mode::empty()) else { return false };
    let file = File::from(fd);
    file.metadata().is_ok_and(|m| m.is_file())
        && is_recording(&file)
        && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        && std::fs::remove_file(path).is_ok()
}

/// `YYYYMMDDTHHMMSSZ`: sorts like time, in every zone.
pub(super) fn stamp(t: WallNs) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(t.0)).map_or_else(
        |_| "00000000T000000Z".to_owned(),
        |t| t.strftime("%Y%m%dT%H%M%SZ").to_string(),
    )
}

fn split(file: &Path) -> (String, String) {
    let text = |s: Option<&std::ffi::OsStr>| s.unwrap_or_default().to_string_lossy().into_owned();
    let ext = file.extension().map(|e| format!(".{}", e.to_string_lossy()));
    (text(file.file_stem()), ext.unwrap_or_default())
}

fn part_name(file: &Path, first: WallNs, n: u32) -> PathBuf {
    let (stem, ext) = split(file);
    let twin = if n == 1 { String::new() } else { format!("-{n}") };
    file.with_file_name(format!("{stem}.{}{twin}{ext}", stamp(first)))
}

/// Time and number of a part of `file` by its name.
fn part_of(file: &Path, name: &str) -> Option<(String, u32)> {
    let (stem, ext) = split(file);
    let rest = name.strip_prefix(stem.as_str())?.strip_prefix('.')?;
    let (when, twin) = rest.strip_suffix(ext.as_str())?.split_at_checked(STAMP)?;
    let fits = |(i, c): (usize, u8)| match i {
        8 => c == b'T',
        15 => c == b'Z',
        _ => c.is_ascii_digit(),
    };
    let n = if twin.is_empty() { 1 } else { twin.strip_prefix('-')?.parse().ok()? };
    when.bytes().enumerate().all(fits).then(|| (when.to_owned(), n))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOON: WallNs = WallNs(1_700_000_000_000_000_000);

    #[test]
    fn parts_are_told_from_all_other_files() {
        let file = Path::new("/d/box.stall");
        for n in [1, 2, 37] {
            let part = part_name(file, NOON, n);
            let name = part.file_name().unwrap().to_str().unwrap();
            assert_eq!(part_of(file, name), Some(("20231114T221320Z".to_owned(), n)));
        }
        assert_eq!(part_name(file, NOON, 1), Path::new("/d/box.20231114T221320Z.stall"));
        for other in [
            "box.stall",
            "box-20231114T221320Z.stall",
            "box.20231114T221320Z.stall.bak",
            "box.20231114T221320Z-.stall",
            "box.20231114T221320Z-x.stall",
            "box.2023111412213200.stall",
            "mybox.20231114T221320Z.stall",
            "box.20231114T221320Z",
            "box..stall",
        ] {
            assert_eq!(part_of(file, other), None, "{other}");
        }
        let bare = Path::new("box");
        assert!(part_of(bare, "box.20231114T221320Z").is_some());
    }

    #[test]
    fn only_recordings_of_ours_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("box.stall");
        let names: Vec<PathBuf> =
            (0..4).map(|n| part_name(&file, WallNs(NOON.0 + n * 1_000_000_000), 1)).collect();
        std::fs::write(&names[0], "a letter to my mother").unwrap();
        let victim = dir.path().join("victim");
        let ours = [&crate::recording::format::marker()[..], b"..."].concat();
        std::fs::write(&victim, &ours).unwrap();
        std::os::unix::fs::symlink(&victim, &names[1]).unwrap();
        std::fs::write(&names[2], &ours).unwrap();
        std::fs::create_dir(&names[3]).unwrap();
        let mut parts = Parts::find(&file);
        assert!(parts.drop_oldest());
        assert!(!parts.drop_oldest());
        assert!(!names[2].exists());
        assert!(names[0].exists() && names[1].is_symlink() && victim.exists());
    }

    #[test]
    fn a_taken_name_gets_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("box.stall");
        for want in ["box.20231114T221320Z.stall", "box.20231114T221320Z-2.stall"] {
            std::fs::write(&file, "x").unwrap();
            let to = Parts::set_aside(&file, NOON).unwrap();
            assert_eq!(to.file_name().unwrap(), want);
        }
        assert_eq!(Parts::find(&file).list.len(), 2);
    }
}
