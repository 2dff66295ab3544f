//! Rebuilds a value. Trusts nothing: shapes come from files.

use std::ops::Range;

use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};

use super::names::Names;
use super::shape::{At, MAX_DEPTH, skip, token};
use super::value::Flat;
use crate::recording::codec::wire::{CodecError, too_large, varint};
use crate::sample::packed::{self, Form};

pub fn from_flat<T: de::DeserializeOwned>(flat: &Flat, names: &Names) -> Result<T, CodecError> {
    from_flat_within(flat, names, &mut { usize::MAX })
}

/// Rebuilds a value within a budget of work: about its bytes in memory, plus `STEP` for each token
/// on the way. A row of a few numbers may be a large struct, and a small shape is walked again for
/// each row. Leaves what was not needed.
pub fn from_flat_within<T: de::DeserializeOwned>(
    flat: &Flat,
    names: &Names,
    work: &mut usize,
) -> Result<T, CodecError> {
    let at = At::default();
    let mut de = De { flat, names, at, row: None, depth: 0, work };
    T::deserialize(&mut de)
}

/// What a token costs.
const STEP: usize = 8;

fn spend(work: &mut usize, what: usize) -> Result<(), CodecError> {
    if let Some(left) = work.checked_sub(what) {
        *work = left;
    } else {
        *work = 0;
        return too_large();
    }
    Ok(())
}

struct De<'f> {
    flat: &'f Flat,
    names: &'f Names,
    at: At,
    /// Inside a column: its number, the element, and the next of the element's numbers.
    row: Option<(usize, usize, usize)>,
    depth: u32,
    work: &'f mut usize,
}

fn torn<T>() -> Result<T, CodecError> {
    Err(CodecError("the sample ends too early".to_owned()))
}

impl<'f> De<'f> {
    fn token(&mut self) -> Result<u8, CodecError> {
        let Some(t) = self.flat.shape.get(self.at.shape) else { return torn() };
        self.at.shape += 1;
        Ok(*t)
    }
    fn peek(&self) -> Option<u8> {
        self.flat.shape.get(self.at.shape).copied()
    }
    fn len(&mut self) -> Result<usize, CodecError> {
        match varint(&self.flat.shape, &mut self.at.shape).map(usize::try_from) {
            Some(Ok(n)) => Ok(n),
            _ => torn(),
        }
    }
    fn name(&mut self) -> Result<&'f str, CodecError> {
        let n = varint(&self.flat.shape, &mut self.at.shape);
        self.named(n)
    }
    fn named(&self, n: Option<u64>) -> Result<&'f str, CodecError> {
        let name = n.and_then(|n| self.names.get(n));
        name.ok_or_else(|| CodecError("a name that is not in the list".to_owned()))
    }
    fn num(&mut self) -> Result<u64, CodecError> {
        let n = if let Some((column, row, part)) = &mut self.row {
            let n = self.flat.columns.get(*column).and_then(|c| c.get(*row, *part));
            *part += 1;
            n
        } else {
            let n = self.flat.nums.get(self.at.num).copied();
            self.at.num += 1;
            n
        };
        n.map_or_else(torn, Ok)
    }
    fn text(&mut self) -> Result<&'f [u8], CodecError> {
        let Some(t) = self.flat.texts.get(self.at.text) else { return torn() };
        self.at.text += 1;
        Ok(t)
    }
    fn string(&mut self) -> Result<&'f str, CodecError> {
        let t = self.text()?;
        std::str::from_utf8(t).map_err(|_| CodecError("a text that is not UTF-8".to_owned()))
    }
    fn bytes(&mut self) -> Result<Vec<u8>, CodecError> {
        let len = self.len()?;
        let words = len.div_ceil(4);
        let mut out = Vec::new();
        for _ in 0..words {
            out.extend_from_slice(&(self.num()? as u32).to_le_bytes());
        }
        out.truncate(len);
        Ok(out)
    }
    /// A column as a whole, when its elements are of the form that is asked for.
    fn packed(&mut self, form: Form) -> Result<Option<Vec<u8>>, CodecError> {
        let column = self.flat.columns.get(self.at.column).filter(|c| c.rows() > 0);
        let (Some(column), Some(token::COLUMN), None) = (column, self.peek(), self.row) else {
            return Ok(None);
        };
        let begin = self.at.shape + 1;
        let end = element_end(&self.flat.shape, begin, self.depth)?;
        let len = element(self.flat.shape.get(begin..end).unwrap_or_default(), form);
        let Some(len) = len else { return Ok(None) };
        // Its bytes, and what is made of them.
        spend(self.work, column.cells().saturating_mul(2 * form.word()))?;
        let Some(bytes) = column.bytes(form, len) else { return Ok(None) };
        self.at.shape = end;
        self.at.column += 1;
        Ok(Some(bytes))
    }
    fn nested<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, CodecError>,
    ) -> Result<T, CodecError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(CodecError("nested too deeply".to_owned()));
        }
        let out = inner(self);
        self.depth -= 1;
        out
    }
}

impl<'de> de::Deserializer<'de> for &mut De<'_> {
    type Error = CodecError;

    fn deserialize_any<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
        spend(self.work, STEP.saturating_add(size_of::<V::Value>()))?;
        match self.token()? {
            token::UNIT => v.visit_unit(),
            token::BOOL => v.visit_bool(self.num()? != 0),
            token::U8 | token::U16 | token::U32 | token::U64 => v.visit_u64(self.num()?),
            token::INT => v.visit_i64(self.num()?.cast_signed()),
            token::F32 => v.visit_f32(f32::from_bits(self.num()? as u32)),
            token::F64 => v.visit_f64(f64::from_bits(self.num()?)),
            token::CHAR => {
                let c = u32::try_from(self.num()?).ok().and_then(char::from_u32);
                v.visit_char(c.unwrap_or(char::REPLACEMENT_CHARACTER))
            }
            token::STR => v.visit_str(self.string()?),
            token::BYTES => {
                // A `Vec<u8>` is read as a sequence, whatever its writer called it.
                let left = self.len()?;
                self.nested(|de| v.visit_seq(Packed { de, left, word: 0, have: 0, per: 4 }))
            }
            token::NONE => v.visit_none(),
            token::SOME => self.nested(|d| v.visit_some(d)),
            token::VARIANT => {
                let n = self.num()?;
                let name = self.named(Some(n))?;
                v.visit_enum(name.into_deserializer())
            }
            token::VARIANT_OF => self.nested(|d| v.visit_enum(Variant { de: d })),
            token::SEQ | token::TUPLE => {
                let left = self.len()?;
                self.nested(|de| v.visit_seq(Elements { de, left }))
            }
            token::COLUMN => self.nested(|d| column(d, v)),
            token::MAP => {
                let left = self.len()?;
                self.nested(|de| v.visit_map(Entries { de, left, fields: false }))
            }
            token::STRUCT => {
                let left = self.len()?;
                self.nested(|de| v.visit_map(Entries { de, left, fields: true }))
            }
            token::PACKED => {
                let left = self.len()?;
                self.nested(|de| v.visit_seq(Packed { de, left, word: 0, have: 0, per: 8 }))
            }
            t => Err(CodecError(format!("token {t} is not known"))),
        }
    }
    fn deserialize_option<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
        match self.peek() {
            Some(token::NONE) => {
                self.at.shape += 1;
                v.visit_none()
            }
            Some(token::SOME) => {
                self.at.shape += 1;
                self.nested(|d| v.visit_some(d))
            }
            // A field that used to be always present.
            _ => self.nested(|d| v.visit_some(d)),
        }
    }
    fn deserialize_bytes<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
        if self.peek() == Some(token::BYTES) {
            self.at.shape += 1;
            return v.visit_byte_buf(self.bytes()?);
        }
        self.deserialize_any(v)
    }
    fn deserialize_byte_buf<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
        self.deserialize_bytes(v)
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        v: V,
    ) -> Result<V::Value, CodecError> {
        if let Some(form) = packed::form(name)
            && let Some(bytes) = self.packed(form)?
        {
            return v.visit_bytes(&bytes);
        }
        self.nested(|d| v.visit_newtype_struct(d))
    }
    /// Data of a newer version: skips it without looking at the rows of columns.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
        if self.row.is_some() {
            return self.deserialize_any(v);
        }
        let begin = self.at.shape;
        skip(&self.flat.shape, &mut self.at, self.depth)?;
        spend(self.work, STEP.saturating_mul(self.at.shape - begin))?;
        v.visit_unit()
    }
    fn is_human_readable(&self) -> bool {
        false
    }
    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string
        unit unit_struct seq tuple tuple_struct map struct enum identifier
    }
}

/// The elements of a column: one shape, read again for each.
fn column<'de, V: Visitor<'de>>(de: &mut De<'_>, v: V) -> Result<V::Value, CodecError> {
    let number = de.at.column;
    de.at.column += 1;
    let Some(column) = de.flat.columns.get(number) else { return torn() };
    let rows = if column.width() == 0 { 0 } else { column.rows() };
    let begin = de.at.shape;
    let end = element_end(&de.flat.shape, begin, de.depth)?;
    if rows == 0 {
        de.at.shape = end;
        return v.visit_seq(Rows { de, number, shape: begin..begin, next: 0, len: 0 });
    }
    if de.row.is_some() {
        return Err(CodecError("a column inside a column".to_owned()));
    }
    let out = v.visit_seq(Rows { de, number, shape: begin..end, next: 0, len: rows });
    de.row = None;
    de.at.shape = end;
    out
}

/// Where the shape of a column's elements ends; they are numbers only.
fn element_end(shape: &[u8], begin: usize, depth: u32) -> Result<usize, CodecError> {
    let mut at = At { shape: begin, ..At::default() };
    skip(shape, &mut at, depth)?;
    if at.text + at.column > 0 {
        return Err(CodecError("a text or a column in a column".to_owned()));
    }
    Ok(at.shape)
}

/// Is this the shape of elements of that form? Length of a block, else 0.
fn element(shape: &[u8], form: Form) -> Option<usize> {
    let whole = |t: &u8| (token::U8..=token::U64).contains(t);
    match (form, shape) {
        (Form::Words { width: 1, .. }, [t]) => whole(t).then_some(0),
        (Form::Words { word: 8, width }, [token::PACKED, len]) => {
            (usize::from(*len) == 8 * width && *len < 0x80).then_some(0)
        }
        (Form::Words { width, .. }, [token::TUPLE, len, each @ ..]) => {
            let right = usize::from(*len) == width && each.len() == width;
            (right && each.iter().all(whole)).then_some(0)
        }
        (Form::Blocks, [token::BYTES, ..]) => usize::try_from(varint(shape, &mut 1)?).ok(),
        _ => None,
    }
}

struct Rows<'a, 'f> {
    de: &'a mut De<'f>,
    /// Of the column.
    number: usize,
    shape: Range<usize>,
    next: usize,
    len: usize,
}

impl<'de> de::SeqAccess<'de> for Rows<'_, '_> {
    type Error = CodecError;
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, CodecError> {
        if self.next >= self.len {
            return Ok(None);
        }
        self.de.at.shape = self.shape.start;
        self.de.row = Some((self.number, self.next, 0));
        self.next += 1;
        seed.deserialize(&mut *self.de).map(Some)
    }
    fn size_hint(&self) -> Option<usize> {
        Some(self.len - self.next)
    }
}

struct Elements<'a, 'f> {
    de: &'a mut De<'f>,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for Elements<'_, '_> {
    type Error = CodecError;
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, CodecError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.de).map(Some)
    }
}

struct Packed<'a, 'f> {
    de: &'a mut De<'f>,
    left: usize,
    word: u64,
    have: u32,
    /// Bytes per number.
    per: u32,
}

impl<'de> de::SeqAccess<'de> for Packed<'_, '_> {
    type Error = CodecError;
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, CodecError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        if self.have == 0 {
            self.word = self.de.num()?;
            self.have = self.per;
        }
        let byte = self.word as u8;
        self.word >>= 8;
        self.have -= 1;
        seed.deserialize(byte.into_deserializer()).map(Some)
    }
}

struct Entries<'a, 'f> {
    de: &'a mut De<'f>,
    left: usize,
    /// Keys are names of fields.
    fields: bool,
}

impl<'de> de::MapAccess<'de> for Entries<'_, '_> {
    type Error = CodecError;
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, CodecError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        if self.fields {
            let name = self.de.name()?;
            return seed.deserialize(name.into_deserializer()).map(Some);
        }
        seed.deserialize(&mut *self.de).map(Some)
    }
    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, CodecError> {
        seed.deserialize(&mut *self.de)
    }
}

struct Variant<'a, 'f> {
    de: &'a mut De<'f>,
}

impl<'de, 'f> de::EnumAccess<'de> for Variant<'_, 'f> {
    type Error = CodecError;
    type Variant = Self;
    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self), CodecError> {
        let name: &'f str = self.de.name()?;
        let v = seed.deserialize(IntoDeserializer::<CodecError>::into_deserializer(name))?;
        Ok((v, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, '_> {
    type Error = CodecError;
    fn unit_variant(self) -> Result<(), CodecError> {
        Err(CodecError("a variant with a value where none is expected".to_owned()))
    }
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, CodecError> {
        seed.deserialize(self.de)
    }
    fn tuple_variant<V: Visitor<'de>>(self, _: usize, v: V) -> Result<V::Value, CodecError> {
        de::Deserializer::deserialize_any(self.de, v)
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, CodecError> {
        de::Deserializer::deserialize_any(self.de, v)
    }
}
