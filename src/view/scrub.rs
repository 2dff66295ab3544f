//! The timeline of a whole recording: findings, marks, lost ticks, and the current position. Drawn
//! from the recording's index; no tick is read for it.

use super::chrome::Slot;
use super::context::{Cx, clock_minutes};
use super::state::ViewState;
use super::text;
use super::vm::{Line, Tone};
use crate::analysis::Analysis;
use crate::diagnose::Severity;
use crate::playback::timeline::{Outline, Sign, Weight};
use crate::sample::time::WallNs;

/// Columns beside the line: a time at each end.
pub(super) const EDGES: usize = 16;

/// Which stretch of time each column stands for.
struct Scale {
    from: i64,
    len: f64,
    n: usize,
}

impl Scale {
    fn new(o: &Outline, w: u16) -> Option<Self> {
        let (from, to) = o.span()?;
        let n = usize::from(w).saturating_sub(EDGES).max(1);
        // The last tick lies inside of the last column.
        Some(Self { from, len: ((to - from).max(1) as f64 + 1.0) / n as f64, n })
    }
    fn column(&self, at: i64) -> usize {
        let c = (at.saturating_sub(self.from).max(0) as f64 / self.len) as usize;
        c.min(self.n - 1)
    }
}

/// The tick under a column of the line, for the mouse.
#[must_use]
pub fn tick_at(o: &Outline, w: u16, x: u16) -> Option<u64> {
    let s = Scale::new(o, w)?;
    let column = usize::from(x).checked_sub(EDGES / 2 - 1).filter(|c| *c < s.n)?;
    let at = s.from.saturating_add(((column as f64 + 0.5) * s.len) as i64);
    let i = o.stretches.partition_point(|t| t.from <= at).saturating_sub(1);
    let t = o.stretches.get(i)?;
    let share = (at - t.from) as f64 / (t.to - t.from).max(1) as f64;
    Some(t.tick + (t.ticks.saturating_sub(1) as f64 * share.clamp(0.0, 1.0)) as u64)
}

/// The line; `None` where memory is all that is known.
pub(super) fn line(a: &Analysis, cx: &Cx<'_>, v: &ViewState, w: u16) -> Option<Line> {
    let o = v.timeline.outline()?;
    let scale = Scale::new(o, w)?;
    let here = o.place(cx.now.tick.seq.0, Some(cx.mono()));
    let cursor = here.map(|at| scale.column(at));
    let slots = slots(a, o, &scale);
    let edge = |wall: i64| clock_minutes(WallNs(wall), cx.tz);
    let (from, to) = o.span()?;
    let mut line = Line::of(format!(" {} ", edge(from)), Tone::Dim);
    for (i, slot) in slots.iter().enumerate() {
        let (mark, tone) = if Some(i) == cursor {
            ("┃", if v.play.on { Tone::Accent } else { Tone::Warn })
        } else {
            look(*slot)
        };
        match line.left.last_mut() {
            // Runs of one tone are one piece.
            Some(super::vm::Piece::Text(t, old)) if *old == tone && i > 0 => {
                t.to_mut().push_str(mark);
            }
            _ => line.add(mark, tone),
        }
    }
    Some(line.right(text::cut(&format!(" {} ", edge(to)), EDGES / 2).into_owned(), Tone::Dim))
}

fn look(slot: Slot) -> (&'static str, Tone) {
    match slot {
        Slot::Lost => ("?", Tone::Warn),
        Slot::Mark => ("m", Tone::Accent),
        other => super::chrome::look(other),
    }
}

fn slots(a: &Analysis, o: &Outline, scale: &Scale) -> Vec<Slot> {
    let mut slots = vec![Slot::Gap; scale.n];
    let mut set = |from: usize, to: usize, f: &dyn Fn(Slot) -> Slot| {
        for s in slots.iter_mut().take(to + 1).skip(from) {
            *s = f(*s);
        }
    };
    // A pause between two groups that is longer than the sampling interval is a gap.
    for (i, s) in o.stretches.iter().enumerate() {
        let apart = (s.to - s.from) / i64::try_from(s.ticks.max(2) - 1).unwrap_or(1);
        let apart = apart.max(s.step);
        let next = o.stretches.get(i + 1).map(|n| n.from);
        let close = next.filter(|n| n - s.to <= apart.saturating_mul(3).max(3_000_000_000));
        let to = close.map_or(s.to, |n| n - 1);
        set(scale.column(s.from), scale.column(to), &|_| Slot::Quiet);
    }
    let place = |tick| o.place(tick, None).map(|at| scale.column(at));
    for s in &o.spells {
        let severity = severity(s.weight);
        let (Some(from), Some(to)) = (place(s.first), place(s.last)) else { continue };
        set(from, to, &|old| lasting(old, severity));
    }
    for (seq, f) in a.findings() {
        // A part without an index yet has no entry.
        let noted = o.stretch(seq.0).is_some_and(|s| s.noted);
        if let (Some(worst), Some(at), false) = (f.worst(), place(seq.0), noted) {
            set(at, at, &|old| lasting(old, worst));
        }
    }
    for s in &o.spells {
        let severity = severity(s.weight);
        let Some(at) = place(s.first) else { continue };
        set(at, at, &|old| match old {
            Slot::Onset(o) => Slot::Onset(o.max(severity)),
            _ => Slot::Onset(severity),
        });
    }
    for p in &o.posts {
        let at = scale.column(p.at);
        match p.sign {
            Sign::Hole => set(at, at, &|old| match old {
                Slot::Onset(_) => old,
                _ => Slot::Lost,
            }),
            Sign::Mark => set(at, at, &|_| Slot::Mark),
            Sign::Note => {}
        }
    }
    slots
}

fn lasting(old: Slot, s: Severity) -> Slot {
    match old {
        Slot::Lasting(o) => Slot::Lasting(o.max(s)),
        _ => Slot::Lasting(s),
    }
}

fn severity(w: Weight) -> Severity {
    match w {
        Weight::Info => Severity::Info,
        Weight::Warn => Severity::Warn,
        Weight::Crit => Severity::Crit,
    }
}
