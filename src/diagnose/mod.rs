//! Judging: rules over windows of figures, and the engine that turns verdicts into findings.
//!
//! A rule is one file under `rules/` and one line in [`RULES`]. It does no I/O, reads no clock
//! and holds no state: hold times, clear times and hysteresis live in the engine, memory of
//! sockets and disks in `model::derive`.

pub mod engine;
pub mod finding;
mod heap;
pub mod rules;
pub mod story;
pub mod told;

use std::time::Duration;

pub use engine::Engine;
use engine::NOT_YET;
pub use finding::{
    Aspect, Confidence, Evidence, Finding, Findings, Fire, NotJudged, RuleId, RuledOut, Severity,
    Verdict,
};
pub use rules::RULES;
pub(crate) use rules::common::enter::{Door, enter};
pub use story::{Explains, Scope};

use crate::collect::CollectorId;
pub use crate::model::history::Window;
use crate::model::subject::Subject;

/// A pattern that is recognised.
#[derive(Debug)]
pub struct Rule {
    /// Its documentation, which also holds its id and its timing.
    pub doc: &'static RuleDoc,
    /// Does it alarm, or only annotate?
    pub kind: Kind,
    /// Collectors without which it cannot say anything.
    pub needs: &'static [CollectorId],
    /// What its finding explains: findings that are consequences while this one is active.
    pub explains: &'static [Explains],
    /// Judges every subject that is worth a verdict in this window. A subject that is not
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

/// What becomes of a rule's findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They are findings: counted, ranked, a reason for exit code 1.
    Rule,
    /// They are remarks for somebody who looks: shown dim, never counted.
    Annotation,
}

/// What a rule means, for `stallscope rules ID`, README and reports.
#[derive(Debug)]
pub struct RuleDoc {
    /// Stable id, kebab-case.
    pub id: RuleId,
    /// One line: what it means when this fires.
    pub title: &'static str,
    /// The condition, with its numbers.
    pub condition: &'static str,
    /// What looks the same and is not, and how they are told apart.
    pub look_alikes: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// Where the thresholds come from.
    pub sources: &'static str,
    /// Timing.
    pub hold: Hold,
    /// How long to observe, from a start with the fault present, until it can fire.
    pub needs_time: Duration,
}

/// Timing of a rule, in seconds of observed time; at one tick per second these are ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Fires after it was true for this many seconds ...
    pub need: u32,
    /// ... of the last so many.
    pub of: u32,
    /// Clears after it was false for this many seconds on end.
    pub clear: u32,
}

impl Hold {
    /// True for `need` of the last `of` seconds; clears after `2 * of` seconds of calm.
    #[must_use]
    pub const fn of(need: u32, of: u32) -> Self {
        Self { need, of, clear: 2 * of }
    }
    /// Fires at once: the rule itself counts events. Clears after `clear` seconds of calm.
    #[must_use]
    pub const fn events(clear: u32) -> Self {
        Self { need: 0, of: 1, clear }
    }
}

/// Settings of rules that a test or a configuration may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// Devices whose `rotational` attribute is taken as true whatever their class says: for
    /// passed-through disks that look virtual.
    pub rotational: Vec<String>,
    /// There may be one sample only, and nobody knows what was before and after: rules that
    /// want several say what they can of one. Findings are suspicions then, whatever they say.
    pub single_sample: bool,
}

/// Where rules put their verdicts.
#[derive(Debug, Default)]
pub struct Verdicts {
    pub(crate) list: Vec<(Subject, Verdict)>,
    pub(crate) unknown: Vec<String>,
}

impl Verdicts {
    /// The condition holds for `subject`.
    pub fn fire(&mut self, subject: Subject, fire: Fire) {
        self.list.push((subject, Verdict::Fire(Box::new(fire))));
    }
    /// It does not hold, but is not clear either.
    pub fn linger(&mut self, subject: Subject) {
        self.list.push((subject, Verdict::Linger));
    }
    /// It is over beyond doubt.
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
