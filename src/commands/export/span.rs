//! What `--from` and `--to` mean for a recording.

use std::path::Path;

use jiff::tz::TimeZone;

use super::Export;
use crate::commands::shared::recording::{anchor, named, range};
use crate::exit::Stop;
use crate::recording::Reader;
use crate::sample::time::WallNs;
use crate::time_spec::TimeSpec;
use crate::view;

/// Why there is nothing between `--from` and `--to`.
enum OutOfSpan {
    Reversed,
    /// The last tick is before `--from`.
    Behind(String),
    /// The first one is after `--to`.
    Before(String),
}

impl Export {
    /// The first and the last time that is asked for.
    pub(super) fn span(&self, reader: &Reader, tz: &TimeZone) -> anyhow::Result<(WallNs, WallNs)> {
        let name = named(Path::new(&self.file));
        let Some(range) = range(reader) else {
            return Err(Stop::cannot(format!("{name}: has no ticks: nothing was recorded")));
        };
        self.within(range, tz).map_err(|e| match e {
            OutOfSpan::Reversed => Stop::usage("--from is after --to"),
            OutOfSpan::Behind(t) => {
                Stop::cannot(format!("{name}: --from is after its last tick, {t}"))
            }
            OutOfSpan::Before(t) => {
                Stop::cannot(format!("{name}: --to is before its first tick, {t}"))
            }
        })
    }

    fn within(
        &self,
        range: (WallNs, WallNs),
        tz: &TimeZone,
    ) -> Result<(WallNs, WallNs), OutOfSpan> {
        let resolve = |m: TimeSpec| m.resolve(anchor(m, range), range, tz);
        // Up to 14:03:20 includes all of that second.
        let to = self.to.map(|m| resolve(m).max(WallNs(m.end(resolve(m)).0 - 1)));
        match (self.from.map(resolve), to) {
            (Some(from), Some(to)) if from > to => Err(OutOfSpan::Reversed),
            (Some(from), _) if from > range.1 => Err(OutOfSpan::Behind(dated(range.1, tz))),
            (_, Some(to)) if to < range.0 => Err(OutOfSpan::Before(dated(range.0, tz))),
            (from, to) => Ok((from.unwrap_or(range.0), to.unwrap_or(range.1))),
        }
    }
}

fn dated(w: WallNs, tz: &TimeZone) -> String {
    format!("{} {}", view::context::day(w, tz), view::context::clock(w, tz))
}

/// `, 2026-05-01 14:03:20 to 14:13:20`, of a first and a last tick.
pub(super) fn told(ends: Option<(WallNs, WallNs)>, tz: &TimeZone) -> String {
    ends.map_or_else(String::new, |(a, b)| {
        format!(", {} to {}", dated(a, tz), view::context::clock(b, tz))
    })
}
