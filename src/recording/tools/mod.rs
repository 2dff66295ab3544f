//! What can be done with a recording beside playing it.

pub mod export;
pub mod info;
pub mod redact;
pub mod thin;
pub mod verify;
