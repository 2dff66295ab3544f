//! How large the samples of a tick may be, so that a small file remains little work. The numbers
//! and their origin are in the specification of the format under *Limits*.
//!
//! Sizes are in *units*, about one number each: zeros take no bytes, and a list of a million like
//! rows takes three, so the length of a payload bounds nothing.

use super::wire::{CodecError, too_large};

/// Units of a small group, and of a large one per byte that it takes in the file.
const SMALL_GROUP: usize = 1 << 18;
const PER_BYTE: usize = 64;
/// Units of the largest tick.
pub(super) const MAX_UNITS: usize = 1 << 26;
/// Rows of a list, of which one number of all is unpacked at a time; bytes of all names of UNIX
/// sockets, which are one list.
pub(super) const MAX_ROWS: usize = 1 << 23;
/// Steps and bytes that it takes to make the samples of a tick, per unit.
const WORK_PER_UNIT: usize = 16;

/// Units that the ticks of a group may hold after this many bytes of it have been read.
pub(super) fn units(stored: usize) -> usize {
    stored.saturating_mul(PER_BYTE).saturating_add(SMALL_GROUP).min(MAX_UNITS)
}

/// Work that making a tick of such a group may take.
pub(super) fn work(stored: usize) -> usize {
    units(stored).saturating_mul(WORK_PER_UNIT)
}

/// Bytes that the frames of a group must have for a tick of this many units.
pub(crate) fn least_group(units: usize) -> usize {
    units.saturating_sub(SMALL_GROUP).div_ceil(PER_BYTE)
}

/// Units that are left of a sample while it is read.
pub(super) struct Budget(usize);

impl Budget {
    pub(super) fn new(units: usize) -> Self {
        Self(units)
    }

    pub(super) fn take(&mut self, units: usize) -> Result<(), CodecError> {
        match self.0.checked_sub(units) {
            Some(left) => self.0 = left,
            None => return too_large(),
        }
        Ok(())
    }

    /// Takes `rows` of `width` numbers before they are made. An empty column takes memory too.
    pub(super) fn take_rows(&mut self, rows: usize, width: usize) -> Result<(), CodecError> {
        if rows > MAX_ROWS {
            return too_large();
        }
        self.take(rows.max(1).saturating_mul(width.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_writer_makes_fits() {
        for wanted in [0, SMALL_GROUP, SMALL_GROUP + 1, 14_000_000, MAX_UNITS] {
            assert!(units(least_group(wanted)) >= wanted, "{wanted}");
        }
    }

    #[test]
    fn a_hundred_thousand_sockets_fit() {
        // 140 numbers each, and at least 3 bytes in the file of what is theirs alone: the
        // cookie, the port, the inode.
        assert!(units(3 * 100_000) >= 140 * 100_000);
    }
}
