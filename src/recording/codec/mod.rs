//! Encodes a tick as bytes and decodes it again. Lossless: a replay sees what the live run saw, to
//! the last bit. Each step is a file with both directions; writing goes down, reading goes up.
//!
//! ```text
//!      Tick
//!       |  tick      sections: host, health and signals as JSON, and one per collector; of one
//!       |  section   whose sample is that of the tick before only the number
//!     sample
//!       |  ser, de   serde: a tree of columns, one column of numbers per field
//!      Tree
//!       |  series    the difference from the sample before, or from nothing
//!       |  schema    the nodes of that tree, written once in a group; texts are numbers of `names`
//!       |  delta     which columns are not as in the sample before, and how far they moved
//!       |  runs      which rows of a list are which of the sample before
//!       |  sparse    the few numbers that are not zero; whole microseconds in fewer bytes
//!       |  wire      LEB128
//!    payload         one zstd frame in the file
//! ```
//!
//! A list of structs is a column per field of theirs, and the length of the list. A list in each of
//! these structs is again a column per field, of all elements of all lists, and a column of their
//! lengths; an option is a column that says where there is something, and the columns of what is
//! there. So samples with other rows still have the same columns.
//!
//! Why it is small: most numbers do not change, and those that do usually change by the same amount
//! as the rest of their column (ages, steady counters). A row that is not in the sample before is
//! the difference from the new row before it; a text is written once in a group.
//!
//! A keyframe begins without schema, texts and sample. The reader trusts nothing: `limits` bounds
//! what may be built from how many bytes; in memory a `column` is as narrow as its numbers are.

mod column;
mod de;
mod delta;
pub(crate) mod limits;
mod names;
pub(crate) mod rewrite;
mod runs;
mod schema;
pub(crate) mod section;
mod ser;
mod series;
mod sparse;
pub(crate) mod tick;
pub mod wire;

#[cfg(test)]
mod tests;

pub use de::from_tree;
pub use names::Names;
pub use schema::{Schema, Tree};
pub use ser::to_tree;
pub use series::Series;
pub use tick::{Segment, Stamp};
