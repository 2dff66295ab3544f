//! What the configuration of a host says of its rules. It is recorded with the host, so that a
//! recording is judged alike wherever it is played.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Empty where nothing is configured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleSettings {
    /// Disks that spin whatever the kernel says of them, by name: passed through to a virtual
    /// machine, they look virtual.
    pub rotational: Vec<String>,
    /// Limits instead of those that rules have, by rule.
    pub limits: BTreeMap<String, f64>,
}

impl RuleSettings {
    /// Whether nothing is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rotational.is_empty() && self.limits.is_empty()
    }
}
