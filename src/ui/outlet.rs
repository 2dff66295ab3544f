//! Output to the terminal: a separate thread writes frames, one at a time.
//!
//! A terminal may stop reading for minutes (a dead SSH link, Ctrl-S). Then `write(2)` blocks, and
//! so does its caller. Here that is a thread that does nothing else: keys, signals and ticks are
//! still processed, no further frame is drawn until the last one has left, and the program can
//! still be quit.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock;
use crate::rights::{self, Duty};

#[derive(Debug, Default)]
struct State {
    /// Writes that are pending.
    pending: usize,
    /// The terminal is gone.
    failed: bool,
    /// How long the last write took, until it is asked for.
    took: Option<Duration>,
}

/// State shared by both ends.
#[derive(Debug, Default)]
pub(super) struct Line {
    state: Mutex<State>,
    idle: Condvar,
    done: Notify,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whether something has not left yet.
    pub(super) fn is_busy(&self) -> bool {
        self.state().pending > 0
    }
    /// The terminal is gone.
    pub(super) fn has_failed(&self) -> bool {
        self.state().failed
    }
    /// How long the last write took, once per write.
    pub(super) fn took(&self) -> Option<Duration> {
        self.state().took.take()
    }
    /// Waits until a write is done.
    pub(super) async fn done(&self) {
        self.done.notified().await;
    }
    /// Waits until everything has left, but no longer than `patience`; returns whether it has.
    pub(super) fn settle(&self, patience: Duration) -> bool {
        let waiting = self.idle.wait_timeout_while(self.state(), patience, |s| s.pending > 0);
        waiting.map_or_else(|e| e.into_inner().0.pending == 0, |(s, _)| s.pending == 0)
    }
}

/// The writing end for frames. Never blocks.
pub(super) struct Outlet {
    queue: Sender<Vec<u8>>,
    line: Arc<Line>,
}

impl Outlet {
    /// Starts the thread that writes to `out`.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<(Self, Arc<Line>)> {
        let (queue, frames) = channel();
        let line = Arc::new(Line::default());
        let shared = line.clone();
        std::thread::Builder::new().name("screen".to_owned()).spawn(move || {
            rights::restrict(Duty::Figures);
            pump(out, &frames, &shared);
        })?;
        Ok((Self { queue, line: line.clone() }, line))
    }
}

fn pump(mut out: impl Write, frames: &Receiver<Vec<u8>>, line: &Line) {
    while let Ok(frame) = frames.recv() {
        let begun = clock::mono();
        let written = out.write_all(&frame).and_then(|()| out.flush());
        let mut s = line.state();
        s.pending = s.pending.saturating_sub(1);
        s.failed |= written.is_err();
        s.took = Some(clock::mono().since(begun));
        drop(s);
        line.idle.notify_all();
        line.done.notify_one();
    }
}

impl Write for Outlet {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut s = self.line.state();
        if s.failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        s.pending += 1;
        drop(s);
        self.queue.send(buf.to_vec()).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(buf.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc::SyncSender;

    /// A terminal that takes one frame each time it is asked to.
    struct Stuck(Receiver<()>, SyncSender<Vec<u8>>);
    impl Write for Stuck {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            self.1.send(buf.to_vec()).unwrap();
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_terminal_blocks_nobody_but_its_own_thread() {
        let (go, wait) = channel();
        let (sink, got) = std::sync::mpsc::sync_channel(4);
        let (mut out, line) = Outlet::start(Stuck(wait, sink)).unwrap();
        out.write_all(b"frame").unwrap();
        assert!(line.is_busy());
        assert!(!line.settle(Duration::from_millis(1)), "it says that it did not leave");
        go.send(()).unwrap();
        assert_eq!(got.recv().unwrap(), b"frame");
        assert!(line.settle(Duration::from_secs(10)));
        assert!(line.took().is_some() && line.took().is_none());
        // The terminal goes away.
        drop(go);
        out.write_all(b"more").unwrap();
        assert!(line.settle(Duration::from_secs(10)));
        assert!(line.has_failed());
        assert!(out.write_all(b"more").is_err());
    }
}
