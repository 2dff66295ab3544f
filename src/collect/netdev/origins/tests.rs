//! A captured dump beside the kernel's own text of the same table, and a live one.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, UdpSocket};

use proptest::prelude::*;

use super::super::testing::{datagrams, mangled, witness};
use super::*;
use crate::collect::testing::skip;
use crate::sample::sockets::unmap;

fn captured() -> Vec<Entry> {
    let (mut entries, mut bad) = (Vec::new(), 0);
    let steps: Vec<Step> = datagrams("../ctnetlink/conntrack.bin")
        .iter()
        .map(|d| take(d, 9, &mut entries, &mut bad))
        .collect();
    assert_eq!((steps.last(), bad), (Some(&Step::Done), 0));
    entries
}

/// Addresses, ports and protocol of a line of `/proc/net/nf_conntrack`.
fn told(line: &str) -> Entry {
    let words: Vec<&str> = line.split_whitespace().collect();
    let first = |key: &str| words.iter().find_map(|w| w.strip_prefix(key)?.strip_prefix('='));
    let addr = |key: &str| match first(key).unwrap().parse().unwrap() {
        IpAddr::V4(a) => map_v4(a.octets()),
        IpAddr::V6(a) => a.octets(),
    };
    let port = |key: &str| first(key).map_or(0, |p| p.parse().unwrap());
    let proto = words[3].parse().unwrap();
    let flow = Flow { from: port("sport"), addr: addr("dst"), port: port("dport"), proto };
    Entry { source: addr("src"), flow }
}

#[test]
fn the_captured_table_is_that_of_proc() {
    let told: Vec<Entry> = witness("../ctnetlink/nf_conntrack.txt").lines().map(told).collect();
    let mut entries = captured();
    assert_eq!((entries.len(), told.len()), (9, 9));
    for t in told {
        let at = entries.iter().position(|e| *e == t).unwrap_or_else(|| panic!("no {t:?}"));
        entries.remove(at);
    }
    assert!(entries.is_empty(), "{entries:?}");
}

#[test]
fn sources_are_counted_and_their_entries_spread() {
    let o = summary(&captured(), |a| unmap(*a).is_loopback());
    let of = |s: &Origin| (unmap(s.addr).to_string(), s.local, s.entries, s.target.entries);
    let all: Vec<_> = o.sources.iter().map(of).collect();
    let want = [
        ("10.77.0.1".to_owned(), false, 4, 3),
        ("127.0.0.1".to_owned(), true, 3, 2),
        ("::1".to_owned(), true, 1, 1),
        ("fd00:77::1".to_owned(), false, 1, 1),
    ];
    let mut sorted = all.clone();
    sorted[2..].sort();
    assert_eq!(sorted, want);
    assert_eq!((o.read, o.addresses, o.target.entries, o.target.port), (9, 4, 3, 6000));
    assert_eq!(o.sources.iter().map(|s| s.flows.len()).sum::<usize>(), 9);

    let many: Vec<Flow> = (0..4096).map(|from| Flow { from, ..Flow::default() }).collect();
    let entries: Vec<Entry> = many.iter().map(|f| Entry { source: [1; 16], flow: *f }).collect();
    let o = summary(&entries, |_| false);
    let from: Vec<u16> = o.sources[0].flows.iter().map(|f| f.from).collect();
    assert_eq!((from.len(), &from[..3], from[63]), (64, &[0, 64, 128][..], 4032));
    let none = summary(&[], |_| true);
    assert_eq!((none.read, none.sources.len(), none.target), (0, 0, Target::default()));
}

#[test]
fn all_entries_are_wanted_of_a_table_that_is_nearly_full() {
    let of = |count, max| {
        wanted(&Conntrack { count, max, ..Conntrack::default() }, MonoNs(1), &mut None)
    };
    assert_eq!((of(70, 100), of(u64::MAX, u64::MAX)), (Some(Selection::All), Some(Selection::All)));
    assert_eq!((of(69, 100), of(100, 0)), (None, None), "0 is no limit");
}

/// Two flows that clash in two seconds are what the rule begins to speak of.
#[test]
fn those_that_are_not_tcp_are_wanted_where_flows_clash() {
    let mut failed = None;
    let mut at = |s: u64, n: Option<u32>| {
        let c = Conntrack { count: 9, max: 100, insert_failed: n, ..Conntrack::default() };
        wanted(&c, MonoNs(s * 1_000_000_000), &mut failed)
    };
    assert_eq!(at(1, Some(50)), None, "it has no reading before");
    assert_eq!(at(3, Some(52)), Some(Selection::NotTcp));
    assert_eq!(at(5, Some(53)), None, "one in two seconds");
    assert_eq!(at(6, Some(53)), None);
    assert_eq!(at(7, Some(3)), None, "reset");
    assert_eq!(at(8, None), None);
    assert_eq!(at(9, Some(90)), None, "it was not counted before");
    assert_eq!(at(10, Some(91)), Some(Selection::NotTcp));
}

#[test]
fn a_long_dump_ends_early() {
    let (mut entries, mut bad) = (captured(), 0);
    while entries.len() < MAX_ENTRIES {
        entries.extend_from_within(..1);
    }
    let first = &datagrams("../ctnetlink/conntrack.bin")[0];
    assert_eq!(take(first, 9, &mut entries, &mut bad), Step::Done);
    assert_eq!(entries.len(), MAX_ENTRIES);
}

/// The kernel of the host has the addresses that sockets are bound to, and no others.
#[test]
fn the_kernel_tells_which_addresses_are_its_own() {
    let (mut link, mut buffers) = (NlSocket::open(netlink::ROUTE).ok(), Buffers::default());
    let own = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let IpAddr::V4(own) = own.ip() else { panic!("{own}") };
    assert!(is_local(&mut link, &mut buffers, &map_v4(own.octets())));
    // TEST-NET-1, for documentation only.
    assert!(!is_local(&mut link, &mut buffers, &map_v4([192, 0, 2, 1])));
    assert!(link.is_some(), "the socket is still good");
}

#[test]
fn the_live_table_is_read_or_refused_with_a_reason() {
    let mut bad = 0;
    let o = read(Selection::NotTcp, &mut Buffers::default(), &mut bad);
    assert_eq!(bad, 0);
    match o.unread {
        None => assert!(o.read as usize <= MAX_ENTRIES && o.sources.len() <= MAX_SOURCES),
        Some(Unread::NotPermitted) => skip("ctnetlink needs CAP_NET_ADMIN"),
        Some(Unread::NoModule) => skip("no ctnetlink"),
        Some(other) => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Entry::parse(&bytes);
        let _ = take(&bytes, 9, &mut Vec::new(), &mut 0);
    }

    #[test]
    fn mangled_datagrams_are_survived(cut: usize, at: usize, byte: u8) {
        for d in datagrams("../ctnetlink/conntrack.bin") {
            let d = mangled(&d, cut, at, byte);
            let _ = take(&d, 9, &mut Vec::new(), &mut 0);
        }
    }
}
