//! Who tries to create files, as eBPF counts it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::sample::heap::{flat, owns};
use crate::sample::subject::DiskId;

/// Most rows of [`Creates::creators`].
pub const MAX_CREATORS: usize = 8;
/// Most rows of [`FilesBpfSample::filesystems`].
pub const MAX_FILESYSTEMS: usize = 16;

/// Of which file systems attempts are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sees {
    /// Of all of them.
    #[default]
    All,
    /// Of those that the ext4 driver serves; each attempt counts up to four times.
    Ext4,
}
flat!(Sees);

/// One reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilesBpfSample {
    /// Attempts to create a file, directory, symbolic link or node since the programs were attached,
    /// whatever became of them. Hard links take no inode and are not counted.
    pub attempts: u64,
    /// By file system since the reading before, most attempts first: at most [`MAX_FILESYSTEMS`].
    pub filesystems: Vec<Creates>,
    /// Of which file systems.
    pub sees: Sees,
    /// Events that no program ran for (5.12); `None` where the kernel does not tell.
    pub missed: Option<u64>,
}
owns!(FilesBpfSample { filesystems } flat { attempts, sees, missed });

/// Attempts on one file system since the reading before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Creates {
    /// The file system, by its device number.
    pub dev: DiskId,
    /// Attempts whose process is known, listed or not.
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
