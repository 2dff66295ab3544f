//! Recordings: ticks in a file, and back. Four parts, each of which imports only those before it:
//!
//! - [`codec`]: a tick as bytes, and the bytes as a tick again
//! - [`mod@file`]: blocks of such bytes in a file; [`file::format`] is the specification,
//!   [`file::writer`] makes blocks, [`file::reader`] finds them again whatever happened to the file
//! - [`tools`]: what can be done with a recording beside playing it
//! - [`recorder`]: the thread that writes one
//!
//! None of them knows of rules or screens: what a timeline shows of a tick comes in as a [`Note`].

#![allow(missing_docs, reason = "a name that says it all has no second one beside it")]

pub mod codec;
pub mod file;
pub mod recorder;
pub mod tools;

pub use codec::{Segment, Stamp};
pub use file::damage::ReadError;
pub use file::index::{FindingNote, Note, Remark};
pub(crate) use file::limits::Gathered;
pub use file::reader::Reader;
pub use file::source::{ReadAt, Spool};
pub use file::writer::{Resume, Writer};
pub use recorder::Recorder;
pub use tools::verify::{Remarks, Survey};
