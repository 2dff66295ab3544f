//! The console without a terminal: scripted ticks, keys, frames.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod agree;
mod bpf;
mod bytes;
mod keys;
mod screens;
mod support;
mod tough;
