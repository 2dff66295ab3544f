//! Encodes a tick as bytes and decodes it again. Lossless: a replay sees what the live run saw, to
//! the last bit. Each step is a file with both directions side by side; writing goes down, reading
//! goes up.
//!
//! ```text
//!      Tick
//!       |  tick      sections: host, health, signals, and one per collector; of one whose sample
//!       |  section   is that of the tick before only the number. Stamps in steps of 10 us
//!     sample
//!       |  flat      shape (tokens and names of fields), numbers, texts; a list of like rows
//!       |            becomes a column, columns with a key become a table
//!      Flat
//!       |  recent    picks the earlier sample that it is a difference from
//!       |  memory    which may be the recently seen rows
//!       |  sample    new pieces of the shape, numbers and texts that changed, tables
//!       |  matching  which leaf of another shape is which, by the keys of rows
//!       |  columns   which columns moved, and by how much most of their rows did
//!       |  rows      rows that stayed, went and came, as runs
//!       |  sparse    the few numbers that are not zero; whole microseconds in fewer bytes
//!       |  wire      LEB128
//!    payload         one zstd frame in the file
//! ```
//!
//! Why it is small: two samples usually have the same shape, most numbers do not change, and those
//! that do usually change by the same amount as the rest of their column (ages, steady counters).
//!
//! Writer and reader remember the same samples within a group of ticks (see `recent`); a keyframe
//! begins without any. The reader trusts nothing: `limits` bounds what may be built from how many
//! bytes.

mod columns;
pub mod flat;
pub(crate) mod limits;
mod matching;
mod memory;
mod recent;
mod rows;
mod sample;
pub(crate) mod section;
mod sparse;
pub(crate) mod tick;
pub mod wire;

pub use recent::Recent;
pub use tick::{Segment, Stamp};
