//! Columns of like numbers, taken from a recording whole instead of number by number: at 10,000
//! sockets the latter takes most of the time of a step.
//!
//! Used as `#[serde(deserialize_with = "packed::column")]`. A format that knows the name that is
//! asked for hands over the bytes of all elements at once; every other one gives a plain list.

use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// How the bytes of a column are laid out, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `width` numbers of `word` bytes per element.
    Words {
        /// Bytes per number: 1, 2, 4 or 8.
        word: usize,
        /// Numbers per element.
        width: usize,
    },
    /// The length of a block as a `u32`, then all blocks, each padded to four bytes.
    Blocks,
}

impl Form {
    /// Bytes per number.
    #[must_use]
    pub fn word(self) -> usize {
        match self {
            Self::Words { word, .. } => word,
            Self::Blocks => 4,
        }
    }
}

/// The form that goes by this name.
#[must_use]
pub fn form(name: &str) -> Option<Form> {
    let words = |word, width| Some(Form::Words { word, width });
    match name.strip_prefix("packed ")? {
        "1x1" => words(1, 1),
        "2x1" => words(2, 1),
        "4x1" => words(4, 1),
        "4x9" => words(4, 9),
        "8x1" => words(8, 1),
        "8x2" => words(8, 2),
        "blocks" => Some(Form::Blocks),
        _ => None,
    }
}

/// What columns are made of.
pub trait Packed: Sized {
    /// Name of the form that it comes in.
    const NAME: &'static str;
    /// All elements; `None`: not a whole number of them.
    fn all(bytes: &[u8]) -> Option<Vec<Self>>;
}

/// Elements of `N` bytes each.
pub(crate) fn split<const N: usize, T>(bytes: &[u8], of: impl Fn([u8; N]) -> T) -> Option<Vec<T>> {
    let (all, rest) = bytes.as_chunks::<N>();
    rest.is_empty().then(|| all.iter().map(|b| of(*b)).collect())
}

macro_rules! packed {
    ($($ty:ty, $name:literal, $of:expr;)+) => {
        $( impl Packed for $ty {
            const NAME: &'static str = $name;
            fn all(bytes: &[u8]) -> Option<Vec<Self>> { split(bytes, $of) }
        } )+
    };
}
packed! {
    u8, "packed 1x1", |b: [u8; 1]| b[0];
    u16, "packed 2x1", u16::from_le_bytes;
    u32, "packed 4x1", u32::from_le_bytes;
    u64, "packed 8x1", u64::from_le_bytes;
    [u8; 16], "packed 8x2", |b: [u8; 16]| b;
    [u32; 9], "packed 4x9", |b: [u8; 36]| {
        let mut out = [0; 9];
        for (n, w) in out.iter_mut().zip(b.as_chunks::<4>().0) {
            *n = u32::from_le_bytes(*w);
        }
        out
    };
}

/// Reads a column.
///
/// # Errors
/// Of the format, or when the bytes do not make elements.
pub fn column<'de, D, T>(d: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Packed + Deserialize<'de>,
{
    d.deserialize_newtype_struct(T::NAME, Whole(PhantomData))
}

struct Whole<T>(PhantomData<T>);

impl<'de, T: Packed + Deserialize<'de>> Visitor<'de> for Whole<T> {
    type Value = Vec<T>;
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a column")
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, d: D) -> Result<Vec<T>, D::Error> {
        Vec::deserialize(d)
    }
    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Vec<T>, E> {
        T::all(bytes).ok_or_else(|| E::invalid_length(bytes.len(), &self))
    }
}
