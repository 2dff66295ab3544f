//! Formatting of numbers with units, and shell quoting of names from the kernel.

use std::fmt::Write as _;
use std::time::Duration;

/// `1 connection`, `37 connections`.
pub(crate) fn count(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// A human-readable duration: `204 ms`, `6.53 s`, `63 s`, `12 min`.
pub(crate) fn time(d: Duration) -> String {
    let s = d.as_secs_f64();
    if s < 0.001 {
        format!("{:.0} us", s * 1e6)
    } else if s < 1.0 {
        format!("{:.0} ms", s * 1e3)
    } else if s < 10.0 {
        let text = format!("{s:.2}");
        format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
    } else if s < 600.0 {
        format!("{s:.0} s")
    } else {
        // Whole minutes, as in table cells.
        format!("{} min", d.as_secs() / 60)
    }
}

/// [`time`] from microseconds.
pub(crate) fn time_us(us: u64) -> String {
    time(Duration::from_micros(us))
}

/// Milliseconds without false precision: `0.16`, `7.55`, `31.5`, `272`.
pub(crate) fn ms(v: f64) -> String {
    if v < 10.0 {
        format!("{v:.2}")
    } else if v < 100.0 {
        format!("{v:.1}")
    } else {
        format!("{v:.0}")
    }
}

/// Bytes: `812 B`, `33.6 kB`, `4.2 MB` (1000).
pub(crate) fn bytes(n: u64) -> String {
    let v = n as f64;
    if n < 1000 {
        format!("{n} B")
    } else if v < 1e6 {
        format!("{:.1} kB", v / 1e3)
    } else if v < 1e9 {
        format!("{:.1} MB", v / 1e6)
    } else {
        format!("{:.1} GB", v / 1e9)
    }
}

/// A rate without false precision: `0.4`, `24`, `16.8k`.
pub(crate) fn rate(v: f64) -> String {
    if v >= 10_000.0 {
        format!("{:.1}k", v / 1000.0)
    } else if v >= 10.0 {
        format!("{v:.0}")
    } else {
        format!("{v:.1}")
    }
}

/// Bytes per second as bits per second: `8 Mbit/s`, `9.41 Gbit/s`.
pub(crate) fn bits(bytes_s: f64) -> String {
    let (v, unit) = match 8.0 * bytes_s {
        v if v < 1e3 => (v, "bit/s"),
        v if v < 1e6 => (v / 1e3, "kbit/s"),
        v if v < 1e9 => (v / 1e6, "Mbit/s"),
        v => (v / 1e9, "Gbit/s"),
    };
    let text = if v < 10.0 { format!("{v:.2}") } else { format!("{v:.1}") };
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

/// Quotes a name as one shell word. Names from the kernel are untrusted: quotes, newlines and
/// escapes in them must not become commands.
pub(crate) fn sh(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/:-".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    if name.chars().all(|c| (' '..='~').contains(&c)) {
        return format!("'{}'", name.replace('\'', "'\\''"));
    }
    let mut out = String::from("$'");
    for b in name.bytes() {
        match b {
            b'\'' | b'\\' => {
                out.push('\\');
                out.push(char::from(b));
            }
            b' '..=b'~' => out.push(char::from(b)),
            _ => {
                let _ = write!(out, "\\x{b:02x}");
            }
        }
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_said_as_people_do() {
        assert_eq!(
            (count(1, "socket"), count(2, "socket")),
            ("1 socket".into(), "2 sockets".into())
        );
        let t = |ms| time(Duration::from_millis(ms));
        assert_eq!(
            [t(204), t(6528), t(5000), t(63_524), t(720_000), t(779_999)],
            ["204 ms", "6.53 s", "5 s", "64 s", "12 min", "12 min"]
        );
        assert_eq!([ms(0.16), ms(7.552), ms(31.5), ms(271.6)], ["0.16", "7.55", "31.5", "272"]);
        assert_eq!([bytes(812), bytes(33_624), bytes(8_418_624)], ["812 B", "33.6 kB", "8.4 MB"]);
        assert_eq!(
            [bits(125.0), bits(1e6), bits(1.1763e9)],
            ["1 kbit/s", "8 Mbit/s", "9.41 Gbit/s"]
        );
        assert_eq!([bits(0.0), bits(1.25e8), bits(5e6)], ["0 bit/s", "1 Gbit/s", "40 Mbit/s"]);
        assert_eq!([rate(0.44), rate(505.0), rate(16_827.0)], ["0.4", "505", "16.8k"]);
    }

    #[test]
    fn plain_names_stay_and_others_are_quoted() {
        assert_eq!(sh("10.0.0.2:3306"), "10.0.0.2:3306");
        assert_eq!(sh("/sys/fs/cgroup/a b"), "'/sys/fs/cgroup/a b'");
        assert_eq!(sh("it's"), "'it'\\''s'");
        assert_eq!(sh("$(reboot)"), "'$(reboot)'");
        assert_eq!(sh("a\n;rm"), "$'a\\x0a;rm'");
        assert_eq!(sh(""), "''");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// A real shell reads the name back unchanged, whatever it contains.
        #[test]
        fn the_shell_reads_back_the_name(name in "[^\0]{0,12}") {
            let script = format!("printf %s {}", sh(&name));
            let out = std::process::Command::new("bash").args(["-c", &script]).output();
            if let Ok(out) = out {
                prop_assert_eq!(out.stdout, name.as_bytes());
            }
        }
    }
}
