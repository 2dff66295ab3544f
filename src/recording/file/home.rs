//! The location of a recording: its directory, held open, and its name in it.
//!
//! Others may write to that directory too, `/tmp` above all, and then a name can lead to another
//! file at any moment. So nothing is renamed, replaced or deleted by its path, but by its name in
//! the open directory, and only while that name leads to the file that we hold open: the same
//! device, the same inode.
//!
//! Linux cannot rename or unlink "the file of this descriptor", so a moment remains between the
//! check and the act. A rename is checked again afterwards and undone if it hit another file;
//! `RENAME_NOREPLACE` and `RENAME_EXCHANGE` make sure that nothing is lost on the way. Three
//! moments remain in which another file could be hit for good:
//! - before an `unlinkat` ([`Home::remove`], and the last step of [`Home::replace`]);
//! - before the `renameat` of [`Home::replace`] where the file system cannot exchange (NFS);
//! - before the `renameat` of a new name where it knows no `RENAME_NOREPLACE`: an empty file of
//!   ours holds that name by then.
//!
//! To use one of them somebody must move *our* file away by that name. In a sticky directory only
//! root and the owner of the directory can; in any other, whoever can do so can delete the file
//! that would be hit without our help.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, fstat, linkat, openat,
    renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes of FILE's name that the name of a side file repeats: both must fit into 255.
const REPEATED: usize = 200;
/// End of the name of a side file.
const SIDE: &[u8] = b".thinning";
/// Hexadecimal digits in the name of a side file that nobody can guess.
const DIGITS: usize = 32;
/// Side names tried when one is taken.
const TRIES: u32 = 8;

/// A directory and the name of a file in it.
pub(crate) struct Home {
    path: PathBuf,
    dir: OwnedFd,
    name: OsString,
    means: Cell<Means>,
    /// What others do between a check and the act that follows (for tests).
    #[cfg(test)]
    meanwhile: tests::Meanwhile,
}

/// Which features of the file system are used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// All that it supports: files without a name, renames with flags.
    Modern,
    /// Only what every file system supports.
    Plain,
}

/// Which file a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Us,
    Nobody,
    Stranger,
}

/// What became of a rename, a replacement or a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Made,
    /// The name does not lead to our file; nothing was done.
    NotOurs,
}

/// What becomes of a file that has FILE's name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Old {
    Stays,
    Goes,
}

/// A file of ours beside FILE that may take its place: without a name where possible, so that a
/// kill leaves nothing behind, otherwise with one that nobody can guess.
pub(crate) struct Side {
    file: File,
    name: Option<OsString>,
}

impl Side {
    pub(crate) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

impl Home {
    /// Opens the directory that `path` is in. What the last part of `path` leads to is left open.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        // Not `file_name`, which takes `box/` and `box/.` for `box`.
        let (parent, name) = match bytes.iter().rposition(|b| *b == b'/') {
            Some(0) => (&b"/"[..], bytes.get(1..)),
            Some(at) => (bytes.get(..at).unwrap_or_default(), bytes.get(at + 1..)),
            None => (&b"."[..], Some(bytes)),
        };
        let name = name.unwrap_or_default();
        if matches!(name, b"" | b"." | b"..") {
            let what = "is a directory; give a file in it";
            return Err(io::Error::new(io::ErrorKind::IsADirectory, what));
        }
        let path = PathBuf::from(OsStr::from_bytes(parent));
        let dir = open_dir(&path)?;
        let name = OsStr::from_bytes(name).to_owned();
        Ok(Self {
            path,
            dir,
            name,
            means: Cell::new(Means::Modern),
            #[cfg(test)]
            meanwhile: tests::Meanwhile::default(),
        })
    }

    /// The directory was deleted: the one that has its path now takes its place.
    pub(crate) fn follow(&mut self) -> io::Result<()> {
        if fstat(&self.dir)?.st_nlink == 0 {
            self.dir = open_dir(&self.path)?;
        }
        Ok(())
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// FILE as it was given.
    pub(crate) fn file(&self) -> PathBuf {
        self.path.join(&self.name)
    }

    /// Which file FILE's name leads to.
    pub(crate) fn holder(&self, ours: &File) -> io::Result<Holder> {
        self.holder_of(&self.name, ours)
    }

    fn holder_of(&self, name: &OsStr, ours: &File) -> io::Result<Holder> {
        let ours = fstat(ours)?;
        match self.stat(name) {
            Ok(s) if (s.st_dev, s.st_ino) == (ours.st_dev, ours.st_ino) => Ok(Holder::Us),
            Ok(_) => Ok(Holder::Stranger),
            Err(Errno::NOENT) => Ok(Holder::Nobody),
            Err(e) => Err(e.into()),
        }
    }

    fn leads_to(&self, name: &OsStr, ours: &File) -> bool {
        self.holder_of(name, ours).is_ok_and(|h| h == Holder::Us)
    }

    fn stat(&self, name: &OsStr) -> Result<Stat, Errno> {
        statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens what a name leads to, unless it is a symbolic link. Never blocks.
    pub(crate) fn look_into(&self, name: &OsStr, access: OFlags) -> Result<File, Errno> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        openat(&self.dir, name, flags, Mode::empty()).map(File::from)
    }

    /// What FILE's name leads to; of a symbolic link the link itself.
    pub(crate) fn kind(&self) -> io::Result<FileType> {
        Ok(FileType::from_raw_mode(self.stat(&self.name)?.st_mode))
    }

    /// Opens what a name leads to for reading, if it is a regular file of `owner`.
    pub(crate) fn open_of(&self, name: &OsStr, owner: u32) -> Option<File> {
        let fits = |s: Stat| {
            s.st_uid == owner && FileType::from_raw_mode(s.st_mode) == FileType::RegularFile
        };
        // Checked first: merely opening a device or a FIFO may have an effect.
        self.stat(name).ok().filter(|s| fits(*s))?;
        let file = self.look_into(name, OFlags::RDONLY).ok()?;
        fstat(&file).is_ok_and(fits).then_some(file)
    }

    /// Creates a new private file; never overwrites one.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Renames FILE, if it is `ours`, to a name that is free. [`io::ErrorKind::AlreadyExists`]
    /// when that is not.
    pub(crate) fn set_aside(&self, ours: &File, to: &OsStr) -> io::Result<Change> {
        if self.holder(ours)? != Holder::Us {
            return Ok(Change::NotOurs);
        }
        #[cfg(test)]
        self.meanwhile();
        self.rename_new(&self.name, to)?;
        if self.leads_to(to, ours) {
            return Ok(Change::Made);
        }
        // It changed hands in between. If its name is taken once more, it keeps the new one.
        let _ = self.rename_new(to, &self.name);
        Ok(Change::NotOurs)
    }

    /// Gives FILE its name back after [`Self::set_aside`].
    pub(crate) fn put_back(&self, ours: &File, from: &OsStr) -> io::Result<Change> {
        if !self.leads_to(from, ours) {
            return Ok(Change::NotOurs);
        }
        self.rename_new(from, &self.name)?;
        Ok(Change::Made)
    }

    fn rename_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        if self.means.get() == Means::Modern {
            match renameat_with(&self.dir, from, &self.dir, to, RenameFlags::NOREPLACE) {
                Err(Errno::INVAL | Errno::NOSYS) => {}
                other => return Ok(other?),
            }
        }
        // An empty file of our own holds the name, and is the one that is replaced.
        let holder = self.create(to)?;
        if !self.leads_to(to, &holder) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        renameat(&self.dir, from, &self.dir, to).map_err(|e| {
            let _ = self.remove(to, &holder);
            e.into()
        })
    }

    /// Deletes a name, if it leads to `ours`.
    pub(crate) fn remove(&self, name: &OsStr, ours: &File) -> io::Result<Change> {
        if !self.leads_to(name, ours) {
            return Ok(Change::NotOurs);
        }
        unlinkat(&self.dir, name, AtFlags::empty())?;
        Ok(Change::Made)
    }

    /// Deletes a regular file of `owner` that `fits` and that nobody has locked; false if it was
    /// not deleted.
    pub(crate) fn remove_unused(
        &self,
        name: &OsStr,
        owner: u32,
        fits: impl Fn(&File) -> bool,
    ) -> bool {
        self.open_of(name, owner).is_some_and(|file| {
            fits(&file)
                && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
                && self.remove(name, &file).is_ok_and(|c| c == Change::Made)
        })
    }

    /// Makes a side file, locked.
    pub(crate) fn side(&self) -> io::Result<Side> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let nameless = match self.means.get() {
            Means::Modern => openat(&self.dir, ".", flags, Mode::RUSR | Mode::WUSR).ok(),
            Means::Plain => None,
        };
        let side = if let Some(fd) = nameless {
            Side { file: File::from(fd), name: None }
        } else {
            let name = self.side_name()?;
            Side { file: self.create(&name)?, name: Some(name) }
        };
        rustix::fs::flock(&side.file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(side)
    }

    pub(crate) fn discard(&self, side: Side) {
        if let Some(name) = side.name {
            let _ = self.remove(&name, &side.file);
        }
    }

    /// Puts a side file in the place of FILE, if that is `ours`; at no instant is the name free.
    pub(crate) fn replace(&self, ours: &File, side: &mut Side) -> io::Result<Change> {
        if self.holder(ours)? != Holder::Us {
            return Ok(Change::NotOurs);
        }
        let name = match &side.name {
            Some(name) => name.clone(),
            None => self.link(side)?,
        };
        #[cfg(test)]
        self.meanwhile();
        if self.means.get() == Means::Modern {
            match self.exchange(&name) {
                Ok(()) if self.leads_to(&name, ours) => {
                    side.name = None;
                    // If that fails, the next recorder sweeps it away.
                    let _ = self.remove(&name, ours);
                    return Ok(Change::Made);
                }
                Ok(()) => {
                    // It changed hands in between: back. If FILE was deleted by now, by name.
                    if self.exchange(&name).is_err() {
                        self.rename_new(&name, &self.name)?;
                    }
                    return Ok(Change::NotOurs);
                }
                Err(Errno::INVAL | Errno::NOSYS) => {}
                Err(e) => return Err(e.into()),
            }
        }
        if self.holder(ours)? != Holder::Us || !self.leads_to(&name, &side.file) {
            return Ok(Change::NotOurs);
        }
        renameat(&self.dir, &name, &self.dir, &self.name)?;
        side.name = None;
        Ok(Change::Made)
    }

    /// Gives a side file FILE's name. Where that is taken and the old file stays, the side file is
    /// gone: [`io::ErrorKind::AlreadyExists`].
    pub(crate) fn publish(&self, mut side: Side, old: Old) -> io::Result<()> {
        let name = match &side.name {
            Some(name) => name.clone(),
            None => self.link(&mut side)?,
        };
        let made = match old {
            Old::Stays => self.rename_new(&name, &self.name),
            Old::Goes => renameat(&self.dir, &name, &self.dir, &self.name).map_err(Into::into),
        };
        made.inspect_err(|_| self.discard(side))
    }

    fn exchange(&self, name: &OsStr) -> Result<(), Errno> {
        renameat_with(&self.dir, name, &self.dir, &self.name, RenameFlags::EXCHANGE)
    }

    /// Gives a file without a name one.
    fn link(&self, side: &mut Side) -> io::Result<OsString> {
        let mut last = Errno::EXIST;
        for _ in 0..TRIES {
            let name = self.side_name()?;
            // Before Linux 6.10 the first way is for root; the other one needs /proc.
            let own = format!("/proc/self/fd/{}", side.file.as_raw_fd());
            let made = linkat(&side.file, "", &self.dir, &name, AtFlags::EMPTY_PATH)
                .or_else(|_| linkat(CWD, own, &self.dir, &name, AtFlags::SYMLINK_FOLLOW));
            match made {
                Ok(()) => {
                    side.name = Some(name.clone());
                    return Ok(name);
                }
                Err(Errno::EXIST) => {}
                Err(e) => {
                    last = e;
                    // From now on side files have a name from the start.
                    self.means.set(Means::Plain);
                    break;
                }
            }
        }
        Err(last.into())
    }

    /// `.NAME.`, 32 random digits, `.thinning`.
    fn side_name(&self) -> io::Result<OsString> {
        let mut random = [0; DIGITS / 2];
        // They cannot be guessed and never block: a name that is taken is an error, and does no
        // harm.
        getrandom(&mut random[..], GetRandomFlags::NONBLOCK)?;
        let mut digits = String::new();
        for b in random {
            let _ = write!(digits, "{b:02x}");
        }
        Ok(OsString::from_vec([&self.side_start(), digits.as_bytes(), SIDE].concat()))
    }

    fn side_start(&self) -> Vec<u8> {
        let name = self.name.as_bytes();
        [b".", name.get(..REPEATED).unwrap_or(name), b"."].concat()
    }

    /// Deletes the side files with a name that a killed recorder of FILE left behind: regular
    /// files of `owner` that have no other name, that nobody has locked, and that `fits`.
    pub(crate) fn sweep(&self, owner: u32, fits: impl Fn(&File) -> bool) {
        let start = self.side_start();
        let left = self.names(|n| {
            let digits = n.strip_prefix(&start[..]).and_then(|n| n.strip_suffix(SIDE));
            digits.is_some_and(|d| d.len() == DIGITS && d.iter().all(u8::is_ascii_hexdigit))
        });
        let fits = |f: &File| fstat(f).is_ok_and(|s| s.st_nlink == 1) && fits(f);
        for name in left {
            self.remove_unused(&name, owner, fits);
        }
    }

    /// Names in the directory that `fits`; none of a directory that we may not list.
    pub(crate) fn names(&self, fits: impl Fn(&[u8]) -> bool) -> Vec<OsString> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let list = openat(&self.dir, ".", flags, Mode::empty()).and_then(rustix::fs::Dir::new);
        let Ok(list) = list else { return Vec::new() };
        list.flatten()
            .filter(|e| fits(e.file_name().to_bytes()))
            .map(|e| OsStr::from_bytes(e.file_name().to_bytes()).to_owned())
            .collect()
    }

    /// The user that files of ours belong to here. Some file systems (vfat, CIFS, NFS with
    /// `root_squash`) give them to another one than the one that we are.
    pub(crate) fn our_user(&self) -> io::Result<u32> {
        let side = self.side()?;
        let user = fstat(&side.file).map(|s| s.st_uid);
        self.discard(side);
        Ok(user?)
    }
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    // Its contents are of no interest, and it may be one that we may not list.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).map_err(|e| match e {
        Errno::NOENT => io::Error::new(io::ErrorKind::NotFound, "its directory does not exist"),
        e => e.into(),
    })
}
