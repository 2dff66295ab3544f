//! The `Tick`: one sample of everything. The only thing that flows and the only thing that
//! is recorded; all else is a pure function of ticks.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rule_settings::RuleSettings;
use super::time::{MonoNs, Seq, WallNs};
use super::{CollectorId, Samples, Signal};

/// One sample of everything: raw counters with the times at which they were read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tick {
    /// Number within the run.
    pub seq: Seq,
    /// `CLOCK_MONOTONIC` when the tick was put together.
    pub mono: MonoNs,
    /// `CLOCK_REALTIME` at the same moment.
    pub wall: WallNs,
    /// What was read. `None`: off, late or failed; `health` says which.
    pub samples: Samples,
    /// One entry per collector.
    pub health: Vec<CollectorHealth>,
    /// Ticks that are missing before this one.
    pub gap: Option<Gap>,
}

/// How one collector fared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorHealth {
    /// Which.
    pub id: CollectorId,
    /// How it fared.
    pub state: HealthState,
    /// What it offers, by names that a user knows.
    pub signals: Vec<Signal>,
}

/// How one collector fared in this tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthState {
    /// Its sample is in the tick.
    Fresh,
    /// It reads every n-th tick only, to stay inside its budget; not due now.
    Thinned {
        /// Every how many ticks.
        every: u32,
    },
    /// Its reading did not end in time; it is still under way.
    Late {
        /// Since the last sample arrived.
        age: Duration,
    },
    /// Its reading failed.
    Failed {
        /// What the kernel said.
        error: String,
    },
    /// It cannot run here.
    Off {
        /// Why.
        reason: String,
        /// What would change that.
        remedy: String,
    },
}

/// A hole in the series: deadlines that passed without a tick, because the program was stopped
/// or did not get the CPU, and ticks that whoever takes them was too slow for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// How many ticks are missing.
    pub ticks: u32,
}

/// What does not change during a run: shown in headers, stored once per recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostInfo {
    /// Host name, raw.
    pub hostname: String,
    /// Kernel release.
    pub kernel: String,
    /// Random id of this boot.
    pub boot_id: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Physical memory, bytes.
    pub memory_bytes: u64,
    /// Bytes per page.
    pub page_size: u32,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` at start, ns.
    pub wall_offset_ns: i64,
    /// Nominal distance of two ticks; the console can change it.
    pub interval: Duration,
    /// The distance with which ticks were taken, where most of them were left out later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinned_from: Option<Duration>,
    /// Effective user id.
    pub uid: u32,
    /// Our own network namespace, for `host` labels.
    pub netns: Option<super::subject::NetnsId>,
    /// This program's version.
    pub tool: String,
    /// What is configured for rules.
    #[serde(skip_serializing_if = "RuleSettings::is_empty")]
    pub rules: Arc<RuleSettings>,
}
