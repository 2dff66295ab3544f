//! Chains of differences, hostile bytes, and what they cost.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::recording::codec::flat::{
    Column, Names, Part, from_flat, from_flat_within, to_flat, token,
};
use crate::recording::codec::matching::put_shape;

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Rows {
    cookie: Vec<u64>,
    rto: Vec<u32>,
    addr: Vec<[u8; 16]>,
    infos: Vec<[u32; 12]>,
    other: Vec<i64>,
    name: String,
    n: f64,
    tasks: Vec<Task>,
    some: Option<Vec<Task>>,
}

/// Rows with texts, options and lists of their own: their shapes come and go.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
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

fn rows() -> impl Strategy<Value = Rows> {
    // Few cookies, so that readings share some, in another order.
    (
        prop::collection::btree_set(0u64..40, 0..30),
        any::<u64>(),
        any::<Vec<i64>>(),
        "[a-c]{0,2}",
        0u32..3,
        prop::collection::vec(task(), 0..6),
        prop::option::of(prop::collection::vec(task(), 0..3)),
    )
        .prop_map(|(keys, seed, other, name, infos, tasks, some)| {
            let mut cookie: Vec<u64> = keys.into_iter().collect();
            let by = seed as usize % cookie.len().max(1);
            cookie.rotate_left(by);
            Rows {
                rto: cookie.iter().map(|c| (c ^ seed) as u32 % 7).collect(),
                addr: cookie.iter().map(|c| u128::from(*c).to_le_bytes()).collect(),
                infos: (0..infos).map(|i| std::array::from_fn(|k| i * k as u32)).collect(),
                cookie,
                other,
                name,
                n: seed as f64,
                tasks,
                some,
            }
        })
}

proptest! {
    #[test]
    fn a_chain_of_differences_gives_back_every_reading(chain in prop::collection::vec(rows(), 1..8)) {
        let mut names = Names::default();
        let (mut prev, mut told) = (Recent::default(), Recent::default());
        for v in chain {
            let now = to_flat(&v, &mut names).unwrap();
            let mut bytes = Vec::new();
            prev.encode(now.clone(), &mut bytes);
            let mut input = Input::new(&bytes);
            let back = told.decode(&mut input).unwrap();
            prop_assert_eq!(input.left(), 0);
            prop_assert_eq!(back, &now);
            prop_assert_eq!(from_flat::<Rows>(back, &names).unwrap(), v);
        }
    }

    #[test]
    fn hostile_bytes_give_errors_not_panics(
        a in rows(), b in rows(), at in any::<prop::sample::Index>(), byte: u8, cut: bool,
    ) {
        let mut names = Names::default();
        let (a, b) = (to_flat(&a, &mut names).unwrap(), to_flat(&b, &mut names).unwrap());
        let (mut bytes, mut recent) = (Vec::new(), Recent::default());
        recent.encode(a.clone(), &mut bytes);
        bytes.clear();
        recent.encode(b, &mut bytes);
        let i = at.index(bytes.len());
        if cut { bytes.truncate(i) } else { bytes[i] = byte }
        let mut recent = Recent::default();
        let _ = recent.decode(&mut Input::new(&bytes));
        recent.encode(a, &mut Vec::new());
        let _ = recent.decode(&mut Input::new(&bytes));
    }
}

#[test]
fn an_unchanged_reading_takes_a_few_bytes_and_ages_one_number() {
    let mut names = Names::default();
    let v = |age: u32| Rows {
        cookie: (0..1000).collect(),
        rto: (0..1000).map(|i| i * 3 + age).collect(),
        addr: vec![[3; 16]; 1000],
        ..Rows::default()
    };
    let (a, b) = (to_flat(&v(0), &mut names).unwrap(), to_flat(&v(1000), &mut names).unwrap());
    let (mut recent, mut first, mut second) = (Recent::default(), Vec::new(), Vec::new());
    recent.encode(a, &mut first);
    recent.encode(b.clone(), &mut second);
    assert!(second.len() < 60, "{} bytes", second.len());
    let mut told = Recent::default();
    told.decode(&mut Input::new(&first)).unwrap();
    assert_eq!(told.decode(&mut Input::new(&second)).unwrap(), &b);
}

#[test]
fn a_row_more_costs_that_row() {
    let v = |n: u32, busy: u64| Rows {
        cookie: (0..3000).collect(),
        rto: (0..3000).collect(),
        addr: vec![[3; 16]; 3000],
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
    let mut names = Names::default();
    let (mut recent, mut told) = (Recent::default(), Recent::default());
    for (n, busy) in [(100, 0), (101, 0), (99, 1)] {
        let flat = to_flat(&v(n, busy), &mut names).unwrap();
        let mut bytes = Vec::new();
        recent.encode(flat.clone(), &mut bytes);
        assert!(n == 100 || bytes.len() < 1500, "{n}: {} bytes", bytes.len());
        assert_eq!(told.decode(&mut Input::new(&bytes)).unwrap(), &flat);
    }
}

#[test]
fn rows_that_come_and_go_come_back_and_cost_little() {
    #[derive(serde::Serialize)]
    struct Thread {
        tid: u32,
        comm: String,
        ran: u64,
    }
    #[derive(serde::Serialize)]
    struct Ran {
        threads: Vec<Thread>,
    }
    let mut x = 1u32;
    let mut dice = |of: u32| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 16) % of
    };
    let mut names = Names::default();
    let (mut recent, mut told) = (Recent::default(), Recent::default());
    let mut ran = [0; 30];
    let (mut all, mut without, mut forgets) = (0, 0, Recent::default());
    for n in 0..300 {
        let mut threads = Vec::new();
        for (tid, ran) in (0..).zip(&mut ran) {
            if dice(3) == 0 {
                *ran += u64::from(dice(9));
                threads.push(Thread { tid, comm: format!("the thread {tid}"), ran: *ran });
            }
        }
        let flat = to_flat(&Ran { threads }, &mut names).unwrap();
        let mut bytes = Vec::new();
        recent.encode(flat.clone(), &mut bytes);
        assert_eq!(told.decode(&mut Input::new(&bytes)).unwrap(), &flat, "reading {n}");
        all += bytes.len();
        bytes.clear();
        forgets.memory = None;
        forgets.encode(flat, &mut bytes);
        without += bytes.len();
    }
    assert!(all * 3 < without * 2, "{all} bytes, {without} without memory");
}

/// The list of `n` elements of this shape.
fn list(n: usize, element: &[u8]) -> Vec<u8> {
    let mut out = vec![token::SEQ];
    put_varint(&mut out, n as u64);
    out.extend(element.repeat(n));
    out
}

/// A difference from a sample with a list of one element: all elements are that one.
fn all_are_the_first(n: usize, shape: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, from::LAST);
    put_shape(&[], shape, &mut out);
    put_varint(&mut out, n as u64);
    out.extend([2, 0]);
    // Row 0 again, one before the row that is expected.
    out.extend([2, 1].repeat(n - 1));
    // Nothing of the lists in them, and nothing else.
    out.extend(vec![0; n + 8]);
    out
}

#[test]
fn rows_that_are_all_like_one_long_one_are_not_compared_with_it_for_ever() {
    let n = 6000;
    let long = Flat { shape: list(1, &list(n, &[token::UNIT])), ..Flat::default() };
    let mut recent = Recent::default();
    recent.encode(long.clone(), &mut Vec::new());
    let short = list(n, &list(0, &[]));
    let e = recent.decode(&mut Input::new(&all_are_the_first(n, &short))).unwrap_err();
    assert_eq!(e.0, "shapes that differ too much");
    // A few of them are fine; and a writer that meets such a pair writes the sample whole.
    let mut recent = Recent::default();
    recent.encode(long.clone(), &mut Vec::new());
    let few = list(60, &list(0, &[]));
    assert_eq!(recent.decode(&mut Input::new(&all_are_the_first(60, &few))).unwrap().shape, few);
    let mut recent = Recent::default();
    recent.encode(long, &mut Vec::new());
    let mut bytes = Vec::new();
    let now = Flat { shape: short, ..Flat::default() };
    recent.encode(now.clone(), &mut bytes);
    assert_eq!(bytes[0], 0);
    assert_eq!(Recent::default().decode(&mut Input::new(&bytes)).unwrap(), &now);
}

#[test]
fn a_sample_is_no_larger_than_it_may_be() {
    let column = |rows| Column::from_parts(rows, vec![Part::Same(7); 3]);
    let of = |rows| Flat {
        shape: [token::COLUMN, token::TUPLE, 3, token::U8, token::U8, token::U8].to_vec(),
        columns: vec![column(rows)],
        ..Flat::default()
    };
    let (small, large) = (of(1000), of(1 << 20));
    let read = |most: usize, chain: &[&Flat]| {
        let (mut recent, mut told) = (Recent::default(), Recent::default());
        let mut out = Ok(());
        for f in chain {
            let mut bytes = Vec::new();
            recent.encode((*f).clone(), &mut bytes);
            assert!(bytes.len() < 100);
            out = told.decode_within(most, &mut Input::new(&bytes)).map(drop);
        }
        out.is_ok()
    };
    assert!(read(3006, &[&small]) && !read(3005, &[&small]));
    assert!(!read(1 << 20, &[&large]) && !read(1 << 20, &[&small, &large]));
    assert!(read(4 << 20, &[&small, &large]) && read(4 << 20, &[&large, &small]));
}

#[test]
fn a_number_of_many_shapes_is_not_walked_over_for_each_row() {
    // Rows of one number and ten thousand things that are none.
    let mut shape = vec![token::COLUMN, token::TUPLE];
    put_varint(&mut shape, 10_001);
    shape.extend([token::UNIT; 10_000]);
    shape.push(token::U8);
    let columns = vec![Column::from_parts(1 << 16, vec![Part::Same(0)])];
    let flat = Flat { shape, columns, ..Flat::default() };
    let names = Names::default();
    // What nobody asks for is passed over at once.
    let mut work = 1 << 20;
    from_flat_within::<serde::de::IgnoredAny>(&flat, &names, &mut work).unwrap();
    assert!(work > 900_000, "{work}");
    let rows = from_flat_within::<Vec<serde::de::IgnoredAny>>(&flat, &names, &mut work);
    assert!(rows.is_err() && work == 0);
}
