//! A recording from its first tick to its last: what `check FILE` reports, and what the tables of
//! `export FILE` are made of.
//!
//! A console forgets what came and went an hour ago; a report of a whole file does not.

use std::convert::Infallible;
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

/// Sees a recording being played.
pub trait Observer {
    /// Why it ends early.
    type Error;
    /// What comes next, before it is judged: may be replaced.
    fn played(&mut self, p: Played) -> Result<Played, Self::Error> {
        Ok(p)
    }
    /// A tick was judged.
    fn moment(&mut self, _: &Analysis) -> Result<(), Self::Error> {
        Ok(())
    }
    /// Findings ended in that tick, or with the run. Each is told once, oldest first; those that
    /// last to the end of the recording are not.
    fn ended(&mut self, _: &Analysis, _: &[Arc<Finding>]) -> Result<(), Self::Error> {
        Ok(())
    }
    /// Now and then: how many ticks of how many are done.
    fn told(&mut self, done: u64, all: u64);
}

/// Sees nothing but the progress.
struct Progress<F>(F);

impl<F: FnMut(u64, u64)> Observer for Progress<F> {
    type Error = Infallible;
    fn told(&mut self, done: u64, all: u64) {
        (self.0)(done, all);
    }
}

/// Plays all of it, and tells now and then how many ticks of how many are done. `None`: there is no
/// tick that can be read.
pub fn whole(tape: &mut Tape, told: impl FnMut(u64, u64)) -> Option<Whole> {
    let all = tape.len();
    match part(tape, all, &mut Progress(told)) {
        Ok(whole) => whole,
        Err(never) => match never {},
    }
}

/// Plays it from where the tape is, which should be the beginning of a run, up to the tick `until`.
///
/// # Errors
/// What the observer says.
pub fn part<O: Observer>(
    tape: &mut Tape,
    until: u64,
    observer: &mut O,
) -> Result<Option<Whole>, O::Error> {
    let mut out = Collected::default();
    let mut ticks = 0;
    let mut run: Option<Session> = None;
    while tape.at() < until {
        match observer.played(tape.play())? {
            Played::Segment(host) => {
                let fresh = Analysis::new(host, Engine::default(), DEFAULT_BUDGET);
                if let Some(old) = run.replace(Session::new(fresh)) {
                    let over = out.close(old.run());
                    observer.ended(old.run(), &over)?;
                    out.keep(over);
                }
            }
            Played::Tick(tick) => {
                let Some(run) = &mut run else { continue };
                out.first.get_or_insert(tick.mono);
                out.first_wall.get_or_insert(tick.wall);
                if u64::is_multiple_of(ticks, STEP) {
                    observer.told(tape.at(), until);
                }
                ticks += 1;
                run.push(tick);
                observer.moment(run.run())?;
                let over = out.over(run.run());
                if !over.is_empty() {
                    observer.ended(run.run(), &over)?;
                    out.keep(over);
                }
            }
            Played::Lost(d) => out.lost.push(d),
            Played::End => break,
        }
    }
    Ok(run.filter(|_| ticks > 0).map(|run| out.whole(run.into_run(), ticks)))
}

/// What is known of the runs before the last one, and of what ended in it.
#[derive(Default)]
struct Collected {
    ended: Vec<Arc<Finding>>,
    /// First tick of this run.
    first: Option<MonoNs>,
    first_wall: Option<WallNs>,
    /// How long the runs before this one were.
    before: Duration,
    /// The finding of this run that ended last.
    youngest: Option<Arc<Finding>>,
    lost: Vec<Damage>,
    blind: Vec<BlindSpot>,
    earlier_rules: Vec<Arc<RuleSettings>>,
}

impl Collected {
    /// Findings that ended in the latest tick of a run.
    fn over(&mut self, run: &Analysis) -> Vec<Arc<Finding>> {
        let Some(now) = run.latest() else { return Vec::new() };
        let cleared = &now.findings.cleared;
        let known = |f: &&Arc<Finding>| !self.youngest.as_ref().is_some_and(|y| Arc::ptr_eq(y, f));
        let mut fresh: Vec<_> = cleared.iter().take_while(known).cloned().collect();
        fresh.reverse();
        self.youngest = cleared.first().cloned().or(self.youngest.take());
        fresh
    }

    fn keep(&mut self, over: Vec<Arc<Finding>>) {
        self.ended.extend(over);
        if self.ended.len() > MAX_OVER {
            self.ended.drain(..self.ended.len() - MAX_OVER);
        }
    }

    /// A run ended: what was active then is over as far as anybody knows.
    fn close(&mut self, old: &Analysis) -> Vec<Arc<Finding>> {
        self.before += spent(old, self.first);
        (self.first, self.youngest) = (None, None);
        let Some(last) = old.latest() else { return Vec::new() };
        let rules = &old.host().rules;
        if self.earlier_rules.len() < MAX_SETTINGS && !self.earlier_rules.contains(rules) {
            self.earlier_rules.push(rules.clone());
        }
        blind::merge(&mut self.blind, blind_spots(&coverage(&last.tick.health)));
        let over = |f: &Arc<Finding>| Arc::new(Finding { active: false, ..(**f).clone() });
        last.findings.all().map(over).collect()
    }

    /// All of it, with the last run.
    fn whole(mut self, analysis: Analysis, ticks: u64) -> Whole {
        let duration = self.before + spent(&analysis, self.first);
        if let Some(last) = analysis.latest() {
            let remembered =
                |f: &Arc<Finding>| last.findings.cleared.iter().any(|c| Arc::ptr_eq(c, f));
            self.ended.retain(|f| !remembered(f));
        }
        self.ended.reverse();
        self.earlier_rules.retain(|r| *r != analysis.host().rules);
        Whole {
            analysis,
            over: self.ended,
            first_wall: self.first_wall,
            duration,
            ticks,
            blind: self.blind,
            earlier_rules: self.earlier_rules,
            damage: self.lost,
        }
    }
}

fn spent(run: &Analysis, first: Option<MonoNs>) -> Duration {
    run.latest().zip(first).map_or(Duration::ZERO, |(l, f)| l.tick.mono.since(f))
}
