//! Takes a value apart: every number goes to the column of its node, and what no sample before had
//! becomes a new node.

use serde::ser::{self, Error as _, Serialize};

use super::column::Column;
use super::names::Names;
use super::schema::{Kind, ROOT, Schema, Tree};
use super::wire::CodecError;

/// Takes `value` apart; fails for 128-bit integers, values nested too deeply, and values that look
/// different each time (structs that leave out fields, maps with values of several types).
pub fn to_tree<T: Serialize + ?Sized>(
    value: &T,
    schema: &mut Schema,
    names: &mut Names,
) -> Result<Tree, CodecError> {
    let columns = vec![Column::default(); schema.len()];
    let at = Slot { parent: ROOT, place: 0, label: "" };
    let mut ser = Ser { schema, names, columns, at };
    value.serialize(&mut ser)?;
    let mut columns = ser.columns;
    columns.iter_mut().for_each(Column::shrink);
    Ok(Tree { columns })
}

struct Ser<'a> {
    schema: &'a mut Schema,
    names: &'a mut Names,
    columns: Vec<Column>,
    /// Where the next value belongs.
    at: Slot,
}

#[derive(Clone, Copy)]
struct Slot {
    parent: usize,
    place: usize,
    label: &'static str,
}

impl<'n> Ser<'n> {
    /// The node of a value that belongs at the slot.
    fn node(&mut self, kind: Kind) -> Result<usize, CodecError> {
        let Slot { parent, place, label } = self.at;
        if let Some(n) = self.schema.child(parent, place) {
            let is_it = self.schema.get(n).is_some_and(|k| k.kind == kind && same(k.label, label));
            return if is_it { Ok(n) } else { varies() };
        }
        let name = if label.is_empty() { 0 } else { self.names.name(label) };
        self.add(kind, parent, name, label)
    }
    fn add(
        &mut self,
        kind: Kind,
        parent: usize,
        name: u64,
        label: &'static str,
    ) -> Result<usize, CodecError> {
        self.columns.push(Column::default());
        self.schema.add(kind, parent, name, label)
    }
    fn push(&mut self, node: usize, n: u64) {
        if let Some(c) = self.columns.get_mut(node) {
            c.push(n);
        }
    }
    fn number(&mut self, kind: Kind, n: u64) -> Result<(), CodecError> {
        let node = self.node(kind)?;
        self.push(node, n);
        Ok(())
    }
    /// Serialises a part of a node.
    fn part<T: Serialize + ?Sized>(
        &mut self,
        parent: usize,
        place: usize,
        label: &'static str,
        v: &T,
    ) -> Result<(), CodecError> {
        self.at = Slot { parent, place, label };
        v.serialize(self)
    }
    /// Chooses a variant, and returns its node.
    fn variant(&mut self, label: &'static str) -> Result<usize, CodecError> {
        let node = self.node(Kind::Enum)?;
        let known = self.schema.children(node);
        let is_it = |n: &usize| self.schema.get(*n).is_some_and(|k| same(k.label, label));
        let place = known.iter().position(is_it).unwrap_or(known.len());
        self.push(node, place as u64);
        self.at = Slot { parent: node, place, label };
        self.node(Kind::Variant)
    }
    /// Chooses the block of so many bytes.
    fn block(&mut self, len: u64) -> Result<usize, CodecError> {
        let node = self.node(Kind::Bytes)?;
        let known = self.schema.children(node);
        let is_it = |n: &usize| self.schema.get(*n).is_some_and(|k| k.name == len);
        let place = known.iter().position(is_it).unwrap_or(known.len());
        self.push(node, place as u64);
        match self.schema.child(node, place) {
            Some(block) => Ok(block),
            None => self.add(Kind::Block, node, len, ""),
        }
    }
    fn parts(&mut self, kind: Kind) -> Result<Parts<'_, 'n>, CodecError> {
        let node = self.node(kind)?;
        Ok(Parts { ser: self, node, done: 0 })
    }
    fn variant_parts(
        &mut self,
        label: &'static str,
        kind: Kind,
    ) -> Result<Parts<'_, 'n>, CodecError> {
        let parent = self.variant(label)?;
        self.at = Slot { parent, place: 0, label: "" };
        self.parts(kind)
    }
}

fn same(a: &'static str, b: &'static str) -> bool {
    std::ptr::eq(a, b) || a == b
}

fn varies<T>() -> Result<T, CodecError> {
    Err(CodecError::custom("a sample that looks different each time"))
}

/// The parts of a list, tuple, struct or map.
struct Parts<'s, 'n> {
    ser: &'s mut Ser<'n>,
    node: usize,
    done: usize,
}

impl Parts<'_, '_> {
    /// The next field, or element of a tuple.
    fn field<T: Serialize + ?Sized>(
        &mut self,
        label: &'static str,
        v: &T,
    ) -> Result<(), CodecError> {
        self.done += 1;
        self.ser.part(self.node, self.done - 1, label, v)
    }
    fn end_fields(self) -> Result<(), CodecError> {
        if self.done == self.ser.schema.children(self.node).len() { Ok(()) } else { varies() }
    }
    fn end_list(self) {
        self.ser.push(self.node, self.done as u64);
    }
}

macro_rules! numbers {
    ($($method:ident $ty:ty, $kind:ident, $v:ident => $number:expr;)+) => {
        $( fn $method(self, $v: $ty) -> Result<(), CodecError> {
            self.number(Kind::$kind, $number)
        } )+
    };
}

impl<'s, 'a> ser::Serializer for &'s mut Ser<'a> {
    type Ok = ();
    type Error = CodecError;
    type SerializeSeq = Parts<'s, 'a>;
    type SerializeTuple = Parts<'s, 'a>;
    type SerializeTupleStruct = Parts<'s, 'a>;
    type SerializeTupleVariant = Parts<'s, 'a>;
    type SerializeMap = Parts<'s, 'a>;
    type SerializeStruct = Parts<'s, 'a>;
    type SerializeStructVariant = Parts<'s, 'a>;

    numbers! {
        serialize_bool bool, Bool, v => v.into();
        serialize_u8 u8, Unsigned, v => v.into();
        serialize_u16 u16, Unsigned, v => v.into();
        serialize_u32 u32, Unsigned, v => v.into();
        serialize_u64 u64, Unsigned, v => v;
        serialize_i8 i8, Signed, v => i64::from(v).cast_unsigned();
        serialize_i16 i16, Signed, v => i64::from(v).cast_unsigned();
        serialize_i32 i32, Signed, v => i64::from(v).cast_unsigned();
        serialize_i64 i64, Signed, v => v.cast_unsigned();
        serialize_f32 f32, F32, v => v.to_bits().into();
        serialize_f64 f64, F64, v => v.to_bits();
        serialize_char char, Char, v => v.into();
    }
    fn serialize_str(self, v: &str) -> Result<(), CodecError> {
        let n = self.names.text(v);
        self.number(Kind::Text, n)
    }
    fn serialize_bytes(self, v: &[u8]) -> Result<(), CodecError> {
        let block = self.block(v.len() as u64)?;
        for (place, word) in v.chunks(4).enumerate() {
            let n = word.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
            self.at = Slot { parent: block, place, label: "" };
            self.number(Kind::Unsigned, n)?;
        }
        Ok(())
    }
    fn serialize_none(self) -> Result<(), CodecError> {
        self.number(Kind::Option, 0)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, v: &T) -> Result<(), CodecError> {
        let node = self.node(Kind::Option)?;
        self.push(node, 1);
        self.part(node, 0, "", v)
    }
    fn serialize_unit(self) -> Result<(), CodecError> {
        self.node(Kind::Unit).map(drop)
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
        self.variant(variant).map(drop)
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
        let node = self.variant(variant)?;
        self.part(node, 0, "", v)
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'s, 'a>, CodecError> {
        self.parts(Kind::List)
    }
    fn serialize_tuple(self, _: usize) -> Result<Parts<'s, 'a>, CodecError> {
        self.parts(Kind::Tuple)
    }
    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Parts<'s, 'a>, CodecError> {
        self.parts(Kind::Tuple)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'s, 'a>, CodecError> {
        self.variant_parts(variant, Kind::Tuple)
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'s, 'a>, CodecError> {
        self.parts(Kind::Map)
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts<'s, 'a>, CodecError> {
        self.parts(Kind::Struct)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'s, 'a>, CodecError> {
        self.variant_parts(variant, Kind::Struct)
    }
    fn is_human_readable(&self) -> bool {
        false
    }
}

impl ser::SerializeSeq for Parts<'_, '_> {
    type Ok = ();
    type Error = CodecError;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), CodecError> {
        self.done += 1;
        self.ser.part(self.node, 0, "", v)
    }
    fn end(self) -> Result<(), CodecError> {
        self.end_list();
        Ok(())
    }
}

impl ser::SerializeMap for Parts<'_, '_> {
    type Ok = ();
    type Error = CodecError;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), CodecError> {
        self.done += 1;
        self.ser.part(self.node, 0, "", v)
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), CodecError> {
        self.ser.part(self.node, 1, "", v)
    }
    fn end(self) -> Result<(), CodecError> {
        self.end_list();
        Ok(())
    }
}

macro_rules! fields {
    ($($trait:ident $method:ident $($label:ident)?;)+) => {
        $( impl ser::$trait for Parts<'_, '_> {
            type Ok = ();
            type Error = CodecError;
            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($label: &'static str,)?
                v: &T,
            ) -> Result<(), CodecError> {
                self.field(fields!(@ $($label)?), v)
            }
            fn end(self) -> Result<(), CodecError> {
                self.end_fields()
            }
        } )+
    };
    (@ $label:ident) => { $label };
    (@) => { "" };
}
fields! {
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
    SerializeStruct serialize_field label;
    SerializeStructVariant serialize_field label;
}
