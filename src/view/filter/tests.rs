//! What is understood, and what is said of the rest.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::complete::Completion;
use super::*;
use crate::view::table::{First, Unit};

fn columns() -> Vec<ColumnInfo> {
    let col = |key, unit| ColumnInfo {
        key,
        also: if key == "st" { "state" } else { key },
        help: "",
        priority: 1,
        unit,
        first: First::High,
    };
    vec![
        col("st", Unit::Text),
        col("rto", Unit::Time),
        col("dport", Unit::Count),
        col("sport", Unit::Count),
        col("sendq", Unit::Bytes),
        col("local", Unit::Endpoint),
        col("peer", Unit::Endpoint),
    ]
}

fn parsed(text: &str) -> Filter {
    Filter::parse(text, &columns())
}

fn wrong(text: &str) -> String {
    parsed(text).wrong().unwrap_or_else(|| panic!("{text} is right")).to_owned()
}

/// Does the only test hold for this value?
fn holds(filter: &str, v: &Value) -> bool {
    let f = parsed(filter);
    assert_eq!((f.wrong(), f.terms.len()), (None, 1), "{filter}");
    let term = &f.terms[0];
    let hit = match (&term.test, v) {
        (Test::Field { op, text, number, .. }, v) => compare(v, *op, text, *number),
        (Test::Net { net, .. }, Value::Text(s)) => net.has(s),
        (test, _) => panic!("{filter} is {test:?}"),
    };
    hit != term.not
}

fn text(s: &str) -> Value {
    Value::Text(s.to_owned().into())
}

#[test]
fn times_and_sizes_have_units() {
    assert!(holds("rto>1s", &Value::Num(6.53)));
    assert!(!holds("rto>1s", &Value::Num(0.204)));
    assert!(holds("rto>=204", &Value::Num(0.204)));
    assert!(holds("sendq>64k", &Value::Num(65_537.0)));
    assert!(!holds("sendq>64k", &Value::Num(65_536.0)));
    assert!(holds("dport:3306", &Value::Num(3306.0)));
    assert!(!holds("dport:3306", &Value::Num(33_060.0)));
    assert!(holds("state:estab", &text("ESTAB")));
    assert!(holds("state!=listen", &text("ESTAB")));
}

#[test]
fn unknown_values_pass_no_comparison() {
    assert!(!holds("rto>1s", &Value::Unknown));
    assert!(!holds("rto<1s", &Value::Unknown));
}

#[test]
fn addresses_and_names_with_a_colon_are_words() {
    for typed in
        ["10.0.3.7:3306", "::1", "nginx:", "kworker/u8:1", "redis:6379", "a:b:c", "and", "or"]
    {
        let f = parsed(typed);
        assert_eq!(f.wrong(), None, "{typed}");
        assert_eq!(f.terms, [Term { not: false, test: Test::Word(typed.into()) }]);
    }
    assert!(parsed("  ").is_empty());
    assert!(parsed("!state:listen").terms[0].not);
}

#[test]
fn what_is_wrong_is_said_with_what_may_be_meant() {
    assert_eq!(wrong("rtt0>5"), "no field rtt0; did you mean rto?");
    assert_eq!(wrong("port=22"), "no field port; did you mean dport, sport?");
    assert_eq!(wrong("rt0:5"), "no field rt0; did you mean rto?");
    assert_eq!(wrong("stat=estab"), "no field stat; did you mean state, st?");
    assert_eq!(wrong("zzzzzz>5"), "no field zzzzzz; Tab lists them");
    assert_eq!(wrong("rto>1x"), "rto 1x: a time is expected, as in 500us 200ms 1s 5m 2h");
    assert_eq!(wrong("sendq>much"), "sendq much: a size is expected, as in 512 64k 10M 1G");
    assert_eq!(wrong("dport:mysql"), "dport mysql: a number is expected, as in 12 or 10k");
    assert_eq!(wrong("rto=>1s"), "rto: operators are : = != > < >= <=");
    assert_eq!(wrong("rto>"), "rto> is not complete");
    assert_eq!(wrong("java rto>"), "rto> is not complete");
    assert_eq!(wrong("dst"), "dst is not complete");
    assert_eq!(wrong("dst here"), "dst here: an address is expected, as in 10.0.0.0/8");
    assert_eq!(
        wrong("dst 10.0.0.0/33"),
        "dst 10.0.0.0/33: an address is expected, as in 10.0.0.0/8"
    );
    assert_eq!(wrong("a or b"), "or: all words have to hold, there is no other way");
    // The rest holds meanwhile.
    assert_eq!(parsed("java rto>").terms.len(), 1);
}

#[test]
fn what_ss_takes_is_taken() {
    let port = Value::Num(3306.0);
    for typed in [
        "dport = :3306",
        "dport eq :3306",
        "dport=:3306",
        "dport =:3306",
        "dport= :3306",
        "dport = 3306",
        "dport >= :3000",
        "dport ge 3000",
        "not dport = :22",
        "!dport=22",
    ] {
        assert!(holds(typed, &port), "{typed}");
    }
    assert!(!holds("dport != :3306", &port) && !holds("dport lt 3306", &port));
    assert!(
        holds("state established", &text("ESTAB")) && holds("state listening", &text("LISTEN"))
    );
    assert!(holds("exclude established", &text("LISTEN")));
    for (typed, endpoint, is_there) in [
        ("dst 10.0.0.0/8", "10.255.0.1:443", true),
        ("dst 10.0.0.0/8", "11.0.0.1:443", false),
        ("dst 10.0.0.0/8:443", "10.0.0.1:443", true),
        ("dst 10.0.0.0/8:443", "10.0.0.1:80", false),
        ("dst = 10.0.0.1", "10.0.0.1:80", true),
        ("dst 10.0.0.1:80", "10.0.0.1:81", false),
        ("dst 0.0.0.0/0", "192.0.2.1:1", true),
        ("dst 0.0.0.0/0", "[::1]:1", false),
        ("src fd00::/8", "[fd12::1]:53", true),
        ("src [::1]:53", "[::1]:53", true),
        ("src ::1", "[::1]:53", true),
        ("src :53", "[::1]:53", true),
        ("src 0.0.0.0", "0.0.0.0:*", true),
        ("src 0.0.0.0", "/run/docker.sock", false),
        ("not dst 10.0.0.0/8", "11.0.0.1:443", true),
    ] {
        assert_eq!(holds(typed, &text(endpoint)), is_there, "{typed} {endpoint}");
    }
    let f = parsed("dst 10.0.0.0/8 and dport = :443 state established java");
    assert_eq!((f.wrong(), f.terms.len()), (None, 4));
}

#[test]
fn names_are_completed() {
    let of = |before: &str| complete(before, &columns());
    assert_eq!(of("java dp"), Completion { insert: "ort", names: vec!["dport"] });
    assert_eq!(of("!RT"), Completion { insert: "o", names: vec!["rto"] });
    assert_eq!(of("s"), Completion { insert: "", names: vec!["st", "state", "sport", "sendq"] });
    assert_eq!(of("st"), Completion { insert: "", names: vec!["st", "state"] });
    assert_eq!(of("").names.len(), 8);
    assert_eq!(of("rto>1"), Completion::default());
}

proptest! {
    #[test]
    fn anything_may_be_typed(typed in "\\PC{0,40}", endpoint in "\\PC{0,30}") {
        let f = parsed(&typed);
        prop_assert!(f.terms.len() <= typed.len());
        for t in &f.terms {
            if let Test::Net { net, .. } = t.test {
                let _ = net.has(&endpoint);
            }
        }
        let _ = complete(&typed, &columns());
    }

    #[test]
    fn parts_of_what_is_known_may_be_typed(
        typed in "(dst|src|state|rto|dport|=|>|!|not|and|10\\.0\\.0\\.0/8|:|é| ){0,8}"
    ) {
        let _ = parsed(&typed);
        let _ = complete(&typed, &columns());
    }
}
