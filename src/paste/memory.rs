//! Memory as `free` prints it: any unit, wide or not, of procps 3 and 4 and of busybox, and the
//! old table with a row `-/+ buffers/cache`. `top` and `sar -r` fill the same readings.
//!
//! The unit is not needed: only fractions are judged.

use super::number::{float, human};
use super::{Line, Took};
use crate::sample::told::Memory;

/// Readings kept; the oldest go.
const MAX_READINGS: usize = 2000;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Free {
    columns: Vec<String>,
    pub(super) list: Vec<Memory>,
    pub(super) rows: u64,
    pub(super) dropped: u64,
}

impl Free {
    /// A prompt with a command.
    pub(super) fn command(&mut self) {
        self.columns.clear();
    }

    pub(super) fn line(&mut self, line: &Line<'_>) -> Took {
        let text = line.text.trim();
        let mut words = text.split_ascii_whitespace();
        let three = [words.next(), words.next(), words.next()];
        if three == [Some("total"), Some("used"), Some("free")] {
            self.columns = text.split_ascii_whitespace().map(str::to_owned).collect();
            return Took::Yes;
        }
        if self.columns.is_empty() {
            return Took::No;
        }
        let Some((title, values)) = text.split_once(':') else { return Took::No };
        let values: Option<Vec<f64>> =
            values.split_ascii_whitespace().take(16).map(value).collect();
        let Some(values) = values.filter(|v| v.len() >= 2) else { return Took::No };
        self.rows += 1;
        match title {
            "Mem" => self.memory(&values),
            // Used and free when buffers and cache count as free.
            "-/+ buffers/cache" => {
                if let (Some(m), Some(free)) = (self.list.last_mut(), values.get(1)) {
                    (m.available, m.estimated) = (Some(*free), true);
                }
            }
            "Swap" => {
                if let (Some(m), [total, _, free, ..]) = (self.list.last_mut(), values.as_slice()) {
                    m.swap = Some((*total, *free));
                }
            }
            "Total" | "Low" | "High" | "Comm" => {}
            _ => {
                self.rows -= 1;
                return Took::No;
            }
        }
        Took::Yes
    }

    fn memory(&mut self, values: &[f64]) {
        let of = |name: &str| {
            self.columns.iter().position(|c| c == name).and_then(|i| values.get(i).copied())
        };
        let (Some(total), Some(free)) = (of("total"), of("free")) else { return };
        let parts = [of("buffers"), of("cached"), of("cache"), of("buff/cache")];
        let m = Memory {
            total,
            free,
            ..with_cache(of("available"), free, parts.into_iter().flatten().sum(), of("shared"))
        };
        self.push(m);
    }

    /// Another reading.
    pub(super) fn push(&mut self, m: Memory) {
        if self.list.len() >= MAX_READINGS {
            self.list.remove(0);
            self.dropped += 1;
        }
        self.list.push(m);
    }
}

/// What is available, printed or estimated: shared memory counts as cache but cannot be dropped.
pub(super) fn with_cache(told: Option<f64>, free: f64, cache: f64, shared: Option<f64>) -> Memory {
    let estimate = free + (cache - shared.unwrap_or(0.0)).max(0.0);
    Memory {
        available: Some(told.unwrap_or(estimate)),
        estimated: told.is_none(),
        ..Memory::default()
    }
}

/// `1659212`, `1.6Gi`, `0B`, `12G`.
fn value(text: &str) -> Option<f64> {
    let text = text.strip_suffix('i').unwrap_or(text);
    if let Some(t) = text.strip_suffix('T') {
        return Some(float(t)? * 1024.0 * 1024.0 * 1024.0 * 1024.0);
    }
    // Bytes; a table has unit letters everywhere or nowhere.
    human(text, 1024.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Vec<Memory> {
        let mut f = Free::default();
        for (i, l) in text.lines().enumerate() {
            assert_eq!(f.line(&Line { no: i as u64 + 1, text: l }), Took::Yes, "{l}");
        }
        f.list
    }

    #[test]
    fn tables_of_every_age() {
        let m = read(
            "               total        used        free      shared  buff/cache   available\n\
             Mem:        24684084     1659212    20327820        8872     3032672    23024872\n\
             Swap:              0           0           0",
        );
        let want = (Some(23_024_872.0), false, Some((0.0, 0.0)));
        assert_eq!((m[0].available, m[0].estimated, m[0].swap), want);
        let m = read(
            "             total       used       free     shared    buffers     cached\n\
             Mem:       1020000    1000000      20000       4000       1000      50000\n\
             -/+ buffers/cache:     949000      71000\n\
             Swap:      2000000    1990000      10000",
        );
        assert_eq!((m[0].available, m[0].estimated), (Some(71_000.0), true));
        assert_eq!(m[0].swap, Some((2e6, 1e4)));
        let m = read(
            "               total        used        free      shared  buff/cache   available\n\
             Mem:            23Gi       1.6Gi       512Mi       8.7Mi       2.9Gi        21Gi\n\
             Swap:             0B          0B          0B",
        );
        assert!((m[0].available.unwrap() / m[0].total - 21.0 / 23.0).abs() < 1e-9);
        assert!((m[0].free / m[0].total - 0.5 / 23.0).abs() < 1e-9);
    }

    #[test]
    fn other_tables_are_not_taken() {
        let mut f = Free::default();
        for text in ["Mem: 1 2 3", "total used", "Swap:"] {
            assert_eq!(f.line(&Line { no: 1, text }), Took::No, "{text}");
        }
    }
}
