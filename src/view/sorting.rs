//! Order and columns of the pane that has the focus.

use super::action::Key;
use super::layout::focused_pane;
use super::state::{Mode, PaneState, Sort, ViewState};
use super::table::HIDDEN;
use super::vm::Size;
use super::{overlay, panes};

/// The orders of a pane: its own, by trouble, then by each column that is shown.
pub(super) fn sort_next(v: &mut ViewState, _size: Size) {
    let id = focused_pane(v);
    let Some(st) = v.pane_mut(id) else { return };
    let own = PaneState::new(id).sort;
    let mut orders = vec![own];
    if !matches!(own, Sort::Trouble { .. }) {
        orders.push(Sort::Trouble { reverse: false });
    }
    for (index, c) in panes::pane(id).columns().iter().enumerate() {
        if st.columns.get(c.key).copied().unwrap_or(c.priority != HIDDEN) {
            orders.push(Sort::Column { index, reverse: false });
        }
    }
    let straight = if st.sort.reversed() { st.sort.turned() } else { st.sort };
    let at = orders.iter().position(|o| *o == straight).unwrap_or(0);
    st.sort = orders.get((at + 1) % orders.len()).copied().unwrap_or(own);
    st.hold = None;
    st.top = 0;
}

/// Sorts the focused pane by a column; again, the other way round.
pub(super) fn sort_by(v: &mut ViewState, index: usize) {
    let id = focused_pane(v);
    let Some(st) = v.pane_mut(id) else { return };
    st.sort = match st.sort {
        Sort::Column { index: now, .. } if now == index => st.sort.turned(),
        _ => Sort::Column { index, reverse: false },
    };
    st.hold = None;
    st.top = 0;
}

/// A letter chooses the column; any other key leaves the order as it is.
pub(super) fn choose_sort(v: &mut ViewState, pane: panes::PaneId, key: Key) {
    v.mode = Mode::Normal;
    let Some(st) = v.pane(pane) else { return };
    let letters = overlay::letters(&panes::pane(pane).columns(), st);
    let Key::Char(c) = key else { return };
    match letters.into_iter().find(|l| l.0 == c) {
        Some((_, Some(index))) => sort_by(v, index),
        Some((_, None)) => {
            if let Some(st) = v.pane_mut(pane) {
                (st.sort, st.hold, st.top) = (Sort::Trouble { reverse: false }, None, 0);
            }
        }
        None => {}
    }
}

pub(super) fn sort_reverse(v: &mut ViewState) {
    let id = focused_pane(v);
    if let Some(st) = v.pane_mut(id) {
        st.sort = st.sort.turned();
        st.hold = None;
    }
}

pub(super) fn toggle_column(v: &mut ViewState) {
    let Mode::Columns { pane, at } = v.mode else { return };
    let Some(c) = panes::pane(pane).columns().get(at).copied() else { return };
    if let Some(st) = v.pane_mut(pane) {
        let on = st.columns.get(c.key).copied().unwrap_or(c.priority != HIDDEN);
        st.columns.insert(c.key, !on);
    }
}
