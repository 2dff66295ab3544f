//! The position of decoding within a group: the next tick costs one difference, any other one its
//! whole group from the keyframe on. Stepping back tick by tick would pay that each time, so the
//! decoder's state at some positions is kept on the way.

use std::sync::Arc;

use super::blocks::Blocks;
use super::damage::{Damage, ReadError};
use super::index::GroupIndex;
use crate::recording::codec::tick::Decoder;
use crate::sample::tick::Tick;

/// A group, by its start, and a position in it.
pub(super) type Place = (u64, usize);

pub(super) struct Cursor {
    /// Where the group begins.
    group: u64,
    /// Ticks that have been taken in.
    done: usize,
    decoder: Decoder,
    /// Stepping back: the state at these positions is needed again, oldest first.
    kept: Option<Vec<(usize, Decoder)>>,
}

/// A tick that was made.
pub(super) struct Made {
    /// Behind the tick.
    pub(super) cursor: Cursor,
    pub(super) tick: Arc<Tick>,
    /// What of it cannot be decoded, by section.
    pub(super) broken: Vec<String>,
}

/// Places from one that is kept to the next.
const STRIDE: usize = 15;
/// Numbers of a place that is kept at most, those of 40,000 sockets: a few bytes each.
const KEPT_CELLS: usize = 1 << 22;

impl Cursor {
    /// The current one, if it is at or before that tick in its group; else the start of the group.
    pub(super) fn towards((group, place): Place, at_hand: Option<Self>) -> Self {
        let Some(mut c) = at_hand else {
            return Self { group, done: 0, decoder: Decoder::default(), kept: None };
        };
        if c.group == group && c.done <= place {
            return c;
        }
        let one_back = if group == c.group { place + 2 == c.done } else { c.done == 1 };
        let back = group <= c.group && (one_back || c.kept.is_some());
        let mut kept = c.kept.take().filter(|_| group == c.group).unwrap_or_default();
        kept.retain(|(done, _)| *done <= place);
        let (done, decoder) = kept.last().cloned().unwrap_or_default();
        Self { group, done, decoder, kept: back.then_some(kept) }
    }

    /// Takes in the ticks up to that place of the group, and makes the last one. Of damage also the
    /// place that it has in the group.
    pub(super) fn make(
        mut self,
        b: &mut Blocks<'_>,
        index: &GroupIndex,
        place: usize,
    ) -> Result<Made, (ReadError, usize)> {
        while self.done <= place {
            let n = self.done;
            let t = index.ticks.get(n).ok_or((ReadError::NoSuchTick, n))?;
            b.take_in(&mut self.decoder, self.group, t, n).map_err(|e| match e {
                ReadError::Damaged(_) => (e, n),
                e => {
                    let offset = self.group + u64::from(t.offset);
                    (ReadError::Damaged(Damage::at(offset, 0, e.to_string())), n)
                }
            })?;
            self.done += 1;
            self.keep(place);
        }
        let tick = Arc::new(self.decoder.make());
        let broken = self.decoder.errors().map(|(name, why)| format!("{name}: {why}")).collect();
        Ok(Made { cursor: self, tick, broken })
    }

    /// Keeps this position, if one before `place` will be asked for.
    fn keep(&mut self, place: usize) {
        let Some(kept) = &mut self.kept else { return };
        let is_due = self.done % STRIDE == 1 && self.done <= place;
        if is_due && self.decoder.cells() <= KEPT_CELLS {
            kept.push((self.done, self.decoder.clone()));
        }
    }
}
