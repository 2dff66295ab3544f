//! Asks file systems how much room they have, on a thread of its own. One that does not answer
//! in time keeps that thread; the rest is asked by a new one.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::mounts::Mount;
use crate::clock;
use crate::rights::{self, Duty};
use crate::sample::filesystems::Space;
use crate::sample::time::MonoNs;

/// A disk that is merely busy answers from memory; a server has this long.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);
/// Threads that may be stuck at a time. When all are, the rest waits.
const MAX_STUCK: usize = 4;

/// An answer, or the error number.
pub(super) type Answer = Result<Space, i32>;
/// How a mount is asked.
pub(super) type Probe = Arc<dyn Fn(&Path, u64) -> Answer + Send + Sync>;

/// What to ask.
#[derive(Clone, Debug)]
struct Job {
    id: u64,
    path: std::path::PathBuf,
}

/// What a thread says; `thread` is its number.
enum Report {
    Begun { thread: u64, id: u64, at: MonoNs },
    Done { thread: u64, id: u64, answer: Answer },
}

/// The thread that works now.
struct Current {
    number: u64,
    jobs: Sender<Job>,
    /// Set when nobody waits for it any more.
    dismissed: Arc<AtomicBool>,
    /// What it asks, and since when.
    busy: Option<(u64, MonoNs)>,
}

/// See the module head.
pub(super) struct Asker {
    probe: Probe,
    reports: Sender<Report>,
    inbox: Receiver<Report>,
    current: Option<Current>,
    /// Handed to the current thread and not begun.
    todo: VecDeque<Job>,
    /// Threads that hang: their number, the mount, since when.
    stuck: Vec<(u64, u64, MonoNs)>,
    started: u64,
}

impl Asker {
    pub(super) fn new(probe: Probe) -> Self {
        let (reports, inbox) = channel();
        Self {
            probe,
            reports,
            inbox,
            current: None,
            todo: VecDeque::new(),
            stuck: Vec::new(),
            started: 0,
        }
    }

    /// Asks all of them that are not being asked already.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(super) fn ask<'a>(&mut self, mounts: impl Iterator<Item = &'a Mount>) -> io::Result<()> {
        for m in mounts {
            let known =
                self.todo.iter().any(|j| j.id == m.id) || self.waiting().any(|(id, _)| id == m.id);
            if !known {
                let job = Job { id: m.id, path: m.path.clone() };
                self.todo.push_back(job.clone());
                if let Some(c) = &self.current {
                    // A thread that has panicked takes nothing; it is replaced below.
                    let _ = c.jobs.send(job);
                }
            }
        }
        if self.current.is_none() { self.start() } else { Ok(()) }
    }

    /// Being asked now, and since when.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (u64, MonoNs)> + '_ {
        let busy = self.current.as_ref().and_then(|c| c.busy);
        self.stuck.iter().map(|s| (s.1, s.2)).chain(busy)
    }

    /// No thread is left for those that would answer.
    pub(super) fn is_exhausted(&self) -> bool {
        self.stuck.len() >= MAX_STUCK
    }

    /// Takes the answers that have come, and leaves a thread alone that has waited too long.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(super) fn take(
        &mut self,
        now: MonoNs,
        mut answered: impl FnMut(u64, Answer),
    ) -> io::Result<()> {
        while let Ok(report) = self.inbox.try_recv() {
            match report {
                Report::Begun { thread, id, at } => {
                    if let Some(c) = self.current.as_mut().filter(|c| c.number == thread) {
                        c.busy = Some((id, at));
                        self.todo.retain(|j| j.id != id);
                    }
                }
                Report::Done { thread, id, answer } => {
                    match &mut self.current {
                        Some(c) if c.number == thread => c.busy = None,
                        _ => self.stuck.retain(|s| s.0 != thread),
                    }
                    answered(id, answer);
                }
            }
        }
        let hangs = |c: &Current| c.busy.filter(|(_, at)| now.since(*at) >= DEADLINE);
        if !self.is_exhausted()
            && let Some((id, at)) = self.current.as_ref().and_then(hangs)
            && let Some(c) = self.current.take()
        {
            c.dismissed.store(true, Ordering::Relaxed);
            self.stuck.push((c.number, id, at));
            return self.start();
        }
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        let (jobs, todo) = channel::<Job>();
        for job in &self.todo {
            let _ = jobs.send(job.clone());
        }
        self.started += 1;
        let (number, dismissed) = (self.started, Arc::new(AtomicBool::new(false)));
        let (probe, reports, over) = (self.probe.clone(), self.reports.clone(), dismissed.clone());
        thread::Builder::new().name(Duty::Mounts.row().thread.into()).spawn(move || {
            rights::restrict(Duty::Mounts);
            for Job { id, path } in todo {
                let at = clock::mono();
                if over.load(Ordering::Relaxed)
                    || reports.send(Report::Begun { thread: number, id, at }).is_err()
                {
                    return;
                }
                let answer = probe(&path, id);
                if reports.send(Report::Done { thread: number, id, answer }).is_err() {
                    return;
                }
            }
        })?;
        self.current = Some(Current { number, jobs, dismissed, busy: None });
        Ok(())
    }
}

/// Asks the kernel. What is mounted over it, or over a directory on the way, must not answer in
/// its place.
pub(super) fn statvfs(path: &Path, mount: u64) -> Answer {
    let ask = || -> Result<Space, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let at = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        // Since 5.8; the system call itself since 4.11.
        let id = rustix::fs::statx(&fd, c"", at, StatxFlags::MNT_ID).ok();
        let id = id.filter(|s| s.stx_mask & StatxFlags::MNT_ID.bits() != 0);
        if id.is_some_and(|s| s.stx_mnt_id != mount) {
            return Err(Errno::NOENT);
        }
        let s = rustix::fs::fstatvfs(&fd)?;
        Ok(Space {
            block: s.f_frsize,
            blocks: s.f_blocks,
            free: s.f_bfree,
            avail: s.f_bavail,
            files: s.f_files,
            files_free: s.f_ffree,
        })
    };
    ask().map_err(Errno::raw_os_error)
}
