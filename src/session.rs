//! A session: the one place where a tick is taken in. It is folded, given to what records it,
//! and the collectors are told which rows deserve detail from now on.
//!
//! Console, `check`, `record`, replay and `explain` differ in where their ticks come from and in
//! who listens; not in what is done with a tick.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::analysis::Analysis;
use crate::recording::{Recorder, TickSummary};
use crate::sample::Interest;
use crate::sample::subject::SockId;
use crate::sample::tick::Tick;

/// Takes every tick, with what a timeline shows of it.
pub trait TickSink {
    /// Takes one. Ask for the summary only if it is needed: it costs something.
    fn keep(&mut self, tick: &Arc<Tick>, summary: impl FnOnce() -> TickSummary);
}

/// Takes nothing.
impl TickSink for () {
    fn keep(&mut self, _: &Arc<Tick>, _: impl FnOnce() -> TickSummary) {}
}

/// The summary of the newest tick.
impl TickSink for TickSummary {
    fn keep(&mut self, _: &Arc<Tick>, summary: impl FnOnce() -> TickSummary) {
        *self = summary();
    }
}

impl TickSink for Recorder {
    fn keep(&mut self, tick: &Arc<Tick>, summary: impl FnOnce() -> TickSummary) {
        self.push(tick, summary());
    }
}

impl<N: TickSink> TickSink for Option<N> {
    fn keep(&mut self, tick: &Arc<Tick>, summary: impl FnOnce() -> TickSummary) {
        if let Some(n) = self {
            n.keep(tick, summary);
        }
    }
}

/// A run with those who listen to it.
#[derive(Debug)]
pub struct Session<N = ()> {
    run: Analysis,
    /// Where its ticks go.
    pub sink: N,
    /// The collectors, where there are any.
    collectors: Option<watch::Sender<Arc<Interest>>>,
    /// What is on the screen, and what somebody asked about.
    screen: Interest,
}

impl Session {
    /// A run to which nobody listens.
    #[must_use]
    pub fn new(run: Analysis) -> Self {
        Self { run, sink: (), collectors: None, screen: Interest::default() }
    }
}

impl<N: TickSink> Session<N> {
    /// With a sink for its ticks.
    #[must_use]
    pub fn with_sink<M>(self, sink: M) -> Session<M> {
        Session { run: self.run, sink, collectors: self.collectors, screen: self.screen }
    }

    /// With collectors that read detail where it is wanted.
    #[must_use]
    pub fn read_by(self, collectors: watch::Sender<Arc<Interest>>) -> Self {
        Self { collectors: Some(collectors), ..self }
    }

    /// Takes in the next tick.
    pub fn push(&mut self, tick: Arc<Tick>) {
        self.run.push(tick.clone());
        let run = &self.run;
        self.sink.keep(&tick, || run.latest().map(|m| m.summary()).unwrap_or_default());
        self.publish();
    }

    /// Goes on with another run.
    pub fn go_on_with(&mut self, run: Analysis) {
        self.run = run;
    }

    /// Ticks come at this interval from now on.
    pub fn set_interval(&mut self, interval: Duration) {
        self.run.set_interval(interval);
    }

    /// The rows on the screen, sockets and inodes, 0 standing for none; processes whose threads are
    /// to be watched.
    pub fn look_at(&mut self, rows: &[(SockId, u32)], processes: Vec<u32>) {
        if self.collectors.is_some() {
            self.screen = Interest {
                sockets: rows.iter().map(|r| r.0).filter(|id| id.cookie != 0).collect(),
                inodes: rows.iter().map(|r| r.1).filter(|i| *i != 0).collect(),
                processes,
            };
            self.publish();
        }
    }

    /// Processes that somebody asks about: their threads are watched from the next reading on.
    pub fn watch(&mut self, processes: Vec<u32>) {
        self.screen.processes = processes;
        self.publish();
    }

    /// Asks the collectors for detail of what findings name and of what is on the screen.
    fn publish(&self) {
        let Some(collectors) = &self.collectors else { return };
        let mut want = self.run.interest();
        want.sockets.extend(&self.screen.sockets);
        want.inodes.extend(&self.screen.inodes);
        want.processes.clone_from(&self.screen.processes);
        want.sockets.sort_unstable();
        want.sockets.dedup();
        want.inodes.sort_unstable();
        want.inodes.dedup();
        collectors.send_if_modified(|old| {
            let changed = **old != want;
            if changed {
                *old = Arc::new(want);
            }
            changed
        });
    }

    /// What is known.
    #[must_use]
    pub fn run(&self) -> &Analysis {
        &self.run
    }

    /// The same, and where it goes.
    pub fn parts(&mut self) -> (&Analysis, &mut N) {
        (&self.run, &mut self.sink)
    }

    /// The run alone, when nobody listens any more.
    #[must_use]
    pub fn into_run(self) -> Analysis {
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::Engine;
    use crate::sample::tick::HostInfo;

    fn run() -> Analysis {
        Analysis::new(HostInfo::default(), Engine::default(), 1 << 20)
    }

    /// Counts what it is told.
    struct Counter(usize);

    impl TickSink for Counter {
        fn keep(&mut self, _: &Arc<Tick>, _: impl FnOnce() -> TickSummary) {
            self.0 += 1;
        }
    }

    #[test]
    fn a_tick_is_folded_and_taken_down() {
        let mut session = Session::new(run()).with_sink(Some(Counter(0)));
        session.push(Arc::new(Tick::default()));
        assert!(session.run().latest().is_some());
        assert_eq!(session.sink.map(|n| n.0), Some(1));
    }

    #[test]
    fn collectors_are_told_what_is_on_the_screen_until_something_else_is() {
        let (collectors, told) = watch::channel(Arc::new(Interest::default()));
        let mut session = Session::new(run()).read_by(collectors);
        let id = |cookie| SockId { cookie, ..SockId::default() };
        session.look_at(&[(id(7), 0), (id(3), 12), (id(7), 11), (id(0), 12)], Vec::new());
        let want =
            Interest { sockets: vec![id(3), id(7)], inodes: vec![11, 12], ..Interest::default() };
        assert_eq!(**told.borrow(), want);
        session.push(Arc::new(Tick::default()));
        assert_eq!(**told.borrow(), want, "a tick changes nothing on the screen");
        session.look_at(&[], Vec::new());
        assert_eq!(**told.borrow(), Interest::default());
    }
}
