//! Makes names from the kernel harmless, measures them in columns, cuts them between graphemes.
//!
//! A process may call itself `\x1b[2J`, contain a right-to-left override, or take two columns per
//! letter. Nothing reaches a cell without passing [`clean`].

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::text::{REPLACEMENT, sanitize};

/// Shown in place of what was cut off.
pub const ELLIPSIS: char = '…';
/// Longest name that is processed, bytes: paths from the kernel are at most 4096.
const MAX_NAME: usize = 4096;
/// Most code points of one grapheme; more is an attack on the terminal's renderer.
const MAX_MARKS: usize = 8;

/// Makes a name harmless with [`sanitize`], and cuts what is beyond reason: 4 KiB, or more
/// marks on a letter than any language has.
#[must_use]
pub fn clean(raw: &str) -> Cow<'_, str> {
    let raw = &raw[..floor_boundary(raw, MAX_NAME)];
    if is_plain_ascii(raw) {
        return Cow::Borrowed(raw);
    }
    let safe = sanitize(raw);
    if safe.graphemes(true).all(|g| g.chars().count() <= MAX_MARKS) {
        return safe;
    }
    let piled = |g: &str| g.chars().count() > MAX_MARKS;
    let replacement = REPLACEMENT.to_string();
    Cow::Owned(safe.graphemes(true).map(|g| if piled(g) { &replacement } else { g }).collect())
}

/// The same for bytes that need not be UTF-8, such as UNIX socket names.
#[must_use]
pub fn clean_bytes(raw: &[u8]) -> String {
    clean(&String::from_utf8_lossy(&raw[..raw.len().min(MAX_NAME)])).into_owned()
}

fn floor_boundary(s: &str, max: usize) -> usize {
    if s.len() <= max {
        return s.len();
    }
    (0..=max).rev().find(|i| s.is_char_boundary(*i)).unwrap_or(0)
}

/// Columns that `s` takes.
#[must_use]
pub fn width(s: &str) -> usize {
    if s.is_ascii() { s.len() } else { graphemes(s).map(|(_, w)| w).sum() }
}

/// Graphemes with their columns.
pub fn graphemes(s: &str) -> impl Iterator<Item = (&str, usize)> {
    // Most cells of a screen are ASCII, of which every character is one.
    let (ascii, other) = if is_plain_ascii(s) { (s, "") } else { ("", s) };
    let each = (0..ascii.len()).map(|at| (&ascii[at..=at], 1));
    each.chain(other.graphemes(true).map(|g| (g, g.width())))
}

fn is_plain_ascii(s: &str) -> bool {
    s.bytes().all(|b| (0x20..0x7f).contains(&b))
}

/// Cuts `s` to `max` columns at a grapheme, with an ellipsis when something was lost.
#[must_use]
pub fn cut(s: &str, max: usize) -> Cow<'_, str> {
    if width(s) <= max {
        return Cow::Borrowed(s);
    }
    if max == 0 {
        return Cow::Borrowed("");
    }
    let mut out = String::new();
    let mut used = 0;
    for (g, w) in graphemes(s) {
        if used + w > max - 1 {
            break;
        }
        used += w;
        out.push_str(g);
    }
    out.push(ELLIPSIS);
    Cow::Owned(out)
}

/// Cuts from the front: the end of a path or address says more than its beginning.
#[must_use]
pub fn cut_front(s: &str, max: usize) -> Cow<'_, str> {
    if width(s) <= max {
        return Cow::Borrowed(s);
    }
    if max == 0 {
        return Cow::Borrowed("");
    }
    let mut tail = Vec::new();
    let mut used = 0;
    for g in s.graphemes(true).rev() {
        let w = g.width();
        if used + w > max - 1 {
            break;
        }
        used += w;
        tail.push(g);
    }
    let mut out = String::from(ELLIPSIS);
    out.extend(tail.into_iter().rev());
    Cow::Owned(out)
}

/// Cuts `address:port` inside the address: the port stays whole.
#[must_use]
pub fn cut_endpoint(s: &str, max: usize) -> Cow<'_, str> {
    cut_before(s, ':', max)
}

/// Cuts `comm/tid` inside the name: the number stays whole.
#[must_use]
pub fn cut_task(s: &str, max: usize) -> Cow<'_, str> {
    cut_before(s, '/', max)
}

fn cut_before(s: &str, separator: char, max: usize) -> Cow<'_, str> {
    if width(s) <= max {
        return Cow::Borrowed(s);
    }
    let Some(at) = s.rfind(separator) else { return cut(s, max) };
    let (addr, port) = s.split_at(at);
    let room = max.saturating_sub(port.len());
    if room < 2 {
        return cut_front(s, max);
    }
    Cow::Owned(format!("{}{port}", cut(addr, room)))
}

/// Breaks `s` into lines of at most `max` columns, at blanks where possible.
#[must_use]
pub fn wrap(s: &str, max: usize) -> Vec<String> {
    let max = max.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in s.split(' ').filter(|w| !w.is_empty()) {
        let w = width(word);
        if used > 0 && used + 1 + w > max {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        for (g, gw) in graphemes(word) {
            if used + gw > max && used > 0 {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push_str(g);
            used += gw;
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hostile_names_lose_their_teeth() {
        assert_eq!(clean("nginx: worker"), "nginx: worker");
        assert_eq!(clean("a\x1b[2Jb\nc\u{9b}d"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d");
        assert_eq!(clean("\u{202e}evil\u{2066}"), "\u{fffd}evil\u{fffd}");
        assert_eq!(clean("naïve 数据库"), "naïve 数据库");
        let zalgo = format!("e{}", "\u{301}".repeat(50));
        assert_eq!(clean(&zalgo), "\u{fffd}");
    }

    #[test]
    fn cuts_fall_between_graphemes() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("数据库", 4), "数…");
        assert_eq!(cut("数据库", 6), "数据库");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(cut_front("/kube/pod7/x", 6), "…od7/x");
        assert_eq!(cut_endpoint("[2001:db8::1:2:3]:443", 12), "[2001:d…:443");
        assert_eq!(cut_endpoint("10.0.3.7:3306", 13), "10.0.3.7:3306");
        assert_eq!(cut_task("kworker/u8:2-ext4-rsv-conv/75", 18), "kworker/u8:2-e…/75");
    }

    #[test]
    fn wrapping_keeps_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("", 3), [""]);
    }

    proptest! {
        #[test]
        fn nothing_harmful_passes_and_cuts_fit(s in "\\PC*|[ -~]*|[\\x00-\\x9f\u{200b}-\u{2069}数é\u{301}]*", max in 0usize..40) {
            let c = clean(&s);
            prop_assert_eq!(&*sanitize(&c), &*c, "clean text stays as it is");
            prop_assert!(!c.chars().any(char::is_control));
            let slow: Vec<_> = c.graphemes(true).map(|g| (g, g.width())).collect();
            prop_assert_eq!(graphemes(&c).collect::<Vec<_>>(), slow);
            prop_assert!(width(&cut(&c, max)) <= max);
            prop_assert!(width(&cut_front(&c, max)) <= max);
            prop_assert!(width(&cut_endpoint(&c, max)) <= max);
        }
    }
}
