//! What a command without a screen waits for: the event loop, and the signals that end it cleanly
//! or mark the recording.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Sleep;

use crate::recording::Recorder;
use crate::sample::tick::Tick;
use crate::signals::is_ignored;
use crate::source::Event;

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

/// The ticks of a command that watches for a limited time.
pub(crate) struct Ticks {
    events: mpsc::Receiver<Event>,
    signals: Signals,
    /// Ticks end the run; this only catches a source that stops delivering.
    patience: Pin<Box<Sleep>>,
}

/// Why there is no further tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A signal asked for it.
    Asked,
    /// The source ended, or stopped delivering.
    Silent,
}

impl Ticks {
    /// Of a source, for somebody who watches for `duration` with a tick per `interval`.
    pub(crate) fn new(
        events: mpsc::Receiver<Event>,
        (duration, interval): (Duration, Duration),
        recorder: Option<&Recorder>,
    ) -> anyhow::Result<Self> {
        let signals = Signals::watch(recorder.is_some())?;
        let patience = tokio::time::sleep(duration + interval * 3 + Duration::from_secs(10));
        Ok(Self { events, signals, patience: Box::pin(patience) })
    }

    /// The next one. What a signal marks on the way is marked in the recording.
    pub(crate) async fn next(
        &mut self,
        recorder: &mut Option<Recorder>,
    ) -> Result<Arc<Tick>, Ended> {
        loop {
            return tokio::select! {
                event = self.events.recv() => match event {
                    Some(Event::Tick(tick)) => Ok(tick),
                    Some(Event::End(_)) | None => Err(Ended::Silent),
                },
                asked = self.signals.next() => match asked {
                    Asked::End => Err(Ended::Asked),
                    Asked::Mark => {
                        if let Some(r) = recorder {
                            r.mark("SIGUSR1");
                        }
                        continue;
                    }
                },
                () = &mut self.patience => Err(Ended::Silent),
            };
        }
    }
}

/// What waits for ticks and signals.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")
}
