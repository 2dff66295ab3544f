//! The three formats of `/proc/net` counters. Each walker calls `emit` with group, name, value
//! and skips what it does not understand.

use crate::parse::{fields, lines, number, signed, whole_lines};

/// Receives group, name and value.
pub type Emit<'e, 'a> = &'e mut dyn FnMut((&'a [u8], &'a [u8], i64));

/// netstat and snmp: a line `Group: name name ...`, then `Group: value value ...`.
pub fn walk_tables<'a>(bytes: &'a [u8], emit: Emit<'_, 'a>) {
    let mut rows = lines(whole_lines(bytes));
    let mut pending = rows.next();
    while let Some(header) = pending {
        pending = rows.next();
        let Some(data) = pending else { return };
        let (Some((group, names)), Some((same, values))) = (split(header), split(data)) else {
            continue;
        };
        if group != same {
            // A header without its values: the next line may be the header of another.
            continue;
        }
        for (name, value) in fields(names).zip(fields(values)) {
            if let Some(v) = value_of(value) {
                emit((group, name, v));
            }
        }
        pending = rows.next();
    }
}

/// snmp6: `name value` per line, no groups.
pub fn walk_snmp6<'a>(bytes: &'a [u8], emit: Emit<'_, 'a>) {
    for line in lines(whole_lines(bytes)) {
        let mut f = fields(line);
        if let (Some(name), Some(value), None) = (f.next(), f.next().and_then(value_of), f.next()) {
            emit((b"", name, value));
        }
    }
}

/// sockstat and sockstat6: `TCP: inuse 5 orphan 0 ...`. The group keeps its colon, which tells
/// it from the groups of snmp.
pub fn walk_sockstat<'a>(bytes: &'a [u8], emit: Emit<'_, 'a>) {
    for line in lines(whole_lines(bytes)) {
        let Some((group, pairs)) = split(line) else { continue };
        let group = line.get(..=group.len()).unwrap_or(group);
        let mut f = fields(pairs);
        while let (Some(name), Some(value)) = (f.next(), f.next()) {
            if let Some(v) = value_of(value) {
                emit((group, name, v));
            }
        }
    }
}

fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|b| *b == b':')?;
    let (group, rest) = line.split_at_checked(colon)?;
    Some((group, rest.get(1..)?))
}

/// `MaxConn` is -1; counters above 2^63 stay monotonic when taken as two's complement.
fn value_of(field: &[u8]) -> Option<i64> {
    number(field).map(|n| n as i64).or_else(|| signed(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Walker = for<'e, 'a> fn(&'a [u8], Emit<'e, 'a>);

    fn all(walk: Walker, text: &[u8]) -> Vec<(String, i64)> {
        let mut out = Vec::new();
        walk(text, &mut |(g, n, v)| {
            let name = format!("{}.{}", String::from_utf8_lossy(g), String::from_utf8_lossy(n));
            out.push((name, v));
        });
        out
    }

    fn row(name: &str, v: i64) -> (String, i64) {
        (name.to_owned(), v)
    }

    #[test]
    fn tables_pair_names_with_values() {
        let text = b"Tcp: A B\nTcp: -1 18446744073709551615\nUdp: C\nUdp: 7\n";
        assert_eq!(all(walk_tables, text), [row("Tcp.A", -1), row("Tcp.B", -1), row("Udp.C", 7)]);
    }

    #[test]
    fn a_header_without_values_does_not_shift_the_next_table() {
        let text = b"Tcp: A B\nUdp: C\nUdp: 7\n";
        assert_eq!(all(walk_tables, text), [row("Udp.C", 7)]);
        assert_eq!(all(walk_tables, b"Tcp: A B\nTcp: 1\n"), [row("Tcp.A", 1)]);
        assert_eq!(all(walk_tables, b"Tcp: A B\n"), []);
    }

    #[test]
    fn the_other_formats() {
        assert_eq!(all(walk_snmp6, b"Ip6InReceives   \t12\nodd\n"), [row(".Ip6InReceives", 12)]);
        let text = b"sockets: used 3\nTCP: inuse 5 orphan 1\nFRAG6: inuse\n";
        let want = [row("sockets:.used", 3), row("TCP:.inuse", 5), row("TCP:.orphan", 1)];
        assert_eq!(all(walk_sockstat, text), want);
    }

    const NETSTAT: &[u8] = include_bytes!("../../../tests/fixtures/6.18/proc/net/netstat");
    const SOCKSTAT: &[u8] = include_bytes!("../../../tests/fixtures/6.18/proc/net/sockstat");

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            for walk in [walk_tables as Walker, walk_snmp6, walk_sockstat] {
                let _ = all(walk, &bytes);
            }
        }

        #[test]
        fn truncation_shortens_and_changes_nothing(cut in 0usize..4000) {
            for (walk, text) in [(walk_tables as Walker, NETSTAT), (walk_sockstat, SOCKSTAT)] {
                let whole = all(walk, text);
                let part = all(walk, &text[..cut.min(text.len())]);
                prop_assert!(whole.starts_with(&part));
            }
        }
    }
}
