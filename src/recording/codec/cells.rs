//! Room for the numbers of a column while they are written or read.

use super::delta::Run;
use super::flat::Part;

/// One number of all rows: as it is now and was before, and what makes the one of the other.
/// Kept from column to column, so that each need not take memory of its own.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub(crate) now: Vec<u64>,
    pub(crate) old: Vec<u64>,
    /// By how much the rows that are copies moved.
    pub(crate) copied: Vec<u64>,
    /// The rows that are new, each as the difference from the new row before it.
    pub(crate) fresh: Vec<u64>,
}

impl Room {
    /// Makes room for `copies` and `fresh` rows that did not move.
    pub(crate) fn clear(&mut self, copies: usize, fresh: usize) {
        fill(&mut self.copied, copies, 0);
        fill(&mut self.fresh, fresh, 0);
    }

    /// The numbers of all rows, of the differences that were read. `has_old` says whether there
    /// is a column that rows can be copies of.
    pub(crate) fn part(&mut self, has_old: bool, runs: &[Run]) -> Part {
        self.now.clear();
        let (mut copied, mut fresh) = (self.copied.iter(), self.fresh.iter());
        let mut last = 0u64;
        for r in runs {
            if let Some(from) = r.from.filter(|_| has_old) {
                // Columns of a table that was another one before may be shorter than its keys.
                let old = self.old.get(from..).unwrap_or_default().iter().copied();
                let old = old.chain(std::iter::repeat(0)).take(r.len);
                self.now.extend(old.zip(copied.by_ref()).map(|(o, by)| o.wrapping_add(*by)));
            } else {
                self.now.extend(fresh.by_ref().take(r.len).map(|by| {
                    last = last.wrapping_add(*by);
                    last
                }));
            }
        }
        Part::of(&self.now)
    }
}

/// Rows of `runs` that are copies of rows of a column.
pub(crate) fn copies(has_old: bool, runs: &[Run]) -> usize {
    runs.iter().filter(|r| has_old && r.from.is_some()).map(|r| r.len).sum()
}

pub(crate) fn fill(room: &mut Vec<u64>, len: usize, n: u64) {
    room.clear();
    room.resize(len, n);
}
