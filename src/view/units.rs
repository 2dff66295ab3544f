//! Numbers in at most five columns: three significant digits with their unit, so that columns
//! do not move when values do.

use std::time::Duration;

/// Shown for a number that was not measured: neither `0` nor `off`.
pub const UNKNOWN: &str = "n/a";

/// A plain number: `0`, `3.4`, `41`, `999`, `16.8k`, `2.1M`.
#[must_use]
pub fn count(v: f64) -> String {
    scaled(v, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// Bytes in powers of 1024: `0`, `512B`, `114K`, `2.1M`.
#[must_use]
pub fn bytes(v: f64) -> String {
    if v == 0.0 {
        return "0".to_owned();
    }
    scaled(v, 1024.0, &["B", "K", "M", "G", "T", "P", "E"])
}

/// A whole number of things: no decimals below a thousand.
#[must_use]
pub fn int(v: u64) -> String {
    if v < 10_000 { v.to_string() } else { count(v as f64) }
}

/// Percent without the sign: `0`, `0.3`, `9.1`, `91`, `100`.
#[must_use]
pub fn pct(v: f64) -> String {
    if !v.is_finite() {
        return UNKNOWN.to_owned();
    }
    let v = v.max(0.0);
    if v < 0.05 {
        "0".to_owned()
    } else if v < 9.95 {
        format!("{v:.1}")
    } else {
        format!("{v:.0}")
    }
}

/// A duration given in seconds: `0`, `31us`, `7.6ms`, `204ms`, `6.53s`, `12m3s`, `3h12m`, `41d`.
#[must_use]
pub fn secs(v: f64) -> String {
    if !v.is_finite() {
        return UNKNOWN.to_owned();
    }
    if v <= 0.0 {
        return "0".to_owned();
    }
    if v < 0.000_999_5 {
        return format!("{:.0}us", (v * 1e6).max(1.0));
    }
    if v < 0.009_95 {
        return format!("{:.1}ms", v * 1e3);
    }
    if v < 0.999_5 {
        return format!("{:.0}ms", v * 1e3);
    }
    if v < 9.995 {
        return format!("{v:.2}s");
    }
    if v < 59.95 {
        return format!("{v:.1}s");
    }
    let s = v.round() as u64;
    match s {
        0..=599 => format!("{}m{:02}", s / 60, s % 60),
        600..=3599 => format!("{}m", s / 60),
        3600..=35_999 => format!("{}h{:02}", s / 3600, s / 60 % 60),
        36_000..=172_799 => format!("{}h", s / 3600),
        _ => format!("{}d", s / 86_400),
    }
}

/// A duration given in ms.
#[must_use]
pub fn millis(v: f64) -> String {
    secs(v / 1e3)
}

/// A duration.
#[must_use]
pub fn duration(d: Duration) -> String {
    secs(d.as_secs_f64())
}

/// An age that people read: whole units, `9s`, `4m`, `3h12m`, `41d`.
#[must_use]
pub fn age(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0..=59 => format!("{s}s"),
        60..=3599 => format!("{}m{:02}s", s / 60, s % 60),
        3600..=172_799 => format!("{}h{:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d", s / 86_400),
    }
}

/// The value of evidence with its unit, as people write it: `13.1s`, not `13.1k ms`.
#[must_use]
pub fn quantity(v: f64, unit: &str) -> String {
    match unit {
        "" => count(v),
        "%" => format!("{}%", pct(v)),
        "s" => secs(v),
        "ms" => millis(v),
        "us" => secs(v / 1e6),
        "ms/s" => format!("{}/s", millis(v)),
        "bytes" => bytes(v),
        "kB/s" => format!("{}/s", bytes(v * 1024.0)),
        "/s" => format!("{}/s", count(v)),
        // An errno is a name, not a quantity.
        "errno" => format!("errno {v:.0}"),
        other => format!("{} {other}", count(v)),
    }
}

fn scaled(v: f64, base: f64, units: &[&str]) -> String {
    if !v.is_finite() {
        return UNKNOWN.to_owned();
    }
    let sign = if v < 0.0 { "-" } else { "" };
    let mut v = v.abs();
    let mut i = 0;
    // 999.5 would print as 1000: four digits are one too many for the larger units.
    while v >= 999.5 && i + 1 < units.len() {
        v /= base;
        i += 1;
    }
    let unit = units.get(i).copied().unwrap_or_default();
    if v < 0.05 && i == 0 {
        return format!("{sign}0{unit}");
    }
    let small = v < 9.95 && (i > 0 || v.fract() != 0.0);
    if small || (v < 99.95 && i > 0 && base == 1000.0) {
        format!("{sign}{v:.1}{unit}")
    } else {
        format!("{sign}{v:.0}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(3.44), "3.4");
        assert_eq!(count(999.4), "999");
        assert_eq!(count(999.6), "1.0k");
        assert_eq!(count(16_800.0), "16.8k");
        assert_eq!(count(2_100_000.0), "2.1M");
        assert_eq!(bytes(0.0), "0");
        assert_eq!(bytes(512.0), "512B");
        assert_eq!(bytes(116_736.0), "114K");
        assert_eq!(bytes(2.5 * 1024.0 * 1024.0), "2.5M");
        assert_eq!(secs(6.53), "6.53s");
        assert_eq!(secs(0.204), "204ms");
        assert_eq!(secs(0.0076), "7.6ms");
        assert_eq!(secs(0.000_031), "31us");
        assert_eq!(secs(723.0), "12m");
        assert_eq!(secs(41.0 * 86_400.0), "41d");
        assert_eq!(pct(0.31), "0.3");
        assert_eq!(pct(91.2), "91");
        assert_eq!(age(Duration::from_secs(11_520)), "3h12m");
        assert_eq!(count(f64::NAN), UNKNOWN);
    }

    #[test]
    fn numbers_have_the_units_that_people_say() {
        for (v, unit, want) in [
            (13_100.0, "ms", "13.1s"),
            (6.53, "s", "6.53s"),
            (50_000.0, "us", "50ms"),
            (272.0, "ms/s", "272ms/s"),
            (65_160.0, "bytes", "64K"),
            (12_288.0, "kB/s", "12M/s"),
            (16_800.0, "/s", "16.8k/s"),
            (91.2, "%", "91%"),
            (113.0, "errno", "errno 113"),
            (11.0, "segments", "11 segments"),
            (1.5, "CPUs", "1.5 CPUs"),
            (37.0, "", "37"),
        ] {
            assert_eq!(quantity(v, unit), want, "{v} {unit}");
        }
    }

    proptest! {
        #[test]
        fn cells_do_not_grow(v in 0.0f64..1e19) {
            prop_assert!(count(v).len() <= 5, "{}", count(v));
            prop_assert!(bytes(v).len() <= 5, "{}", bytes(v));
            prop_assert!(int(v as u64).len() <= 5);
        }
        #[test]
        fn durations_do_not_grow(v in 0.0f64..8e8) {
            prop_assert!(secs(v).len() <= 5, "{}", secs(v));
        }
    }
}
