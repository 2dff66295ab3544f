//! Recordings: ticks in a file, and back. [`mod@format`] is the specification; [`writer`] makes
//! blocks, [`reader`] finds them again whatever happened to the file. Neither knows of rules or
//! screens: what a timeline shows of a tick comes in as a [`index::Note`].

mod ahead;
mod cells;
mod compact;
mod cursor;
pub mod delta;
pub mod export;
pub mod flat;
pub mod format;
mod home;
pub mod index;
pub mod info;
mod layout;
mod limits;
mod memory;
pub mod reader;
pub mod recorder;
pub mod redact;
mod reshape;
pub mod source;
mod squeeze;
mod state;
mod survey;
pub mod thin;
mod uncompact;
mod undelta;
pub mod writer;

pub use format::{Segment, Stamp};
pub use index::{FindingNote, Note, Remark};
pub(crate) use limits::Gathered;
pub use reader::{ReadError, Reader};
pub use recorder::Recorder;
pub use source::{ReadAt, Spool};
pub use survey::{Remarks, Survey};
pub use writer::{Resume, Writer};
