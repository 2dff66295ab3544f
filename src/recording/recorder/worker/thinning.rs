//! Older ticks in coarser steps, while it records: behind each tick one group of the file goes
//! into a new file, which takes the old one's name when it has all of them. Until then the old
//! file is whole and goes on; a kill leaves the new one behind, to be begun anew.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{Worker, target};
use crate::clock;
use crate::recording::Reader;
use crate::recording::recorder::{SyncPolicy, Target};
use crate::recording::thin::{Fate, Thinning};

/// The file is written anew when this part of it is too old for its step: what it costs stays
/// below so many times what is recorded.
const SHARE: u64 = 8;
/// Groups that may be left for the moment in which the files change places.
const AT_ONCE: usize = 2;
/// After an error it is not tried again for so long.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) type Job = Thinning<target::Sink>;

impl Worker {
    /// Does a little of it, behind a tick.
    pub(super) fn thin(&mut self) {
        let group_end = std::mem::take(&mut self.group_end);
        if self.options.thin.is_none() || self.pause.is_some() || !self.is_file() {
            return;
        }
        let result = match self.thinning.take() {
            Some(job) => self.thin_on(job, group_end),
            None if group_end && clock::mono() >= self.no_thinning => self.thin_begin(),
            None => return,
        };
        match result {
            Ok(job) => self.thinning = job,
            Err(e) => {
                self.stop_thinning();
                self.no_thinning = clock::mono() + PATIENCE;
                self.trouble(Some(format!("cannot thin: {e}")), "cannot thin");
            }
        }
    }

    fn thin_begin(&mut self) -> io::Result<Option<Job>> {
        let (Some(w), Some(tiers)) = (&self.writer, self.options.thin) else { return Ok(None) };
        let Some(now) = w.last() else { return Ok(None) };
        let host = |segment: u32| self.hosts.get(segment as usize).unwrap_or(&self.host);
        let old = w
            .groups()
            .iter()
            .filter(|g| tiers.fate(g, host(g.segment), now, &self.host) != Fate::Keep);
        let due: u64 = old.map(|g| g.end.saturating_sub(g.offset)).sum();
        if due == 0 || due.saturating_mul(SHARE) < w.offset() {
            return Ok(None);
        }
        let Some(path) = self.scratch() else { return Ok(None) };
        let reader = Reader::new(Arc::new(w.get_ref().file()?)).map_err(io::Error::other)?;
        let out = target::create_scratch(&path)?;
        Thinning::start(reader, out, tiers, now, &self.host).map(Some)
    }

    fn thin_on(&mut self, mut job: Job, group_end: bool) -> io::Result<Option<Job>> {
        if job.left() > 0 {
            job.step()?;
        }
        if job.left() > 0 {
            return Ok(Some(job));
        }
        job.refresh()?;
        // Between two groups: nothing is open in the old file.
        if !group_end || job.left() > AT_ONCE {
            return Ok(Some(job));
        }
        while job.left() > 0 {
            job.step()?;
        }
        let (mut writer, hosts) = job.finish()?;
        if let Some(old) = &self.writer {
            writer.follow(old);
        }
        if self.options.sync != SyncPolicy::Off {
            writer.get_ref().sync()?;
        }
        if let (Some(from), Target::File(to)) = (self.scratch(), &self.target) {
            std::fs::rename(from, to)?;
            (self.writer, self.hosts, self.unsynced) = (Some(writer), hosts, false);
            self.trouble(None, "cannot thin");
        }
        Ok(None)
    }

    /// Gives it up; true when there was something to give up.
    pub(super) fn stop_thinning(&mut self) -> bool {
        let had = self.thinning.take().is_some();
        if let Some(path) = self.scratch().filter(|_| self.options.thin.is_some()) {
            target::remove_scratch(&path);
        }
        had
    }

    /// Where the new file is made: beside the old one, or it could not take its place.
    fn scratch(&self) -> Option<PathBuf> {
        let Target::File(path) = &self.target else { return None };
        Some(beside(path))
    }
}

/// `.NAME.thinning`.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".thinning");
    path.with_file_name(name)
}
