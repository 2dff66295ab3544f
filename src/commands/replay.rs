//! `stallscope replay FILE`: the console over a recording.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Args;

use super::Run;
use super::shared::environment::Environment;
use super::shared::limits;
use super::shared::recording::{anchor, named, open_begun, range, wrong};
use super::shared::screen::{Screen, leave, obeyed};
use crate::exit::{Exit, Stop};
use crate::playback::player::{Origin, Player};
use crate::time_spec::TimeSpec;
use crate::ui;

/// Open a recording in the console.
///
/// Screens and keys are those of the live console. It needs no root and may run on a
/// machine other than the one recorded. The timeline covers the whole recording. `space` pauses and
/// plays, `[` and `]` step, `{` and `}` jump between findings, `t` jumps to a
/// time.
///
/// More: stallscope help replay
#[derive(Args, Debug)]
pub(super) struct Replay {
    /// The recording; - for a pipe.
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Start paused at this time: 14:03:20, '2026-05-01 14:03', +5m from the start or -5m from the
    /// end.
    #[arg(long, value_name = "TIME", value_parser = TimeSpec::parse, allow_hyphen_values = true)]
    at: Option<TimeSpec>,
    /// Playback speed, 0.25 to 64.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = speed)]
    speed: f64,
    /// Start at the end of a recording that is still being written, and follow it.
    #[arg(long, conflicts_with = "at")]
    follow: bool,
    /// How it looks.
    #[command(flatten)]
    screen: Screen,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('x').parse::<f64>() {
        Ok(s) if (0.25..=64.0).contains(&s) => Ok(s),
        _ => Err("out of range; expected 0.25 to 64".to_owned()),
    }
}

impl Run for Replay {
    fn run(&self) -> anyhow::Result<Exit> {
        let file = &self.file;
        if !std::io::stdout().is_terminal() {
            return Err(Stop::usage(
                "replay needs a terminal; use `stallscope check FILE` for findings as text or JSON",
            ));
        }
        limits::room()?;
        let (origin, reader) = open_begun(file)?;
        if reader.is_empty() {
            return Err(Stop::cannot(format!("{}: has no ticks yet", named(file))));
        }
        let env = Environment::read();
        let settings = obeyed(self.screen.chosen(None, &env)?, &env);
        let piped = matches!(origin, Origin::Pipe(_));
        let at = self.at.and_then(|at| {
            let (range, tz) = (range(&reader)?, &settings.tz);
            let from = at.resolve(anchor(at, range), range, tz);
            Some((from, at.end(from)))
        });
        let player = Player::open(origin, self.follow || piped).map_err(|e| wrong(file, &e))?;
        let begin = ui::Begin { at, speed: self.speed };
        let out = ui::replay(player, begin, settings)
            .map_err(|e| Stop::cannot(format!("{e}; `stallscope check FILE` needs no terminal")))?;
        leave(out, "a thread")?;
        Ok(Exit::Ok)
    }
}
