//! Input from the terminal: reads everything there is before anything is drawn, and notices when a
//! sequence stays a fragment.
//!
//! A separate thread waits for input but reads nothing, so what is typed for the shell while the
//! console ends is left there.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::Notify;

use super::decode::{Decoder, Input};
use crate::clock;
use crate::rights::{self, Duty};
use crate::sample::time::MonoNs;
use crate::view::action::Key;

/// How long the rest of a sequence may take.
const FRAGMENT: Duration = Duration::from_millis(50);
/// Limits on bytes read and inputs waiting before some are processed and a frame is drawn.
const MOST: usize = 16 * 1024;
/// How long the rest of a paste that was broken off is swallowed before the shell gets it.
const SWALLOW: Duration = Duration::from_secs(1);
/// Bytes per read: what a terminal buffers.
const READ: usize = 4096;

/// The reading end.
pub(super) struct Inlet {
    tty: OwnedFd,
    ready: Arc<Notify>,
    /// Asks the thread to look.
    look: Sender<()>,
    /// It looks.
    looking: bool,
    buffer: Box<[u8]>,
    decoder: Decoder,
    inputs: VecDeque<Input>,
    /// Time of the last read.
    last: MonoNs,
    /// There is more to read.
    more: bool,
}

impl Inlet {
    /// Starts the thread that waits for input from `tty`.
    pub(super) fn start(tty: OwnedFd) -> io::Result<Self> {
        let (look, asked) = channel();
        let ready = Arc::new(Notify::new());
        let (twin, tell) = (tty.try_clone()?, ready.clone());
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            rights::restrict(Duty::Figures);
            wait(&twin, &asked, &tell);
        })?;
        Ok(Self {
            tty,
            ready,
            look,
            looking: false,
            buffer: vec![0; READ].into(),
            decoder: Decoder::default(),
            inputs: VecDeque::new(),
            last: clock::mono(),
            more: false,
        })
    }

    /// Waits until the user does something; [`Self::inputs`] returns it. An error means that the
    /// terminal is gone.
    pub(super) async fn next(&mut self) -> io::Result<()> {
        while self.inputs.is_empty() {
            if !self.more {
                self.wait().await;
            }
            // The rest may have come while the main thread was busy with something else.
            let came = self.read()?;
            if !came && self.decoder.is_waiting() && clock::mono().since(self.last) >= FRAGMENT {
                let inputs = &mut self.inputs;
                self.decoder.idle(&mut |i| inputs.push_back(i));
            }
        }
        Ok(())
    }

    /// Waits for input, or for a fragment to be over.
    async fn wait(&mut self) {
        if !self.looking {
            self.looking = self.look.send(()).is_ok();
        }
        let silence = clock::mono().since(self.last);
        let patience = self.decoder.is_waiting().then(|| FRAGMENT.saturating_sub(silence));
        tokio::select! {
            biased;
            () = self.ready.notified() => self.looking = false,
            () = tokio::time::sleep(patience.unwrap_or_default()), if patience.is_some() => {}
        }
    }

    /// Reads what there is, up to the limit. Returns whether there was anything.
    pub(super) fn read(&mut self) -> io::Result<bool> {
        let mut all = 0;
        self.more = true;
        while all < MOST {
            if !is_readable(&self.tty, Duration::ZERO)? {
                self.more = false;
                break;
            }
            let n = match rustix::io::read(&self.tty, &mut self.buffer[..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => n,
                // Somebody else reads from the terminal too.
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(e) => return Err(e.into()),
            };
            all += n;
            self.last = clock::mono();
            let inputs = &mut self.inputs;
            self.decoder.feed(&self.buffer[..n], &mut |i| queue(inputs, i));
        }
        Ok(all > 0)
    }

    /// Input that has not been processed.
    pub(super) fn inputs(&mut self) -> &mut VecDeque<Input> {
        &mut self.inputs
    }

    /// Before the terminal is given back: the rest of a paste that was broken off must not be
    /// run by the shell.
    pub(super) fn swallow(&self) {
        if !self.decoder.is_owed_text() {
            return;
        }
        let begun = clock::mono();
        while clock::mono().since(begun) < SWALLOW
            && matches!(is_readable(&self.tty, FRAGMENT), Ok(true))
            && tcflush(&self.tty, QueueSelector::IFlush).is_ok()
        {}
    }
}

/// If there is more than anybody types, only the end matters: it must not stay unread after the
/// rest.
fn queue(inputs: &mut VecDeque<Input>, i: Input) {
    if inputs.len() < MOST || i == Input::Key(Key::Ctrl('c')) {
        inputs.push_back(i);
    }
}

/// Waits for input each time it is asked to, and reports when there is some.
fn wait(tty: &OwnedFd, asked: &Receiver<()>, tell: &Notify) {
    while asked.recv().is_ok() {
        while poll(&mut [PollFd::new(tty, PollFlags::IN)], None) == Err(Errno::INTR) {}
        tell.notify_one();
    }
}

/// Reading a descriptor that we share with others may block: poll it first.
fn is_readable(tty: &OwnedFd, patience: Duration) -> io::Result<bool> {
    let patience = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_nanos()) };
    let mut fds = [PollFd::new(tty, PollFlags::IN)];
    match poll(&mut fds, Some(&patience)) {
        Ok(n) => Ok(n > 0),
        // Nothing was there when the signal came.
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_heard_behind_whatever_waits() {
        let mut inputs = VecDeque::new();
        for _ in 0..2 * MOST {
            queue(&mut inputs, Input::Key(Key::Char('w')));
        }
        queue(&mut inputs, Input::Key(Key::Ctrl('c')));
        assert_eq!(inputs.len(), MOST + 1);
        assert!(inputs.contains(&Input::Key(Key::Ctrl('c'))));
    }
}
