//! What a whole sequence means: control bytes, arrows, keys with modifiers, the mouse.

use super::Input;
use crate::view::action::{Key, Step};

/// Numbers between ESC `[` and the last byte.
pub(super) struct Parameters<'a> {
    /// Marks a private sequence: `<`, `=`, `>` or `?`.
    pub(super) private: Option<u8>,
    rest: &'a [u8],
}

impl<'a> Parameters<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        match bytes.split_first() {
            Some((&p @ b'<'..=b'?', rest)) => Self { private: Some(p), rest },
            _ => Self { private: None, rest: bytes },
        }
    }
    /// The part with this index of the parameter with that one; 0 when there is none.
    pub(super) fn part(&self, at: usize, part: usize) -> u32 {
        let parameter = self.rest.split(|b| *b == b';').nth(at).unwrap_or_default();
        let digits = parameter.split(|b| *b == b':').nth(part).unwrap_or_default();
        digits.iter().fold(0, |n: u32, b| match b {
            b'0'..=b'9' => n.saturating_mul(10).saturating_add(u32::from(b - b'0')),
            _ => n,
        })
    }
    pub(super) fn at(&self, at: usize) -> u32 {
        self.part(at, 0)
    }
    fn len(&self) -> usize {
        self.rest.split(|b| *b == b';').count()
    }
}

/// A whole sequence.
pub(super) fn csi(p: &Parameters<'_>, end: u8, out: &mut impl FnMut(Input)) {
    match (p.private, end) {
        (Some(b'<'), b'M' | b'm') => {
            mouse(p.at(0), p.at(1), p.at(2), end == b'M').map(out);
        }
        (Some(_), _) => {}
        // The mouse of rxvt.
        (None, b'M') if p.len() == 3 => {
            mouse(p.at(0).saturating_sub(32), p.at(1), p.at(2), true).map(out);
        }
        // Terminals that name every key by its code; `3` is a release.
        (None, b'u') if p.part(1, 1) != 3 => named(p.at(0), p.at(1), out),
        (None, b'~') if p.at(0) == 27 => named(p.at(2), p.at(1), out),
        (None, _) if p.part(1, 1) == 3 => {}
        (None, b'~') => {
            let key = match p.at(0) {
                1 | 7 => Key::Home,
                3 => Key::Delete,
                4 | 8 => Key::End,
                5 => Key::PageUp,
                6 => Key::PageDown,
                _ => return,
            };
            out(Input::Key(key));
        }
        (None, _) => {
            arrow(end).map(Input::Key).map(out);
        }
    }
}

/// The last byte of a key that has a name of its own, after ESC `[` and after ESC `O`.
pub(super) fn arrow(end: u8) -> Option<Key> {
    Some(match end {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'F' => Key::End,
        b'H' => Key::Home,
        b'Z' => Key::BackTab,
        _ => return None,
    })
}

/// A key by its code, with its modifiers: 1 plus 1 for shift, 2 for Alt, 4 for control.
fn named(code: u32, held: u32, out: &mut impl FnMut(Input)) {
    let held = held.saturating_sub(1);
    let (shift, alt, ctrl) = (held & 1 != 0, held & 2 != 0, held & 4 != 0);
    let key = match code {
        9 if shift => Key::BackTab,
        9 => Key::Tab,
        13 => Key::Enter,
        27 => Key::Esc,
        8 | 127 if alt => return out(Input::Key(Key::Ctrl('w'))),
        8 | 127 => Key::Backspace,
        // Keys without a character, such as those of the keypad.
        0xe000..=0xf8ff => return,
        _ => match char::from_u32(code) {
            Some(c) if c.is_control() => return,
            Some(c) if ctrl => Key::Ctrl(c.to_ascii_lowercase()),
            Some(c) if shift => Key::Char(c.to_ascii_uppercase()),
            Some(c) => Key::Char(c),
            None => return,
        },
    };
    if alt {
        out(Input::Key(Key::Esc));
    }
    out(Input::Key(key));
}

pub(super) fn control(b: u8) -> Key {
    match b {
        b'\r' => Key::Enter,
        b'\t' => Key::Tab,
        0x08 | 0x7f => Key::Backspace,
        _ => Key::Ctrl(char::from(b | 0x40).to_ascii_lowercase()),
    }
}

/// The wheel moves the cursor, the left button selects. Columns and rows count from 1.
pub(super) fn mouse(button: u32, x: u32, y: u32, pressed: bool) -> Option<Input> {
    // Shift, Alt and control do not matter; 32 is a motion, 64 the wheel.
    let place = |n: u32| u16::try_from(n.checked_sub(1)?).ok();
    match button & !0b1_1100 {
        0 if pressed => Some(Input::Click(place(x)?, place(y)?)),
        64 => Some(Input::Wheel(Step::Up)),
        65 => Some(Input::Wheel(Step::Down)),
        _ => None,
    }
}
