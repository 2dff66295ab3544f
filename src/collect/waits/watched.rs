//! One thread that is watched.

use std::fs::File;
use std::io;

use super::place;
use super::syscall::{self, Call};
use crate::collect::HostFs;
use crate::collect::hot::read_record;
use crate::collect::sched::parse_task_cgroup;
use crate::collect::tasks::stat::{Schedstat, Stat, parse_schedstat, parse_stat};
use crate::parse::limiting_cgroup;
use crate::rights::{self, Duty};
use crate::sample::subject::TaskId;
use crate::sample::waits::{Futex, Sleep, ThreadWaits};

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

/// What the kernel let us read of a sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Readable {
    pub(super) wchan: bool,
    pub(super) syscall: bool,
}

impl Watched {
    /// # Errors
    /// When there is no such thread.
    pub(super) fn new(pid: u32, tid: u32, pass: &mut Pass<'_>) -> io::Result<Self> {
        let dir = format!("proc/{pid}/task/{tid}");
        let text = pass.host.read(format!("{dir}/cgroup")).unwrap_or_default();
        let cgroup = parse_task_cgroup(&text);
        let other =
            |controller| limiting_cgroup(&text, controller).filter(|p| Some(p) != cgroup.as_ref());
        let (memory_cgroup, pids_cgroup) = (other("memory"), other("pids"));
        let mut new = Self {
            task: TaskId { pid, tid, start: 0 },
            dir,
            schedstat: None,
            counted: None,
            asleep: None,
            stat_of: None,
            out: ThreadWaits { cgroup, memory_cgroup, pids_cgroup, ..ThreadWaits::default() },
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
        let (sleep, readable) = self.read_sleep(state, pass);
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

    fn read_sleep(&self, state: char, pass: &mut Pass<'_>) -> (Sleep, Readable) {
        let Pass { host, .. } = pass;
        let file = |name: &str| host.read(format!("{}/{name}", self.dir));
        let mut readable = Readable::default();
        let mut out = Sleep { state, ..Sleep::default() };
        if let Ok(text) = file("wchan") {
            readable.wchan = true;
            // 0: it runs by now, or it is not for our eyes.
            let name = String::from_utf8_lossy(&text).trim().to_owned();
            out.wchan = (!name.is_empty() && name != "0").then_some(name);
        }
        let stack = || rights::lend(Duty::Waits.row().lent, || file("stack")).ok();
        if out.wchan.as_deref().is_none_or(place::is_helper)
            && let Some(caller) = stack().as_deref().and_then(place::first_of)
        {
            out.wchan = Some(caller.to_owned());
        }
        let call = file("syscall").map(|b| {
            readable.syscall = true;
            syscall::parse(&b)
        });
        let Ok(Some(call)) = call else { return (out, readable) };
        out.syscall = call.name.map(str::to_owned);
        out.futex = futex(&call);
        if let Some(fd) = call.fd()
            && let Ok(link) = host.link(format!("proc/{}/fd/{fd}", self.task.pid))
        {
            (out.file, out.inode) = target(link);
        }
        (out, readable)
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

fn futex(call: &Call) -> Option<Futex> {
    let [addr, op, val] = call.args;
    let futex = Futex { op: op as u32, val: val as u32, addr: Some(addr) };
    (call.name == Some("futex")).then_some(futex)
}

/// What a link below `/proc/PID/fd` says: `socket:[123]`, `anon_inode:[eventpoll]`, a path.
fn target(link: String) -> (Option<String>, Option<u64>) {
    for kind in ["socket", "pipe"] {
        let number = link.strip_prefix(kind).and_then(|l| l.strip_prefix(":["));
        if let Some(n) = number.and_then(|l| l.strip_suffix(']')) {
            return (Some(kind.to_owned()), n.parse().ok());
        }
    }
    match link.strip_prefix("anon_inode:") {
        Some(kind) => (Some(kind.to_owned()), None),
        None => (Some(link), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_name_what_a_descriptor_is() {
        let of = |l: &str| {
            let (file, inode) = target(l.to_owned());
            (file.unwrap_or_default(), inode)
        };
        assert_eq!(of("socket:[4711]"), ("socket".into(), Some(4711)));
        assert_eq!(of("pipe:[12]"), ("pipe".into(), Some(12)));
        assert_eq!(of("anon_inode:[eventpoll]"), ("[eventpoll]".into(), None));
        assert_eq!(of("/var/lib/db/wal (deleted)"), ("/var/lib/db/wal (deleted)".into(), None));
    }
}
