//! `Descriptors`: the open files of a process, in steps of some forty, so that one with a hundred
//! thousand of them fits into a collector's budget: a descriptor costs some 9 us (measured on 6.18 in
//! a virtual machine).

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, Statx, StatxFlags};
use rustix::io::Errno;

use super::HostFs;

/// Room for the entries of one `getdents64` call of 24 bytes each: the kernel makes an inode for
/// each one that it lists, wanted or not.
const STEP: usize = 1 << 10;

/// `/proc/PID/fd`; keeps nothing of the process.
#[derive(Debug)]
pub(super) struct Descriptors(File);

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There may be more of them.
    More,
    /// That were all, or all that were wanted.
    Done,
}

impl Descriptors {
    /// # Errors
    /// When there is no such process, or it is not ours to see.
    pub(super) fn open(host: &HostFs, pid: u32) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = host.path(format!("proc/{pid}/fd"));
        Ok(Self(File::from(rustix::fs::open(path, flags, Mode::empty())?)))
    }

    /// Visits the descriptors of one `getdents64` call, all of them unless `visit` breaks: where the
    /// next call begins is behind the last one.
    ///
    /// # Errors
    /// When the process has ended, or is not ours to see any more.
    pub(super) fn step(
        &mut self,
        mut visit: impl FnMut(&File, &CStr) -> ControlFlow<()>,
    ) -> io::Result<Step> {
        let mut buf = [MaybeUninit::uninit(); STEP];
        let mut entries = RawDir::new(&self.0, &mut buf);
        let mut any = false;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_bytes().first().is_some_and(u8::is_ascii_digit)
                && visit(&self.0, name).is_break()
            {
                return Ok(Step::Done);
            }
            any = true;
            if entries.is_buffer_empty() {
                break;
            }
        }
        Ok(if any { Step::More } else { Step::Done })
    }
}

/// What is known of the file behind a descriptor on this host: the server of an NFS mount or of FUSE
/// may be dead, and nobody may wait for it.
///
/// # Errors
/// `ENOENT` when it was closed meanwhile.
pub(super) fn behind(dir: &File, name: &CStr, wanted: StatxFlags) -> Result<Statx, Errno> {
    rustix::fs::statx(dir, name, AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT, wanted)
}
