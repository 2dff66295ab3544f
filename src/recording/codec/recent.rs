//! The samples of one collector, one after the other, each as the difference from an earlier one
//! that both the writer and the reader remember.
//!
//! A sample is written as the difference from the last one of the same shape (of the last four),
//! from the last one of any shape, or from the rows of the last ones together, so that a row that
//! was gone for a while is a difference from what it was. The first one of a group is written
//! whole.

use super::flat::Flat;
use super::limits::MAX_UNITS;
use super::memory;
use super::sample::{
    put_other_shape, put_same_shape, put_whole, read_other_shape, read_same_shape,
};
use super::wire::{CodecError, Input, put_varint, too_large};

/// Earlier samples that a difference may refer to: the last ones of different shapes.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    samples: Vec<Flat>,
    /// The recently seen rows of lists, for small samples.
    memory: Option<Flat>,
}

/// Shapes that are remembered: a collector that reads in turns has several.
const SHAPES: usize = 4;
/// A difference of up to this many bytes is not worth searching for a smaller one.
const WORTH: usize = 16;
/// Numbers that the older ones of them may hold together.
const OLDER_CELLS: usize = 1 << 16;

/// What a sample is a difference from.
mod from {
    /// From nothing: it is whole.
    pub(super) const NOTHING: u64 = 0;
    /// From the last one, which has another shape.
    pub(super) const LAST: u64 = 1;
    /// From what the last ones had together.
    pub(super) const MEMORY: u64 = 2;
    /// Plus the number of the earlier sample with the same shape, from the last one back.
    pub(super) const SAME_SHAPE: u64 = 3;
}

impl Recent {
    pub fn encode(&mut self, now: Flat, out: &mut Vec<u8>) {
        let mut same = self.of_shape(&now);
        if same.is_some_and(|i| i > 0) && now.cells() > OLDER_CELLS {
            // More has changed since then than another shape costs.
            same = None;
        }
        let start = out.len();
        if let Some((i, prev)) = same.and_then(|i| Some((i, self.samples.get(i)?))) {
            put_varint(out, from::SAME_SHAPE + i as u64);
            put_same_shape(prev, &now, out);
        } else {
            let last = self.samples.first();
            if !last.is_some_and(|prev| other_shape(from::LAST, prev, &now, out)) {
                put_varint(out, from::NOTHING);
                put_whole(&now, out);
            }
        }
        // A memory of the shape of the last sample has no row more than that.
        let more = |m: &&Flat| same != Some(0) || m.shape != now.shape;
        if let Some(memory) = self.memory.as_ref().filter(more)
            && out.len() - start > WORTH
        {
            let mut other = Vec::new();
            if other_shape(from::MEMORY, memory, &now, &mut other)
                && other.len() < out.len() - start
            {
                out.truncate(start);
                out.append(&mut other);
                same = self.of_shape(&now);
            }
        }
        self.keep(same, now);
    }

    /// Reads what [`Self::encode`] wrote after the same samples.
    pub fn decode(&mut self, input: &mut Input<'_>) -> Result<&Flat, CodecError> {
        self.decode_within(MAX_UNITS, input)
    }

    /// The same for a sample of at most this many [`Flat::units`].
    pub fn decode_within(
        &mut self,
        most: usize,
        input: &mut Input<'_>,
    ) -> Result<&Flat, CodecError> {
        let lacking = || CodecError("a delta without its sample".to_owned());
        let (now, same) = match input.number()? {
            from::NOTHING => (read_other_shape(&Flat::default(), most, input)?, None),
            from::LAST => {
                let prev = self.samples.first().ok_or_else(lacking)?;
                (read_other_shape(prev, most, input)?, None)
            }
            from::MEMORY => {
                let prev = self.memory.as_ref().ok_or_else(lacking)?;
                let now = read_other_shape(prev, most, input)?;
                let same = self.of_shape(&now);
                (now, same)
            }
            n => {
                let i = usize::try_from(n - from::SAME_SHAPE).ok();
                let i = i.filter(|i| *i < self.samples.len()).ok_or_else(lacking)?;
                (read_same_shape(self.samples.remove(i), most, input)?, None)
            }
        };
        if now.units() > most {
            return too_large();
        }
        self.keep(same, now);
        self.samples.first().map_or_else(|| input.torn(), Ok)
    }

    /// The sample that was written or read last.
    pub fn current(&self) -> Option<&Flat> {
        self.samples.first()
    }

    pub(super) fn cells(&self) -> usize {
        self.samples.iter().chain(&self.memory).map(Flat::cells).sum()
    }

    fn of_shape(&self, now: &Flat) -> Option<usize> {
        self.samples.iter().position(|p| p.shape == now.shape)
    }

    /// Remembers a sample, in the place of the `same` earlier one.
    fn keep(&mut self, same: Option<usize>, now: Flat) {
        self.memory = memory::after(self.memory.take(), &now);
        if let Some(i) = same {
            self.samples.remove(i);
        }
        self.samples.insert(0, now);
        let mut cells = 0usize;
        let within = |s: &&Flat| {
            cells = cells.saturating_add(s.cells());
            cells <= OLDER_CELLS
        };
        let older = self.samples.iter().skip(1).take(SHAPES - 1).take_while(within).count();
        self.samples.truncate(1 + older);
    }
}

fn other_shape(from: u64, prev: &Flat, now: &Flat, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    put_varint(out, from);
    let is_done = put_other_shape(prev, now, out);
    if !is_done {
        out.truncate(start);
    }
    is_done
}

#[cfg(test)]
mod tests;
