//! Reading the kernel. One file or folder per collector; each holds its parser and its
//! [`Collector`]. What it reads is a type of `sample`: raw counters and gauges, never rates.
//!
//! Collectors know nothing of rules, sorting or screens. To add one, write its file here and
//! that of its sample, and add one row to the table in `collectors`.

pub mod bpf;
pub mod cgroups;
pub mod cpu;
mod descriptors;
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
pub mod permission;
pub mod process_io;
pub mod processes;
pub mod psi;
pub mod registry;
pub mod sched;
pub mod sockets;
pub mod softirq;
mod task_owners;
pub mod tasks;
pub mod waits;

use std::fmt::Display;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sample::heap::Heap;
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Interest, Signal};
pub use host::HostFs;

/// Reads one area of the kernel.
pub trait Collector: Send + Sized + 'static {
    /// What one reading yields.
    type Sample: Serialize + serde::de::DeserializeOwned + Heap + Send + Sync + 'static;
    /// Stable name: recording key, command line name, health label.
    const ID: CollectorId;

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

    /// How often it wants a call of [`relieve`](Self::relieve) between two readings, whatever it
    /// found: a collector that samples. `None`: not at all.
    fn relief(&self) -> Option<Duration> {
        None
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

impl std::str::FromStr for NetnsScope {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "all" => Self::All,
            "self" => Self::Own,
            path => Self::Path(path.into()),
        })
    }
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

/// For tests that need what not every machine grants.
#[cfg(test)]
pub(crate) mod testing {
    use std::path::{Path, PathBuf};

    /// What was captured of real kernels: `tests/fixtures`, whichever package runs the test.
    pub(crate) fn fixtures() -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .find(|d| d.join("tests/fixtures").is_dir());
        root.unwrap_or(Path::new("")).join("tests/fixtures")
    }

    /// Says that a test cannot run here; a failure in CI, where it would pass for ever without
    /// testing.
    pub(crate) fn skip(why: &str) {
        use std::io::Write as _;
        // `eprintln!` would be swallowed with the output of the passing test.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run in CI: {why}");
    }
}
