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
    /// Where the last number of the last listing is.
    tail: Option<u64>,
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
        self.tail = entries(&dir, &mut self.buf, visit)?;
        self.dir = Some(dir);
        Ok(())
    }

    /// The end of the last listing once more, and what was added behind it: new processes, as
    /// their numbers grow until they wrap. Costs the same however many there are before it.
    pub(in crate::collect) fn visit_tail(&mut self, visit: impl FnMut(u32)) -> io::Result<()> {
        let Some((dir, tail)) = self.dir.as_ref().zip(self.tail) else { return Ok(()) };
        rustix::fs::seek(dir, SeekFrom::Start(tail))?;
        self.tail = entries(dir, &mut self.buf, visit)?.or(self.tail);
        Ok(())
    }

    /// As [`visit`](Self::visit) for a directory that is visited once; shares the buffer.
    pub(super) fn visit_once(&mut self, path: &Path, visit: impl FnMut(u32)) -> io::Result<()> {
        entries(&open(path)?, &mut self.buf, visit).map(|_| ())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Visits the numbers from where the directory stands, and says where the last one is, if another
/// entry is before it.
fn entries(dir: &File, buf: &mut Vec<u8>, mut visit: impl FnMut(u32)) -> io::Result<Option<u64>> {
    let (mut before, mut tail) = (None, None);
    buf.clear();
    buf.reserve(BUF);
    let mut raw = RawDir::new(dir, buf.spare_capacity_mut());
    while let Some(entry) = raw.next() {
        let entry = entry?;
        let n = number(entry.file_name().to_bytes()).and_then(|n| u32::try_from(n).ok());
        if let Some(n) = n {
            visit(n);
            tail = before.or(tail);
        }
        before = Some(entry.next_entry_cookie());
    }
    Ok(tail)
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
    fn a_new_process_is_at_the_tail() {
        let mut dir = NumberDir::default();
        let mut all = 0;
        dir.visit(Path::new("/proc"), |_| all += 1).unwrap();
        for _ in 0..3 {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let mut seen = Vec::new();
            dir.visit_tail(|n| seen.push(n)).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            // Numbers that have wrapped are found by the next listing.
            let wrapped = seen.iter().all(|n| *n > child.id());
            assert!(seen.contains(&child.id()) || wrapped, "{} in {seen:?}", child.id());
            assert!(seen.len() < all, "{} of {all}", seen.len());
        }
    }
}
