//! The prompt behind `/`: what its keys do.

use super::action::Key;
use super::filter::{Filter, complete};
use super::panes::{self, PaneId};
use super::state::{Input, Mode, ViewState};

/// Longest filter, characters.
pub(super) const MAX_FILTER: usize = 200;
/// Filters that are remembered.
const MAX_FILTERS: usize = 50;

/// A key of the prompt.
pub(super) fn type_key(v: &mut ViewState, key: Key) {
    let Mode::Filter { pane, input, before, offers, back } = &mut v.mode else { return };
    let pane = *pane;
    offers.clear();
    let changed = match key {
        Key::Enter => return apply(v, pane),
        Key::Esc => {
            let before = std::mem::take(before);
            v.mode = Mode::Normal;
            return set(v, pane, &before);
        }
        Key::Tab => {
            let typed: String = input.text.iter().take(input.at).collect();
            let done = complete(&typed, &panes::pane(pane).columns());
            *offers = done.names;
            let room = MAX_FILTER.saturating_sub(input.text.len());
            done.insert.chars().take(room).fold(false, |_, c| input.edit(Key::Char(c), MAX_FILTER))
        }
        Key::Up | Key::Down => {
            let to = if key == Key::Up { *back + 1 } else { back.saturating_sub(1) };
            let then = v.filters.len().checked_sub(to).and_then(|at| v.filters.get(at));
            if to > v.filters.len() || to == *back {
                return;
            }
            (*back, *input) = (to, Input::new(then.map_or("", String::as_str)));
            true
        }
        key => input.edit(key, MAX_FILTER),
    };
    if changed {
        let typed = input.string();
        set(v, pane, &typed);
    }
}

/// Leaves the prompt, unless what was typed is not understood: the prompt says what is wrong.
fn apply(v: &mut ViewState, pane: PaneId) {
    let Some(filter) = v.pane(pane).map(|p| &p.filter) else { return };
    if filter.wrong().is_some() {
        return;
    }
    let typed = filter.text.trim().to_owned();
    v.mode = Mode::Normal;
    if !typed.is_empty() {
        v.filters.retain(|f| *f != typed);
        v.filters.push(typed);
        let old = v.filters.len().saturating_sub(MAX_FILTERS);
        v.filters.drain(..old);
    }
}

/// Shows the rows that pass from now on: in the pane where it was typed, and in all others that
/// understand it.
pub(super) fn set(v: &mut ViewState, pane: PaneId, typed: &str) {
    for st in &mut v.panes {
        let filter = Filter::parse(typed, &panes::pane(st.id).columns());
        let is_understood = st.id == pane || filter.wrong().is_none();
        st.filter = if is_understood { filter } else { Filter::default() };
        st.hold = None;
        st.top = 0;
    }
}
