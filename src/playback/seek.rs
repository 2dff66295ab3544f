//! Judging a recording from any of its ticks.
//!
//! Findings have a memory: since when, for how long, what a disk's latency was ten minutes ago,
//! how often a socket's timer has fired. Whoever goes to a moment must find what a run from the
//! beginning would have found there. Nothing of it is stored in the recording, so that an old
//! recording gains every new rule; it holds by construction instead:
//!
//! - The memory is in two places: the fold ([`analysis::Checkpoint`]: trackers and engine), and the
//!   history that rules look back at, by [`REACH`] and [`REACH_SAMPLES`] at most (`Window`
//!   enforces the latter, and the budget of the history is the same everywhere).
//! - A pass through the recording leaves checkpoints behind ([`Judge::advance`]), fewer the
//!   longer it gets. A seek to tick *t* takes the last checkpoint *B* at or before *t*, and one
//!   *A* that is at least the reach before *B* (or the start of the run). From *A* to *B* the
//!   ticks go into figures and history only; at *B* the engine is that of *B*; from there on
//!   they are judged. Every tick from *B* to *t* is judged with the state and the history of a
//!   run from the beginning, so the findings are equal.
//! - Where the pass has not come that far, [`Judge::quick`] judges the last ticks before *t*
//!   alone, and says from which one on; the console shows that until the rest is known.
//!
//! Every segment is a run of its own: nothing that was true before a reboot is known to be true
//! after it.

use std::sync::Arc;

use super::tape::{Played, Tape};
use crate::analysis::{self, Analysis};
use crate::diagnose::Engine;
use crate::metrics::MIN_SPAN;
use crate::metrics::history::{DEFAULT_BUDGET, REACH, REACH_SAMPLES};
use crate::sample::tick::Tick;
use crate::session::Session;

/// Ticks between two checkpoints, at first.
const STRIDE: u64 = 60;
/// Checkpoints of a run at most; then every second one goes.
const MAX_CHECKPOINTS: usize = 64;
/// Bytes that checkpoints may hold.
const MAX_BYTES: usize = 128 << 20;
/// A grid of samples that begins elsewhere may be off by some.
const SLACK: usize = 8;

/// What a pass has left behind at a tick.
struct Checkpoint {
    /// The tick that comes next.
    tick: u64,
    /// Whoever judges from here on must have seen the ticks from this one on.
    reach: u64,
    state: analysis::Checkpoint,
}

/// Where a seek begins.
struct Plan<'j> {
    /// First tick to read, with the state there; `None`: the start of a run.
    from: (u64, Option<&'j analysis::Checkpoint>),
    /// First tick to judge, with the state there.
    judge: (u64, Option<&'j analysis::Checkpoint>),
}

/// Goes through a recording and to any place of it.
pub struct Judge {
    tape: Tape,
    engine: Engine,
    budget: usize,
    /// The pass: what it knows, and how far it is.
    pass: Option<Session>,
    at: u64,
    checkpoints: Vec<Checkpoint>,
    stride: u64,
}

impl Judge {
    /// Nothing is known yet. `engine` is one that has seen nothing.
    #[must_use]
    pub fn new(tape: Tape, engine: Engine) -> Self {
        Self {
            tape,
            engine,
            budget: DEFAULT_BUDGET,
            pass: None,
            at: 0,
            checkpoints: Vec::new(),
            stride: STRIDE,
        }
    }

    /// The recording.
    #[must_use]
    pub fn tape(&self) -> &Tape {
        &self.tape
    }
    /// The same, to look at indexes and to refresh.
    pub fn tape_mut(&mut self) -> &mut Tape {
        &mut self.tape
    }
    /// How far the pass is: ticks before this one are known.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.at
    }

    /// Takes the pass `n` ticks on; false at the end.
    pub fn advance(&mut self, n: u64) -> bool {
        let to = self.at.saturating_add(n).min(self.tape.len());
        self.tape.seek(self.at);
        while self.at < to {
            match self.tape.play() {
                Played::Segment(host) => {
                    let run = Analysis::new(host, self.engine.clone(), self.budget);
                    self.pass = Some(Session::new(run));
                    continue;
                }
                Played::Tick(tick) => {
                    let host = || self.tape.host(self.tape.segment(self.at).unwrap_or(0));
                    let fresh = || Analysis::new(host(), self.engine.clone(), self.budget);
                    self.pass.get_or_insert_with(|| Session::new(fresh())).push(tick);
                }
                Played::Lost(_) => {}
                Played::End => break,
            }
            self.at = self.tape.at();
            if self.at.is_multiple_of(self.stride) {
                self.leave_stone();
            }
        }
        self.at < self.tape.len()
    }

    fn leave_stone(&mut self) {
        let (Some(pass), tick) = (&self.pass, self.at) else { return };
        // The next tick begins another run: nothing is carried over.
        if tick == 0 || self.tape.segment(tick) != self.tape.segment(tick - 1) {
            return;
        }
        let state = pass.run().checkpoint();
        let reach = self.reach(tick);
        self.checkpoints.push(Checkpoint { tick, reach, state });
        let bytes: usize = self.checkpoints.iter().map(|s| s.state.bytes()).sum();
        if self.checkpoints.len() > MAX_CHECKPOINTS
            || (bytes > MAX_BYTES && self.checkpoints.len() > 4)
        {
            self.stride *= 2;
            let stride = self.stride;
            self.checkpoints.retain(|s| s.tick.is_multiple_of(stride));
        }
    }

    /// The first tick that a rule may look back at from `tick`.
    fn reach(&mut self, tick: u64) -> u64 {
        let start = self.tape.start(tick.saturating_sub(1));
        let Some(now) = tick.checked_sub(1).and_then(|t| self.tape.stamp(t)) else { return start };
        let (mut at, mut last, mut samples) = (tick - 1, now.mono, 0);
        while at > start {
            let Some(t) = self.tape.stamp(at) else { return start };
            if last.since(t.mono) >= MIN_SPAN {
                (last, samples) = (t.mono, samples + 1);
            }
            if samples >= REACH_SAMPLES + SLACK && now.mono.since(t.mono) > REACH {
                break;
            }
            at -= 1;
        }
        at
    }

    fn plan(&self, tick: u64) -> Plan<'_> {
        let start = self.tape.start(tick);
        let last = |to: u64| self.checkpoints.iter().rfind(|s| s.tick <= to && s.tick > start);
        let known = |s: Option<&'_ Checkpoint>| s.map(|s| s.tick);
        let Some(judge) = last(tick) else {
            return Plan { from: (start, None), judge: (start, None) };
        };
        let from = last(judge.reach);
        Plan {
            from: (known(from).unwrap_or(start), from.map(|s| &s.state)),
            judge: (judge.tick, Some(&judge.state)),
        }
    }

    /// How many ticks [`Judge::exact`] would have to read.
    #[must_use]
    pub fn cost(&self, tick: u64) -> u64 {
        tick.saturating_sub(self.plan(tick).from.0) + 1
    }

    /// The run up to `tick`, as if played from the beginning. `None`: there is no such tick, or
    /// `stop` said so.
    pub fn exact(&mut self, tick: u64, stop: &mut dyn FnMut() -> bool) -> Option<Analysis> {
        let host = self.tape.host(self.tape.segment(tick)?);
        let plan = self.plan(tick);
        let (from, judged) = (plan.from.0, plan.judge.0);
        let state = plan.judge.1.cloned();
        let mut run = match plan.from.1 {
            Some(state) => Analysis::resume(host, state, self.budget),
            None => Analysis::new(host, self.engine.clone(), self.budget),
        };
        self.tape.seek(from);
        self.play_to(judged, stop, &mut |t| run.observe(t))?;
        if let Some(state) = &state {
            run.judge_from(state);
        }
        let mut run = Session::new(run);
        self.play_to(tick + 1, stop, &mut |t| run.push(t))?;
        // All from there on is lost: whoever plays from the beginning still sees what was before.
        match judged.checked_sub(1).filter(|_| run.run().latest().is_none() && state.is_some()) {
            Some(before) => self.exact(before, stop),
            None => Some(run.into_run()),
        }
    }

    /// The run up to `tick`, judged by the last `back` ticks of its segment alone.
    pub fn quick(&mut self, tick: u64, back: u64) -> Option<Analysis> {
        let host = self.tape.host(self.tape.segment(tick)?);
        let mut run = Session::new(Analysis::new(host, self.engine.clone(), self.budget));
        self.tape.seek(tick.saturating_sub(back).max(self.tape.start(tick)));
        self.play_to(tick + 1, &mut || false, &mut |t| run.push(t))?;
        Some(run.into_run())
    }

    /// Plays what is left before tick `end`, all of one run. `None`: `stop` said so.
    fn play_to(
        &mut self,
        end: u64,
        stop: &mut dyn FnMut() -> bool,
        take: &mut dyn FnMut(Arc<Tick>),
    ) -> Option<()> {
        while self.tape.at() < end {
            if stop() {
                return None;
            }
            match self.tape.play() {
                Played::Tick(t) => take(t),
                Played::Segment(_) | Played::Lost(_) => {}
                Played::End => break,
            }
        }
        Some(())
    }
}
