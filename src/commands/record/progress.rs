//! What the user sees of a recording while it is made.

use std::collections::{BTreeSet, VecDeque};
use std::io::Write as _;
use std::time::Duration;

use crate::analysis::Analysis;
use crate::commands::shared::output::say;
use crate::commands::shared::status_line::StatusLine;
use crate::diagnose::blind::{self, BlindSpot, blind_spots};
use crate::metrics::coverage::coverage;
use crate::recording::recorder::{State, Status};
use crate::sample::tick::Tick;
use crate::sample::time::MonoNs;
use crate::text::sanitize;
use crate::view::units;

/// Findings that are counted.
const MAX_FINDINGS: usize = 10_000;
/// A disk that is full on and off is reported at most this often.
const QUIET: Duration = Duration::from_secs(60);

/// What was told of a recording's trouble: each once, and at most once a minute.
#[derive(Default)]
pub(super) struct Trouble {
    /// That it is paused.
    paused: bool,
    told_at: Option<MonoNs>,
    last: Option<String>,
}

impl Trouble {
    /// What is to be told now of the recording with this name.
    pub(super) fn news(&mut self, now: MonoNs, name: &str, status: &Status) -> Option<String> {
        let due = self.told_at.is_none_or(|t| now.since(t) >= QUIET);
        let says = match &status.state {
            State::Paused { why, .. } if !self.paused && due => {
                self.paused = true;
                format!("{name}: {why}; recording is paused until it can continue")
            }
            State::Recording if self.paused => {
                self.paused = false;
                format!("{name}: recording resumed; {} ticks are missing", status.lost)
            }
            _ if status.trouble != self.last && due => {
                self.last.clone_from(&status.trouble);
                format!("{name}: {}", self.last.as_ref()?)
            }
            _ => return None,
        };
        self.told_at = Some(now);
        Some(says)
    }
}

/// One line on a terminal, errors everywhere.
pub(super) struct Progress {
    name: String,
    status: StatusLine,
    gaps: u64,
    findings: BTreeSet<(&'static str, String)>,
    /// Times and bytes of the last minute.
    recent: VecDeque<(MonoNs, u64)>,
    begun: Option<MonoNs>,
    trouble: Trouble,
    /// As of the last tick.
    blind: Vec<BlindSpot>,
}

impl Progress {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            status: StatusLine::new(),
            gaps: 0,
            findings: BTreeSet::new(),
            recent: VecDeque::new(),
            begun: None,
            trouble: Trouble::default(),
            blind: Vec::new(),
        }
    }

    /// What the recording is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Was this the trouble that was told last?
    pub(super) fn has_told(&self, trouble: &str) -> bool {
        self.trouble.last.as_deref() == Some(trouble)
    }

    pub(super) fn tick(&mut self, tick: &Tick, analysis: &Analysis, status: &Status) {
        self.gaps += u64::from(tick.gap.is_some());
        self.warn(tick.mono, status);
        if !self.status.is_shown() {
            return;
        }
        self.begun.get_or_insert(tick.mono);
        self.blind = blind_spots(&coverage(&tick.health));
        if let Some(now) = analysis.latest() {
            for f in now.findings.all() {
                if self.findings.len() < MAX_FINDINGS {
                    self.findings.insert((f.rule.0, f.subject.to_string()));
                }
            }
        }
        self.recent.push_back((tick.mono, status.written));
        while self.recent.front().is_some_and(|r| tick.mono.since(r.0) > Duration::from_secs(60)) {
            self.recent.pop_front();
        }
        let line = self.line(tick.mono, status);
        self.status.draw(|| line);
    }

    fn warn(&mut self, now: MonoNs, status: &Status) {
        if let Some(says) = self.trouble.news(now, &self.name, status) {
            self.status.clear();
            say(&says);
        }
    }

    fn line(&self, now: MonoNs, s: &Status) -> String {
        let ran = self.begun.map_or(Duration::ZERO, |b| now.since(b)).as_secs();
        let (h, m, sec) = (ran / 3600, ran / 60 % 60, ran % 60);
        let rate = self.recent.front().zip(self.recent.back()).and_then(|(a, b)| {
            let dt = b.0.since(a.0).as_secs_f64();
            (dt > 0.0).then(|| b.1.saturating_sub(a.1) as f64 / dt)
        });
        let rate = rate.map_or_else(|| "-".to_owned(), |r| format!("{}/s", units::bytes(r)));
        let plural = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let mut line = format!(
            "{h:02}:{m:02}:{sec:02}  {}  {}  {rate}  {}  {}",
            plural(s.ticks, "tick"),
            units::bytes(s.size as f64),
            plural(self.gaps, "gap"),
            plural(self.findings.len() as u64, "finding"),
        );
        let rules: BTreeSet<&str> = self.findings.iter().map(|f| f.0).collect();
        if !rules.is_empty() {
            let rules: Vec<&str> = rules.into_iter().collect();
            line = format!("{line} ({})", rules.join(", "));
        }
        match &s.state {
            State::Paused { why, since } => {
                line = format!("PAUSED {}: {why}  {line}", units::age(now.since(*since)));
            }
            _ if s.delay(now) > Duration::from_secs(1) => {
                line = format!("disk takes {}  {line}", units::duration(s.delay(now)));
            }
            _ => {}
        }
        if s.lost > 0 {
            line = format!("{} not recorded  {line}", plural(s.lost, "tick"));
        }
        line
    }

    pub(super) fn end(&mut self, status: Option<&Status>) {
        if !self.status.is_shown() {
            return;
        }
        self.status.clear();
        if let Some(s) = status {
            let size = units::bytes(s.size as f64);
            let name = sanitize(&self.name);
            let blind = blind::clause(&self.blind, blind::SHOWN);
            let blind = if blind.is_empty() { blind } else { format!("; not checked: {blind}") };
            let _ = writeln!(std::io::stderr(), "{} ticks, {size} in {name}{blind}", s.ticks);
        }
    }
}
