//! Where a recording goes: a file of our own (0600, never through a link, locked), a pipe, or
//! standard output. Opens, recovers for `--append`, and truncates after a write that failed.
//! Refuses everything else with one line; never says what a file contains.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::model::tick::HostInfo;
use crate::model::time::WallNs;
use crate::recording::format::marker;
use crate::recording::{ReadAt, ReadError, Reader, Resume};

/// What to record into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file, or a FIFO that somebody reads.
    File(PathBuf),
    /// Standard output.
    Stdout,
}

impl Target {
    /// For messages.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(p) => p.display().to_string(),
            Self::Stdout => "standard output".to_owned(),
        }
    }
}

/// Whether an existing recording may be continued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// An existing file is an error.
    #[default]
    Refuse,
    /// Go on with it.
    Append,
}

/// An open target.
pub(super) struct Opened {
    pub sink: Sink,
    /// What is there already.
    pub resume: Resume,
    /// Wall clock of its first tick.
    pub since: Option<WallNs>,
    /// Hosts of its segments.
    pub hosts: Vec<HostInfo>,
}

impl Opened {
    fn fresh(sink: Sink) -> Self {
        Self { sink, resume: Resume::default(), since: None, hosts: Vec::new() }
    }
}

/// The writing end.
pub(super) struct Sink {
    file: File,
    /// Of a regular file: where the recording's first byte is.
    base: Option<u64>,
}

impl Sink {
    fn regular(file: File, base: u64) -> Self {
        Self { file, base: Some(base) }
    }
    /// Can it be truncated, synced, rotated?
    pub(super) fn is_regular(&self) -> bool {
        self.base.is_some()
    }
    /// The same file once more.
    pub(super) fn twin(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, base: self.base })
    }
    /// The file itself, for reading what was written.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
    /// Bytes of the recording; `None` of a pipe.
    pub(super) fn size(&self) -> Option<u64> {
        Some(self.file.metadata().ok()?.len().saturating_sub(self.base?))
    }
    /// Cuts off everything behind `offset` and writes on from there.
    pub(super) fn rewind(&mut self, offset: u64) -> io::Result<()> {
        let Some(base) = self.base else { return Ok(()) };
        let at = base.saturating_add(offset);
        self.file.set_len(at)?;
        self.file.seek(SeekFrom::Start(at)).map(|_| ())
    }
    /// Waits until the data are on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        match self.base {
            Some(_) => Ok(rustix::fs::fdatasync(&self.file)?),
            None => Ok(()),
        }
    }
    /// Bytes that are free for us on its file system; `None`: not known.
    pub(super) fn free(&self) -> Option<u64> {
        self.base?;
        let v = rustix::fs::fstatvfs(&self.file).ok()?;
        let root = rustix::process::geteuid().is_root();
        let blocks = if root { v.f_bfree } else { v.f_bavail };
        Some(blocks.saturating_mul(v.f_frsize))
    }
    /// Has the last name of the file been removed?
    pub(super) fn is_deleted(&self) -> bool {
        self.base.is_some() && rustix::fs::fstat(&self.file).is_ok_and(|s| s.st_nlink == 0)
    }
}

impl Write for Sink {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(buf) {
                // A pipe whose other users made it non-blocking: wait on this thread.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(&self.file, PollFlags::OUT)];
                    match poll(&mut fds, None) {
                        Ok(_) | Err(rustix::io::Errno::INTR) => {}
                        Err(e) => return Err(e.into()),
                    }
                }
                other => return other,
            }
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a target. The error is one line without the target's name.
pub(super) fn open(target: &Target, existing: Existing) -> Result<Opened, String> {
    match target {
        Target::Stdout => stdout(),
        Target::File(path) => match create(path) {
            Ok(sink) => Ok(Opened::fresh(sink)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => open_existing(path, existing),
            Err(e) => Err(explain(path, &e)),
        },
    }
}

/// Makes a new file, locked.
pub(super) fn create(path: &Path) -> io::Result<Sink> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Sink::regular(file, 0))
}

/// Makes a file that is to take another's place, or takes the one that a killed recorder left
/// behind; nothing else is touched.
pub(super) fn create_scratch(path: &Path) -> io::Result<Sink> {
    match create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    let mut sink = left_behind(path)?;
    sink.rewind(0)?;
    Ok(sink)
}

/// Removes such a file, if it is one.
pub(super) fn remove_scratch(path: &Path) {
    if left_behind(path).is_ok() {
        let _ = std::fs::remove_file(path);
    }
}

/// A file that a recorder began, and that no other one writes to.
fn left_behind(path: &Path) -> io::Result<Sink> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > 0 && !begins_like_ours(&file) {
        let what = format!("{} is in the way", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Sink::regular(file, 0))
}

fn explain(path: &Path, e: &io::Error) -> String {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    match e.kind() {
        io::ErrorKind::NotFound if parent.is_some_and(|p| !p.exists()) => {
            "its directory does not exist".to_owned()
        }
        io::ErrorKind::IsADirectory => "is a directory; name a file in it".to_owned(),
        _ => e.to_string(),
    }
}

const BUSY: &str = "another recorder writes to it";

fn open_existing(path: &Path, existing: Existing) -> Result<Opened, String> {
    let meta = std::fs::symlink_metadata(path).map_err(|e| e.to_string())?;
    let kind = meta.file_type();
    if kind.is_symlink() {
        return Err("is a symbolic link; name the file itself".to_owned());
    }
    if kind.is_dir() {
        return Err("is a directory; name a file in it".to_owned());
    }
    if kind.is_char_device() {
        return stream(path, "is a device that does not answer");
    }
    if kind.is_fifo() {
        return stream(path, "is a FIFO that nobody reads");
    }
    if !kind.is_file() {
        return Err("is neither a file nor a pipe".to_owned());
    }
    let access = if existing == Existing::Append { OFlags::RDWR } else { OFlags::RDONLY };
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let file = match (file, existing) {
        (Ok(f), _) => File::from(f),
        (Err(_), Existing::Refuse) => return Err(exists()),
        (Err(e), Existing::Append) => return Err(io::Error::from(e).to_string()),
    };
    match existing {
        Existing::Refuse => {
            let free = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
            Err(if free == Err(rustix::io::Errno::WOULDBLOCK) { BUSY.to_owned() } else { exists() })
        }
        Existing::Append => append(file),
    }
}

fn exists() -> String {
    "exists already; --append goes on with it".to_owned()
}

/// Locks, finds the end of the last whole block, and drops what is torn behind it.
fn append(file: File) -> Result<Opened, String> {
    let kind = file.metadata().map_err(|e| e.to_string())?.file_type();
    if !kind.is_file() {
        return Err("is no regular file".to_owned());
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(BUSY.to_owned()),
        Err(e) => return Err(format!("cannot lock: {}", io::Error::from(e))),
    }
    let twin = file.try_clone().map_err(|e| e.to_string())?;
    let (resume, since, hosts) = match Reader::new(Arc::new(twin)) {
        Ok(r) => {
            let hosts = r.segments().iter().map(|s| s.1.host.clone()).collect();
            (r.resume(), r.groups().first().map(|g| g.first.wall), hosts)
        }
        Err(ReadError::Empty) => Default::default(),
        // Killed within its first block: ours, and nothing in it.
        Err(ReadError::Truncated) if begins_like_ours(&file) => Default::default(),
        Err(ReadError::Truncated) => return Err(ReadError::NotARecording.to_string()),
        Err(e) => return Err(e.to_string()),
    };
    let mut sink = Sink::regular(file, 0);
    sink.rewind(resume.offset).map_err(|e| e.to_string())?;
    Ok(Opened { sink, resume, since, hosts })
}

/// Is what there is of the first block the beginning of one?
fn begins_like_ours(file: &impl ReadAt) -> bool {
    let mut head = [0; 12];
    let Ok(n) = file.read_at(&mut head, 0) else { return false };
    n > 0 && head.get(..n) == marker().get(..n)
}

/// Does a file begin with a block of ours?
pub(super) fn is_recording(file: &File) -> bool {
    let mut head = [0; 12];
    ReadAt::read_at(file, &mut head, 0).is_ok_and(|n| n == head.len()) && head == marker()
}

/// A FIFO with a reader, or a device such as `/dev/null`.
fn stream(path: &Path, nobody: &str) -> Result<Opened, String> {
    let flags =
        OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(f) => File::from(f),
        Err(rustix::io::Errno::NXIO) => return Err(nobody.to_owned()),
        Err(e) => return Err(io::Error::from(e).to_string()),
    };
    refuse_terminal(&file)?;
    Ok(Opened::fresh(Sink { file, base: None }))
}

fn refuse_terminal(fd: &impl AsFd) -> Result<(), String> {
    if rustix::termios::isatty(fd) {
        return Err("is a terminal; a recording is not text: name a file or pipe it".to_owned());
    }
    Ok(())
}

fn stdout() -> Result<Opened, String> {
    let out = std::io::stdout();
    refuse_terminal(&out)?;
    let fd = out.as_fd().try_clone_to_owned().map_err(|e| e.to_string())?;
    let mut file = File::from(fd);
    let regular = file.metadata().map_err(|e| e.to_string())?.file_type().is_file();
    let sink = if regular {
        // `>` begins at 0, `>>` at the end, `(cat; stallscope record -o -) > f` in between.
        let appends = rustix::fs::fcntl_getfl(&file).is_ok_and(|f| f.contains(OFlags::APPEND));
        let from = if appends { SeekFrom::End(0) } else { SeekFrom::Current(0) };
        let base = file.seek(from).map_err(|e| e.to_string())?;
        Sink::regular(file, base)
    } else {
        Sink { file, base: None }
    };
    Ok(Opened::fresh(sink))
}
