//! Line editing with the keys of a shell.

use super::action::Key;
use super::state::Input;
use crate::text::is_plain;

impl Input {
    /// Handles a key; true if the line changed. A line holds at most `max` characters.
    pub(super) fn edit(&mut self, key: Key, max: usize) -> bool {
        let before = self.text.len();
        match key {
            Key::Char(c) if self.text.len() < max && !c.is_control() => {
                self.text.insert(self.at, c);
                self.at += 1;
            }
            Key::Backspace if self.at > 0 => {
                self.at -= 1;
                self.text.remove(self.at);
            }
            Key::Delete if self.at < self.text.len() => {
                self.text.remove(self.at);
            }
            Key::Left => self.at = self.at.saturating_sub(1),
            Key::Right => self.at = (self.at + 1).min(self.text.len()),
            Key::Home | Key::Ctrl('a') => self.at = 0,
            Key::End | Key::Ctrl('e') => self.at = self.text.len(),
            Key::Ctrl('u') => {
                self.text.drain(..self.at);
                self.at = 0;
            }
            Key::Ctrl('w') => self.cut_word(),
            _ => {}
        }
        self.text.len() != before
    }

    /// Inserts pasted text at the cursor as one line: line ends and tabs become spaces, control
    /// characters are left out. A line holds at most `max` characters.
    pub(super) fn paste(&mut self, text: &str, max: usize) {
        let lines = text.split(['\r', '\n', '\t']).map(str::trim).filter(|l| !l.is_empty());
        let line = lines.collect::<Vec<_>>().join(" ");
        let room = max.saturating_sub(self.text.len());
        let before = self.text.len();
        self.text.splice(self.at..self.at, line.chars().filter(|c| is_plain(*c)).take(room));
        self.at += self.text.len() - before;
    }

    fn cut_word(&mut self) {
        let end = self.at;
        while self.at > 0 && self.text[self.at - 1] == ' ' {
            self.at -= 1;
        }
        while self.at > 0 && self.text[self.at - 1] != ' ' {
            self.at -= 1;
        }
        self.text.drain(self.at..end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paste_becomes_one_line_at_the_cursor() {
        let mut line = Input::new("ab");
        line.edit(Key::Left, 20);
        line.paste("  1\r\n\t2\t3\u{1b}[2J\u{202e}\n", 20);
        assert_eq!(line.string(), "a1 2 3[2Jb");
        line.edit(Key::Char('x'), 20);
        assert_eq!(line.string(), "a1 2 3[2Jxb", "the cursor stands behind what was pasted");
        line.paste("0123456789", 20);
        assert_eq!(line.string(), "a1 2 3[2Jx012345678b", "as much as it takes");
        line.paste("more\r\n", 20);
        assert_eq!(line.text.len(), 20);
    }
}
