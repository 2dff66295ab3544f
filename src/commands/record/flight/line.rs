//! What the user sees of a flight recorder: a line on a terminal, and one for each thing that
//! happens.

use std::collections::BTreeSet;

use super::incidents::Incidents;
use crate::analysis::Analysis;
use crate::commands::shared::output::say;
use crate::commands::shared::status_line::StatusLine;
use crate::sample::tick::Tick;
use crate::sample::time::MonoNs;

/// The line.
pub(super) struct Line {
    status: StatusLine,
    begun: Option<MonoNs>,
}

impl Line {
    pub(super) fn new() -> Self {
        Self { status: StatusLine::new(), begun: None }
    }

    /// Prints these, each on a line of its own.
    pub(super) fn tell(&mut self, news: Vec<String>) {
        for says in news {
            self.status.clear();
            say(&says);
        }
    }

    /// Draws the state as of a tick.
    pub(super) fn draw(&mut self, tick: &Tick, analysis: &Analysis, incidents: &Incidents) {
        let ran = tick.mono.since(*self.begun.get_or_insert(tick.mono)).as_secs();
        self.status.draw(|| {
            let (h, m, s) = (ran / 3600, ran / 60 % 60, ran % 60);
            let state = incidents.state(tick.mono);
            let active = analysis.latest().map(|now| now.findings.all().map(|f| f.rule.0));
            let rules: BTreeSet<&str> = active.into_iter().flatten().collect();
            let rules = if rules.is_empty() {
                "no findings".to_owned()
            } else {
                format!("now {}", rules.into_iter().collect::<Vec<_>>().join(", "))
            };
            format!("{h:02}:{m:02}:{s:02}  {state}  {rules}")
        });
    }

    pub(super) fn clear(&mut self) {
        self.status.clear();
    }
}
