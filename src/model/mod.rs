//! What the layers hand to each other: no clock, no file, no environment.

pub mod heap;
pub mod subject;
pub mod tick;
pub mod time;
pub mod told;
