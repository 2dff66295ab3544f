//! Blocks in a file: how they are written, found again and read.

pub(crate) mod ahead;
pub(crate) mod cursor;
pub mod format;
pub(crate) mod home;
pub mod index;
pub(crate) mod limits;
pub mod reader;
pub(crate) mod scan;
pub mod source;
pub mod writer;
