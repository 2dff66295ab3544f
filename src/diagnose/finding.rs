//! Findings as data. Nothing here knows how they are displayed.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::culprit::Culprit;
use crate::sample::subject::{SockId, Subject, TaskId};
use crate::sample::time::{MonoNs, WallNs};

/// Stable, public name of a rule: kebab-case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RuleId(pub &'static str);

impl std::fmt::Display for RuleId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is broken.
    Info,
    /// Work is slower than it should be.
    Warn,
    /// Work has stopped or is lost.
    Crit,
}

impl Severity {
    /// As written in JSON and text.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Crit => "crit",
        }
    }
    /// The mark in front of rows and findings.
    #[must_use]
    pub fn mark(self) -> &'static str {
        match self {
            Self::Info => "-",
            Self::Warn => "!",
            Self::Crit => "!!",
        }
    }
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// All inputs were available.
    Confirmed,
    /// An input is missing or covers one sample only.
    Suspected,
}

/// One number that supports a finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// Field name as in the kernel or tool: `rto`, `aqu-sz`, `run_delay`.
    pub field: Cow<'static, str>,
    /// The value; `None` if the evidence is not a number.
    pub value: Option<f64>,
    /// Its unit: `ms`, `bytes`, `%`, empty for a count.
    pub unit: &'static str,
    /// The threshold that it crossed, in the same unit.
    pub threshold: Option<f64>,
    /// A human-readable fragment: `5 consecutive RTOs (rto 6.53 s = 204 ms << 5)`.
    pub text: String,
}

impl Evidence {
    /// Evidence with a number.
    pub fn new(
        field: &'static str,
        value: f64,
        unit: &'static str,
        text: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), value: Some(value), unit, threshold: None, text: text.into() }
    }
    /// Evidence as text only.
    pub fn text(field: &'static str, text: impl Into<String>) -> Self {
        Self { field: field.into(), value: None, unit: "", threshold: None, text: text.into() }
    }
    /// Adds the threshold that was crossed.
    #[must_use]
    pub fn over(mut self, threshold: f64) -> Self {
        self.threshold = Some(threshold);
        self
    }
}

/// A look-alike that was ruled out, and the number that did it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuledOut {
    /// The other rule, or a short name of the look-alike.
    pub rule: Cow<'static, str>,
    /// The number: `snd_wnd 65160 > 0`.
    pub because: String,
}

impl RuledOut {
    /// A look-alike ruled out `because` of a number.
    pub fn new(rule: &'static str, because: impl Into<String>) -> Self {
        Self { rule: rule.into(), because: because.into() }
    }
}

/// Some subjects have several aspects, displayed in different places: a CPU has softirqs, and a
/// run queue of waiting threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aspect {
    /// Wherever the subject is shown.
    #[default]
    Whole,
    /// The threads that wait for a CPU, not the work the CPU does.
    RunQueue,
}

/// What a rule reports for one subject in one tick.
#[derive(Clone, Debug)]
pub struct Fire {
    /// How bad.
    pub severity: Severity,
    /// How sure.
    pub confidence: Confidence,
    /// One sentence without a full stop: what is wrong, with the most important number.
    pub summary: String,
    /// How many items of the subject are affected (sockets of a peer); at least 1.
    pub count: u32,
    /// Some of them by name, at most 5.
    pub examples: Vec<String>,
    /// The sockets affected, for marking rows; at most 1000.
    pub sockets: Vec<SockId>,
    /// The threads affected, for marking rows.
    pub tasks: Vec<TaskId>,
    /// The aspect of the subject that it is about.
    pub aspect: Aspect,
    /// The numbers.
    pub evidence: Vec<Evidence>,
    /// Who on this host uses what the others wait for, most first, at most three. Empty if nobody
    /// can be named.
    pub by: Vec<Culprit>,
    /// Look-alikes that were ruled out.
    pub ruled_out: Vec<RuledOut>,
    /// Commands to run next, with the actual names filled in.
    pub next: Vec<String>,
    /// Missing inputs and what is unknown because of them: `cannot tell: no /proc/schedstat`.
    pub missing: Vec<String>,
    /// When the condition began, if the rule knows; otherwise the engine uses the first firing.
    pub since: Option<MonoNs>,
}

impl Fire {
    /// A fire with its severity and summary; the caller fills in the rest.
    pub fn new(severity: Severity, summary: impl Into<String>) -> Self {
        Self {
            severity,
            confidence: Confidence::Confirmed,
            summary: summary.into(),
            count: 1,
            examples: Vec::new(),
            sockets: Vec::new(),
            tasks: Vec::new(),
            aspect: Aspect::Whole,
            evidence: Vec::new(),
            by: Vec::new(),
            ruled_out: Vec::new(),
            next: Vec::new(),
            missing: Vec::new(),
            since: None,
        }
    }
}

/// A rule's answer for one subject.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The condition is met now.
    Fire(Box<Fire>),
    /// Neither the condition nor the clear condition is met: an active finding stays, with its
    /// old numbers.
    Linger,
    /// The condition is not met; an active finding clears after the clear time.
    Ok,
    /// Certainly over (data was acknowledged): clear immediately.
    Clear,
    /// An input is missing.
    Unknown(String),
}

/// A finding: a rule's condition that was met for long enough.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: RuleId,
    /// What it is about.
    pub subject: Subject,
    /// The rule's latest report.
    pub fire: Fire,
    /// When the condition began.
    pub since: MonoNs,
    /// The same in wall-clock time.
    pub first_seen: WallNs,
    /// When the condition was last seen to be true.
    pub last_seen: WallNs,
    /// False once it has cleared.
    pub active: bool,
    /// The finding of the same tick that explains this one.
    pub cause: Option<(RuleId, Subject)>,
}

/// Why a rule did not judge a subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotJudged {
    /// The rule.
    pub rule: RuleId,
    /// What is missing.
    pub why: String,
}

/// All findings as of one tick.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Active findings that no other one explains, worst first.
    pub active: Vec<std::sync::Arc<Finding>>,
    /// Active findings that one of those explains, worst first.
    pub folded: Vec<std::sync::Arc<Finding>>,
    /// Findings of annotation rules.
    pub annotations: Vec<std::sync::Arc<Finding>>,
    /// Cleared in the last hour, most recent first.
    pub cleared: Vec<std::sync::Arc<Finding>>,
    /// Rules that could not judge anything, and why.
    pub not_judged: Vec<NotJudged>,
}

impl Findings {
    /// The worst severity of the active findings.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.all().map(|f| f.fire.severity).max()
    }
    /// All active findings: causes and consequences.
    pub fn all(&self) -> impl Iterator<Item = &std::sync::Arc<Finding>> {
        self.active.iter().chain(&self.folded)
    }
    /// The findings that `cause` explains.
    pub fn consequences(&self, cause: &Finding) -> impl Iterator<Item = &std::sync::Arc<Finding>> {
        self.folded.iter().filter(move |f| {
            f.cause.as_ref().is_some_and(|(r, s)| *r == cause.rule && *s == cause.subject)
        })
    }
    /// The worst severity of a finding and everything it explains, as displayed on the row that
    /// represents them all. The finding's own severity covers its own condition only.
    #[must_use]
    pub fn severity(&self, f: &Finding) -> Severity {
        let explained = self.consequences(f).map(|c| c.fire.severity).max();
        explained.map_or(f.fire.severity, |s| s.max(f.fire.severity))
    }
    /// The cause of `f`.
    #[must_use]
    pub fn cause_of(&self, f: &Finding) -> Option<&std::sync::Arc<Finding>> {
        let (rule, subject) = f.cause.as_ref()?;
        self.active.iter().find(|c| c.rule == *rule && c.subject == *subject)
    }
}
