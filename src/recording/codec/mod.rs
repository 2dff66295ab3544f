//! A tick as bytes, and the bytes as a tick again.

pub(crate) mod cells;
pub(crate) mod compact;
pub mod delta;
pub mod flat;
pub(crate) mod memory;
pub(crate) mod reshape;
pub(crate) mod squeeze;
pub(crate) mod tick;
pub(crate) mod uncompact;
pub(crate) mod undelta;
