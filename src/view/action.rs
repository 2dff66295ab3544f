//! What a user can do. Keys map to actions in `keymap`, `update` carries them out.

use std::time::Duration;

use crate::playback::timeline::Goal;

/// A key, free of any terminal library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A character, shift applied.
    Char(char),
    /// Control and a lower-case letter.
    Ctrl(char),
    /// Return.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Shift and tab.
    BackTab,
    /// Arrow.
    Up,
    /// Arrow.
    Down,
    /// Arrow.
    Left,
    /// Arrow.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// Backspace.
    Backspace,
    /// Delete.
    Delete,
}

/// Pasted text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pasted {
    /// Its beginning, as much as a prompt can hold.
    pub text: String,
    /// Number of lines in all of it.
    pub lines: usize,
}

/// How far the cursor moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// Half a page up.
    HalfUp,
    /// Half a page down.
    HalfDown,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the first row.
    First,
    /// To the last row.
    Last,
}

/// How far to move in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeStep {
    /// One tick back.
    TickBack,
    /// One tick forward.
    TickForward,
    /// This many seconds, negative for back.
    Seconds(i32),
    /// To the start of the previous finding.
    FindingBack,
    /// To the start of the next finding.
    FindingForward,
    /// To the previous mark.
    MarkBack,
    /// To the next mark.
    MarkForward,
    /// To the first tick.
    Start,
    /// To the last tick.
    End,
}

/// What a user can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Leave the program.
    Quit,
    /// One level back.
    Back,
    /// Open what is under the cursor.
    Open,
    /// Open the page of the process that the row or page is about.
    Process,
    /// Zoom the pane, or show all.
    Zoom,
    /// Focus the next part of the screen.
    FocusNext,
    /// Focus the previous part of the screen.
    FocusPrevious,
    /// Focus the findings.
    FocusFindings,
    /// From a finding to another, so many further in the list.
    Finding(i8),
    /// Show the rule of the finding in full.
    Rule,
    /// Show all findings, active and ended.
    Log,
    /// Focus a pane by its number from 1; again: zoom it.
    FocusPane(u8),
    /// Move the cursor.
    Move(Step),
    /// Sort by the next column.
    SortNext,
    /// Choose the column to sort by.
    SortBy,
    /// Reverse the sort order.
    SortReverse,
    /// Type a filter.
    Filter,
    /// Type a command.
    Command,
    /// Choose columns.
    Columns,
    /// Show or hide the column under the cursor.
    ToggleColumn,
    /// Pause or resume the display; play or pause the past.
    Freeze,
    /// Play the past faster, or sample the present more often.
    Faster,
    /// Play the past slower, or sample the present less often.
    Slower,
    /// Type a time to go to.
    Goto,
    /// Move in time.
    Time(TimeStep),
    /// Back to now.
    Live,
    /// Copy the next command, or the row.
    Copy,
    /// Write the pane to a file.
    Save,
    /// Show or hide the keys.
    Help,
    /// Start or stop recording.
    Record,
    /// Put a mark into the recording.
    Mark,
    /// Suspend, as Ctrl-Z in a shell does.
    Suspend,
    /// Redraw.
    Repaint,
}

/// What an action asks for outside the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Leave the program.
    Quit,
    /// Put text into the user's clipboard.
    Copy(String),
    /// Write text to a new file; the name says which pane, at which time of day.
    Save {
        /// Name of the pane.
        name: String,
        /// Local time of day as `HHMMSS`.
        stamp: String,
        /// Content.
        text: String,
    },
    /// Sample at this interval.
    Interval(Duration),
    /// Start or stop recording.
    Record,
    /// Put a mark into the recording.
    Mark,
    /// Suspend.
    Suspend,
    /// Redraw.
    Repaint,
    /// Seek to a part of the recording that is not in memory.
    Seek(Goal),
}
