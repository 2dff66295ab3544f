//! Recordings: ticks in a file, and back.

pub mod delta;
pub mod flat;
