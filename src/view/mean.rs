//! Orders by a column go by means of the last seconds: a number that jumps from tick to tick does not
//! make its row jump.

use std::collections::HashMap;
use std::time::Duration;

use super::context::Cx;
use super::state::RowKey;
use super::table::{Column, Table, Value};

/// Over this time,
pub(super) const SPAN: Duration = Duration::from_secs(5);
/// of moments that are so far apart, or as the interval is.
const STEP: Duration = Duration::from_millis(900);
/// Of so many rows, each of which is looked up in each of the moments. Of more, the last value counts.
const MOST_ROWS: usize = 2000;

/// What a column said about rows in the moments before.
pub(super) struct Means(HashMap<RowKey, (f64, u32)>);

impl Means {
    /// Of a table with so many rows.
    pub(super) fn of<T: Table + ?Sized>(
        t: &T,
        cx: &Cx<'_>,
        column: &Column<T::Row>,
        rows: usize,
    ) -> Self {
        let mut sums: HashMap<RowKey, (f64, u32)> = HashMap::new();
        if !applies(cx, column, rows) {
            return Self(sums);
        }
        let now = cx.now.tick.mono;
        let mut last = now;
        for moment in cx.analysis.history().back_from(cx.now.tick.seq) {
            let at = moment.tick.mono;
            if now.since(at) >= SPAN {
                break;
            }
            if last.since(at) < STEP {
                continue;
            }
            last = at;
            let Some(then) = cx.earlier(moment.tick.seq) else { break };
            for row in t.rows(&then) {
                if let Value::Num(n) = (column.value)(&then, row)
                    && n.is_finite()
                {
                    let (sum, values) = sums.entry(t.key(&then, row)).or_default();
                    *sum += n;
                    *values += 1;
                }
            }
        }
        Self(sums)
    }

    /// With what it says now.
    pub(super) fn with(&self, now: f64, key: impl FnOnce() -> RowKey) -> f64 {
        if self.0.is_empty() {
            return now;
        }
        let (sum, values) = self.0.get(&key()).copied().unwrap_or_default();
        (sum + now) / f64::from(values + 1)
    }
}

/// Is an order by this column one by means?
pub(super) fn applies<R>(cx: &Cx<'_>, column: &Column<R>, rows: usize) -> bool {
    !column.unit.is_words() && rows <= MOST_ROWS && cx.analysis.host().interval < SPAN
}
