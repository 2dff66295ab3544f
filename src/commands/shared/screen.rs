//! `--color`, `--glyphs`, `--mouse`: how the console looks, live and over a recording; and what it
//! leaves on the normal screen.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use jiff::tz::TimeZone;

use super::environment::Environment;
use super::output::{print, say};
use super::settings::{Flags, Settings};
use crate::ui::{
    ColorChoice, ColorMode, ConsoleSettings, ExitReason, ExitSummary, GlyphChoice, GlyphSet,
    MouseMode, Palette,
};

/// How the console looks.
#[derive(Args, Debug)]
pub(crate) struct Screen {
    /// Colours; auto, as without this, follows NO_COLOR and TERM.
    #[arg(long, value_enum)]
    color: Option<ColorChoice>,
    /// Which colours; terminal, as without this, has those that the terminal calls so.
    #[arg(long, value_enum)]
    theme: Option<Palette>,
    /// Glyphs for charts and borders; auto, as without this, follows the locale.
    #[arg(long, value_enum)]
    glyphs: Option<GlyphChoice>,
    /// Select panes and rows with the mouse; selecting text then needs Shift.
    #[arg(long)]
    mouse: bool,
}

impl Screen {
    /// What was said here and in the file of settings.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub(crate) fn chosen(
        &self,
        interval: Option<Duration>,
        env: &Environment,
    ) -> anyhow::Result<Settings> {
        let flags = Flags {
            interval,
            color: self.color,
            palette: self.theme,
            glyphs: self.glyphs,
            mouse: self.mouse.then_some(MouseMode::On),
        };
        Settings::read(flags, env)
    }
}

/// What the console obeys.
pub(crate) fn obeyed(chosen: Settings, env: &Environment) -> ConsoleSettings {
    let (no_color, locale, term) =
        (env.no_color.as_deref(), env.locale.as_deref(), env.term.as_deref());
    ConsoleSettings {
        color: ColorMode::resolve(chosen.color.value, no_color, term),
        palette: chosen.palette.value,
        glyphs: GlyphSet::resolve(chosen.glyphs.value, locale, term),
        mouse: chosen.mouse.value,
        keys: chosen.keys,
        columns: chosen.columns,
        tz: TimeZone::system(),
        write_dir: PathBuf::from("."),
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
            config_home: None,
        };
        obeyed(flags.screen.chosen(None, &env).unwrap(), &env)
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
