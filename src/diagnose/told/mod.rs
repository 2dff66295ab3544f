//! Judging what pasted text says beyond the samples of a collector: the kernel's log, `df`,
//! `free`, `conntrack -S`, `top` and sysstat.
//!
//! Findings bear the names of the rules whose pattern the numbers match. All are suspicions: text
//! tells what was, for as long as the tool looked. What is well gets a line of figures and no more.

mod activity;
mod log;
mod network;
mod space;
mod tasks;

use std::sync::Arc;

use super::{Confidence, Finding, Fire, RuleId};
use crate::model::subject::Subject;
use crate::model::time::{MonoNs, WallNs};
use crate::model::told::Told;

/// Rules that only pasted text is judged by so far.
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

/// What came out of it.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Worst first.
    pub findings: Vec<Arc<Finding>>,
    /// Lines that say what the numbers are, whether well or not.
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
            // Nobody stamped what was pasted.
            first_seen: WallNs(0),
            last_seen: WallNs(0),
            active: true,
            cause: None,
        }));
    }
}

/// Judges it.
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

/// `3 file systems`: the number with its noun.
fn some(n: u64, one: &str) -> String {
    plural(n, one, &format!("{one}s"))
}

/// [`some`] of a noun with a plural of its own.
fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
