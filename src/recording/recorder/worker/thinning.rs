//! Downsamples older ticks while recording: after each tick one group of the file is copied to a
//! new file, which takes the old one's name when it is complete. Until then the old file stays
//! intact and in use, and the new one has no name, so that a kill leaves nothing behind. If the
//! file system does not support files without a name, the next recorder of the file removes it.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Gid, Mode, fchmod, fchown, fgetxattr_query, fstat};

use super::{Trouble, Worker, target};
use crate::clock;
use crate::recording::file::home::{Change, Side};
use crate::recording::file::reader::Reader;
use crate::recording::recorder::SyncPolicy;
use crate::recording::tools::thin::{Fate, Thinning};

/// The file is rewritten when this fraction of it is too old for its step, which bounds the cost
/// relative to what is recorded.
const SHARE: u64 = 8;
/// Groups that may be left for the moment when the files are swapped.
const AT_ONCE: usize = 2;
/// What is taken over of a file's mode: who may read it.
const READABLE: Mode = Mode::RWXU.union(Mode::RGRP).union(Mode::ROTH);
/// Pause after an error before it is tried again.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) struct Job {
    thinning: Thinning<target::Sink>,
    side: Side,
}

impl Worker {
    /// Does a little of it, after a tick.
    pub(super) fn thin(&mut self) {
        let group_end = std::mem::take(&mut self.group_end);
        if self.options.thin.is_none() || self.pause.is_some() || !self.is_file() {
            return;
        }
        let result = match self.thinning.take() {
            Some(job) => self.thin_on(job, group_end),
            None if group_end && clock::mono() >= self.no_thinning && self.has_its_name() => {
                self.thin_begin().map(|job| self.thinning = job)
            }
            None => return,
        };
        if let Err(e) = result {
            self.no_thinning = clock::mono() + PATIENCE;
            self.trouble(Trouble::Thin, Some(format!("cannot thin: {e}")));
        }
    }

    fn thin_begin(&mut self) -> io::Result<Option<Job>> {
        let (Some(w), Some(tiers)) = (&self.writer, self.options.thin) else { return Ok(None) };
        let (Some(now), Some(home)) = (w.last(), &self.home) else { return Ok(None) };
        let host = |segment: u32| self.hosts.get(segment as usize).unwrap_or(&self.host);
        let old = w
            .groups()
            .iter()
            .filter(|g| tiers.fate(g, host(g.segment), now, &self.host) != Fate::Keep);
        let due: u64 = old.map(|g| g.end.saturating_sub(g.offset)).sum();
        if due == 0 || due.saturating_mul(SHARE) < w.offset() {
            return Ok(None);
        }
        let file = w.get_ref().file().try_clone()?;
        let reader = Reader::new(Arc::new(file))?;
        // In the same directory, or it could not take FILE's place.
        let side = home.side()?;
        let begun = target::Sink::of_side(&side)
            .and_then(|out| Thinning::start(reader, out, tiers, now, &self.host));
        match begun {
            Ok(thinning) => Ok(Some(Job { thinning, side })),
            Err(e) => {
                home.discard(side);
                Err(e)
            }
        }
    }

    fn thin_on(&mut self, mut job: Job, group_end: bool) -> io::Result<()> {
        let step = next(&mut job.thinning, group_end);
        if matches!(step, Ok(Step::More)) {
            self.thinning = Some(job);
            return Ok(());
        }
        let Job { thinning, mut side } = job;
        let done = step.and_then(|_| self.take_place(thinning, &mut side));
        if let Some(home) = &self.home {
            home.discard(side);
        }
        done
    }

    fn take_place(&mut self, thinning: Thinning<target::Sink>, side: &mut Side) -> io::Result<()> {
        let (mut writer, hosts) = thinning.finish()?;
        let (Some(home), Some(old)) = (&self.home, &self.writer) else { return Ok(()) };
        writer.follow(old);
        if self.options.sync != SyncPolicy::Off {
            writer.get_ref().sync()?;
        }
        same_readers(old.get_ref().file(), writer.get_ref().file());
        match home.replace(old.get_ref().file(), side)? {
            Change::Made => {
                (self.writer, self.hosts, self.unsynced) = (Some(writer), hosts, false);
                self.trouble(Trouble::Thin, None);
            }
            Change::NotOurs => {
                self.no_thinning = clock::mono() + PATIENCE;
                self.look_at_name();
            }
        }
        Ok(())
    }

    /// Gives it up; true when there was something to give up.
    pub(super) fn stop_thinning(&mut self) -> bool {
        match (self.thinning.take(), &self.home) {
            (Some(job), Some(home)) => {
                home.discard(job.side);
                true
            }
            _ => false,
        }
    }
}

/// Whoever may read the old file may read the new one, and nobody else. An access list is not
/// copied: with one, or in another group, the new file stays ours alone.
fn same_readers(old: &File, new: &File) {
    let (Ok(was), Ok(is)) = (fstat(old), fstat(new)) else { return };
    let mode = Mode::from_raw_mode(was.st_mode) & READABLE;
    let group = Some(Gid::from_raw(was.st_gid));
    let same_group = was.st_gid == is.st_gid || fchown(new, None, group).is_ok();
    // Its mask stands where the bits of the group are. A directory may give a new file one, too.
    let has_list = |f| fgetxattr_query(f, "system.posix_acl_access").is_ok_and(|n| n > 0);
    if same_group && !has_list(old) && !has_list(new) {
        let _ = fchmod(new, mode);
    }
}

enum Step {
    More,
    /// Nearly everything is in the new file, and no group is open in the old one.
    Last,
}

/// One group, or at the end the few that are left.
fn next(thinning: &mut Thinning<target::Sink>, group_end: bool) -> io::Result<Step> {
    if thinning.left() > 0 {
        thinning.step()?;
    }
    if thinning.left() > 0 {
        return Ok(Step::More);
    }
    thinning.refresh()?;
    if !group_end || thinning.left() > AT_ONCE {
        return Ok(Step::More);
    }
    while thinning.left() > 0 {
        thinning.step()?;
    }
    Ok(Step::Last)
}
