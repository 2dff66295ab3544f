//! The ticks of a command that goes on until it is told to end.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Sleep;

use super::wait::{Asked, Ended, Signals};
use crate::exit::Stop;
use crate::sample::tick::Tick;
use crate::source::Event;

/// The ticks, and the signals that end them.
pub(crate) struct Endless {
    events: mpsc::Receiver<Event>,
    signals: Signals,
    /// The first tick should be there by then.
    first: Pin<Box<Sleep>>,
    begun: bool,
}

impl Endless {
    /// Of a source that should deliver a tick per `interval`.
    pub(crate) fn new(events: mpsc::Receiver<Event>, interval: Duration) -> anyhow::Result<Self> {
        let signals = Signals::watch(false)?;
        let patience = tokio::time::sleep(interval * 3 + Duration::from_secs(10));
        Ok(Self { events, signals, first: Box::pin(patience), begun: false })
    }

    /// The next one. May be dropped and called again: no tick and no signal is lost.
    pub(crate) async fn next(&mut self) -> Result<Arc<Tick>, Ended> {
        loop {
            return tokio::select! {
                event = self.events.recv() => match event {
                    Some(Event::Tick(tick)) => {
                        self.begun = true;
                        Ok(tick)
                    }
                    Some(Event::End(_)) | None => Err(Ended::Silent),
                },
                asked = self.signals.next() => match asked {
                    Asked::End => Err(Ended::Asked),
                    Asked::Mark => continue,
                },
                () = &mut self.first, if !self.begun => Err(Ended::Silent),
            };
        }
    }

    /// What to tell the user when the source is silent.
    pub(crate) fn silence(&self) -> anyhow::Error {
        Stop::cannot(if self.begun {
            "the sampler stopped"
        } else {
            "no reading arrived; `stallscope doctor` shows which signal hangs"
        })
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
            let mut ticks = Endless::new(events, Duration::from_secs(1)).unwrap();
            assert!(ticks.silence().to_string().contains("no reading arrived"));
            source.send(Event::Tick(Arc::new(Tick::default()))).await.unwrap();
            assert!(ticks.next().await.is_ok());
            source.send(Event::End("over".to_owned())).await.unwrap();
            assert_eq!(ticks.next().await.err(), Some(Ended::Silent));
            drop(source);
            assert_eq!(ticks.next().await.err(), Some(Ended::Silent));
            assert_eq!(ticks.silence().to_string(), "the sampler stopped");
        });
    }
}
