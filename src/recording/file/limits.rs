//! How much a block may unpack to, so that a small file remains little work. The numbers and their
//! origin are in [`super::format`] under *Limits*; those of samples belong to the codec.

use super::format::{BlockHeader, Kind, MAX_PAYLOAD};

/// JSON of an event.
pub(super) const MAX_EVENT: usize = 64 << 10;
/// JSON of an index.
pub(super) const MAX_INDEX: usize = 4 << 20;
/// Findings, and events, of an index.
pub(super) const MAX_NOTED: usize = 1 << 14;
/// Figures, and hashes, of an index.
pub(super) const MAX_NAMED: usize = 1 << 10;
/// JSON of a segment.
const MAX_SEGMENT: usize = 16 << 10;
/// JSON of a trailer: 300,000 groups.
const MAX_TRAILER: usize = 64 << 20;
/// Events outside of groups.
pub(super) const MAX_LOOSE: usize = 20_000;
/// Bytes of memory of all events together, and of all findings: 100,000 short ones.
const MAX_GATHERED: usize = 16 << 20;
/// Groups: 72 days of ten ticks a second.
pub(super) const MAX_GROUPS: usize = 1 << 20;
/// Characters of a text in an event.
const MAX_TEXT: usize = 1000;

/// A small block may be larger than its frame by this much, whatever the frame.
const SMALL_JSON: usize = 16 << 10;
const SMALL_TICK: usize = 64 << 10;
/// Beyond that, this many times the frame.
const JSON_PER_BYTE: usize = 64;
const TICK_PER_BYTE: usize = 256;

/// JSON that is read of a small file before it is used, and of a large one per byte.
const SMALL_FILE: u64 = 1 << 20;
const OPENED_PER_BYTE: u64 = 4;

/// Bytes of a payload that need no frame, and those that each byte of a frame allows beyond them.
fn allowed(kind: Kind) -> (usize, usize) {
    if kind.is_tick() { (SMALL_TICK, TICK_PER_BYTE) } else { (SMALL_JSON, JSON_PER_BYTE) }
}

/// What a block may unpack to.
fn most_raw(kind: Kind, stored: usize) -> usize {
    let most = match kind {
        Kind::Segment => MAX_SEGMENT,
        Kind::Event => MAX_EVENT,
        Kind::Index => MAX_INDEX,
        Kind::Trailer => MAX_TRAILER,
        Kind::Keyframe | Kind::Delta => MAX_PAYLOAD,
        Kind::Unknown(_) => 0,
    };
    let (small, per) = allowed(kind);
    stored.saturating_mul(per).saturating_add(small).min(most)
}

/// Does a block unpack to no more than its kind may?
pub(super) fn fits(h: &BlockHeader) -> bool {
    h.raw as usize <= most_raw(h.kind, h.stored as usize)
}

/// Bytes that the frame of a block must have for a payload of this length.
pub(super) fn least_frame(kind: Kind, payload: usize) -> usize {
    let (small, per) = allowed(kind);
    payload.saturating_sub(small).div_ceil(per)
}

/// JSON that may be read of a file of this size before it is used.
pub(super) fn opened(size: u64) -> u64 {
    size.saturating_mul(OPENED_PER_BYTE).saturating_add(SMALL_FILE)
}

/// Memory for a list that is gathered from all groups, such as all events: each index may have
/// thousands, and a small file may have thousands of indexes.
#[derive(Debug)]
pub(crate) struct Gathered {
    room: usize,
    /// What did not fit.
    pub(crate) left_out: u64,
}

impl Default for Gathered {
    fn default() -> Self {
        Self { room: MAX_GATHERED, left_out: 0 }
    }
}

impl Gathered {
    /// Is there space for one more of this many bytes?
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let left = self.room.checked_sub(bytes);
        match left {
            Some(left) => self.room = left,
            None => self.left_out += 1,
        }
        left.is_some()
    }
}

/// A text of an event, no longer than a reader accepts.
pub(super) fn clip(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(MAX_TEXT) {
        text.truncate(at);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_writer_makes_fits() {
        for (kind, most) in [
            (Kind::Keyframe, MAX_PAYLOAD),
            (Kind::Delta, MAX_PAYLOAD),
            (Kind::Index, MAX_INDEX),
            (Kind::Trailer, MAX_TRAILER),
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
}
