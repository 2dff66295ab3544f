//! When an incident begins, goes on and ends: the decisions of the flight recorder, by ticks and
//! their findings. Pure: time comes from the ticks.
//!
//! A finding begins an incident when it becomes active and the [`Trigger`] names it. Further ones
//! prolong it: it ends [`Settings::after`] the last of them began, and after
//! [`Settings::longest`] in any case. What caused it, the rule and the subject of the finding that
//! no other one explains, begins no other incident until [`Settings::quiet`] has passed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::diagnose::{Finding, Findings, RuleId, Severity};
use crate::sample::subject::Subject;
use crate::sample::time::MonoNs;

#[cfg(test)]
mod tests;

/// Causes that are remembered at a time: a rule tracks a thousand subjects.
const MOST_CAUSES: usize = 10_000;

/// Which findings begin an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Those of this severity or worse. A consequence does not: its cause does.
    Severity(Severity),
    /// Those of these rules, whatever their severity.
    Rules(Vec<RuleId>),
}

impl Trigger {
    fn names(&self, f: &Finding) -> bool {
        match self {
            Self::Severity(least) => f.fire.severity >= *least,
            Self::Rules(rules) => rules.contains(&f.rule),
        }
    }
}

/// How incidents are told apart.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What begins one.
    pub trigger: Trigger,
    /// How long it goes on after the last finding that belongs to it began.
    pub after: Duration,
    /// How long it may be.
    pub longest: Duration,
    /// For how long after it the same causes begin no other.
    pub quiet: Duration,
}

/// What an incident is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// The rule ...
    pub rule: RuleId,
    /// ... and what it found something about.
    pub subject: Subject,
}

impl Cause {
    /// Of a finding that no other one explains.
    #[must_use]
    pub fn of(f: &Finding) -> Self {
        Self { rule: f.rule, subject: f.subject.clone() }
    }

    /// The finding as of now, active or cleared.
    #[must_use]
    pub fn in_findings<'a>(&self, all: &'a Findings) -> Option<&'a Arc<Finding>> {
        let mut every = all.all().chain(&all.cleared);
        every.find(|f| f.rule == self.rule && f.subject == self.subject)
    }
}

/// Why an incident ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing further began.
    Over,
    /// It became too long.
    Longest,
    /// It became too large.
    Size,
    /// The recorder was told to end.
    Stopped,
}

impl Why {
    /// As one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::Longest => "longest",
            Self::Size => "size",
            Self::Stopped => "stopped",
        }
    }
}

/// What a tick changes.
#[derive(Debug, Default)]
pub struct Step {
    /// The incident that was under way ended before this tick's findings.
    pub end: Option<Why>,
    /// The finding with which another one begins, and how many began since the last incident
    /// without one, because of [`Settings::quiet`].
    pub begin: Option<(Arc<Finding>, u64)>,
    /// Others that belong to it.
    pub joined: Vec<Arc<Finding>>,
    /// Those that began and got no incident, because of [`Settings::quiet`].
    pub quiet: Vec<Arc<Finding>>,
}

/// The incident under way.
#[derive(Debug)]
struct Open {
    begun: MonoNs,
    /// When the last finding that belongs to it began.
    last: MonoNs,
    causes: BTreeSet<Cause>,
    /// Is there a file of it? Otherwise the next one may be about the same.
    kept: bool,
}

/// Decides.
#[derive(Debug)]
pub struct Watch {
    settings: Settings,
    open: Option<Open>,
    /// When the last incident about a cause ended.
    ended: BTreeMap<Cause, MonoNs>,
    /// What the trigger named in the last tick, and the causes of that.
    named: BTreeSet<Cause>,
    roots: BTreeSet<Cause>,
    /// Beginnings since the last incident that were not one.
    suppressed: u64,
}

impl Watch {
    /// Nothing has begun.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            open: None,
            ended: BTreeMap::new(),
            named: BTreeSet::new(),
            roots: BTreeSet::new(),
            suppressed: 0,
        }
    }

    /// Takes in the findings of the next tick.
    pub fn push(&mut self, now: MonoNs, findings: &Findings) -> Step {
        let begun = self.begun(findings);
        let mut step = Step::default();
        if let Some(open) = &mut self.open {
            let why = if now.since(open.begun) >= self.settings.longest {
                Why::Longest
            } else if begun.is_empty() && now.since(open.last) >= self.settings.after {
                Why::Over
            } else {
                if !begun.is_empty() {
                    open.last = now;
                    open.causes.extend(begun.iter().map(|f| Cause::of(f)).take(MOST_CAUSES));
                }
                step.joined = begun;
                return step;
            };
            self.end(now);
            step.end = Some(why);
        }
        self.ended.retain(|_, at| now.since(*at) < self.settings.quiet);
        match begun.iter().position(|f| !self.ended.contains_key(&Cause::of(f))) {
            None => {
                self.suppressed += begun.len() as u64;
                step.quiet = begun;
            }
            Some(worst) => {
                let causes = begun.iter().map(|f| Cause::of(f)).collect();
                self.open = Some(Open { begun: now, last: now, causes, kept: false });
                let mut others = begun;
                let first = others.remove(worst);
                step.begin = Some((first, std::mem::take(&mut self.suppressed)));
                step.joined = others;
            }
        }
        step
    }

    /// There is a file of the incident under way.
    pub fn kept(&mut self) {
        if let Some(open) = &mut self.open {
            open.kept = true;
        }
    }

    /// Ends the incident under way.
    pub fn end(&mut self, now: MonoNs) {
        if let Some(open) = self.open.take().filter(|o| o.kept) {
            self.ended.extend(open.causes.into_iter().map(|c| (c, now)));
            while self.ended.len() > MOST_CAUSES {
                self.ended.pop_first();
            }
        }
    }

    /// Beginnings since the last incident that were not one.
    #[must_use]
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }

    /// When the incident under way ends if nothing further begins.
    #[must_use]
    pub fn ends_at(&self) -> Option<MonoNs> {
        let open = self.open.as_ref()?;
        Some((open.last + self.settings.after).min(open.begun + self.settings.longest))
    }

    /// The causes of what the trigger names and did not name in the last tick, worst first.
    fn begun(&mut self, findings: &Findings) -> Vec<Arc<Finding>> {
        let (mut named, mut roots) = (BTreeSet::new(), BTreeSet::new());
        let mut out: Vec<Arc<Finding>> = Vec::new();
        for f in findings.all().filter(|f| self.settings.trigger.names(f)) {
            let root = findings.cause_of(f).unwrap_or(f);
            let (me, top) = (Cause::of(f), Cause::of(root));
            // A consequence of what is known begins nothing, unless somebody asked for it.
            let own = f.cause.is_none() || matches!(self.settings.trigger, Trigger::Rules(_));
            let begins = !self.named.contains(&me) && (own || !self.roots.contains(&top));
            if begins && !out.iter().any(|o| Arc::ptr_eq(o, root)) {
                out.push(root.clone());
            }
            named.insert(me);
            roots.insert(top);
        }
        (self.named, self.roots) = (named, roots);
        out
    }
}
