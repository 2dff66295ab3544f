//! One line on standard error for work that takes its time: what is done, how far, how long yet.
//! Only on a terminal; it is gone before anything else is printed.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::text::sanitize;

/// The line.
pub(crate) struct StatusLine {
    is_terminal: bool,
    is_drawn: bool,
}

impl StatusLine {
    pub(crate) fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), is_drawn: false }
    }

    /// Does anybody see it?
    pub(crate) fn is_shown(&self) -> bool {
        self.is_terminal
    }

    /// Draws it over what was there.
    pub(crate) fn draw(&mut self, line: impl FnOnce() -> String) {
        if self.is_terminal {
            self.is_drawn = true;
            overwrite(&sanitize(&line()));
        }
    }

    /// Leaves an empty line to write on.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            overwrite("");
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A terminal that takes nothing (Ctrl-S) must not delay ticks.
fn overwrite(line: &str) {
    let err = std::io::stderr();
    let mut fds = [PollFd::new(&err, PollFlags::OUT)];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    if !matches!(poll(&mut fds, Some(&now)), Ok(1)) {
        return;
    }
    let width = rustix::termios::tcgetwinsize(&err).map_or(0, |w| usize::from(w.ws_col));
    let width = if width == 0 { 80 } else { width };
    let cut: String = line.chars().take(width.saturating_sub(1).max(20)).collect();
    let _ = write!(err.lock(), "\r{cut}\x1b[K");
}

/// `0:07 of 0:15`, `1:02:03 of 24:00:00`.
pub(crate) fn so_far(spent: Duration, whole: Duration) -> String {
    let text = |d: Duration| {
        let (h, m, s) = (d.as_secs() / 3600, d.as_secs() / 60 % 60, d.as_secs() % 60);
        if whole.as_secs() < 3600 { format!("{m}:{s:02}") } else { format!("{h}:{m:02}:{s:02}") }
    };
    // Half a second early or late is the time of the tick, not ours.
    let spent = Duration::from_secs(spent.as_secs_f64().round() as u64).min(whole);
    format!("{} of {}", text(spent), text(whole))
}

/// `43%, 12345 of 28800 ticks`.
pub(crate) fn ticks_so_far(done: u64, all: u64) -> String {
    format!("{}%, {done} of {all} ticks", done.saturating_mul(100) / all.max(1))
}

/// `43%, 120 of 480 groups of ticks`.
pub(crate) fn groups_so_far(done: usize, all: usize) -> String {
    format!("{}%, {done} of {all} groups of ticks", done.saturating_mul(100) / all.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_form_of_the_longer_one() {
        let of = |ms, s| so_far(Duration::from_millis(ms), Duration::from_secs(s));
        assert_eq!(of(6_998, 15), "0:07 of 0:15");
        assert_eq!(of(15_400, 15), "0:15 of 0:15");
        assert_eq!(of(62_000, 3599), "1:02 of 59:59");
        assert_eq!(of(62_000, 86_400), "0:01:02 of 24:00:00");
        assert_eq!(ticks_so_far(12_345, 28_800), "42%, 12345 of 28800 ticks");
        assert_eq!(ticks_so_far(0, 0), "0%, 0 of 0 ticks");
        assert_eq!(groups_so_far(1, 3), "33%, 1 of 3 groups of ticks");
    }
}
