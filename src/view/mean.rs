//! Rates are ordered by their mean over the last seconds: a number that jumps from tick to tick does
//! not make its row jump.
//!
//! Of each second one moment counts, the last one: with shorter intervals it is a sample of them.

use std::collections::HashMap;
use std::time::Duration;

use super::context::Cx;
use super::state::RowKey;
use super::table::{Column, Table, Value};

/// What a mean is of.
pub(super) const SPAN: Duration = Duration::from_secs(5);
/// Rows up to which there are means: each is looked up in each moment.
const MOST_ROWS: usize = 2000;
const SECOND_NS: u64 = 1_000_000_000;

/// What a column said about rows in the moments before.
#[derive(Default)]
pub(super) struct Means {
    /// By row: the sum, and moments in which its value was unknown.
    rows: HashMap<RowKey, (f64, u32)>,
    /// Moments before this one.
    moments: u32,
}

impl Means {
    /// Of a table with so many rows.
    pub(super) fn of<T: Table + ?Sized>(
        t: &T,
        cx: &Cx<'_>,
        column: &Column<T::Row>,
        rows: usize,
    ) -> Self {
        let mut out = Self::default();
        if !applies(cx, column, rows) {
            return out;
        }
        let now = cx.now.tick.mono;
        let mut second = now.0 / SECOND_NS;
        for moment in cx.analysis.history().back_from(cx.now.tick.seq) {
            let at = moment.tick.mono;
            if now.since(at) >= SPAN {
                break;
            }
            if at.0 / SECOND_NS >= second {
                continue;
            }
            second = at.0 / SECOND_NS;
            let Some(then) = cx.earlier(moment.tick.seq) else { break };
            let all = t.rows(&then);
            if all.len() > MOST_ROWS {
                break;
            }
            // Before the first readings there is nothing.
            if !all.is_empty() {
                out.add(t, &then, column, all);
            }
        }
        out
    }

    fn add<T: Table + ?Sized>(
        &mut self,
        t: &T,
        then: &Cx<'_>,
        column: &Column<T::Row>,
        rows: Vec<T::Row>,
    ) {
        self.moments += 1;
        for row in rows {
            let (sum, unknown) = self.rows.entry(t.key(then, row)).or_default();
            match (column.value)(then, row) {
                Value::Num(n) if n.is_finite() => *sum += n,
                Value::Unknown => *unknown += 1,
                _ => {}
            }
        }
    }

    /// With what it says now. A row that was not there did nothing.
    pub(super) fn with(&self, now: f64, key: impl FnOnce() -> RowKey) -> f64 {
        if self.moments == 0 {
            return now;
        }
        let (sum, unknown) = self.rows.get(&key()).copied().unwrap_or_default();
        (sum + now) / f64::from(self.moments.saturating_sub(unknown) + 1)
    }
}

/// Is an order by this column one by means?
pub(super) fn applies<R>(cx: &Cx<'_>, column: &Column<R>, rows: usize) -> bool {
    column.is_rate() && rows <= MOST_ROWS && cx.analysis.host().interval < SPAN
}
