//! What the samples of a collector look like: a tree of nodes that grows when a sample has
//! something that none before it in the group had, and stays otherwise. A sample is then nothing
//! but a column of numbers per node:
//!
//! | kind | its numbers |
//! |---|---|
//! | numbers, texts | the value; a text is its number in [`Names`](super::names::Names) |
//! | tuple, struct, variant, block | none: a child per part, as often as itself |
//! | list, map | the length; its children are as often as all lengths together |
//! | option, enum, bytes | which child there is; each child is as often as it was chosen |
//!
//! A variant is what an enum chooses, a block (of four-byte words, named by its length) is what a
//! byte string chooses. Fields and variants have names, so that readers of another version skip
//! what they do not know and default what they miss.

use super::column::Column;
use super::wire::{CodecError, Input, put_varint};

/// Deeper values are refused.
const MAX_DEPTH: u32 = 64;
/// Nodes of one collector: there are some hundreds.
const MAX_NODES: usize = 1 << 14;
/// Things that a choice may choose from: each is looked for among all values.
const MAX_CHOICES: usize = 64;
/// What a node counts for, for limits.
pub(super) const NODE_UNITS: usize = 8;
/// The node that is above all others.
pub(super) const ROOT: usize = 0;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident),+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Kind { $($(#[$doc])* $kind),+ }

        /// By their numbers in a file.
        const KINDS: &[Kind] = &[$(Kind::$kind),+];
    };
}
kinds! {
    Unit, Bool, Unsigned,
    /// Sign-extended to 64 bits.
    Signed,
    /// By its bits.
    F32,
    F64, Char, Text,
    Tuple, Struct, Variant, Block,
    List, Map,
    Option, Enum, Bytes
}

impl Kind {
    /// Its children are as often as itself, and it has no numbers.
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Unit | Self::Tuple | Self::Struct | Self::Variant | Self::Block)
    }
    pub(super) fn is_list(self) -> bool {
        matches!(self, Self::List | Self::Map)
    }
    pub(super) fn is_choice(self) -> bool {
        matches!(self, Self::Option | Self::Enum | Self::Bytes)
    }
    /// Does a choice of this kind with this number choose that child?
    pub(super) fn chooses(self, n: u64, place: usize) -> bool {
        if self == Self::Option { n != 0 } else { usize::try_from(n) == Ok(place) }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) parent: usize,
    /// Its place among the children of its parent.
    pub(super) place: usize,
    /// Number of the name of a field or variant; of a block its length.
    pub(super) name: u64,
    /// Writer: the name itself.
    pub(super) label: &'static str,
    pub(super) children: Vec<usize>,
    depth: u32,
}

#[derive(Clone, Debug)]
pub struct Schema {
    nodes: Vec<Node>,
}

impl Default for Schema {
    fn default() -> Self {
        let (kind, parent, label, children) = (Kind::Tuple, ROOT, "", Vec::new());
        Self { nodes: vec![Node { kind, parent, place: 0, name: 0, label, children, depth: 0 }] }
    }
}

impl Schema {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
    pub(super) fn get(&self, n: usize) -> Option<&Node> {
        self.nodes.get(n)
    }
    pub(super) fn child(&self, parent: usize, place: usize) -> Option<usize> {
        self.nodes.get(parent)?.children.get(place).copied()
    }
    pub(super) fn children(&self, parent: usize) -> &[usize] {
        self.nodes.get(parent).map(|n| &n.children[..]).unwrap_or_default()
    }

    /// Columns that have as many rows as there are such values.
    pub(super) fn width(&self, node: usize) -> usize {
        match self.get(node) {
            Some(n) if n.kind.is_plain() => n.children.iter().map(|c| self.width(*c)).sum(),
            n => usize::from(n.is_some()),
        }
    }

    /// A node more; parents come before their children.
    pub(super) fn add(
        &mut self,
        kind: Kind,
        parent: usize,
        name: u64,
        label: &'static str,
    ) -> Result<usize, CodecError> {
        let n = self.nodes.len();
        let refused = |why: &str| Err(CodecError(why.to_owned()));
        let Some(above) = self.nodes.get_mut(parent) else {
            return refused("a part of nothing");
        };
        let (depth, place) = (above.depth + 1, above.children.len());
        if depth > MAX_DEPTH {
            return refused("nested too deeply");
        }
        if n >= MAX_NODES || above.kind.is_choice() && place >= MAX_CHOICES {
            return refused("a sample of too many parts");
        }
        above.children.push(n);
        self.nodes.push(Node { kind, parent, place, name, label, children: Vec::new(), depth });
        Ok(n)
    }

    /// Writes the nodes from the `from`th on: how many, then of each its kind, how far before it
    /// its parent is, and its name.
    pub(super) fn put(&self, from: usize, out: &mut Vec<u8>) {
        let new = self.nodes.get(from..).unwrap_or_default();
        put_varint(out, new.len() as u64);
        for (n, node) in (from..).zip(new) {
            out.push(node.kind as u8);
            put_varint(out, (n - node.parent) as u64);
            put_varint(out, node.name);
        }
    }

    pub(super) fn read(&mut self, input: &mut Input<'_>) -> Result<(), CodecError> {
        for _ in 0..input.count(0)? {
            let kind = KINDS.get(usize::from(input.byte()?)).copied();
            let kind = kind.ok_or_else(|| CodecError("a kind that is not known".to_owned()))?;
            let back = input.place()?;
            let Some(parent) = self.len().checked_sub(back).filter(|_| back > 0) else {
                return input.torn();
            };
            self.add(kind, parent, input.number()?, "")?;
        }
        Ok(())
    }
}

/// A sample: the numbers of each node of its schema.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub(super) columns: Vec<Column>,
}

static NONE: Column = Column::EMPTY;

impl Tree {
    pub(super) fn column(&self, node: usize) -> &Column {
        self.columns.get(node).unwrap_or(&NONE)
    }
    /// Numbers that it holds.
    pub(super) fn cells(&self) -> usize {
        self.columns.iter().fold(0, |n, c| n.saturating_add(c.rows()))
    }
    /// Its size, for limits.
    pub(super) fn units(&self) -> usize {
        let columns = self.columns.iter().map(Column::units);
        columns.fold(self.columns.len() * NODE_UNITS, usize::saturating_add)
    }
    /// Hash of everything, to verify what was rebuilt from differences.
    pub(super) fn hash(&self) -> u32 {
        let mut h = 0u32;
        let mut mix = |n: u64| {
            let x = (u64::from(h) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            h = (x >> 32) as u32 ^ x as u32;
        };
        let mut numbers = Vec::new();
        for c in self.columns.iter().filter(|c| c.rows() > 0) {
            c.unpack(&mut numbers);
            mix(numbers.len() as u64);
            numbers.iter().copied().for_each(&mut mix);
        }
        h
    }
}

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        (0..self.columns.len().max(other.columns.len())).all(|n| self.column(n) == other.column(n))
    }
}
