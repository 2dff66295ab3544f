//! What is allocated: by readings, verdicts, histories, and by files made to hurt. A program of
//! its own for the sake of its allocator, which counts.
#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub, reason = "a test binary has no users of its items")]

#[allow(unsafe_code, reason = "an allocator")]
mod counting;
mod heap;
mod judging;
mod recording;
#[cfg(target_env = "gnu")]
mod resident;
mod sockets;
#[allow(dead_code, reason = "shared with all suites")]
#[path = "../support/mod.rs"]
mod support;
