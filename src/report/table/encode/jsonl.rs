//! JSON lines: an object for each row, `null` for a missing value. What a terminal would obey is
//! escaped.

use std::fmt::{self, Write as _};
use std::io::{self, BufWriter, Write as _};

use super::{Encoder, Sink, Table, TimeText};
use crate::report::json::quote;
use crate::sample::time::WallNs;

/// Bytes that are written at once.
const BUFFER: usize = 1 << 16;

/// The encoder.
pub(super) struct JsonLines {
    to: BufWriter<Sink>,
    /// What stands before each value: `{"time":`, `,"host":`.
    before: Vec<String>,
    /// The next column.
    at: usize,
    line: String,
    time: TimeText,
}

impl JsonLines {
    pub(super) fn new(table: &Table, to: Sink) -> Self {
        let begin = |i: usize| if i == 0 { '{' } else { ',' };
        let before = |(i, name)| format!("{}\"{name}\":", begin(i));
        Self {
            to: BufWriter::with_capacity(BUFFER, to),
            before: table.columns().map(|c| c.name).enumerate().map(before).collect(),
            at: 0,
            line: String::new(),
            time: TimeText::default(),
        }
    }

    fn value(&mut self, v: Option<impl fmt::Debug>) {
        self.name();
        let _ = match v {
            // Of a float the shortest digits that are read as the same number.
            Some(v) => write!(self.line, "{v:?}"),
            None => self.line.write_str("null"),
        };
    }

    fn name(&mut self) {
        self.line.push_str(self.before.get(self.at).map_or("", String::as_str));
        self.at += 1;
    }
}

impl Encoder for JsonLines {
    fn text(&mut self, v: Option<&str>) {
        self.name();
        match v {
            Some(v) => quote(v, &mut self.line),
            None => self.line.push_str("null"),
        }
    }
    fn integer(&mut self, v: Option<i64>) {
        self.value(v);
    }
    fn float(&mut self, v: Option<f64>) {
        self.value(v);
    }
    fn boolean(&mut self, v: Option<bool>) {
        self.value(v);
    }
    fn time(&mut self, v: Option<WallNs>) {
        self.name();
        match v {
            Some(v) => {
                let _ = write!(self.line, "\"{}\"", self.time.of(v));
            }
            None => self.line.push_str("null"),
        }
    }
    fn end_row(&mut self) -> io::Result<()> {
        self.line.push_str("}\n");
        let written = self.to.write_all(self.line.as_bytes());
        self.line.clear();
        self.at = 0;
        written
    }
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.to.flush()
    }
}

impl fmt::Debug for JsonLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JsonLines")
    }
}
