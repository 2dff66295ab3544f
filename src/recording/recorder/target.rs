//! The target of a recording: a private file (0600, never through a link, locked), a pipe, or
//! standard output. Opens, recovers for `--append`, and truncates after a write that failed.
//! Refuses everything else with one line, including files that somebody else put there for us to
//! write to; never reveals what a file contains.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, FlockOperation, OFlags, fstat};
use rustix::io::Errno;

use crate::recording::file::damage::ReadError;
use crate::recording::file::format::marker;
use crate::recording::file::home::{Holder, Home, Side};
use crate::recording::file::reader::Reader;
use crate::recording::file::source::ReadAt;
use crate::recording::file::writer::Resume;
use crate::sample::tick::HostInfo;
use crate::sample::time::WallNs;

/// Numbers tried for a file whose name is taken.
const TRIES: u32 = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file, or a FIFO that somebody reads.
    File(PathBuf),
    Stdout,
}

impl Target {
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
    Append,
    /// It is left alone: the new file has a number in its name.
    Number,
}

pub(super) struct Opened {
    pub sink: Sink,
    /// Of a file: where it is, and its owner.
    pub home: Option<(Home, u32)>,
    pub resume: Resume,
    /// Wall clock of its first tick.
    pub since: Option<WallNs>,
    pub hosts: Vec<HostInfo>,
}

impl Opened {
    fn fresh(sink: Sink) -> Self {
        Self { sink, home: None, resume: Resume::default(), since: None, hosts: Vec::new() }
    }
}

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
    pub(super) fn of_side(side: &Side) -> io::Result<Self> {
        Ok(Self::regular(side.file()?, 0))
    }
    pub(super) fn twin(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, base: self.base })
    }
    pub(super) fn file(&self) -> &File {
        &self.file
    }
    /// Bytes of the recording; `None` of a pipe.
    pub(super) fn size(&self) -> Option<u64> {
        Some(self.file.metadata().ok()?.len().saturating_sub(self.base?))
    }
    /// Cuts off everything after `offset` and continues there.
    pub(super) fn rewind(&mut self, offset: u64) -> io::Result<()> {
        let Some(base) = self.base else { return Ok(()) };
        let at = base.saturating_add(offset);
        self.file.set_len(at)?;
        self.file.seek(SeekFrom::Start(at)).map(|_| ())
    }
    /// Waits until the data are on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        if self.is_regular() {
            rustix::fs::fdatasync(&self.file)?;
        }
        Ok(())
    }
    /// Bytes available to us on its file system; `None` if unknown.
    pub(super) fn free(&self) -> Option<u64> {
        self.base?;
        let v = rustix::fs::fstatvfs(&self.file).ok()?;
        let root = rustix::process::geteuid().is_root();
        let blocks = if root { v.f_bfree } else { v.f_bavail };
        Some(blocks.saturating_mul(v.f_frsize))
    }
    /// Has the last name of the file been removed?
    pub(super) fn is_deleted(&self) -> bool {
        self.base.is_some() && fstat(&self.file).is_ok_and(|s| s.st_nlink == 0)
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
                        Ok(_) | Err(Errno::INTR) => {}
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
pub(super) fn open(target: &Target, existing: Existing) -> io::Result<Opened> {
    let path = match target {
        Target::Stdout => return stdout(),
        Target::File(path) => path,
    };
    let home = Home::open(path)?;
    match create(&home, home.name()) {
        Ok(sink) => {
            let owner = fstat(sink.file())?.st_uid;
            Ok(Opened { home: Some((home, owner)), ..Opened::fresh(sink) })
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match existing {
            Existing::Number => numbered(path),
            Existing::Refuse | Existing::Append => open_existing(home, existing),
        },
        Err(e) => Err(e),
    }
}

/// Makes a file beside one that exists: `box-2.stall`, `box-3.stall`.
fn numbered(path: &Path) -> io::Result<Opened> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ext = path.extension().unwrap_or_default().to_string_lossy();
    for n in 2..=TRIES {
        let home = Home::open(&path.with_file_name(format!("{stem}-{n}.{ext}")))?;
        match create(&home, home.name()) {
            Ok(sink) => {
                let owner = fstat(sink.file())?.st_uid;
                return Ok(Opened { home: Some((home, owner)), ..Opened::fresh(sink) });
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

pub(super) fn create(home: &Home, name: &OsStr) -> io::Result<Sink> {
    let file = home.create(name)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Sink::regular(file, 0))
}

/// Not for a recording, and why.
fn refused<T>(why: impl Into<String>) -> io::Result<T> {
    Err(io::Error::other(why.into()))
}

const BUSY: &str = "another recorder is writing to it";
const REPLACED: &str = "was just replaced; try again";

fn open_existing(home: Home, existing: Existing) -> io::Result<Opened> {
    match home.kind()? {
        FileType::Symlink => refused("is a symbolic link; give the file itself"),
        FileType::Directory => refused("is a directory; give a file in it"),
        FileType::CharacterDevice => stream(&home, "is a device that does not answer"),
        FileType::Fifo => stream(&home, "is a FIFO with no reader"),
        FileType::RegularFile if existing == Existing::Append => append(home),
        FileType::RegularFile if is_locked(&home) => refused(BUSY),
        FileType::RegularFile => refused("already exists; use --append"),
        _ => refused("is neither a file nor a pipe"),
    }
}

fn is_locked(home: &Home) -> bool {
    home.look_into(home.name(), OFlags::RDONLY).is_ok_and(|f| {
        let free = rustix::fs::flock(&f, FlockOperation::NonBlockingLockShared);
        free == Err(Errno::WOULDBLOCK)
    })
}

/// Locks, finds the end of the last complete block, and drops what is torn after it.
fn append(home: Home) -> io::Result<Opened> {
    let file = home.look_into(home.name(), OFlags::RDWR)?;
    let owner = is_ours(&home, &file)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return refused(BUSY),
        Err(e) => return refused(format!("cannot lock: {e}")),
    }
    // The previous holder of the lock may have renamed the file or replaced it.
    if home.holder(&file)? != Holder::Us {
        return refused(REPLACED);
    }
    let (resume, since, hosts) = match Reader::new(Arc::new(file.try_clone()?)) {
        // Continuing would cut off what nobody has examined.
        Ok(r) if r.gave_up() => {
            return refused(
                "has more than 2 GiB of damage; record to a new file, and `export` what can \
                 be read from this one",
            );
        }
        Ok(r) => {
            let hosts = r.segments().iter().map(|s| s.1.host.clone()).collect();
            (r.resume(), r.groups().first().map(|g| g.first.wall), hosts)
        }
        Err(ReadError::Empty) => Default::default(),
        // Killed within its first block: ours, and nothing in it.
        Err(ReadError::Truncated) if is_unfinished(&file) => Default::default(),
        Err(ReadError::Truncated) => return Err(ReadError::NotARecording.into()),
        Err(e) => return Err(e.into()),
    };
    let mut sink = Sink::regular(file, 0);
    sink.rewind(resume.offset)?;
    Ok(Opened { sink, home: Some((home, owner)), resume, since, hosts })
}

/// The owner of an existing file, if that is us and nobody else can access what we write to it: in
/// a directory such as `/tmp` anybody may have put it there.
fn is_ours(home: &Home, file: &File) -> io::Result<u32> {
    let s = fstat(file)?;
    if FileType::from_raw_mode(s.st_mode) != FileType::RegularFile {
        return refused("is not a regular file");
    }
    let we = rustix::process::geteuid().as_raw();
    if s.st_uid != we && home.our_user().ok() != Some(s.st_uid) {
        return refused(format!(
            "belongs to user {}, but you are user {we}; record to a new file, or as its owner",
            s.st_uid
        ));
    }
    if s.st_nlink > 1 {
        return refused(format!(
            "has {} names (hard links), so it may be somebody else's file too; append to a copy, \
             or remove the other names",
            s.st_nlink
        ));
    }
    let mode = s.st_mode & 0o777;
    if mode & 0o022 != 0 {
        return refused(format!(
            "is writable by others (mode {mode:04o}); if its contents are yours, run `chmod \
             go-w` on it and try again"
        ));
    }
    Ok(s.st_uid)
}

/// How much of a block's marker a file begins with; `None` if it begins in another way.
fn begun(file: &File) -> Option<usize> {
    let mut head = [0; 12];
    let n = ReadAt::read_at(file, &mut head, 0).ok()?;
    (head.get(..n) == marker().get(..n)).then_some(n)
}

/// Is there nothing in it, or the beginning of a recording?
pub(super) fn is_unfinished(file: &File) -> bool {
    begun(file).is_some()
}

/// Does a file begin with a block of ours?
pub(super) fn is_recording(file: &File) -> bool {
    begun(file) == Some(marker().len())
}

/// A FIFO with a reader, or a device such as `/dev/null`.
fn stream(home: &Home, nobody: &str) -> io::Result<Opened> {
    let file = match home.look_into(home.name(), OFlags::WRONLY) {
        Err(Errno::NXIO) => return refused(nobody),
        opened => opened?,
    };
    let s = fstat(&file)?;
    match FileType::from_raw_mode(s.st_mode) {
        FileType::CharacterDevice => {}
        // Anybody can make one where a recording is expected, and read what root writes.
        FileType::Fifo if s.st_uid == rustix::process::geteuid().as_raw() || s.st_uid == 0 => {}
        FileType::Fifo => {
            return refused(format!(
                "is a FIFO owned by user {}, who can read everything in it; if that is intended, use `-o \
                 - > FIFO`",
                s.st_uid
            ));
        }
        _ => return refused(REPLACED),
    }
    refuse_terminal(&file)?;
    Ok(Opened::fresh(Sink { file, base: None }))
}

fn refuse_terminal(fd: &impl AsFd) -> io::Result<()> {
    if rustix::termios::isatty(fd) {
        return refused("is a terminal; a recording is not text: give a file or use a pipe");
    }
    Ok(())
}

fn stdout() -> io::Result<Opened> {
    let out = std::io::stdout();
    refuse_terminal(&out)?;
    let mut file = File::from(out.as_fd().try_clone_to_owned()?);
    let sink = if file.metadata()?.file_type().is_file() {
        // `>` begins at 0, `>>` at the end, `(cat; stallscope record -o -) > f` in between.
        let appends = rustix::fs::fcntl_getfl(&file).is_ok_and(|f| f.contains(OFlags::APPEND));
        let from = if appends { SeekFrom::End(0) } else { SeekFrom::Current(0) };
        let base = file.seek(from)?;
        Sink::regular(file, base)
    } else {
        Sink { file, base: None }
    };
    Ok(Opened::fresh(sink))
}
