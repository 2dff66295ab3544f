//! Takes a value apart.

use serde::ser::{self, Serialize};

use super::column::Column;
use super::names::Names;
use super::shape::token;
use super::value::{Flat, KEY_FIELD, TableOf};
use crate::recording::codec::wire::{CodecError, put_varint};

/// Deeper values are refused.
const MAX_DEPTH: u32 = 64;

/// Takes `value` apart; fails for 128-bit integers and values nested too deeply.
pub fn to_flat<T: Serialize + ?Sized>(value: &T, names: &mut Names) -> Result<Flat, CodecError> {
    let mut out = Ser { flat: Flat::default(), names, depth: 0 };
    value.serialize(&mut out)?;
    let mut flat = out.flat;
    // The numbers of the largest column passed through here.
    flat.nums.shrink_to_fit();
    Ok(flat)
}

struct Ser<'n> {
    flat: Flat,
    names: &'n mut Names,
    depth: u32,
}

/// How far a value has been taken apart.
#[derive(Clone, Copy)]
struct Mark {
    shape: usize,
    nums: usize,
    texts: usize,
    columns: usize,
}

impl Ser<'_> {
    fn mark(&self) -> Mark {
        let f = &self.flat;
        Mark {
            shape: f.shape.len(),
            nums: f.nums.len(),
            texts: f.texts.len(),
            columns: f.columns.len(),
        }
    }
    fn num(&mut self, token: u8, n: u64) {
        self.flat.shape.push(token);
        self.flat.nums.push(n);
    }
    fn head(&mut self, token: u8, n: usize) {
        self.flat.shape.push(token);
        put_varint(&mut self.flat.shape, n as u64);
    }
    fn name(&mut self, name: &'static str) {
        let n = self.names.number(name);
        put_varint(&mut self.flat.shape, n);
    }
    fn enter(&mut self) -> Result<(), CodecError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(ser::Error::custom("nested too deeply")) } else { Ok(()) }
    }
}

macro_rules! number {
    ($($method:ident, $ty:ty, $token:ident;)+) => {
        $( fn $method(self, v: $ty) -> Result<(), CodecError> {
            self.num(token::$token, v as u64);
            Ok(())
        } )+
    };
}

impl<'a, 'n> ser::Serializer for &'a mut Ser<'n> {
    type Ok = ();
    type Error = CodecError;
    type SerializeSeq = Seq<'a, 'n>;
    type SerializeTuple = Tuple<'a, 'n>;
    type SerializeTupleStruct = Tuple<'a, 'n>;
    type SerializeTupleVariant = Tuple<'a, 'n>;
    type SerializeMap = Map<'a, 'n>;
    type SerializeStruct = Struct<'a, 'n>;
    type SerializeStructVariant = Struct<'a, 'n>;

    number! {
        serialize_u8, u8, U8; serialize_u16, u16, U16; serialize_u32, u32, U32;
        serialize_u64, u64, U64; serialize_bool, bool, BOOL; serialize_char, char, CHAR;
    }
    fn serialize_i8(self, v: i8) -> Result<(), CodecError> {
        self.serialize_i64(v.into())
    }
    fn serialize_i16(self, v: i16) -> Result<(), CodecError> {
        self.serialize_i64(v.into())
    }
    fn serialize_i32(self, v: i32) -> Result<(), CodecError> {
        self.serialize_i64(v.into())
    }
    fn serialize_i64(self, v: i64) -> Result<(), CodecError> {
        self.num(token::INT, v.cast_unsigned());
        Ok(())
    }
    fn serialize_f32(self, v: f32) -> Result<(), CodecError> {
        self.num(token::F32, v.to_bits().into());
        Ok(())
    }
    fn serialize_f64(self, v: f64) -> Result<(), CodecError> {
        self.num(token::F64, v.to_bits());
        Ok(())
    }
    fn serialize_str(self, v: &str) -> Result<(), CodecError> {
        self.flat.shape.push(token::STR);
        self.flat.texts.push(v.as_bytes());
        Ok(())
    }
    fn serialize_bytes(self, v: &[u8]) -> Result<(), CodecError> {
        self.head(token::BYTES, v.len());
        let (words, rest) = v.as_chunks::<4>();
        let word = |w: &[u8; 4]| u64::from(u32::from_le_bytes(*w));
        self.flat.nums.extend(words.iter().map(word));
        if !rest.is_empty() {
            let last = rest.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
            self.flat.nums.push(last);
        }
        Ok(())
    }
    fn serialize_none(self) -> Result<(), CodecError> {
        self.flat.shape.push(token::NONE);
        Ok(())
    }
    fn serialize_some<T: Serialize + ?Sized>(self, v: &T) -> Result<(), CodecError> {
        self.flat.shape.push(token::SOME);
        v.serialize(self)
    }
    fn serialize_unit(self) -> Result<(), CodecError> {
        self.flat.shape.push(token::UNIT);
        Ok(())
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), CodecError> {
        self.serialize_unit()
    }
    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), CodecError> {
        let n = self.names.number(variant);
        self.num(token::VARIANT, n);
        Ok(())
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        v: &T,
    ) -> Result<(), CodecError> {
        v.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        v: &T,
    ) -> Result<(), CodecError> {
        self.flat.shape.push(token::VARIANT_OF);
        self.name(variant);
        v.serialize(self)
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Seq<'a, 'n>, CodecError> {
        self.enter()?;
        let start = self.mark();
        Ok(Seq { ser: self, start, first: 0, len: 0, alike: true, head: Vec::new() })
    }
    fn serialize_tuple(self, len: usize) -> Result<Tuple<'a, 'n>, CodecError> {
        self.enter()?;
        let start = self.mark();
        self.head(token::TUPLE, len);
        let inner = self.flat.shape.len();
        Ok(Tuple { ser: self, start, inner, len })
    }
    fn serialize_tuple_struct(
        self,
        _: &'static str,
        len: usize,
    ) -> Result<Tuple<'a, 'n>, CodecError> {
        self.serialize_tuple(len)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Tuple<'a, 'n>, CodecError> {
        self.flat.shape.push(token::VARIANT_OF);
        self.name(variant);
        self.serialize_tuple(len)
    }
    fn serialize_map(self, len: Option<usize>) -> Result<Map<'a, 'n>, CodecError> {
        self.enter()?;
        let start = self.flat.shape.len();
        if let Some(len) = len {
            self.head(token::MAP, len);
        }
        Ok(Map { ser: self, start, open: len.is_none(), len: 0 })
    }
    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Struct<'a, 'n>, CodecError> {
        self.enter()?;
        self.head(token::STRUCT, len);
        let first = self.flat.columns.len();
        Ok(Struct { ser: self, first, key: None, flat: true })
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Struct<'a, 'n>, CodecError> {
        self.flat.shape.push(token::VARIANT_OF);
        self.name(variant);
        self.serialize_struct("", len)
    }
    fn is_human_readable(&self) -> bool {
        false
    }
}

/// A sequence: a column as long as all elements look like the first.
struct Seq<'a, 'n> {
    ser: &'a mut Ser<'n>,
    start: Mark,
    /// End of the first element's shape.
    first: usize,
    len: usize,
    alike: bool,
    /// Buffer for the head that a sequence of unlike elements gets in the end.
    head: Vec<u8>,
}

impl Seq<'_, '_> {
    /// Has the element whose shape begins there the shape of the first one?
    fn is_like_first(&self, last: usize) -> bool {
        let shape = &self.ser.flat.shape;
        match (shape.get(self.start.shape..self.first), shape.get(last..)) {
            // Usually a single token, not worth a call.
            (Some([a]), Some([b])) => a == b,
            (a, b) => a == b,
        }
    }
    /// Elements are no longer alike: the ones so far get their shapes back.
    fn part(&mut self, last: usize) {
        let shape = &mut self.ser.flat.shape;
        let tail = shape.split_off(last);
        for _ in 2..self.len {
            shape.extend_from_within(self.start.shape..self.first);
        }
        shape.extend(tail);
        self.alike = false;
    }
}

impl ser::SerializeSeq for Seq<'_, '_> {
    type Ok = ();
    type Error = CodecError;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), CodecError> {
        let before = self.ser.mark();
        v.serialize(&mut *self.ser)?;
        self.len += 1;
        if !self.alike {
            return Ok(());
        }
        let f = &mut self.ser.flat;
        let plain = f.texts.len() == before.texts
            && f.columns.len() == before.columns
            && f.nums.len() > before.nums;
        if self.len == 1 {
            self.first = f.shape.len();
            self.alike = plain;
        } else if plain && self.is_like_first(before.shape) {
            let f = &mut self.ser.flat;
            f.shape.truncate(before.shape);
        } else {
            self.part(before.shape);
        }
        Ok(())
    }
    fn end(mut self) -> Result<(), CodecError> {
        let f = &mut self.ser.flat;
        if self.alike {
            let data = f.nums.get(self.start.nums..).unwrap_or_default();
            let width = data.len().checked_div(self.len).unwrap_or(0);
            let column = Column::of(width, data);
            f.nums.truncate(self.start.nums);
            f.shape.insert(self.start.shape, token::COLUMN);
            if self.len == 0 {
                f.shape.push(token::UNIT);
            }
            f.columns.push(column);
        } else {
            self.head.push(token::SEQ);
            put_varint(&mut self.head, self.len as u64);
            f.shape.splice(self.start.shape..self.start.shape, self.head.drain(..));
        }
        self.ser.depth -= 1;
        Ok(())
    }
}

/// A tuple: packed when it is all bytes, such as an address.
struct Tuple<'a, 'n> {
    ser: &'a mut Ser<'n>,
    start: Mark,
    /// Where the elements' shapes begin.
    inner: usize,
    len: usize,
}

impl Tuple<'_, '_> {
    fn element<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), CodecError> {
        v.serialize(&mut *self.ser)
    }
    fn finish(self) {
        let f = &mut self.ser.flat;
        let bytes = f.shape.get(self.inner..).unwrap_or_default();
        if self.len > 1 && bytes.len() == self.len && bytes.iter().all(|t| *t == token::U8) {
            f.shape.truncate(self.start.shape);
            f.shape.push(token::PACKED);
            put_varint(&mut f.shape, self.len as u64);
            let bytes = f.nums.split_off(self.start.nums);
            let word = |w: &[u64]| w.iter().rev().fold(0, |n, b| n << 8 | b);
            f.nums.extend(bytes.chunks(8).map(word));
        }
        self.ser.depth -= 1;
    }
}

macro_rules! tuple {
    ($($trait:ident, $method:ident;)+) => {
        $( impl ser::$trait for Tuple<'_, '_> {
            type Ok = ();
            type Error = CodecError;
            fn $method<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), CodecError> {
                self.element(v)
            }
            fn end(self) -> Result<(), CodecError> {
                self.finish();
                Ok(())
            }
        } )+
    };
}
tuple! {
    SerializeTuple, serialize_element;
    SerializeTupleStruct, serialize_field;
    SerializeTupleVariant, serialize_field;
}

struct Map<'a, 'n> {
    ser: &'a mut Ser<'n>,
    /// Where its shape begins.
    start: usize,
    /// Its length is not known (flattened structs): the head is written at the end.
    open: bool,
    len: usize,
}

impl ser::SerializeMap for Map<'_, '_> {
    type Ok = ();
    type Error = CodecError;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), CodecError> {
        self.len += 1;
        v.serialize(&mut *self.ser)
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), CodecError> {
        v.serialize(&mut *self.ser)
    }
    fn end(self) -> Result<(), CodecError> {
        if self.open {
            let mut head = vec![token::MAP];
            put_varint(&mut head, self.len as u64);
            self.ser.flat.shape.splice(self.start..self.start, head);
        }
        self.ser.depth -= 1;
        Ok(())
    }
}

struct Struct<'a, 'n> {
    ser: &'a mut Ser<'n>,
    /// First column of this struct.
    first: usize,
    key: Option<usize>,
    /// All columns so far are fields of this struct itself.
    flat: bool,
}

impl Struct<'_, '_> {
    fn field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        v: &T,
    ) -> Result<(), CodecError> {
        self.ser.name(name);
        let (columns, shape) = (self.ser.flat.columns.len(), self.ser.flat.shape.len());
        v.serialize(&mut *self.ser)?;
        let f = &self.ser.flat;
        let is_column = f.shape.get(shape) == Some(&token::COLUMN);
        self.flat &= is_column || f.columns.len() == columns;
        if name == KEY_FIELD && is_column {
            self.key = Some(columns);
        }
        Ok(())
    }
    fn finish(self) {
        let f = &mut self.ser.flat;
        if let (Some(key), true) = (self.key, self.flat) {
            // Siblings of another length (a pool that rows point into) are not of the table.
            let rows = f.columns.get(key).map_or(0, Column::rows);
            let same = |c: &Column| c.rows() == rows && c.width() > 0;
            let end = (key..f.columns.len())
                .find(|i| !f.columns.get(*i).is_some_and(same))
                .unwrap_or(f.columns.len());
            if rows > 0 && self.first <= key {
                f.tables.push(TableOf { key, first: key, end });
            }
        }
        self.ser.depth -= 1;
    }
}

macro_rules! structs {
    ($($trait:ident)+) => {
        $( impl ser::$trait for Struct<'_, '_> {
            type Ok = ();
            type Error = CodecError;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                v: &T,
            ) -> Result<(), CodecError> {
                self.field(name, v)
            }
            fn end(self) -> Result<(), CodecError> {
                self.finish();
                Ok(())
            }
        } )+
    };
}
structs! { SerializeStruct SerializeStructVariant }
