//! A recording from its first tick to its last: what `check FILE` reports.
//!
//! A console forgets what came and went an hour ago; a report of a whole file does not.

use std::sync::Arc;
use std::time::Duration;

use super::tape::{Played, Tape};
use crate::analysis::Analysis;
use crate::diagnose::blind::{self, BlindSpot, blind_spots};
use crate::diagnose::{Engine, Finding};
use crate::metrics::coverage::coverage;
use crate::metrics::history::DEFAULT_BUDGET;
use crate::recording::file::damage::Damage;
use crate::sample::rule_settings::RuleSettings;
use crate::sample::time::{MonoNs, WallNs};
use crate::session::Session;

/// Findings that are kept of what came and went.
const MAX_OVER: usize = 10_000;
/// Different settings of earlier runs that are kept.
const MAX_SETTINGS: usize = 20;

/// What a recording holds, judged.
#[derive(Debug)]
pub struct Whole {
    /// The last run of the recorder.
    pub analysis: Analysis,
    /// Findings that ended, youngest first, without those that `analysis` still remembers.
    pub over: Vec<Arc<Finding>>,
    /// Wall clock of the first tick.
    pub first_wall: Option<WallNs>,
    /// From the first tick to the last of each run, summed up.
    pub duration: Duration,
    /// Ticks that were read.
    pub ticks: u64,
    /// What the runs before the last one did not look at.
    pub blind: Vec<BlindSpot>,
    /// Settings of earlier runs, where they differ from those of the last: the first twenty.
    pub earlier_rules: Vec<Arc<RuleSettings>>,
    /// What could not be read.
    pub damage: Vec<Damage>,
}

/// Ticks from one word about the progress to the next.
const STEP: u64 = 256;

/// Plays all of it, and tells now and then how many ticks of how many are done. `None`: there is no
/// tick that can be read.
pub fn whole(tape: &mut Tape, mut told: impl FnMut(u64, u64)) -> Option<Whole> {
    let mut out: Option<Whole> = None;
    let mut ended: Vec<Arc<Finding>> = Vec::new();
    let mut first: Option<MonoNs> = None;
    let (mut ticks, mut before, mut first_wall) = (0, Duration::ZERO, None);
    let mut run: Option<Session> = None;
    let mut youngest: Option<Arc<Finding>> = None;
    let mut lost = Vec::new();
    let mut blind = Vec::new();
    let mut earlier_rules = Vec::new();
    loop {
        match tape.play() {
            Played::Segment(host) => {
                let fresh = Analysis::new(host, Engine::default(), DEFAULT_BUDGET);
                if let Some(old) = run.replace(Session::new(fresh)) {
                    before += spent(old.run(), first);
                    close(old.run(), &mut ended);
                    if let Some(last) = old.run().latest() {
                        let rules = &old.run().host().rules;
                        if earlier_rules.len() < MAX_SETTINGS && !earlier_rules.contains(rules) {
                            earlier_rules.push(rules.clone());
                        }
                        blind::merge(&mut blind, blind_spots(&coverage(&last.tick.health)));
                    }
                }
                (first, youngest) = (None, None);
            }
            Played::Tick(tick) => {
                let Some(run) = &mut run else { continue };
                first.get_or_insert(tick.mono);
                first_wall.get_or_insert(tick.wall);
                if u64::is_multiple_of(ticks, STEP) {
                    told(tape.at(), tape.len());
                }
                ticks += 1;
                run.push(tick);
                let Some(now) = run.run().latest() else { continue };
                let cleared = &now.findings.cleared;
                let known =
                    |f: &&Arc<Finding>| !youngest.as_ref().is_some_and(|y| Arc::ptr_eq(y, f));
                let mut fresh: Vec<_> = cleared.iter().take_while(known).cloned().collect();
                fresh.reverse();
                ended.extend(fresh);
                if ended.len() > MAX_OVER {
                    ended.drain(..ended.len() - MAX_OVER);
                }
                youngest = cleared.first().cloned().or(youngest);
            }
            Played::Lost(d) => lost.push(d),
            Played::End => break,
        }
    }
    if let Some(run) = run.filter(|_| ticks > 0) {
        let analysis = run.into_run();
        let duration = before + spent(&analysis, first);
        if let Some(last) = analysis.latest() {
            let remembered =
                |f: &Arc<Finding>| last.findings.cleared.iter().any(|c| Arc::ptr_eq(c, f));
            ended.retain(|f| !remembered(f));
        }
        ended.reverse();
        earlier_rules.retain(|r| *r != analysis.host().rules);
        let (over, damage) = (ended, lost);
        out = Some(Whole {
            analysis,
            over,
            first_wall,
            duration,
            ticks,
            blind,
            earlier_rules,
            damage,
        });
    }
    out
}

fn spent(run: &Analysis, first: Option<MonoNs>) -> Duration {
    run.latest().zip(first).map_or(Duration::ZERO, |(l, f)| l.tick.mono.since(f))
}

/// The run ended: what was active then is over as far as anybody knows.
fn close(run: &Analysis, ended: &mut Vec<Arc<Finding>>) {
    let Some(last) = run.latest() else { return };
    ended.extend(last.findings.all().map(|f| Arc::new(Finding { active: false, ..(**f).clone() })));
}
