//! The terminal: taken over and restored as a whole, one write per frame.
//!
//! Frames go through one buffer inside a synchronized update (DEC 2026), so that no terminal shows
//! half of one. The terminal is never queried: it may be far away.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{EnableBracketedPaste, EnableMouseCapture};
use crossterm::queue;
use crossterm::style::{Attribute, SetAttribute};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rustix::event::{PollFd, PollFlags, poll};

use super::MouseMode;
use super::guard;
use super::outlet::{Line, Outlet};
use crate::view::vm::Size;

/// A frame fits, so that it leaves in one write.
const BUFFER: usize = 64 * 1024;
/// Used if the terminal does not know its size.
const DEFAULT_SIZE: Size = Size::new(80, 24);
/// A size beyond this is a mistake.
const MAX_SIDE: u16 = 1000;

/// The outlet to the terminal: whoever leaves must know whether output is pending.
static LINE: Mutex<Option<Arc<Line>>> = Mutex::new(None);
/// How long leaving waits for the last frame. A terminal that does not read is left as it is.
const PATIENCE: Duration = Duration::from_millis(300);
/// Panics of other threads, reported after the screen was left.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// How many of them are kept.
const MAX_PANICS: usize = 20;

/// Cells to be written: what changed since the last frame, in one write.
pub struct Canvas<W: Write> {
    backend: CrosstermBackend<BufWriter<W>>,
    shown: Buffer,
    next: Buffer,
    cursor: Option<(u16, u16)>,
    repaint: bool,
}

impl<W: Write> Canvas<W> {
    /// A canvas of `size` that writes to `out`.
    pub fn new(out: W, size: Size) -> Self {
        // Otherwise crossterm drops resets under NO_COLOR and the selection disappears; only our
        // theme decides about colours.
        crossterm::style::force_color_output(true);
        let area = Rect::new(0, 0, size.w, size.h);
        Self {
            backend: CrosstermBackend::new(BufWriter::with_capacity(BUFFER, out)),
            shown: Buffer::empty(area),
            next: Buffer::empty(area),
            cursor: None,
            repaint: true,
        }
    }

    /// The size of the next frame.
    pub fn size(&self) -> Size {
        let a = self.next.area();
        Size::new(a.width, a.height)
    }

    /// Draws the next frame at another size, in full.
    pub fn resize(&mut self, size: Size) {
        let area = Rect::new(0, 0, size.w, size.h);
        self.next = Buffer::empty(area);
        self.shown = Buffer::empty(area);
        self.repaint = true;
    }

    /// Draws the next frame in full.
    pub fn repaint(&mut self) {
        self.repaint = true;
    }

    /// Draws a frame and sends what changed. Returns whether anything was sent.
    pub fn draw(
        &mut self,
        cursor: Option<(u16, u16)>,
        paint: impl FnOnce(&mut Buffer),
    ) -> io::Result<bool> {
        self.next.reset();
        paint(&mut self.next);
        let full = std::mem::take(&mut self.repaint);
        if full {
            self.shown.reset();
        }
        let changes = self.shown.diff(&self.next);
        if !full && changes.is_empty() && cursor == self.cursor {
            return Ok(false);
        }
        queue!(self.backend, BeginSynchronizedUpdate)?;
        let sent = send(&mut self.backend, &changes, full, cursor, self.cursor);
        // Whatever happened, the terminal must not be left waiting.
        queue!(self.backend, EndSynchronizedUpdate)?;
        io::Write::flush(&mut self.backend)?;
        sent?;
        self.cursor = cursor;
        std::mem::swap(&mut self.shown, &mut self.next);
        Ok(true)
    }

    /// Sends a command of its own, such as the clipboard's.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        queue!(self.backend, CopyToClipboard::to_clipboard_from(text))?;
        io::Write::flush(&mut self.backend)
    }

    fn enter(&mut self, mouse: MouseMode) -> io::Result<()> {
        queue!(self.backend, EnterAlternateScreen, Hide, EnableBracketedPaste)?;
        if mouse == MouseMode::On {
            queue!(self.backend, EnableMouseCapture)?;
        }
        self.cursor = None;
        self.repaint = true;
        io::Write::flush(&mut self.backend)
    }
}

fn send<W: Write>(
    backend: &mut CrosstermBackend<W>,
    changes: &[(u16, u16, &ratatui::buffer::Cell)],
    full: bool,
    cursor: Option<(u16, u16)>,
    before: Option<(u16, u16)>,
) -> io::Result<()> {
    if full {
        queue!(backend, SetAttribute(Attribute::Reset), Clear(ClearType::All))?;
    }
    if before.is_some() {
        queue!(backend, Hide)?;
    }
    if !changes.is_empty() {
        backend.draw(changes.iter().copied())?;
    }
    if let Some((x, y)) = cursor {
        queue!(backend, MoveTo(x, y), Show)?;
    }
    Ok(())
}

/// The terminal without std's line buffer, which would split frames at newlines and at 1 KiB.
struct Tty(OwnedFd);

impl Write for Tty {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        loop {
            if guard::is_dying() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match rustix::io::write(&self.0, buf) {
                // Somebody who shares the terminal made it non-blocking: wait for space.
                Err(rustix::io::Errno::AGAIN) => {
                    let mut fd = [PollFd::new(&self.0, PollFlags::OUT)];
                    poll(&mut fd, None)?;
                }
                other => return Ok(other?),
            }
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The user's terminal, ours until dropped.
pub(super) struct Terminal {
    /// Cells.
    pub canvas: Canvas<Outlet>,
    /// Pending output.
    pub line: Arc<Line>,
    mouse: MouseMode,
    keyboard: OwnedFd,
}

impl Terminal {
    /// Takes over the terminal on standard output and the one that keys come from.
    pub(super) fn open(mouse: MouseMode, keyboard: OwnedFd) -> io::Result<Self> {
        if !io::stdout().is_terminal() {
            return Err(io::Error::other("standard output is not a terminal"));
        }
        let (out, line) = Outlet::start(Tty(io::stdout().as_fd().try_clone_to_owned()?))?;
        if let Ok(mut known) = LINE.lock() {
            *known = Some(line.clone());
        }
        let mut t = Self { canvas: Canvas::new(out, window_size()), line, mouse, keyboard };
        t.enter()?;
        Ok(t)
    }

    /// Enters raw mode and the alternate screen.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        guard::enter(&self.keyboard, io::stdout())?;
        self.canvas.resize(window_size());
        self.canvas.enter(self.mouse)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

/// Restores the terminal; does nothing if it is not ours. Also called by the panic hook. Returns
/// whether the terminal took everything: one that does not read only gets its mode back.
pub(super) fn leave() -> bool {
    let line = LINE.lock().ok().and_then(|l| l.clone());
    let free = line.is_none_or(|l| l.settle(PATIENCE));
    guard::leave(free)
}

/// Columns and rows of the terminal.
pub(super) fn window_size() -> Size {
    let s = rustix::termios::tcgetwinsize(io::stdout());
    match s {
        Ok(w) if w.ws_col > 0 && w.ws_row > 0 => {
            Size::new(w.ws_col.min(MAX_SIDE), w.ws_row.min(MAX_SIDE))
        }
        _ => DEFAULT_SIZE,
    }
}

/// Makes panics readable: the screen is left before the message is printed. A panic of another
/// thread does not touch the screen; it is reported at the end.
pub(super) fn install_panic_hook(ui: ThreadId) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !guard::is_entered() {
            return before(info);
        }
        if std::thread::current().id() == ui {
            leave();
            return before(info);
        }
        let name = std::thread::current().name().unwrap_or("thread").to_owned();
        if let Ok(mut list) = PANICS.lock()
            && list.len() < MAX_PANICS
        {
            list.push(format!("{name}: {info}"));
        }
    }));
}

/// Panics of other threads so far; empties the list.
pub(super) fn take_panics() -> Vec<String> {
    PANICS.lock().map(|mut l| std::mem::take(&mut *l)).unwrap_or_default()
}

/// Stops this process the way Ctrl-Z does, and comes back after `fg`.
pub(super) fn stop_self() {
    // SIGSTOP and not SIGTSTP: the latter is discarded in an orphaned process group, and we
    // catch it ourselves.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
}
