//! Diagnosis: rules that look at windows of metrics, and the engine that turns their verdicts into
//! findings.
//!
//! A rule is one file under `rules/` and one line in [`RULES`]. It does no I/O, reads no clock
//! and keeps no state: hold times, clear times and hysteresis are the engine's job, and the history
//! of sockets and disks is kept in `metrics`.

pub mod blind;
pub mod culprit;
pub mod engine;
pub mod finding;
mod heap;
pub mod limits;
pub mod rules;
pub mod story;
pub mod told;
pub mod why;

use std::time::Duration;

pub use engine::Engine;
use engine::NOT_YET;
pub use finding::{
    Aspect, Confidence, Evidence, Finding, Findings, Fire, NotJudged, RuleId, RuledOut, Severity,
    Verdict,
};
pub(crate) use rules::common::enter::{Door, enter};
pub use rules::{LIMITS, RULES};
pub use story::{Explains, Scope};

pub use crate::metrics::history::Window;
use crate::sample::CollectorId;
use crate::sample::rule_settings::RuleSettings;
use crate::sample::subject::Subject;

/// A diagnosis rule.
#[derive(Debug)]
pub struct Rule {
    /// Its documentation, including its id and timing.
    pub doc: &'static RuleDoc,
    /// Does it raise findings, or only annotate?
    pub kind: Kind,
    /// Collectors that it cannot work without.
    pub needs: &'static [CollectorId],
    /// The findings that are consequences while this rule's finding is active.
    pub explains: &'static [Explains],
    /// Gives a verdict on every subject of interest in this window. A subject that is not
    /// mentioned counts as [`Verdict::Ok`].
    pub check: fn(&Window<'_>, &Thresholds, &mut Verdicts),
}

impl Rule {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> RuleId {
        self.doc.id
    }
}

/// How a rule's findings are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As findings: counted, ranked, a reason for exit code 1.
    Rule,
    /// As annotations: shown dimmed, never counted.
    Annotation,
}

/// What a rule means, for `stallscope rules ID`, README and reports.
#[derive(Debug)]
pub struct RuleDoc {
    /// Stable id, kebab-case.
    pub id: RuleId,
    /// One line: what it means when the rule fires.
    pub title: &'static str,
    /// The condition, with its numbers.
    pub condition: &'static str,
    /// What looks the same but is not, and how to tell the difference.
    pub look_alikes: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// Where the thresholds come from.
    pub sources: &'static str,
    /// How long the condition must be true, and for how long false before the finding clears.
    pub hold: Hold,
    /// How long it takes to fire when the fault is present from the start.
    pub needs_time: Duration,
}

/// Timing of a rule, in seconds of observed time; at one tick per second these are ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Fires after it was true for this many seconds ...
    pub need: u32,
    /// ... of the last this many.
    pub of: u32,
    /// Clears after it was false for this many consecutive seconds.
    pub clear: u32,
}

impl Hold {
    /// True for `need` of the last `of` seconds; clears after `2 * of` seconds of calm.
    #[must_use]
    pub const fn of(need: u32, of: u32) -> Self {
        Self { need, of, clear: 2 * of }
    }
    /// Fires immediately: the rule itself counts events. Clears after `clear` seconds of calm.
    #[must_use]
    pub const fn events(clear: u32) -> Self {
        Self { need: 0, of: 1, clear }
    }
}

/// Rule settings that a test or a configuration may change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thresholds {
    /// What is configured.
    pub settings: RuleSettings,
    /// There may be one sample only, with nothing known before or after it. Rules that want
    /// several samples do what they can with one, and all findings are suspected.
    pub single_sample: bool,
}

/// Collects the verdicts of a rule.
#[derive(Debug, Default)]
pub struct Verdicts {
    pub(crate) list: Vec<(Subject, Verdict)>,
    pub(crate) unknown: Vec<String>,
}

impl Verdicts {
    /// The condition is met for `subject`.
    pub fn fire(&mut self, subject: Subject, fire: Fire) {
        self.list.push((subject, Verdict::Fire(Box::new(fire))));
    }
    /// Not met, but not cleared either.
    pub fn linger(&mut self, subject: Subject) {
        self.list.push((subject, Verdict::Linger));
    }
    /// Certainly over: clear immediately.
    pub fn clear(&mut self, subject: Subject) {
        self.list.push((subject, Verdict::Clear));
    }
    /// An input for this subject is missing.
    pub fn unknown(&mut self, subject: Subject, why: impl Into<String>) {
        self.list.push((subject, Verdict::Unknown(why.into())));
    }
    /// An input for all subjects is missing.
    pub fn cannot_judge(&mut self, why: impl Into<String>) {
        self.unknown.push(why.into());
    }
}
