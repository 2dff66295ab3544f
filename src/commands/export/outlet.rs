//! Where a table goes: a new file that appears when it is complete, or standard output.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::commands::shared::recording::is_recording;
use crate::exit::Stop;
use crate::recording::file::home::{Home, Old, Side};
use crate::report::table::{Encoder, Format, Names, Table};

/// Whether a file that exists may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replace {
    Never,
    Forced,
}

/// One place to write to.
pub(super) enum Outlet {
    File { path: PathBuf, home: Home, side: Side, old: Old },
    Stdout,
}

impl Outlet {
    /// A file that has no name yet; nothing is changed on the disk.
    pub(super) fn file(path: &Path, replace: Replace) -> anyhow::Result<Self> {
        let wrong = |e: io::Error| Stop::cannot(format!("{}: {e}", path.display()));
        let home = Home::open(path).map_err(wrong)?;
        let old = match home.kind() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Old::Stays,
            Err(e) => return Err(wrong(e)),
            Ok(FileType::RegularFile) if replace == Replace::Forced && is_recording(path) => {
                let what = "is a recording; it is not replaced";
                return Err(Stop::cannot(format!("{}: {what}", path.display())));
            }
            Ok(FileType::RegularFile) if replace == Replace::Forced => Old::Goes,
            Ok(FileType::RegularFile) => {
                let what = "already exists; use --force to replace it";
                return Err(Stop::cannot(format!("{}: {what}", path.display())));
            }
            Ok(_) => {
                let what = "is not a regular file; it is not replaced";
                return Err(Stop::cannot(format!("{}: {what}", path.display())));
            }
        };
        let side = home.side().map_err(wrong)?;
        Ok(Self::File { path: path.to_owned(), home, side, old })
    }

    /// What it is called.
    pub(super) fn name(&self) -> String {
        match self {
            Self::File { path, .. } => path.display().to_string(),
            Self::Stdout => "standard output".to_owned(),
        }
    }

    /// Begins to write a table.
    pub(super) fn encoder(
        &self,
        format: Format,
        table: &'static Table,
    ) -> io::Result<Box<dyn Encoder>> {
        let (to, names): (Box<dyn Write + Send>, _) = match self {
            Self::File { path, side, .. } => {
                let name = path.display().to_string();
                (Box::new(Named { name, file: side.file()? }), Names::Raw)
            }
            Self::Stdout if io::stdout().is_terminal() => (Box::new(io::stdout()), Names::Harmless),
            Self::Stdout => (Box::new(io::stdout()), Names::Raw),
        };
        format.encoder(table, to, names)
    }

    /// The file is complete: it gets its name. Its bytes, of a file.
    pub(super) fn publish(self) -> io::Result<Option<u64>> {
        let Self::File { path, home, side, old } = self else { return Ok(None) };
        let publish = || {
            let file = side.file()?;
            file.sync_all()?;
            let bytes = file.metadata()?.len();
            home.publish(side, old)?;
            Ok(bytes)
        };
        publish().map(Some).map_err(|e: io::Error| about(&path.display().to_string(), &e))
    }

    /// It is not wanted.
    pub(super) fn discard(self) {
        if let Self::File { home, side, .. } = self {
            home.discard(side);
        }
    }
}

/// Says in its errors which file it is.
struct Named {
    name: String,
    file: File,
}

impl Write for Named {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|e| match e.kind() {
            io::ErrorKind::Interrupted => e,
            _ => about(&self.name, &e),
        })
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn about(name: &str, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{name}: cannot write: {e}"))
}
