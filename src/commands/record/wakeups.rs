//! What wakes a recorder: ticks, signals, the end of its time, a source that stops delivering.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Sleep;

use crate::commands::shared::wait::{Asked, Signals};
use crate::sample::tick::Tick;
use crate::sample::time::MonoNs;
use crate::source::Event;

/// What happened.
pub(super) enum Wakeup {
    /// The next tick.
    Tick(Arc<Tick>),
    /// Somebody wants a mark.
    Mark,
    /// Somebody wants it to end.
    End,
    /// There will be no more ticks.
    Silent,
}

/// The ticks of a command that records.
pub(super) struct Wakeups {
    events: mpsc::Receiver<Event>,
    signals: Signals,
    interval: Duration,
    /// How long to record.
    duration: Option<Duration>,
    begun: Option<MonoNs>,
    /// Until the first tick must have come.
    patience: Pin<Box<Sleep>>,
}

impl Wakeups {
    /// Of a source that delivers a tick per `interval`.
    pub(super) fn new(
        events: mpsc::Receiver<Event>,
        interval: Duration,
        duration: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let signals = Signals::watch(true)?;
        let patience = Box::pin(tokio::time::sleep(interval * 3 + Duration::from_secs(10)));
        Ok(Self { events, signals, interval, duration, begun: None, patience })
    }

    /// The next one. May be dropped and called again: nothing is lost.
    pub(super) async fn next(&mut self) -> Wakeup {
        tokio::select! {
            event = self.events.recv() => match event {
                Some(Event::Tick(tick)) => {
                    self.begun.get_or_insert(tick.mono);
                    Wakeup::Tick(tick)
                }
                Some(Event::End(_)) | None => Wakeup::Silent,
            },
            asked = self.signals.next() => match asked {
                Asked::End => Wakeup::End,
                Asked::Mark => Wakeup::Mark,
            },
            () = &mut self.patience, if self.begun.is_none() => Wakeup::Silent,
        }
    }

    /// Has there been any tick?
    pub(super) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Is this the last tick of the time that was asked for?
    pub(super) fn is_last(&self, tick: &Tick) -> bool {
        let ran = self.begun.map_or(Duration::ZERO, |b| tick.mono.since(b));
        self.duration.is_some_and(|d| ran + self.interval / 2 >= d)
    }
}
