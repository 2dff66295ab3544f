//! Places for files, and the recording that everybody has.

use std::path::{Path, PathBuf};

/// The recording of the README's tour.
pub const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo.stall");

/// A small recording of the scripted box in the layout of version 1.
pub const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/golden/v1.stall");

/// A directory that goes away.
pub struct Dir(tempfile::TempDir);

impl Dir {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file with this in it.
    pub fn with(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn fifo(&self, name: &str) -> PathBuf {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let path = self.file(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        path
    }

    /// How many files are in it.
    pub fn count(&self) -> usize {
        std::fs::read_dir(self.path()).unwrap().count()
    }
}
