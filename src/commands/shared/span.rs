//! `--from` and `--to`: a part of a recording.

use clap::Args;
use jiff::tz::TimeZone;

use super::recording::{anchor, range};
use crate::exit::Stop;
use crate::playback::tape::Tape;
use crate::recording::Reader;
use crate::sample::time::WallNs;
use crate::time_spec::TimeSpec;
use crate::view;

/// From when to when.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Span {
    /// First moment: 14:03:20, '2026-05-01 14:03', +5m from the start or -5m from the end. By
    /// default the start.
    #[arg(long, value_name = "TIME", value_parser = TimeSpec::parse, allow_hyphen_values = true)]
    from: Option<TimeSpec>,
    /// Last moment, likewise. By default the end.
    #[arg(long, value_name = "TIME", value_parser = TimeSpec::parse, allow_hyphen_values = true)]
    to: Option<TimeSpec>,
}

impl Span {
    /// Whether a part was asked for.
    pub(crate) fn is_given(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// The first and the last time that is asked for, of a recording of this name.
    ///
    /// # Errors
    /// When it has no ticks, or none between the two.
    pub(crate) fn of(
        &self,
        reader: &Reader,
        name: &str,
        tz: &TimeZone,
    ) -> anyhow::Result<(WallNs, WallNs)> {
        let Some(range) = range(reader) else {
            return Err(Stop::cannot(format!("{name}: has no ticks: nothing was recorded")));
        };
        self.within(range, name, tz)
    }

    /// The same of one that has ticks in `range`.
    ///
    /// # Errors
    /// When there is nothing between the two.
    pub(crate) fn within(
        &self,
        range: (WallNs, WallNs),
        name: &str,
        tz: &TimeZone,
    ) -> anyhow::Result<(WallNs, WallNs)> {
        let resolve = |m: TimeSpec| m.resolve(anchor(m, range), range, tz);
        // Up to 14:03:20 includes all of that second.
        let to = self.to.map(|m| resolve(m).max(WallNs(m.end(resolve(m)).0 - 1)));
        match (self.from.map(resolve), to) {
            (Some(from), Some(to)) if from > to => Err(Stop::usage("--from is after --to")),
            (Some(from), _) if from > range.1 => {
                let last = dated(range.1, tz);
                Err(Stop::cannot(format!("{name}: --from is after its last tick, {last}")))
            }
            (_, Some(to)) if to < range.0 => {
                let first = dated(range.0, tz);
                Err(Stop::cannot(format!("{name}: --to is before its first tick, {first}")))
            }
            // Ticks in the middle may be outside `range`: the clock may have been set.
            (from, to) => Ok((from.unwrap_or(WallNs(i64::MIN)), to.unwrap_or(WallNs(i64::MAX)))),
        }
    }
}

/// The first tick to look at and the one to end before: of whole groups. Clocks may be in any order.
pub(crate) fn ticks(tape: &Tape, (from, to): (WallNs, WallNs)) -> (u64, u64) {
    let groups = tape.reader().groups();
    let place = |i: Option<usize>| i.and_then(|i| tape.reader().first_of(i));
    let first = groups.iter().position(|g| g.first.wall.max(g.last.wall) >= from);
    let first = place(first).unwrap_or(0);
    let last = groups.iter().rposition(|g| g.first.wall.min(g.last.wall) <= to);
    (first, place(last.map(|l| l + 1)).unwrap_or(tape.len()))
}

fn dated(w: WallNs, tz: &TimeZone) -> String {
    format!("{} {}", view::context::day(w, tz), view::context::clock(w, tz))
}

/// `, 2026-05-01 14:03:20 to 14:13:20`, of a first and a last tick.
pub(crate) fn told(ends: Option<(WallNs, WallNs)>, tz: &TimeZone) -> String {
    ends.map_or_else(String::new, |(a, b)| {
        format!(", {} to {}", dated(a, tz), view::context::clock(b, tz))
    })
}
