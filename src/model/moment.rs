//! Times as people type them: `14:03:20`, `2026-05-01 14:03`, `-5m`. Relative ones count from
//! where one is. What a time of day means depends on where one is, too: the nearest one, inside
//! of what there is if there is one.

use std::time::Duration;

use jiff::civil;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::time::WallNs;

/// A time as it was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// On whatever day is nearest.
    Clock(civil::Time),
    /// On this day.
    Date(civil::DateTime),
    /// With its zone.
    Exact(Timestamp),
    /// So many ns from here.
    Relative(i64),
}

impl Moment {
    /// Reads one.
    ///
    /// # Errors
    /// What it should look like.
    pub fn parse(text: &str) -> Result<Self, String> {
        let t = text.trim();
        let wrong = || format!("'{text}' is no time such as 14:03:20, 2026-05-01 14:03 or -5m");
        if let Some(rest) = t.strip_prefix(['+', '-']) {
            let d: SignedDuration = rest.trim().parse().map_err(|_| wrong())?;
            let d = Duration::try_from(d).map_err(|_| wrong())?;
            let ns = i64::try_from(d.as_nanos()).map_err(|_| wrong())?;
            return Ok(Self::Relative(if t.starts_with('-') { -ns } else { ns }));
        }
        if let Ok(exact) = t.parse::<Timestamp>() {
            return Ok(Self::Exact(exact));
        }
        if let Some(clock) = clock(t) {
            return Ok(Self::Clock(clock));
        }
        let (day, rest) = t.split_once([' ', 'T']).unwrap_or((t, "00:00"));
        let day: civil::Date = day.parse().map_err(|_| wrong())?;
        let time = clock(rest.trim()).ok_or_else(wrong)?;
        Ok(Self::Date(day.to_datetime(time)))
    }

    /// The moment that is meant by somebody who is at `here`, of what lies in `range`.
    #[must_use]
    pub fn resolve(self, here: WallNs, range: (WallNs, WallNs), tz: &TimeZone) -> WallNs {
        match self {
            Self::Relative(ns) => WallNs(here.0.saturating_add(ns)),
            Self::Exact(t) => wall(t).unwrap_or(here),
            Self::Date(d) => in_zone(d, tz).unwrap_or(here),
            Self::Clock(t) => {
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

fn wall(t: Timestamp) -> Option<WallNs> {
    i64::try_from(t.as_nanosecond()).ok().map(WallNs)
}

fn in_zone(d: civil::DateTime, tz: &TimeZone) -> Option<WallNs> {
    wall(tz.to_ambiguous_timestamp(d).compatible().ok()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(text: &str) -> WallNs {
        wall(text.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_time_of_day_is_the_nearest_one_that_there_is() {
        let range = (at("2026-05-01T20:00:00Z"), at("2026-05-02T04:00:00Z"));
        let go = |text: &str, here: &str| {
            Moment::parse(text).unwrap().resolve(at(here), range, &TimeZone::UTC)
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
    fn what_is_no_time_is_refused() {
        for bad in
            ["", "x", "25:00", "14", "5m", "-", "+x", "2026-13-01", "14:03 tomorrow", "-9e99y"]
        {
            assert!(Moment::parse(bad).is_err(), "{bad}");
        }
    }
}
