//! What all files of a recording may take: deletes the oldest parts, or files of earlier incidents,
//! and begins a new part in time.

use super::{WORTH_A_TRY, Worker};
use crate::clock;
use crate::sample::time::WallNs;

impl Worker {
    /// Frees space on the disk, if there is something to free.
    pub(super) fn make_room(&mut self) -> bool {
        self.stop_thinning() || self.may_delete() && self.drop_oldest()
    }

    /// May older files be deleted? Only if the user set a limit.
    fn may_delete(&self) -> bool {
        self.options.may_delete() || self.most().is_some()
    }

    /// Bytes of all files.
    fn most(&self) -> Option<u64> {
        self.options.max_size.or_else(|| self.incident_files.as_ref()?.most())
    }

    /// Deletes the oldest parts.
    pub(super) fn keep_limits(&mut self, now: WallNs, bytes: u64) {
        if let (Some(age), Some(home)) = (self.options.max_age, &self.home) {
            self.parts.drop_older(home, now, age);
        }
        let Some(limit) = self.most() else { return };
        // The next tick must fit too.
        let next = bytes.max(self.keyframe).saturating_add(WORTH_A_TRY);
        let over = |w: &Self| w.offset() + w.parts.bytes() + next > limit;
        // What is too large by itself does not get smaller when others are deleted. A new file can
        // get space in no other way, but not at the cost of the tick that was just written.
        let is_new = |w: &Self| w.first.is_none();
        let room = |w: &Self| {
            if is_new(w) { w.parts.len() > 1 } else { w.offset() + next <= limit }
        };
        let may_help = |w: &Self| over(w) && room(w);
        while may_help(self) && self.drop_oldest() {}
        // An incident has one file: whoever watches it ends it.
        let has_parts = self.options.rotates();
        if has_parts && over(self) && !is_new(self) && clock::mono() >= self.no_rotation {
            self.rotate();
            while may_help(self) && self.drop_oldest() {}
        }
    }

    fn drop_oldest(&mut self) -> bool {
        self.home.as_ref().is_some_and(|home| self.parts.drop_oldest(home))
    }
}
