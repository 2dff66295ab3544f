//! `HotFile`: a file of `/proc` or `/sys` that is read every tick. It stays open and is read
//! with `pread` from offset 0, which makes the kernel print it anew: that halves the cost
//! of a small file, and the buffer is reused.
//!
//! Not for `/proc/PID/net/*` of other namespaces: an open descriptor would keep the
//! namespace alive after its last process.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::host::{HostFs, MAX_FILE};

/// Room that each read offers. `seq_file` hands out a page or so per call.
const CHUNK: usize = 4096;

/// A file that stays open between ticks.
#[derive(Debug)]
pub struct HotFile {
    path: PathBuf,
    file: Option<File>,
    buf: Vec<u8>,
    shape: Shape,
}

impl HotFile {
    /// Names the file, such as `proc/stat`; it is opened by the first [`read`](Self::read).
    pub fn new(host: &HostFs, rel: impl AsRef<std::path::Path>) -> Self {
        Self { path: host.path(rel), file: None, buf: Vec::new(), shape: Shape::Rows }
    }

    /// As [`new`](Self::new) for a file that the kernel prints as one record.
    pub fn record(host: &HostFs, rel: impl AsRef<std::path::Path>) -> Self {
        Self { shape: Shape::Record, ..Self::new(host, rel) }
    }

    /// Where it is.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Closes it until the next read.
    pub fn close(&mut self) {
        self.file = None;
    }

    /// The contents now, at most [`MAX_FILE`] bytes.
    ///
    /// # Errors
    /// What the kernel said. The next call opens the file again.
    pub fn read(&mut self) -> io::Result<&[u8]> {
        let file = match self.file.take() {
            Some(f) => f,
            None => File::open(&self.path)?,
        };
        read(&file, &mut self.buf, self.shape)?;
        self.file = Some(file);
        Ok(&self.buf)
    }
}

/// Reads `file` from offset 0 into `buf`, which is cleared first.
///
/// # Errors
/// What the kernel said.
pub fn read_at_start(file: &File, buf: &mut Vec<u8>) -> io::Result<()> {
    read(file, buf, Shape::Rows)
}

/// As [`read_at_start`] for a file that the kernel prints as one record, such as `schedstat`,
/// `stat` or any control file of cgroupfs: saves the read that finds the end.
///
/// # Errors
/// What the kernel said.
pub fn read_record(file: &File, buf: &mut Vec<u8>) -> io::Result<()> {
    read(file, buf, Shape::Record)
}

/// How the kernel hands a file out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Record by record: a short read may be followed by more.
    Rows,
    /// As one record (`single_open`): a short read is the end.
    Record,
}

fn read(file: &File, buf: &mut Vec<u8>, shape: Shape) -> io::Result<()> {
    buf.clear();
    while buf.len() < MAX_FILE {
        if buf.capacity() - buf.len() < CHUNK / 4 {
            buf.reserve(CHUNK.max(buf.len()));
        }
        let (offset, asked) = (buf.len() as u64, buf.capacity() - buf.len());
        match rustix::io::pread(file, rustix::buffer::spare_capacity(buf), offset) {
            Ok(0) => break,
            Ok(n) if n < asked && shape == Shape::Record => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_read_shows_the_file_anew() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        let host = HostFs::at(dir.path());
        for mut hot in [HotFile::new(&host, "f"), HotFile::record(&host, "f")] {
            std::fs::write(&file, vec![b'x'; 100_000]).unwrap();
            assert_eq!(hot.read().unwrap().len(), 100_000);
            std::fs::write(&file, b"short").unwrap();
            assert_eq!(hot.read().unwrap(), b"short");
        }
    }

    #[test]
    fn a_missing_file_is_an_error_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut hot = HotFile::new(&HostFs::at(dir.path()), "f");
        assert_eq!(hot.read().unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(dir.path().join("f"), b"1\n").unwrap();
        assert_eq!(hot.read().unwrap(), b"1\n");
    }

    /// The claim behind `record`: nothing follows the first short read of these files.
    #[test]
    fn live_records_come_in_one_read() {
        let host = HostFs::live();
        for rel in [
            "proc/stat",
            "proc/softirqs",
            "proc/loadavg",
            "proc/self/stat",
            "proc/self/schedstat",
            "proc/self/statm",
            "proc/self/net/netstat",
            "proc/self/net/snmp",
            "proc/self/net/snmp6",
            "proc/self/net/sockstat",
            "proc/self/net/sockstat6",
            "proc/meminfo",
            "proc/pressure/cpu",
        ] {
            let Ok(rows) = HotFile::new(&host, rel).read().map(count_lines) else { continue };
            let record = HotFile::record(&host, rel).read().map(count_lines).unwrap();
            assert_eq!(rows, record, "{rel}");
        }
    }

    fn count_lines(bytes: &[u8]) -> usize {
        bytes.split(|b| *b == b'\n').count()
    }

    #[test]
    fn live_counters_move_on_the_same_descriptor() {
        let mut hot = HotFile::new(&HostFs::live(), "proc/uptime");
        let first = hot.read().unwrap().to_vec();
        let deadline = crate::clock::mono() + std::time::Duration::from_secs(2);
        while hot.read().unwrap() == first.as_slice() {
            assert!(crate::clock::mono() < deadline, "uptime stands still");
        }
    }
}
