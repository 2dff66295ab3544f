//! Decoding stands somewhere in a group: the next tick costs one difference, any other one its
//! group from the keyframe on. Who goes back tick by tick would pay that each time: on the way
//! there, what decoding knew at some places is kept.

use std::sync::Arc;

use super::ahead::Place;
use crate::recording::codec::flat::FlatError;
use super::format::Kind;
use super::index::{GroupIndex, TickRef};
use super::scan::Blocks;
use super::reader::{Damage, ReadError};
use crate::recording::codec::tick::{Decoder, Stored};
use crate::model::tick::Tick;

/// A place in a group.
pub(crate) struct Cursor {
    /// Where the group begins.
    pub(crate) group: u64,
    /// Ticks that have been taken in.
    pub(crate) done: usize,
    decoder: Decoder,
    /// It goes back: what was known at these places is wanted again, oldest first.
    kept: Option<Vec<(usize, Decoder)>>,
}

/// Places from one that is kept to the next.
const STRIDE: usize = 15;
/// Numbers of a place that is kept at most, those of 40,000 sockets: a few bytes each.
const KEPT_CELLS: usize = 1 << 22;

impl Cursor {
    pub(crate) fn at(group: u64) -> Self {
        Self { group, done: 0, decoder: Decoder::default(), kept: None }
    }

    /// The one at hand, if it stands before that tick in its group or was there; else the
    /// group's begin.
    pub(crate) fn towards((group, place): Place, at_hand: Option<Self>) -> Self {
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
    pub(crate) fn go(
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

    /// Keeps this place, if one of before `place` is going to be asked for.
    fn keep(&mut self, place: usize) {
        let Some(kept) = &mut self.kept else { return };
        let is_due = self.done % STRIDE == 1 && self.done <= place;
        if is_due && self.decoder.cells() <= KEPT_CELLS {
            kept.push((self.done, self.decoder.clone()));
        }
    }

    /// Takes in one more tick of the group.
    pub(crate) fn step(&mut self, b: &mut Blocks<'_>, t: &TickRef) -> Result<(), Damage> {
        let offset = self.group + u64::from(t.offset);
        let hurt = |what: &str| Damage::at(offset, 0, what);
        let stored = b.tick(offset, t, self.done).map_err(|e| match e {
            ReadError::Damaged(d) => d,
            e => hurt(&e.to_string()),
        })?;
        let features = stored.features;
        let payload = self.decoder.open(stored).map_err(|FlatError(e)| hurt(&e))?;
        self.decoder.apply(t.at, features, &payload).map_err(|FlatError(e)| hurt(&e))?;
        self.done += 1;
        Ok(())
    }

    /// Makes the tick that was taken in last; what of it cannot be decoded, by section.
    pub(crate) fn make(&mut self) -> (Arc<Tick>, Vec<String>) {
        let tick = Arc::new(self.decoder.make());
        let broken = self.decoder.errors().map(|(name, why)| format!("{name}: {why}"));
        (tick, broken.collect())
    }
}

impl Blocks<'_> {
    /// What is stored of a tick, for [`Decoder::open`]. It has this place in its group.
    pub(crate) fn tick(
        &mut self,
        offset: u64,
        t: &TickRef,
        place: usize,
    ) -> Result<Stored, ReadError> {
        let hurt = |what: &str| ReadError::Damaged(Damage::at(offset, 0, what));
        let h = self.header(offset)?.map_err(|e| hurt(&e.to_string()))?;
        let kind = if place == 0 { Kind::Keyframe } else { Kind::Delta };
        if h.kind != kind || h.link as usize != place || h.back != t.offset || h.at != t.at {
            return Err(hurt("not the tick that the index names"));
        }
        let len = h.stored as usize;
        Ok(Stored { features: h.features, len, bytes: self.payload(offset, &h)? })
    }
}
