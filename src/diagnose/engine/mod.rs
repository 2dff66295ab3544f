//! From verdicts to findings: hold, clear, hysteresis, order.
//!
//! Time is counted in observed seconds, not in ticks, so that a verdict does not depend on the
//! interval. What was not observed does not count: an unknown verdict neither holds nor clears,
//! a tick after a hole stands for one interval, and a rule whose input is missing is not asked.
//! Nor does a finding become less certain for a moment: an input that a rule misses once does not
//! take back what was confirmed before.
//!
//! Of single samples ([`Engine::single_sample`]) nothing is known to last: there a condition is
//! reported as soon as it is seen, and never as more than a suspicion.

mod track;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use track::{Moment, Track};

use super::{
    Confidence, Finding, Findings, Kind, NotJudged, RULES, Rule, RuleId, Severity, Thresholds,
    Verdict, Verdicts, Window, story,
};
use crate::collect::CollectorId;
use crate::model::subject::Subject;
use crate::model::tick::{HealthState, Tick};
use crate::model::time::MonoNs;

/// A verdict stands for at most so many nominal intervals.
const MAX_CREDIT: u32 = 3;
/// Cleared findings are remembered for so long ...
const REMEMBER: Duration = Duration::from_secs(3600);
/// ... and at most so many of them.
const MAX_CLEARED: usize = 200;
/// Subjects that one rule may have open; further ones wait until one clears.
const MAX_TRACKS: usize = 1000;
/// Why a subject is unknown that is read in turn: no input is missing, and nobody is told.
pub(super) const NOT_YET: &str = "not read this time";

/// Runs rules over moments, oldest first.
#[derive(Clone)]
pub struct Engine {
    rules: &'static [&'static Rule],
    thresholds: Thresholds,
    states: Vec<State>,
    cleared: VecDeque<(MonoNs, Arc<Finding>)>,
    last: Option<MonoNs>,
    last_hole: Option<MonoNs>,
}

/// What is remembered of a rule.
#[derive(Clone, Debug, Default)]
struct State {
    tracks: BTreeMap<Subject, Track>,
    judged_at: Option<MonoNs>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("rules", &self.rules.len())
            .field("tracks", &self.states.iter().map(|s| s.tracks.len()).sum::<usize>())
            .finish_non_exhaustive()
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::new(RULES, Thresholds::default())
    }
}

impl Engine {
    /// An engine over these rules.
    #[must_use]
    pub fn new(rules: &'static [&'static Rule], thresholds: Thresholds) -> Self {
        Self {
            rules,
            thresholds,
            states: rules.iter().map(|_| State::default()).collect(),
            cleared: VecDeque::new(),
            last: None,
            last_hole: None,
        }
    }

    /// An engine for single samples, such as pasted text: what a rule says fires at once, for
    /// no time is observed, and is suspected at most.
    #[must_use]
    pub fn single_sample() -> Self {
        Self::new(RULES, Thresholds { single_sample: true, ..Thresholds::default() })
    }

    /// Judges the next moment.
    pub fn push(&mut self, w: &Window<'_>) -> Findings {
        let now = w.tick.mono;
        let nominal = w.host.interval.max(Duration::from_millis(50));
        if let Some(last) = self.last {
            if now < last {
                // Another boot: nothing that was true before is known to be true now.
                self.states = self.rules.iter().map(|_| State::default()).collect();
                self.last_hole = None;
            } else if now.since(last) > nominal * MAX_CREDIT {
                self.last_hole = Some(now);
            }
        }
        self.last = Some(now);
        let mut not_judged = Vec::new();
        let mut over = Vec::new();
        for (rule, state) in self.rules.iter().zip(&mut self.states) {
            if let Some(missing) = rule.needs.iter().find(|c| lacks(w.tick, **c)) {
                let why = why_missing(w.tick, *missing);
                not_judged.extend(why.map(|why| NotJudged { rule: rule.id(), why }));
                continue;
            }
            let mut v = Verdicts::default();
            (rule.check)(w, &self.thresholds, &mut v);
            let blind = !v.unknown.is_empty();
            not_judged.extend(unknown(rule.id(), &v.list));
            not_judged.extend(v.unknown.drain(..).map(|why| NotJudged { rule: rule.id(), why }));
            let moment = Moment {
                mono: now,
                wall: w.tick.wall,
                nominal,
                longest: nominal * MAX_CREDIT,
                hole: self.last_hole,
                alone: self.thresholds.single_sample,
            };
            over.extend(state.take(*rule, v.list, &moment, blind));
        }
        over.retain(|f| !self.superseded(f) && !self.only_notes(f.rule));
        self.cleared.extend(over.into_iter().map(|f| (now, f)));
        self.forget(now);
        self.report(w, not_judged)
    }

    /// A suspicion about sockets or a disk for which another finding is active by now: it was a
    /// step on the way to that one, and nothing that came to an end.
    fn superseded(&self, f: &Finding) -> bool {
        let disk = matches!(f.subject, Subject::Disk { .. });
        f.fire.confidence == Confidence::Suspected
            && self
                .states
                .iter()
                .flat_map(|s| s.tracks.values())
                .filter_map(|t| t.finding.as_ref())
                .any(|a| {
                    let same = a.subject == f.subject && a.fire.severity >= f.fire.severity;
                    (disk && same && !self.only_notes(a.rule))
                        || a.fire.sockets.iter().any(|s| f.fire.sockets.contains(s))
                })
    }

    /// Remarks come and go without a trace.
    fn only_notes(&self, rule: RuleId) -> bool {
        self.rules.iter().any(|r| r.id() == rule && r.kind == Kind::Annotation)
    }

    fn forget(&mut self, now: MonoNs) {
        while self.cleared.len() > MAX_CLEARED
            || self.cleared.front().is_some_and(|(at, _)| now.since(*at) > REMEMBER)
        {
            self.cleared.pop_front();
        }
    }

    fn report(&self, w: &Window<'_>, not_judged: Vec<NotJudged>) -> Findings {
        let tracks = self.states.iter().flat_map(|s| s.tracks.values());
        let mut active: Vec<Arc<Finding>> = tracks.filter_map(|t| t.finding.clone()).collect();
        active.sort_by(|a, b| {
            (b.fire.severity, b.fire.count, a.since, a.rule, &a.subject).cmp(&(
                a.fire.severity,
                a.fire.count,
                b.since,
                b.rule,
                &b.subject,
            ))
        });
        let cleared = self.cleared.iter().rev().map(|c| c.1.clone()).collect();
        let story::Sorted { causes, folded, notes } = story::sort(self.rules, w, active);
        Findings { active: causes, folded, notes, cleared, not_judged }
    }
}

impl State {
    /// Takes in what a rule said; returns the findings that cleared. `blind`: the rule lacks an
    /// input, so what it did not mention is unknown, not fine.
    fn take(
        &mut self,
        rule: &Rule,
        verdicts: Vec<(Subject, Verdict)>,
        now: &Moment,
        blind: bool,
    ) -> Vec<Arc<Finding>> {
        let mut said: BTreeMap<Subject, Verdict> = BTreeMap::new();
        for (subject, verdict) in verdicts {
            match said.entry(subject) {
                std::collections::btree_map::Entry::Vacant(e) => {
                    e.insert(verdict);
                }
                std::collections::btree_map::Entry::Occupied(mut e) => {
                    if weight(&verdict) > weight(e.get()) {
                        e.insert(verdict);
                    }
                }
            }
        }
        let mut cleared = Vec::new();
        for (subject, track) in &mut self.tracks {
            let verdict = match said.remove(subject) {
                Some(v) => v,
                None if blind => continue,
                // Subjects that the rule did not mention are fine.
                None => Verdict::Ok,
            };
            cleared.extend(track.step(rule, subject, verdict, now));
        }
        for (subject, verdict) in said {
            if matches!(verdict, Verdict::Fire(_)) && self.tracks.len() < MAX_TRACKS {
                let mut track = Track::new(self.judged_at);
                cleared.extend(track.step(rule, &subject, verdict, now));
                self.tracks.insert(subject, track);
            }
        }
        self.judged_at = Some(now.mono);
        self.tracks.retain(|_, t| t.is_live());
        cleared
    }
}

/// Subjects of which a rule could not tell, by what it lacks.
fn unknown(rule: RuleId, list: &[(Subject, Verdict)]) -> Vec<NotJudged> {
    let mut by: BTreeMap<&str, (&Subject, usize)> = BTreeMap::new();
    for (subject, verdict) in list {
        if let Verdict::Unknown(why) = verdict
            && why != NOT_YET
        {
            by.entry(why).or_insert((subject, 0)).1 += 1;
        }
    }
    let text = |(why, (first, n)): (&str, (&Subject, usize))| match n {
        1 => format!("{first}: {why}"),
        n => format!("{first} and {} more: {why}", n - 1),
    };
    by.into_iter().map(|x| NotJudged { rule, why: text(x) }).collect()
}

/// A rule that mentions a subject twice means the stronger verdict, whatever their order.
fn weight(v: &Verdict) -> (u8, Option<Severity>) {
    match v {
        Verdict::Fire(f) => (4, Some(f.severity)),
        Verdict::Linger => (3, None),
        Verdict::Unknown(_) => (2, None),
        Verdict::Ok => (1, None),
        Verdict::Clear => (0, None),
    }
}

/// Is this input missing? Sockets of other namespaces stand in for those of our own where the
/// user asked for another namespace only: that one is what is to be judged.
fn lacks(tick: &Tick, id: CollectorId) -> bool {
    let off =
        || tick.health.iter().any(|h| h.id == id && matches!(h.state, HealthState::Off { .. }));
    let elsewhere = id == CollectorId::Sockets && tick.samples.netns_sockets.is_some() && off();
    tick.samples.span(id).is_none() && !elsewhere
}

/// Why a collector's sample is not in this tick; `None` when it is merely not due.
fn why_missing(tick: &Tick, id: CollectorId) -> Option<String> {
    let state = tick.health.iter().find(|h| h.id == id).map(|h| &h.state);
    let name = id.name();
    match state {
        Some(HealthState::Thinned { .. }) => None,
        Some(HealthState::Late { age }) => {
            Some(format!("{name}: the last reading is {:.0} s old", age.as_secs_f64()))
        }
        Some(HealthState::Failed { error }) => Some(format!("{name}: {error}")),
        Some(HealthState::Off { reason, .. }) => Some(format!("{name}: {reason}")),
        Some(HealthState::Fresh) | None => Some(format!("{name}: not sampled")),
    }
}
