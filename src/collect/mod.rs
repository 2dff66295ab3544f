//! Reading the kernel. One file or folder per collector; each holds its sample type (raw
//! counters and gauges, never rates), its parser and its [`Collector`].
//!
//! Collectors know nothing of rules, sorting or screens. To add one, write its file and add
//! one line to [`registry`].

pub mod bpf;
pub mod cgroups;
pub mod cpu;
pub mod disks;
pub mod enter;
pub mod filesystems;
pub mod host;
pub mod hot;
pub mod kmsg;
pub mod limits;
pub mod memory;
mod names;
pub mod namespaces;
pub mod net_counters;
pub mod netdev;
pub mod own;
pub mod packed;
pub mod parse;
pub mod permission;
pub mod processes;
pub mod psi;
pub mod registry;
pub mod sched;
pub mod sockets;
pub mod softirq;
pub mod tasks;

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::heap::Heap;
use crate::model::subject::SockId;
use crate::model::time::{MonoNs, Span};
pub use host::HostFs;
pub use registry::{CollectorId, Samples};

/// A sample with the time at which it was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stamped<S> {
    /// Start and end of the reading.
    pub span: Span,
    /// CPU time that the reading used on its thread.
    pub cpu: Duration,
    /// What was read.
    pub data: S,
}

/// The thread a collector runs on. Collectors of one role run one after the other; roles
/// never wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// sock_diag of the namespace that we started in.
    HostSockets,
    /// sock_diag of all other namespaces; uses `setns`, so it owns its thread.
    NetnsWalker,
    /// Small files of `/proc` and `/sys` that cannot block.
    Files,
    /// `/proc/PID` and cgroup walks: many files, which may be slow.
    Tasks,
    /// eBPF programs; may have a mount namespace of its own.
    Bpf,
}

/// Reads one area of the kernel.
pub trait Collector: Send + Sized + 'static {
    /// What one reading yields.
    type Sample: Serialize + serde::de::DeserializeOwned + Heap + Send + Sync + 'static;
    /// Stable name: recording key, command line name, health label.
    const ID: CollectorId;
    /// The thread it runs on.
    const ROLE: Role;

    /// Finds out whether the kernel offers what this collector needs.
    ///
    /// # Errors
    /// [`Unavailable`], with the reason and the remedy to show.
    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable>;

    /// One reading. A row that cannot be parsed is left out and counted in the signals; only
    /// a reading that yields nothing at all is an error.
    ///
    /// # Errors
    /// [`CollectError`] when nothing could be read this time.
    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<Self::Sample, CollectError>;

    /// Empties what the kernel fills and loses from when it is full, into the next reading.
    /// Called every [`RELIEF`] at least while `is_filling`, or where readings are far apart.
    fn relieve(&mut self) {}

    /// Did the last reading find so much that the kernel's buffers may be full before the next?
    fn is_filling(&self) -> bool {
        false
    }

    /// What this collector offers right now, one entry per signal a user knows by name.
    fn signals(&self, out: &mut Vec<Signal>);
}

/// Longest time between two looks at buffers of the kernel that fill, or might: a wakeup more
/// costs an idle box as much as a small collector.
pub const RELIEF: Duration = Duration::from_millis(500);
/// Buffers hold what is promised for as long as this without a look.
pub const UNRELIEVED: Duration = Duration::from_secs(1);

/// What a collector is told for one reading.
pub struct SampleContext<'a> {
    /// When the reading began.
    pub at: MonoNs,
    /// Nominal distance of two readings.
    pub interval: Duration,
    /// What the screen shows and the findings name: detail is wanted for these.
    pub interest: &'a Interest,
}

/// What deserves detail: the rows on the screen and in findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Sockets whose `tcp_info` and owner are wanted.
    pub sockets: Vec<SockId>,
    /// Socket inodes whose owning process is wanted.
    pub inodes: Vec<u32>,
}

/// Settings that collectors obey.
#[derive(Clone, Debug)]
pub struct CollectOptions {
    /// Which network namespaces are read.
    pub netns: NetnsScope,
    /// Whether eBPF programs may be loaded.
    pub bpf: BpfMode,
    /// Share of one core that the namespace walker may use, 0 to 1.
    pub netns_budget: f64,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self { netns: NetnsScope::All, bpf: BpfMode::Auto, netns_budget: 0.03 }
    }
}

/// Which network namespaces are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetnsScope {
    /// Every namespace that a process or a mount holds.
    All,
    /// Only our own.
    Own,
    /// Only the one behind this path, such as `/run/netns/blue`.
    Path(std::path::PathBuf),
}

/// Whether eBPF programs may be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BpfMode {
    /// Where the kernel lets us.
    Auto,
    /// Never.
    Off,
}

/// Why a collector cannot run here, and what would change that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{reason}")]
pub struct Unavailable {
    /// What is missing, such as `no /proc/schedstat (CONFIG_SCHEDSTATS is off)`.
    pub reason: String,
    /// What the user can do, such as `run as root`; empty when nothing helps.
    pub remedy: String,
}

impl Unavailable {
    /// Builds one from its two sentences.
    pub fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { reason: reason.into(), remedy: remedy.into() }
    }

    /// What the kernel said about `what`. A limit that was hit, or a right that is lacking, has
    /// its own remedy; `otherwise` is for everything else.
    pub fn because(what: impl Display, e: &std::io::Error, otherwise: impl Into<String>) -> Self {
        Self::new(format!("{what}: {e}"), remedy_of(e).map_or(otherwise.into(), str::to_owned))
    }
}

/// What helps against errors that mean the same whatever was read.
#[must_use]
pub fn remedy_of(e: &std::io::Error) -> Option<&'static str> {
    use rustix::io::Errno;
    match Errno::from_io_error(e)? {
        Errno::MFILE => Some("raise the limit of open files (ulimit -n, LimitNOFILE=)"),
        Errno::NFILE => Some("raise fs.file-max: the system is out of open files"),
        Errno::NOMEM => Some("raise the memory limit of the service, container or shell"),
        Errno::ACCESS | Errno::PERM if !rustix::process::geteuid().is_root() => {
            Some(permission::AS_ROOT)
        }
        _ => None,
    }
}

/// Why one reading failed.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// A file or directory could not be read.
    #[error("{path}: {source}")]
    Read {
        /// Path below the host root.
        path: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A file held something else than its format.
    #[error("{path}: line {line}: {what}")]
    Format {
        /// Path below the host root.
        path: String,
        /// Line number from 1.
        line: usize,
        /// What was expected.
        what: String,
    },
    /// A netlink exchange failed.
    #[error("netlink {what}: {source}")]
    Netlink {
        /// Which exchange.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
}

impl CollectError {
    /// A read error with its path.
    pub fn read(path: impl Into<String>, source: std::io::Error) -> Self {
        Self::Read { path: path.into(), source }
    }
}

/// One thing a user can see here, and how well it is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// Name a user knows, such as `run-queue latency`.
    pub signal: Cow<'static, str>,
    /// Where it comes from, such as `netlink`, `diskstats`, `ebpf`.
    pub source: Cow<'static, str>,
    /// How well.
    #[serde(flatten)]
    pub status: SignalStatus,
    /// What of it cannot be seen although it is there: a fault in it would not be found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Unseen>,
}

/// Something that is there, as far as can be told, and cannot be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// In the singular where it is counted: `network namespace`.
    pub what: Cow<'static, str>,
    /// How many.
    pub extent: Extent,
}

/// How much of something is not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// What cannot be counted: `memory`.
    Whole,
    /// So many.
    Exactly(u32),
    /// So many or more.
    AtLeast(u32),
    /// Whether there is any at all cannot be seen either.
    Unknown,
}

/// How well a signal is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum SignalStatus {
    /// As good as it gets.
    Ok,
    /// Measured with less detail or precision.
    Degraded {
        /// What is less good, and why.
        reason: String,
        /// What would repair it.
        remedy: String,
    },
    /// Not measured.
    Missing {
        /// Why.
        reason: String,
        /// What would repair it.
        remedy: String,
    },
}

impl Signal {
    /// A signal that works.
    pub fn ok(signal: &'static str, source: &'static str) -> Self {
        Self {
            signal: signal.into(),
            source: source.into(),
            status: SignalStatus::Ok,
            unseen: None,
        }
    }
    /// A signal that works with less than it could.
    pub fn degraded(
        signal: &'static str,
        source: &'static str,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            signal: signal.into(),
            source: source.into(),
            status: SignalStatus::Degraded { reason: reason.into(), remedy: remedy.into() },
            unseen: None,
        }
    }
    /// A signal that is not there.
    pub fn missing(
        signal: &'static str,
        source: &'static str,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            signal: signal.into(),
            source: source.into(),
            status: SignalStatus::Missing { reason: reason.into(), remedy: remedy.into() },
            unseen: None,
        }
    }
    /// The same with what cannot be seen of it.
    #[must_use]
    pub fn unseen(mut self, what: impl Into<Cow<'static, str>>, extent: Extent) -> Self {
        self.unseen = Some(Unseen { what: what.into(), extent });
        self
    }
}

/// A stamped sample that many readers share.
pub type Shared<S> = Arc<Stamped<S>>;

/// For tests that need what not every machine grants.
#[cfg(test)]
pub(crate) mod testing {
    /// Says that a test cannot run here; a failure in CI, where it would pass for ever without
    /// testing.
    pub(crate) fn skip(why: &str) {
        use std::io::Write as _;
        // `eprintln!` would be swallowed with the output of the passing test.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run in CI: {why}");
    }
}
