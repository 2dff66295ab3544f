//! One thread that is watched.

use std::fs::File;
use std::io;

use super::groups;
use super::sleep::{self, Readable};
use crate::collect::HostFs;
use crate::collect::hot::read_record;
use crate::collect::tasks::stat::{Schedstat, Stat, parse_schedstat, parse_stat};
use crate::sample::subject::TaskId;
use crate::sample::waits::{Sleep, ThreadWaits};

/// What is kept of it between passes.
#[derive(Debug)]
pub(super) struct Watched {
    task: TaskId,
    /// `proc/PID/task/TID`.
    dir: String,
    schedstat: Option<File>,
    /// As of the last pass.
    counted: Option<Schedstat>,
    /// The sleep of the last pass, as an index into `sleeps`.
    asleep: Option<usize>,
    /// As of the last reading of `stat`.
    stat_of: Option<Schedstat>,
    out: ThreadWaits,
}

/// What a pass needs beside the thread.
pub(super) struct Pass<'a> {
    pub(super) host: &'a HostFs,
    pub(super) buf: &'a mut Vec<u8>,
    /// The file may stay open.
    pub(super) keep_open: bool,
}

impl Watched {
    /// # Errors
    /// When there is no such thread.
    pub(super) fn new(pid: u32, tid: u32, pass: &mut Pass<'_>) -> io::Result<Self> {
        let dir = format!("proc/{pid}/task/{tid}");
        let mut new = Self {
            task: TaskId { pid, tid, start: 0 },
            dir,
            schedstat: None,
            counted: None,
            asleep: None,
            stat_of: None,
            out: groups::read(pass.host, pid, tid),
        };
        let start = new.read_stat(pass, |s| s.start)?;
        new.task.start = start;
        new.out.task = new.task;
        Ok(new)
    }

    pub(super) fn is_open(&self) -> bool {
        self.schedstat.is_some()
    }

    /// One look.
    ///
    /// # Errors
    /// When the thread has ended, reaped or not, or its number is another's by now.
    pub(super) fn look(&mut self, pass: &mut Pass<'_>) -> io::Result<Option<Readable>> {
        let now = self.read_schedstat(pass)?;
        let moved = now.is_none() || now != self.counted;
        self.counted = now;
        if let (Some(at), false) = (self.asleep, moved) {
            self.out.samples += 1;
            if let Some(s) = self.out.sleeps.get_mut(at) {
                s.samples += 1;
            }
            return Ok(None);
        }
        self.asleep = None;
        let state = self.read_stat(pass, |s| s.state)?;
        self.out.samples += 1;
        if matches!(state, 'Z' | 'X') {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state == 'R' {
            return Ok(None);
        }
        let (sleep, readable) = sleep::read(pass.host, self.task.pid, &self.dir, state);
        // Read piece by piece, of a thread that goes on: a sleep that has ended meanwhile may be put
        // together from two.
        let after = self.read_schedstat(pass)?;
        if after.is_some() && after != now || self.read_stat(pass, |s| s.state)? != state {
            return Ok(Some(readable));
        }
        let known = self.out.sleeps.iter_mut().position(|s| is_same(s, &sleep));
        let at = known.unwrap_or_else(|| {
            self.out.sleeps.push(sleep);
            self.out.sleeps.len() - 1
        });
        if let Some(s) = self.out.sleeps.get_mut(at) {
            s.samples += 1;
        }
        self.asleep = Some(at);
        Ok(Some(readable))
    }

    /// What was seen since the last time, with the counters as of the last pass.
    ///
    /// # Errors
    /// When the thread has ended.
    pub(super) fn take(&mut self, pass: &mut Pass<'_>) -> io::Result<ThreadWaits> {
        // A thread that did not run has the name and the times that it had.
        if self.stat_of.is_none() || self.stat_of != self.counted {
            let (comm, times) = self.read_stat(pass, |s| {
                (String::from_utf8_lossy(s.comm).into_owned(), (s.utime, s.stime))
            })?;
            (self.out.utime, self.out.stime) = times;
            if self.out.comm != comm {
                self.out.comm = comm;
            }
            self.stat_of = self.counted;
        }
        self.out.run_ns = self.counted.map_or(0, |c| c.run_ns);
        self.out.run_delay_ns = self.counted.map(|c| c.run_delay_ns);
        let mut out = self.out.clone();
        // The sleep that it is in goes on.
        let current = self.asleep.and_then(|at| self.out.sleeps.get(at).cloned());
        self.asleep = current.is_some().then_some(0);
        self.out.sleeps.clear();
        self.out.sleeps.extend(current.map(|s| Sleep { samples: 0, ..s }));
        self.out.samples = 0;
        out.sleeps.retain(|s| s.samples > 0);
        Ok(out)
    }

    /// Where run delays are not counted, `None`.
    fn read_schedstat(&mut self, pass: &mut Pass<'_>) -> io::Result<Option<Schedstat>> {
        let file = match self.schedstat.take() {
            Some(f) => f,
            None => match File::open(pass.host.path(format!("{}/schedstat", self.dir))) {
                Ok(f) => f,
                // Without CONFIG_SCHED_INFO; or the thread has ended, as `stat` will tell.
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(e),
            },
        };
        read_record(&file, pass.buf)?;
        self.schedstat = pass.keep_open.then_some(file);
        // All zero: not counted. A thread that never ran is neither asleep nor worth a sample.
        Ok(parse_schedstat(pass.buf).filter(|s| *s != Schedstat::default()))
    }

    fn read_stat<T>(&self, pass: &mut Pass<'_>, of: impl FnOnce(&Stat<'_>) -> T) -> io::Result<T> {
        let file = File::open(pass.host.path(format!("{}/stat", self.dir)))?;
        read_record(&file, pass.buf)?;
        let stat = parse_stat(pass.buf).ok_or(io::ErrorKind::InvalidData)?;
        if self.task.start != 0 && stat.start != self.task.start {
            // The number was given to another thread.
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(of(&stat))
    }
}

fn is_same(a: &Sleep, b: &Sleep) -> bool {
    let of = |s: &Sleep| (s.state, s.futex, s.inode);
    of(a) == of(b) && (&a.wchan, &a.syscall, &a.file) == (&b.wchan, &b.syscall, &b.file)
}
