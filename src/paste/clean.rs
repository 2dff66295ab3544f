//! Cleans one raw line: undoes what terminals, chat programs, editors and locales do to text,
//! before any format is tried.
//!
//! Colour codes are removed, unusual spaces become spaces, full-width and Arabic digits become
//! digits. Control characters are removed, so nothing that is echoed later can move a cursor.
//! UTF-16 of ASCII text comes out right, because its NUL bytes are control characters too.

/// The line as plain text, with tabs, without trailing blanks. Borrows if nothing changed.
pub(super) fn clean<'a>(raw: &'a [u8], buf: &'a mut String) -> &'a str {
    if raw.iter().all(|b| matches!(b, b' '..=b'~' | b'\t'))
        && let Ok(text) = std::str::from_utf8(raw)
    {
        return text.trim_end();
    }
    buf.clear();
    let text = String::from_utf8_lossy(raw);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => escape(&mut chars),
            '\u{9b}' => sequence(&mut chars),
            '\u{8}' => {
                buf.pop();
            }
            // Some locales separate groups of digits with it.
            '\u{202f}' => {
                let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
                if !(digit(buf.chars().next_back()) && digit(chars.peek().copied())) {
                    buf.push(' ');
                }
            }
            // A byte order mark, or half of a character.
            '\u{fffd}' if buf.is_empty() => {}
            _ => push(buf, c),
        }
    }
    buf.trim_end()
}

fn push(buf: &mut String, c: char) {
    match c {
        '\t' | ' '..='~' => buf.push(c),
        // The last ones are borders of panes.
        '\u{a0}'
        | '\u{1680}'
        | '\u{2000}'..='\u{200a}'
        | '\u{205f}'
        | '\u{3000}'
        | '\u{2500}'..='\u{257f}' => buf.push(' '),
        '\u{ff01}'..='\u{ff5e}' => buf.extend(char::from_u32(c as u32 - 0xfee0)),
        '\u{660}'..='\u{669}' => digit(buf, c, 0x660),
        '\u{6f0}'..='\u{6f9}' => digit(buf, c, 0x6f0),
        '\u{966}'..='\u{96f}' => digit(buf, c, 0x966),
        '\u{66b}' => buf.push('.'),
        '\u{66c}' => {}
        '\u{66a}' => buf.push('%'),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => buf.push('-'),
        '\u{2018}' | '\u{2019}' => buf.push('\''),
        '\u{201c}' | '\u{201d}' => buf.push('"'),
        c if crate::text::is_plain(c) => buf.push(c),
        _ => {}
    }
}

fn digit(buf: &mut String, c: char, zero: u32) {
    buf.extend(char::from_digit((c as u32).wrapping_sub(zero), 10));
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// What follows an ESC.
fn escape(chars: &mut Chars<'_>) {
    match chars.next() {
        Some('[') => sequence(chars),
        Some(']' | 'P' | '^' | '_' | 'X') => {
            // Up to BEL or ESC \. An unfinished one takes the rest of the line, as on a terminal.
            while let Some(c) = chars.next() {
                if c == '\u{7}' || c == '\u{9c}' {
                    return;
                }
                if c == '\u{1b}' {
                    chars.next_if_eq(&'\\');
                    return;
                }
            }
        }
        Some('(' | ')' | '#' | '%') => {
            chars.next();
        }
        _ => {}
    }
}

/// Parameters and final byte of a control sequence.
fn sequence(chars: &mut Chars<'_>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(raw: &[u8]) -> String {
        clean(raw, &mut String::new()).to_owned()
    }

    #[test]
    fn what_terminals_and_locales_add_is_undone() {
        assert_eq!(plain(b"\x1b[1;31mESTAB\x1b[0m 0\t1  "), "ESTAB 0\t1");
        assert_eq!(plain(b"\x1b]0;title\x07vda \x1b(B1,5"), "vda 1,5");
        assert_eq!(plain("a\u{a0}b\u{3000}c".as_bytes()), "a b c");
        assert_eq!(plain("1\u{202f}234,5\u{202f}x".as_bytes()), "1234,5 x");
        assert_eq!(plain("ｕｔｉｌ：１２％ ٣٫٤".as_bytes()), "util:12% 3.4");
        assert_eq!(plain(b"abc\x08\x08d\x00"), "ad");
        assert_eq!(plain(b"\xff\xfeE\x00S\x00"), "ES");
        assert_eq!(plain("\u{feff}r/s \u{2212}1".as_bytes()), "r/s -1");
        assert_eq!(plain("数据库".as_bytes()), "数据库");
    }

    proptest! {
        #[test]
        fn no_control_survives(raw in proptest::collection::vec(any::<u8>(), 0..80)) {
            let text = plain(&raw);
            prop_assert!(text.chars().all(|c| c == '\t' || crate::text::is_plain(c)));
            prop_assert_eq!(plain(text.as_bytes()), text);
        }
    }
}
