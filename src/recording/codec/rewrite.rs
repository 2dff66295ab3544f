//! A value with other texts and addresses in it: its tree is changed, and put together again.

use std::collections::HashMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::column::Column;
use super::names::Names;
use super::schema::{Kind, Schema, Tree};
use super::wire::CodecError;
use super::{from_tree, to_tree};

/// What goes in the place of what is there. `field` is the name of the field that holds it, or
/// that holds the list, option or tuple that does.
pub(crate) trait Rewrite {
    /// Instead of a text.
    fn text(&mut self, field: &str, old: &str) -> String;
    /// Instead of four or sixteen numbers that are each a byte.
    fn octets(&mut self, field: &str, octets: &mut [u8]);
}

/// Fails as [`to_tree`] does.
pub(crate) fn rewritten<T: Serialize + DeserializeOwned>(
    value: &T,
    by: &mut impl Rewrite,
) -> Result<T, CodecError> {
    let (mut schema, mut names) = (Schema::default(), Names::default());
    let mut tree = to_tree(value, &mut schema, &mut names)?;
    for node in 0..schema.len() {
        match schema.get(node).map(|n| n.kind) {
            Some(Kind::Text) => texts(&mut tree, node, field(&schema, node), &mut names, by),
            Some(Kind::Tuple) => octets(&mut tree, &schema, node, by),
            _ => {}
        }
    }
    // The value was here: no file has made it large.
    let mut work = usize::MAX;
    from_tree(&tree, &schema, &names, &mut work)
}

fn texts(tree: &mut Tree, node: usize, field: &str, names: &mut Names, by: &mut impl Rewrite) {
    let Some(column) = tree.columns.get_mut(node) else { return };
    let mut numbers = column.numbers();
    let mut known = HashMap::new();
    for n in &mut numbers {
        *n = *known.entry(*n).or_insert_with(|| {
            let new = by.text(field, names.get(*n).unwrap_or_default());
            names.text(&new)
        });
    }
    *column = Column::of(&numbers);
}

fn octets(tree: &mut Tree, schema: &Schema, tuple: usize, by: &mut impl Rewrite) {
    let places = schema.children(tuple);
    let is_number = |n: &usize| schema.get(*n).is_some_and(|n| n.kind == Kind::Unsigned);
    if !matches!(places.len(), 4 | 16) || !places.iter().all(is_number) {
        return;
    }
    let mut columns: Vec<Vec<u64>> = places.iter().map(|n| tree.column(*n).numbers()).collect();
    let rows = columns.iter().map(Vec::len).min().unwrap_or(0);
    let field = field(schema, tuple);
    for row in 0..rows {
        let cells = columns.iter().filter_map(|c| c.get(row));
        let Ok(mut bytes) = cells.map(|n| u8::try_from(*n)).collect::<Result<Vec<u8>, _>>() else {
            continue;
        };
        by.octets(field, &mut bytes);
        for (column, byte) in columns.iter_mut().zip(bytes) {
            if let Some(cell) = column.get_mut(row) {
                *cell = byte.into();
            }
        }
    }
    for (node, numbers) in places.iter().zip(&columns) {
        if let Some(column) = tree.columns.get_mut(*node) {
            *column = Column::of(numbers);
        }
    }
}

/// The name of the field that a node belongs to.
fn field(schema: &Schema, mut node: usize) -> &'static str {
    while let Some(n) = schema.get(node) {
        let is_field = schema.get(n.parent).is_some_and(|above| above.kind == Kind::Struct);
        if is_field || n.parent == node {
            return n.label;
        }
        node = n.parent;
    }
    ""
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::Deserialize;
    use std::net::IpAddr;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Choice {
        Plain,
        Said(String),
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        comm: Vec<Option<String>>,
        choice: (Choice, Choice),
        addr: Vec<IpAddr>,
        pairs: Vec<(String, u64)>,
        counts: [u64; 4],
    }

    /// Notes what it is asked, and answers with something longer.
    #[derive(Default)]
    struct Notes(Vec<String>);

    impl Rewrite for Notes {
        fn text(&mut self, field: &str, old: &str) -> String {
            self.0.push(format!("{field}={old}"));
            format!("<{old}>")
        }
        fn octets(&mut self, field: &str, octets: &mut [u8]) {
            self.0.push(format!("{field}: {}", octets.len()));
            octets.reverse();
        }
    }

    #[test]
    fn texts_and_addresses_are_replaced_where_they_are_and_all_else_stays() {
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        let sample = |[a, b, said, pair]: [&str; 4], v4: &str, v6: &str, counts| Sample {
            comm: vec![Some(a.into()), None, Some(b.into()), Some(a.into())],
            choice: (Choice::Plain, Choice::Said(said.into())),
            addr: vec![ip(v4), ip(v6)],
            pairs: vec![(pair.into(), 7)],
            counts,
        };
        let old = sample(["a", "b", "said", "p"], "1.2.3.4", "1::2", [1, 2, 3, 256]);
        let mut notes = Notes::default();
        let new = rewritten(&old, &mut notes).unwrap();
        let want = ["<a>", "<b>", "<said>", "<p>"];
        // 256 is no byte: these are numbers.
        assert_eq!(new, sample(want, "4.3.2.1", "200::100", [1, 2, 3, 256]));
        // Each text of a field once; a variant without anything in it is no text.
        let asked = ["comm=a", "comm=b", "choice=said", "addr: 4", "addr: 16", "pairs=p"];
        assert_eq!(notes.0, asked);
    }
}
