//! Through time: by ticks, seconds, to findings, marks and times of day. One control for the
//! minutes in memory and for a recording: where the goal lies in memory it is shown at once,
//! else the player is asked for it.

use jiff::tz::TimeZone;

use super::action::{Effect, TimeStep};
use super::state::{FindingKey, Focus, ViewState, When};
use super::update::{focus, notify};
use crate::analysis::Analysis;
use crate::analysis::outline::{Goal, Outline};
use crate::moment::Moment;
use crate::sample::time::{MonoNs, Seq, WallNs};

/// Goes to another moment.
pub(super) fn travel(v: &mut ViewState, a: &Analysis, step: TimeStep) -> Option<Effect> {
    let (latest, first) = (a.latest()?.tick.seq, a.oldest()?.tick.seq);
    let here = v.shown(latest).max(first);
    match step {
        TimeStep::TickBack => match a.history().before(here).filter(|m| m.tick.seq >= first) {
            Some(m) => show(v, a, m.tick.seq),
            None => beyond(v, a, here.0.checked_sub(1).map(Goal::Tick), "oldest moment in memory"),
        },
        TimeStep::TickForward => match a.history().after(here) {
            Some(m) => show(v, a, m.tick.seq),
            None => beyond(v, a, Some(Goal::Tick(here.0 + 1)), "now"),
        },
        TimeStep::Seconds(s) => {
            let ns = i64::from(s) * 1_000_000_000;
            match seconds_away(a, here, first, ns) {
                Some(seq) => show(v, a, seq),
                None if v.reel.is_some() => beyond(v, a, Some(Goal::Away { from: here.0, ns }), ""),
                None if s < 0 => {
                    let _ = show(v, a, first);
                    if here == first && first < latest {
                        notify(v, a, "oldest moment in memory");
                    }
                    None
                }
                None => show(v, a, latest),
            }
        }
        TimeStep::Start => match v.reel {
            Some(_) => goal(v, a, Goal::Tick(0)),
            None => show(v, a, first),
        },
        TimeStep::End => match v.reel {
            Some(_) => goal(v, a, Goal::End),
            None => show(v, a, latest),
        },
        TimeStep::FindingBack => to_finding(v, a, here, true),
        TimeStep::FindingForward => to_finding(v, a, here, false),
        TimeStep::MarkBack => to_mark(v, a, here, true),
        TimeStep::MarkForward => to_mark(v, a, here, false),
    }
}

/// Shows a moment that is in memory.
pub(super) fn show(v: &mut ViewState, a: &Analysis, seq: Seq) -> Option<Effect> {
    let latest = a.latest()?.tick.seq;
    v.when = if seq >= latest { When::Live } else { When::Rewound(seq) };
    None
}

/// Shows a tick from wherever it is.
fn goal(v: &mut ViewState, a: &Analysis, goal: Goal) -> Option<Effect> {
    if let Goal::Tick(t) = goal
        && a.at(Seq(t)).is_some()
    {
        return show(v, a, Seq(t));
    }
    Some(Effect::Seek(goal))
}

/// Where memory ends: of a recording there is more.
fn beyond(v: &mut ViewState, a: &Analysis, to: Option<Goal>, says: &str) -> Option<Effect> {
    match (&v.reel, to) {
        (Some(r), Some(Goal::Tick(t))) if t >= r.ticks() => {
            notify(v, a, "end of the recording");
            None
        }
        (Some(_), Some(to)) => Some(Effect::Seek(to)),
        (Some(_), None) => {
            notify(v, a, "start of the recording");
            None
        }
        (None, _) => {
            if !says.is_empty() && says != "now" {
                notify(v, a, says.to_owned());
            }
            None
        }
    }
}

/// The tick in memory nearest to `ns` away, at least one tick.
fn seconds_away(a: &Analysis, here: Seq, first: Seq, ns: i64) -> Option<Seq> {
    let m = a.history().get(here)?;
    let want = MonoNs(m.tick.mono.0.saturating_add_signed(ns));
    // The last one on this side of it, and the first beyond.
    let mut side = None;
    let mut nearer = |m: &crate::metrics::history::Moment, beyond: bool| {
        let off = m.tick.mono.0.abs_diff(want.0);
        let before = side.replace((off, m.tick.seq));
        beyond.then(|| before.filter(|b| b.0 < off).map_or(m.tick.seq, |b| b.1))
    };
    if ns < 0 {
        let mut past = a.history().back_from(here).skip(1).take_while(|m| m.tick.seq >= first);
        past.find_map(|m| nearer(m, m.tick.mono <= want))
    } else {
        let mut next = a.history().iter().skip_while(|m| m.tick.seq <= here);
        next.find_map(|m| nearer(m, m.tick.mono >= want))
    }
}

/// To where the nearest finding began: in memory as it is judged now, elsewhere as the recorder
/// saw it.
fn to_finding(v: &mut ViewState, a: &Analysis, here: Seq, back: bool) -> Option<Effect> {
    let near = onset(a, here, back, v.reel.is_some());
    let far = v.reel.as_ref().and_then(|r| r.outline.as_ref()).and_then(|o| o.spell(here.0, back));
    let far = far.filter(|s| {
        near.as_ref().is_none_or(|n| if back { s.first > n.0.0 } else { s.first < n.0.0 })
    });
    if let Some(s) = far {
        let (first, want) = (s.first, (s.rule.clone(), s.subject.clone()));
        if let Some(r) = &mut v.reel {
            r.want = Some(want);
        }
        let effect = goal(v, a, Goal::Tick(first));
        if effect.is_none() {
            wanted(v, a);
        }
        return effect;
    }
    let Some((seq, key)) = near else {
        match (&v.reel, back) {
            (Some(_), true) => notify(v, a, "no earlier finding in the recording"),
            (Some(_), false) => notify(v, a, "no later finding in the recording"),
            (None, true) => notify(v, a, "no earlier finding in memory"),
            (None, false) => {
                v.when = When::Live;
                notify(v, a, "now");
            }
        }
        return None;
    };
    select(v, key);
    show(v, a, seq)
}

fn select(v: &mut ViewState, key: FindingKey) {
    v.finding = Some(key);
    if v.details.is_empty() {
        focus(v, Focus::Findings);
    }
}

/// The finding for which the recorder's word was followed, if it is found there.
pub(super) fn wanted(v: &mut ViewState, a: &Analysis) {
    let Some((rule, subject)) = v.reel.as_mut().and_then(|r| r.want.take()) else { return };
    let Some(now) = a.latest().and_then(|l| a.at(v.shown(l.tick.seq))) else { return };
    let same = |f: &&std::sync::Arc<crate::diagnose::Finding>| {
        f.rule.0 == rule && f.subject.to_string() == subject
    };
    if let Some(f) = now.findings.active.iter().find(same) {
        select(v, FindingKey { rule: f.rule, subject: f.subject.clone() });
    }
}

fn to_mark(v: &mut ViewState, a: &Analysis, here: Seq, back: bool) -> Option<Effect> {
    let mark = if let Some(r) = &v.reel {
        r.outline.as_ref().and_then(|o| o.mark(here.0, back)).map(|p| (p.tick, &p.text))
    } else {
        let mut known = v.marks.iter().filter(|m| a.at(m.seq).is_some());
        let mark = if back { known.rfind(|m| m.seq < here) } else { known.find(|m| m.seq > here) };
        mark.map(|m| (m.seq.0, &m.name))
    };
    let Some((tick, text)) = mark else {
        notify(v, a, if back { "no earlier mark" } else { "no later mark" });
        return None;
    };
    let text = format!("mark: {text}");
    notify(v, a, text);
    goal(v, a, Goal::Tick(tick))
}

/// To a time as it was typed.
pub(super) fn to_time(
    v: &mut ViewState,
    a: &Analysis,
    typed: &str,
    tz: &TimeZone,
) -> Option<Effect> {
    let to = match Moment::parse(typed) {
        Ok(to) => to,
        Err(why) => {
            notify(v, a, why);
            return None;
        }
    };
    let (latest, first) = (a.latest()?, a.oldest()?);
    let here = a.at(v.shown(latest.tick.seq)).unwrap_or(latest);
    if let Moment::Relative(ns) = to {
        return away(v, a, (here.tick.seq, first.tick.seq, latest.tick.seq), ns);
    }
    let outline = v.reel.as_ref().and_then(|r| r.outline.clone());
    let memory = (first.tick.wall, latest.tick.wall);
    let range = outline.as_deref().and_then(walls).unwrap_or(memory);
    let wall = to.resolve(here.tick.wall, range, tz);
    if wall.0 >= memory.0.0 && wall.0 <= memory.1.0 || v.reel.is_none() {
        let seq = within(a, wall, to.end(wall)).unwrap_or(first.tick.seq);
        return show(v, a, seq);
    }
    Some(Effect::Seek(Goal::Within(wall, to.end(wall))))
}

/// So many ns from here; as far as memory goes where there is no recording.
fn away(
    v: &mut ViewState,
    a: &Analysis,
    (here, first, latest): (Seq, Seq, Seq),
    ns: i64,
) -> Option<Effect> {
    match seconds_away(a, here, first, ns) {
        _ if ns == 0 => None,
        Some(seq) => show(v, a, seq),
        None if v.reel.is_some() => Some(Effect::Seek(Goal::Away { from: here.0, ns })),
        None => show(v, a, if ns < 0 { first } else { latest }),
    }
}

/// The first tick in memory from `from` on and before `to`; where there is none, the last one
/// before. So that the clock shows what was typed.
fn within(a: &Analysis, from: WallNs, to: WallNs) -> Option<Seq> {
    let mut before = None;
    for m in a.findings().filter_map(|(seq, _)| a.history().get(seq)) {
        if m.tick.wall >= from {
            let inside = before.is_none() || m.tick.wall < to;
            return if inside { Some(m.tick.seq) } else { before };
        }
        before = Some(m.tick.seq);
    }
    before
}

/// Wall clocks of the recording's first and last tick.
fn walls(o: &Outline) -> Option<(WallNs, WallNs)> {
    let (first, last) = (o.stretches.first()?, o.stretches.last()?);
    Some((first.wall, WallNs(last.wall.0.saturating_add(last.to - last.from))))
}

/// The nearest tick before or after `here` in which a finding is new. `later`: what memory
/// begins with began before.
fn onset(a: &Analysis, here: Seq, back: bool, later: bool) -> Option<(Seq, FindingKey)> {
    let mut found = None;
    let mut before: Option<&crate::diagnose::Findings> = None;
    for (seq, now) in a.findings() {
        if back && seq >= here {
            break;
        }
        let fresh = now.active.iter().find(|f| {
            let old = before.map_or(&[][..], |b| &b.active);
            !old.iter().any(|o| o.rule == f.rule && o.subject == f.subject)
        });
        let fresh = fresh.filter(|_| before.is_some() || !later);
        if let (Some(f), true) = (fresh, back || seq > here) {
            found = Some((seq, FindingKey { rule: f.rule, subject: f.subject.clone() }));
            if !back {
                break;
            }
        }
        before = Some(now);
    }
    found
}
