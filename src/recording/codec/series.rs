//! The samples of one collector, one after the other: of each the nodes that none before it in the
//! group had, then 1 and the difference from the sample before, or 0 and the difference from
//! nothing: the first sample of a group, and one that is too different from the one before it.

use super::delta;
use super::schema::{ROOT, Schema, Tree};
use super::wire::{CodecError, Input, too_large};

/// What writer and reader remember of them.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub schema: Schema,
    /// Writer: nodes of the schema that were written.
    told: usize,
    /// The sample that was written or read last.
    last: Option<Tree>,
}

impl Series {
    /// Returns what it takes to read it besides the sample itself, in units.
    pub fn encode(&mut self, now: Tree, out: &mut Vec<u8>) -> Result<usize, CodecError> {
        self.schema.put(self.told.max(ROOT + 1), out);
        self.told = self.schema.len();
        let start = out.len();
        let units = self.last.take().and_then(|prev| {
            out.push(1);
            delta::put(&self.schema, &prev, &now, out).ok()
        });
        let units = if let Some(units) = units {
            units
        } else {
            out.truncate(start);
            out.push(0);
            delta::put(&self.schema, &Tree::default(), &now, out)?
        };
        self.last = Some(now);
        Ok(units)
    }

    /// Reads what [`Self::encode`] wrote after the same samples, a sample of at most so many units.
    pub fn decode(&mut self, most: usize, input: &mut Input<'_>) -> Result<&Tree, CodecError> {
        self.schema.read(input)?;
        let prev = if input.byte()? == 0 { Some(Tree::default()) } else { self.last.take() };
        let prev = prev.ok_or_else(|| CodecError("a delta without its sample".to_owned()))?;
        let now = delta::read(&self.schema, prev, most, input)?;
        if now.units() > most {
            return too_large();
        }
        Ok(self.last.insert(now))
    }

    pub fn last(&self) -> Option<&Tree> {
        self.last.as_ref()
    }
    pub(super) fn units(&self) -> usize {
        self.last.as_ref().map_or(0, Tree::units)
    }
}
