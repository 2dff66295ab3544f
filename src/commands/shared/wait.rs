//! What a command without a screen waits for: the event loop, and the signals that end it cleanly
//! or mark the recording.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::signals::is_ignored;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// INT, TERM or HUP.
    End,
    /// USR1.
    Mark,
}

/// The signals, watched.
pub(crate) struct Signals {
    int: Signal,
    term: Signal,
    hup: Option<Signal>,
    mark: Option<Signal>,
}

impl Signals {
    /// HUP, unless it was ignored when we started, as under nohup; USR1 while something is
    /// recorded that takes a mark.
    pub(crate) fn watch(marks: bool) -> anyhow::Result<Self> {
        Self::try_watch(marks).context("signals")
    }

    fn try_watch(marks: bool) -> std::io::Result<Self> {
        let hup = !is_ignored(rustix::process::Signal::HUP);
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup: hup.then(|| signal(SignalKind::hangup())).transpose()?,
            mark: marks.then(|| signal(SignalKind::user_defined1())).transpose()?,
        })
    }

    /// What the next one asks for. May be dropped and called again: no signal is lost.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.int.recv() => Asked::End,
            _ = self.term.recv() => Asked::End,
            () = next(&mut self.hup) => Asked::End,
            () = next(&mut self.mark) => Asked::Mark,
        }
    }
}

/// The next signal of a kind; never returns for one that is not watched.
async fn next(s: &mut Option<Signal>) {
    match s {
        Some(s) => _ = s.recv().await,
        None => std::future::pending().await,
    }
}

/// What waits for ticks and signals.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")
}
