//! What there is beyond the moments in memory: of a recording all of it, of a live run nothing.
//!
//! Whoever goes through time or draws it asks the [`Timeline`]; which of the two it looks at,
//! only the timeline knows. It answers from the [`Outline`]: what a recording says about itself,
//! without its ticks.

use std::sync::Arc;

use crate::sample::time::{MonoNs, Seq, WallNs};

/// Time beyond memory, and what was marked in it.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    tape: Option<OnTape>,
    /// Marks of a live run, oldest first.
    marks: Vec<UserMark>,
}

/// A mark that was put into the recording that is being made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserMark {
    /// The tick that was the newest then.
    pub seq: Seq,
    /// What the recording calls it.
    pub name: String,
}

/// What is known of a recording.
#[derive(Clone, Debug, Default)]
struct OnTape {
    /// Ticks so far.
    len: u64,
    /// All of it at a glance, once it has been looked through.
    outline: Option<Arc<Outline>>,
    judged: Judged,
    /// A place was asked for and is not here yet.
    seeking: bool,
    /// The finding for which a place was asked for: rule and subject.
    want: Option<(String, String)>,
}

/// How much of the recording the findings in memory rest on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Judged {
    /// As if played from the beginning.
    #[default]
    Whole,
    /// What was before this time is not known yet: findings may begin earlier, or be missing.
    Since(WallNs),
}

/// What a recording on the screen does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Showing {
    /// Another place is on its way.
    Seeking,
    /// It plays.
    Playing,
    /// It stands still.
    Paused,
}

/// Marks of a live run that can be gone to; the oldest are forgotten.
const MAX_MARKS: usize = 200;

/// What there is.
impl Timeline {
    /// Of a recording of so many ticks.
    #[must_use]
    pub fn of_tape(len: u64, judged: Judged) -> Self {
        let tape = OnTape { len, judged, ..OnTape::default() };
        Self { tape: Some(tape), marks: Vec::new() }
    }

    /// Does it end in the present? There one can go back to what happens now, and mark it.
    #[must_use]
    pub fn has_present(&self) -> bool {
        self.tape.is_none()
    }

    /// May something have been before the oldest moment in memory?
    #[must_use]
    pub fn reaches_back(&self) -> bool {
        self.tape.is_some()
    }

    /// Where one looks for what is not on the screen, in words.
    #[must_use]
    pub fn extent(&self) -> &'static str {
        if self.tape.is_some() { "the recording" } else { "memory" }
    }

    /// What is shown of the past when nothing else is: a recording.
    #[must_use]
    pub fn showing(&self, plays: bool) -> Option<Showing> {
        let tape = self.tape.as_ref()?;
        Some(match (tape.seeking, plays) {
            (true, _) => Showing::Seeking,
            (_, true) => Showing::Playing,
            (_, false) => Showing::Paused,
        })
    }

    /// All that was recorded, as far as it is known.
    #[must_use]
    pub fn outline(&self) -> Option<&Outline> {
        self.tape.as_ref()?.outline.as_deref()
    }

    /// What the findings in memory rest on.
    #[must_use]
    pub fn judged(&self) -> Judged {
        self.tape.as_ref().map_or(Judged::Whole, |t| t.judged)
    }

    /// Wall clocks of its first and last tick.
    #[must_use]
    pub fn walls(&self) -> Option<(WallNs, WallNs)> {
        let o = self.outline()?;
        let (first, last) = (o.stretches.first()?, o.stretches.last()?);
        Some((first.wall, WallNs(last.wall.0.saturating_add(last.to - last.from))))
    }

    /// May there be marks?
    #[must_use]
    pub fn may_have_marks(&self) -> bool {
        self.tape.is_some() || !self.marks.is_empty()
    }

    /// The marks of a live run, oldest first.
    #[must_use]
    pub fn marks(&self) -> &[UserMark] {
        &self.marks
    }

    /// The nearest mark before or after a tick: its tick and text. Without a recording only what
    /// is `in_memory` can be gone to.
    #[must_use]
    pub fn mark(
        &self,
        here: Seq,
        back: bool,
        in_memory: impl Fn(Seq) -> bool,
    ) -> Option<(u64, &str)> {
        if self.tape.is_some() {
            return self.outline()?.mark(here.0, back).map(|p| (p.tick, p.text.as_str()));
        }
        let mut known = self.marks.iter().filter(|m| in_memory(m.seq));
        let mark = if back { known.rfind(|m| m.seq < here) } else { known.find(|m| m.seq > here) };
        mark.map(|m| (m.seq.0, m.name.as_str()))
    }

    /// The nearest finding that began before or after a tick, as the recorder saw it.
    #[must_use]
    pub fn spell(&self, here: Seq, back: bool) -> Option<&FindingSpan> {
        self.outline()?.spell(here.0, back)
    }
}

/// Where to go, from where memory ends. `None`: memory is all there is.
impl Timeline {
    /// The first moment of all.
    #[must_use]
    pub fn start(&self) -> Option<Goal> {
        self.tape.as_ref().map(|_| Goal::Tick(0))
    }

    /// The last moment of all.
    #[must_use]
    pub fn end(&self) -> Option<Goal> {
        self.tape.as_ref().map(|_| Goal::End)
    }

    /// The tick before the oldest one in memory, or why there is none.
    pub fn before(&self, here: Seq) -> Result<Goal, &'static str> {
        if self.tape.is_none() {
            return Err("start of memory");
        }
        here.0.checked_sub(1).map(Goal::Tick).ok_or("start of the recording")
    }

    /// The tick behind the newest one in memory, or why there is none. Nothing need be said about
    /// the present.
    pub fn after(&self, here: Seq) -> Result<Goal, Option<&'static str>> {
        let tape = self.tape.as_ref().ok_or(None)?;
        let next = here.0 + 1;
        if next < tape.len { Ok(Goal::Tick(next)) } else { Err(Some("end of the recording")) }
    }

    /// So many ns from a tick.
    #[must_use]
    pub fn away(&self, from: Seq, ns: i64) -> Option<Goal> {
        self.tape.as_ref().map(|_| Goal::Away { from: from.0, ns })
    }

    /// Within a time as it was typed.
    #[must_use]
    pub fn within(&self, from: WallNs, to: WallNs) -> Option<Goal> {
        self.tape.as_ref().map(|_| Goal::Within(from, to))
    }
}

/// What happens to it.
impl Timeline {
    /// The user has marked the newest tick of a live run.
    pub fn add_mark(&mut self, seq: Seq, name: &str) {
        if self.marks.len() >= MAX_MARKS {
            self.marks.remove(0);
        }
        self.marks.push(UserMark { seq, name: name.to_owned() });
    }

    /// Whoever goes elsewhere does it for this finding: rule and subject.
    pub fn look_for(&mut self, want: (String, String)) {
        if let Some(t) = &mut self.tape {
            t.want = Some(want);
        }
    }

    /// That finding, once.
    pub fn take_wanted(&mut self) -> Option<(String, String)> {
        self.tape.as_mut()?.want.take()
    }

    /// A place was asked for, or is not waited for any more.
    pub fn set_seeking(&mut self, on: bool) {
        if let Some(t) = &mut self.tape {
            t.seeking = on;
        }
    }

    /// The findings in memory rest on this.
    pub fn set_judged(&mut self, judged: Judged) {
        if let Some(t) = &mut self.tape {
            t.judged = judged;
        }
    }

    /// It has so many ticks now.
    pub fn set_len(&mut self, len: u64) {
        if let Some(t) = &mut self.tape {
            t.len = len;
        }
    }

    /// It has been looked through.
    pub fn set_outline(&mut self, outline: Arc<Outline>) {
        if let Some(t) = &mut self.tape {
            t.len = t.len.max(outline.ticks);
            t.outline = Some(outline);
        }
    }
}

/// A run of ticks without a break between them that matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickRun {
    /// Number of its first tick.
    pub tick: u64,
    /// Ticks.
    pub ticks: u64,
    /// Which run of the recorder.
    pub segment: u32,
    /// Monotonic time of its first tick.
    pub mono: MonoNs,
    /// Wall clock of its first tick.
    pub wall: WallNs,
    /// Its place on the timeline, ns: the wall clock at the start of its run plus the
    /// monotonic time since, so that a clock that was set bends nothing.
    pub from: i64,
    /// End of that place.
    pub to: i64,
    /// Nominal distance of two ticks, ns.
    pub step: i64,
    /// The recorder's notes of it are known: what was found is in the outline.
    pub noted: bool,
}

/// Where to go in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// A tick by its number.
    Tick(u64),
    /// The first tick within a time as it was typed, the end exclusive; where there is none,
    /// the last one before.
    Within(WallNs, WallNs),
    /// The last tick at or before a time of day.
    Wall(WallNs),
    /// So many ns from a tick.
    Away {
        /// From this one.
        from: u64,
        /// Negative for back.
        ns: i64,
    },
    /// The last tick.
    End,
}

/// How bad a finding on the line is: info, warn or crit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Worth knowing.
    #[default]
    Info,
    /// Slow.
    Warn,
    /// Still or lost.
    Crit,
}

/// A finding, as the recorder saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindingSpan {
    /// The rule.
    pub rule: String,
    /// What it is about.
    pub subject: String,
    /// Its worst.
    pub weight: Weight,
    /// First tick in which it was active.
    pub first: u64,
    /// Last tick in which it was active.
    pub last: u64,
}

/// What is no tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The user's mark.
    Mark,
    /// Ticks are missing: dropped, or lost to damage.
    Hole,
    /// Anything else worth a note: a clock that was set, a collector that failed.
    Note,
}

/// Something on the line that is no tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The tick at or behind it.
    pub tick: u64,
    /// Its place, ns.
    pub at: i64,
    /// What kind.
    pub sign: Sign,
    /// In words. Raw.
    pub text: String,
}

/// A recording at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// Number of ticks.
    pub ticks: u64,
    /// Runs of ticks, in order.
    pub stretches: Vec<TickRun>,
    /// Findings, by first tick.
    pub spells: Vec<FindingSpan>,
    /// Marks, holes, notes, by place.
    pub posts: Vec<Marker>,
}

impl Outline {
    /// The stretch of a tick.
    #[must_use]
    pub fn stretch(&self, tick: u64) -> Option<&TickRun> {
        let i = self.stretches.partition_point(|s| s.tick <= tick).checked_sub(1)?;
        self.stretches.get(i)
    }
    /// Place of a tick: exact where its time is known, else in proportion.
    #[must_use]
    pub fn place(&self, tick: u64, mono: Option<MonoNs>) -> Option<i64> {
        let s = self.stretch(tick)?;
        if let Some(mono) = mono {
            let since = i64::try_from(mono.0.saturating_sub(s.mono.0)).unwrap_or(i64::MAX);
            return Some(s.from.saturating_add(since));
        }
        let share = (tick - s.tick) as f64 / s.ticks.saturating_sub(1).max(1) as f64;
        Some(s.from.saturating_add(((s.to - s.from) as f64 * share.min(1.0)) as i64))
    }
    /// Start and end of the line.
    #[must_use]
    pub fn span(&self) -> Option<(i64, i64)> {
        Some((self.stretches.first()?.from, self.stretches.last()?.to))
    }
    /// The nearest finding that began before or after a tick.
    #[must_use]
    pub fn spell(&self, here: u64, back: bool) -> Option<&FindingSpan> {
        if back {
            self.spells.iter().rfind(|s| s.first < here)
        } else {
            self.spells.iter().find(|s| s.first > here)
        }
    }
    /// The nearest mark before or after a tick.
    #[must_use]
    pub fn mark(&self, here: u64, back: bool) -> Option<&Marker> {
        let mut marks = self.posts.iter().filter(|p| p.sign == Sign::Mark);
        if back { marks.rfind(|p| p.tick < here) } else { marks.find(|p| p.tick > here) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_memory_there_is_a_recording_or_nothing() {
        let live = Timeline::default();
        assert_eq!(live.before(Seq(5)), Err("start of memory"));
        assert_eq!(live.after(Seq(5)), Err(None), "the present needs no word");
        assert_eq!((live.start(), live.end(), live.away(Seq(5), 1)), (None, None, None));
        let tape = Timeline::of_tape(10, Judged::Whole);
        assert_eq!(tape.before(Seq(5)), Ok(Goal::Tick(4)));
        assert_eq!(tape.before(Seq(0)), Err("start of the recording"));
        assert_eq!(tape.after(Seq(8)), Ok(Goal::Tick(9)));
        assert_eq!(tape.after(Seq(9)), Err(Some("end of the recording")));
    }

    #[test]
    fn a_mark_of_a_live_run_is_gone_to_while_it_is_in_memory() {
        let mut live = Timeline::default();
        assert!(!live.may_have_marks());
        live.add_mark(Seq(2), "early");
        live.add_mark(Seq(6), "late");
        assert_eq!(live.mark(Seq(7), true, |_| true), Some((6, "late")));
        assert_eq!(live.mark(Seq(6), true, |_| true), Some((2, "early")));
        assert_eq!(live.mark(Seq(6), true, |seq| seq > Seq(3)), None);
        let mut tape = Timeline::of_tape(10, Judged::Whole);
        tape.set_outline(Arc::new(Outline {
            ticks: 12,
            posts: vec![Marker { tick: 11, at: 0, sign: Sign::Mark, text: "told".into() }],
            ..Outline::default()
        }));
        assert_eq!(tape.mark(Seq(3), false, |_| false), Some((11, "told")), "memory or not");
        assert_eq!(tape.after(Seq(10)), Ok(Goal::Tick(11)), "it has grown");
    }
}
