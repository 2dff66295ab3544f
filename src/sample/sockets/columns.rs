//! What tables of columns have in common: every column has an entry for each row.
//!
//! A recording may say otherwise, by a bug or on purpose. Rows are read by index everywhere, so a
//! table with columns of unequal length is refused where it is read, as damage.

use serde::de;

/// Gives a table its methods for all columns at once, and a `Deserialize` that refuses columns of
/// unequal length. `beside` them are the lists that rows point into. The table derives serde's traits
/// with `remote = "Self"`.
macro_rules! columns {
    ($rows:ident { $first:ident, $($column:ident),+ $(,)? } beside { $list:ident }) => {
        impl $rows {
            /// Number of rows.
            #[must_use]
            pub fn len(&self) -> usize {
                self.$first.len()
            }
            /// No rows?
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.$first.is_empty()
            }
            /// Makes room for `rows` in every column.
            pub fn reserve(&mut self, rows: usize) {
                self.$first.reserve_exact(rows);
                $( self.$column.reserve_exact(rows); )+
            }
            /// Takes a row out; the last one moves to its place.
            pub fn swap_remove(&mut self, row: usize) {
                if row < self.len() {
                    self.$first.swap_remove(row);
                    $( self.$column.swap_remove(row); )+
                }
            }
            /// Forgets all rows and keeps their memory.
            pub fn clear(&mut self) {
                self.$first.clear();
                $( self.$column.clear(); )+
                self.$list.clear();
            }
        }

        impl serde::Serialize for $rows {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, s)
            }
        }

        impl<'de> serde::Deserialize<'de> for $rows {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let rows = Self::deserialize(d)?;
                $( $crate::sample::sockets::columns::is_whole(
                    stringify!($column),
                    rows.$column.len(),
                    rows.$first.len(),
                )?; )+
                Ok(rows)
            }
        }
    };
}
pub(super) use columns;

/// # Errors
/// When a column of `len` entries is not of a table of `rows` rows.
pub(super) fn is_whole<E: de::Error>(column: &str, len: usize, rows: usize) -> Result<(), E> {
    if len == rows {
        return Ok(());
    }
    Err(E::custom(format_args!("column {column} has {len} entries for {rows} sockets")))
}
