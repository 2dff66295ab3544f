//! The files of one recording: FILE, which is being written, and its parts, which were FILE before
//! a rotation and are named `STEM.YYYYMMDDTHHMMSSZ.EXT` after their first tick. Counts and deletes
//! only regular files that have such a name, belong to FILE's owner, begin with a stallscope block,
//! and are not locked by another recorder.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::fstat;

use super::target::is_recording;
use crate::recording::file::home::{Change, Home};
use crate::sample::time::WallNs;

/// Names tried when one is taken.
const TRIES: u32 = 1000;
/// Length of `YYYYMMDDTHHMMSSZ`.
const STAMP: usize = 16;

/// A file that was once FILE.
struct Part {
    name: OsString,
    bytes: u64,
    /// When it was written last, seconds since 1970.
    last: i64,
}

/// The parts of a recording, oldest first.
#[derive(Default)]
pub(super) struct Parts {
    list: VecDeque<Part>,
    owner: u32,
}

impl Parts {
    /// Those in FILE's directory that belong to `owner`, including those of earlier runs.
    pub(super) fn find(home: &Home, owner: u32) -> Self {
        Self::all(home, owner, |n| part_of(Path::new(home.name()), n))
    }

    /// The files whose names have a time and a number by `order`, except FILE. Files of others must
    /// not count: they would push out ours.
    pub(super) fn all(
        home: &Home,
        owner: u32,
        order: impl Fn(&str) -> Option<(String, u32)>,
    ) -> Self {
        let order = |n: &[u8]| {
            let name = std::str::from_utf8(n).ok()?;
            if name == home.name() { None } else { order(name) }
        };
        let mut names = home.names(|n| order(n).is_some());
        names.sort_by_cached_key(|n| order(n.as_encoded_bytes()));
        let part = |name: OsString| {
            let file = home.open_of(&name, owner).filter(is_recording)?;
            let stat = fstat(&file).ok()?;
            let bytes = u64::try_from(stat.st_size).unwrap_or(0);
            Some(Part { name, bytes, last: stat.st_mtime })
        };
        Self { list: names.into_iter().filter_map(part).collect(), owner }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.list.iter().map(|p| p.bytes).sum()
    }

    /// Gives FILE its name as a part, if its name leads to `ours`; `None` if not.
    pub(super) fn set_aside(
        home: &Home,
        ours: &File,
        first: WallNs,
    ) -> io::Result<Option<OsString>> {
        free_name(home, first, |to| match home.set_aside(ours, to)? {
            Change::Made => Ok(Some(to.to_owned())),
            Change::NotOurs => Ok(None),
        })
    }

    /// Takes in a part that has been closed.
    pub(super) fn add(&mut self, name: OsString, bytes: u64, now: WallNs) {
        self.list.push_back(Part { name, bytes, last: now.0 / 1_000_000_000 });
    }

    /// Deletes the oldest one; false when there is none that we may delete.
    pub(super) fn drop_oldest(&mut self, home: &Home) -> bool {
        while let Some(part) = self.list.pop_front() {
            if home.remove_unused(&part.name, self.owner, is_recording) {
                return true;
            }
        }
        false
    }

    /// Deletes those that were written last before `now - age`.
    pub(super) fn drop_older(&mut self, home: &Home, now: WallNs, age: Duration) {
        let limit = (now.0 / 1_000_000_000).saturating_sub_unsigned(age.as_secs());
        while let Some(part) = self.list.pop_front_if(|p| p.last < limit) {
            home.remove_unused(&part.name, self.owner, is_recording);
        }
    }
}

/// Calls `make` with the names that a part of this time may have until one is free.
pub(super) fn free_name<T>(
    home: &Home,
    first: WallNs,
    mut make: impl FnMut(&OsStr) -> io::Result<T>,
) -> io::Result<T> {
    for n in 1..=TRIES {
        match make(&part_name(Path::new(home.name()), first, n)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other,
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
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

fn part_name(file: &Path, first: WallNs, n: u32) -> OsString {
    let (stem, ext) = split(file);
    let twin = if n == 1 { String::new() } else { format!("-{n}") };
    format!("{stem}.{}{twin}{ext}", stamp(first)).into()
}

/// Time and number of a part of `file` by its name.
fn part_of(file: &Path, name: &str) -> Option<(String, u32)> {
    let (stem, ext) = split(file);
    let rest = name.strip_prefix(stem.as_str())?.strip_prefix('.')?;
    time_and_number(rest.strip_suffix(ext.as_str())?)
}

/// `20260131T120000Z` is number 1 of that time, `20260131T120000Z-2` number 2.
pub(super) fn time_and_number(text: &str) -> Option<(String, u32)> {
    let (when, twin) = text.split_at_checked(STAMP)?;
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
        let file = Path::new("box.stall");
        for n in [1, 2, 37] {
            let part = part_name(file, NOON, n);
            assert_eq!(
                part_of(file, part.to_str().unwrap()),
                Some(("20231114T221320Z".to_owned(), n))
            );
        }
        assert_eq!(part_name(file, NOON, 1), "box.20231114T221320Z.stall");
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

    fn home(dir: &Path) -> Home {
        Home::open(&dir.join("box.stall")).unwrap()
    }

    fn ours() -> Vec<u8> {
        [&crate::recording::file::format::marker()[..], b"..."].concat()
    }

    fn name(seconds: i64) -> OsString {
        part_name(Path::new("box.stall"), WallNs(NOON.0 + seconds * 1_000_000_000), 1)
    }

    fn we() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn only_recordings_of_ours_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let names: Vec<_> = (0..4).map(|n| dir.path().join(name(n))).collect();
        std::fs::write(&names[0], "a letter to my mother").unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, ours()).unwrap();
        std::os::unix::fs::symlink(&victim, &names[1]).unwrap();
        std::fs::write(&names[2], ours()).unwrap();
        std::fs::create_dir(&names[3]).unwrap();
        let mut parts = Parts::find(&home, we());
        assert_eq!(parts.bytes(), ours().len() as u64);
        assert!(parts.drop_oldest(&home));
        assert!(!parts.drop_oldest(&home));
        assert!(!names[2].exists());
        assert!(names[0].exists() && names[1].is_symlink() && victim.exists());
    }

    /// Whoever may write to the directory can put a part of any age and size there.
    #[test]
    fn a_part_of_somebody_else_neither_counts_nor_goes() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let (planted, mine) = (dir.path().join(name(0)), dir.path().join(name(1)));
        std::fs::write(&planted, ours()).unwrap();
        std::fs::write(&mine, ours()).unwrap();
        // Only root can give a file away; for all others somebody else owns both.
        let root = rustix::process::geteuid().is_root();
        if root {
            std::os::unix::fs::chown(&planted, Some(65_534), Some(65_534)).unwrap();
        }
        let mut parts = Parts::find(&home, if root { 0 } else { we() + 1 });
        assert_eq!(parts.bytes(), if root { ours().len() as u64 } else { 0 });
        assert_eq!(parts.drop_oldest(&home), root);
        assert!(planted.exists());
        assert_eq!(mine.exists(), !root);
        // It changed hands behind our back.
        let mut parts = Parts { owner: we() + 1, ..Parts::default() };
        parts.add(name(0), 1, NOON);
        assert!(!parts.drop_oldest(&home) && planted.exists());
    }

    #[test]
    fn a_taken_name_gets_a_number() {
        let dir = tempfile::tempdir().unwrap();
        for plain in [false, true] {
            let home = if plain { home(dir.path()).plain() } else { home(dir.path()) };
            let when = WallNs(NOON.0 + i64::from(plain) * 1_000_000_000);
            for twin in ["", "-2"] {
                let file = home.create(home.name()).unwrap();
                let to = Parts::set_aside(&home, &file, when).unwrap().unwrap();
                let second = u8::from(plain);
                assert_eq!(to, *format!("box.20231114T22132{second}Z{twin}.stall"));
            }
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
    }
}
