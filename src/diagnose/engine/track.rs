//! The state of one rule for one subject.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::super::{Confidence, Finding, Fire, Rule, Verdict};
use crate::model::subject::Subject;
use crate::model::time::{MonoNs, WallNs};

/// Intervals up to this are taken for what happened in all of them.
const LONG: Duration = Duration::from_secs(6);

/// The moment that is judged.
pub(super) struct Moment {
    pub(super) mono: MonoNs,
    pub(super) wall: WallNs,
    /// Nominal distance of ticks.
    pub(super) nominal: Duration,
    /// What one verdict may stand for at most.
    pub(super) longest: Duration,
    /// The first moment after the last hole in the series.
    pub(super) hole: Option<MonoNs>,
    /// It stands alone: time between it and others was not observed.
    pub(super) alone: bool,
}

impl Moment {
    /// For how long a verdict stands when the one before it was given at `before`.
    fn credit(&self, before: Option<MonoNs>) -> Duration {
        match before {
            None => self.nominal,
            Some(b) if self.hole.is_some_and(|h| b < h) => self.nominal,
            Some(b) => self.mono.since(b).min(self.longest),
        }
    }
}

/// State of one rule for one subject.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    /// Recent verdicts: when, for how long they stand, whether they fired.
    recent: VecDeque<(MonoNs, Duration, bool)>,
    /// When it was last judged; an unknown verdict is no judgement.
    judged_at: Option<MonoNs>,
    /// Condition true since, over holes shorter than the hold window.
    true_since: Option<(MonoNs, WallNs)>,
    /// Calm for how long, observed.
    calm: Duration,
    /// Only suspected after it was confirmed: for how long, and in how many verdicts.
    doubt: (Duration, u32),
    pub(super) finding: Option<Arc<Finding>>,
}

impl Track {
    /// A subject that the rule had nothing to say about at `judged_at`.
    pub(super) fn new(judged_at: Option<MonoNs>) -> Self {
        Self { judged_at, ..Self::default() }
    }

    /// Has it anything to remember?
    pub(super) fn is_live(&self) -> bool {
        self.finding.is_some() || self.recent.iter().any(|r| r.2)
    }

    /// Takes in one verdict; returns the finding when it cleared.
    pub(super) fn step(
        &mut self,
        rule: &Rule,
        subject: &Subject,
        verdict: Verdict,
        now: &Moment,
    ) -> Option<Arc<Finding>> {
        let hold = rule.doc.hold;
        let credit = now.credit(self.judged_at);
        // A quarter of a tick of slack: five ticks of 0.999 s are five seconds.
        let slack = credit / 4;
        // What a long interval says is a mean: five seconds at four times the threshold look like
        // twenty at the threshold. Another one must say the same.
        let long = credit > LONG && hold.need > 0;
        let (window, times) = match Duration::from_secs(u64::from(hold.of)) {
            of if long => (of.max(2 * credit), 2),
            of => (of, 1),
        };
        if !matches!(verdict, Verdict::Unknown(_)) {
            self.judged_at = Some(now.mono);
            self.recent.push_back((now.mono, credit, matches!(verdict, Verdict::Fire(_))));
        }
        while self.recent.len() > 1
            && self.recent.front().is_some_and(|r| now.mono.since(r.0) + slack >= window)
        {
            self.recent.pop_front();
        }
        match verdict {
            Verdict::Fire(fire) => {
                self.calm = Duration::ZERO;
                let begun = self.begin(&fire, now);
                let fired = self.recent.iter().filter(|r| r.2);
                let held: Duration = fired.clone().map(|r| r.1).sum();
                let enough = held + slack >= Duration::from_secs(u64::from(hold.need))
                    && fired.count() >= times;
                if now.alone || enough || self.finding.is_some() {
                    let fire = self.settle(*fire, credit, hold.clear);
                    self.finding = Some(Arc::new(self.finding(rule, subject, fire, begun, now)));
                }
                None
            }
            Verdict::Clear => self.clear(),
            // Samples that stand alone do not go on from each other.
            Verdict::Ok if now.alone => self.clear(),
            Verdict::Ok => {
                self.calm += credit;
                if self.calm + slack >= Duration::from_secs(u64::from(hold.clear)) {
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

    /// What was confirmed stays confirmed while an input is missing for a moment: a counter that
    /// was not read this time, a collector that is late. It is only suspected again after as much
    /// time as it would take to clear, and not for a single verdict however long it stands.
    fn settle(&mut self, mut fire: Fire, credit: Duration, clear: u32) -> Fire {
        let confirmed = |f: &&Arc<Finding>| f.fire.confidence == Confidence::Confirmed;
        let before = self.finding.as_ref().filter(confirmed);
        let (Some(before), Confidence::Suspected) = (before, fire.confidence) else {
            self.doubt = (Duration::ZERO, 0);
            return fire;
        };
        self.doubt = (self.doubt.0 + credit, self.doubt.1 + 1);
        let lasting = self.doubt.0 + credit / 4 >= Duration::from_secs(u64::from(clear));
        if lasting && self.doubt.1 > 1 {
            return fire;
        }
        fire.confidence = Confidence::Confirmed;
        fire.missing.clone_from(&before.fire.missing);
        fire
    }

    fn finding(
        &self,
        rule: &Rule,
        subject: &Subject,
        mut fire: Fire,
        begun: (MonoNs, WallNs),
        now: &Moment,
    ) -> Finding {
        let hold = rule.doc.hold;
        if let Some(old) = &self.finding {
            // A finding does not get milder while it lasts: the ladder is climbed, not danced on.
            fire.severity = fire.severity.max(old.fire.severity);
        }
        if now.alone && fire.confidence == Confidence::Confirmed {
            fire.confidence = Confidence::Suspected;
            if hold.need > 0 {
                let why = format!("whether it lasts ({} s are wanted): single samples", hold.need);
                fire.missing.push(why);
            }
        }
        Finding {
            rule: rule.id(),
            subject: subject.clone(),
            fire,
            since: begun.0,
            first_seen: begun.1,
            last_seen: now.wall,
            active: true,
            cause: None,
        }
    }

    /// When the condition began: when the rule says, or when it first fired.
    fn begin(&mut self, fire: &Fire, now: &Moment) -> (MonoNs, WallNs) {
        let since = fire.since.unwrap_or(now.mono).min(now.mono);
        let ago = i64::try_from(now.mono.since(since).as_nanos()).unwrap_or(i64::MAX);
        let fresh = (since, WallNs(now.wall.0.saturating_sub(ago)));
        let begun = self.true_since.filter(|b| b.0 <= since).unwrap_or(fresh);
        self.true_since = Some(begun);
        begun
    }

    fn clear(&mut self) -> Option<Arc<Finding>> {
        self.recent.clear();
        self.true_since = None;
        self.calm = Duration::ZERO;
        self.doubt = (Duration::ZERO, 0);
        let f = self.finding.take()?;
        Some(Arc::new(Finding { active: false, ..(*f).clone() }))
    }
}
