//! Editing a line: the keys of a shell.

use super::action::Key;
use super::state::Input;

impl Input {
    /// A key was pressed; true when the line is another one now. Takes `max` characters.
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
