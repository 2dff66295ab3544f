//! UNIX sockets of a dump, as columns.

use serde::{Deserialize, Serialize};

use super::SockState;
use super::columns::columns;
use crate::sample::heap::owns;
use crate::sample::packed;

/// UNIX rows. All columns have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, remote = "Self")]
pub struct UnixRows {
    /// `udiag_cookie`.
    #[serde(deserialize_with = "packed::column")]
    pub cookie: Vec<u64>,
    /// Inode.
    #[serde(deserialize_with = "packed::column")]
    pub inode: Vec<u32>,
    /// `SOCK_STREAM` 1, `SOCK_DGRAM` 2, `SOCK_SEQPACKET` 5.
    #[serde(deserialize_with = "packed::column")]
    pub kind: Vec<u8>,
    /// TCP state numbers: 1 connected, 7 unconnected, 10 listening.
    #[serde(deserialize_with = "packed::column")]
    pub state: Vec<SockState>,
    /// Bytes (or connections, when listening) that wait to be read.
    #[serde(deserialize_with = "packed::column")]
    pub rqueue: Vec<u32>,
    /// Bytes that wait to be taken by the peer; listening: backlog limit.
    #[serde(deserialize_with = "packed::column")]
    pub wqueue: Vec<u32>,
    /// Inode of the peer, 0 for none.
    #[serde(deserialize_with = "packed::column")]
    pub peer: Vec<u32>,
    /// End of the row's name in `names`.
    #[serde(deserialize_with = "packed::column")]
    pub name_end: Vec<u32>,
    /// All names, one after the other, raw; an abstract name begins with NUL.
    #[serde(deserialize_with = "packed::column")]
    pub names: Vec<u8>,
}
owns!(UnixRows { cookie, inode, kind, state, rqueue, wqueue, peer, name_end, names } flat {});

columns!(UnixRows { inode, cookie, kind, state, rqueue, wqueue, peer, name_end } beside { names });

impl UnixRows {
    /// The raw name of a row.
    #[must_use]
    pub fn name(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.name_end[i - 1] as usize };
        self.names.get(start..self.name_end[i] as usize).unwrap_or_default()
    }
}
