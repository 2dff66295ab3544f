//! The position of decoding within a group: the next tick costs one difference, any other one its
//! whole group from the keyframe on. Stepping back tick by tick would pay that each time, so the
//! decoder's state at some positions is kept on the way.

use std::sync::Arc;

use super::blocks::Blocks;
use super::damage::{Damage, ReadError};
use super::index::{GroupIndex, TickRef};
use crate::recording::codec::tick::Decoder;
use crate::sample::tick::Tick;

/// A group, by its start, and a position in it.
pub(super) type Place = (u64, usize);

pub(super) struct Cursor {
    /// Where the group begins.
    pub(super) group: u64,
    /// Ticks that have been taken in.
    pub(super) done: usize,
    decoder: Decoder,
    /// Stepping back: the state at these positions is needed again, oldest first.
    kept: Option<Vec<(usize, Decoder)>>,
}

/// Places from one that is kept to the next.
const STRIDE: usize = 15;
/// Numbers of a place that is kept at most, those of 40,000 sockets: a few bytes each.
const KEPT_CELLS: usize = 1 << 22;

impl Cursor {
    pub(super) fn at(group: u64) -> Self {
        Self { group, done: 0, decoder: Decoder::default(), kept: None }
    }

    /// The current one, if it is at or before that tick in its group; else the start of the group.
    pub(super) fn towards((group, place): Place, at_hand: Option<Self>) -> Self {
        let Some(mut c) = at_hand else { return Self::at(group) };
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

    /// Takes in the ticks up to that place of the group.
    pub(super) fn go(
        &mut self,
        b: &mut Blocks<'_>,
        index: &GroupIndex,
        place: usize,
    ) -> Result<(), ReadError> {
        while self.done <= place {
            let t = index.ticks.get(self.done).ok_or(ReadError::NoSuchTick)?;
            self.step(b, t).map_err(ReadError::Damaged)?;
            self.keep(place);
        }
        Ok(())
    }

    /// Keeps this position, if one before `place` will be asked for.
    fn keep(&mut self, place: usize) {
        let Some(kept) = &mut self.kept else { return };
        let is_due = self.done % STRIDE == 1 && self.done <= place;
        if is_due && self.decoder.cells() <= KEPT_CELLS {
            kept.push((self.done, self.decoder.clone()));
        }
    }

    /// Takes in one more tick of the group.
    pub(super) fn step(&mut self, b: &mut Blocks<'_>, t: &TickRef) -> Result<(), Damage> {
        let offset = self.group + u64::from(t.offset);
        let hurt = |what: &str| Damage::at(offset, 0, what);
        let stored = b.tick(offset, t, self.done).map_err(|e| match e {
            ReadError::Damaged(d) => d,
            e => hurt(&e.to_string()),
        })?;
        self.decoder.apply(t.at, &stored).map_err(|e| hurt(&e.0))?;
        self.done += 1;
        Ok(())
    }

    /// Builds the last tick taken in; returns what cannot be decoded, by section.
    pub(super) fn make(&mut self) -> (Arc<Tick>, Vec<String>) {
        let tick = Arc::new(self.decoder.make());
        let broken = self.decoder.errors().map(|(name, why)| format!("{name}: {why}"));
        (tick, broken.collect())
    }
}
