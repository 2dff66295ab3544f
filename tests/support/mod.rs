//! What tests share: ticks of made-up boxes, recordings of them, the built program and what it
//! says, terminals to run it on.
//!
//! Each test program and each bench that needs something of it has all of it as its module
//! `support`. They are crates of their own that cargo finds by their place, so that `#[path]` is
//! the only way from one to a folder beside it; the fuzzer's targets are another package for the
//! same reason.

pub mod console;
pub mod dice;
pub mod exporter;
pub mod files;
#[allow(dead_code, reason = "some of it is for the fuzzer alone")]
#[path = "../fuzz/src/lib.rs"]
pub mod fuzz;
pub mod incident;
pub mod long;
pub mod openmetrics;
pub mod program;
pub mod recorder;
pub mod recordings;
pub mod rules;
pub mod samples;
pub mod script;
pub mod sockets;
pub mod svg;
pub mod terminal;

/// Says that a test cannot run here. A failure in CI, where it would pass for ever without
/// testing.
pub fn skip(why: &str) {
    // `eprintln!` would be swallowed with the output of the passing test.
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("SKIPPED: {why}\n"));
    assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run in CI: {why}");
}
