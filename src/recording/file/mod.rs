//! Blocks in a file: writing, finding and reading them.
//!
//! ```text
//! writer   ticks and events become blocks; groups get their index, a closed file its trailer
//! format   headers of blocks; the specification
//! index    what a group, a trailer and an event say: JSON
//! limits   how much a block may unpack to
//!
//! reader   what is in a file, and any tick
//! scan     finds the groups: by the trailer, by the chain of indexes, from header to header
//! blocks   a header, a payload, the next place where a block begins
//! cursor   decoding stands somewhere in a group, and goes on from there
//! ahead    the next tick, decoded on a thread before it is asked for
//! damage   what is wrong with a file, and where
//! source   bytes of a file, of memory, or of a pipe
//! home     the directory that a recording is in, and its name there
//! ```

mod ahead;
mod blocks;
mod cursor;
pub mod damage;
pub mod format;
pub(crate) mod home;
pub mod index;
pub(crate) mod limits;
pub mod reader;
mod scan;
pub mod source;
pub mod writer;

pub use scan::SEARCH;
