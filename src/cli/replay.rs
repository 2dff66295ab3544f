//! What is said about recordings on the command line: `replay`, `export`.

use std::path::PathBuf;

use clap::Args;

use super::{ColorArg, GlyphArg};
use crate::model::moment::Moment;

/// `stallscope replay`: the console over a recording, with the same screens and keys.
///
/// It needs no root and may run on another machine than the recording. The line of time is the
/// whole recording. Space pauses and plays, `[` and `]` step, `{` and `}` go from finding to finding, t
/// goes to a time of day.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// The recording; - for a pipe.
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// Begin at this time, paused: 14:03:20, '2026-05-01 14:03', +5m from the start or -5m from
    /// the end.
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub at: Option<Moment>,
    /// How fast to play, 0.25 to 64.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = speed)]
    pub speed: f64,
    /// Begin at the end of a recording that is still being written, and go on with it.
    #[arg(long, conflicts_with = "at")]
    pub follow: bool,
    /// Colours: auto obeys NO_COLOR and TERM.
    #[arg(long, value_enum, default_value_t = ColorArg::Auto)]
    pub color: ColorArg,
    /// Characters of charts and frames: auto obeys the locale.
    #[arg(long, value_enum, default_value_t = GlyphArg::Auto)]
    pub glyphs: GlyphArg,
    /// Let the mouse select panes and rows; text selection then needs Shift.
    #[arg(long)]
    pub mouse: bool,
}

/// `stallscope export`: a part of a recording as a recording of its own.
///
/// Groups of up to 60 ticks are copied as they are, so the part begins and ends up to a group
/// beyond what was asked for.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The recording.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// From this time: 14:03:20, '2026-05-01 14:03', +5m from the start or -5m from the end.
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// To this time.
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub to: Option<Moment>,
    /// The new file, readable by you alone.
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Replace addresses, host name, names of processes, cgroups, namespaces and volumes by
    /// others of the same kind, the same ones everywhere. Every tick is written anew.
    #[arg(long)]
    pub redact: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('x').parse::<f64>() {
        Ok(s) if (0.25..=64.0).contains(&s) => Ok(s),
        _ => Err("out of range: 0.25 to 64".to_owned()),
    }
}
