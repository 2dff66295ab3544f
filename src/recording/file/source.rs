//! The source of a recording's bytes: a file, memory, or a pipe that is copied to an unlinked file
//! as it is read, so that one reader with random access serves all three.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};

use crate::rights::{self, Duty};

/// Bytes that can be read at any place.
pub trait ReadAt: Send + Sync {
    /// Fills `buf` from `offset`; fewer bytes only at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Bytes that are there now.
    fn size(&self) -> io::Result<u64>;
    fn may_grow(&self) -> bool {
        false
    }
}

impl ReadAt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        // The kernel takes no such offset, and no file has it.
        let most = i64::MAX as u64;
        if offset > most.saturating_sub(buf.len() as u64) {
            return Ok(0);
        }
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|r| !r.is_empty()) {
            match FileExt::read_at(self, rest, offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
    fn may_grow(&self) -> bool {
        true
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        self.get(from..).unwrap_or_default().read(buf)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// Opens a recording for reading. Refuses anything but a regular file with one clear line, and
/// never blocks (a FIFO without a writer opens immediately and is refused).
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory"));
    }
    if !kind.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "is not a regular file; pipe a recording into `-`",
        ));
    }
    Ok(file)
}

/// Which file it is: device and inode.
pub type Inode = (u64, u64);

/// Of an open file.
pub fn inode(file: &File) -> io::Result<Inode> {
    file.metadata().map(|m| (m.dev(), m.ino()))
}

/// Of the file that a path currently leads to, if any.
pub fn inode_at(path: &Path) -> Option<Inode> {
    std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// A pipe, copied to an unlinked temporary file: what has arrived can be read again.
pub struct Spool {
    file: File,
    have: Arc<AtomicU64>,
    open: Arc<AtomicBool>,
}

impl Spool {
    /// Starts to read `input` on a separate thread.
    pub fn start(mut input: impl Read + Send + 'static) -> io::Result<Self> {
        let file = temporary()?;
        let (have, open) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
        let (out, written, alive) = (file.try_clone()?, have.clone(), open.clone());
        std::thread::Builder::new().name("spool".into()).spawn(move || {
            rights::restrict(Duty::Figures);
            let mut buf = vec![0; 64 << 10];
            let mut at = 0u64;
            loop {
                let n = match input.read(&mut buf) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(n) if n > 0 => n,
                    _ => break,
                };
                if out.write_all_at(buf.get(..n).unwrap_or_default(), at).is_err() {
                    break;
                }
                at += n as u64;
                written.store(at, Ordering::Release);
            }
            alive.store(false, Ordering::Release);
        })?;
        Ok(Self { file, have, open })
    }
}

fn temporary() -> io::Result<File> {
    let (flags, mode) = (OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for dir in [std::env::temp_dir().as_path(), Path::new("/var/tmp"), Path::new("/dev/shm")] {
        match rustix::fs::open(dir, flags, mode) {
            Ok(fd) => return Ok(File::from(fd)),
            Err(e) => last = e.into(),
        }
    }
    Err(last)
}

impl ReadAt for Spool {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.have.load(Ordering::Acquire).saturating_sub(offset);
        let n = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        ReadAt::read_at(&self.file, buf.get_mut(..n).unwrap_or_default(), offset)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.have.load(Ordering::Acquire))
    }
    fn may_grow(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}
