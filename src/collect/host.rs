//! `HostFs`: where `/proc` and `/sys` are. `/` when live, a directory of captured files in
//! tests. Collectors open every file through it, so that each parser runs without root and
//! against any kernel's files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest file that a collector reads. `/proc` files of sane hosts stay far below; a bigger
/// one is cut, and the parser reports the torn last line.
pub const MAX_FILE: usize = 32 << 20;

/// The root under which `proc` and `sys` are found.
#[derive(Clone, Debug)]
pub struct HostFs {
    root: PathBuf,
}

impl Default for HostFs {
    fn default() -> Self {
        Self::live()
    }
}

impl HostFs {
    /// The running kernel.
    #[must_use]
    pub fn live() -> Self {
        Self { root: PathBuf::from("/") }
    }

    /// A directory that holds `proc/...` and `sys/...`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// True for the running kernel: netlink and other system calls make sense.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The full path of `rel`, such as `proc/stat`.
    #[must_use]
    pub fn path(&self, rel: impl AsRef<Path>) -> PathBuf {
        self.root.join(rel)
    }

    /// Reads a whole file into `buf`, which is cleared first and may be reused to save
    /// allocations. Never more than [`MAX_FILE`] bytes.
    pub fn read_into(&self, rel: impl AsRef<Path>, buf: &mut Vec<u8>) -> io::Result<()> {
        buf.clear();
        File::open(self.path(rel))?.take(MAX_FILE as u64).read_to_end(buf)?;
        Ok(())
    }

    /// Reads a whole file.
    pub fn read(&self, rel: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut buf = Vec::new();
        self.read_into(rel, &mut buf)?;
        Ok(buf)
    }

    /// Reads a small text file, trimmed; invalid UTF-8 is replaced.
    pub fn read_trimmed(&self, rel: impl AsRef<Path>) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.read(rel)?).trim().to_owned())
    }

    /// Reads a file that holds one number.
    pub fn read_number<T: std::str::FromStr>(&self, rel: impl AsRef<Path>) -> io::Result<T> {
        let rel = rel.as_ref();
        self.read_trimmed(rel)?.parse().map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} does not contain a number", rel.display()),
            )
        })
    }

    /// The names in a directory, sorted; unreadable entries are passed over.
    pub fn list(&self, rel: impl AsRef<Path>) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = std::fs::read_dir(self.path(rel))?
            .filter_map(Result::ok)
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Target of a symbolic link, as text.
    pub fn link(&self, rel: impl AsRef<Path>) -> io::Result<String> {
        Ok(std::fs::read_link(self.path(rel))?.to_string_lossy().into_owned())
    }
}
