//! `stallscope export FILE`: a part of a recording as a recording, or its figures as tables.

mod outlet;
mod part;
mod tables;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Run;
use super::shared::span::Span;
use crate::exit::{Exit, Stop};

/// Copy part of a recording into a new one, or write its figures as tables.
///
/// A recording is copied in groups of up to 60 ticks as they are, so the part may begin up to a
/// group earlier and end up to a group later than asked for.
///
/// Tables have a row for each socket, disk, CPU, process, finding, ... of each tick, for DuckDB
/// or pandas: `stallscope help tables`.
#[derive(Args, Debug)]
pub(super) struct Export {
    /// The recording.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What to write: a recording, or tables as JSON lines, CSV or Parquet.
    #[arg(long, value_enum, default_value_t = Format::Stall, hide_possible_values = true,
        value_name = "stall|jsonl|csv|parquet")]
    format: Format,
    /// Tables to write, for example sockets,findings; all for all of them.
    #[arg(long = "table", value_name = "NAME[,NAME...]", value_delimiter = ',')]
    tables: Vec<String>,
    /// The part.
    #[command(flatten)]
    span: Span,
    /// New file to write, readable only by you. A table may go to - (standard output), several
    /// tables go into a directory.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Replace files of tables that exist. A recording is never overwritten.
    #[arg(long)]
    force: bool,
    /// Replace addresses, the host name, and the names of processes, cgroups, namespaces and
    /// volumes by others of the same kind, consistently. Rewrites every tick.
    #[arg(long)]
    redact: bool,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A recording.
    Stall,
    /// Tables, a JSON object for each row.
    Jsonl,
    /// Tables, with a line of names.
    Csv,
    /// Tables, for analysis.
    Parquet,
}

impl Run for Export {
    fn run(&self) -> anyhow::Result<Exit> {
        match self.format {
            Format::Stall if !self.tables.is_empty() => {
                Err(Stop::usage("--table needs --format jsonl, csv or parquet"))
            }
            Format::Stall if self.force => {
                Err(Stop::usage("--force is for tables: a recording is never overwritten"))
            }
            Format::Stall => self.part(),
            Format::Jsonl | Format::Csv | Format::Parquet => self.as_tables(),
        }
    }
}
