//! Glyph sets for bars, shades and lines, down to plain ASCII.

use clap::ValueEnum;
use clap::builder::PossibleValue;

/// Which characters the terminal can show. Shades are blocks and frames lines, but in ASCII.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GlyphSet {
    /// Braille dots: the finest.
    Braille,
    /// Eighth blocks.
    #[default]
    Block,
    /// ASCII only.
    Ascii,
}

/// What the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GlyphChoice {
    /// By locale and `TERM`.
    #[default]
    Auto,
    /// This set, whatever the environment says.
    Set(GlyphSet),
}

impl ValueEnum for GlyphChoice {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: &[GlyphChoice] = &[
            GlyphChoice::Auto,
            GlyphChoice::Set(GlyphSet::Braille),
            GlyphChoice::Set(GlyphSet::Block),
            GlyphChoice::Set(GlyphSet::Ascii),
        ];
        ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Auto => Some(PossibleValue::new("auto").help("By locale and TERM")),
            Self::Set(set) => set.to_possible_value(),
        }
    }
}

impl GlyphSet {
    /// From the choice, the locale and `TERM`, as [`GlyphSet::detect`] takes them.
    #[must_use]
    pub fn resolve(choice: GlyphChoice, locale: Option<&str>, term: Option<&str>) -> Self {
        match choice {
            GlyphChoice::Auto => Self::detect(locale, term),
            GlyphChoice::Set(set) => set,
        }
    }

    /// Guesses from `LC_ALL`, `LC_CTYPE` or `LANG` (whichever is set first) and `TERM`.
    #[must_use]
    pub fn detect(locale: Option<&str>, term: Option<&str>) -> Self {
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        let utf8 = locale.contains("utf-8") || locale.contains("utf8");
        match term.unwrap_or_default() {
            // The fonts of the Linux console have few of the bars.
            "dumb" | "vt100" | "vt102" | "vt220" | "linux" => Self::Ascii,
            _ if !utf8 => Self::Ascii,
            _ => Self::Block,
        }
    }

    /// A bar of 0 to 8 eighths.
    #[must_use]
    pub fn bar(self, level: Option<u8>) -> char {
        const BLOCK: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const BRAILLE: [char; 9] = [' ', '⣀', '⣀', '⣤', '⣤', '⣶', '⣶', '⣿', '⣿'];
        const ASCII: [char; 9] = [' ', '_', '.', ':', '-', '=', '+', '*', '#'];
        let Some(level) = level else { return ' ' };
        let set = match self {
            Self::Braille => BRAILLE,
            Self::Block => BLOCK,
            Self::Ascii => ASCII,
        };
        set.get(usize::from(level)).copied().unwrap_or(set[8])
    }

    /// A shade of 0 to 4.
    #[must_use]
    pub fn shade(self, level: u8) -> char {
        let set = match self {
            Self::Ascii => [' ', '.', '+', '*', '#'],
            _ => [' ', '░', '▒', '▓', '█'],
        };
        set.get(usize::from(level)).copied().unwrap_or(set[4])
    }

    /// The replacement of a grapheme; `None` to draw it as it is. What ASCII cannot show becomes
    /// `?`, once per column.
    #[must_use]
    pub fn replace(self, grapheme: &str) -> Option<char> {
        if self != Self::Ascii || grapheme.is_ascii() {
            return None;
        }
        Some(match grapheme {
            "─" | "┄" => '-',
            "━" => '=',
            "│" | "▏" => '|',
            "┃" | "▴" => '^',
            "┌" | "┐" | "┘" => '+',
            "└" => '`',
            "·" => '.',
            "…" => '~',
            "▾" => 'v',
            _ => '?',
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_is_ascii() {
        for l in 0..=9 {
            assert!(GlyphSet::Ascii.bar(Some(l)).is_ascii());
            assert!(GlyphSet::Ascii.shade(l).is_ascii());
        }
        assert_eq!(GlyphSet::Ascii.replace("数"), Some('?'));
        assert_eq!(GlyphSet::Ascii.replace("a"), None);
        assert_eq!(GlyphSet::Block.replace("─"), None);
    }

    #[test]
    fn the_locale_decides() {
        use GlyphSet::{Ascii, Block};
        assert_eq!(GlyphSet::detect(Some("en_US.UTF-8"), Some("xterm-256color")), Block);
        assert_eq!(GlyphSet::detect(Some("C"), Some("xterm")), Ascii);
        assert_eq!(GlyphSet::detect(None, None), Ascii);
        assert_eq!(GlyphSet::detect(Some("C.UTF-8"), Some("dumb")), Ascii);
        assert_eq!(GlyphSet::detect(Some("C.UTF-8"), Some("linux")), Ascii);
    }
}
