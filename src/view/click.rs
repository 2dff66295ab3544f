//! A click selects the row, finding or pane under it, or opens it if it is already selected; on the
//! title of a column it sorts.

use super::action::{Action, Effect};
use super::build::{held, shown};
use super::chrome;
use super::detail;
use super::layout::{FindingsTitle, Shape, places};
use super::panes::{self, PaneCx, PaneId};
use super::scrub;
use super::sorting::sort_by;
use super::state::{Cursor, Focus, Mode, RowKey, ViewState};
use super::update::{focus, update};
use super::vm::Size;
use crate::analysis::Analysis;
use crate::playback::timeline::Goal;

/// The left button was pressed at a column and row.
pub fn click(v: &mut ViewState, a: &Analysis, size: Size, x: u16, y: u16) -> Option<Effect> {
    if v.mode != Mode::Normal {
        return None;
    }
    let cx = shown(a, v)?;
    let p = places(size, v, &Shape::of(&cx, v, size));
    if let (Some(area), Some(o)) = (p.timeline, v.timeline.outline())
        && area.contains(x, y)
    {
        return scrub::tick_at(o, area.w, x - area.x).map(|t| Effect::Seek(Goal::Tick(t)));
    }
    if p.findings.contains(x, y) {
        let title = u16::from(p.findings_title == FindingsTitle::Line);
        let row = (y - p.findings.y).checked_sub(title).map(usize::from);
        let first = chrome::first_finding(&cx, v, &p);
        let f = row.and_then(|r| cx.now.findings.active.get(first + r));
        let key = f.map(|f| detail::finding_key(f))?;
        let again = v.focus == Focus::Findings && v.finding.as_ref() == Some(&key);
        v.details.clear();
        v.finding = Some(key);
        focus(v, Focus::Findings);
        if again {
            return update(v, a, size, Action::Open);
        }
        return None;
    }
    let place = p.panes.iter().find(|p| p.area.contains(x, y)).copied()?;
    let inside = place.area.inside(place.frame);
    let hit = {
        let st = v.pane(place.id)?;
        let held = held(a, v, st);
        let pcx = PaneCx { cx: &cx, held: held.as_ref(), st, view: v, focused: true };
        let pane = panes::pane(place.id);
        let built = pane.build(&pcx, inside.size());
        let row = y.checked_sub(inside.y).map(usize::from);
        let title =
            |(from, to, _): &&(u16, u16, usize)| (*from..*to).contains(&x.saturating_sub(inside.x));
        if row.is_some_and(|r| r + 1 == built.first_row)
            && let Some((_, _, column)) = built.titles.iter().find(title)
        {
            let column = *column;
            focus(v, Focus::Pane(place.id));
            sort_by(v, column);
            return None;
        }
        let row = row.and_then(|r| r.checked_sub(built.first_row));
        let key = row.and_then(|r| built.keys.get(r)).copied();
        key.and_then(|k| Some((k, pane.place(&pcx, k)?)))
    };
    select(v, a, size, place.id, hit);
    None
}

fn select(v: &mut ViewState, a: &Analysis, size: Size, id: PaneId, hit: Option<(RowKey, usize)>) {
    let was = v.focus == Focus::Pane(id);
    focus(v, Focus::Pane(id));
    let Some((key, place)) = hit else { return };
    let Some(st) = v.pane_mut(id) else { return };
    let again = was && st.cursor.key() == Some(key);
    st.cursor = Cursor::On { key, place };
    if again {
        update(v, a, size, Action::Open);
    }
}
