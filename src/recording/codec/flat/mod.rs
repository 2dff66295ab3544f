//! Any sample as columns: its structure separate from its numbers and texts.
//!
//! A sample is serialised once into a [`Flat`]: `shape` says what it looks like (with the names of
//! fields, so that readers of another version can skip what they do not know and default what they
//! miss), `nums` and `texts` hold the leaves, and every sequence whose elements are alike and
//! purely numeric becomes a [`Column`]. Two readings of a collector usually have the same shape, so
//! that the second one is a few changed numbers.
//!
//! [`to_flat`] is in `ser`, [`from_flat`] in `de`: they are serde's two halves.

mod column;
mod de;
mod names;
mod ser;
mod shape;
#[cfg(test)]
mod tests;
mod value;

pub use column::{Column, Part};
pub use de::{from_flat, from_flat_within};
pub use names::Names;
pub use ser::to_flat;
pub use shape::token;
pub(super) use shape::{At, elements, key_hashes, shape_number, skip};
pub use value::{Flat, TableOf, Texts};
