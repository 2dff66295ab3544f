//! What wakes a command that runs until it is told to end: ticks, signals, a source that stops
//! delivering.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Sleep;

use super::wait::{Asked, Signals};
use crate::exit::Stop;
use crate::sample::tick::Tick;
use crate::sample::time::MonoNs;
use crate::source::Event;

/// What happened.
pub(crate) enum Wakeup {
    /// The next tick.
    Tick(Arc<Tick>),
    /// Somebody wants a mark.
    Mark,
    /// Somebody wants it to end.
    End,
    /// There will be no more ticks.
    Silent,
}

/// The ticks of a command, and the signals that end it.
pub(crate) struct Wakeups {
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
    pub(crate) fn new(
        events: mpsc::Receiver<Event>,
        signals: Signals,
        interval: Duration,
        duration: Option<Duration>,
    ) -> Self {
        let patience = Box::pin(tokio::time::sleep(interval * 3 + Duration::from_secs(10)));
        Self { events, signals, interval, duration, begun: None, patience }
    }

    /// The next one. May be dropped and called again: nothing is lost.
    pub(crate) async fn next(&mut self) -> Wakeup {
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

    /// Why there are no more ticks; what became of the output is added to it.
    pub(crate) fn silence(&self, output: &str) -> anyhow::Error {
        Stop::cannot(if self.begun.is_some() {
            format!("the sampler stopped{output}")
        } else {
            "no reading arrived; `stallscope doctor` shows which signal hangs".to_owned()
        })
    }

    /// Is this the last tick of the time that was asked for?
    pub(crate) fn is_last(&self, tick: &Tick) -> bool {
        let ran = self.begun.map_or(Duration::ZERO, |b| tick.mono.since(b));
        self.duration.is_some_and(|d| ran + self.interval / 2 >= d)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::wait::runtime;
    use super::*;

    #[test]
    fn a_source_that_ends_is_told_of() {
        runtime().unwrap().block_on(async {
            let (source, events) = mpsc::channel(2);
            let signals = Signals::watch(false).unwrap();
            let mut wakeups = Wakeups::new(events, signals, Duration::from_secs(1), None);
            assert!(wakeups.silence("").to_string().contains("no reading arrived"));
            source.send(Event::Tick(Arc::new(Tick::default()))).await.unwrap();
            assert!(matches!(wakeups.next().await, Wakeup::Tick(_)));
            source.send(Event::End("over".to_owned())).await.unwrap();
            assert!(matches!(wakeups.next().await, Wakeup::Silent));
            drop(source);
            assert!(matches!(wakeups.next().await, Wakeup::Silent));
            assert_eq!(wakeups.silence("").to_string(), "the sampler stopped");
        });
    }
}
