//! Rows as bytes: a file per format.

mod csv;
mod jsonl;
#[cfg(feature = "parquet")]
mod parquet;

use std::fmt;
use std::io::{self, Write};

use super::Table;
use crate::sample::time::WallNs;

/// Takes the values of rows in the order of the columns, each by the method of its column's kind.
/// `None` is a missing value.
pub trait Encoder: fmt::Debug {
    /// [`super::Kind::Text`].
    fn text(&mut self, v: Option<&str>);
    /// [`super::Kind::Integer`].
    fn integer(&mut self, v: Option<i64>);
    /// [`super::Kind::Float`]; finite.
    fn float(&mut self, v: Option<f64>);
    /// [`super::Kind::Boolean`].
    fn boolean(&mut self, v: Option<bool>);
    /// [`super::Kind::Time`].
    fn time(&mut self, v: Option<WallNs>);
    /// The row is complete. Failures of the values show here.
    ///
    /// # Errors
    /// Where it is written to.
    fn end_row(&mut self) -> io::Result<()>;
    /// There are no more rows.
    ///
    /// # Errors
    /// Where it is written to.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// A format of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A line of names, then a line for each row.
    Csv,
    /// A JSON object on each line.
    JsonLines,
    /// Apache Parquet.
    #[cfg(feature = "parquet")]
    Parquet,
}

/// How names that the kernel does not check go into a format that has no escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// As they are: into a file.
    Raw,
    /// Without what a terminal would obey.
    Harmless,
}

/// Where the bytes go.
pub(super) type Sink = Box<dyn Write + Send>;

impl Format {
    /// How a file's name ends.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
            #[cfg(feature = "parquet")]
            Self::Parquet => "parquet",
        }
    }

    /// Begins to write a table.
    ///
    /// # Errors
    /// Where it is written to.
    pub fn encoder(
        self,
        table: &'static Table,
        to: Box<dyn Write + Send>,
        names: Names,
    ) -> io::Result<Box<dyn Encoder>> {
        Ok(match self {
            Self::Csv => Box::new(csv::Csv::new(table, to, names)?),
            Self::JsonLines => Box::new(jsonl::JsonLines::new(table, to)),
            #[cfg(feature = "parquet")]
            Self::Parquet => Box::new(parquet::Parquet::new(table, to)?),
        })
    }
}

/// A time as RFC 3339 in UTC with ns; rows of a tick share it.
#[derive(Debug, Default)]
struct TimeText {
    of: Option<WallNs>,
    text: String,
}

impl TimeText {
    fn of(&mut self, t: WallNs) -> &str {
        if self.of != Some(t) {
            let time = jiff::Timestamp::from_nanosecond(i128::from(t.0));
            self.text = time.map(|t| format!("{t:.9}")).unwrap_or_default();
            self.of = Some(t);
        }
        &self.text
    }
}
