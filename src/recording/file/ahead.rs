//! Decodes the next tick before it is asked for, on a thread of its own: whoever steps through a
//! recording at the pace of a key finds it made. A tick with many sockets takes megabytes of
//! fresh memory, the first one of a group its keyframe, and one step back the whole group up to
//! there; each takes several milliseconds.
//! One tick is made in advance, never more, and with the same decoder as without: what is read
//! does not depend on whether it was ready.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::blocks::Blocks;
use super::cursor::{Cursor, Place};
use super::index::GroupIndex;
use super::source::ReadAt;
use crate::rights::{self, Duty};
use crate::sample::tick::Tick;

struct Job {
    place: Place,
    index: Arc<GroupIndex>,
    /// Where decoding stands: anywhere.
    cursor: Cursor,
}

/// A tick that was made in advance.
pub(super) struct Made {
    /// Behind the tick.
    pub(super) cursor: Cursor,
    pub(super) tick: Arc<Tick>,
    /// What of it cannot be decoded.
    pub(super) broken: Vec<String>,
}

/// The thread's other end. The thread ends with it.
pub(super) struct Ahead {
    jobs: Sender<Job>,
    made: Receiver<(Place, Option<Made>)>,
    /// What is being made, or is ready.
    pending: Option<Place>,
}

impl Ahead {
    /// Starts the thread; `None`: there is none to be had.
    pub(super) fn start(src: Arc<dyn ReadAt>) -> Option<Self> {
        let mut zip = zstd::bulk::Decompressor::new().ok()?;
        let (jobs, inbox) = channel::<Job>();
        let (out, made) = channel();
        let work = move || {
            rights::restrict(Duty::Figures);
            for job in inbox {
                let place = job.place;
                let made = make(job, &mut Blocks { src: &*src, zip: &mut zip });
                if out.send((place, made)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("ahead".into()).spawn(work).ok()?;
        Some(Self { jobs, made, pending: None })
    }

    /// Has a tick made, of the group that `index` is of.
    pub(super) fn begin(&mut self, place: Place, index: Arc<GroupIndex>, cursor: Cursor) {
        // What nobody came for.
        while self.made.try_recv().is_ok() {}
        self.pending = self.jobs.send(Job { place, index, cursor }).ok().map(|()| place);
    }

    /// The tick that was made in advance, waited for where it is being made just now. `None`: it
    /// was another one, or it is damaged; whoever asks finds out how.
    pub(super) fn take(&mut self, place: Place) -> Option<Made> {
        self.pending.take().filter(|p| *p == place)?;
        loop {
            let (of, made) = self.made.recv().ok()?;
            if of == place {
                return made;
            }
        }
    }
}

fn make(job: Job, b: &mut Blocks<'_>) -> Option<Made> {
    let mut cursor = Cursor::towards(job.place, Some(job.cursor));
    cursor.go(b, &job.index, job.place.1).ok()?;
    let (tick, broken) = cursor.make();
    Some(Made { cursor, tick, broken })
}
