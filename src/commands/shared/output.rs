//! `--format`, and the ways out: text and JSON on standard output, a line on standard error.

use std::io::{ErrorKind, Write as _};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::dress;
use crate::report;
use crate::text::sanitize;

/// In which form a command prints.
#[derive(Args, Debug)]
pub(crate) struct Output {
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Human-readable.
    Text,
    /// For programs; schema 1.
    Json,
}

impl Output {
    /// Prints one of the two.
    pub(crate) fn print(
        &self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> Value,
    ) -> anyhow::Result<()> {
        match self.format {
            Format::Text => print(&text()),
            Format::Json => print(&report::json::text(&json())),
        }
    }

    /// The same for findings, which are wrapped and coloured on a terminal.
    pub(crate) fn print_findings(
        &self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> Value,
    ) -> anyhow::Result<()> {
        self.print(|| dress::for_stdout(text()), json)
    }
}

/// Writes to stdout; a reader that went away is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to stdout"),
    }
}

/// A line for the user beside what is printed.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "stallscope: {}", sanitize(line));
}
