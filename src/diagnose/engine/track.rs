//! The state of one rule for one subject.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::super::{Confidence, Finding, Fire, Rule, Verdict};
use crate::sample::subject::Subject;
use crate::sample::time::{MonoNs, WallNs};

/// A verdict over an interval up to this long is taken to be true throughout the interval.
const LONG: Duration = Duration::from_secs(6);

/// The point in time being evaluated.
pub(super) struct Now {
    pub(super) mono: MonoNs,
    pub(super) wall: WallNs,
    /// Nominal sampling interval.
    pub(super) nominal: Duration,
    /// The longest time that one verdict may cover.
    pub(super) longest: Duration,
    /// The first tick after the last gap in the series.
    pub(super) hole: Option<MonoNs>,
    /// A single sample: the time between it and others was not observed.
    pub(super) alone: bool,
}

impl Now {
    /// The time that a verdict covers, given when the previous verdict was made.
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
    /// Recent verdicts: time, time covered, whether it fired.
    recent: VecDeque<(MonoNs, Duration, bool)>,
    /// Time of the last verdict other than unknown.
    judged_at: Option<MonoNs>,
    /// Since when the condition has been true, across gaps shorter than the hold window.
    true_since: Option<(MonoNs, WallNs)>,
    /// Observed time without the condition.
    calm: Duration,
    /// Suspected only, after having been confirmed: for how long, and in how many verdicts.
    doubt: (Duration, u32),
    pub(super) finding: Option<Arc<Finding>>,
}

impl Track {
    /// A subject that was ok at `judged_at`.
    pub(super) fn new(judged_at: Option<MonoNs>) -> Self {
        Self { judged_at, ..Self::default() }
    }

    /// Is there any state worth keeping?
    pub(super) fn is_live(&self) -> bool {
        self.finding.is_some() || self.recent.iter().any(|r| r.2)
    }

    /// Applies one verdict; returns the finding if it cleared.
    pub(super) fn step(
        &mut self,
        rule: &Rule,
        subject: &Subject,
        verdict: Verdict,
        now: &Now,
    ) -> Option<Arc<Finding>> {
        let hold = rule.doc.hold;
        let credit = now.credit(self.judged_at);
        // A quarter of a tick of slack: five ticks of 0.999 s are five seconds.
        let slack = credit / 4;
        // A long interval yields a mean: five seconds at four times the threshold look like twenty
        // at the threshold. A second interval must agree.
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
                // Short ones from before the console changed its interval agree with nothing.
                let fired = self.recent.iter().filter(|r| r.2 && (!long || r.1 > LONG));
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
            // Single samples are independent of each other.
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

    /// A confirmed finding stays confirmed while an input is briefly missing: a counter that was
    /// not read this time, a collector that is late. It falls back to suspected only after the
    /// clear time, and never because of a single verdict, however long that covers.
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
        now: &Now,
    ) -> Finding {
        let hold = rule.doc.hold;
        if let Some(old) = &self.finding {
            // Severity never drops while a finding is active, so that it does not flap.
            fire.severity = fire.severity.max(old.fire.severity);
        }
        if now.alone && fire.confidence == Confidence::Confirmed {
            fire.confidence = Confidence::Suspected;
            if hold.need > 0 {
                let why = format!("whether it lasts {} s: these are single samples", hold.need);
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

    /// When the condition began: as given by the rule, or when it first fired.
    fn begin(&mut self, fire: &Fire, now: &Now) -> (MonoNs, WallNs) {
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
