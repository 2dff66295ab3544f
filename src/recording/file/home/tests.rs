//! Others who are at work in the same directory, at the worst moment.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

pub(super) type Meanwhile = RefCell<Option<Box<dyn FnOnce()>>>;

impl Home {
    /// As on a file system that can do no more than it must.
    pub(crate) fn plain(self) -> Self {
        self.means.set(Means::Plain);
        self
    }

    pub(super) fn meanwhile(&self) {
        if let Some(f) = self.meanwhile.take() {
            f();
        }
    }
}

/// A directory with our own file `F` in it.
struct Case {
    dir: TempDir,
    home: Home,
    ours: File,
}

impl Case {
    fn new(means: Means) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("F")).unwrap();
        home.means.set(means);
        let mut ours = home.create(home.name()).unwrap();
        ours.write_all(b"ours").unwrap();
        Self { dir, home, ours }
    }
    fn both() -> [Self; 2] {
        [Self::new(Means::Modern), Self::new(Means::Plain)]
    }
    /// Somebody moves our file away and puts a letter in its place.
    fn takes_the_name(&self) -> impl FnOnce() + 'static {
        let dir = self.dir.path().to_owned();
        move || {
            std::fs::rename(dir.join("F"), dir.join("moved")).unwrap();
            std::fs::write(dir.join("F"), "a letter").unwrap();
        }
    }
    /// Names and contents.
    fn all(&self) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap().map(Result::unwrap);
        let mut all: Vec<_> = entries
            .map(|e| {
                let text = std::fs::read_to_string(e.path()).unwrap();
                (e.file_name().into_string().unwrap(), text)
            })
            .collect();
        all.sort();
        all
    }
    #[track_caller]
    fn holds(&self, want: &[(&str, &str)]) {
        let all = self.all();
        let all: Vec<_> = all.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
        assert_eq!(all, want);
    }
    fn side(&self) -> Side {
        let side = self.home.side().unwrap();
        side.file().unwrap().write_all(b"thinned").unwrap();
        side
    }
}

const LETTER: &[(&str, &str)] = &[("F", "a letter"), ("moved", "ours")];

#[test]
fn a_path_is_a_directory_and_a_name() {
    let dir = tempfile::tempdir().unwrap();
    for bad in ["", "/", ".", "..", "x/", "x/.", "x/..", "//"] {
        let e = Home::open(&dir.path().join("y").join(bad)).err().unwrap();
        assert!(!e.to_string().contains("os error"), "{bad}: {e}");
    }
    let none = Home::open(&dir.path().join("none/F")).err().unwrap();
    assert_eq!(none.to_string(), "its directory does not exist");
    assert_eq!(Home::open(Path::new("F")).unwrap().path, Path::new("."));
    assert_eq!(Home::open(Path::new("/F")).unwrap().path, Path::new("/"));
}

#[test]
fn a_stranger_keeps_its_name() {
    for c in Case::both() {
        c.takes_the_name()();
        let mut side = c.side();
        assert_eq!(c.home.holder(&c.ours).unwrap(), Holder::Stranger);
        assert_eq!(c.home.set_aside(&c.ours, OsStr::new("part")).unwrap(), Change::NotOurs);
        assert_eq!(c.home.replace(&c.ours, &mut side).unwrap(), Change::NotOurs);
        assert_eq!(c.home.remove(OsStr::new("F"), &c.ours).unwrap(), Change::NotOurs);
        c.home.discard(side);
        c.holds(LETTER);
        std::fs::remove_file(c.dir.path().join("F")).unwrap();
        assert_eq!(c.home.holder(&c.ours).unwrap(), Holder::Nobody);
        symlink("moved", c.dir.path().join("F")).unwrap();
        assert_eq!(c.home.holder(&c.ours).unwrap(), Holder::Stranger, "a link to ours is not ours");
    }
}

/// The name changes hands between the look and the rename.
#[test]
fn what_was_renamed_by_mistake_goes_back() {
    for c in Case::both() {
        c.home.meanwhile.replace(Some(Box::new(c.takes_the_name())));
        assert_eq!(c.home.set_aside(&c.ours, OsStr::new("part")).unwrap(), Change::NotOurs);
        c.holds(LETTER);
    }
    for c in Case::both() {
        let mut side = c.side();
        c.home.meanwhile.replace(Some(Box::new(c.takes_the_name())));
        assert_eq!(c.home.replace(&c.ours, &mut side).unwrap(), Change::NotOurs);
        c.home.discard(side);
        c.holds(LETTER);
    }
}

#[test]
fn ours_is_set_aside_and_put_back() {
    let part = OsStr::new("part");
    for c in Case::both() {
        std::fs::write(c.dir.path().join("taken"), "a letter").unwrap();
        let e = c.home.set_aside(&c.ours, OsStr::new("taken")).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(c.home.set_aside(&c.ours, part).unwrap(), Change::Made);
        c.holds(&[("part", "ours"), ("taken", "a letter")]);
        assert_eq!(c.home.put_back(&c.ours, part).unwrap(), Change::Made);
        c.holds(&[("F", "ours"), ("taken", "a letter")]);
        assert_eq!(c.home.put_back(&c.ours, OsStr::new("taken")).unwrap(), Change::NotOurs);
        assert_eq!(c.home.set_aside(&c.ours, part).unwrap(), Change::Made);
        std::fs::write(c.dir.path().join("F"), "quick").unwrap();
        let e = c.home.put_back(&c.ours, part).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::AlreadyExists);
        c.holds(&[("F", "quick"), ("part", "ours"), ("taken", "a letter")]);
    }
}

#[test]
fn a_side_file_takes_the_place_and_leaves_nothing() {
    for c in Case::both() {
        let mut side = c.side();
        let names: Vec<_> = c.all().into_iter().map(|f| f.0).collect();
        assert_eq!(names.len() == 1, c.home.means.get() == Means::Modern, "{names:?}");
        let mode = side.file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(c.home.replace(&c.ours, &mut side).unwrap(), Change::Made);
        c.holds(&[("F", "thinned")]);
        assert_eq!(c.ours.metadata().unwrap().nlink(), 0);
        assert_eq!(c.home.holder(&side.file().unwrap()).unwrap(), Holder::Us);
        c.home.discard(side);
        c.holds(&[("F", "thinned")]);
    }
}

#[test]
fn two_side_files_have_two_names() {
    let c = Case::new(Means::Plain);
    let (a, b) = (c.side(), c.side());
    let (a, b) = (a.name.unwrap(), b.name.unwrap());
    assert_ne!(a, b);
    let a = a.to_str().unwrap();
    assert!(a.starts_with(".F.") && a.ends_with(".thinning"), "{a}");
    assert_eq!(a.len(), ".F.".len() + DIGITS + SIDE.len());
    let long = Home::open(&c.dir.path().join("n".repeat(255))).unwrap();
    assert_eq!(long.side_name().unwrap().len(), 2 + REPEATED + DIGITS + SIDE.len());
}

#[test]
fn only_what_we_left_behind_is_swept_away() {
    let c = Case::new(Means::Plain);
    let we = rustix::process::geteuid().as_raw();
    let at = |name: &str| c.dir.path().join(name);
    let side = |n: u8| format!(".F.{}.thinning", format!("{n:02x}").repeat(DIGITS / 2));
    for n in 0..6 {
        std::fs::write(at(&side(n)), "left").unwrap();
    }
    let others = [".F.thinning", ".F.x.thinning", ".G.00000000000000000000000000000000.thinning"];
    for name in others {
        std::fs::write(at(name), "left").unwrap();
    }
    std::fs::hard_link(at(&side(1)), at("other")).unwrap();
    std::fs::write(at(&side(2)), "a letter").unwrap();
    std::fs::remove_file(at(&side(3))).unwrap();
    symlink("other", at(&side(3))).unwrap();
    let held = File::open(at(&side(4))).unwrap();
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    let fits = |mut f: &File| {
        let mut text = String::new();
        f.read_to_string(&mut text).unwrap();
        text == "left"
    };
    c.home.sweep(we + 1, fits);
    assert!((0..6).all(|n| at(&side(n)).exists()), "those of somebody else stay");
    c.home.sweep(we, fits);
    let left: Vec<u8> = (0..6).filter(|n| at(&side(*n)).symlink_metadata().is_ok()).collect();
    assert_eq!(left, [1, 2, 3, 4]);
    assert!(others.iter().all(|name| at(name).exists()));
    c.home.discard(Side { file: held, name: Some(side(4).into()) });
    assert!(!at(&side(4)).exists());
}

#[test]
fn a_directory_may_go_away() {
    let top = tempfile::tempdir().unwrap();
    let (dir, moved) = (top.path().join("dir"), top.path().join("moved"));
    std::fs::create_dir(&dir).unwrap();
    let mut home = Home::open(&dir.join("F")).unwrap();
    let ours = home.create(home.name()).unwrap();
    // Moved away, and another one in its place: ours is where it was.
    std::fs::rename(&dir, &moved).unwrap();
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("F"), "a letter").unwrap();
    home.follow().unwrap();
    assert_eq!(home.set_aside(&ours, OsStr::new("part")).unwrap(), Change::Made);
    assert!(moved.join("part").exists() && dir.join("F").exists());
    // Deleted: the one that has its path now.
    std::fs::remove_dir_all(&moved).unwrap();
    assert!(home.create(home.name()).is_err());
    home.follow().unwrap();
    assert_eq!(home.create(home.name()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert!(home.create(OsStr::new("G")).is_ok());
}
