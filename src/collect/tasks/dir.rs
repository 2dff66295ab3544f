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
    /// What is added to a number to get its place, if that was the same for all of them.
    offset: Option<u64>,
}

/// Room for the entries of one `getdents64` call ...
const BUF: usize = 32 << 10;
/// ... and where few of them are wanted: the kernel fills what there is.
const SMALL: usize = 1 << 10;

impl NumberDir {
    /// Calls `visit` with each entry that is a number; keeps the directory open.
    pub(in crate::collect) fn visit(
        &mut self,
        path: &Path,
        mut visit: impl FnMut(u32),
    ) -> io::Result<()> {
        let dir = match self.dir.take() {
            Some(d) => {
                rustix::fs::seek(&d, SeekFrom::Start(0))?;
                d
            }
            None => open(path)?,
        };
        let all = |n| {
            visit(n);
            true
        };
        self.offset = entries(&dir, BUF, &mut self.buf, all)?;
        self.dir = Some(dir);
        Ok(())
    }

    /// The numbers from `first` to `last`, of a directory that was visited and whose entries have
    /// their places by number, as those of `/proc` do. Costs the same however many others there are.
    pub(in crate::collect) fn visit_between(
        &mut self,
        first: u32,
        last: u32,
        mut visit: impl FnMut(u32),
    ) -> io::Result<()> {
        let Some((dir, offset)) = self.dir.as_ref().zip(self.offset) else { return Ok(()) };
        if first > last {
            return Ok(());
        }
        rustix::fs::seek(dir, SeekFrom::Start(offset.saturating_add(first.into())))?;
        let some = |n| {
            if n <= last {
                visit(n);
            }
            n <= last
        };
        entries(dir, SMALL, &mut self.buf, some).map(|_| ())
    }

    /// As [`visit`](Self::visit) for a directory that is visited once; shares the buffer.
    pub(super) fn visit_once(&mut self, path: &Path, mut visit: impl FnMut(u32)) -> io::Result<()> {
        let all = |n| {
            visit(n);
            true
        };
        entries(&open(path)?, BUF, &mut self.buf, all).map(|_| ())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Visits the numbers from where the directory stands, for as long as that is wanted. Says how far
/// each is from its place, if they all are as far.
fn entries(
    dir: &File,
    room: usize,
    buf: &mut Vec<u8>,
    mut visit: impl FnMut(u32) -> bool,
) -> io::Result<Option<u64>> {
    let (mut place, mut offset, mut differ) = (None, None, false);
    buf.clear();
    buf.reserve(BUF);
    let mut raw = RawDir::new(dir, buf.spare_capacity_mut().get_mut(..room).unwrap_or_default());
    while let Some(entry) = raw.next() {
        let entry = entry?;
        let n = number(entry.file_name().to_bytes()).and_then(|n| u32::try_from(n).ok());
        if let Some(n) = n {
            if let Some(place) = place {
                let this = u64::checked_sub(place, n.into());
                differ |= this.is_none() || offset.is_some() && offset != this;
                offset = this;
            }
            if !visit(n) {
                break;
            }
        }
        place = Some(entry.next_entry_cookie());
    }
    Ok(offset.filter(|_| !differ))
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

    #[test]
    fn a_live_process_is_found_by_its_number_alone() {
        let mut dir = NumberDir::default();
        dir.visit(Path::new("/proc"), |_| {}).unwrap();
        for _ in 0..3 {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let pid = child.id();
            let mut seen = Vec::new();
            dir.visit_between(pid, pid, |n| seen.push(n)).unwrap();
            dir.visit_between(1, 1, |n| seen.push(n)).unwrap();
            dir.visit_between(2, 1, |n| seen.push(n)).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(seen, [pid, 1]);
        }
    }
}
