//! Pure.
pub mod subject;
pub mod tick;
pub mod time;
