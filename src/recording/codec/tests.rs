//! Values apart and together again, chains of differences, hostile bytes, and what they cost.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::wire::{CodecError, Input};
use super::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Idle,
    Named(String),
    Pair(u8, i64),
    With { a: Option<u32>, b: Vec<u16> },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Rows {
    cookie: Vec<u64>,
    rto: Vec<u32>,
    addr: Vec<[u8; 16]>,
    infos: Vec<[u32; 12]>,
    other: Vec<i64>,
    name: String,
    n: f64,
    kinds: Vec<Kind>,
    map: BTreeMap<String, u64>,
    letter: char,
    tasks: Vec<Task>,
    some: Option<Vec<Task>>,
    blocks: Vec<Block>,
}

/// Bytes that are packed: mostly of one length.
#[derive(Clone, Debug, PartialEq)]
struct Block(Vec<u8>);

impl Serialize for Block {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Vec::deserialize(d).map(Self)
    }
}

/// Rows with texts, options and lists of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Task {
    pid: u32,
    comm: String,
    cgroup: Option<String>,
    hist: Vec<(u16, u64)>,
    bytes: [u8; 9],
    sub: Vec<Task>,
}

fn task() -> impl Strategy<Value = Task> {
    let hist = prop::collection::vec((0u16..9, 0u64..5), 0..3);
    let leaf = (0u32..12, "[ab]{0,2}", prop::option::of("[a-c]"), hist, 0u8..3).prop_map(
        |(pid, comm, cgroup, hist, b)| Task {
            pid,
            comm,
            cgroup,
            hist,
            bytes: [b; 9],
            sub: Vec::new(),
        },
    );
    leaf.prop_recursive(2, 12, 4, |inner| {
        (0u32..12, "[ab]{0,2}", prop::collection::vec(inner, 0..4))
            .prop_map(|(pid, comm, sub)| Task { pid, comm, sub, ..Task::default() })
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Idle),
        any::<String>().prop_map(Kind::Named),
        any::<(u8, i64)>().prop_map(|(a, b)| Kind::Pair(a, b)),
        (any::<Option<u32>>(), any::<Vec<u16>>()).prop_map(|(a, b)| Kind::With { a, b }),
    ]
}

prop_compose! {
    fn rows()(
        // Few cookies, so that readings share some, in another order.
        keys in prop::collection::btree_set(0u64..40, 0..30), seed: u64, other: Vec<i64>,
        name in "[a-c]{0,2}", infos in 0u32..3, letter: char,
        kinds in prop::collection::vec(kind(), 0..6),
        map in prop::collection::btree_map(any::<String>(), any::<u64>(), 0..4),
        tasks in prop::collection::vec(task(), 0..6),
        some in prop::option::of(prop::collection::vec(task(), 0..3)),
        blocks in prop::collection::vec((0u8..6, prop::sample::select(vec![33, 33, 33, 33, 5])), 0..5),
    ) -> Rows {
        let mut cookie: Vec<u64> = keys.into_iter().collect();
        let by = seed as usize % cookie.len().max(1);
        cookie.rotate_left(by);
        Rows {
            rto: cookie.iter().map(|c| (c ^ seed) as u32 % 7).collect(),
            addr: cookie.iter().map(|c| u128::from(*c).to_le_bytes()).collect(),
            infos: (0..infos).map(|i| std::array::from_fn(|k| i * k as u32)).collect(),
            cookie, other, name, n: seed as f64, kinds, map, letter, tasks, some,
            blocks: blocks.into_iter().map(|(b, len)| Block(vec![b; len])).collect(),
        }
    }
}

/// Writes samples and reads them again.
#[derive(Default)]
struct Both {
    names: Names,
    out: Series,
    back: Series,
}

impl Both {
    fn put<T: Serialize>(&mut self, v: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        let tree = to_tree(v, &mut self.out.schema, &mut self.names).unwrap();
        self.out.encode(tree, &mut bytes).unwrap();
        bytes
    }
    fn read<T: serde::de::DeserializeOwned>(&mut self, bytes: &[u8]) -> Result<T, CodecError> {
        let mut input = Input::new(bytes);
        self.back.decode(1 << 24, &mut input)?;
        assert_eq!(input.left(), 0);
        self.value(&mut { usize::MAX })
    }
    fn value<T: serde::de::DeserializeOwned>(&self, work: &mut usize) -> Result<T, CodecError> {
        let tree = self.back.last().unwrap();
        from_tree(tree, &self.back.schema, &self.names, work)
    }
}

proptest! {
    #[test]
    fn a_chain_of_differences_gives_back_every_reading(chain in prop::collection::vec(rows(), 1..8)) {
        let mut both = Both::default();
        for v in chain {
            let bytes = both.put(&v);
            prop_assert_eq!(both.read::<Rows>(&bytes).unwrap(), v);
            prop_assert_eq!(both.back.last().unwrap(), both.out.last().unwrap());
        }
    }

    #[test]
    fn hostile_bytes_give_errors_not_panics(
        chain in prop::collection::vec(rows(), 1..4), at in any::<prop::sample::Index>(), byte: u8,
        cut: bool,
    ) {
        let mut both = Both::default();
        let mut bytes = Vec::new();
        for v in chain {
            let _ = both.read::<Rows>(&bytes);
            bytes = both.put(&v);
        }
        let i = at.index(bytes.len());
        if cut { bytes.truncate(i) } else { bytes[i] = byte }
        for _ in 0..2 {
            if both.back.decode(1 << 16, &mut Input::new(&bytes)).is_ok() {
                let _ = both.value::<Rows>(&mut { usize::MAX });
                let _ = both.value::<serde::de::IgnoredAny>(&mut { usize::MAX });
            }
        }
    }
}

#[test]
fn readers_skip_what_they_do_not_know_and_default_what_they_miss() {
    #[derive(Debug, PartialEq, Serialize, Deserialize, Default)]
    #[serde(default)]
    struct Newer {
        later: Option<Vec<(u8, Kind)>>,
        name: String,
        cookie: Vec<u64>,
    }
    let tasks = vec![Task { sub: vec![Task::default(); 3], ..Task::default() }; 2];
    let v = Rows { name: "x".into(), cookie: vec![5, 6], tasks, ..Rows::default() };
    let mut both = Both::default();
    let bytes = both.put(&v);
    let newer: Newer = both.read(&bytes).unwrap();
    assert_eq!(newer, Newer { later: None, name: "x".into(), cookie: vec![5, 6] });
    let later = Some(vec![(1, Kind::Idle), (3, Kind::Pair(4, 5))]);
    let mut both = Both::default();
    let bytes = both.put(&Newer { later, ..newer });
    let old: Rows = both.read(&bytes).unwrap();
    assert_eq!(old, Rows { name: "x".into(), cookie: vec![5, 6], ..Rows::default() });
}

#[test]
fn an_unchanged_reading_takes_a_few_bytes_and_ages_one_number() {
    let v = |age: u32| Rows {
        cookie: (0..1000).collect(),
        rto: (0..1000).map(|i| i * 3 + age).collect(),
        addr: vec![[3; 16]; 1000],
        ..Rows::default()
    };
    let mut both = Both::default();
    both.put(&v(0));
    let second = both.put(&v(1000));
    assert!(second.len() < 60, "{} bytes", second.len());
}

#[test]
fn a_row_more_costs_that_row() {
    let v = |n: u32, busy: u64| Rows {
        cookie: (0..3000).filter(|i| *i != u64::from(n)).collect(),
        rto: (0..3000).filter(|i| *i != n).collect(),
        addr: vec![[3; 16]; 2999],
        tasks: (0..n)
            .filter(|i| *i != 7)
            .map(|i| Task {
                pid: i,
                comm: format!("task-{i}"),
                hist: vec![(1, 100_000_000 + busy)],
                ..Task::default()
            })
            .collect(),
        ..Rows::default()
    };
    let mut both = Both::default();
    for (n, busy) in [(100, 0), (101, 0), (99, 1)] {
        let bytes = both.put(&v(n, busy));
        assert!(n == 100 || bytes.len() < 200, "{n}: {} bytes", bytes.len());
        assert_eq!(both.read::<Rows>(&bytes).unwrap(), v(n, busy));
    }
}

#[test]
fn a_block_more_costs_that_block() {
    let v = |without: u8| {
        let block = |i: u8| Block((0..80).map(|k| i.wrapping_mul(31) ^ k).collect());
        (0..100).filter(|i| *i != without).map(block).collect::<Vec<_>>()
    };
    let mut both = Both::default();
    for (without, most) in [(50, usize::MAX), (200, 250), (10, 20)] {
        let bytes = both.put(&v(without));
        assert!(bytes.len() < most, "{} bytes", bytes.len());
        assert_eq!(both.read::<Vec<Block>>(&bytes).unwrap(), v(without));
    }
}

#[test]
fn a_sample_is_no_larger_than_it_may_be() {
    let read = |most: usize, chain: &[usize]| {
        let (mut both, mut out) = (Both::default(), false);
        for n in chain {
            let bytes = both.put(&vec![(7u32, 7u64); *n]);
            assert!(bytes.len() < 120, "{}", bytes.len());
            out = both.back.decode(most, &mut Input::new(&bytes)).is_ok();
        }
        out
    };
    // Two columns, one length, and five nodes.
    let small = 2001 + 5 * 8 + 2;
    assert!(read(small, &[1000]) && !read(small - 1, &[1000]));
    let large = 1 << 20;
    assert!(!read(large, &[large]) && !read(large, &[1000, large]));
    assert!(read(4 * large, &[1000, large]) && read(4 * large, &[large, 1000]));
}

#[test]
fn a_row_of_many_parts_is_not_walked_over_for_nothing() {
    // Rows of ten thousand parts, all of which are nothing.
    let mut both = Both::default();
    let row = [[(); 32]; 32];
    let bytes = both.put(&vec![row; 1 << 12]);
    both.back.decode(1 << 16, &mut Input::new(&bytes)).unwrap();
    // What nobody asks for is passed over at once.
    let mut work = 1 << 20;
    both.value::<serde::de::IgnoredAny>(&mut work).unwrap();
    assert!(work > 900_000, "{work}");
    let rows = both.value::<Vec<Vec<Vec<()>>>>(&mut work);
    assert!(rows.is_err() && work == 0);
}
