//! Themes: what a tone looks like, with the terminal's sixteen named colours, 256 colours, or none.
//! Weight and marks carry the meaning; colour only repeats it.

use ratatui::style::{Color, Modifier, Style};

use crate::view::vm::{LineStyle, Tone};

/// How many colours to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorMode {
    /// None: bold, dim and reverse remain.
    Mono,
    /// The sixteen named ones, as the terminal defines them.
    #[default]
    Named,
    /// The 256-colour palette.
    Indexed,
}

/// What the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    /// By NO_COLOR and TERM.
    #[default]
    Auto,
    /// The 16 named colours.
    Always,
    /// No colours.
    Never,
    /// 256 colours.
    #[value(name = "256")]
    Indexed,
}

impl ColorMode {
    /// From the choice, `NO_COLOR` (set and not empty) and `TERM`.
    #[must_use]
    pub fn resolve(choice: ColorChoice, no_color: Option<&str>, term: Option<&str>) -> Self {
        match choice {
            ColorChoice::Always => Self::Named,
            ColorChoice::Never => Self::Mono,
            ColorChoice::Indexed => Self::Indexed,
            ColorChoice::Auto => {
                let plain = matches!(term, None | Some("" | "dumb" | "vt100" | "vt102" | "vt220"));
                if plain || no_color.is_some_and(|v| !v.is_empty()) {
                    Self::Mono
                } else {
                    Self::Named
                }
            }
        }
    }
}

/// Which colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Palette {
    /// Those that the terminal calls so.
    #[default]
    Terminal,
    /// Bright ones, and nothing dim.
    Contrast,
    /// For a light background: no yellow, no cyan.
    Light,
}

/// Colours and glyphs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Theme {
    /// Colours.
    pub color: ColorMode,
    /// Which ones.
    pub palette: Palette,
    /// Characters.
    pub glyphs: super::glyphs::GlyphSet,
}

impl Theme {
    fn color(self, named: Color, indexed: u8) -> Color {
        match self.color {
            ColorMode::Mono => Color::Reset,
            ColorMode::Named => named,
            ColorMode::Indexed => Color::Indexed(indexed),
        }
    }

    fn accent(self) -> Color {
        match self.palette {
            Palette::Terminal => self.color(Color::Cyan, 75),
            Palette::Contrast => self.color(Color::LightCyan, 123),
            Palette::Light => self.color(Color::Blue, 25),
        }
    }
    /// On white, yellow cannot be read.
    fn warn(self) -> Color {
        match self.palette {
            Palette::Terminal => self.color(Color::Yellow, 214),
            Palette::Contrast => self.color(Color::LightYellow, 226),
            Palette::Light => self.color(Color::Magenta, 130),
        }
    }
    fn crit(self) -> Color {
        match self.palette {
            Palette::Terminal => self.color(Color::Red, 203),
            Palette::Contrast => self.color(Color::LightRed, 196),
            Palette::Light => self.color(Color::Red, 160),
        }
    }

    /// How text of a tone looks.
    #[must_use]
    pub fn tone(self, t: Tone) -> Style {
        let s = Style::new();
        match t {
            Tone::Plain => s,
            // Not dark grey: many palettes make it the background.
            Tone::Dim if self.palette == Palette::Contrast => s,
            Tone::Dim => s.add_modifier(Modifier::DIM),
            Tone::Strong => s.add_modifier(Modifier::BOLD),
            Tone::Accent => s.fg(self.accent()).add_modifier(Modifier::BOLD),
            Tone::Key | Tone::Info => s.fg(self.accent()),
            Tone::Warn => s.fg(self.warn()).add_modifier(Modifier::BOLD),
            Tone::Crit => {
                let m = match self.color {
                    ColorMode::Mono => Modifier::BOLD | Modifier::UNDERLINED,
                    _ => Modifier::BOLD,
                };
                s.fg(self.crit()).add_modifier(m)
            }
        }
    }

    /// How charts of a tone look.
    #[must_use]
    pub fn chart(self, t: Tone) -> Style {
        match t {
            Tone::Plain => Style::new().fg(self.color(Color::Blue, 67)),
            other => self.tone(other),
        }
    }

    /// What the style of a whole line adds to its pieces.
    #[must_use]
    pub fn line(self, s: LineStyle) -> Style {
        match s {
            LineStyle::Normal | LineStyle::Header => Style::new(),
            LineStyle::Selected => Style::new().add_modifier(Modifier::REVERSED),
        }
    }

    /// Borders.
    #[must_use]
    pub fn border(self, focused: bool) -> Style {
        self.tone(if focused { Tone::Accent } else { Tone::Dim })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_poor_terminals_get_no_colours() {
        let auto = |nc, term| ColorMode::resolve(ColorChoice::Auto, nc, term);
        assert_eq!(auto(None, Some("xterm-256color")), ColorMode::Named);
        assert_eq!(auto(Some("1"), Some("xterm")), ColorMode::Mono);
        assert_eq!(auto(Some(""), Some("xterm")), ColorMode::Named);
        assert_eq!(auto(None, Some("dumb")), ColorMode::Mono);
        let always = ColorMode::resolve(ColorChoice::Always, Some("1"), Some("dumb"));
        assert_eq!(always, ColorMode::Named);
    }

    #[test]
    fn mono_has_no_colour_at_all() {
        let t = Theme { color: ColorMode::Mono, ..Theme::default() };
        let tones = [Tone::Accent, Tone::Key, Tone::Info, Tone::Warn, Tone::Crit];
        for tone in tones {
            assert!(matches!(t.tone(tone).fg, None | Some(Color::Reset)));
        }
        assert!(t.line(LineStyle::Selected).add_modifier.contains(Modifier::REVERSED));
    }
}
