//! How much a block may be, so that a small file stays a small job. The numbers, and where they
//! come from, are in [`super::format`] under *Limits*.

use super::format::{BlockHeader, Kind, MAX_PAYLOAD};
use crate::recording::codec::squeeze::MOST_KEYFRAME;

/// JSON of a remark.
pub(crate) const MOST_REMARK: usize = 64 << 10;
/// JSON of an index.
pub(crate) const MOST_INDEX: usize = 4 << 20;
/// Findings, and remarks, of an index.
pub(crate) const MOST_NOTED: usize = 1 << 14;
/// Figures, and hashes, of an index.
pub(crate) const MOST_NAMED: usize = 1 << 10;
/// JSON of a segment.
const MOST_SEGMENT: usize = 16 << 10;
/// JSON of a trailer: 300,000 groups.
const MOST_TRAILER: usize = 64 << 20;
/// Remarks outside of groups.
pub(crate) const MOST_LOOSE: usize = 20_000;
/// Bytes of memory of all remarks together, and of all findings: 100,000 short ones.
const MOST_GATHERED: usize = 16 << 20;
/// Groups: 72 days of ten ticks a second.
pub(crate) const MOST_GROUPS: usize = 1 << 20;
/// Characters of a text in a remark.
const MOST_TEXT: usize = 1000;

/// A small block may be larger than its frame by so much, whatever the frame.
const SMALL_JSON: usize = 16 << 10;
const SMALL_TICK: usize = 64 << 10;
/// Beyond that, so many times the frame.
const JSON_PER_BYTE: usize = 64;
const TICK_PER_BYTE: usize = 256;

/// Units of a small group, and of a large one per byte that it takes in the file.
const SMALL_UNITS: usize = 1 << 18;
const UNITS_PER_BYTE: usize = 64;
/// Units of the largest tick.
pub(crate) const MOST_UNITS: usize = 1 << 26;
/// Rows of a list, of which one number of all is unpacked at a time; bytes of all names of UNIX
/// sockets, which are one list.
pub(crate) const MOST_ROWS: usize = 1 << 23;
/// Steps and bytes that it takes to make the samples of a tick, per unit.
const WORK_PER_UNIT: usize = 16;

/// JSON that is read of a small file before it is used, and of a large one per byte.
const SMALL_FILE: u64 = 1 << 20;
const OPENED_PER_BYTE: u64 = 4;

/// What a block may unpack to.
pub(crate) fn most_raw(kind: Kind, stored: usize) -> usize {
    let json = stored.saturating_mul(JSON_PER_BYTE).saturating_add(SMALL_JSON);
    match kind {
        Kind::Segment => json.min(MOST_SEGMENT),
        Kind::Remark => json.min(MOST_REMARK),
        Kind::Index => json.min(MOST_INDEX),
        Kind::Trailer => json.min(MOST_TRAILER),
        Kind::Keyframe | Kind::Delta => most_tick(stored),
        Kind::Unknown(_) => 0,
    }
}

fn most_tick(stored: usize) -> usize {
    stored.saturating_mul(TICK_PER_BYTE).saturating_add(SMALL_TICK).min(MAX_PAYLOAD)
}

/// Does a block unpack to no more than its kind may?
pub(crate) fn fits(h: &BlockHeader) -> bool {
    h.raw as usize <= most_raw(h.kind, h.stored as usize)
}

/// Units that the ticks of a group may hold when so many bytes of it have been read.
pub(crate) fn units(stored: usize) -> usize {
    stored.saturating_mul(UNITS_PER_BYTE).saturating_add(SMALL_UNITS).min(MOST_UNITS)
}

/// Work that making a tick of such a group may take.
pub(crate) fn work(stored: usize) -> usize {
    units(stored).saturating_mul(WORK_PER_UNIT)
}

/// Bytes that the frame of a block must have for a payload of this length.
pub(crate) fn least_frame(kind: Kind, payload: usize) -> usize {
    let (small, per) = match kind {
        Kind::Keyframe | Kind::Delta => (SMALL_TICK, TICK_PER_BYTE),
        _ => (SMALL_JSON, JSON_PER_BYTE),
    };
    payload.saturating_sub(small).div_ceil(per)
}

/// Bytes that the frames of a group must have for a tick of so many units.
pub(crate) fn least_group(units: usize) -> usize {
    units.saturating_sub(SMALL_UNITS).div_ceil(UNITS_PER_BYTE)
}

/// JSON that may be read of a file of this size before it is used.
pub(crate) fn opened(size: u64) -> u64 {
    size.saturating_mul(OPENED_PER_BYTE).saturating_add(SMALL_FILE)
}

/// Memory of a list that is gathered from all groups, such as that of all remarks: each index
/// may tell thousands, and a small file may have thousands of indexes.
#[derive(Debug)]
pub(crate) struct Gathered {
    room: usize,
    /// What did not fit.
    pub(crate) left_out: u64,
}

impl Default for Gathered {
    fn default() -> Self {
        Self { room: MOST_GATHERED, left_out: 0 }
    }
}

impl Gathered {
    /// Is there room for one more that takes so many bytes?
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let left = self.room.checked_sub(bytes);
        match left {
            Some(left) => self.room = left,
            None => self.left_out += 1,
        }
        left.is_some()
    }
}

/// A text of a remark, no longer than a reader takes it.
pub(crate) fn clip(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(MOST_TEXT) {
        text.truncate(at);
        text.push('…');
    }
}

// A squeezed keyframe is no exception: the primer makes it small, not its own bytes.
const _: () = assert!(MOST_KEYFRAME <= SMALL_UNITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_writer_makes_fits() {
        for units_in in [0, SMALL_UNITS, SMALL_UNITS + 1, 14_000_000, MOST_UNITS] {
            assert!(units(least_group(units_in)) >= units_in, "{units_in}");
        }
        for (kind, most) in [
            (Kind::Keyframe, MAX_PAYLOAD),
            (Kind::Delta, MAX_PAYLOAD),
            (Kind::Index, MOST_INDEX),
            (Kind::Trailer, MOST_TRAILER),
        ] {
            for raw in [0, SMALL_JSON, SMALL_TICK, SMALL_TICK + 1, most] {
                assert!(most_raw(kind, least_frame(kind, raw)) >= raw, "{kind:?} {raw}");
            }
        }
        let mut text = "\u{1}".repeat(5000);
        clip(&mut text);
        let json = serde_json::to_string(&text).unwrap_or_default();
        assert!(json.len() < SMALL_JSON - 1000, "{}", json.len());
    }

    #[test]
    fn a_hundred_thousand_sockets_fit() {
        // 140 numbers each, and at least 3 bytes in the file of what is theirs alone: the
        // cookie, the port, the inode.
        assert!(units(3 * 100_000) >= 140 * 100_000);
    }
}
