//! The console without a terminal: scripted ticks, keys, frames.

mod agree;
mod bpf;
mod bytes;
mod columns;
mod keys;
mod processes;
mod screens;
mod steering;
mod tough;
