//! The data and the pure functions over it: no clock, no file, no environment.

pub mod blind;
pub mod coverage;
pub mod derive;
pub mod heap;
pub mod history;
pub mod moment;
pub mod outline;
pub mod pasted;
pub mod subject;
pub mod text;
pub mod tick;
pub mod time;
pub mod told;
