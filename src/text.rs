//! Untrusted text made safe to show. Process names, cgroup paths, device names and addresses
//! of files come from the kernel unchecked and may hold terminal escapes, newlines, or
//! characters that reverse the reading order. They are kept raw in samples and pass through
//! here once, on their way to a screen or a terminal.

use std::borrow::Cow;

/// Stands for a character that is not shown.
pub const REPLACEMENT: char = '\u{FFFD}';

/// `text` with every control, bidi-control and invisible formatting character replaced.
#[must_use]
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if is_plain(c) { c } else { REPLACEMENT }).collect())
}

/// Shown as it is: neither a control, a bidi control nor invisible formatting.
#[must_use]
pub fn is_plain(c: char) -> bool {
    !(c.is_control()
        || matches!(c,
            '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
            | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
            | '\u{FFA0}' | '\u{FFF9}'..='\u{FFFB}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_reversals_do_not_get_through() {
        assert_eq!(sanitize("java"), "java");
        assert_eq!(sanitize("\x1b[31mred\n"), "\u{FFFD}[31mred\u{FFFD}");
        assert_eq!(sanitize("a\u{202E}txt"), "a\u{FFFD}txt");
        assert_eq!(sanitize("数据库"), "数据库");
        assert_eq!(sanitize("\u{9b}31m"), "\u{FFFD}31m", "C1 controls are escapes too");
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_moves_the_cursor_survives(s: String) {
            proptest::prop_assert!(!sanitize(&s).chars().any(char::is_control));
        }
    }
}
