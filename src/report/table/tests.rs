//! What the schemas promise, whatever the rows are.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};

use super::*;
use crate::diagnose::finding::RuleId;
use crate::diagnose::{Fire, Severity};
use crate::sample::subject::Subject;
use crate::sample::time::MonoNs;

/// Bytes that somebody keeps.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const TEXTS: &Table = &Table {
    name: "texts",
    about: "for tests",
    time: OF_TICK,
    own: &[
        Column { name: "name", kind: Kind::Text, unit: "", about: "a name" },
        Column { name: "n", kind: Kind::Float, unit: "", about: "a number" },
        Column { name: "i", kind: Kind::Integer, unit: "", about: "a number" },
        Column { name: "b", kind: Kind::Boolean, unit: "", about: "yes or no" },
    ],
    rows: Rows::OfTick(|_, _| ()),
};

const TIME: WallNs = WallNs(1_777_777_777_123_456_789);

/// Name, n, i and b of a row.
type Row<'a> = (Option<&'a str>, Option<f64>, Option<u64>, Option<bool>);

/// What comes out of these rows.
fn written(format: Format, names: Names, rows: &[Row<'_>]) -> String {
    let kept = Kept::default();
    let mut to = format.encoder(TEXTS, Box::new(kept.clone()), names).unwrap();
    for (name, n, i, b) in rows {
        let mut out = Out { to: &mut *to, time: TIME, host: "box", rows: 0, done: Ok(()) };
        out.row(|line| {
            line.text(*name);
            line.float(*n);
            line.integer(*i);
            line.boolean(*b);
        });
        assert!(out.done.is_ok() && out.rows == 1);
    }
    to.finish().unwrap();
    let bytes = kept.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

/// Names that would be none in SQL, or would be told by another word elsewhere in the table.
#[test]
fn every_column_has_a_plain_name_a_unit_and_a_meaning() {
    let names: BTreeSet<&str> = TABLES.iter().map(|t| t.name).collect();
    assert_eq!(names.len(), TABLES.len());
    let plain = |name: &str| {
        name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && name.as_bytes()[0].is_ascii_lowercase()
    };
    let unit_of = |name: &str| match name {
        _ if name.ends_with("_bytes_per_s") => Some("bytes/s"),
        "wait_per_s" | "throttled_per_s" => Some("s/s"),
        _ if name.ends_with("_per_s") => Some("1/s"),
        _ if name.ends_with("_bytes") => Some("bytes"),
        _ if name.ends_with("_s") => Some("s"),
        "run_pct" | "self_cpu_pct" => Some("% of a core"),
        _ if name.ends_with("_pct") => Some("%"),
        _ if name.ends_with("_cores") => Some("cores"),
        _ => None,
    };
    for t in TABLES {
        assert!(plain(t.name) && !t.about.is_empty(), "{}", t.name);
        let all: Vec<Column> = t.columns().collect();
        assert_eq!((all[0].name, all[0].kind), ("time", Kind::Time), "{}", t.name);
        assert_eq!((all[1].name, all[1].kind), ("host", Kind::Text), "{}", t.name);
        let names: BTreeSet<&str> = all.iter().map(|c| c.name).collect();
        assert_eq!(names.len(), all.len(), "{}: a name is taken twice", t.name);
        for c in all {
            assert!(plain(c.name) && !c.about.is_empty(), "{}.{}", t.name, c.name);
            if let Some(unit) = unit_of(c.name) {
                assert_eq!(c.unit, unit, "{}.{}", t.name, c.name);
            }
            let counts = matches!(c.kind, Kind::Integer | Kind::Float);
            assert!(counts || c.unit.is_empty(), "{}.{}", t.name, c.name);
        }
    }
}

/// The same word has the same kind and unit in every table.
#[test]
fn a_name_is_the_same_in_every_table() {
    let mut known: BTreeMap<&str, (Kind, &str)> = BTreeMap::new();
    for c in TABLES.iter().flat_map(|t| t.columns()) {
        let of = (c.kind, c.unit);
        assert_eq!(*known.entry(c.name).or_insert(of), of, "{}", c.name);
    }
}

#[test]
fn what_is_missing_is_empty_or_null_and_never_0() {
    let rows = [(None, None, None, None), (Some("x"), Some(0.0), Some(0), Some(false))];
    assert_eq!(
        written(Format::Csv, Names::Raw, &rows),
        "time,host,name,n,i,b\n\
         2026-05-03T03:09:37.123456789Z,box,,,,\n\
         2026-05-03T03:09:37.123456789Z,box,x,0.0,0,false\n"
    );
    assert_eq!(
        written(Format::JsonLines, Names::Raw, &rows),
        "{\"time\":\"2026-05-03T03:09:37.123456789Z\",\"host\":\"box\",\
         \"name\":null,\"n\":null,\"i\":null,\"b\":null}\n\
         {\"time\":\"2026-05-03T03:09:37.123456789Z\",\"host\":\"box\",\
         \"name\":\"x\",\"n\":0.0,\"i\":0,\"b\":false}\n"
    );
}

/// Neither format has a word for them, and no counter gets so far.
#[test]
fn what_is_no_number_is_missing() {
    for n in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let text = written(Format::JsonLines, Names::Raw, &[(None, Some(n), Some(u64::MAX), None)]);
        assert!(text.contains("\"n\":null,\"i\":null"), "{text}");
    }
}

#[test]
fn a_terminal_gets_no_escapes() {
    let evil = "a\x1b[2J\u{9b}31m\u{202e}\n,\"b";
    let shown = written(Format::Csv, Names::Harmless, &[(Some(evil), None, None, None)]);
    assert!(shown.chars().all(|c| c == '\n' || crate::text::is_plain(c)), "{shown:?}");
    let shown = written(Format::JsonLines, Names::Raw, &[(Some(evil), None, None, None)]);
    assert!(shown.chars().all(|c| c == '\n' || crate::text::is_plain(c)), "{shown:?}");
    assert_eq!(shown.lines().count(), 1);
}

proptest::proptest! {
    #[test]
    fn hostile_names_and_numbers_come_back(s: String, n: f64, i in 0..u64::MAX / 2) {
        let name = format!("{s}\n\r\n,;\"'\t\0\u{7f}\x1b[2J\u{202e}=1+1");
        let finite = Some(n).filter(|n| n.is_finite());
        let rows = [(Some(name.as_str()), Some(n), Some(i), Some(true))];
        let text = written(Format::Csv, Names::Raw, &rows);
        let mut back = csv::Reader::from_reader(text.as_bytes());
        let row = back.records().next().unwrap().unwrap();
        proptest::prop_assert_eq!(&row[2], name.as_str());
        proptest::prop_assert_eq!(row[3].parse::<f64>().ok(), finite);
        proptest::prop_assert_eq!(row[4].parse::<u64>().unwrap(), i);
        let text = written(Format::JsonLines, Names::Raw, &rows);
        let row: serde_json::Value = serde_json::from_str(&text).unwrap();
        proptest::prop_assert_eq!(row["name"].as_str().unwrap(), name.as_str());
        proptest::prop_assert_eq!(&row["i"], i);
        // serde_json reads a number to within its last digit.
        let read = row["n"].as_f64();
        proptest::prop_assert_eq!(read.is_some(), finite.is_some());
        let apart = read.zip(finite).map_or(0.0, |(a, b)| (a - b).abs() / b.abs().max(1e-300));
        proptest::prop_assert!(apart <= 1e-15, "{:?} {:?}", read, finite);
    }
}

#[test]
fn a_failure_ends_the_rows() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for format in [Format::Csv, Format::JsonLines] {
        let mut to = format.encoder(TEXTS, Box::new(Full), Names::Raw).unwrap();
        let mut out = Out { to: &mut *to, time: TIME, host: "box", rows: 0, done: Ok(()) };
        for _ in 0..10_000 {
            out.row(|line| {
                line.text("x".repeat(100).as_str());
                line.float(None);
                line.integer(None::<u8>);
                line.boolean(None);
            });
        }
        assert_eq!(out.done.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(out.rows < 10_000, "{}", out.rows);
    }
}

/// A finding is exported when any part of it is in the time asked for.
#[test]
fn findings_are_those_that_overlap() {
    let finding = |first: i64, last: i64| {
        Arc::new(Finding {
            rule: RuleId("fs-full"),
            subject: Subject::Host,
            fire: Fire::new(Severity::Warn, format!("{first}")),
            since: MonoNs(0),
            first_seen: WallNs(first),
            last_seen: WallNs(last),
            active: false,
            cause: None,
        })
    };
    let kept = Kept::default();
    let to = Format::Csv.encoder(&findings::TABLE, Box::new(kept.clone()), Names::Raw).unwrap();
    let mut tables = Tables::new((WallNs(100), WallNs(200)), vec![(&findings::TABLE, to)]);
    let run = Analysis::new(
        crate::sample::tick::HostInfo::default(),
        crate::diagnose::Engine::default(),
        1 << 20,
    );
    let all = [(10, 99), (10, 100), (10, 900), (150, 160), (200, 210), (201, 210)];
    tables.ended(&run, &all.map(|(a, b)| finding(a, b))).unwrap();
    let done = tables.finish().unwrap();
    assert_eq!(done, Written { ticks: 0, rows: vec![4] });
    let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let at = rows.headers().unwrap().iter().position(|h| h == "summary").unwrap();
    let told: Vec<String> = rows.records().map(|r| r.unwrap()[at].to_owned()).collect();
    assert_eq!(told, ["10", "10", "150", "200"]);
}
