//! From what was typed and what the environment says to what the parts obey. The only reader
//! of environment variables.

use std::path::PathBuf;

use jiff::tz::TimeZone;

use crate::cli::{ColorArg, ConsoleArgs, GlyphArg, ReplayArgs};
use crate::ui::{ColorChoice, ColorMode, ConsoleSettings, GlyphSet, MouseMode};

/// The variables that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `NO_COLOR`.
    pub no_color: Option<String>,
    /// `TERM`.
    pub term: Option<String>,
    /// `LC_ALL`, `LC_CTYPE` or `LANG`: the first that is set and not empty.
    pub locale: Option<String>,
}

impl Environment {
    /// Of this process.
    #[must_use]
    pub fn read() -> Self {
        let var = |name| std::env::var(name).ok();
        let set = |name| var(name).filter(|v| !v.is_empty());
        Self {
            no_color: var("NO_COLOR"),
            term: var("TERM"),
            locale: set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")),
        }
    }
}

/// Settings of the console.
#[must_use]
pub fn console(args: &ConsoleArgs, env: &Environment) -> ConsoleSettings {
    screen(args.color, args.glyphs, args.mouse, env)
}

/// Settings of the console over a recording.
#[must_use]
pub fn replay(args: &ReplayArgs, env: &Environment) -> ConsoleSettings {
    screen(args.color, args.glyphs, args.mouse, env)
}

fn screen(color: ColorArg, glyphs: GlyphArg, mouse: bool, env: &Environment) -> ConsoleSettings {
    let color = match color {
        ColorArg::Auto => ColorChoice::Auto,
        ColorArg::Always => ColorChoice::Always,
        ColorArg::Never => ColorChoice::Never,
        ColorArg::Palette => ColorChoice::Indexed,
    };
    let glyphs = match glyphs {
        GlyphArg::Auto => GlyphSet::detect(env.locale.as_deref(), env.term.as_deref()),
        GlyphArg::Braille => GlyphSet::Braille,
        GlyphArg::Block => GlyphSet::Block,
        GlyphArg::Ascii => GlyphSet::Ascii,
    };
    ConsoleSettings {
        color: ColorMode::resolve(color, env.no_color.as_deref(), env.term.as_deref()),
        glyphs,
        mouse: if mouse { MouseMode::On } else { MouseMode::Off },
        tz: TimeZone::system(),
        write_dir: PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser as _;

    use super::*;

    fn settings(
        args: &[&str],
        no_color: Option<&str>,
        term: &str,
        locale: &str,
    ) -> ConsoleSettings {
        let cli = crate::cli::Cli::try_parse_from([&["stallscope"], args].concat()).unwrap();
        let env = Environment {
            no_color: no_color.map(str::to_owned),
            term: Some(term.to_owned()),
            locale: Some(locale.to_owned()),
        };
        console(&cli.console, &env)
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
