//! What a reader of ticks asks of the next ones.

use super::subject::SockId;

/// What deserves detail: the rows on the screen and in findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Sockets whose `tcp_info` and owner are wanted.
    pub sockets: Vec<SockId>,
    /// Socket inodes whose owning process is wanted.
    pub inodes: Vec<u32>,
    /// Processes that somebody asked about, by number: what do their threads wait for?
    pub processes: Vec<u32>,
}
