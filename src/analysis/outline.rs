//! A recording at a glance: where its ticks are in time, what was found, what is missing. Made
//! of what a recording says about itself, without its ticks; drawn as the timeline.

use crate::sample::time::{MonoNs, WallNs};

/// A run of ticks without a break between them that matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
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
pub struct Spell {
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
pub struct Post {
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
    pub stretches: Vec<Stretch>,
    /// Findings, by first tick.
    pub spells: Vec<Spell>,
    /// Marks, holes, notes, by place.
    pub posts: Vec<Post>,
}

impl Outline {
    /// The stretch of a tick.
    #[must_use]
    pub fn stretch(&self, tick: u64) -> Option<&Stretch> {
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
    pub fn spell(&self, here: u64, back: bool) -> Option<&Spell> {
        if back {
            self.spells.iter().rfind(|s| s.first < here)
        } else {
            self.spells.iter().find(|s| s.first > here)
        }
    }
    /// The nearest mark before or after a tick.
    #[must_use]
    pub fn mark(&self, here: u64, back: bool) -> Option<&Post> {
        let mut marks = self.posts.iter().filter(|p| p.sign == Sign::Mark);
        if back { marks.rfind(|p| p.tick < here) } else { marks.find(|p| p.tick > here) }
    }
}
