//! Diagnosis of pasted text that no collector samples: the kernel log, `df`, `free`,
//! `conntrack -S`, `top` and sysstat.
//!
//! Findings carry the name of the rule whose pattern the numbers match. All are suspected: the text
//! describes the past, for as long as the tool ran. What is healthy gets a summary line only.

mod activity;
mod log;
mod network;
mod space;
mod tasks;

use std::sync::Arc;

use super::{Confidence, Finding, Fire, RuleId};
use crate::sample::subject::Subject;
use crate::sample::time::{MonoNs, WallNs};
use crate::sample::told::Told;

/// Rules that so far apply to pasted text only.
pub const RULES: &[&str] = &[
    "clock-slow",
    "compaction-stall",
    "conntrack-clash",
    "cpu-hw-throttle",
    "disk-errors",
    "fd-limit",
    "fs-full",
    "fs-inodes",
    "fs-read-only",
    "kernel-trouble",
    "md-degraded",
    "neigh-table-full",
    "nic-errors",
    "oom-kill",
    "task-hung",
    "task-limit",
];

/// The result.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Worst first.
    pub findings: Vec<Arc<Finding>>,
    /// Summary lines with the numbers, healthy or not.
    pub figures: Vec<String>,
}

impl Judged {
    fn fire(&mut self, rule: &'static str, subject: Subject, mut fire: Fire) {
        fire.confidence = Confidence::Suspected;
        self.findings.push(Arc::new(Finding {
            rule: RuleId(rule),
            subject,
            fire,
            since: MonoNs(0),
            // Pasted text has no timestamp.
            first_seen: WallNs(0),
            last_seen: WallNs(0),
            active: true,
            cause: None,
        }));
    }
}

/// Diagnoses pasted text.
#[must_use]
pub fn judge(told: &Told) -> Judged {
    let mut out = Judged::default();
    log::judge(&told.log, &mut out);
    space::filesystems(&told.filesystems, &mut out);
    space::memory(&told.memory, &mut out);
    network::conntrack(told, &mut out);
    tasks::judge(told, &mut out);
    activity::cpus(&told.cpus, &mut out);
    activity::links(&told.links, &mut out);
    activity::paging(&told.paging, &mut out);
    out.findings.sort_by_key(|f| std::cmp::Reverse(f.fire.severity));
    out
}

/// A number with its noun: `3 file systems`.
fn some(n: u64, one: &str) -> String {
    plural(n, one, &format!("{one}s"))
}

/// [`some`] for nouns with an irregular plural.
fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
