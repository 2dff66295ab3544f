//! The state of the terminal before the console took it over, and how to restore it.
//!
//! [`restore`] is fit for a signal handler: it uses only system calls and atomics, and does not
//! wait long for a lock or for a terminal that does not read.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

/// Leaves everything that the console enters, in any order: the update of a frame, bracketed
/// paste, the mouse, the alternate screen; shows the cursor.
const LEAVE: &[u8] = b"\x1b[?2026l\x1b[?2004l\x1b[?1006l\x1b[?1015l\x1b[?1003l\x1b[?1002l\
    \x1b[?1000l\x1b[0m\x1b[?1049l\x1b[?25h";
/// How often, and after how long, writing to a terminal that takes nothing is retried.
const TRIES: u32 = 30;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Whether the terminal is ours now.
static ENTERED: AtomicBool = AtomicBool::new(false);
/// A signal has restored the terminal: nothing more may be written to it.
static DYING: AtomicBool = AtomicBool::new(false);
static HELD: Mutex<Option<Held>> = Mutex::new(None);

/// The terminal, and its former state.
struct Held {
    input: OwnedFd,
    output: OwnedFd,
    modes: Termios,
}

/// Switches `input` to raw mode; from here on, whatever happens, `output` and `input` can be
/// restored.
pub(super) fn enter(input: impl AsFd, output: impl AsFd) -> io::Result<()> {
    let modes = tcgetattr(&input)?;
    let mut raw = modes.clone();
    raw.make_raw();
    raw.special_codes[SpecialCodeIndex::VMIN] = 1;
    raw.special_codes[SpecialCodeIndex::VTIME] = 0;
    let held = Held {
        input: input.as_fd().try_clone_to_owned()?,
        output: of_our_own(output, OFlags::WRONLY)?,
        modes,
    };
    if let Ok(mut h) = HELD.lock() {
        *h = Some(held);
    }
    ENTERED.store(true, Ordering::SeqCst);
    Ok(tcsetattr(&input, OptionalActions::Now, &raw)?)
}

/// Whether the terminal is ours.
pub(super) fn is_entered() -> bool {
    ENTERED.load(Ordering::SeqCst)
}

/// Whether a signal has restored it and the program is about to die.
pub(super) fn is_dying() -> bool {
    DYING.load(Ordering::Relaxed)
}

/// Restores the terminal, if it is ours. One that is known not to read only gets its modes back.
/// Returns whether that worked.
pub(super) fn leave(reads: bool) -> bool {
    if !is_entered() {
        return reads;
    }
    let done = HELD.lock().is_ok_and(|h| h.as_ref().is_some_and(|h| h.give_back(reads)));
    ENTERED.store(false, Ordering::SeqCst);
    done
}

/// The same, in a signal handler and before the end.
pub(super) fn restore() {
    if !ENTERED.swap(false, Ordering::SeqCst) {
        return;
    }
    DYING.store(true, Ordering::Relaxed);
    for _ in 0..TRIES {
        if let Ok(h) = HELD.try_lock() {
            if let Some(h) = &*h {
                h.give_back(true);
            }
            return;
        }
        // Another thread is restoring it.
        let _ = poll(&mut [], Some(&PAUSE));
    }
}

impl Held {
    fn give_back(&self, reads: bool) -> bool {
        let left = reads && write(&self.output, LEAVE);
        // Without waiting for pending output.
        tcsetattr(&self.input, OptionalActions::Now, &self.modes).is_ok() && left
    }
}

/// Writes, but does not wait for a terminal that does not read.
fn write(to: &OwnedFd, mut bytes: &[u8]) -> bool {
    for _ in 0..TRIES {
        let mut fd = [PollFd::new(to, PollFlags::OUT)];
        if matches!(poll(&mut fd, Some(&PAUSE)), Ok(0)) {
            continue;
        }
        match rustix::io::write(to, bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            // Another thread is in the middle of a frame.
            Err(Errno::AGAIN) => _ = poll(&mut [], Some(&PAUSE)),
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
        if bytes.is_empty() {
            return true;
        }
    }
    false
}

/// The terminal that keys come from: standard input, or the controlling terminal if a recording is
/// read from standard input.
pub(super) fn keyboard() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return of_our_own(stdin, OFlags::RDONLY);
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, "/dev/tty", flags, Mode::empty())?)
}

/// The same terminal, opened again for us alone: non-blocking mode must not affect those who share
/// `fd`.
fn of_our_own(fd: impl AsFd, access: OFlags) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(own) => Ok(own),
        // Without /proc, or with a terminal of another user (after `su`).
        Err(_) => fd.as_fd().try_clone_to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crossterm::cursor::Show;
    use crossterm::event::{DisableBracketedPaste, DisableMouseCapture};
    use crossterm::style::{Attribute, SetAttribute};
    use crossterm::terminal::{EndSynchronizedUpdate, LeaveAlternateScreen};

    /// What is entered with crossterm's commands is left with bytes that a handler can write.
    #[test]
    fn everything_that_is_entered_is_left() {
        let mut out = Vec::new();
        crossterm::queue!(
            out,
            EndSynchronizedUpdate,
            DisableBracketedPaste,
            DisableMouseCapture,
            SetAttribute(Attribute::Reset),
            LeaveAlternateScreen,
            Show
        )
        .unwrap();
        assert_eq!(out.escape_ascii().to_string(), LEAVE.escape_ascii().to_string());
    }
}
