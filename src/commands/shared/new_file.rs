//! A file that is there as a whole or not at all: it is written beside its place and renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, CWD, RenameFlags, access, renameat_with};
use rustix::io::Errno;

use super::recording::is_recording;
use crate::exit::Stop;

/// What becomes of a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It stays, and that is an error.
    Kept,
    /// It goes.
    Replaced,
}

/// Names to try for the file that is written.
const TRIES: u32 = 100;

/// A place for a file.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    existing: Existing,
}

impl NewFile {
    /// Looks whether it can be written, before the work for it begins.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn at(path: &Path, existing: Existing) -> anyhow::Result<Self> {
        let this = Self { path: path.to_owned(), existing };
        this.look().map_err(|e| this.wrong(&e))?;
        Ok(this)
    }

    fn wrong(&self, e: &io::Error) -> anyhow::Error {
        let name = self.path.display();
        Stop::cannot(match e.kind() {
            ErrorKind::AlreadyExists => {
                format!("{name}: already exists; use --force to replace it")
            }
            _ => format!("{name}: cannot write: {e}"),
        })
    }

    fn look(&self) -> io::Result<()> {
        let is_dir = self.path.file_name().is_none() || self.path.is_dir();
        if is_dir || self.path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            let what = "is a directory; give a file in it";
            return Err(io::Error::new(ErrorKind::IsADirectory, what));
        }
        match fs::symlink_metadata(&self.path) {
            Ok(m) if !m.is_file() && !m.is_symlink() => {
                return Err(io::Error::other("is not a regular file"));
            }
            Ok(_) if self.existing == Existing::Kept => return Err(ErrorKind::AlreadyExists.into()),
            Ok(_) if is_recording(&self.path) => {
                return Err(io::Error::other("is a recording; it is not replaced"));
            }
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        access(self.dir(), Access::WRITE_OK | Access::EXEC_OK)?;
        Ok(())
    }

    fn dir(&self) -> &Path {
        match self.path.parent() {
            Some(dir) if dir != Path::new("") => dir,
            _ => Path::new("."),
        }
    }

    /// Writes all of it, readable only by its owner.
    ///
    /// # Errors
    /// Why it cannot be written. Then nothing of it is left, and an old file is as it was.
    pub(crate) fn write(self, content: &[u8]) -> anyhow::Result<()> {
        self.place(content).map_err(|e| self.wrong(&e))
    }

    fn place(&self, content: &[u8]) -> io::Result<()> {
        let (mut file, beside) = self.beside()?;
        let written = file.write_all(content).and_then(|()| file.sync_all());
        written.and_then(|()| self.rename(&beside)).inspect_err(|_| {
            let _ = fs::remove_file(&beside);
        })
    }

    /// A new file in the same directory.
    fn beside(&self) -> io::Result<(File, PathBuf)> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Names are at most 255 bytes.
        let name: String = name.chars().take(40).collect();
        for n in 0..TRIES {
            let own = format!(".{name}.{}-{n}.part", std::process::id());
            let path = self.dir().join(own);
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok((file, path)),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::Error::other("every name for a temporary file is taken"))
    }

    fn rename(&self, from: &Path) -> io::Result<()> {
        if self.existing == Existing::Replaced {
            return fs::rename(from, &self.path);
        }
        match renameat_with(CWD, from, CWD, &self.path, RenameFlags::NOREPLACE) {
            // Some file systems cannot; a second name is never made over another file.
            Err(Errno::INVAL | Errno::NOSYS) => {
                fs::hard_link(from, &self.path)?;
                fs::remove_file(from)
            }
            other => Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let all = fs::read_dir(dir).unwrap();
        all.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_replaced_only_where_that_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        NewFile::at(&path, Existing::Kept).unwrap().write(b"one").unwrap();
        let e = NewFile::at(&path, Existing::Kept).unwrap_err().to_string();
        assert!(e.contains("already exists; use --force"), "{e}");
        assert_eq!(fs::read(&path).unwrap(), b"one");
        NewFile::at(&path, Existing::Replaced).unwrap().write(b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(dir.path()), ["page.html"], "nothing else is left");
    }

    /// Between looking and writing somebody else makes the file.
    #[test]
    fn a_file_that_came_in_between_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        let new = NewFile::at(&path, Existing::Kept).unwrap();
        fs::write(&path, "theirs").unwrap();
        assert!(new.write(b"ours").unwrap_err().to_string().contains("already exists"));
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        assert_eq!(names(dir.path()), ["page.html"]);
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |p: &Path| NewFile::at(p, Existing::Replaced).unwrap_err().to_string();
        assert!(at(dir.path()).contains("is a directory"));
        assert!(at(&dir.path().join("no/page.html")).contains("cannot write: No such file"));
        assert!(at(Path::new("/dev/null")).contains("is not a regular file"));
        assert!(at(Path::new("")).contains("is a directory"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        NewFile::at(&link, Existing::Replaced).unwrap().write(b"x").unwrap();
        assert_eq!(fs::read(&link).unwrap(), b"x", "the link went, not what it leads to");
    }
}
