//! Damage and other reasons why a file cannot be read.

use std::io;

use serde::Serialize;

use super::format::VERSION;
use crate::recording::codec::Stamp;

/// Why something cannot be read. One line each, without contents of the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("is empty: nothing was recorded")]
    Empty,
    #[error("is not a stallscope recording")]
    NotARecording,
    /// Cut off inside its first block.
    #[error("ends before its first block is complete: nothing was recorded")]
    Truncated,
    #[error("has format version {0}; this program reads up to {VERSION}")]
    Version(u8),
    /// This tick, or everything after it in its group, is lost.
    #[error("{0}")]
    Damaged(Damage),
    #[error("has no such tick")]
    NoSuchTick,
}

impl From<ReadError> for io::Error {
    fn from(e: ReadError) -> Self {
        match e {
            ReadError::Io(e) => e,
            e => Self::other(e.to_string()),
        }
    }
}

/// `None` for what is damaged; what the kernel refuses to read stays an error.
pub(crate) fn intact<T>(found: Result<T, ReadError>) -> io::Result<Option<T>> {
    match found {
        Ok(v) => Ok(Some(v)),
        Err(ReadError::Io(e)) => Err(e),
        Err(_) => Ok(None),
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    pub offset: u64,
    pub bytes: u64,
    pub what: String,
    /// The last good tick before it, as far as it is known.
    pub after: Option<Stamp>,
}

impl Damage {
    pub(crate) fn at(offset: u64, bytes: u64, what: impl Into<String>) -> Self {
        Self { offset, bytes, what: what.into(), after: None }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {} ({} bytes)", self.what, self.offset, self.bytes)
    }
}

/// Maximum number of damaged places that are remembered.
pub(super) const MAX_DAMAGE: usize = 10_000;
