//! A session: the one place where a tick is taken in. It is folded, noted for what records it,
//! and the collectors are told which rows deserve detail from now on.
//!
//! Console, `check`, `record`, replay and `explain` differ in where their ticks come from and in
//! who listens; not in what is done with a tick.

use std::sync::Arc;

use tokio::sync::watch;

use crate::analysis::Analysis;
use crate::recording::{Note, Recorder};
use crate::sample::Interest;
use crate::sample::subject::SockId;
use crate::sample::tick::Tick;

/// Who takes down ticks, with what a timeline shows of each.
pub trait Notes {
    /// Takes one down. Whoever does not need the note does not ask for it: it costs something.
    fn take_down(&mut self, tick: &Arc<Tick>, note: impl FnOnce() -> Note);
}

/// Nobody does.
impl Notes for () {
    fn take_down(&mut self, _: &Arc<Tick>, _: impl FnOnce() -> Note) {}
}

/// The note of the newest tick.
impl Notes for Note {
    fn take_down(&mut self, _: &Arc<Tick>, note: impl FnOnce() -> Note) {
        *self = note();
    }
}

impl Notes for Recorder {
    fn take_down(&mut self, tick: &Arc<Tick>, note: impl FnOnce() -> Note) {
        self.push(tick, note());
    }
}

impl<N: Notes> Notes for Option<N> {
    fn take_down(&mut self, tick: &Arc<Tick>, note: impl FnOnce() -> Note) {
        if let Some(n) = self {
            n.take_down(tick, note);
        }
    }
}

/// A run with those who listen to it.
#[derive(Debug)]
pub struct Session<N = ()> {
    run: Analysis,
    /// Who takes down its ticks.
    pub notes: N,
    /// The collectors, where there are any.
    collectors: Option<watch::Sender<Arc<Interest>>>,
    /// What is on the screen.
    screen: Interest,
}

impl Session {
    /// A run to which nobody listens.
    #[must_use]
    pub fn new(run: Analysis) -> Self {
        Self { run, notes: (), collectors: None, screen: Interest::default() }
    }
}

impl<N: Notes> Session<N> {
    /// With somebody who takes down its ticks.
    #[must_use]
    pub fn noted_by<M>(self, notes: M) -> Session<M> {
        Session { run: self.run, notes, collectors: self.collectors, screen: self.screen }
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
        self.notes.take_down(&tick, || run.latest().map(|m| m.note()).unwrap_or_default());
        self.publish();
    }

    /// Goes on with another run.
    pub fn go_on_with(&mut self, run: Analysis) {
        self.run = run;
    }

    /// The rows on the screen, sockets and inodes; 0 stands for none.
    pub fn look_at(&mut self, rows: &[(SockId, u32)]) {
        if self.collectors.is_some() {
            self.screen = Interest {
                sockets: rows.iter().map(|r| r.0).filter(|id| id.cookie != 0).collect(),
                inodes: rows.iter().map(|r| r.1).filter(|i| *i != 0).collect(),
            };
            self.publish();
        }
    }

    /// Asks the collectors for detail of what findings name and of what is on the screen.
    fn publish(&self) {
        let Some(collectors) = &self.collectors else { return };
        let mut want = self.run.interest();
        want.sockets.extend(&self.screen.sockets);
        want.inodes.extend(&self.screen.inodes);
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

    /// The same, and who takes it down.
    pub fn parts(&mut self) -> (&Analysis, &mut N) {
        (&self.run, &mut self.notes)
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

    impl Notes for Counter {
        fn take_down(&mut self, _: &Arc<Tick>, _: impl FnOnce() -> Note) {
            self.0 += 1;
        }
    }

    #[test]
    fn a_tick_is_folded_and_taken_down() {
        let mut session = Session::new(run()).noted_by(Some(Counter(0)));
        session.push(Arc::new(Tick::default()));
        assert!(session.run().latest().is_some());
        assert_eq!(session.notes.map(|n| n.0), Some(1));
    }

    #[test]
    fn collectors_are_told_what_is_on_the_screen_until_something_else_is() {
        let (collectors, told) = watch::channel(Arc::new(Interest::default()));
        let mut session = Session::new(run()).read_by(collectors);
        let id = |cookie| SockId { cookie, ..SockId::default() };
        session.look_at(&[(id(7), 0), (id(3), 12), (id(7), 11), (id(0), 12)]);
        let want = Interest { sockets: vec![id(3), id(7)], inodes: vec![11, 12] };
        assert_eq!(**told.borrow(), want);
        session.push(Arc::new(Tick::default()));
        assert_eq!(**told.borrow(), want, "a tick changes nothing on the screen");
        session.look_at(&[]);
        assert_eq!(**told.borrow(), Interest::default());
    }
}
