//! Lengths of time and sizes as people type them: `500ms`, `2h`, `7d`; `10M`, `1.5GiB`.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The longest time in days that means anything here: a year.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// Intervals at which this host can be sampled ...
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
/// ... and how an error calls them.
pub const INTERVALS: &str = "100ms to 60s";

/// A sampling interval.
///
/// # Errors
/// What it should look like.
pub fn interval(text: &str) -> Result<Duration, String> {
    duration(text, INTERVAL, INTERVALS)
}

/// A length of time within `range`, which an error calls `said`.
///
/// # Errors
/// What it should look like.
pub fn duration(
    text: &str,
    range: RangeInclusive<Duration>,
    said: &str,
) -> Result<Duration, String> {
    let wrong = || "expected a duration such as 500ms, 15s or 2m".to_owned();
    let d: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    let d = Duration::try_from(d).map_err(|_| wrong())?;
    if range.contains(&d) { Ok(d) } else { Err(format!("out of range; expected {said}")) }
}

/// As [`duration`], from `least` to a year, with days and weeks.
///
/// # Errors
/// What it should look like.
pub fn days(text: &str, least: Duration, said: &str) -> Result<Duration, String> {
    let count = |n: &str, each: u64| n.trim().parse::<u64>().ok()?.checked_mul(each);
    let whole = match text.trim().strip_suffix(['d', 'w']) {
        Some(n) => count(n, if text.trim().ends_with('d') { 1 } else { 7 }),
        None => None,
    };
    match whole {
        Some(d) => {
            let d = Duration::from_secs(d.saturating_mul(86_400));
            if (least..=LONGEST).contains(&d) {
                Ok(d)
            } else {
                Err(format!("out of range; expected {said}"))
            }
        }
        None => duration(text, least..=LONGEST, said),
    }
}

/// Bytes: `K`, `M`, `G`, `T` and `KiB` are powers of 1024, `kB`, `MB` of 1000.
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let number: f64 = number.parse().ok()?;
    let mut rest = unit.trim().chars();
    let power = match rest.next() {
        None | Some('B') => 0,
        Some('K' | 'k') => 1,
        Some('M') => 2,
        Some('G') => 3,
        Some('T') => 4,
        _ => return None,
    };
    let base: f64 = match (power, rest.as_str()) {
        (0 | 1.., "") | (1.., "iB") => 1024.0,
        (1.., "B") => 1000.0,
        _ => return None,
    };
    let bytes = number * base.powi(power);
    (bytes.is_finite() && bytes >= 0.0).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_has_a_unit_and_a_range() {
        let s = Duration::from_secs;
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(interval("1m"), Ok(s(60)));
        for bad in ["", "5", "-3s", "50ms", "2h", "1e9999s", "s", "10 parsecs", "1d"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
        assert_eq!(days("2w", s(60), ""), Ok(s(14 * 86_400)));
        assert_eq!(days("90s", s(60), ""), Ok(s(90)));
        for bad in ["59s", "99999999999999999999d", "367d"] {
            assert!(days(bad, s(60), "").is_err(), "{bad}");
        }
    }

    #[test]
    fn a_size_may_have_a_binary_or_a_decimal_unit() {
        assert_eq!(bytes("1048576"), Some(1 << 20));
        assert_eq!(bytes("1.5G"), Some(1536 << 20));
        assert_eq!(bytes("1MiB"), Some(1 << 20));
        assert_eq!(bytes("2MB"), Some(2_000_000));
        for bad in ["", "M", "1X", "1Mb", "-1M", "NaNM", "1e9999G", "lots"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
