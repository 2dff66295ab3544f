//! Times as people type them: `14:03:20`, `2026-05-01 14:03`, `-5m`. Relative ones count from
//! where one is. What a time of day means depends on where one is, too: the nearest one, inside
//! of what there is if there is one.

use std::time::Duration;

use jiff::civil;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

use crate::sample::time::WallNs;

/// A time as it was typed. What was typed has a length: `14:03:20` is all of that second, as a
/// clock shows it, and `14:03` all of that minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSpec {
    /// On whatever day is nearest.
    Clock(civil::Time, Grain),
    /// On this day.
    Date(civil::DateTime, Grain),
    /// With its zone.
    Exact(Timestamp, Grain),
    /// So many ns from here.
    Relative(i64),
}

/// To what a typed time is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// `2026-05-01`
    Day,
    /// `14:03`
    Minute,
    /// `14:03:20`
    Second,
    /// `14:03:20.5`
    Fraction,
}

impl Grain {
    /// ns.
    fn len(self) -> i64 {
        match self {
            Self::Day => 86_400_000_000_000,
            Self::Minute => 60_000_000_000,
            Self::Second => 1_000_000_000,
            Self::Fraction => 1,
        }
    }
    fn of(text: &str) -> Self {
        match text.matches(':').count() {
            _ if text.contains(['.', ',']) => Self::Fraction,
            0 | 1 => Self::Minute,
            _ => Self::Second,
        }
    }
}

impl TimeSpec {
    /// Reads one.
    ///
    /// # Errors
    /// What it should look like.
    pub fn parse(text: &str) -> Result<Self, String> {
        let t = text.trim();
        let wrong = || {
            format!(
                "'{text}' is not a time; expected for example 14:03:20, 2026-05-01 14:03 or -5m"
            )
        };
        if let Some(rest) = t.strip_prefix(['+', '-']) {
            let d: SignedDuration = rest.trim().parse().map_err(|_| wrong())?;
            let d = Duration::try_from(d).map_err(|_| wrong())?;
            let ns = i64::try_from(d.as_nanos()).map_err(|_| wrong())?;
            return Ok(Self::Relative(if t.starts_with('-') { -ns } else { ns }));
        }
        if let Ok(exact) = t.parse::<Timestamp>() {
            let whole = exact.subsec_nanosecond() == 0;
            return Ok(Self::Exact(exact, if whole { Grain::Second } else { Grain::Fraction }));
        }
        if let Some(time) = clock(t) {
            return Ok(Self::Clock(time, Grain::of(t)));
        }
        let Some((day, rest)) = t.split_once([' ', 'T']) else {
            let day: civil::Date = t.parse().map_err(|_| wrong())?;
            return Ok(Self::Date(day.to_datetime(civil::Time::midnight()), Grain::Day));
        };
        let day: civil::Date = day.parse().map_err(|_| wrong())?;
        let time = clock(rest.trim()).ok_or_else(wrong)?;
        Ok(Self::Date(day.to_datetime(time), Grain::of(rest)))
    }

    /// Until when what begins at `at` lasts, exclusive.
    #[must_use]
    pub fn end(self, at: WallNs) -> WallNs {
        let len = match self {
            Self::Clock(_, g) | Self::Date(_, g) | Self::Exact(_, g) => g.len(),
            Self::Relative(_) => 1,
        };
        WallNs(at.0.saturating_add(len))
    }

    /// The moment that is meant by somebody who is at `here`, of what lies in `range`.
    #[must_use]
    pub fn resolve(self, here: WallNs, range: (WallNs, WallNs), tz: &TimeZone) -> WallNs {
        match self {
            Self::Relative(ns) => WallNs(here.0.saturating_add(ns)),
            Self::Exact(t, _) => wall(t),
            // A day at the edge of what jiff knows: there is no such time in every zone.
            Self::Date(d, _) => in_zone(d, tz)
                .unwrap_or_else(|| WallNs(if d.year() < 1970 { i64::MIN } else { i64::MAX })),
            Self::Clock(t, _) => {
                let Ok(at) = Timestamp::from_nanosecond(i128::from(here.0)) else { return here };
                let today = tz.to_datetime(at).date();
                let days = (-1..=1).filter_map(|d| today.checked_add(d.days()).ok());
                let all = days.filter_map(|d| in_zone(d.to_datetime(t), tz));
                // A second of slack: what is shown is cut to seconds.
                let inside =
                    |w: &WallNs| w.0 >= range.0.0.saturating_sub(1_000_000_000) && w.0 <= range.1.0;
                all.min_by_key(|w| (!inside(w), w.0.abs_diff(here.0))).unwrap_or(here)
            }
        }
    }
}

/// `14:03:20`, `14:03`, `14:03:20.5`.
fn clock(t: &str) -> Option<civil::Time> {
    let first = t.split(':').next()?;
    // `9:05` is as good as `09:05`.
    let padded = if first.len() == 1 { format!("0{t}") } else { t.to_owned() };
    if !padded.contains(':') || padded.contains(['T', ' ', '-', '+', 'Z']) {
        return None;
    }
    padded.parse().ok()
}

/// Before 1678 and after 2262 the first and the last time that we can count: nothing lies beyond.
fn wall(t: Timestamp) -> WallNs {
    let ns = t.as_nanosecond();
    WallNs(i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX }))
}

fn in_zone(d: civil::DateTime, tz: &TimeZone) -> Option<WallNs> {
    tz.to_ambiguous_timestamp(d).compatible().ok().map(wall)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(text: &str) -> WallNs {
        wall(text.parse().unwrap())
    }

    #[test]
    fn a_time_of_day_is_the_nearest_one_that_there_is() {
        let range = (at("2026-05-01T20:00:00Z"), at("2026-05-02T04:00:00Z"));
        let go = |text: &str, here: &str| {
            TimeSpec::parse(text).unwrap().resolve(at(here), range, &TimeZone::UTC)
        };
        assert_eq!(go("3:15", "2026-05-01T20:00:05Z"), at("2026-05-02T03:15:00Z"));
        assert_eq!(go("21:00", "2026-05-02T03:00:00Z"), at("2026-05-01T21:00:00Z"));
        assert_eq!(go("21:00:07.5", "2026-05-01T21:00:00Z"), at("2026-05-01T21:00:07.5Z"));
        assert_eq!(go("2026-05-01 22:10", "2026-05-02T03:00:00Z"), at("2026-05-01T22:10:00Z"));
        assert_eq!(
            go("2026-05-01T22:10:00+02:00", "2026-05-02T03:00:00Z"),
            at("2026-05-01T20:10:00Z")
        );
        assert_eq!(go("-5m", "2026-05-02T03:00:00Z"), at("2026-05-02T02:55:00Z"));
        assert_eq!(go("+1h 30m", "2026-05-02T00:00:00Z"), at("2026-05-02T01:30:00Z"));
        // Not there at all: the nearest anyway; whoever goes there ends at an edge.
        assert_eq!(go("12:00", "2026-05-01T20:00:00Z"), at("2026-05-01T12:00:00Z"));
    }

    #[test]
    fn what_cannot_be_counted_is_before_or_behind_everything() {
        let range = (at("2026-05-01T20:00:00Z"), at("2026-05-02T04:00:00Z"));
        let eastern = TimeZone::fixed(jiff::tz::offset(14));
        for (text, want) in [
            ("2262-04-13", i64::MAX),
            ("2300-01-01T00:00:00Z", i64::MAX),
            ("9999-12-31 23:59:59", i64::MAX),
            ("1677-09-21", i64::MIN),
            ("1600-01-01T00:00:00Z", i64::MIN),
        ] {
            for tz in [&TimeZone::UTC, &eastern] {
                let goes = TimeSpec::parse(text).unwrap().resolve(range.0, range, tz);
                assert_eq!(goes, WallNs(want), "{text}");
            }
        }
        let long = TimeSpec::parse("+1752000h").unwrap();
        assert_eq!(long.resolve(WallNs(i64::MAX - 5), range, &TimeZone::UTC), WallNs(i64::MAX));
    }

    #[test]
    fn a_typed_time_is_as_long_as_it_is_exact() {
        let from = at("2026-05-01T14:03:00Z");
        for (text, ns) in [
            ("14:03", 60_000_000_000),
            ("9:03", 60_000_000_000),
            ("14:03:00", 1_000_000_000),
            ("14:03:00.5", 1),
            ("2026-05-01", 86_400_000_000_000),
            ("2026-05-01 14:03", 60_000_000_000),
            ("2026-05-01T14:03:00", 1_000_000_000),
            ("2026-05-01T14:03:00Z", 1_000_000_000),
            ("2026-05-01T14:03:00.25Z", 1),
            ("-5m", 1),
        ] {
            assert_eq!(TimeSpec::parse(text).unwrap().end(from).0 - from.0, ns, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in
            ["", "x", "25:00", "14", "5m", "-", "+x", "2026-13-01", "14:03 tomorrow", "-9e99y"]
        {
            assert!(TimeSpec::parse(bad).is_err(), "{bad}");
        }
    }
}
