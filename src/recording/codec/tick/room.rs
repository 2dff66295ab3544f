//! What a tick of a recording may hold: the writer keeps to what a reader takes.

use super::super::flat::Flat;
use crate::recording::file::limits;
use super::Encoder;
use crate::collect::CollectorId;

impl Encoder {
    /// Units of the last tick, as a reader counts them: on the way from the tick before, each
    /// section may be as large then or as now.
    pub(crate) fn units(&mut self) -> usize {
        let mut sum = 0usize;
        for s in &mut self.sections {
            let Some(flat) = s.recent.current() else { continue };
            let units = flat.units();
            sum = sum.saturating_add(units.max(s.units));
            s.units = units;
        }
        sum.min(limits::MOST_UNITS)
    }

    /// Collectors whose sample is not in the last tick: no reader would take it.
    pub(crate) fn oversized(&self) -> &[CollectorId] {
        &self.oversized
    }

    /// Takes the room that a sample needs; false: there is none.
    pub(super) fn has_room(&mut self, flat: &Flat) -> bool {
        let sum = self.room.saturating_add(flat.units());
        let fits =
            sum <= limits::MOST_UNITS && flat.columns.iter().all(|c| c.rows() <= limits::MOST_ROWS);
        if fits {
            self.room = sum;
        }
        fits
    }
}
