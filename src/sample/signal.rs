//! What a user can see here, and how well it is measured.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

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

/// How a remedy begins where root lacks a capability, as in a container; its name follows.
pub const GRANT: &str = "grant ";
/// How a remedy begins where a reading did not come.
pub const LOOK_AGAIN: &str = "try again";
