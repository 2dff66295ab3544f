//! Who tries to create files, as eBPF counts it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::sample::heap::owns;
use crate::sample::subject::DiskId;

/// Most rows of [`Creates::creators`].
pub const MAX_CREATORS: usize = 4;
/// Most rows of [`FilesBpfSample::filesystems`].
pub const MAX_FILESYSTEMS: usize = 16;

/// One reading. An attempt is one to create a file, directory, symbolic link or node, whatever
/// becomes of it; see [`functions`](FilesBpfSample::functions) and [`ext4`](FilesBpfSample::ext4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilesBpfSample {
    /// Attempts are seen on file systems that do not tell by themselves, but for files without a name
    /// (`O_TMPFILE`, copies of overlayfs) and hard links, which take an inode on tmpfs.
    pub functions: bool,
    /// Those on ext4 are seen: each is up to four requests for an inode, and these are counted.
    pub ext4: bool,
    /// Time since the reading before, ns.
    pub covered_ns: u64,
    /// Since the reading before by file system, most first: at most [`MAX_FILESYSTEMS`].
    pub filesystems: Vec<Creates>,
    /// Of these on file systems that are not listed, or whose row was given away before the reading.
    pub unlisted: u64,
    /// Events that no program ran for since the programs were attached (5.12); `None` where the kernel
    /// does not tell.
    pub missed: Option<u64>,
}
owns!(FilesBpfSample { filesystems } flat { functions, ext4, covered_ns, unlisted, missed });

/// Attempts on one file system since the reading before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Creates {
    /// The file system, by its device number.
    pub dev: DiskId,
    /// Of all processes.
    pub count: u64,
    /// Who, most attempts first: at most [`MAX_CREATORS`].
    pub creators: Vec<Creator>,
}
owns!(Creates { creators } flat { dev, count });

/// Attempts of one process since the reading before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Creator {
    /// The process, as the host numbers it.
    pub pid: u32,
    /// Its `comm`, raw; `None` if it had ended by the reading.
    pub comm: Option<Arc<str>>,
    /// How many.
    pub count: u64,
}
owns!(Creator { comm } flat { pid, count });
