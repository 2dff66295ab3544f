//! Names of kernel functions from `/proc/kallsyms`, read only when an address is new: the
//! file has 10 MB. Without CAP_SYSLOG its addresses are 0 and places stay numbers.

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
        let known = from > 0 && address - from < 1 << 20;
        into.insert(address, if known { name.into() } else { format!("{address:#x}").into() });
    }
}

/// Finds the last function at or before each address. The file is not sorted.
fn scan(lines: &mut impl BufRead, best: &mut [(u64, u64, String)]) {
    let mut line = Vec::new();
    while matches!(Read::take(&mut *lines, 512).read_until(b'\n', &mut line), Ok(n) if n > 0) {
        if let Some((at, name)) = parse(&line) {
            for (address, from, found) in best.iter_mut() {
                if at <= *address && at > *from {
                    *from = at;
                    name.clone_into(found);
                }
            }
        }
        line.clear();
    }
}

/// `ffffffff81000000 T _stext [module]`.
fn parse(line: &[u8]) -> Option<(u64, &str)> {
    let mut parts = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let at = u64::from_str_radix(parts.next()?, 16).ok()?;
    let function = matches!(parts.next()?, "t" | "T" | "w" | "W");
    let name = parts.next()?;
    (function && at > 0).then_some((at, name))
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
    fn keys_give_the_address_back() {
        let at = 0xffff_ffff_8100_0290u64;
        assert_eq!(address(7 << 48 | at & 0xffff_ffff_ffff), at);
        assert_eq!(address(7 << 48), 0);
    }
}
