//! Decodes what the terminal sends, byte by byte, into keys, wheel steps, clicks and pastes.
//!
//! A pure state machine; its owner keeps the time. Two promises that crossterm's parser, which
//! waits forever for the end of a sequence, cannot keep:
//!
//! * A fragment of a sequence ends at the next control byte, or when [`Decoder::idle`] says that
//!   nothing has followed it. The control byte is obeyed.
//! * Nothing grows with the input: sequences keep `MAX_SEQUENCE` bytes, pastes [`MAX_PASTE`].
//!
//! Only what the keymap and the prompts can use has a meaning; every other sequence is read to its
//! end and dropped: function keys, focus, answers to queries that others sent.

mod sequence;

use crate::view::action::{Key, Pasted, Step};
use sequence::{Parameters, arrow, control, csi, mouse};

/// Bytes of a sequence's parameters that are kept.
const MAX_SEQUENCE: usize = 32;
/// Bytes of a paste that are kept; no prompt takes more.
pub const MAX_PASTE: usize = 4096;
/// Start and end of a paste.
const PASTE: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";
/// No key sends more bytes than this.
const LONGEST_KEY: usize = 8;

const CTRL_C: u8 = 0x03;
const ESC: u8 = 0x1b;

/// Something that the user did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A key.
    Key(Key),
    /// The wheel was turned by one notch.
    Wheel(Step),
    /// The left button was pressed at a column and a row.
    Click(u16, u16),
    /// Text was pasted.
    Paste(Pasted),
}

/// The position of the next byte in a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// In none.
    #[default]
    Ground,
    /// After ESC.
    Escape,
    /// After ESC `[`.
    Csi,
    /// After ESC `O`.
    Ss3,
    /// After ESC `[[`, a function key of the Linux console.
    Console,
    /// After ESC `[M`: three bytes of the oldest mouse protocol.
    OldMouse,
    /// In an answer (OSC, DCS, APC, PM, SOS), which ends with BEL or ESC `\`.
    Answer,
    /// After an ESC in one.
    AnswerEscape,
    /// In a character of this many bytes.
    Character(u8),
    /// Between the brackets of a paste.
    Paste,
}

/// Bytes to [`Input`].
#[derive(Debug, Default)]
pub struct Decoder {
    state: State,
    /// Parameters, or the bytes of a character.
    sequence: Vec<u8>,
    /// The paste so far.
    text: Vec<u8>,
    lines: Lines,
    /// Number of bytes of [`PASTE_END`] that the paste ends with.
    matched: usize,
    /// What came behind the end of the paste without a pause: more of it, if it ends once more. A
    /// terminal may let an end through that is part of the pasted text, and the rest must not be
    /// taken for keys.
    behind: Option<Vec<u8>>,
    /// The paste has stopped without its end.
    stalled: bool,
    /// The last paste was broken off: what comes next may be the rest of it.
    broken_off: bool,
}

impl Decoder {
    /// Takes what one read returned.
    pub fn feed(&mut self, bytes: &[u8], out: &mut impl FnMut(Input)) {
        if self.stalled && self.is_typed(bytes) {
            self.end_paste(out);
        }
        self.stalled = false;
        for &b in bytes {
            if self.state == State::Paste {
                self.paste(b, out);
            } else {
                self.byte(b, out);
            }
        }
    }

    /// Nothing has come for a while: what was begun is complete.
    pub fn idle(&mut self, out: &mut impl FnMut(Input)) {
        match self.state {
            State::Paste if self.behind.is_some() => {
                let mut typed = self.behind.take().unwrap_or_default();
                typed.extend(PASTE_END.iter().take(self.matched));
                self.end_paste(out);
                for b in typed {
                    self.byte(b, out);
                }
                self.abandon(out);
            }
            State::Paste if self.matched == 1 => {
                self.end_paste(out);
                out(Input::Key(Key::Esc));
            }
            // The link may be slow, and the rest would act as keys: wait for something that looks
            // typed.
            State::Paste => self.stalled = true,
            _ => self.abandon(out),
        }
    }

    /// Whether [`Self::idle`] would change anything.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        match self.state {
            State::Ground => false,
            State::Paste => !self.stalled || self.matched == 1 || self.behind.is_some(),
            _ => true,
        }
    }

    /// Whether the rest of a paste may still come.
    #[must_use]
    pub fn is_owed_text(&self) -> bool {
        self.state == State::Paste || self.broken_off
    }

    /// The fragment is over.
    fn abandon(&mut self, out: &mut impl FnMut(Input)) {
        if self.state == State::Escape {
            out(Input::Key(Key::Esc));
        }
        self.state = State::Ground;
        self.sequence.clear();
    }

    fn byte(&mut self, b: u8, out: &mut impl FnMut(Input)) {
        match (self.state, b) {
            (State::Answer, ESC) => self.state = State::AnswerEscape,
            (State::AnswerEscape, b'\\') | (State::Answer, 0x07) => self.abandon(out),
            // Alt and backspace: shells delete a word.
            (State::Escape, 0x08 | 0x7f) => {
                self.state = State::Ground;
                out(Input::Key(Key::Ctrl('w')));
            }
            (_, ESC) => {
                self.abandon(out);
                self.state = State::Escape;
            }
            (_, 0..=0x1f | 0x7f) => {
                self.abandon(out);
                out(Input::Key(control(b)));
            }
            (State::Ground, _) => self.character(b, out),
            (State::Escape, b'[') => self.state = State::Csi,
            (State::Escape, b'O') => self.state = State::Ss3,
            (State::Escape, b']' | b'P' | b'_' | b'^' | b'X') => self.state = State::Answer,
            (State::Answer, _) => {}
            (State::AnswerEscape, _) => {
                self.state = State::Escape;
                self.byte(b, out);
            }
            (State::Character(n), 0x80..=0xbf) => {
                self.sequence.push(b);
                if self.sequence.len() >= usize::from(n) {
                    self.end_character(out);
                }
            }
            (State::OldMouse, _) => {
                self.sequence.push(b);
                if let [b, x, y] = self.sequence[..] {
                    let place = |b: u8| u32::from(b).saturating_sub(32);
                    mouse(place(b), place(x), place(y), true).map(&mut *out);
                    self.abandon(out);
                }
            }
            // A character is cut short. After ESC: Alt and a key, to which nothing is bound, or
            // Escape and a key in one packet.
            (State::Escape | State::Character(_), _) | (_, 0x80..) => {
                self.abandon(out);
                self.character(b, out);
            }
            (State::Csi, b'[') if self.sequence.is_empty() => self.state = State::Console,
            (State::Csi, b'M') if self.sequence.is_empty() => self.state = State::OldMouse,
            (State::Csi | State::Ss3, 0x20..=0x3f) => {
                if self.sequence.len() < MAX_SEQUENCE {
                    self.sequence.push(b);
                }
            }
            (State::Csi, _) => self.end_csi(b, out),
            (State::Ss3, _) => {
                arrow(b).map(Input::Key).map(&mut *out);
                self.abandon(out);
            }
            (State::Console | State::Paste, _) => self.abandon(out),
        }
    }

    /// A byte that is part of a character.
    fn character(&mut self, b: u8, out: &mut impl FnMut(Input)) {
        let long = match b {
            0x20..=0x7e => return out(Input::Key(Key::Char(char::from(b)))),
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            // Never the beginning of one.
            _ => return,
        };
        self.sequence.push(b);
        self.state = State::Character(long);
    }

    fn end_character(&mut self, out: &mut impl FnMut(Input)) {
        let c = std::str::from_utf8(&self.sequence).ok().and_then(|s| s.chars().next());
        if let Some(c) = c.filter(|c| !c.is_control()) {
            out(Input::Key(Key::Char(c)));
        }
        self.abandon(out);
    }

    fn end_csi(&mut self, end: u8, out: &mut impl FnMut(Input)) {
        let sequence = std::mem::take(&mut self.sequence);
        self.state = State::Ground;
        // What does not fit is no sequence that means anything here.
        if sequence.len() < MAX_SEQUENCE {
            let p = Parameters::of(&sequence);
            if (p.private, end, p.at(0)) == (None, b'~', 200) {
                self.state = State::Paste;
            } else {
                csi(&p, end, out);
            }
        }
        // Its memory is reused for the next one.
        self.sequence = sequence;
        self.sequence.clear();
    }

    /// A byte of a paste, or of what follows its end without a pause.
    fn paste(&mut self, b: u8, out: &mut impl FnMut(Input)) {
        if PASTE_END.get(self.matched) == Some(&b) {
            self.matched += 1;
            if self.matched < PASTE_END.len() {
                return;
            }
            self.matched = 0;
            self.go_on();
            self.behind = Some(Vec::new());
            return;
        }
        // What looked like the end was not.
        for b in PASTE_END.iter().take(std::mem::take(&mut self.matched)) {
            self.put(*b, out);
        }
        match b {
            // Wherever it comes.
            CTRL_C => {
                self.drop_paste();
                self.broken_off = true;
                out(Input::Key(Key::Ctrl('c')));
            }
            ESC => self.matched = 1,
            _ => self.put(b, out),
        }
    }

    fn put(&mut self, b: u8, out: &mut impl FnMut(Input)) {
        let Some(behind) = &mut self.behind else { return self.keep(b) };
        behind.push(b);
        if behind.as_slice() == PASTE {
            self.end_paste(out);
            self.state = State::Paste;
        } else if behind.len() >= MAX_PASTE || behind.ends_with(PASTE) {
            // Nobody types that much without a pause, or pastes so soon after a key.
            self.go_on();
        }
    }

    /// What came behind an end was pasted, too.
    fn go_on(&mut self) {
        for b in self.behind.take().unwrap_or_default() {
            self.keep(b);
        }
    }

    fn keep(&mut self, b: u8) {
        self.lines.take(b);
        if self.text.len() < MAX_PASTE {
            self.text.push(b);
        }
    }

    fn end_paste(&mut self, out: &mut impl FnMut(Input)) {
        let lines = self.lines.count();
        if lines > 0 {
            let text = String::from_utf8_lossy(&self.text).into_owned();
            out(Input::Paste(Pasted { text, lines }));
        }
        self.drop_paste();
    }

    fn drop_paste(&mut self) {
        let Self { sequence, .. } = std::mem::take(self);
        self.sequence = sequence;
    }

    /// Whether this, after a paste that stopped without its end, is a key: a single one, because a
    /// paste that continues comes in bursts.
    fn is_typed(&self, bytes: &[u8]) -> bool {
        let end = PASTE_END.get(self.matched..).unwrap_or_default();
        if end.starts_with(bytes) || bytes.starts_with(end) {
            return false;
        }
        match bytes {
            [ESC, ..] => bytes.len() <= LONGEST_KEY,
            _ => bytes.len() <= 4 && std::str::from_utf8(bytes).is_ok_and(is_one),
        }
    }
}

fn is_one(s: &str) -> bool {
    s.chars().count() == 1
}

/// Counts lines, whichever way they end.
#[derive(Debug, Default)]
struct Lines {
    ended: usize,
    /// There is something after the last end.
    open: bool,
    /// The last byte.
    last: u8,
}

impl Lines {
    fn take(&mut self, b: u8) {
        match b {
            b'\n' if self.last == b'\r' => {}
            b'\r' | b'\n' => {
                self.ended += 1;
                self.open = false;
            }
            _ => self.open = true,
        }
        self.last = b;
    }
    fn count(&self) -> usize {
        self.ended + usize::from(self.open)
    }
}

#[cfg(test)]
mod tests;
