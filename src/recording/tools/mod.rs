//! What can be done with a recording besides playing it.

pub mod export;
pub mod info;
pub mod redact;
pub mod thin;
pub mod verify;
