//! Values of every kind, apart and together again.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Idle,
    Busy,
    Named(String),
    Pair(u8, i64),
    With { a: Option<u32>, b: Vec<u16> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
struct Sample {
    cookie: Vec<u64>,
    addr: Vec<[u8; 16]>,
    pool: Vec<u16>,
    rows: Vec<(u32, f64, bool)>,
    kinds: Vec<Kind>,
    names: Vec<String>,
    maybe: Vec<Option<u64>>,
    nested: Vec<Vec<i32>>,
    map: BTreeMap<String, u64>,
    text: String,
    float: f64,
    letter: char,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Idle),
        Just(Kind::Busy),
        any::<String>().prop_map(Kind::Named),
        any::<(u8, i64)>().prop_map(|(a, b)| Kind::Pair(a, b)),
        (any::<Option<u32>>(), any::<Vec<u16>>()).prop_map(|(a, b)| Kind::With { a, b }),
    ]
}

prop_compose! {
    fn sample()(
        cookie: Vec<u64>, pool: Vec<u16>, kinds in prop::collection::vec(kind(), 0..6),
        rows in prop::collection::vec((any::<u32>(), -1e9..1e9, any::<bool>()), 0..5),
        names in prop::collection::vec(any::<String>(), 0..4),
        maybe in prop::collection::vec(any::<Option<u64>>(), 0..5),
        nested in prop::collection::vec(any::<Vec<i32>>(), 0..4),
        map in prop::collection::btree_map(any::<String>(), any::<u64>(), 0..4),
        text: String, float in -1e300..1e300, letter: char,
    ) -> Sample {
        let addr = cookie.iter().map(|c| (u128::from(*c) << 7).to_le_bytes()).collect();
        Sample { cookie, addr, pool, rows, kinds, names, maybe, nested, map, text, float, letter }
    }
}

proptest! {
    #[test]
    fn a_value_comes_back(a in sample(), b in sample()) {
        let mut names = Names::default();
        for v in [a, b] {
            let flat = to_flat(&v, &mut names).unwrap();
            let back: Sample = from_flat(&flat, &Names::of(names.list().to_vec())).unwrap();
            prop_assert_eq!(back, v);
        }
    }

    #[test]
    fn hostile_parts_give_errors_not_panics(
        v in sample(), cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(),
        byte: u8, which in 0..4,
    ) {
        let mut names = Names::default();
        let mut flat = to_flat(&v, &mut names).unwrap();
        match which {
            0 => flat.shape.truncate(cut.index(flat.shape.len())),
            1 => { let i = at.index(flat.shape.len()); flat.shape[i] = byte; }
            2 => flat.nums.truncate(cut.index(flat.nums.len() + 1)),
            _ => flat.columns.truncate(cut.index(flat.columns.len() + 1)),
        }
        let _ = from_flat::<Sample>(&flat, &names);
        let _ = from_flat::<serde::de::IgnoredAny>(&flat, &names);
    }
}

#[test]
fn like_rows_become_columns_and_tables() {
    let v = Sample {
        cookie: vec![7, 8, 9],
        addr: vec![[1; 16]; 3],
        rows: vec![(1, 0.5, true), (2, 0.25, false)],
        ..Sample::default()
    };
    let mut names = Names::default();
    let flat = to_flat(&v, &mut names).unwrap();
    assert_eq!(flat.columns[0], Column::of(1, &[7, 8, 9]));
    assert_eq!((flat.columns[1].width(), flat.columns[1].rows()), (2, 3));
    assert_eq!(flat.tables, [TableOf { key: 0, first: 0, end: 2 }]);
    assert_eq!((flat.columns[3].width(), flat.columns[3].rows()), (3, 2));
    // Another reading with more rows has the same shape.
    let more = Sample { cookie: vec![7; 9], addr: vec![[2; 16]; 9], ..v };
    assert_eq!(to_flat(&more, &mut names).unwrap().shape, flat.shape);
}

#[test]
fn readers_skip_what_they_do_not_know_and_default_what_they_miss() {
    #[derive(Debug, PartialEq, Serialize, Deserialize, Default)]
    #[serde(default)]
    struct Newer {
        later: Option<Vec<(u8, u8)>>,
        text: String,
        cookie: Vec<u64>,
    }
    let mut names = Names::default();
    let v = Sample { text: "x".into(), cookie: vec![5, 6], ..Sample::default() };
    let flat = to_flat(&v, &mut names).unwrap();
    let newer: Newer = from_flat(&flat, &names).unwrap();
    assert_eq!(newer, Newer { later: None, text: "x".into(), cookie: vec![5, 6] });
    let n = Newer { later: Some(vec![(1, 2), (3, 4)]), ..newer };
    let mut names = Names::default();
    let flat = to_flat(&n, &mut names).unwrap();
    let old: Sample = from_flat(&flat, &names).unwrap();
    assert_eq!(old, Sample { text: "x".into(), cookie: vec![5, 6], ..Sample::default() });
}
