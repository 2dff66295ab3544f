//! Room and state of mounted file systems.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::heap::{flat, owns};
use super::subject::DiskId;
use super::time::MonoNs;

/// The file systems that are mounted here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilesystemsSample {
    /// One row per file system, in the order in which they were mounted.
    pub filesystems: Arc<Vec<FilesystemRow>>,
    /// How many more there are: we ask so many and no more.
    pub left_out: u32,
    /// Who keeps deleted files of nearly full ones open; `None` while none is.
    pub deleted: Option<Arc<Deleted>>,
}
owns!(FilesystemsSample { filesystems, deleted } flat { left_out });

/// What a search of all open files found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Deleted {
    /// By file system, and there those that keep most first, at most 8.
    pub holders: Vec<Holder>,
    /// Processes whose descriptors are not ours to see.
    pub denied: u32,
    /// Processes that the first search has not come to yet.
    pub left: u32,
}
owns!(Deleted { holders } flat { denied, left } same by |a, b| a == b);

/// A process with deleted files open: their space is free when it closes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holder {
    /// The file system, by its device number.
    pub dev: DiskId,
    /// Process id.
    pub pid: u32,
    /// Its `comm`, raw.
    pub comm: String,
    /// Bytes on disk.
    pub bytes: u64,
    /// Files.
    pub files: u32,
}
owns!(Holder { comm } flat { dev, pid, bytes, files });

/// One file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilesystemRow {
    /// Where it is mounted; of several places the shortest that shows all of it. Raw.
    pub mount: Arc<str>,
    /// Device number of the file system: that of its disk, where it has one.
    pub dev: DiskId,
    /// Such as `ext4`.
    pub kind: Arc<str>,
    /// Such as `/dev/sda1`. Raw.
    pub source: Arc<str>,
    /// Options of the mount point, as asked for by whoever mounted it: `rw,noatime`.
    pub mount_options: Arc<str>,
    /// Options of the file system itself, which the kernel changes: `ro,errors=remount-ro`.
    pub options: Arc<str>,
    /// What it answered last; `None` before its first answer.
    pub space: Option<Space>,
    /// It refused to answer last time, with this error number.
    pub errno: Option<i32>,
    /// It was asked then, and has not answered in time.
    pub waits_since: Option<MonoNs>,
}
owns!(FilesystemRow { mount, kind, source, mount_options, options } flat {
    dev, space, errno, waits_since
} same by |a, b| a == b);

/// The answer to `statvfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Space {
    /// Bytes per block.
    pub block: u64,
    /// Blocks in all; 0 where the file system does not count.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks that ordinary users may have.
    pub avail: u64,
    /// Inodes in all; 0 where there is no such limit.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
}
flat!(Space);

impl FilesystemRow {
    /// Whoever mounted it wanted it read-only, here at least.
    #[must_use]
    pub fn mounted_read_only(&self) -> bool {
        has(&self.mount_options, "ro")
    }
    /// The file system itself takes no writes, wherever it is mounted.
    #[must_use]
    pub fn takes_no_writes(&self) -> bool {
        ["ro", "emergency_ro", "shutdown"].iter().any(|o| has(&self.options, o))
    }
    /// An option of the file system.
    #[must_use]
    pub fn has_option(&self, name: &str) -> bool {
        has(&self.options, name)
    }
}

impl Space {
    /// Bytes in all.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block)
    }
    /// Bytes that ordinary users may have.
    #[must_use]
    pub fn avail_bytes(&self) -> u64 {
        self.avail.saturating_mul(self.block)
    }
    /// Bytes in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.blocks.saturating_sub(self.free).saturating_mul(self.block)
    }
}

fn has(options: &str, name: &str) -> bool {
    options.split(',').any(|o| o == name)
}
