//! The kernel's text as numbers and rows: pure functions of bytes, which accept any. Here
//! what all of them share: fields, numbers, lines, without an allocation; below it the formats
//! that a collector reads and that people paste as well.
//!
//! What is read rarely is left to `procfs-core` where that loses nothing. It wants every field of
//! `limits` and `meminfo` or gives none, and panics on some bytes of both; it forgets the order of
//! mount options and the timers of sockets. There, and in what is read in every tick, we read
//! ourselves, and `tests/differential/procfs` compares the two.

pub mod disks;
pub mod kmsg;
pub mod softnet;

use procfs_core::{FromBufRead as _, ProcessCGroup, ProcessCGroups};

/// The lines of a file without their `\n`; a missing final newline is fine.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty())
}

/// The part of `bytes` that ends with a newline. Kernel files always do; what follows the
/// last one is torn, and a number in it may be cut short.
#[must_use]
pub fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    bytes.get(..end).unwrap_or_default()
}

/// The fields of a line, separated by blanks or tabs.
pub fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|f| !f.is_empty())
}

/// A decimal number; `None` unless every byte is a digit and it fits in 64 bits.
#[must_use]
pub fn number(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    field.iter().try_fold(0u64, |n, b| {
        if !b.is_ascii_digit() {
            return None;
        }
        n.checked_mul(10)?.checked_add(u64::from(b - b'0'))
    })
}

/// A decimal number with an optional sign.
#[must_use]
pub fn signed(field: &[u8]) -> Option<i64> {
    match field {
        [b'-', rest @ ..] => i64::try_from(number(rest)?).ok().map(|n| -n),
        _ => i64::try_from(number(field)?).ok(),
    }
}

/// A hexadecimal number without prefix.
#[must_use]
pub fn hex(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 16 {
        return None;
    }
    field.iter().try_fold(0u64, |n, b| Some((n << 4) | u64::from((*b as char).to_digit(16)?)))
}

/// A field of `mountinfo`: blanks, tabs, newlines and backslashes are written as `\040`.
#[must_use]
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = |b: &u8| (b'0'..=b'7').contains(b).then(|| u32::from(b - b'0'));
        let code = match tail {
            [a, b, c, ..] if *first == b'\\' => {
                octal(a).zip(octal(b)).zip(octal(c)).map(|((a, b), c)| a * 64 + b * 8 + c)
            }
            _ => None,
        };
        if let Some(byte) = code.and_then(|c| u8::try_from(c).ok()) {
            out.push(byte);
            rest = tail.get(3..).unwrap_or_default();
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

/// The lines of `/proc/PID/cgroup`. One by one: the crate gives up a whole file for a line that it
/// cannot read, and for a name that is not UTF-8.
pub fn cgroups(bytes: &[u8]) -> impl Iterator<Item = ProcessCGroup> {
    let one = |line| ProcessCGroups::from_buf_read(String::from_utf8_lossy(line).as_bytes()).ok();
    lines(whole_lines(bytes)).filter_map(one).flatten()
}

/// Path of a task in the hierarchy that limits what `controller` counts: the v1 one, else the
/// unified one.
#[must_use]
pub fn limiting_cgroup(cgroup: &[u8], controller: &str) -> Option<String> {
    let v1 = |g: &ProcessCGroup| g.controllers.iter().any(|c| c == controller);
    let unified = |g: &ProcessCGroup| g.hierarchy == 0 && g.controllers.is_empty();
    let found = cgroups(cgroup).find(v1).or_else(|| cgroups(cgroup).find(unified));
    Some(found?.pathname)
}

/// A kernel list such as `0-3,8,10-11`, as numbers. Absurd ranges are cut at 8192 members.
#[must_use]
pub fn cpu_list(text: &[u8]) -> Vec<u32> {
    let mut out = Vec::new();
    for part in text.split(|b| *b == b',') {
        let part = part.trim_ascii();
        let (lo, hi) = match part.iter().position(|b| *b == b'-') {
            Some(i) => (number(&part[..i]), number(&part[i + 1..])),
            None => (number(part), number(part)),
        };
        let (Some(lo), Some(hi)) = (lo, hi) else { continue };
        for n in lo..=hi {
            if out.len() >= 8192 {
                return out;
            }
            out.push(n as u32);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_refuse_what_is_not_a_number() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"18446744073709551616"), None);
        assert_eq!(number(b""), None);
        assert_eq!(number(b"12x"), None);
        assert_eq!(signed(b"-7"), Some(-7));
        assert_eq!(hex(b"ffFF"), Some(65535));
        assert_eq!(hex(b"g"), None);
    }

    #[test]
    fn a_torn_last_line_is_cut() {
        assert_eq!(whole_lines(b"a 1\nb 2"), b"a 1\n");
        assert_eq!(whole_lines(b"a 1"), b"");
        assert_eq!(whole_lines(b""), b"");
    }

    #[test]
    fn a_cgroup_that_cannot_be_read_is_left_out_alone() {
        let text = b"x:cpu:/bad\n3:cpu,cpuacct:/a:b\nno colons\n1:name=systemd:/\xff\n0::/\n0::/to";
        let found = cgroups(text).map(|g| (g.hierarchy, g.controllers.join(","), g.pathname));
        let want = [(3, "cpu,cpuacct", "/a:b"), (1, "name=systemd", "/\u{fffd}"), (0, "", "/")];
        assert!(found.eq(want.map(|(id, names, path)| (id, names.to_owned(), path.to_owned()))));
    }

    #[test]
    fn cpu_lists_expand_and_stay_bounded() {
        assert_eq!(cpu_list(b"0-2,5\n"), [0, 1, 2, 5]);
        assert!(cpu_list(b"").is_empty());
        assert!(cpu_list(b"3-1").is_empty());
        assert_eq!(cpu_list(b"0-99999999999").len(), 8192);
    }
}
