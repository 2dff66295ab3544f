//! Puts a value together again. Trusts nothing: trees come from files.

use serde::de::value::SeqDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};

use super::names::Names;
use super::schema::{Kind, ROOT, Schema, Tree};
use super::wire::{CodecError, too_large};
use crate::sample::packed::{self, Form};

/// Puts a value together within a budget of work: about its bytes in memory, plus `STEP` for each
/// node on the way. A row of a few numbers may be a large struct. Leaves what was not needed.
pub fn from_tree<T: de::DeserializeOwned>(
    tree: &Tree,
    schema: &Schema,
    names: &Names,
    work: &mut usize,
) -> Result<T, CodecError> {
    let next = vec![0; schema.len()];
    let mut de = De { tree, schema, names, next, node: ROOT, work };
    de.descend(ROOT, 0)?;
    T::deserialize(&mut de)
}

/// What a node costs.
const STEP: usize = 8;
/// Rows of a packed column that are written at a time: they stay in the CPU's nearest cache.
const CACHED: usize = 64;

struct De<'t> {
    tree: &'t Tree,
    schema: &'t Schema,
    names: &'t Names,
    /// Per node, which of its numbers comes next.
    next: Vec<usize>,
    /// The node of the next value.
    node: usize,
    work: &'t mut usize,
}

fn torn<T>() -> Result<T, CodecError> {
    Err(CodecError("the sample ends too early".to_owned()))
}

impl<'t> De<'t> {
    fn spend(&mut self, what: usize) -> Result<(), CodecError> {
        if let Some(left) = self.work.checked_sub(what) {
            *self.work = left;
            return Ok(());
        }
        *self.work = 0;
        too_large()
    }
    fn kind(&self) -> Kind {
        self.schema.get(self.node).map_or(Kind::Unit, |n| n.kind)
    }
    /// Pays for a value of this visitor, and tells what is there.
    fn begin<'de, V: Visitor<'de>>(&mut self) -> Result<Kind, CodecError> {
        self.spend(STEP.saturating_add(size_of::<V::Value>()))?;
        Ok(self.kind())
    }
    /// What is there is of another type.
    fn other<T>(&self) -> Result<T, CodecError> {
        Err(CodecError(format!("{:?} where something else belongs", self.kind())))
    }
    /// The parts of a tuple or struct.
    fn parts(&mut self) -> Parts<'_, 't> {
        let node = self.node;
        let left = self.schema.children(node).len();
        Parts { de: self, node, left, next: 0, step: 1 }
    }
    /// The elements of a list or map.
    fn elements(&mut self) -> Result<Parts<'_, 't>, CodecError> {
        let (node, left) = (self.node, self.length()?);
        Ok(Parts { de: self, node, left, next: 0, step: 0 })
    }
    /// Makes a child the node of the next value.
    fn descend(&mut self, node: usize, place: usize) -> Result<(), CodecError> {
        let Some(child) = self.schema.child(node, place) else { return torn() };
        self.node = child;
        Ok(())
    }
    /// The next number of the node.
    fn number(&mut self) -> Result<u64, CodecError> {
        let Some(next) = self.next.get_mut(self.node) else { return torn() };
        *next += 1;
        self.tree.column(self.node).get(*next - 1).map_or_else(torn, Ok)
    }
    fn length(&mut self) -> Result<usize, CodecError> {
        usize::try_from(self.number()?).or_else(|_| torn())
    }
    fn name(&self, n: u64) -> Result<&'t str, CodecError> {
        let name = self.names.get(n);
        name.ok_or_else(|| CodecError("a name that is not in the list".to_owned()))
    }
    /// Name of a field or variant.
    fn label(&self) -> Result<&'t str, CodecError> {
        self.name(self.schema.get(self.node).map_or(u64::MAX, |n| n.name))
    }
    fn text(&mut self) -> Result<&'t str, CodecError> {
        let n = self.number()?;
        let text = self.name(n)?;
        self.spend(text.len())?;
        Ok(text)
    }
    fn bytes(&mut self) -> Result<Vec<u8>, CodecError> {
        let (node, place) = (self.node, self.length()?);
        self.descend(node, place)?;
        let len = self.schema.get(self.node).map_or(0, |n| n.name);
        let schema = self.schema;
        let mut out = Vec::new();
        for word in schema.children(self.node) {
            self.node = *word;
            out.extend_from_slice(&(self.number()? as u32).to_le_bytes());
        }
        out.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(out)
    }

    /// Passes over the next values of a node: data of a newer version.
    fn skip(&mut self, node: usize, values: usize) -> Result<(), CodecError> {
        let Some(n) = self.schema.get(node).filter(|_| values > 0) else { return Ok(()) };
        let from = self.next.get(node).copied().unwrap_or(0);
        let rows = from..from.saturating_add(values);
        if let Some(next) = self.next.get_mut(node).filter(|_| !n.kind.is_plain()) {
            *next = rows.end;
        }
        // Only lengths and choices are looked at.
        let looks = n.kind.is_list() || n.kind.is_choice();
        let column = self.tree.column(node);
        for (place, child) in n.children.iter().enumerate() {
            let inside = |v: u64| match n.kind {
                k if k.is_choice() => usize::from(k.chooses(v, place)),
                _ => usize::try_from(v).unwrap_or(usize::MAX),
            };
            self.spend(STEP.saturating_add(if looks { values } else { 0 }))?;
            let times = if looks { column.sum(rows.clone(), inside) } else { values };
            self.skip(*child, times)?;
        }
        Ok(())
    }

    /// A list as the bytes of all its elements, when they are of the form that is asked for.
    fn packed(&mut self, form: Form) -> Result<Option<Vec<u8>>, CodecError> {
        let list = self.node;
        let from = self.next.get(list).copied().unwrap_or(0);
        let len = self.tree.column(list).get(from).and_then(|n| usize::try_from(n).ok());
        let (Kind::List, Some(len @ 1..)) = (self.kind(), len) else { return Ok(None) };
        let Some(packed) = self.layout(list, form) else { return Ok(None) };
        let Packed { words, word, head } = packed;
        let stride = word * words.len();
        let first = words.first().map_or(0, |w| self.next.get(*w).copied().unwrap_or(0));
        let rows = first..first.saturating_add(len);
        // Its bytes, and what is made of them.
        self.spend(len.saturating_mul(2 * stride))?;
        let mut out = head.map_or_else(Vec::new, |h| h.to_le_bytes().to_vec());
        let begin = out.len();
        out.resize(begin + len * stride, 0);
        let blocks = out.get_mut(begin..).unwrap_or_default().chunks_mut(CACHED * stride);
        for (i, block) in blocks.enumerate() {
            let from = rows.start + i * CACHED;
            let part = from..(from + CACHED).min(rows.end);
            for (c, w) in words.iter().enumerate() {
                let (Some(out), column) = (block.get_mut(c * word..), self.tree.column(*w)) else {
                    break;
                };
                match word {
                    1 => column.write::<1>(part.clone(), stride, out),
                    2 => column.write::<2>(part.clone(), stride, out),
                    4 => column.write::<4>(part.clone(), stride, out),
                    _ => column.write::<8>(part.clone(), stride, out),
                }
            }
        }
        self.skip(list, 1)?;
        Ok(Some(out))
    }

    fn layout(&self, list: usize, form: Form) -> Option<Packed<'t>> {
        let element = self.schema.child(list, 0)?;
        let inside = self.schema.children(element);
        let kind = self.schema.get(element)?.kind;
        let one = |n| self.schema.children(n).get(..1);
        let (words, word, head) = match (form, kind) {
            (Form::Words { word, width: 1 }, Kind::Unsigned) => (one(list)?, word, None),
            // The bytes of an address.
            (Form::Words { word, width }, Kind::Tuple) if inside.len() == word * width => {
                (inside, 1, None)
            }
            (Form::Words { word, width }, Kind::Tuple) if inside.len() == width => {
                (inside, word, None)
            }
            (Form::Blocks, Kind::Bytes) => {
                let place = usize::try_from(self.tree.column(element).constant()?).ok()?;
                let block = self.schema.child(element, place)?;
                let len = u32::try_from(self.schema.get(block)?.name).ok()?;
                let words = self.schema.children(block);
                (words, 4, Some(len).filter(|l| l.div_ceil(4) as usize == words.len()))
            }
            _ => return None,
        };
        let right = |n: &usize| {
            self.schema.get(*n).is_some_and(|n| n.kind == Kind::Unsigned)
                && self.tree.column(*n).fits(word)
        };
        let is_known = (form == Form::Blocks) == head.is_some();
        (is_known && !words.is_empty() && words.iter().all(right)).then_some(Packed {
            words,
            word,
            head,
        })
    }
}

/// Columns whose rows are the elements of a list.
struct Packed<'t> {
    words: &'t [usize],
    /// Bytes of each number.
    word: usize,
    /// Of blocks: their length.
    head: Option<u32>,
}

/// Methods that do what another one does.
macro_rules! forward {
    ($($to:ident: $($from:ident),*;)*) => {$($(
        fn $from<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
            self.$to(v)
        }
    )*)*};
}

impl<'de> de::Deserializer<'de> for &mut De<'_> {
    type Error = CodecError;

    /// Types say what they are: each kind has a method of its own, which keeps the code of hundreds
    /// of them small.
    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, CodecError> {
        self.other()
    }
    fn deserialize_u64<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
        match self.begin::<V>()? {
            Kind::Unit => v.visit_unit(),
            Kind::Bool => v.visit_bool(self.number()? != 0),
            Kind::Unsigned => v.visit_u64(self.number()?),
            Kind::Signed => v.visit_i64(self.number()?.cast_signed()),
            Kind::F32 => v.visit_f32(f32::from_bits(self.number()? as u32)),
            Kind::F64 => v.visit_f64(f64::from_bits(self.number()?)),
            Kind::Char => {
                let c = u32::try_from(self.number()?).ok().and_then(char::from_u32);
                v.visit_char(c.unwrap_or(char::REPLACEMENT_CHARACTER))
            }
            _ => self.other(),
        }
    }
    fn deserialize_str<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
        match self.begin::<V>()? {
            Kind::Text => v.visit_str(self.text()?),
            _ => self.other(),
        }
    }
    fn deserialize_seq<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
        match self.begin::<V>()? {
            Kind::Tuple => v.visit_seq(self.parts()),
            Kind::List => v.visit_seq(self.elements()?),
            Kind::Bytes => {
                // A `Vec<u8>` is read as a sequence, whatever its writer called it.
                v.visit_seq(SeqDeserializer::<_, CodecError>::new(self.bytes()?.into_iter()))
            }
            _ => self.other(),
        }
    }
    fn deserialize_map<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
        match self.begin::<V>()? {
            Kind::Struct => v.visit_map(self.parts()),
            Kind::Map => v.visit_map(self.elements()?),
            _ => self.other(),
        }
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, CodecError> {
        if self.begin::<V>()? != Kind::Enum {
            return self.other();
        }
        let (node, place) = (self.node, self.length()?);
        self.descend(node, place)?;
        v.visit_enum(Variant { de: self })
    }
    fn deserialize_option<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
        // Anything else is a field that used to be always present.
        if self.kind() != Kind::Option {
            return v.visit_some(self);
        }
        self.begin::<V>()?;
        let node = self.node;
        if self.number()? == 0 {
            return v.visit_none();
        }
        self.descend(node, 0)?;
        v.visit_some(self)
    }
    fn deserialize_bytes<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
        if self.kind() == Kind::Bytes {
            return v.visit_byte_buf(self.bytes()?);
        }
        self.deserialize_seq(v)
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
        v.visit_newtype_struct(self)
    }
    fn deserialize_ignored_any<V: Visitor<'de>>(self, v: V) -> Result<V::Value, CodecError> {
        self.skip(self.node, 1)?;
        v.visit_unit()
    }
    fn is_human_readable(&self) -> bool {
        false
    }
    forward! {
        deserialize_u64: deserialize_bool, deserialize_i8, deserialize_i16, deserialize_i32,
            deserialize_i64, deserialize_i128, deserialize_u8, deserialize_u16, deserialize_u32,
            deserialize_u128, deserialize_f32, deserialize_f64, deserialize_char,
            deserialize_unit;
        deserialize_str: deserialize_string, deserialize_identifier;
    }
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        v: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_u64(v)
    }
    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, v: V) -> Result<V::Value, CodecError> {
        self.deserialize_seq(v)
    }
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        v: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_seq(v)
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_map(v)
    }
}

/// The parts of a list, tuple, struct or map.
struct Parts<'a, 't> {
    de: &'a mut De<'t>,
    node: usize,
    left: usize,
    /// Place of the next child: of a list always the first one.
    next: usize,
    step: usize,
}

impl Parts<'_, '_> {
    /// Moves on to the next part; false at the end.
    fn advance(&mut self) -> Result<bool, CodecError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(false) };
        self.left = left;
        self.de.descend(self.node, self.next)?;
        self.next += self.step;
        Ok(true)
    }
}

impl<'de> de::SeqAccess<'de> for Parts<'_, '_> {
    type Error = CodecError;
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, CodecError> {
        if self.advance()? { seed.deserialize(&mut *self.de).map(Some) } else { Ok(None) }
    }
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> de::MapAccess<'de> for Parts<'_, '_> {
    type Error = CodecError;
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, CodecError> {
        if !self.advance()? {
            return Ok(None);
        }
        if self.step == 0 {
            return seed.deserialize(&mut *self.de).map(Some);
        }
        seed.deserialize(self.de.label()?.into_deserializer()).map(Some)
    }
    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, CodecError> {
        if self.step == 0 {
            self.de.descend(self.node, 1)?;
        }
        seed.deserialize(&mut *self.de)
    }
}

/// A variant: its name, and what is in it.
struct Variant<'a, 't> {
    de: &'a mut De<'t>,
}

impl<'de> de::EnumAccess<'de> for Variant<'_, '_> {
    type Error = CodecError;
    type Variant = Self;
    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self), CodecError> {
        let name = self.de.label()?;
        let v = seed.deserialize(IntoDeserializer::<CodecError>::into_deserializer(name))?;
        Ok((v, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, '_> {
    type Error = CodecError;
    fn unit_variant(self) -> Result<(), CodecError> {
        // What a later version put into it.
        let schema = self.de.schema;
        schema.children(self.de.node).iter().try_for_each(|c| self.de.skip(*c, 1))
    }
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, CodecError> {
        self.de.descend(self.de.node, 0)?;
        seed.deserialize(self.de)
    }
    fn tuple_variant<V: Visitor<'de>>(self, _: usize, v: V) -> Result<V::Value, CodecError> {
        self.de.descend(self.de.node, 0)?;
        de::Deserializer::deserialize_seq(self.de, v)
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, CodecError> {
        self.de.descend(self.de.node, 0)?;
        de::Deserializer::deserialize_map(self.de, v)
    }
}
