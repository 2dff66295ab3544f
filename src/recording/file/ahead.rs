//! Decodes the next tick in advance, on a separate thread, so that it is ready when a user steps
//! through a recording with a held key. A tick with many sockets takes megabytes of fresh memory,
//! the first one of a group needs its keyframe, and a step back needs the whole group up to there;
//! each takes several milliseconds. Only one tick is decoded in advance, with the same decoder as
//! otherwise, so the result does not depend on whether it was ready.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::blocks::Blocks;
use super::cursor::{Cursor, Made, Place};
use super::index::GroupIndex;
use super::source::ReadAt;
use crate::rights::{self, Duty};

struct Job {
    place: Place,
    index: Arc<GroupIndex>,
    /// The position of decoding: anywhere.
    cursor: Cursor,
}

/// The thread's other end. The thread ends with it.
pub(super) struct Ahead {
    jobs: Sender<Job>,
    made: Receiver<(Place, Option<Made>)>,
    /// What is being made, or is ready.
    pending: Option<Place>,
}

impl Ahead {
    /// Starts the thread; `None` if that is not possible.
    pub(super) fn start(src: Arc<dyn ReadAt>) -> Option<Self> {
        let mut zip = zstd::bulk::Decompressor::new().ok()?;
        let (jobs, inbox) = channel::<Job>();
        let (out, made) = channel();
        let work = move || {
            rights::restrict(Duty::Figures);
            for Job { place, index, cursor } in inbox {
                let mut blocks = Blocks { src: &*src, zip: &mut zip };
                let made = Cursor::towards(place, Some(cursor)).make(&mut blocks, &index, place.1);
                if out.send((place, made.ok())).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("ahead".into()).spawn(work).ok()?;
        Some(Self { jobs, made, pending: None })
    }

    /// Has a tick made, of the group that `index` is of.
    pub(super) fn begin(&mut self, place: Place, index: Arc<GroupIndex>, cursor: Cursor) {
        // Discards a result that nobody took.
        while self.made.try_recv().is_ok() {}
        self.pending = self.jobs.send(Job { place, index, cursor }).ok().map(|()| place);
    }

    /// The tick that was decoded in advance; waits if it is still being decoded. `None`: it was
    /// another one, or it is damaged; the caller finds out how.
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
