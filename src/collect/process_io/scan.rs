//! `ProcessScan`: visits the processes whose bytes moved, within a CPU budget.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::time::Duration;

use super::parse::{Io, given, parse_io, parse_last_pid};
use super::process::{Entry, HOT_READINGS, Process, Queue, Read, first_readings};
use crate::clock;
use crate::collect::HostFs;
use crate::collect::hot::read_record;
use crate::collect::tasks::dir::NumberDir;
use crate::collect::tasks::stat::{Stat, parse_stat};
use crate::sample::time::MonoNs;

/// Processes that we keep track of.
const MAX_KNOWN: usize = 65_536;
/// Readings without a moved byte after which it is asleep.
const QUIET_READINGS: u8 = 8;
/// The others are read again after this time.
const COLD_AGE: Duration = Duration::from_millis(900);
/// The same of those asleep ...
const ASLEEP_AGE: Duration = Duration::from_secs(4);
/// ... and of those that were threads of the kernel, or not ours to read: the number may be
/// another's by now.
const ASIDE_AGE: Duration = Duration::from_secs(30);
/// All processes are listed anew after this time at the earliest; new ones are looked for in every
/// round.
const LIST_AGE: Duration = Duration::from_secs(2);
/// CPU time that the first round may use: all is new then, and none of it in a cache.
const FIRST_ROUND: Duration = Duration::from_millis(40);
/// So many rounds may use so many times the budget, until every process was read once.
const EARLY_ROUNDS: u32 = 30;
const EARLY: u32 = 4;
/// Read in every round and of every queue, whatever the budget.
const MIN_READS: usize = 8;
/// Descriptors that stay open.
const MAX_FILES: usize = 64;
/// Waited-for children that one growth is looked for.
const MAX_CHILDREN: usize = 64;
/// A parent that has not taken over a child's counters after this time never will.
const ESTATE_AGE: Duration = Duration::from_secs(10);

/// What a round left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Processes that were due and not read for lack of budget.
    pub unread: u32,
    /// Processes that we may not read.
    pub denied: u32,
}

/// See the module head.
#[derive(Debug)]
pub(super) struct ProcessScan {
    host: HostFs,
    /// This process, which is left out.
    own: Option<u32>,
    dir: NumberDir,
    buf: Vec<u8>,
    processes: HashMap<u32, Process>,
    hot: VecDeque<Entry>,
    new: VecDeque<Entry>,
    cold: VecDeque<Entry>,
    asleep: VecDeque<Entry>,
    aside: VecDeque<Entry>,
    tickets: u64,
    /// Number of the last listing.
    listing: u32,
    rounds: u32,
    /// When all were listed, and when new ones were looked for.
    listed_at: Option<MonoNs>,
    new_at: Option<MonoNs>,
    /// The number that was given last, as of then.
    newest: Option<u32>,
    list_due: MonoNs,
    /// Of the last listing, those that we do not keep track of.
    beyond: u32,
    files: usize,
    denied: HashSet<u32>,
}

impl ProcessScan {
    pub(super) fn new(host: &HostFs) -> Self {
        Self {
            host: host.clone(),
            own: host.link("proc/self").ok().and_then(|pid| pid.parse().ok()),
            dir: NumberDir::default(),
            buf: Vec::new(),
            processes: HashMap::new(),
            hot: VecDeque::new(),
            new: VecDeque::new(),
            cold: VecDeque::new(),
            asleep: VecDeque::new(),
            aside: VecDeque::new(),
            tickets: 0,
            listing: 0,
            rounds: 0,
            listed_at: None,
            new_at: None,
            newest: None,
            list_due: MonoNs(0),
            beyond: 0,
            files: 0,
            denied: HashSet::new(),
        }
    }

    /// One round of at most `budget` CPU time. `visit` sees each process whose bytes moved.
    pub(super) fn round(
        &mut self,
        at: MonoNs,
        budget: Duration,
        mut visit: impl FnMut(&Process),
    ) -> io::Result<Round> {
        let unseen = self.cold.front().is_some_and(|e| e.read_at.is_none());
        self.rounds = self.rounds.saturating_add(1);
        let start = clock::thread_cpu();
        self.list(at, budget)?;
        let budget = match self.rounds {
            1 => budget.max(FIRST_ROUND),
            n if n <= EARLY_ROUNDS && unseen => EARLY * budget,
            _ => budget,
        };
        let over = |part: f64| clock::thread_cpu().saturating_sub(start) > budget.mul_f64(part);
        let mut left = 0;
        let passes = [
            (Queue::Hot, Duration::ZERO, 0.5),
            (Queue::New, Duration::ZERO, 0.75),
            (Queue::Cold, COLD_AGE, 1.0),
            (Queue::Asleep, ASLEEP_AGE, 1.0),
            (Queue::Aside, ASIDE_AGE, 1.0),
        ];
        for (queue, age, part) in passes {
            // Entries are in the order of their readings, new ones in front.
            let is_due = |e: &Entry| e.read_at.is_none_or(|t| at.since(t) >= age);
            let due = self.queue(queue).partition_point(is_due);
            for n in 0..due {
                if n >= MIN_READS && n.is_multiple_of(4) && over(part) {
                    left += if queue == Queue::Aside { 0 } else { due - n };
                    break;
                }
                let Some(entry) = self.queue(queue).pop_front() else { break };
                self.look_at(entry, at, &mut visit);
            }
        }
        let unread = u32::try_from(left).unwrap_or(u32::MAX).saturating_add(self.beyond);
        Ok(Round { unread, denied: self.denied.len() as u32 })
    }

    fn queue(&mut self, queue: Queue) -> &mut VecDeque<Entry> {
        match queue {
            Queue::Hot => &mut self.hot,
            Queue::New => &mut self.new,
            Queue::Cold => &mut self.cold,
            Queue::Asleep => &mut self.asleep,
            Queue::Aside => &mut self.aside,
        }
    }

    /// Finds new processes: those whose numbers were given since the round before in every round,
    /// whoever that misses when all are listed.
    fn list(&mut self, at: MonoNs, budget: Duration) -> io::Result<()> {
        let loadavg = self.host.read("proc/loadavg").unwrap_or_default();
        let newest = parse_last_pid(&loadavg);
        let before = std::mem::replace(&mut self.newest, newest);
        let absent_at = self.new_at.replace(at);
        let mut dir = std::mem::take(&mut self.dir);
        let mut listed = Ok(());
        for (first, last) in given(before, newest) {
            let found = |pid| {
                self.meet(pid, absent_at);
            };
            listed = listed.and_then(|()| dir.visit_between(first, last, found));
        }
        if listed.is_ok() && at >= self.list_due {
            listed = self.list_all(&mut dir, at, budget);
        }
        self.dir = dir;
        listed
    }

    fn list_all(&mut self, dir: &mut NumberDir, at: MonoNs, budget: Duration) -> io::Result<()> {
        let before = clock::thread_cpu();
        self.listing = self.listing.wrapping_add(1);
        let (absent_at, mut beyond) = (self.listed_at.replace(at), 0);
        let proc = self.host.path("proc");
        dir.visit(&proc, |pid| beyond += u32::from(!self.meet(pid, absent_at)))?;
        self.beyond = beyond;
        let now = self.listing;
        let gone: Vec<u32> =
            self.processes.iter().filter(|(_, p)| p.seen != now).map(|(n, _)| *n).collect();
        for pid in gone {
            self.bury(pid, at);
        }
        // At most a tenth of the budget goes into this.
        let cost = clock::thread_cpu().saturating_sub(before);
        let rounds = cost.as_secs_f64() / budget.as_secs_f64().max(1e-6) * 10.0;
        self.list_due = at + Duration::from_secs_f64(rounds.min(30.0)).max(LIST_AGE);
        Ok(())
    }

    /// A number that was listed; false if there are too many to keep track of.
    fn meet(&mut self, pid: u32, absent_at: Option<MonoNs>) -> bool {
        if let Some(p) = self.processes.get_mut(&pid) {
            p.seen = self.listing;
        } else if Some(pid) == self.own {
            // What looking costs is in the section `self`.
        } else if self.processes.len() >= MAX_KNOWN {
            return false;
        } else {
            self.tickets += 1;
            let p = Process::new(pid, absent_at, self.listing, self.tickets);
            self.processes.insert(pid, p);
            self.cold.push_front(Entry { pid, ticket: self.tickets, read_at: None });
        }
        true
    }

    fn look_at(&mut self, entry: Entry, at: MonoNs, visit: &mut impl FnMut(&Process)) {
        let Entry { pid, ticket, .. } = entry;
        let Some(mut p) = self.processes.remove(&pid) else { return };
        if p.ticket != ticket {
            // Of another process that had this number before.
            self.processes.insert(pid, p);
            return;
        }
        self.files = self.files.saturating_sub(usize::from(p.file.is_some()));
        let read = self.read(&mut p, at);
        let queue = match read {
            Read::Gone => {
                let task = p.task;
                self.processes.insert(pid, p);
                self.bury(pid, at);
                if self.host.path(format!("proc/{pid}")).exists() {
                    self.found_anew(task.pid);
                }
                return;
            }
            Read::Kernel | Read::Denied => Queue::Aside,
            Read::Moved | Read::Unmoved if p.hot > 0 && p.io.no_bytes() => Queue::New,
            Read::Moved | Read::Unmoved if p.hot > 0 => Queue::Hot,
            Read::Moved | Read::Unmoved if p.quiet >= QUIET_READINGS => Queue::Asleep,
            Read::Moved | Read::Unmoved => Queue::Cold,
        };
        if matches!(read, Read::Denied) {
            self.denied.insert(pid);
        } else {
            self.denied.remove(&pid);
        }
        if matches!(read, Read::Moved) {
            visit(&p);
        }
        if queue != Queue::Hot || self.files >= MAX_FILES {
            p.file = None;
        }
        self.files += usize::from(p.file.is_some());
        self.processes.insert(pid, p);
        self.queue(queue).push_back(Entry { pid, ticket, read_at: Some(at) });
    }

    /// The number was given to another process, when is not known.
    fn found_anew(&mut self, pid: u32) {
        self.tickets += 1;
        self.processes.insert(pid, Process::new(pid, None, self.listing, self.tickets));
        self.cold.push_front(Entry { pid, ticket: self.tickets, read_at: None });
    }

    fn read(&mut self, p: &mut Process, at: MonoNs) -> Read {
        let now = match self.counters(p) {
            Ok(io) => io,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                (p.read_at, p.moved) = (None, false);
                return Read::Denied;
            }
            Err(_) => return Read::Gone,
        };
        let first = p.read_at.is_none();
        let moved = if first { !now.no_bytes() } else { !now.same_bytes(&p.io) };
        // Of thousands that have done nothing, who they are is of no interest at the first look.
        if (moved || !(first || p.identified)) && self.identify(p).is_none() {
            return Read::Gone;
        }
        if p.kernel {
            return Read::Kernel;
        }
        if !moved {
            p.hot = if first { first_readings(p) } else { p.hot.saturating_sub(1) };
            p.quiet = p.quiet.saturating_add(1);
            (p.io, p.moved, p.read_at) = (now, false, Some(at));
            return Read::Unmoved;
        }
        let had_row = !p.io.no_bytes();
        let since = |then: MonoNs| at.since(then);
        p.zero = if had_row { None } else { p.read_at.or(p.absent_at).map(since) };
        p.still = p.read_at.filter(|_| had_row && !p.moved).map(since);
        p.grown = p.read_at.and_then(|_| now.grown_from(&p.io));
        if let Some(grown) = p.grown {
            self.inherit(p, at, grown);
        }
        (p.io, p.moved, p.read_at) = (now, true, Some(at));
        (p.hot, p.quiet) = (if first { first_readings(p) } else { HOT_READINGS }, 0);
        Read::Moved
    }

    /// Finds out who it is; `None` if it is gone, or another one has its number.
    fn identify(&mut self, p: &mut Process) -> Option<()> {
        let bytes = self.stat(p.task.pid).ok()?;
        let stat = parse_stat(&bytes).filter(|s| !p.identified || s.start == p.task.start)?;
        (p.identified, p.kernel) = (true, stat.kernel_thread);
        self.take(p, &stat);
        self.buf = bytes;
        Some(())
    }

    fn counters(&mut self, p: &mut Process) -> io::Result<Io> {
        let file = match p.file.take() {
            Some(f) => f,
            None => File::open(self.host.path(format!("proc/{}/io", p.task.pid)))?,
        };
        read_record(&file, &mut self.buf)?;
        p.file = Some(file);
        parse_io(&self.buf).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn stat(&mut self, pid: u32) -> io::Result<Vec<u8>> {
        let file = File::open(self.host.path(format!("proc/{pid}/stat")))?;
        let mut buf = std::mem::take(&mut self.buf);
        read_record(&file, &mut buf)?;
        Ok(buf)
    }

    fn take(&mut self, p: &mut Process, stat: &Stat<'_>) {
        p.task.start = stat.start;
        if p.comm.as_bytes() != stat.comm {
            p.comm = String::from_utf8_lossy(stat.comm).into_owned();
        }
        if p.parent != stat.parent {
            p.parent = stat.parent;
            if let Some(parent) = self.processes.get_mut(&stat.parent) {
                parent.children.push(p.task.pid);
            }
        }
    }

    /// Finds out what of this growth is of children that have ended.
    fn inherit(&mut self, p: &mut Process, at: MonoNs, mut grown: Io) {
        let pid = p.task.pid;
        let known = &self.processes;
        p.children.retain(|c| known.get(c).is_some_and(|c| c.parent == pid));
        let may_be = |c: &&u32| {
            known.get(c).is_some_and(|c| !c.io.no_bytes() && grown.grown_from(&c.io).is_some())
        };
        let candidates: Vec<u32> =
            p.children.iter().filter(may_be).take(MAX_CHILDREN).copied().collect();
        for child in candidates {
            if !self.host.path(format!("proc/{child}")).exists()
                && let Some(child) = self.forget(child, at)
            {
                p.estates.push((at, child.io));
            }
        }
        p.estates.retain(|(ended, io)| {
            if at.since(*ended) >= ESTATE_AGE {
                return false;
            }
            let Some(rest) = grown.grown_from(io) else { return true };
            grown = rest;
            p.of_children.0 = p.of_children.0.saturating_add(io.read_bytes);
            let written = io.write_bytes.saturating_sub(io.cancelled_write_bytes);
            p.of_children.1 = p.of_children.1.saturating_add(written);
            false
        });
    }

    /// One that has ended: the kernel adds what it did to its parent's counters.
    fn bury(&mut self, pid: u32, at: MonoNs) {
        let Some(p) = self.forget(pid, at) else { return };
        // An orphan's parent is the first process, as a rule.
        let heir = if self.processes.contains_key(&p.parent) { p.parent } else { 1 };
        if let Some(heir) = self.processes.get_mut(&heir).filter(|h| h.read_at.is_some())
            && !p.io.no_bytes()
        {
            heir.estates.retain(|(ended, _)| at.since(*ended) < ESTATE_AGE);
            heir.estates.push((at, p.io));
        }
    }

    fn forget(&mut self, pid: u32, at: MonoNs) -> Option<Process> {
        let mut p = self.processes.remove(&pid)?;
        self.denied.remove(&pid);
        self.files = self.files.saturating_sub(usize::from(p.file.take().is_some()));
        for child in &p.children {
            let Some(c) = self.processes.get_mut(child).filter(|c| c.parent == pid) else {
                continue;
            };
            c.parent = 1;
            if let Some(init) = self.processes.get_mut(&1) {
                init.children.push(*child);
            }
        }
        p.estates.retain(|(ended, _)| at.since(*ended) < ESTATE_AGE);
        Some(p)
    }
}
