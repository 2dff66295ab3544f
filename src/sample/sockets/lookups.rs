//! What is looked up beside the rows: who holds a socket, and which way its packets go.

use serde::{Deserialize, Serialize};

use crate::sample::heap::{Heap, owns};

/// The process that holds a socket inode open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Owner {
    /// Socket inode.
    pub inode: u32,
    /// Process id.
    pub pid: u32,
    /// Its `comm`, raw.
    pub comm: String,
    /// May it run at all?
    pub life: Life,
    /// Processes that hold it, this one among them: those that were forked inherit a listener.
    /// 0 where nobody counted.
    pub holders: u16,
}
owns!(Owner { comm } flat { inode, pid, life, holders });

impl Owner {
    /// Of a process that is as usual.
    #[must_use]
    pub fn new(inode: u32, pid: u32, comm: impl Into<String>) -> Self {
        Self { inode, pid, comm: comm.into(), ..Self::default() }
    }
}

/// Whether a process may run, by the state letter of its first thread (`/proc/PID/stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Life {
    /// It runs, or sleeps until something wakes it.
    #[default]
    Normal,
    /// `T`: by SIGSTOP or job control.
    Stopped,
    /// `t`: by a debugger.
    Traced,
    /// `Z` or `X`: it has ended.
    Ended,
}

impl Life {
    /// By the state letter.
    #[must_use]
    pub fn of(state: u8) -> Self {
        match state {
            b'T' => Self::Stopped,
            b't' => Self::Traced,
            b'Z' | b'X' | b'x' => Self::Ended,
            _ => Self::Normal,
        }
    }
}

/// What `RTM_GETROUTE` said of a socket's destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteAnswer {
    /// Cookie of the socket that was asked for.
    pub cookie: u64,
    /// The output interface, or the errno (positive), such as 101 `ENETUNREACH`.
    pub outcome: RouteOutcome,
}
owns!(RouteAnswer { outcome } flat { cookie });

/// Result of a route lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteOutcome {
    /// A route exists through this interface.
    Via {
        /// Interface index.
        ifindex: u32,
        /// Interface name, raw.
        dev: String,
        /// The next hop, where the neighbour table was asked for it (since 5.0).
        #[serde(default)]
        hop: Option<NextHop>,
    },
    /// The kernel refused, with this errno.
    Errno(i32),
}

impl Heap for RouteOutcome {
    fn heap(&self, _: Option<&Self>) -> usize {
        match self {
            Self::Via { ifindex: _, dev, hop: _ } => dev.heap(None),
            Self::Errno(_) => 0,
        }
    }
}

/// The gateway, or the peer itself where it is on the link, as the neighbour table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextHop {
    /// Its address.
    pub addr: [u8; 16],
    /// What is known of its link-layer address.
    pub state: NeighState,
}

impl NextHop {
    /// Nobody answers for it on the link: what is sent there is discarded on this host.
    #[must_use]
    pub fn is_unresolved(self) -> bool {
        matches!(self.state, NeighState::Incomplete | NeighState::Failed)
    }
}

/// `ndm_state` of a neighbour, as far as it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NeighState {
    /// There is no entry.
    #[default]
    Absent,
    /// `NUD_INCOMPLETE`: asked for, no answer yet.
    Incomplete,
    /// `NUD_FAILED`: asked for, no answer.
    Failed,
    /// Any other: the address is known, or not needed.
    Known,
}
