//! Recordings: writing ticks to a file and reading them back. Four parts, each of which imports
//! only those before it:
//!
//! - [`codec`]: encodes a tick as bytes and decodes it
//! - [`mod@file`]: blocks of such bytes in a file; [`file::format`] is the specification,
//!   [`file::writer`] writes blocks, [`file::reader`] finds them whatever has happened to the file
//! - [`tools`]: what can be done with a recording besides playing it
//! - [`recorder`]: the thread that writes one
//!
//! None of them knows about rules or screens: what a timeline shows about a tick is passed in as a
//! [`TickSummary`].

#![allow(missing_docs, reason = "most names need no explanation")]

pub mod codec;
pub mod file;
pub mod recorder;
pub mod tools;

pub use codec::{Segment, Stamp};
pub use file::damage::ReadError;
pub use file::index::{ActiveFinding, Event, TickSummary};
pub(crate) use file::limits::Gathered;
pub use file::reader::Reader;
pub use file::source::{ReadAt, Spool};
pub use file::writer::{Resume, Writer};
pub use recorder::Recorder;
pub use tools::verify::{Events, Survey};
