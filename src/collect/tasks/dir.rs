//! Listing the numeric entries of `/proc` and `/proc/PID/task` without an allocation per entry.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};

use crate::parse::number;

/// A directory listed again and again.
#[derive(Debug, Default)]
pub(in crate::collect) struct NumberDir {
    dir: Option<File>,
    buf: Vec<u8>,
}

/// Room for the entries of one `getdents64` call.
const BUF: usize = 32 << 10;

impl NumberDir {
    /// Calls `visit` with each entry that is a number; keeps the directory open.
    pub(in crate::collect) fn visit(
        &mut self,
        path: &Path,
        visit: impl FnMut(u32),
    ) -> io::Result<()> {
        let dir = match self.dir.take() {
            Some(d) => {
                rustix::fs::seek(&d, SeekFrom::Start(0))?;
                d
            }
            None => open(path)?,
        };
        entries(&dir, &mut self.buf, visit)?;
        self.dir = Some(dir);
        Ok(())
    }

    /// As [`visit`](Self::visit) for a directory that is visited once; shares the buffer.
    pub(super) fn visit_once(&mut self, path: &Path, visit: impl FnMut(u32)) -> io::Result<()> {
        entries(&open(path)?, &mut self.buf, visit)
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

fn entries(dir: &File, buf: &mut Vec<u8>, mut visit: impl FnMut(u32)) -> io::Result<()> {
    buf.clear();
    buf.reserve(BUF);
    let mut raw = RawDir::new(dir, buf.spare_capacity_mut());
    while let Some(entry) = raw.next() {
        if let Some(n) = number(entry?.file_name().to_bytes()).and_then(|n| u32::try_from(n).ok()) {
            visit(n);
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn live_processes_are_listed_each_time() {
        let mut dir = NumberDir::default();
        for _ in 0..2 {
            let mut seen = Vec::new();
            dir.visit(Path::new("/proc"), |n| seen.push(n)).unwrap();
            assert!(seen.contains(&std::process::id()));
            assert!(seen.contains(&1));
        }
        let me = format!("/proc/{}/task", std::process::id());
        let mut threads = 0;
        dir.visit_once(Path::new(&me), |_| threads += 1).unwrap();
        assert!(threads >= 1);
        assert!(dir.visit_once(Path::new("/proc/0"), |_| {}).is_err());
    }
}
