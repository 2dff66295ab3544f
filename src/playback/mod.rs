//! Recordings played: from the first tick to the last, or from any of them to any other.
//!
//! - [`tape`]: ticks in order or from anywhere, as the live source gave them
//! - [`seek`]: the run as of any tick, as if played from the beginning
//! - [`whole`]: all of a recording, for a report
//! - [`timeline`]: what there is beyond the moments in memory
//! - [`outline`]: makes that of what a recording says about itself
//! - [`player`]: what a console asks of a recording, and a thread that answers

pub mod outline;
pub mod player;
pub mod seek;
pub mod tape;
pub mod timeline;
pub mod whole;
