//! From verdicts to findings: hold, clear, hysteresis, order.
//!
//! Time is counted in observed seconds, not in ticks, so that a verdict does not depend on the
//! interval. A tick after a hole counts for at most [`MAX_CREDIT`] intervals: what was not
//! observed does not count.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{
    Finding, Findings, Fire, NotJudged, RULES, Rule, Severity, Thresholds, Verdict, Verdicts,
    Window,
};
use crate::model::subject::Subject;
use crate::model::time::{MonoNs, WallNs};

/// A tick stands for at most so many nominal intervals.
const MAX_CREDIT: u32 = 3;
/// Cleared findings are remembered for so long ...
const REMEMBER: Duration = Duration::from_secs(3600);
/// ... and at most so many of them.
const MAX_CLEARED: usize = 200;

/// State of one rule for one subject.
#[derive(Debug, Default)]
struct Track {
    /// Recent verdicts: when, for how long they stand, whether they fired.
    recent: VecDeque<(MonoNs, Duration, bool)>,
    /// Condition true since, over holes shorter than the hold window.
    true_since: Option<(MonoNs, WallNs)>,
    /// Calm for how long, observed.
    calm: Duration,
    finding: Option<Arc<Finding>>,
}

/// Runs rules over moments, oldest first.
pub struct Engine {
    rules: &'static [&'static dyn Rule],
    thresholds: Thresholds,
    tracks: BTreeMap<(usize, Subject), Track>,
    cleared: VecDeque<(MonoNs, Arc<Finding>)>,
    last: Option<MonoNs>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("rules", &self.rules.len())
            .field("tracks", &self.tracks.len())
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
    pub fn new(rules: &'static [&'static dyn Rule], thresholds: Thresholds) -> Self {
        Self { rules, thresholds, tracks: BTreeMap::new(), cleared: VecDeque::new(), last: None }
    }

    /// Judges the next moment.
    pub fn push(&mut self, w: &Window<'_>) -> Findings {
        let now = w.tick.mono;
        let nominal = w.host.interval.max(Duration::from_millis(50));
        let credit = self.last.map_or(nominal, |l| now.since(l)).min(nominal * MAX_CREDIT);
        self.last = Some(now);
        let mut not_judged = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let mut v = Verdicts::default();
            rule.check(w, &self.thresholds, &mut v);
            for why in v.unknown {
                not_judged.push(NotJudged { rule: rule.id(), why });
            }
            self.take(index, *rule, v.list, (now, w.tick.wall), credit);
        }
        self.forget(now);
        self.report(not_judged)
    }

    fn take(
        &mut self,
        index: usize,
        rule: &dyn Rule,
        verdicts: Vec<(Subject, Verdict)>,
        now: (MonoNs, WallNs),
        credit: Duration,
    ) {
        let mut by_subject: BTreeMap<Subject, Verdict> = verdicts.into_iter().collect();
        // Subjects that the rule did not mention are fine.
        let silent: Vec<Subject> = self
            .tracks
            .keys()
            .filter(|(i, s)| *i == index && !by_subject.contains_key(s))
            .map(|(_, s)| s.clone())
            .collect();
        by_subject.extend(silent.into_iter().map(|s| (s, Verdict::Ok)));
        for (subject, verdict) in by_subject {
            let key = (index, subject);
            let fires = matches!(verdict, Verdict::Fire(_));
            if !fires && !self.tracks.contains_key(&key) {
                continue;
            }
            let track = self.tracks.entry(key.clone()).or_default();
            if let Some(done) = track.step(rule, &key.1, verdict, now, credit) {
                self.cleared.push_front((now.0, done));
            }
        }
    }

    fn forget(&mut self, now: MonoNs) {
        self.tracks.retain(|_, t| t.finding.is_some() || t.recent.iter().any(|r| r.2));
        while self.cleared.len() > MAX_CLEARED
            || self.cleared.back().is_some_and(|(at, _)| now.since(*at) > REMEMBER)
        {
            self.cleared.pop_back();
        }
    }

    fn report(&self, not_judged: Vec<NotJudged>) -> Findings {
        let mut active: Vec<Arc<Finding>> =
            self.tracks.values().filter_map(|t| t.finding.clone()).collect();
        active.sort_by(|a, b| {
            (b.fire.severity, b.fire.count, a.since, a.rule, &a.subject).cmp(&(
                a.fire.severity,
                a.fire.count,
                b.since,
                b.rule,
                &b.subject,
            ))
        });
        Findings { active, cleared: self.cleared.iter().map(|c| c.1.clone()).collect(), not_judged }
    }
}

impl Track {
    /// Takes in one verdict; returns the finding when it cleared.
    fn step(
        &mut self,
        rule: &dyn Rule,
        subject: &Subject,
        verdict: Verdict,
        (mono, wall): (MonoNs, WallNs),
        credit: Duration,
    ) -> Option<Arc<Finding>> {
        let hold = rule.doc().hold;
        let window = Duration::from_secs(u64::from(hold.of));
        // Unknown says nothing: it neither holds nor clears.
        if !matches!(verdict, Verdict::Unknown(_)) {
            self.recent.push_back((mono, credit, matches!(verdict, Verdict::Fire(_))));
        }
        while self.recent.front().is_some_and(|r| mono.since(r.0) + credit / 2 >= window)
            && self.recent.len() > 1
        {
            self.recent.pop_front();
        }
        match verdict {
            Verdict::Fire(fire) => {
                self.calm = Duration::ZERO;
                let begun = *self.true_since.get_or_insert((mono, wall));
                let held: Duration = self.recent.iter().filter(|r| r.2).map(|r| r.1).sum();
                // Half a tick of slack: five ticks of 0.999 s are five seconds.
                let enough = held + credit / 2 >= Duration::from_secs(u64::from(hold.need));
                if enough || self.finding.is_some() {
                    self.finding =
                        Some(Arc::new(self.finding(rule, subject, *fire, begun, (mono, wall))));
                }
                None
            }
            Verdict::Clear => self.clear(),
            Verdict::Ok => {
                self.calm += credit;
                if self.calm + credit / 2 >= Duration::from_secs(u64::from(hold.clear)) {
                    return self.clear();
                }
                None
            }
            Verdict::Linger => {
                self.calm = Duration::ZERO;
                None
            }
            Verdict::Unknown(_) => None,
        }
    }

    fn finding(
        &self,
        rule: &dyn Rule,
        subject: &Subject,
        mut fire: Fire,
        begun: (MonoNs, WallNs),
        now: (MonoNs, WallNs),
    ) -> Finding {
        if let Some(old) = &self.finding {
            // A finding does not get milder while it lasts: the ladder is climbed, not danced on.
            fire.severity = fire.severity.max(old.fire.severity);
        }
        let since = fire.since.map_or(begun.0, |s| s.min(begun.0));
        let earlier = begun.0.since(since).as_nanos() as i64;
        let fresh = (since, WallNs(begun.1.0.saturating_sub(earlier)));
        let (since, first_seen) = self
            .finding
            .as_ref()
            .map_or(fresh, |f| if f.since <= fresh.0 { (f.since, f.first_seen) } else { fresh });
        Finding {
            rule: rule.id(),
            subject: subject.clone(),
            fire,
            since,
            first_seen,
            last_seen: now.1,
            active: true,
        }
    }

    fn clear(&mut self) -> Option<Arc<Finding>> {
        self.recent.clear();
        self.true_since = None;
        self.calm = Duration::ZERO;
        let f = self.finding.take()?;
        Some(Arc::new(Finding { active: false, ..(*f).clone() }))
    }
}

/// Exit code of `check` follows from this: warn or worse counts.
#[must_use]
pub fn is_finding(severity: Severity) -> bool {
    severity >= Severity::Warn
}
