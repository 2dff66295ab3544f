//! Parquet: every column is optional, rows are in groups that are compressed with Snappy. Times are
//! timestamps of us in UTC, cut off as DuckDB cuts them off when it reads text: files of different
//! formats can be joined.

use std::fmt;
use std::io;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::super::{Column, Kind};
use super::{Encoder, Sink, Table};
use crate::sample::time::WallNs;

/// Rows of a group: some tens of MB of sockets.
const GROUP: usize = 1 << 15;

/// The encoder.
pub(super) struct Parquet {
    to: SerializedFileWriter<Sink>,
    columns: Vec<Values>,
    /// The next column.
    at: usize,
    /// Rows that wait for their group to be full.
    rows: usize,
}

/// The values of a column, and for each row whether it has one: 1 or 0.
struct Values {
    there: Vec<i16>,
    data: Data,
}

enum Data {
    Text(Vec<ByteArray>),
    Whole(Vec<i64>),
    Float(Vec<f64>),
    Boolean(Vec<bool>),
}

impl Parquet {
    pub(super) fn new(table: &Table, to: Sink) -> io::Result<Self> {
        let fields = table.columns().map(|c| field(&c)).collect::<Result<_, _>>().map_err(plain)?;
        let schema = Type::group_type_builder(table.name).with_fields(fields).build();
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let schema = Arc::new(schema.map_err(plain)?);
        let to = SerializedFileWriter::new(to, schema, Arc::new(properties)).map_err(plain)?;
        let columns = table.columns().map(|c| Values::new(c.kind)).collect();
        Ok(Self { to, columns, at: 0, rows: 0 })
    }

    /// The column of the next value.
    fn next(&mut self) -> Option<&mut Values> {
        self.at += 1;
        self.columns.get_mut(self.at - 1)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.to.next_row_group()?;
        for values in &mut self.columns {
            if let Some(column) = group.next_column()? {
                values.write(column)?;
            }
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }
}

fn field(c: &Column) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match c.kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Integer => (Physical::INT64, None),
        Kind::Float => (Physical::DOUBLE, None),
        Kind::Boolean => (Physical::BOOLEAN, None),
        Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
    };
    let field = Type::primitive_type_builder(c.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical);
    field.build().map(Arc::new)
}

impl Values {
    fn new(kind: Kind) -> Self {
        let data = match kind {
            Kind::Text => Data::Text(Vec::new()),
            Kind::Integer | Kind::Time => Data::Whole(Vec::new()),
            Kind::Float => Data::Float(Vec::new()),
            Kind::Boolean => Data::Boolean(Vec::new()),
        };
        Self { there: Vec::new(), data }
    }

    fn write(&mut self, mut to: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let there = Some(&self.there[..]);
        match &mut self.data {
            Data::Text(v) => {
                to.typed::<ByteArrayType>().write_batch(v, there, None)?;
                v.clear();
            }
            Data::Whole(v) => {
                to.typed::<Int64Type>().write_batch(v, there, None)?;
                v.clear();
            }
            Data::Float(v) => {
                to.typed::<DoubleType>().write_batch(v, there, None)?;
                v.clear();
            }
            Data::Boolean(v) => {
                to.typed::<BoolType>().write_batch(v, there, None)?;
                v.clear();
            }
        }
        self.there.clear();
        to.close()
    }
}

/// Adds a value to the list of the next column. Columns and values are made from one list, so that
/// their kinds agree.
macro_rules! add {
    ($self:ident, $kind:ident, $value:expr) => {{
        let value = $value;
        let Some(column) = $self.next() else { return };
        column.there.push(i16::from(value.is_some()));
        if let (Data::$kind(list), Some(value)) = (&mut column.data, value) {
            list.push(value);
        }
    }};
}

impl Encoder for Parquet {
    fn text(&mut self, v: Option<&str>) {
        add!(self, Text, v.map(ByteArray::from));
    }
    fn integer(&mut self, v: Option<i64>) {
        add!(self, Whole, v);
    }
    fn float(&mut self, v: Option<f64>) {
        add!(self, Float, v);
    }
    fn boolean(&mut self, v: Option<bool>) {
        add!(self, Boolean, v);
    }
    fn time(&mut self, v: Option<WallNs>) {
        add!(self, Whole, v.map(|t| t.0.div_euclid(1000)));
    }
    fn end_row(&mut self) -> io::Result<()> {
        self.at = 0;
        self.rows += 1;
        if self.rows < GROUP { Ok(()) } else { self.write_group().map_err(plain) }
    }
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.write_group().map_err(plain)?;
        self.to.close().map(|_| ()).map_err(plain)
    }
}

impl fmt::Debug for Parquet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parquet")
    }
}

/// What the kernel said, where it said something.
fn plain(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}
