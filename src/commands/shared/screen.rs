//! `--color`, `--glyphs`, `--mouse`: how the console looks, live and over a recording; and what it
//! leaves on the normal screen.

use std::path::PathBuf;

use clap::Args;
use jiff::tz::TimeZone;

use super::environment::Environment;
use super::output::{print, say};
use crate::ui::{
    ColorChoice, ColorMode, ConsoleSettings, ExitReason, ExitSummary, GlyphChoice, GlyphSet,
    MouseMode,
};

/// How the console looks.
#[derive(Args, Debug)]
pub(crate) struct Screen {
    /// Colours; auto follows NO_COLOR and TERM.
    #[arg(long, value_enum, default_value_t)]
    color: ColorChoice,
    /// Glyphs for charts and borders; auto follows the locale.
    #[arg(long, value_enum, default_value_t)]
    glyphs: GlyphChoice,
    /// Select panes and rows with the mouse; selecting text then needs Shift.
    #[arg(long)]
    mouse: bool,
}

impl Screen {
    /// What the console obeys.
    pub(crate) fn settings(&self, env: &Environment) -> ConsoleSettings {
        let (no_color, locale, term) =
            (env.no_color.as_deref(), env.locale.as_deref(), env.term.as_deref());
        ConsoleSettings {
            color: ColorMode::resolve(self.color, no_color, term),
            glyphs: GlyphSet::resolve(self.glyphs, locale, term),
            mouse: if self.mouse { MouseMode::On } else { MouseMode::Off },
            tz: TimeZone::system(),
            write_dir: PathBuf::from("."),
        }
    }
}

/// Prints what the console leaves behind; `thread` names the kind of thread that panicked.
pub(crate) fn leave(out: ExitSummary, thread: &str) -> anyhow::Result<()> {
    if out.reason != ExitReason::Hangup {
        print(&(out.lines.join("\n") + "\n"))?;
        for p in out.panics {
            say(&format!("{thread} failed: {p}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        screen: Screen,
    }

    fn settings(
        args: &[&str],
        no_color: Option<&str>,
        term: &str,
        locale: &str,
    ) -> ConsoleSettings {
        let flags = Flags::try_parse_from([&["stallscope"], args].concat()).unwrap();
        let env = Environment {
            no_color: no_color.map(str::to_owned),
            term: Some(term.to_owned()),
            locale: Some(locale.to_owned()),
        };
        flags.screen.settings(&env)
    }

    #[test]
    fn the_command_line_beats_the_environment() {
        let xterm = "xterm-256color";
        assert_eq!(settings(&[], None, xterm, "C.UTF-8").color, ColorMode::Named);
        assert_eq!(settings(&[], Some("1"), xterm, "C.UTF-8").color, ColorMode::Mono);
        assert_eq!(
            settings(&[], Some(""), xterm, "C.UTF-8").color,
            ColorMode::Named,
            "empty counts as unset"
        );
        assert_eq!(settings(&["--color", "always"], Some("1"), xterm, "").color, ColorMode::Named);
        assert_eq!(settings(&["--color", "256"], Some("1"), xterm, "").color, ColorMode::Indexed);
        assert_eq!(settings(&[], None, "dumb", "C.UTF-8").color, ColorMode::Mono);
        assert_eq!(settings(&[], None, xterm, "POSIX").glyphs, GlyphSet::Ascii);
        assert_eq!(settings(&["--glyphs", "braille"], None, "dumb", "").glyphs, GlyphSet::Braille);
    }
}
