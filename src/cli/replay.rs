//! Arguments of the commands that open a recording: `replay`, `export`.

use std::path::PathBuf;

use clap::Args;

use super::{ColorArg, GlyphArg};
use crate::moment::Moment;

/// Arguments of `stallscope replay`.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// The recording; - for a pipe.
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// Start paused at this time: 14:03:20, '2026-05-01 14:03', +5m from the start or -5m from the
    /// end.
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub at: Option<Moment>,
    /// Playback speed, 0.25 to 64.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = speed)]
    pub speed: f64,
    /// Start at the end of a recording that is still being written, and follow it.
    #[arg(long, conflicts_with = "at")]
    pub follow: bool,
    /// Colours; auto follows NO_COLOR and TERM.
    #[arg(long, value_enum, default_value_t = ColorArg::Auto)]
    pub color: ColorArg,
    /// Glyphs for charts and borders; auto follows the locale.
    #[arg(long, value_enum, default_value_t = GlyphArg::Auto)]
    pub glyphs: GlyphArg,
    /// Select panes and rows with the mouse; selecting text then needs Shift.
    #[arg(long)]
    pub mouse: bool,
}

/// Arguments of `stallscope export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The recording.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// First moment: 14:03:20, '2026-05-01 14:03', +5m from the start or -5m from the end. By
    /// default the start.
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// Last moment, likewise. By default the end.
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub to: Option<Moment>,
    /// New file to write, readable only by you.
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Replace addresses, the host name, and the names of processes, cgroups, namespaces and
    /// volumes by others of the same kind, consistently. Rewrites every tick.
    #[arg(long)]
    pub redact: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('x').parse::<f64>() {
        Ok(s) if (0.25..=64.0).contains(&s) => Ok(s),
        _ => Err("out of range; expected 0.25 to 64".to_owned()),
    }
}
