//! CSV: a line of names, fields in quotes where they need them, an empty field for a missing value.

use std::fmt;
use std::fmt::Write as _;
use std::io;

use super::{Encoder, Names, Sink, Table, TimeText};
use crate::sample::time::WallNs;
use crate::text::sanitize;

/// Bytes that are written at once.
const BUFFER: usize = 1 << 16;

/// The encoder.
pub(super) struct Csv {
    to: csv::Writer<Sink>,
    names: Names,
    time: TimeText,
    number: String,
    failed: Option<csv::Error>,
}

impl Csv {
    pub(super) fn new(table: &Table, to: Sink, names: Names) -> io::Result<Self> {
        let mut to = csv::WriterBuilder::new().buffer_capacity(BUFFER).from_writer(to);
        to.write_record(table.columns().map(|c| c.name)).map_err(plain)?;
        Ok(Self { to, names, time: TimeText::default(), number: String::new(), failed: None })
    }

    fn field(&mut self, bytes: &[u8]) {
        if let Err(e) = self.to.write_field(bytes) {
            self.failed.get_or_insert(e);
        }
    }

    fn number(&mut self, v: Option<impl fmt::Debug>) {
        let mut text = std::mem::take(&mut self.number);
        text.clear();
        if let Some(v) = v {
            // Of a float the shortest digits that are read as the same number.
            let _ = write!(text, "{v:?}");
        }
        self.field(text.as_bytes());
        self.number = text;
    }
}

impl Encoder for Csv {
    fn text(&mut self, v: Option<&str>) {
        match (v, self.names) {
            (None, _) => self.field(b""),
            (Some(v), Names::Raw) => self.field(v.as_bytes()),
            (Some(v), Names::Harmless) => self.field(sanitize(v).as_bytes()),
        }
    }
    fn integer(&mut self, v: Option<i64>) {
        self.number(v);
    }
    fn float(&mut self, v: Option<f64>) {
        self.number(v);
    }
    fn boolean(&mut self, v: Option<bool>) {
        self.field(v.map_or(&b""[..], |v| if v { b"true" } else { b"false" }));
    }
    fn time(&mut self, v: Option<WallNs>) {
        let mut time = std::mem::take(&mut self.time);
        self.field(v.map_or("", |v| time.of(v)).as_bytes());
        self.time = time;
    }
    fn end_row(&mut self) -> io::Result<()> {
        if let Some(e) = self.failed.take() {
            return Err(plain(e));
        }
        self.to.write_record(None::<&[u8]>).map_err(plain)
    }
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.to.flush()
    }
}

impl fmt::Debug for Csv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Csv")
    }
}

/// What the kernel said: of a closed pipe nothing is told.
fn plain(e: csv::Error) -> io::Error {
    match e.into_kind() {
        csv::ErrorKind::Io(e) => e,
        other => io::Error::other(format!("{other:?}")),
    }
}
