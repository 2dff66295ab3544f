//! Through time: by ticks, seconds, to findings, marks and times of day. One control for the
//! minutes in memory and for what the timeline knows beyond them: where the goal lies in memory
//! it is shown at once, else it is asked for.

use jiff::tz::TimeZone;

use super::action::{Effect, TimeStep};
use super::state::{FindingKey, Focus, ViewState, When};
use super::update::{focus, notify};
use crate::analysis::Analysis;
use crate::metrics::history;
use crate::playback::timeline::Goal;
use crate::sample::time::{MonoNs, Seq, WallNs};
use crate::time_spec::TimeSpec;

/// Goes to another moment.
pub(super) fn travel(v: &mut ViewState, a: &Analysis, step: TimeStep) -> Option<Effect> {
    let (latest, first) = (a.latest()?.tick.seq, a.oldest()?.tick.seq);
    let here = v.shown(latest).max(first);
    match step {
        TimeStep::TickBack => {
            let near = a.history().before(here).filter(|m| m.tick.seq >= first);
            let far = v.timeline.before(here).map_err(Some);
            tick(v, a, near, far)
        }
        TimeStep::TickForward => {
            let far = v.timeline.after(here);
            tick(v, a, a.history().after(here), far)
        }
        TimeStep::Seconds(s) => {
            let ns = i64::from(s) * 1_000_000_000;
            let effect = away(v, a, (here, first, latest), ns);
            if s < 0 && effect.is_none() && here == first && first < latest {
                notify(v, a, "start of memory");
            }
            effect
        }
        TimeStep::Start => match v.timeline.start() {
            Some(start) => goal(v, a, start),
            None => show(v, a, first),
        },
        TimeStep::End => match v.timeline.end() {
            Some(end) => goal(v, a, end),
            None => show(v, a, latest),
        },
        TimeStep::FindingBack => to_finding(v, a, here, true),
        TimeStep::FindingForward => to_finding(v, a, here, false),
        TimeStep::MarkBack => to_mark(v, a, here, true),
        TimeStep::MarkForward => to_mark(v, a, here, false),
    }
}

/// Shows a moment in memory.
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

/// To the next tick: in memory, else to what is beyond it, else a word on why there is none.
fn tick(
    v: &mut ViewState,
    a: &Analysis,
    near: Option<&history::Snapshot>,
    far: Result<Goal, Option<&'static str>>,
) -> Option<Effect> {
    if let Some(m) = near {
        return show(v, a, m.tick.seq);
    }
    match far {
        Ok(goal) => return Some(Effect::Seek(goal)),
        Err(Some(why)) => notify(v, a, why),
        Err(None) => {}
    }
    None
}

/// The tick in memory nearest to `ns` away, at least one tick.
fn seconds_away(a: &Analysis, here: Seq, first: Seq, ns: i64) -> Option<Seq> {
    let m = a.history().get(here)?;
    let want = MonoNs(m.tick.mono.0.saturating_add_signed(ns));
    // The last one on this side of it, and the first one beyond.
    let mut side = None;
    let mut nearer = |m: &history::Snapshot, beyond: bool| {
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

/// To the start of the nearest finding: in memory as judged now, elsewhere as the recorder noted
/// it.
fn to_finding(v: &mut ViewState, a: &Analysis, here: Seq, back: bool) -> Option<Effect> {
    let near = onset(a, here, back, v.timeline.reaches_back());
    let far = v.timeline.spell(here, back).filter(|s| {
        near.as_ref().is_none_or(|n| if back { s.first > n.0.0 } else { s.first < n.0.0 })
    });
    if let Some(s) = far {
        let (first, want) = (s.first, (s.rule.clone(), s.subject.clone()));
        v.timeline.look_for(want);
        let effect = goal(v, a, Goal::Tick(first));
        if effect.is_none() {
            wanted(v, a);
        }
        return effect;
    }
    let Some((seq, key)) = near else {
        if !back && v.timeline.has_present() {
            v.when = When::Live;
            notify(v, a, "now");
        } else {
            let which = if back { "earlier" } else { "later" };
            let text = format!("no {which} finding in {}", v.timeline.extent());
            notify(v, a, text);
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

/// The finding that the recorder noted, if it is found there.
pub(super) fn wanted(v: &mut ViewState, a: &Analysis) {
    let Some((rule, subject)) = v.timeline.take_wanted() else { return };
    let Some(now) = a.latest().and_then(|l| a.at(v.shown(l.tick.seq))) else { return };
    let same = |f: &&std::sync::Arc<crate::diagnose::Finding>| {
        f.rule.0 == rule && f.subject.to_string() == subject
    };
    if let Some(f) = now.findings.active.iter().find(same) {
        select(v, FindingKey { rule: f.rule, subject: f.subject.clone() });
    }
}

fn to_mark(v: &mut ViewState, a: &Analysis, here: Seq, back: bool) -> Option<Effect> {
    let mark = v.timeline.mark(here, back, |seq| a.at(seq).is_some());
    let Some((tick, text)) = mark.map(|(tick, text)| (tick, format!("mark: {text}"))) else {
        notify(v, a, if back { "no earlier mark" } else { "no later mark" });
        return None;
    };
    notify(v, a, text);
    goal(v, a, Goal::Tick(tick))
}

/// To a typed time.
pub(super) fn to_time(
    v: &mut ViewState,
    a: &Analysis,
    typed: &str,
    tz: &TimeZone,
) -> Option<Effect> {
    let to = match TimeSpec::parse(typed) {
        Ok(to) => to,
        Err(why) => {
            notify(v, a, why);
            return None;
        }
    };
    let (latest, first) = (a.latest()?, a.oldest()?);
    let here = a.at(v.shown(latest.tick.seq)).unwrap_or(latest);
    if let TimeSpec::Relative(ns) = to {
        return away(v, a, (here.tick.seq, first.tick.seq, latest.tick.seq), ns);
    }
    let memory = (first.tick.wall, latest.tick.wall);
    let range = v.timeline.walls().unwrap_or(memory);
    let from = to.resolve(here.tick.wall, range, tz);
    let end = to.end(from);
    let in_memory = from.0 >= memory.0.0 && from.0 <= memory.1.0;
    match v.timeline.within(from, end).filter(|_| !in_memory) {
        Some(beyond) => Some(Effect::Seek(beyond)),
        None => show(v, a, within(a, from, end).unwrap_or(first.tick.seq)),
    }
}

/// So many ns from here; as far as memory goes where nothing is beyond it.
fn away(
    v: &mut ViewState,
    a: &Analysis,
    (here, first, latest): (Seq, Seq, Seq),
    ns: i64,
) -> Option<Effect> {
    if ns == 0 {
        return None;
    }
    if let Some(seq) = seconds_away(a, here, first, ns) {
        return show(v, a, seq);
    }
    match v.timeline.away(here, ns) {
        Some(beyond) => Some(Effect::Seek(beyond)),
        None => show(v, a, if ns < 0 { first } else { latest }),
    }
}

/// The first tick in memory from `from` on and before `to`; if there is none, the last one before.
/// This way the clock shows what was typed.
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
