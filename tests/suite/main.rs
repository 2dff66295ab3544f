//! Everything that needs no root, in one program: each program is linked by itself, which takes as
//! long as many of its tests. `cargo test --test suite scenarios::` runs a part.
//!
//! By themselves are what measures the memory of its own process (`tests/memory`), the layers of
//! the sources, which need no build (`tests/architecture.rs`), and what breaks real things.
#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub, reason = "a test binary has no users of its items")]

mod bytes;
mod cli;
mod demo;
mod explain;
mod help;
mod manual;
mod packages;
mod pty;
mod readme;
mod record;
mod recorder;
mod recording;
mod replay;
mod report;
mod scenarios;
mod serve;
mod sockets;
#[path = "../support/mod.rs"]
mod support;
mod tables;
mod ui;
