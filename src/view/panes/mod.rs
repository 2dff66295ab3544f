//! Panes: a folder each with the table, what a row opens into, and the text of the key; one line
//! in [`PANES`] each.

use std::borrow::Cow;
use std::collections::HashMap;

use super::context::Cx;
use super::mean;
use super::order::{self, Ordered, Top};
use super::state::{Cursor, PaneState, RowKey, Sort, ViewState};
use super::table::{self, ColumnInfo, Table};
use super::vm::{Line, LineStyle, Size, Tone};
use crate::sample::subject::SockId;

/// Makes of the list of panes their modules, their ids and the registry.
macro_rules! panes {
    ($($module:ident: $id:ident),* $(,)?) => {
        $(pub mod $module;)*

        /// Names a pane.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "the pane says what it is")]
        pub enum PaneId { $($id),* }

        /// Every pane, in the order of their numbers.
        pub const PANES: &[&dyn Pane] = &[$(&$module::$id),*];
    };
}

panes! {
    sockets: Sockets,
    disks: Disks,
    cpus: Cpus,
    runq: RunQueue,
    events: Events,
    processes: Processes,
    network: Network,
    resources: Resources,
    history: History,
}

/// The pane with this id.
#[must_use]
pub fn pane(id: PaneId) -> &'static dyn Pane {
    PANES.iter().copied().find(|p| p.id() == id).unwrap_or(&sockets::Sockets)
}

/// What a pane needs to draw itself.
pub struct PaneCx<'a> {
    /// The moment shown.
    pub cx: &'a Cx<'a>,
    /// The moment whose order is kept while the order is held.
    pub held: Option<&'a Cx<'a>>,
    /// What the user chose for this pane.
    pub st: &'a PaneState,
    /// What the user chose otherwise.
    pub view: &'a ViewState,
    /// Keys go here: the cursor is shown.
    pub focused: bool,
}

/// What a pane shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PaneVm {
    /// Parts of the title.
    pub title: Vec<(Cow<'static, str>, Tone)>,
    /// Source and age.
    pub note: (Cow<'static, str>, Tone),
    /// Content.
    pub lines: Vec<Line>,
    /// The rows of the list, from the top.
    pub keys: Vec<RowKey>,
    /// Line of the first of them; the one above it has the titles of the columns.
    pub first_row: usize,
    /// From where to where a column's title is, and its number.
    pub titles: Vec<(u16, u16, usize)>,
    /// Sockets among the rows, with their inodes.
    pub visible: Vec<(SockId, u32)>,
}

/// What a row opens into. A pane is asked for the rows whose key names it; see [`RowKey::pane`].
pub trait RowDetail: Sync {
    /// Title.
    fn title(&self, cx: &Cx<'_>, key: RowKey) -> &'static str;
    /// All its lines.
    fn lines(&self, cx: &Cx<'_>, key: RowKey, w: u16) -> Vec<Line>;
    /// The row that Enter opens in the list: itself, as a rule.
    fn opens(&self, _cx: &Cx<'_>, key: RowKey) -> RowKey {
        key
    }
    /// What to type next.
    fn next_command(&self, _cx: &Cx<'_>, _key: RowKey) -> Option<String> {
        None
    }
    /// Whether Enter may open another row from here.
    fn leads_on(&self, _key: RowKey) -> bool {
        false
    }
    /// The row that it opens.
    fn leads_to(&self, _cx: &Cx<'_>, _key: RowKey) -> Option<RowKey> {
        None
    }
    /// The process that it belongs to, or that owns it.
    fn process(&self, _cx: &Cx<'_>, _key: RowKey) -> Option<u32> {
        None
    }
    /// The process whose threads are to be watched while it is shown.
    fn watches(&self, _cx: &Cx<'_>, _key: RowKey) -> Option<u32> {
        None
    }
    /// The row that a filter names although nothing is known of it at the time shown.
    fn named(&self, _filter: &str) -> Option<RowKey> {
        None
    }
    /// The socket that it shows, to be read whole, with its inode.
    fn asks(&self, _cx: &Cx<'_>, _key: RowKey) -> Option<(SockId, u32)> {
        None
    }
}

/// A pane.
pub trait Pane: RowDetail {
    /// Its id.
    fn id(&self) -> PaneId;
    /// Stable name, kebab-case: file names, tests.
    fn name(&self) -> &'static str;
    /// Title.
    fn heading(&self) -> &'static str;
    /// What its key does.
    fn key_help(&self) -> &'static str;
    /// The order of its rows at the start.
    fn first_sort(&self) -> Sort;
    /// Its columns.
    fn columns(&self) -> Vec<ColumnInfo>;
    /// Number of rows that pass the filter.
    fn count(&self, p: &PaneCx<'_>) -> usize;
    /// Position of a row in the order.
    fn place(&self, p: &PaneCx<'_>, key: RowKey) -> Option<usize>;
    /// The row at a position in the order.
    fn key_at(&self, p: &PaneCx<'_>, place: usize) -> Option<RowKey>;
    /// Rows of the list that fit into a pane of this inner size.
    fn list_rows(&self, p: &PaneCx<'_>, inner: Size) -> usize;
    /// Lines that it can fill, of this width.
    fn wants(&self, p: &PaneCx<'_>) -> u16;
    /// Draws it into an inner size.
    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm;
}

/// A pane that is a list: the rest of what a [`Pane`] says follows from its [`Table`].
trait ListPane: Table + RowDetail {
    /// Its id.
    const ID: PaneId;
    /// Stable name, kebab-case: file names, tests.
    const NAME: &'static str;
    /// Title.
    const TITLE: &'static str;
    /// What its key does.
    const HELP: &'static str;
    /// The order of its rows at the start.
    const SORT: Sort = Sort::Trouble { reverse: false };
    /// Lines that are neither rows nor the titles of the columns.
    fn other_lines(&self, _p: &PaneCx<'_>, _inner: Size) -> u16 {
        0
    }
    /// Rows of the list that fit into a pane of this inner size.
    fn list_rows(&self, p: &PaneCx<'_>, inner: Size) -> usize {
        usize::from(inner.h.saturating_sub(1 + self.other_lines(p, inner))).max(1)
    }
    /// Lines that it can fill: its rows and the titles of the columns.
    fn wants(&self, p: &PaneCx<'_>) -> u16 {
        u16::try_from(self.rows(p.cx).len() + 1).unwrap_or(u16::MAX)
    }
    /// Draws it into an inner size.
    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm;
}

impl<T: ListPane> Pane for T {
    fn id(&self) -> PaneId {
        T::ID
    }
    fn name(&self) -> &'static str {
        T::NAME
    }
    fn heading(&self) -> &'static str {
        T::TITLE
    }
    fn key_help(&self) -> &'static str {
        T::HELP
    }
    fn first_sort(&self) -> Sort {
        T::SORT
    }
    fn columns(&self) -> Vec<ColumnInfo> {
        Table::columns(self).iter().map(ColumnInfo::from).collect()
    }
    fn count(&self, p: &PaneCx<'_>) -> usize {
        // Whatever the order of the rows that are listed one by one.
        let sort = match p.st.sort {
            Sort::Column { .. } => Sort::Natural { reverse: false },
            other => other,
        };
        Ordered::new(self, order_cx(p), sort, &p.st.filter).len()
    }
    fn place(&self, p: &PaneCx<'_>, key: RowKey) -> Option<usize> {
        let cx = order_cx(p);
        ordered(self, p).rank(|r| self.key(cx, r) == key)
    }
    fn key_at(&self, p: &PaneCx<'_>, place: usize) -> Option<RowKey> {
        let cx = order_cx(p);
        ordered(self, p).slice(place, 1).first().map(|r| self.key(cx, *r))
    }
    fn list_rows(&self, p: &PaneCx<'_>, inner: Size) -> usize {
        ListPane::list_rows(self, p, inner)
    }
    fn wants(&self, p: &PaneCx<'_>) -> u16 {
        ListPane::wants(self, p)
    }
    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        ListPane::build(self, p, inner)
    }
}

/// The rows that are on the screen.
pub(super) struct Window<R> {
    /// Rows.
    pub rows: Vec<R>,
    /// The one under the cursor.
    pub selected: Option<usize>,
    /// Rows that pass the filter.
    pub passed: usize,
    /// Rows without the filter.
    pub total: usize,
}

/// The context that sets the order.
fn order_cx<'a>(p: &'a PaneCx<'_>) -> &'a Cx<'a> {
    p.held.unwrap_or(p.cx)
}

fn ordered<T: Table + ?Sized>(t: &T, p: &PaneCx<'_>) -> Ordered<T::Row> {
    Ordered::new(t, order_cx(p), p.st.sort, &p.st.filter)
}

/// The `n` rows to show: around the cursor, near the previous scroll position.
pub(super) fn window<T: Table + ?Sized>(t: &T, p: &PaneCx<'_>, n: usize) -> Window<T::Row> {
    let cx = order_cx(p);
    if let (Cursor::Top, 0, Sort::Trouble { reverse }) = (p.st.cursor, p.st.top, p.st.sort)
        && p.held.is_none()
    {
        let Top { rows, passed, total } = order::top(t, cx, reverse, &p.st.filter, n);
        return Window { selected: (passed > 0).then_some(0), rows, passed, total };
    }
    let mut list = ordered(t, p);
    let (passed, total) = (list.len(), list.total());
    let place = match p.st.cursor {
        Cursor::Top => Some(0),
        Cursor::On { key, .. } => list.rank(|r| t.key(cx, r) == key),
    };
    let mut start = p.st.top.min(passed.saturating_sub(n));
    if let Some(place) = place {
        start = start.clamp((place + 1).saturating_sub(n), place);
    }
    let rows = list.slice(start, n);
    let mut selected = place.filter(|_| passed > 0).map(|p| p - start);
    let rows = match p.held {
        None => rows,
        Some(held) => {
            let (now, at) = join(t, p.cx, held, &rows, selected);
            selected = at;
            now
        }
    };
    Window { rows, selected, passed, total }
}

/// The same rows with their current values; rows that are gone are left out.
fn join<T: Table + ?Sized>(
    t: &T,
    now: &Cx<'_>,
    held: &Cx<'_>,
    rows: &[T::Row],
    selected: Option<usize>,
) -> (Vec<T::Row>, Option<usize>) {
    let mut wanted: HashMap<RowKey, Option<T::Row>> =
        rows.iter().map(|r| (t.key(held, *r), None)).collect();
    let mut find = |among: Vec<T::Row>| {
        for row in among {
            if let Some(slot) = wanted.get_mut(&t.key(now, row)) {
                *slot = Some(row);
            }
        }
        wanted.values().all(Option::is_some)
    };
    // Those that stand for others are among the listed ones only.
    let _ = find(t.listed(now)) || find(t.rows(now));
    let mut out = Vec::with_capacity(rows.len());
    let mut at = None;
    for (i, r) in rows.iter().enumerate() {
        if let Some(Some(row)) = wanted.get(&t.key(held, *r)) {
            if selected == Some(i) {
                at = Some(out.len());
            }
            out.push(*row);
        }
    }
    (out, at)
}

/// Appends titles and rows of a table of `w` columns.
pub(super) fn add_table<T: Table + ?Sized>(
    vm: &mut PaneVm,
    t: &T,
    p: &PaneCx<'_>,
    win: &Window<T::Row>,
    w: u16,
) {
    let columns = t.columns();
    let widths = table::fit(columns, p.st, w, |column| t.offers(p.cx, column));
    vm.lines.push(table::header(columns, &widths, p.st.sort));
    vm.first_row = vm.lines.len();
    let mut x = table::MARK;
    for (column, w) in &widths {
        // With the blank in front of it.
        vm.titles.push((x, x + w + 1, *column));
        x += w + 1;
    }
    for (i, row) in win.rows.iter().enumerate() {
        let mut line = table::row(columns, &widths, p.cx, *row, t.mark(p.cx, *row));
        if p.focused && win.selected == Some(i) {
            line.style = LineStyle::Selected;
        }
        vm.lines.push(line);
        vm.keys.push(t.key(p.cx, *row));
    }
    if win.passed == 0 && win.total > 0 && !p.st.filter.is_empty() {
        let says = format!("   none of {} passes the filter; Esc clears it", win.total);
        vm.lines.push(Line::of(says, Tone::Dim));
    }
}

/// The part of a title that says how the rows are chosen and ordered.
pub(super) fn order_title<T: Table + ?Sized>(
    t: &T,
    p: &PaneCx<'_>,
    win: &Window<T::Row>,
) -> Vec<(Cow<'static, str>, Tone)> {
    let mut out = Vec::new();
    if !p.st.filter.is_empty() {
        let text = super::text::clean(&p.st.filter.text).into_owned();
        out.push((format!("/{text} {} of {}", win.passed, win.total).into(), Tone::Strong));
    }
    let dir = if p.st.sort.reversed() { " reversed" } else { "" };
    let by = match p.st.sort {
        Sort::Trouble { .. } => format!("by trouble{dir}"),
        Sort::Natural { .. } => format!("by stack{dir}"),
        Sort::Column { index, .. } => t.columns().get(index).map_or("by ?".into(), |c| {
            let means = mean::applies(order_cx(p), c, win.total);
            let of =
                if means { format!(", mean of {}s", mean::SPAN.as_secs()) } else { String::new() };
            format!("by {}{dir}{of}", c.key)
        }),
    };
    out.push((by.into(), Tone::Dim));
    if p.held.is_some() {
        out.push(("order held".into(), Tone::Strong));
    }
    out
}

/// Fills in what stands in an empty pane: why it is empty.
pub(super) fn empty_lines(p: &PaneCx<'_>, id: crate::sample::CollectorId, w: u16) -> Vec<Line> {
    let why = p.cx.why_empty(id);
    let why = super::text::clean(&why).into_owned();
    super::text::wrap(&why, usize::from(w.saturating_sub(2)).max(1))
        .into_iter()
        .map(|l| Line::of(format!(" {l}"), Tone::Dim))
        .collect()
}

/// Note at the right edge of a title.
pub(super) fn note(
    p: &PaneCx<'_>,
    source: &str,
    id: crate::sample::CollectorId,
    at: Option<crate::sample::time::MonoNs>,
) -> (Cow<'static, str>, Tone) {
    let (text, stale) = p.cx.source_note(source, id, at);
    (text.into(), if stale { Tone::Warn } else { Tone::Dim })
}
