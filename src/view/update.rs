//! `update`: what keys and ticks do to the [`ViewState`]. Pure; what must happen outside is
//! returned as an [`Effect`].

use std::fmt::Write as _;
use std::time::Duration;

use super::action::{Action, Effect, Key, Pasted, Step, TimeStep};
use super::build::{held, shown};
use super::chrome;
use super::context::{Cx, clock};
use super::filtering::{self, MAX_FILTER};
use super::layout::{PaneArea, Shape, focused_pane, in_overview, places};
use super::opening::{next_finding, open, open_process, open_rule, under_cursor};
use super::panes::{self, PANES, PaneCx};
use super::sorting::{choose_sort, sort_next, sort_reverse, toggle_column};
use super::state::{
    Cursor, Detail, FindingKey, Flow, Focus, Input, Layout, Mode, Notice, OpenDetail, SORT_HOLD,
    SortHold, ViewState, When,
};
use super::vm::{FrameKind, Size, to_text};
use super::{command, detail, keymap, overlay, pace, text, travel};
use crate::analysis::Analysis;
use crate::sample::time::Seq;

/// Longest time, characters.
const MAX_TIME: usize = 40;
/// The same of what is searched for in the help.
const MAX_SEARCH: usize = 40;
/// How long a message stays.
const NOTICE: Duration = Duration::from_secs(5);
/// Rows and columns of a pane that is written to a file.
const SAVED: Size = Size::new(220, 2000);

/// A key was pressed.
pub fn key(v: &mut ViewState, a: &Analysis, size: Size, key: Key) -> Option<Effect> {
    v.notice = None;
    if let Some(action) = keymap::lookup(v, key) {
        return update(v, a, size, action);
    }
    match v.mode {
        Mode::Filter { .. } => filtering::type_key(v, key),
        Mode::Goto { .. } => return type_time(v, a, key),
        Mode::Command { .. } => return command::type_key(v, a, size, key),
        Mode::HelpSearch { .. } => search_help(v, key),
        Mode::Sort { pane } => choose_sort(v, pane, key),
        _ => {}
    }
    None
}

/// The cursor step that a key asks for, if any.
#[must_use]
pub fn step(v: &ViewState, key: Key) -> Option<Step> {
    match keymap::lookup(v, key) {
        Some(Action::Move(step)) => Some(step),
        _ => None,
    }
}

/// Moves the cursor by several steps: a key that repeats, a wheel that spins.
pub fn steps(v: &mut ViewState, a: &Analysis, size: Size, step: Step, times: usize) {
    v.notice = None;
    move_cursor(v, a, size, step, times);
}

/// Text was pasted: it goes into an open prompt. Anywhere else it is refused, because its letters
/// would act as keys.
pub fn paste(v: &mut ViewState, a: &Analysis, pasted: &Pasted) {
    v.notice = None;
    match &mut v.mode {
        Mode::Filter { pane, input, .. } => {
            input.paste(&pasted.text, MAX_FILTER);
            let (pane, typed) = (*pane, input.string());
            filtering::set(v, pane, &typed);
        }
        Mode::Goto { input } => input.paste(&pasted.text, MAX_TIME),
        Mode::Command { input, .. } => input.paste(&pasted.text, command::MAX_COMMAND),
        Mode::HelpSearch { input } => input.paste(&pasted.text, MAX_SEARCH),
        Mode::Normal | Mode::Columns { .. } | Mode::Help { .. } | Mode::Sort { .. } => {
            let lines = if pasted.lines == 1 { "line" } else { "lines" };
            let says = format!(
                "{} {lines} of pasted text refused: open a prompt first, such as / for a filter",
                pasted.lines
            );
            notify(v, a, says);
        }
    }
}

/// `a` has taken in a tick.
pub fn tick(v: &mut ViewState, a: &Analysis) {
    v.flow = Flow::Ticking;
    let Some(latest) = a.latest() else { return };
    let oldest = a.oldest().map(|m| m.tick.seq);
    v.waits.push(&latest, oldest);
    let now = latest.tick.mono;
    if v.notice.as_ref().is_some_and(|n| n.until <= now) {
        v.notice = None;
    }
    for p in &mut v.panes {
        if p.hold.is_some_and(|h| h.until <= now) {
            p.hold = None;
        }
    }
    // The moment shown is no longer in memory: stay at the oldest one.
    if let (When::Frozen(s) | When::Rewound(s), Some(oldest)) = (v.when, oldest)
        && s < oldest
    {
        v.when = When::Rewound(oldest);
    }
}

/// Shows a message.
pub fn notify(v: &mut ViewState, a: &Analysis, text: impl Into<String>) {
    v.notice = Some(Notice { text: text.into(), until: chrome::newest(a) + NOTICE });
}

/// A mark was added to the recording, after the newest tick.
pub fn marked(v: &mut ViewState, a: &Analysis, name: &str) {
    let Some(latest) = a.latest() else { return };
    v.timeline.add_mark(latest.tick.seq, name);
    let past = if v.when == When::Live { "" } else { ": the current time, not the time shown" };
    let text = format!("marked {} as {name}{past}", clock(latest.tick.wall, &v.tz));
    notify(v, a, text);
}

/// Carries out an action.
pub fn update(v: &mut ViewState, a: &Analysis, size: Size, action: Action) -> Option<Effect> {
    match action {
        Action::Quit => return Some(Effect::Quit),
        Action::Suspend => return Some(Effect::Suspend),
        Action::Repaint => return Some(Effect::Repaint),
        Action::Record => return Some(Effect::Record),
        Action::Mark if !v.timeline.has_present() => {
            notify(v, a, "marks can be added only to a recording in progress");
        }
        Action::Mark => return Some(Effect::Mark),
        Action::Back => back(v),
        Action::Open => open(v, a, size),
        Action::Process => open_process(v, a, size),
        Action::Zoom => zoom(v),
        Action::FocusNext => focus_by(v, a, 1),
        Action::FocusPrevious => focus_by(v, a, -1),
        Action::FocusFindings => {
            v.details.clear();
            focus(v, Focus::Findings);
        }
        Action::Finding(by) => next_finding(v, a, by),
        Action::Rule => open_rule(v, a, size),
        Action::Log => {
            v.details.clear();
            v.details.push(OpenDetail { what: Detail::Log, scroll: 0 });
        }
        Action::FocusPane(n) => focus_number(v, n),
        Action::Move(step) => move_cursor(v, a, size, step, 1),
        Action::SortNext => sort_next(v, size),
        Action::SortReverse => sort_reverse(v),
        Action::SortBy => {
            v.details.clear();
            let pane = focused_pane(v);
            focus(v, Focus::Pane(pane));
            v.mode = Mode::Sort { pane };
        }
        Action::Command => {
            v.mode = Mode::Command { input: Input::default(), offers: Vec::new() };
        }
        Action::Filter if matches!(v.mode, Mode::Help { .. }) => {
            v.mode = Mode::HelpSearch { input: Input::default() };
        }
        Action::Filter => {
            let pane = focused_pane(v);
            if let Some(before) = v.pane(pane).map(|p| p.filter.text.clone()) {
                v.details.clear();
                focus(v, Focus::Pane(pane));
                let (input, offers) = (Input::new(&before), Vec::new());
                v.mode = Mode::Filter { pane, input, before, offers, back: 0 };
            }
        }
        Action::Columns => {
            v.details.clear();
            let pane = focused_pane(v);
            focus(v, Focus::Pane(pane));
            v.mode = Mode::Columns { pane, at: 0 };
        }
        Action::ToggleColumn => toggle_column(v),
        Action::Freeze => freeze(v, a),
        Action::Faster => return pace::step(v, a, true),
        Action::Slower => return pace::step(v, a, false),
        Action::Goto => v.mode = Mode::Goto { input: Input::default() },
        Action::Time(step) => {
            // A user who steps by ticks looks closely: the display stays until it plays again.
            if matches!(step, TimeStep::TickBack | TimeStep::TickForward) {
                v.play.on = false;
            }
            return travel::travel(v, a, step);
        }
        Action::Live => return travel::travel(v, a, TimeStep::End),
        Action::Copy => return copy(v, a, size),
        Action::Save => return save(v, a),
        Action::Help => v.mode = Mode::Help { scroll: 0 },
    }
    None
}

/// What is typed leaves the lines of the help that have it.
fn search_help(v: &mut ViewState, key: Key) {
    let Mode::HelpSearch { input } = &mut v.mode else { return };
    match key {
        Key::Esc => v.mode = Mode::Help { scroll: 0 },
        key => _ = input.edit(key, MAX_SEARCH),
    }
}

/// Pauses or resumes. The past plays from where it is; the present is frozen.
fn freeze(v: &mut ViewState, a: &Analysis) {
    if v.in_past() {
        v.play.on = !v.play.on;
        return;
    }
    v.when = match (v.when, a.latest()) {
        (When::Live, Some(m)) => When::Frozen(m.tick.seq),
        _ => When::Live,
    };
}

/// Plays the next tick, if it is in memory. At the newest one, live resumes.
pub fn advance(v: &mut ViewState, a: &Analysis) -> bool {
    let Some(latest) = a.latest() else { return false };
    let Some(next) = a.history().after(v.shown(latest.tick.seq)) else { return false };
    let _ = travel::show(v, a, next.tick.seq);
    if v.when == When::Live && v.timeline.has_present() {
        v.play.on = false;
    }
    true
}

/// Another part of the recording is now in memory; shows `at`.
pub fn arrived(v: &mut ViewState, a: &Analysis, at: Seq) {
    v.waits.rebuild(a.history());
    for p in &mut v.panes {
        p.hold = None;
    }
    let _ = travel::show(v, a, at);
    travel::wanted(v, a);
}

/// One step: out of a prompt, a detail, a filter, a pane.
fn back(v: &mut ViewState) {
    let pane = focused_pane(v);
    if v.mode != Mode::Normal {
        v.mode = Mode::Normal;
    } else if v.details.pop().is_some() {
    } else if v.focus != Focus::Findings && v.pane(pane).is_some_and(|p| !p.filter.text.is_empty())
    {
        filtering::set(v, pane, "");
    } else {
        v.layout = Layout::Overview;
        leave_alone(v);
    }
}

/// Back to the overview from a pane that is not part of it.
fn leave_alone(v: &mut ViewState) {
    if !in_overview(focused_pane(v))
        && let Some(first) = PANES.first()
    {
        focus(v, Focus::Pane(first.id()));
    }
}

pub(super) fn focus(v: &mut ViewState, f: Focus) {
    if let Focus::Pane(id) = f {
        v.last_pane = id;
    }
    v.focus = f;
}

fn zoom(v: &mut ViewState) {
    if v.focus == Focus::Findings {
        focus(v, Focus::Pane(v.last_pane));
    }
    v.layout = match v.layout {
        Layout::Overview => Layout::Zoom,
        Layout::Zoom => Layout::Overview,
    };
}

fn focus_number(v: &mut ViewState, n: u8) {
    let Some(p) = usize::from(n).checked_sub(1).and_then(|i| PANES.get(i)) else { return };
    let target = Focus::Pane(p.id());
    if v.focus == target && v.details.is_empty() {
        zoom(v);
    } else {
        v.details.clear();
        focus(v, target);
    }
}

/// Findings, then the panes in their order.
fn focus_by(v: &mut ViewState, a: &Analysis, by: i32) {
    v.details.clear();
    let has_findings = a.latest().is_some_and(|m| !m.findings.active.is_empty());
    let mut ring: Vec<Focus> = PANES.iter().map(|p| Focus::Pane(p.id())).collect();
    if has_findings && v.layout == Layout::Overview {
        ring.push(Focus::Findings);
    }
    let at = ring.iter().position(|f| *f == v.focus).unwrap_or(ring.len() - 1);
    let next = (at as i32 + by).rem_euclid(ring.len() as i32) as usize;
    if let Some(f) = ring.get(next) {
        focus(v, *f);
    }
}

fn move_cursor(v: &mut ViewState, a: &Analysis, size: Size, step: Step, times: usize) {
    let help = match v.mode {
        Mode::Help { .. } => overlay::help_shown(v, size).0.len(),
        _ => 0,
    };
    match &mut v.mode {
        Mode::Help { scroll } => {
            let page = usize::from(size.h.saturating_sub(3)).max(1);
            let last = help.saturating_sub(page);
            *scroll = stepped(*scroll, step, times, page, last + 1);
            return;
        }
        Mode::Columns { pane, at } => {
            *at = stepped(*at, step, times, 10, panes::pane(*pane).columns().len());
            return;
        }
        Mode::Sort { .. } | Mode::HelpSearch { .. } => return,
        Mode::Normal | Mode::Filter { .. } | Mode::Goto { .. } | Mode::Command { .. } => {}
    }
    let Some(cx) = shown(a, v) else { return };
    let place = places(size, v, &Shape::of(&cx, v, size));
    if let Some(open) = v.details.last() {
        let page = usize::from(place.body.inside(FrameKind::Rule).h).max(1);
        let lines = detail::lines(&cx, &open.what, place.body.w).len();
        let last = lines.saturating_sub(page);
        let scroll = stepped(open.scroll.min(last), step, times, page, last + 1);
        if let Some(open) = v.details.last_mut() {
            open.scroll = scroll;
        }
        return;
    }
    match v.focus {
        Focus::Findings => {
            let active = &cx.now.findings.active;
            let Some(at) = chrome::selected_finding(&cx, v) else { return };
            let at = stepped(at, step, times, usize::from(place.findings.h), active.len());
            v.finding =
                active.get(at).map(|f| FindingKey { rule: f.rule, subject: f.subject.clone() });
        }
        Focus::Pane(id) => {
            let area = place.panes.iter().find(|p| p.id == id).copied();
            let area = area.unwrap_or(PaneArea { id, area: place.body, frame: FrameKind::Rule });
            let moved = move_in_pane(v, &cx, area, step, times);
            let latest = a.latest().map(|m| m.tick.mono).unwrap_or_default();
            let seq = cx.now.tick.seq;
            if let (Some((cursor, top)), Some(st)) = (moved, v.pane_mut(id)) {
                st.cursor = cursor;
                st.top = top;
                st.hold = match cursor {
                    // Following the worst row requires that the order can change.
                    Cursor::Top => None,
                    Cursor::On { .. } => Some(SortHold {
                        seq: st.hold.map_or(seq, |h| h.seq),
                        until: latest + SORT_HOLD,
                    }),
                };
            }
        }
    }
}

fn move_in_pane(
    v: &ViewState,
    cx: &Cx<'_>,
    area: PaneArea,
    step: Step,
    times: usize,
) -> Option<(Cursor, usize)> {
    let st = v.pane(area.id)?;
    let pane = panes::pane(area.id);
    let held = held(cx.analysis, v, st);
    let p = PaneCx { cx, held: held.as_ref(), st, view: v, focused: true };
    let n = pane.count(&p);
    if n == 0 {
        return None;
    }
    let rows = pane.list_rows(&p, area.area.inside(area.frame).size());
    let at = match st.cursor {
        Cursor::Top => 0,
        // If the row is gone, the cursor stays where it was.
        Cursor::On { key, place } => pane.place(&p, key).unwrap_or(place).min(n - 1),
    };
    if step == Step::First {
        return Some((Cursor::Top, 0));
    }
    let place = stepped(at, step, times, rows, n);
    let key = pane.key_at(&p, place)?;
    let top = st.top.min(n.saturating_sub(rows)).clamp((place + 1).saturating_sub(rows), place);
    Some((Cursor::On { key, place }, top))
}

/// The position `at` after a step in a list of `n`, with pages of `page`.
fn stepped(at: usize, step: Step, times: usize, page: usize, n: usize) -> usize {
    let last = n.saturating_sub(1);
    let by = |rows: usize| rows.max(1).saturating_mul(times);
    let to = match step {
        Step::Up => at.saturating_sub(by(1)),
        Step::Down => at.saturating_add(by(1)),
        Step::HalfUp => at.saturating_sub(by(page / 2)),
        Step::HalfDown => at.saturating_add(by(page / 2)),
        Step::PageUp => at.saturating_sub(by(page)),
        Step::PageDown => at.saturating_add(by(page)),
        Step::First => 0,
        Step::Last => last,
    };
    to.min(last)
}

fn type_time(v: &mut ViewState, a: &Analysis, key: Key) -> Option<Effect> {
    let Mode::Goto { input } = &mut v.mode else { return None };
    match key {
        Key::Enter => {
            let typed = input.string();
            v.mode = Mode::Normal;
            if typed.trim().is_empty() {
                return None;
            }
            let tz = v.tz.clone();
            return travel::to_time(v, a, &typed, &tz);
        }
        Key::Esc => v.mode = Mode::Normal,
        key => _ = input.edit(key, MAX_TIME),
    }
    None
}

fn copy(v: &mut ViewState, a: &Analysis, size: Size) -> Option<Effect> {
    let text = {
        let cx = shown(a, v)?;
        let what = match v.details.last() {
            Some(open) => Some(open.what.clone()),
            None => under_cursor(v, &cx, size),
        };
        what.and_then(|w| detail::copy_text(&cx, &w))
    };
    let Some(text) = text else {
        notify(v, a, "nothing to copy here");
        return None;
    };
    notify(v, a, format!("sent to the clipboard: {}", text::cut(text.lines().next()?, 60)));
    Some(Effect::Copy(text))
}

fn save(v: &ViewState, a: &Analysis) -> Option<Effect> {
    let cx = shown(a, v)?;
    let (name, lines) = if let Some(open) = v.details.last() {
        ("detail".to_owned(), detail::lines_to_keep(&cx, &open.what, SAVED.w))
    } else {
        let id = focused_pane(v);
        let st = v.pane(id)?;
        let pane = panes::pane(id);
        let p = PaneCx { cx: &cx, held: None, st, view: v, focused: false };
        let rows = u16::try_from(pane.count(&p) + 20).unwrap_or(u16::MAX).min(SAVED.h);
        let built = pane.build(&p, Size::new(SAVED.w, rows));
        (pane.name().to_owned(), built.lines)
    };
    let host = a.host();
    let mut text = format!(
        "stallscope {name}  {}  {}  {}\n",
        text::clean(&host.hostname),
        text::clean(&host.kernel),
        cx.clock(cx.now.tick.wall),
    );
    for f in cx.now.findings.all() {
        let (mark, says) = (f.fire.severity.mark(), text::clean(&f.fire.summary));
        let _ = writeln!(text, "{mark:<2} {}  {says}", f.rule);
    }
    text.push('\n');
    text.push_str(&to_text(&lines, usize::from(SAVED.w)));
    let stamp = cx.clock(cx.now.tick.wall).replace(':', "");
    Some(Effect::Save { name, stamp, text })
}
