//! Keys and mouse from crossterm's events to ours.

use crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use crate::view::action::{Action, Key, Step};

/// A key press; `None` for releases and keys that mean nothing here.
pub(super) fn key(e: KeyEvent) -> Option<Key> {
    if e.kind == KeyEventKind::Release {
        return None;
    }
    let ctrl = e.modifiers.contains(KeyModifiers::CONTROL);
    Some(match e.code {
        KeyCode::Char(c) if ctrl => Key::Ctrl(c.to_ascii_lowercase()),
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Esc,
        KeyCode::Tab if e.modifiers.contains(KeyModifiers::SHIFT) => Key::BackTab,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Delete => Key::Delete,
        _ => return None,
    })
}

/// What the mouse asks for.
pub(super) enum Mouse {
    /// As a key would.
    Do(Action),
    /// A click at this column and row.
    Click(u16, u16),
}

/// The wheel moves the cursor, the left button selects.
pub(super) fn mouse(e: MouseEvent) -> Option<Mouse> {
    match e.kind {
        MouseEventKind::ScrollDown => Some(Mouse::Do(Action::Move(Step::Down))),
        MouseEventKind::ScrollUp => Some(Mouse::Do(Action::Move(Step::Up))),
        MouseEventKind::Down(MouseButton::Left) => Some(Mouse::Click(e.column, e.row)),
        _ => None,
    }
}
