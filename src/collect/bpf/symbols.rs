//! Names of kernel functions from `/proc/kallsyms`, read only when an address is new, and only up to
//! it: it is 10 MB, generated on each read. Without CAP_SYSLOG its addresses are 0 and places stay
//! numbers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use crate::collect::HostFs;

/// The address in the lower 48 bits of a key: kernel addresses have all bits above set.
pub(super) fn address(key: u64) -> u64 {
    let low = key & 0xffff_ffff_ffff;
    if low == 0 { 0 } else { low | 0xffff << 48 }
}

/// Adds a name for each address to `into`; the address itself where there is no symbol.
pub(in crate::collect) fn resolve(
    host: &HostFs,
    addresses: &[u64],
    into: &mut BTreeMap<u64, Arc<str>>,
) {
    let mut best: Vec<(u64, u64, String)> =
        addresses.iter().map(|a| (*a, 0, String::new())).collect();
    if let Ok(file) = File::open(host.path("proc/kallsyms")) {
        scan(&mut BufReader::with_capacity(1 << 16, file), &mut best);
    }
    for (address, from, name) in best {
        let known = is_near(address, from);
        into.insert(address, if known { name.into() } else { format!("{address:#x}").into() });
    }
}

/// A function that begins there may reach to the address. They are taken to be shorter than 1 MiB.
fn is_near(address: u64, from: u64) -> bool {
    from > 0 && address - from < 1 << 20
}

/// Finds the last function at or before each address. The kernel's own come first, by address;
/// then those of modules, in no order.
fn scan(lines: &mut impl BufRead, best: &mut [(u64, u64, String)]) {
    let mut line = Vec::new();
    while matches!(Read::take(&mut *lines, 512).read_until(b'\n', &mut line), Ok(n) if n > 0) {
        let Some(at) = parse_address(&line) else {
            line.clear();
            continue;
        };
        if best.iter().any(|(address, from, _)| at <= *address && at > *from) {
            if let Some(name) = parse_function(&line) {
                for (_, from, found) in best.iter_mut().filter(|b| at <= b.0 && at > b.1) {
                    *from = at;
                    name.clone_into(found);
                }
            }
        } else if line.ends_with(b"\n")
            && !line.ends_with(b"]\n")
            && best.iter().all(|(address, from, _)| at > *address && is_near(*address, *from))
        {
            return;
        }
        line.clear();
    }
}

/// `ffffffff81000000 T _stext [module]`.
fn parse_address(line: &[u8]) -> Option<u64> {
    let (digits, rest) = line.split_at_checked(16)?;
    let at = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    (at > 0 && rest.starts_with(b" ")).then_some(at)
}

/// The name, of a function only.
fn parse_function(line: &[u8]) -> Option<&str> {
    let mut parts = std::str::from_utf8(line).ok()?.split_ascii_whitespace().skip(1);
    matches!(parts.next()?, "t" | "T" | "w" | "W").then(|| parts.next())?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn finds_the_function_before_an_address() {
        let text = b"ffffffff81000200 T tcp_v4_rcv\nffffffff81000100 t ip_rcv [m]\n\
                     ffffffff81000280 d data\n0000000000000000 T hidden\nrubbish\n";
        let mut best = vec![
            (0xffff_ffff_8100_0290, 0, String::new()),
            (0xffff_ffff_8100_0100, 0, String::new()),
            (0xffff_ffff_8100_0000, 0, String::new()),
        ];
        scan(&mut &text[..], &mut best);
        let names: Vec<&str> = best.iter().map(|b| b.2.as_str()).collect();
        assert_eq!(names, ["tcp_v4_rcv", "ip_rcv", ""]);
    }

    #[test]
    fn reading_ends_past_the_last_address_but_not_within_modules() {
        let name = |text: &str, at: u64| {
            let (mut rest, mut best) = (text.as_bytes(), [(at, 0, String::new())]);
            scan(&mut rest, &mut best);
            (best[0].2.clone(), rest.len())
        };
        let text = "ffffffff81000100 t ip_rcv\nffffffff81000200 T tcp_v4_rcv\n\
                    ffffffff81000300 D tcp_prot\nffffffffc0001000 t late [m]\n\
                    ffffffffc0003000 t after [m]\nffffffffc0001800 t near [m]\n";
        let (found, unread) = name(text, 0xffff_ffff_8100_0150);
        assert_eq!((found.as_str(), unread > 100), ("ip_rcv", true));
        assert_eq!(name(text, 0xffff_ffff_8100_0250).0, "tcp_v4_rcv");
        assert_eq!(name(text, 0xffff_ffff_c000_1900), ("near".to_owned(), 0));
        // Of arm64, whose modules lie below.
        let text = "ffff800080001000 T _stext\nffff800079001000 t rx [nic]\n";
        assert_eq!(name(text, 0xffff_8000_7900_1010).0, "rx");
        let text = "ffff800080001000 T _stext\nffff800080002000 T ip_rcv\n\
                    ffff800080003000 T after\nffff800079001000 t rx [nic]\n";
        let mut best =
            [0xffff_8000_8000_1010, 0xffff_8000_7900_1010].map(|a| (a, 0, String::new()));
        scan(&mut text.as_bytes(), &mut best);
        assert_eq!(best.map(|b| b.2), ["_stext", "rx"]);
    }

    #[test]
    fn keys_give_the_address_back() {
        let at = 0xffff_ffff_8100_0290u64;
        assert_eq!(address(7 << 48 | at & 0xffff_ffff_ffff), at);
        assert_eq!(address(7 << 48), 0);
    }
}
