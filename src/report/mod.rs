//! The same findings as text: text for an incident channel, JSON for programs. And the figures of
//! a recording as tables.

pub mod doctor;
pub mod explain;
pub mod info;
pub mod json;
pub mod page;
pub mod rights;
pub mod rules;
pub mod save;
pub mod table;
pub mod text;
pub mod why;

use std::sync::Arc;
use std::time::Duration;

use crate::analysis::Analysis;
use crate::diagnose::blind::{self, BlindSpot, blind_spots};
use crate::diagnose::{Finding, Findings, NotJudged, RULES, Severity};
use crate::metrics::coverage::coverage;
use crate::sample::rule_settings::RuleSettings;
use crate::sample::tick::HostInfo;
use crate::sample::time::WallNs;
use crate::sample::{Signal, SignalStatus};

/// The result of watching for a while.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// The machine.
    pub host: HostInfo,
    /// `live`, or the file's name.
    pub source: String,
    /// Wall clock of the first tick.
    pub started: Option<WallNs>,
    /// From the first tick to the last.
    pub duration: Duration,
    /// Ticks seen.
    pub ticks: u64,
    /// What was measured, and how well.
    pub coverage: Vec<Signal>,
    /// Active ones, causes worst first, each followed by its consequences; then those that have
    /// ended.
    pub findings: Vec<Arc<Finding>>,
    /// Annotations, which are not findings.
    pub annotations: Vec<Arc<Finding>>,
    /// Rules that could not judge, or needed more time.
    pub not_judged: Vec<NotJudged>,
    /// What was not checked, most important first: a fault there was not found.
    pub blind: Vec<BlindSpot>,
    /// Of a recording: what could not be read.
    pub unread: Option<Vec<String>>,
    /// Of a recording: settings that were used earlier in it, where they differ from those of
    /// `host`.
    pub earlier_rules: Vec<Arc<RuleSettings>>,
}

impl CheckReport {
    /// The report of a finished run.
    #[must_use]
    pub fn new(analysis: &Analysis, source: &str, observed: Observed) -> Self {
        let mut report = Self::of(analysis, source, observed);
        if analysis.latest().is_none() {
            return report;
        }
        for rule in RULES {
            let need = rule.doc.needs_time;
            let known = report.not_judged.iter().any(|n| n.rule == rule.id())
                || report.findings.iter().any(|f| f.rule == rule.id());
            if known {
                continue;
            }
            if observed.ticks < 2 {
                let why = "one tick gives no rates".to_owned();
                report.not_judged.push(NotJudged { rule: rule.id(), why });
            } else if need > observed.duration + observed.interval {
                report.not_judged.push(NotJudged {
                    rule: rule.id(),
                    why: format!(
                        "needs {} s of observation, had {:.0} s",
                        need.as_secs(),
                        observed.duration.as_secs_f64()
                    ),
                });
            }
        }
        report
    }

    /// The report of pasted text: the engine says what its samples lack, and no time was observed
    /// that could have been too short.
    ///
    /// `told`: what the text says beyond samples.
    #[must_use]
    pub fn of_paste(analysis: &Analysis, samples: u64, told: &[Arc<Finding>]) -> Self {
        let observed = Observed { ticks: samples, ..Observed::default() };
        let mut report = Self::of(analysis, "paste", observed);
        if !told.is_empty() {
            report.findings.extend(told.iter().cloned());
            report.findings.sort_by_key(|f| std::cmp::Reverse(f.fire.severity));
        }
        // For pasted text nothing is left unchecked: it is all there is.
        report.blind.clear();
        report
    }

    /// Takes the state of the latest moment.
    fn of(analysis: &Analysis, source: &str, observed: Observed) -> Self {
        let now = analysis.latest();
        let findings = now.map(|n| n.findings);
        let coverage = now.map(|n| coverage(&n.tick.health)).unwrap_or_default();
        Self {
            host: analysis.host().clone(),
            source: source.to_owned(),
            started: observed.first_wall,
            duration: observed.duration,
            ticks: observed.ticks,
            blind: blind_spots(&coverage),
            coverage,
            findings: findings.map(|f| told(f)).unwrap_or_default(),
            annotations: findings.map(|f| f.annotations.clone()).unwrap_or_default(),
            not_judged: findings.map(|f| f.not_judged.clone()).unwrap_or_default(),
            unread: None,
            earlier_rules: Vec::new(),
        }
    }

    /// Adds what the report of a recording has beyond that of its last run: findings that ended
    /// before, what an earlier run did not check, and what could not be read.
    #[must_use]
    pub fn beyond(
        mut self,
        over: &[Arc<Finding>],
        blind: Vec<BlindSpot>,
        unread: Vec<String>,
    ) -> Self {
        blind::merge(&mut self.blind, blind);
        self.findings.extend(over.iter().cloned());
        let found = |n: &NotJudged| self.findings.iter().any(|f| f.rule == n.rule);
        self.not_judged.retain(|n| !(found(n) && n.why.starts_with("needs ")));
        self.unread = Some(unread);
        self
    }

    /// Findings at warn or worse.
    #[must_use]
    pub fn has_findings(&self) -> bool {
        self.findings.iter().any(|f| f.fire.severity >= Severity::Warn)
    }

    /// The severity of a finding together with what it explains.
    #[must_use]
    pub fn severity(&self, f: &Finding) -> Severity {
        let of_it = |c: &&Arc<Finding>| {
            f.active && c.cause.as_ref().is_some_and(|(r, s)| *r == f.rule && *s == f.subject)
        };
        let explained = self.findings.iter().filter(of_it).map(|c| c.fire.severity).max();
        explained.map_or(f.fire.severity, |s| s.max(f.fire.severity))
    }

    /// Signals that work fully, and all of them.
    #[must_use]
    pub fn coverage_counts(&self) -> (usize, usize) {
        let ok = self.coverage.iter().filter(|s| s.status == SignalStatus::Ok).count();
        (ok, self.coverage.len())
    }
}

/// Causes with their consequences, then what has ended.
fn told(f: &Findings) -> Vec<Arc<Finding>> {
    let active = f.active.iter().flat_map(|c| std::iter::once(c).chain(f.consequences(c)));
    active.chain(&f.cleared).cloned().collect()
}

/// What was received from a source, counted by its consumer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed {
    /// Wall clock of the first tick.
    pub first_wall: Option<WallNs>,
    /// From the first tick to the last.
    pub duration: Duration,
    /// Nominal sampling interval.
    pub interval: Duration,
    /// Ticks seen.
    pub ticks: u64,
}

/// RFC 3339 in UTC, to the second.
#[must_use]
pub fn rfc3339(t: WallNs) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(t.0))
        .map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        .unwrap_or_default()
}

/// Time of day in UTC with a `Z`: what people paste must not depend on the machine's time zone.
#[must_use]
pub fn clock_time(t: WallNs) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(t.0))
        .map(|t| t.strftime("%H:%M:%SZ").to_string())
        .unwrap_or_default()
}
