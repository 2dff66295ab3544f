//! The prefix of a kernel message: levels, timestamps, host and program.

use crate::sample::told::Stamp;

/// A line of the log, taken apart.
#[derive(Debug, PartialEq)]
pub(super) struct Prefix<'a> {
    pub(super) stamp: Option<Stamp>,
    pub(super) message: &'a str,
    /// Only a log begins like this.
    pub(super) sure: bool,
}

/// Strips the parts in the order in which they appear.
pub(super) fn split(text: &str) -> Prefix<'_> {
    let (leveled, rest) = level(text);
    if let Some((stamp, rest)) = bracket(rest) {
        let message = caller(rest);
        return Prefix { stamp: Some(stamp), message, sure: true };
    }
    if let Some((stamp, rest)) = iso(rest).or_else(|| calendar(rest)) {
        // `dmesg --time-format iso` has a comma in its stamp, and neither host nor program.
        if stamp.text.contains(',') {
            return Prefix { stamp: Some(stamp), message: rest, sure: true };
        }
        // `host kernel: [ 12.3] message`, `host systemd[1]: message`.
        if let Some(message) = program(rest) {
            let (inner, message) = match bracket(message) {
                Some((inner, rest)) => (Some(inner), caller(rest)),
                None => (None, message),
            };
            let secs = inner.and_then(|s| s.secs);
            return Prefix { stamp: Some(Stamp { secs, ..stamp }), message, sure: true };
        }
        return Prefix { stamp: None, message: text, sure: false };
    }
    Prefix { stamp: None, message: rest, sure: leveled }
}

/// `<6>` of the raw log, `kern  :info  : ` of `dmesg -x`.
fn level(text: &str) -> (bool, &str) {
    if let Some((n, rest)) = text.strip_prefix('<').and_then(|r| r.split_once('>'))
        && (1..=3).contains(&n.len())
        && n.bytes().all(|b| b.is_ascii_digit())
    {
        return (true, rest.trim_start());
    }
    let mut parts = text.splitn(3, ':');
    if let (Some(facility), Some(level), Some(rest)) = (parts.next(), parts.next(), parts.next())
        && ["kern", "user", "daemon", "syslog"].contains(&facility.trim())
        && ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"]
            .contains(&level.trim())
    {
        return (true, rest.trim_start());
    }
    (false, text)
}

/// `[23929.556244] `, `[23929.556244 <   99.656537>] `, `[  +3.391859] `, `[Nov24 02:33] `,
/// `[Tue Nov 24 02:33:32 2026] `.
fn bracket(text: &str) -> Option<(Stamp, &str)> {
    let (inner, rest) = text.strip_prefix('[')?.split_once(']')?;
    if inner.len() > 60 || !(rest.is_empty() || rest.starts_with([' ', '\t', '['])) {
        return None;
    }
    let inner = inner.trim();
    let first = inner.split_ascii_whitespace().next()?;
    let number = first.strip_prefix('+').unwrap_or(first);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    let stamp = if digits(whole) && digits(part) {
        let secs = if first.starts_with('+') { None } else { number.parse().ok() };
        Stamp { text: first.to_owned(), secs }
    } else if (month(inner) || weekday(first)) && inner.contains(':') {
        Stamp { text: inner.split_ascii_whitespace().collect::<Vec<_>>().join(" "), secs: None }
    } else {
        return None;
    };
    Some((stamp, rest.trim_start()))
}

/// Without the thread or CPU that some kernels add: `[  T123] message`.
fn caller(text: &str) -> &str {
    let inner = text.strip_prefix('[').and_then(|r| r.split_once(']'));
    match inner {
        Some((who, rest))
            if who.trim().strip_prefix(['T', 'C']).is_some_and(|n| {
                !n.is_empty() && n.len() < 10 && n.bytes().all(|b| b.is_ascii_digit())
            }) =>
        {
            rest.trim_start()
        }
        _ => text,
    }
}

/// `2026-11-24T02:33:32,556244+00:00 `.
fn iso(text: &str) -> Option<(Stamp, &str)> {
    let (word, rest) = text.split_once([' ', '\t'])?;
    let b = word.as_bytes();
    let shape = b.len() >= 19
        && b.len() <= 40
        && b.get(4) == Some(&b'-')
        && b.get(10) == Some(&b'T')
        && b.get(13) == Some(&b':')
        && b.iter().take(4).all(u8::is_ascii_digit);
    shape.then(|| (Stamp { text: word.to_owned(), secs: None }, rest.trim_start()))
}

/// `Nov 24 02:33:32 `, `Nov 24 02:33:32.556244 `.
fn calendar(text: &str) -> Option<(Stamp, &str)> {
    if !month(text) {
        return None;
    }
    let (name, rest) = text.split_once([' ', '\t'])?;
    let (day, rest) = rest.trim_start().split_once([' ', '\t'])?;
    let (time, rest) = rest.trim_start().split_once([' ', '\t'])?;
    let clock = time.len() >= 8
        && time.len() <= 15
        && time.bytes().all(|b| b.is_ascii_digit() || b == b':' || b == b'.')
        && time.matches(':').count() == 2;
    (name.len() == 3 && day.len() <= 2 && clock)
        .then(|| (Stamp { text: format!("{name} {day} {time}"), secs: None }, rest.trim_start()))
}

/// A message from a host's kernel, `db7 kernel: message`; nothing for other programs, `db7
/// sshd[12]: ...`.
fn program(text: &str) -> Option<&str> {
    let (host, rest) = text.split_once([' ', '\t'])?;
    let (program, message) = rest.split_once(": ")?;
    let name = program.split('[').next().unwrap_or(program);
    let plain = |t: &str| {
        !t.is_empty()
            && t.len() <= 64
            && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.()/@:".contains(&b))
    };
    (plain(host) && !host.ends_with(':') && plain(name) && !program.contains(' '))
        .then_some(if name == "kernel" { message } else { "" })
}

fn month(text: &str) -> bool {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    text.get(..3).is_some_and(|m| {
        m.bytes().all(|b| b.is_ascii_alphabetic())
            && MONTHS.find(m).is_some_and(|at| at.is_multiple_of(3))
    })
}

fn weekday(text: &str) -> bool {
    ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].contains(&text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// As dmesg of util-linux 2.38, journalctl and busybox printed them.
    #[test]
    fn every_stamp_comes_off() {
        for (text, stamp, secs) in [
            ("[23929.556244] x: y", "23929.556244", Some(23_929.556_244)),
            ("[    1.000000] x: y", "1.000000", Some(1.0)),
            ("<6>[23929.556244] x: y", "23929.556244", Some(23_929.556_244)),
            ("kern  :info  : [23929.556244] x: y", "23929.556244", Some(23_929.556_244)),
            ("[23929.556244 <   99.656537>] x: y", "23929.556244", Some(23_929.556_244)),
            ("[  +3.391859] x: y", "+3.391859", None),
            ("[Nov24 02:33] x: y", "Nov24 02:33", None),
            ("[Tue Nov 24 02:33:32 2026] x: y", "Tue Nov 24 02:33:32 2026", None),
            ("kern  :info  : [Tue Nov  4 02:33:32 2026] x: y", "Tue Nov 4 02:33:32 2026", None),
            ("[   12.345678][  T123] x: y", "12.345678", Some(12.345_678)),
            ("[   12.345678] [    C0] x: y", "12.345678", Some(12.345_678)),
            ("Nov 24 02:33:32 db7 kernel: x: y", "Nov 24 02:33:32", None),
            ("Nov 24 02:33:32 db7 kernel: [ 99.5] x: y", "Nov 24 02:33:32", Some(99.5)),
            ("2026-11-24T02:33:32+0000 db7 kernel: x: y", "2026-11-24T02:33:32+0000", None),
        ] {
            let p = split(text);
            assert_eq!((p.message, p.sure), ("x: y", true), "{text}");
            let s = p.stamp.unwrap();
            assert_eq!((s.text.as_str(), s.secs), (stamp, secs), "{text}");
        }
        let p = split("2026-11-24T02:33:32,556244+00:00 EXT4-fs (sda1): x: y");
        assert_eq!((p.message, p.sure), ("EXT4-fs (sda1): x: y", true));
        // Of other programs only that they said something.
        let p = split("Nov 24 02:33:32 db7 sshd[12]: I/O error, dev sda, sector 1");
        assert_eq!((p.message, p.sure), ("", true));
        for plain in ["[x] y", "[1] y", "[12.5]y", "Mon 24 Nov", "March on", "x: y", "", "[", "<6"]
        {
            let p = split(plain);
            assert_eq!((p.stamp, p.message, p.sure), (None, plain, false), "{plain}");
        }
    }
}
