//! What opens: the row or finding under the cursor, the page of a process, the next finding, a rule.

use super::build::{held, shown};
use super::chrome;
use super::context::Cx;
use super::detail;
use super::panes::{self, PaneCx};
use super::state::{Cursor, Detail, FindingKey, Focus, OpenDetail, RowKey, ViewState};
use super::update::notify;
use super::vm::Size;
use crate::analysis::Analysis;

/// Maximum number of nested detail views.
const MAX_DETAILS: usize = 8;

pub(super) fn open(v: &mut ViewState, a: &Analysis, size: Size) {
    if v.details.len() >= MAX_DETAILS {
        return;
    }
    let what = {
        let Some(cx) = shown(a, v) else { return };
        match v.details.last() {
            // From a finding to the first thing it names.
            Some(open) => detail::next(&cx, &open.what),
            None => under_cursor(v, &cx, size),
        }
    };
    if let Some(what) = what {
        v.details.push(OpenDetail { what, scroll: 0 });
    }
}

/// The page of the process that is spoken of.
pub(super) fn open_process(v: &mut ViewState, a: &Analysis, size: Size) {
    if v.details.len() >= MAX_DETAILS {
        return;
    }
    let found = {
        let Some(cx) = shown(a, v) else { return };
        let open = v.details.last().map(|open| open.what.clone());
        if matches!(open, Some(Detail::Row(RowKey::Process(_)))) {
            return;
        }
        let here = open.or_else(|| under_cursor(v, &cx, size));
        let pid = here.and_then(|what| detail::process(&cx, &what));
        pid.map(|pid| Detail::Row(RowKey::Process(pid)))
    };
    match found {
        Some(what) => v.details.push(OpenDetail { what, scroll: 0 }),
        None => notify(v, a, "no process is known here"),
    }
}

/// From the finding that is open, or under the cursor, to another one, which is opened.
pub(super) fn next_finding(v: &mut ViewState, a: &Analysis, by: i8) {
    let found = {
        let Some(cx) = shown(a, v) else { return };
        let active = &cx.now.findings.active;
        let Some(len) = i64::try_from(active.len()).ok().filter(|n| *n > 0) else { return };
        let open = match v.details.last().map(|d| &d.what) {
            Some(Detail::Finding(key)) => active.iter().position(|f| chrome::is(f, key)),
            _ => None,
        };
        let at = match open {
            Some(at) => (at as i64 + i64::from(by)).rem_euclid(len),
            None => chrome::selected_finding(&cx, v).map_or(0, |at| at as i64),
        };
        active.get(at as usize).map(|f| detail::finding_key(f))
    };
    let Some(key) = found else { return };
    v.finding = Some(key.clone());
    let is_finding = |d: &OpenDetail| matches!(d.what, Detail::Finding(_));
    if v.details.last().is_some_and(is_finding) {
        v.details.pop();
    }
    if v.details.len() < MAX_DETAILS {
        v.details.push(OpenDetail { what: Detail::Finding(key), scroll: 0 });
    }
}

/// The rule of the finding that is open, or under the cursor.
pub(super) fn open_rule(v: &mut ViewState, a: &Analysis, size: Size) {
    let found = {
        let Some(cx) = shown(a, v) else { return };
        let open = v.details.last().map(|open| open.what.clone());
        let here = open.or_else(|| under_cursor(v, &cx, size));
        let worst = || cx.now.findings.active.first().map(|f| f.rule);
        match here {
            Some(Detail::Finding(key)) => Some(key.rule),
            Some(Detail::Rule(_)) => return,
            _ => worst(),
        }
    };
    match found {
        Some(id) if v.details.len() < MAX_DETAILS => {
            v.details.push(OpenDetail { what: Detail::Rule(id), scroll: 0 });
        }
        Some(_) => {}
        None => notify(v, a, "no finding, no rule"),
    }
}

pub(super) fn under_cursor(v: &ViewState, cx: &Cx<'_>, _size: Size) -> Option<Detail> {
    match v.focus {
        Focus::Findings => {
            let f = cx.now.findings.active.get(chrome::selected_finding(cx, v)?)?;
            Some(Detail::Finding(FindingKey { rule: f.rule, subject: f.subject.clone() }))
        }
        Focus::Pane(id) => {
            let st = v.pane(id)?;
            let held = held(cx.analysis, v, st);
            let p = PaneCx { cx, held: held.as_ref(), st, view: v, focused: true };
            let pane = panes::pane(id);
            let named = pane.named(&st.filter.text).filter(|_| pane.count(&p) == 0);
            let key = match (named, st.cursor) {
                (Some(key), _) | (None, Cursor::On { key, .. }) => key,
                (None, Cursor::Top) => pane.key_at(&p, 0)?,
            };
            Some(Detail::Row(pane.opens(cx, key)))
        }
    }
}
