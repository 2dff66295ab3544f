//! The socket collectors against the running kernel: own namespace as any user, other
//! namespaces as root, and how often a reading allocates.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "sockets/captured.rs"]
mod captured;
#[path = "sockets/live.rs"]
mod live;
#[path = "sockets/spaces.rs"]
mod spaces;
#[path = "sockets/support.rs"]
mod support;
