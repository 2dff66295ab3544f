//! Makes the [`Outline`] of a recording from its group indexes: no tick is decoded.

use std::collections::HashMap;

use super::timeline::{FindingSpan, Marker, Outline, Sign, TickRun, Weight};
use crate::recording::file::index::{EventAt, GroupFinding, GroupIndex};
use crate::recording::{Event, Gathered, Reader, Stamp};
use crate::sample::time::Seq;

/// The start of a run on the line.
struct Base {
    segment: u32,
    mono: u64,
    place: i64,
}

/// What a recording tells about itself. An index that is damaged costs the findings of its
/// group; the group itself stays on the line.
#[must_use]
pub fn outline(reader: &mut Reader) -> Outline {
    let mut out = Outline { ticks: reader.len(), ..Outline::default() };
    let mut base: Option<Base> = None;
    // Findings that were active in the last tick of the group before.
    let mut open: HashMap<(String, String), usize> = HashMap::new();
    let mut room = Room::default();
    let groups = reader.groups().to_vec();
    for (g, entry) in groups.iter().enumerate() {
        let first = reader.first_of(g).unwrap_or(0);
        if base.as_ref().is_none_or(|b| b.segment != entry.segment || entry.first.mono.0 < b.mono) {
            // Time does not run backwards on the line, whatever the clock says after a reboot.
            let end = out.stretches.last().map_or(i64::MIN, |s| s.to);
            let place = entry.first.wall.0.max(end);
            base = Some(Base { segment: entry.segment, mono: entry.first.mono.0, place });
            open.clear();
        }
        let Some(base) = &base else { continue };
        let host = reader.segments().get(entry.segment as usize).map(|s| &s.1.host);
        let stretch = TickRun {
            step: host.map_or(0, |h| i64::try_from(h.interval.as_nanos()).unwrap_or(0)),
            tick: first,
            ticks: u64::from(entry.ticks),
            segment: entry.segment,
            mono: entry.first.mono,
            wall: entry.first.wall,
            from: place(base, entry.first),
            to: place(base, entry.last),
            noted: entry.index.is_some(),
        };
        out.stretches.push(stretch);
        let Ok(index) = reader.index(g) else {
            open.clear();
            continue;
        };
        open = spells(&mut out, &index, first, &open, &mut room.spells);
        for r in index.events.iter().filter(|r| room.posts.has_room(r.bytes())) {
            out.posts.extend(post(base, r, numbered(&index, first, r.at.seq)));
        }
    }
    rest(&mut out, reader, base.as_ref());
    out.posts.extend(room.left_out(&out));
    out.spells.sort_by_key(|s| (s.first, std::cmp::Reverse(s.weight)));
    out.posts.sort_by_key(|p| (p.at, p.tick));
    out.posts.dedup();
    out
}

/// Room for what all groups tell.
#[derive(Default)]
struct Room {
    spells: Gathered,
    posts: Gathered,
}

impl Room {
    /// What there was no room for, at the end of the line.
    fn left_out(&self, out: &Outline) -> Option<Marker> {
        let (findings, events) = (self.spells.left_out, self.posts.left_out);
        let text = match (findings, events) {
            (0, 0) => return None,
            (_, 0) => format!("{findings} more findings are not on the timeline"),
            (0, _) => format!("{events} more events are not on the timeline"),
            _ => {
                format!("{findings} more findings and {events} more events are not on the timeline")
            }
        };
        let at = out.stretches.last().map_or(0, |s| s.to);
        Some(Marker { tick: out.ticks.saturating_sub(1), at, sign: Sign::Note, text })
    }
}

/// Events that are in no index, and damage.
fn rest(out: &mut Outline, reader: &Reader, last: Option<&Base>) {
    let find = |out: &Outline, at: Stamp| {
        let same = |s: &&TickRun| s.mono <= at.mono && at.wall.0.abs_diff(s.wall.0) < DAY;
        let i = out.stretches.iter().rposition(|s| same(&s));
        i.and_then(|i| out.stretches.get(i).copied())
    };
    for r in reader.loose_events() {
        let s = find(out, r.at);
        let base = s.map(|s| Base { segment: s.segment, mono: s.mono.0, place: s.from });
        let tick = s.map_or(0, |s| nearest(&s, r.at));
        if let Some(base) = base.as_ref().or(last) {
            out.posts.extend(post(base, r, tick));
        }
    }
    for d in reader.damage() {
        let s = d.after.and_then(|a| Some((find(out, a)?, a)));
        let (tick, at) = s.map_or((0, out.span().map_or(0, |s| s.0)), |(s, a)| {
            (nearest(&s, a) + 1, place(&Base { segment: 0, mono: s.mono.0, place: s.from }, a))
        });
        out.posts.push(Marker { tick, at, sign: Sign::Hole, text: d.to_string() });
    }
}

const DAY: u64 = 86_400_000_000_000;

fn nearest(s: &TickRun, at: Stamp) -> u64 {
    let span = (s.to - s.from).max(1) as f64;
    let share = at.mono.0.saturating_sub(s.mono.0) as f64 / span;
    s.tick + ((s.ticks.saturating_sub(1)) as f64 * share.clamp(0.0, 1.0)) as u64
}

fn place(base: &Base, at: Stamp) -> i64 {
    let since = i64::try_from(at.mono.0.saturating_sub(base.mono)).unwrap_or(i64::MAX);
    base.place.saturating_add(since)
}

fn numbered(index: &GroupIndex, first: u64, seq: Seq) -> u64 {
    first + index.ticks.partition_point(|t| t.at.seq < seq) as u64
}

/// Takes in the findings of a group; those that went on from the group before are the same.
fn spells(
    out: &mut Outline,
    index: &GroupIndex,
    first: u64,
    open: &HashMap<(String, String), usize>,
    room: &mut Gathered,
) -> HashMap<(String, String), usize> {
    let mut still = HashMap::new();
    let (Some(begin), Some(end)) = (index.ticks.first(), index.ticks.last()) else { return still };
    for f in &index.findings {
        let key = (f.note.rule.clone(), f.note.subject.clone());
        let known = still.get(&key).copied().or_else(|| {
            let went_on = f.first == begin.at.seq;
            open.get(&key).copied().filter(|_| went_on)
        });
        let i = known.unwrap_or(out.spells.len());
        if known.is_none() {
            if !room.has_room(f.note.bytes()) {
                continue;
            }
            out.spells.push(spell(f, numbered(index, first, f.first)));
        }
        if let Some(s) = out.spells.get_mut(i) {
            s.last = s.last.max(numbered(index, first, f.last));
            s.weight = s.weight.max(weight(&f.note.severity));
        }
        // Another severity is another note of the same finding.
        still.insert(key, i);
    }
    still.retain(|_, i| {
        out.spells.get(*i).is_some_and(|s| s.last >= numbered(index, first, end.at.seq))
    });
    still
}

fn spell(f: &GroupFinding, first: u64) -> FindingSpan {
    FindingSpan {
        rule: f.note.rule.clone(),
        subject: f.note.subject.clone(),
        weight: weight(&f.note.severity),
        first,
        last: first,
    }
}

fn weight(severity: &str) -> Weight {
    match severity {
        "crit" => Weight::Crit,
        "warn" => Weight::Warn,
        _ => Weight::Info,
    }
}

fn post(base: &Base, r: &EventAt, tick: u64) -> Option<Marker> {
    let (sign, text) = match &r.event {
        Event::Mark { text } => (Sign::Mark, text.clone()),
        Event::Gap { ticks } => (Sign::Hole, format!("{ticks} ticks are missing")),
        Event::Dropped { ticks, why } => {
            (Sign::Hole, format!("{ticks} ticks were not recorded: {why}"))
        }
        Event::ClockStep { by_ns } => {
            (Sign::Note, format!("the clock was set by {:+.1} s", *by_ns as f64 / 1e9))
        }
        Event::CollectorError { collector, error } => (Sign::Note, format!("{collector}: {error}")),
        Event::Unknown => return None,
    };
    Some(Marker { tick, at: place(base, r.at), sign, text })
}
