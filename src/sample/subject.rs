//! What a verdict is about: sockets, peers, disks, CPUs, cgroups, namespaces.
//!
//! Ids are small and ordered; names are carried beside them for display and are not
//! part of equality where an id exists.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A network namespace: the inode of `/proc/PID/ns/net`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NetnsId(pub u64);

/// A socket: cookies are unique per namespace before Linux 5.11 and per host after.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct SockId {
    /// Namespace the socket lives in.
    pub netns: NetnsId,
    /// `idiag_cookie`, high word shifted left by 32.
    pub cookie: u64,
}

/// A block device number as `/proc/diskstats` prints it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct DiskId {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// A logical CPU number. Collectors join on it, never on a row index.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct CpuId(pub u32);

/// A cgroup directory: the inode, as `INET_DIAG_CGROUP_ID` reports it for v2. For v1 it is
/// the inode of the directory in the controller's own hierarchy.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct CgroupId(pub u64);

/// Is the cgroup at `path` the one at `group`, or one below it?
#[must_use]
pub fn is_within(path: &str, group: &str) -> bool {
    let rest = path.strip_prefix(group.trim_end_matches('/'));
    rest.is_some_and(|r| r.is_empty() || r.starts_with('/'))
}

/// A thread: `tid` is unique on the host at one moment, `start` makes it unique for ever.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct TaskId {
    /// Process (thread group) id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// `starttime` of `/proc/PID/task/TID/stat`, clock ticks since boot.
    pub start: u64,
}

impl fmt::Display for NetnsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}
impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu{}", self.0)
    }
}

/// An address with a port, printed as `10.0.0.2:80` or `[fe80::1]:80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// Address; v4-mapped v6 addresses are unmapped.
    pub addr: IpAddr,
    /// Port in host byte order; 0 stands for any.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addr {
            IpAddr::V4(a) => write!(f, "{a}:")?,
            IpAddr::V6(a) => write!(f, "[{a}]:")?,
        }
        if self.port == 0 { f.write_str("*") } else { write!(f, "{}", self.port) }
    }
}

/// What a finding is about. Equality and order identify the finding across ticks, so a
/// variant holds identity only; counts and examples live in the finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Subject {
    /// The machine as a whole.
    Host,
    /// All sockets of one namespace to one remote endpoint, with one cause.
    Peer {
        /// Remote endpoint.
        remote: Endpoint,
        /// Namespace of the sockets.
        netns: NetnsId,
    },
    /// A listening socket.
    Listener {
        /// Bound endpoint.
        local: Endpoint,
        /// Namespace of the socket.
        netns: NetnsId,
    },
    /// A network namespace as a whole.
    Netns {
        /// The namespace.
        netns: NetnsId,
    },
    /// A network device.
    Link {
        /// Its name.
        dev: String,
        /// Namespace that it is in.
        netns: NetnsId,
    },
    /// A block device.
    Disk {
        /// Kernel name, such as `vdb` or `dm-0`.
        name: String,
        /// Device number.
        dev: DiskId,
    },
    /// A mounted file system.
    Filesystem {
        /// Where it is mounted, raw.
        mount: String,
        /// Device number of the file system.
        dev: DiskId,
    },
    /// A CPU.
    Cpu {
        /// The CPU.
        cpu: CpuId,
    },
    /// A cgroup.
    Cgroup {
        /// Path below the hierarchy's mount point.
        path: String,
        /// Directory inode.
        id: CgroupId,
    },
    /// A thread.
    Task {
        /// The thread.
        task: TaskId,
        /// Its `comm`, raw.
        comm: String,
    },
    /// A process, as the holder of sockets of one namespace.
    Process {
        /// Process id.
        pid: u32,
        /// Its `comm`, raw.
        comm: String,
        /// Namespace of the sockets.
        netns: NetnsId,
    },
    /// Tasks in uninterruptible sleep, in one function of the kernel.
    Blocked {
        /// The function; `None` if hidden.
        function: Option<String>,
    },
    /// A listening UNIX socket.
    UnixListener {
        /// Path, or `@name` of an abstract one. Raw.
        path: String,
        /// Namespace of the socket.
        netns: NetnsId,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Peer { remote, .. } => write!(f, "{remote}"),
            Self::Listener { local, .. } => write!(f, "{local}"),
            Self::Netns { netns } => write!(f, "netns {netns}"),
            Self::Link { dev, .. } => f.write_str(dev),
            Self::Disk { name, .. } => f.write_str(name),
            Self::Filesystem { mount, .. } => f.write_str(mount),
            Self::Cpu { cpu } => write!(f, "{cpu}"),
            Self::Cgroup { path, .. } => write!(f, "cgroup {path}"),
            Self::Task { task, comm } => write!(f, "{comm}/{}", task.tid),
            Self::Process { pid, comm, .. } => write!(f, "{comm}/{pid}"),
            Self::Blocked { function: Some(name) } => write!(f, "tasks in {name}"),
            Self::Blocked { function: None } => f.write_str("blocked tasks"),
            Self::UnixListener { path, .. } => f.write_str(path),
        }
    }
}
