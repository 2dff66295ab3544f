//! Playback: when the next moment of the past is due, and what is asked of the recording's player.
//! Live rewind and replay share all of it; a live run just has nothing beyond its memory.

use std::time::Duration;

use super::event_loop::Console;
use crate::analysis::Analysis;
use crate::clock;
use crate::diagnose::Engine;
use crate::metrics::history::DEFAULT_BUDGET;
use crate::playback::player::{Answer, Next};
use crate::playback::timeline::{Goal, Judged};
use crate::sample::time::{MonoNs, Seq};
use crate::view::state::When;
use crate::view::update;

/// A gap in the recording is shown no longer than this.
const LONGEST: Duration = Duration::from_secs(3);
/// How often the end of a growing recording is checked.
const LOOK: Duration = Duration::from_millis(250);
/// Moments that are shown at a time when the screen is behind.
const BURST: usize = 64;
/// Number of ticks by which the console itself advances a run that arrives late.
const CATCH_UP: u64 = 120;
/// How often a step looks past a gap itself before it asks the thread.
const PATIENCE: usize = 8;

/// State of the playback.
#[derive(Default)]
pub(super) struct Playing {
    /// When the moment on the screen was due.
    since: MonoNs,
    /// The open question: ticket and tick.
    asked: Option<(u64, u64)>,
    /// The newest ticket; older answers are of no use.
    ticket: u64,
}

/// The result of advancing by one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    /// There is more to skip that cannot be read.
    Later,
    /// There is none, for now.
    End,
}

/// What remains of a question that is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    /// The findings in memory are based on part of the recording, and the rest has not been asked
    /// for.
    Unjudged,
}

impl Console {
    /// Time until the next moment is due; `None` while nothing plays.
    pub(super) fn play_in(&mut self) -> Option<Duration> {
        if !self.view.play.on || self.playing.asked.is_some() {
            return None;
        }
        let due = self.step_time()?;
        Some(due.saturating_sub(clock::mono().since(self.playing.since)))
    }

    /// How long the moment shown stays.
    fn step_time(&mut self) -> Option<Duration> {
        let latest = self.session.run().latest()?;
        let here = self.session.run().at(self.view.shown(latest.tick.seq))?;
        let (seq, mono) = (here.tick.seq, here.tick.mono);
        let next = if let Some(m) = self.session.run().history().after(seq) {
            Some(m.tick.mono)
        } else {
            let player = self.player.as_mut()?;
            if seq.0 + 1 >= player.len() {
                return Some(LOOK);
            }
            player.mono(seq.0 + 1).filter(|_| player.same_run(seq.0, seq.0 + 1))
        };
        // Another boot: its clock says nothing about how long that took.
        let apart = next.map_or(Duration::from_secs(1), |n| n.since(mono)).min(LONGEST);
        Some(apart.div_f64(self.view.play.speed.max(0.01)))
    }

    /// Shows the moment that is due.
    pub(super) fn play(&mut self) {
        for _ in 0..BURST {
            let Some(due) = self.step_time() else { return };
            let now = clock::mono();
            if now.since(self.playing.since) < due {
                return;
            }
            // Delay from a slow screen is not made up for.
            let (before, on_time) = (self.playing.since, self.playing.since + due);
            let late = now.since(on_time) > LOOK;
            self.playing.since = if late { now } else { on_time };
            match self.forward() {
                Step::Done => self.dirty = true,
                Step::End => return,
                Step::Later => {
                    // Still due; keys first.
                    self.playing.since = before;
                    return;
                }
            }
        }
    }

    /// Playing was started or stopped, or its speed changed.
    pub(super) fn play_changed(&mut self) {
        self.playing.since = clock::mono();
    }

    /// Advances by one moment, from memory or from the recording.
    fn forward(&mut self) -> Step {
        if update::advance(&mut self.view, self.session.run()) {
            return Step::Done;
        }
        let step = self.append();
        match step {
            Step::Done => self.view.when = When::Live,
            Step::Later => {}
            Step::End => self.at_the_end(),
        }
        step
    }

    /// There was no next moment; perhaps there is one by now.
    fn at_the_end(&mut self) {
        let Some(player) = &mut self.player else {
            self.view.play.on = false;
            return;
        };
        let grew = player.refresh();
        if !grew && self.reopen() {
            return;
        }
        let Some(player) = &mut self.player else { return };
        let len = player.len();
        if !grew && !player.may_grow() {
            self.view.play.on = false;
            update::notify(&mut self.view, self.session.run(), "end of the recording");
            self.dirty = true;
        }
        self.view.timeline.set_len(len);
    }

    /// Continues with the file that replaced the recording, at the same time of day: a downsampled
    /// recording has fewer old ticks, and all of them are renumbered.
    fn reopen(&mut self) -> bool {
        let Some(here) = self.session.run().latest().map(|m| m.tick.wall) else { return false };
        let Some(player) = self.player.as_mut().filter(|_| self.playing.asked.is_none()) else {
            return false;
        };
        if !player.reopen() {
            return false;
        }
        let Some(tick) = player.resolve(Goal::Wall(here)) else { return false };
        let ticket = player.seek(tick);
        self.playing.ticket = ticket;
        self.playing.asked = Some((ticket, tick));
        self.view.timeline.set_len(player.len());
        self.view.timeline.set_seeking(true);
        self.view.timeline.set_judged(Judged::Whole);
        self.dirty = true;
        true
    }

    /// Takes the next tick of the recording into memory.
    fn append(&mut self) -> Step {
        let Some(head) = self.session.run().latest().map(|m| m.tick.seq) else { return Step::End };
        let Some(player) = &mut self.player else { return Step::End };
        match player.next(head) {
            Next::Tick(t) => self.session.push(t),
            Next::Segment(host, t) => {
                self.session.go_on_with(Analysis::new(host, Engine::default(), DEFAULT_BUDGET));
                self.session.push(t);
                self.view.waits.rebuild(self.session.run().history());
                self.view.timeline.set_judged(Judged::Whole);
            }
            Next::Later => return Step::Later,
            Next::End => return Step::End,
        }
        update::tick(&mut self.view, self.session.run());
        Step::Done
    }

    /// Seeks to a position in the recording.
    pub(super) fn seek(&mut self, goal: Goal) {
        let Some(player) = &mut self.player else { return };
        let Some(tick) = player.resolve(goal) else { return };
        let head = self.session.run().latest().map(|m| m.tick.seq.0);
        self.play_changed();
        if self.session.run().at(Seq(tick)).is_some() {
            update::arrived(&mut self.view, self.session.run(), Seq(tick));
            self.went_elsewhere();
        } else if head.is_some_and(|h| h + 1 == tick) && self.append_beyond() {
            self.view.when = When::Live;
            self.went_elsewhere();
        } else if let Some(player) = &mut self.player {
            let ticket = player.seek(tick);
            self.playing.ticket = ticket;
            self.playing.asked = Some((ticket, tick));
            self.view.timeline.set_seeking(true);
        }
        self.dirty = true;
    }

    /// The moment shown.
    pub(super) fn shown(&self) -> Option<Seq> {
        self.session.run().latest().map(|m| self.view.shown(m.tick.seq))
    }

    /// A key moved to another moment in memory.
    pub(super) fn went_elsewhere(&mut self) {
        let left = self.drop_question();
        self.judge_whole_if(left);
    }

    /// Has the first moment shown judged as if played from the beginning, if it was not.
    pub(super) fn judge_whole(&mut self) {
        if let Some(here) = self.shown() {
            self.judge_whole_at(here.0);
        }
    }

    fn judge_whole_at(&mut self, tick: u64) {
        if let (Judged::Since(_), Some(player)) = (self.view.timeline.judged(), &mut self.player) {
            let last = player.len().saturating_sub(1);
            self.playing.ticket = player.seek(tick.min(last));
        }
    }

    fn judge_whole_if(&mut self, left: Left) {
        if left == Left::Unjudged {
            self.judge_whole();
        }
    }

    /// [`Self::append`], across a gap of limited length.
    fn append_beyond(&mut self) -> bool {
        let step = (0..PATIENCE).map(|_| self.append()).find(|s| *s != Step::Later);
        step == Some(Step::Done)
    }

    /// The last seek is no longer wanted: its answer would lead away from what is shown.
    fn drop_question(&mut self) -> Left {
        let open = self.playing.asked.take().is_some();
        self.view.timeline.set_seeking(false);
        if !open {
            return Left::Nothing;
        }
        if self.view.timeline.judged() != Judged::Whole {
            return Left::Unjudged;
        }
        if let Some(p) = &mut self.player {
            p.forget();
            self.playing.ticket = 0;
        }
        Left::Nothing
    }

    /// The player's thread has answered.
    pub(super) fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Outline(outline) => self.view.timeline.set_outline(outline),
            Answer::Run { ticket, run, judged } if ticket == self.playing.ticket => {
                self.adopt(*run, judged);
            }
            Answer::Run { .. } => return,
        }
        self.dirty = true;
    }

    /// Another run is in memory: the one around the target of the seek, or the same one with
    /// findings based on more of the recording.
    fn adopt(&mut self, run: Analysis, judged: Judged) {
        let asked = self.playing.asked.take().map(|a| Seq(a.1));
        let Some(at) = asked.or_else(|| self.shown()) else { return };
        let Some(head) = run.latest().map(|m| m.tick.seq) else {
            update::notify(
                &mut self.view,
                self.session.run(),
                "nothing around that time can be read",
            );
            self.view.timeline.set_seeking(false);
            if asked.is_some() {
                self.judge_whole();
            }
            return;
        };
        let beyond = at.0.saturating_sub(head.0).checked_sub(CATCH_UP);
        if asked.is_none() && run.at(at).is_none() && (at < head || beyond.is_some()) {
            // The user moved to a part of this run that was not judged: its findings are based on
            // no more than before, and nothing else is on its way. While playback continues, an
            // answer for what is shown now would again come too late.
            if judged == Judged::Whole {
                self.judge_whole_at(at.0.saturating_add(beyond.unwrap_or(0)));
            }
            return;
        }
        let oldest = |a: &Analysis| a.oldest().map(|m| m.tick.seq);
        let less = matches!(judged, Judged::Since(_)) && oldest(&run) >= oldest(self.session.run());
        if asked.is_none() && less && self.session.run().at(at).is_some() {
            // A first picture of a place that is on the screen already.
            return;
        }
        self.session.go_on_with(run);
        for _ in 0..CATCH_UP {
            if self.session.run().latest().is_none_or(|m| m.tick.seq >= at) || !self.append_beyond()
            {
                break;
            }
        }
        self.view.timeline.set_seeking(false);
        self.view.timeline.set_judged(judged);
        if asked.is_some() {
            self.play_changed();
        }
        // What was lost to damage has a neighbour.
        let near = self.session.run().history().back_from(at).next().map_or(head, |m| m.tick.seq);
        update::arrived(&mut self.view, self.session.run(), near);
    }
}
