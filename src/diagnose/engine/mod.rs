//! From verdicts to findings: hold, clear, hysteresis, order.
//!
//! Time is counted in observed seconds, not in ticks, so a verdict does not depend on the sampling
//! interval. Time that was not observed does not count: an unknown verdict counts neither towards
//! firing nor towards clearing, a tick after a gap counts as one interval, and a rule whose input
//! is missing is not run. Confidence does not flicker either: an input that is missing once does
//! not turn a confirmed finding back into a suspected one.
//!
//! A single sample ([`Engine::single_sample`]) cannot show that a condition lasts: it is reported
//! as soon as it is seen, and is suspected at most.

mod track;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use track::{Now, Track};

use super::{
    Confidence, Finding, Findings, Kind, NotJudged, RULES, Rule, RuleId, Severity, Thresholds,
    Verdict, Verdicts, Window, story,
};
use crate::sample::CollectorId;
use crate::sample::rule_settings::RuleSettings;
use crate::sample::subject::Subject;
use crate::sample::tick::{HealthState, Tick};
use crate::sample::time::MonoNs;

/// A verdict covers at most this many nominal intervals.
const MAX_CREDIT: u32 = 3;
/// Cleared findings are remembered for this long ...
const REMEMBER: Duration = Duration::from_secs(3600);
/// ... and at most this many.
const MAX_CLEARED: usize = 200;
/// Subjects that one rule may track at a time; more have to wait until one clears.
const MAX_TRACKS: usize = 1000;
/// Reason for an unknown subject that is sampled in rotation and was not due in this tick. No
/// input is missing, so it is not reported.
pub(super) const NOT_YET: &str = "not read this time";

/// Runs the rules over snapshots, oldest first.
#[derive(Clone)]
pub struct Engine {
    rules: &'static [&'static Rule],
    thresholds: Thresholds,
    states: Vec<State>,
    cleared: VecDeque<(MonoNs, Arc<Finding>)>,
    last: Option<MonoNs>,
    last_hole: Option<MonoNs>,
}

/// Per-rule state.
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

    /// An engine for single samples, such as pasted text: a rule fires immediately, because no time
    /// is observed, and its findings are suspected at most.
    #[must_use]
    pub fn single_sample() -> Self {
        Self::new(RULES, Thresholds { single_sample: true, ..Thresholds::default() })
    }

    /// Judges by what is configured on the host that the snapshots are of.
    #[must_use]
    pub fn configured(mut self, settings: &RuleSettings) -> Self {
        self.thresholds.settings.clone_from(settings);
        self
    }

    /// Evaluates all rules on the next snapshot.
    pub fn push(&mut self, w: &Window<'_>) -> Findings {
        let now = w.tick.mono;
        let nominal = w.host.interval.max(Duration::from_millis(50));
        if let Some(last) = self.last {
            if now < last {
                // A reboot: nothing from before can be assumed to be still true.
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
            let moment = Now {
                mono: now,
                wall: w.tick.wall,
                nominal,
                longest: nominal * MAX_CREDIT,
                hole: self.last_hole,
                alone: self.thresholds.single_sample,
            };
            over.extend(state.take(rule, v.list, &moment, blind));
        }
        over.retain(|f| !self.superseded(f) && !self.only_notes(f.rule));
        self.cleared.extend(over.into_iter().map(|f| (now, f)));
        self.forget(now);
        self.report(w, not_judged)
    }

    /// A suspected finding about sockets or a disk that another active finding now covers. It was
    /// a step towards that one, not a problem that ended.
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

    /// Annotations leave no entry among the cleared findings.
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
        let story::Sorted { causes, folded, annotations } = story::sort(self.rules, w, active);
        Findings { active: causes, folded, annotations, cleared, not_judged }
    }
}

impl State {
    /// Applies a rule's verdicts; returns the findings that cleared. `blind`: the rule lacks an
    /// input, so subjects it did not mention are unknown, not ok.
    fn take(
        &mut self,
        rule: &Rule,
        verdicts: Vec<(Subject, Verdict)>,
        now: &Now,
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
                // Subjects that the rule did not mention are ok.
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

/// Subjects that a rule could not judge, grouped by the reason.
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

/// If a rule mentions a subject twice, the stronger verdict wins, in either order.
fn weight(v: &Verdict) -> (u8, Option<Severity>) {
    match v {
        Verdict::Fire(f) => (4, Some(f.severity)),
        Verdict::Linger => (3, None),
        Verdict::Unknown(_) => (2, None),
        Verdict::Ok => (1, None),
        Verdict::Clear => (0, None),
    }
}

/// Is this input missing? If the user asked for another network namespace only, its sockets
/// replace those of our own.
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
