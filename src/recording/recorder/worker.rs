//! The recorder's thread: writes, syncs, pauses on a full disk and resumes, begins new files and
//! deletes old parts. The only place that waits for the disk.

mod limits;
mod name;
mod thinning;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::watch;

use super::parts::Parts;
use super::target::{self, Opened, Sink, Target};
use super::{
    Counts, End, Existing, Held, IncidentFiles, Item, Options, State, Status, SyncPolicy, What,
};
use crate::clock;
use crate::recording::codec::Stamp;
use crate::recording::file::home::Home;
use crate::recording::file::index::{Event, TickSummary};
use crate::recording::file::writer::group::EncodedGroup;
use crate::recording::file::writer::{Writer, Written};
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::{MonoNs, WallNs};

/// Why ticks are missing, as written to the recording.
const TOO_SLOW: &str = "the disk was too slow";
/// Free bytes that are worth a try, besides twice the last keyframe.
const WORTH_A_TRY: u64 = 16 << 10;
/// Longest pause between tries after an error that is not about space.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// How often to check that FILE's name still leads to the file.
const LOOK: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Worker {
    /// Where FILE is, and its owner; `None` of a stream.
    home: Option<Home>,
    owner: u32,
    /// The name that the file has instead of FILE's, if we gave it that.
    aside: Option<OsString>,
    host: HostInfo,
    options: Options,
    tell: watch::Sender<Status>,
    /// `None`: between two files, the next one could not be made yet.
    writer: Option<Writer<Sink>>,
    /// Older files that are deleted for this one; with `incident_files`, those of earlier incidents.
    parts: Parts,
    incident_files: Option<IncidentFiles>,
    pause: Option<Pause>,
    /// Ticks to be reported as missing before the next one, and why.
    missing: u64,
    why: String,
    /// Bytes of the last keyframe.
    keyframe: u64,
    synced: MonoNs,
    unsynced: bool,
    looked: MonoNs,
    /// Trouble other than with writing.
    troubles: BTreeMap<Trouble, String>,
    /// When FILE began: its age is the time since then and what it had before.
    begun: MonoNs,
    age_before: Duration,
    first: Option<WallNs>,
    /// No rotation before this: the last attempt failed.
    no_rotation: MonoNs,
    ticks: u64,
    written: u64,
    /// Hosts of the file's segments.
    hosts: Vec<HostInfo>,
    /// The last tick ended its group.
    group_end: bool,
    thinning: Option<thinning::Job>,
    /// No thinning before this: the last attempt failed.
    no_thinning: MonoNs,
}

struct Pause {
    /// About space: tried as soon as there is some.
    space: bool,
    next: MonoNs,
    backoff: Duration,
}

/// What can go wrong besides writing; each has at most one sentence, told in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Sync,
    Rotate,
    Thin,
    Deleted,
    Moved,
}

impl Worker {
    pub(super) fn open(
        target: Target,
        host: HostInfo,
        options: Options,
        incident_files: Option<IncidentFiles>,
        tell: watch::Sender<Status>,
    ) -> Result<Self, End> {
        let ended = |end: End| {
            tell.send_modify(|s| s.state = State::Ended(end.clone()));
            end
        };
        let Opened { sink, home, resume, since, mut hosts } =
            target::open(&target, options.existing).map_err(|e| ended(broken(false, &e)))?;
        let stream = !sink.is_regular();
        let made = if options.existing == Existing::Number { sink.twin().ok() } else { None };
        let writer = Writer::resume(sink, &host, resume).map_err(|e| {
            // Whoever tries again would leave one empty file after another.
            if let (Some(made), Some((home, _))) = (made, &home) {
                let _ = home.remove(home.name(), made.file());
            }
            ended(broken(stream, &e))
        })?;
        hosts.push(host.clone());
        let (home, owner) = home.map_or((None, 0), |(h, o)| (Some(h), o));
        let parts = match (&home, &incident_files) {
            (Some(home), Some(incident_files)) => {
                Parts::all(home, owner, |n| incident_files.order(n))
            }
            (Some(home), None) if options.rotates() => Parts::find(home, owner),
            _ => Parts::default(),
        };
        let path = home.as_ref().map(Home::file);
        let now = clock::mono();
        let age = since.map_or(0, |s| clock::wall() - s).max(0);
        let out = Self {
            home,
            owner,
            host,
            options,
            tell,
            writer: Some(writer),
            parts,
            incident_files,
            synced: now,
            unsynced: true,
            looked: now,
            begun: now,
            age_before: Duration::from_nanos(age as u64),
            first: since,
            hosts,
            ..Self::default()
        };
        out.sweep();
        out.tell.send_modify(|s| (s.state, s.path) = (State::Recording, path));
        Ok(out)
    }

    /// Until the queue is closed, or the pipe.
    pub(super) fn run(
        &mut self,
        backlog: Vec<(Arc<Tick>, TickSummary)>,
        held: Held,
        inbox: &Receiver<Item>,
        counts: &Counts,
    ) {
        for (tick, note) in backlog {
            self.take(&What::Tick(tick, note), 0, 0);
        }
        if let Some(w) = &mut self.writer {
            w.have_failed(held.failed);
        }
        for group in held.groups {
            self.take(&What::Group(group), 0, 0);
        }
        while self.tell.borrow().is_alive() {
            match inbox.recv_timeout(self.idle()) {
                Ok(item) => {
                    self.take(&item.what, item.skipped, counts.held.load(Ordering::Acquire));
                    drop(item.what);
                    counts.held.fetch_sub(item.bytes, Ordering::AcqRel);
                }
                Err(RecvTimeoutError::Timeout) => self.sync_if_due(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.miss(counts.skipped.load(Ordering::Acquire), TOO_SLOW);
                    self.close();
                }
            }
        }
    }

    /// How long to wait for the next tick before syncing without one.
    fn idle(&self) -> Duration {
        match self.options.sync {
            SyncPolicy::Every(d) if self.unsynced => {
                d.saturating_sub(clock::mono().since(self.synced)).max(Duration::from_millis(10))
            }
            _ => Duration::from_secs(3600),
        }
    }

    fn take(&mut self, what: &What, skipped: u64, waiting: usize) {
        let begun = clock::mono();
        self.tell.send_modify(|s| (s.writing_since, s.waiting) = (Some(begun), waiting));
        // The caller counted those already.
        self.miss(skipped, TOO_SLOW);
        match what {
            What::Tick(tick, note) => self.write(&Load::Tick(tick, note)),
            What::Group(group) => self.write(&Load::Group(group)),
            What::Mark(at, text) => self.mark(*at, text),
        }
        self.sync_if_due();
        let took = clock::mono().since(begun);
        let file = self.offset();
        let size = file + self.parts.bytes();
        let (ticks, written) = (self.ticks, self.written);
        self.tell.send_modify(|s| {
            s.writing_since = None;
            s.latency = took;
            s.worst = s.worst.max(took);
            (s.file, s.size, s.ticks, s.written) = (file, size, ticks, written);
        });
        // The tick is written: nobody waits for what follows.
        self.thin();
    }

    fn offset(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::offset)
    }

    fn miss(&mut self, ticks: u64, why: &str) {
        if ticks > 0 {
            self.missing += ticks;
            why.clone_into(&mut self.why);
        }
    }

    fn write(&mut self, load: &Load<'_>) {
        let mut rotated = false;
        while self.may_try() {
            let e = match self.put(load) {
                Ok(w) => return self.wrote(load, w),
                Err(e) if self.is_stream() => return self.broken_pipe(&e),
                Err(e) => e,
            };
            // The limit applies to each file.
            if is_size_limit(&e) && self.options.rotates() && !rotated {
                rotated = true;
                self.rewind();
                self.rotate();
            } else if is_space(&e) && self.make_room() {
                // Not before: where writing copies, cutting off needs space, too.
                self.rewind();
            } else {
                self.pause(&e);
                break;
            }
        }
        self.leave_out(load.ticks());
    }

    /// Writes what is missing, then the ticks.
    fn put(&mut self, load: &Load<'_>) -> io::Result<Written> {
        let at = load.first();
        if self.pause.is_some() {
            self.reopen()?;
        }
        let Some(w) = &mut self.writer else { return Err(io::ErrorKind::NotFound.into()) };
        if self.missing > 0 {
            w.event(at, Event::Dropped { ticks: self.missing, why: self.why.clone() })?;
            self.missing = 0;
        }
        let (tick, note) = match load {
            Load::Tick(tick, note) => (tick, note),
            Load::Group(group) => return w.append(group),
        };
        match w.tick(tick, note) {
            // The tick was written, but the index after it was not.
            Err(e) if w.last() == Some(at) && w.get_ref().is_regular() => {
                self.pause(&e);
                Ok(Written::default())
            }
            other => other,
        }
    }

    /// Before another attempt: back to the last complete block, or a new file if there is none.
    fn reopen(&mut self) -> io::Result<()> {
        match &mut self.writer {
            Some(w) => rewind(w),
            None => self.begin_after_deletion(),
        }
    }

    fn rewind(&mut self) {
        let _ = self.writer.as_mut().map(rewind);
    }

    fn wrote(&mut self, load: &Load<'_>, w: Written) {
        self.ticks += load.ticks();
        self.written += w.bytes;
        self.unsynced = true;
        self.first.get_or_insert(load.first().wall);
        if w.keyframe {
            self.keyframe = w.bytes;
        }
        self.group_end = w.group_end;
        let whole = w.bytes > 0;
        if whole && self.pause.take().is_some() {
            self.tell.send_modify(|s| s.state = State::Recording);
        }
        if whole && self.is_file() {
            self.rotate_if_due(w.group_end);
            self.keep_limits(load.first().wall, w.bytes);
            self.look_after_name();
        }
    }

    fn mark(&mut self, at: Stamp, text: &str) {
        let Some(w) = self.writer.as_mut().filter(|_| self.pause.is_none()) else { return };
        match w.event(at, Event::Mark { text: text.to_owned() }) {
            Ok(w) => self.written += w.bytes,
            Err(e) if self.is_stream() => self.broken_pipe(&e),
            Err(e) => self.pause(&e),
        }
    }

    fn leave_out(&mut self, ticks: u64) {
        let why = match &self.tell.borrow().state {
            State::Paused { why, .. } => why.clone(),
            _ => TOO_SLOW.to_owned(),
        };
        self.miss(ticks, &why);
        self.tell.send_modify(|s| s.lost += ticks);
    }

    /// Stops writing at the last complete block.
    fn pause(&mut self, e: &io::Error) {
        self.rewind();
        let now = clock::mono();
        let backoff = match &self.pause {
            Some(p) => (p.backoff * 2).min(MAX_BACKOFF),
            None => Duration::from_secs(1),
        };
        let space = is_space(e);
        self.pause = Some(Pause { space, next: now + backoff, backoff });
        let why = if space {
            "no space left".to_owned()
        } else if is_size_limit(e) {
            "file size limit reached (ulimit -f)".to_owned()
        } else {
            e.to_string()
        };
        self.tell.send_modify(|s| match &mut s.state {
            State::Paused { why: old, .. } => *old = why,
            state => *state = State::Paused { why, since: now },
        });
    }

    fn may_try(&self) -> bool {
        let Some(p) = &self.pause else { return true };
        if !p.space {
            return clock::mono() >= p.next;
        }
        let need = WORTH_A_TRY.saturating_add(self.keyframe.saturating_mul(2));
        let free = self.writer.as_ref().and_then(|w| w.get_ref().free());
        free.is_none_or(|f| f >= need)
    }

    fn is_stream(&self) -> bool {
        self.writer.as_ref().is_some_and(|w| !w.get_ref().is_regular())
    }
    fn is_file(&self) -> bool {
        self.home.is_some()
    }

    /// A pipe cannot be truncated: what follows an error cannot be distinguished.
    fn broken_pipe(&mut self, e: &io::Error) {
        let end = broken(true, e);
        self.tell.send_modify(|s| s.state = State::Ended(end));
    }

    fn sync_if_due(&mut self) {
        let due = match self.options.sync {
            SyncPolicy::Off => false,
            SyncPolicy::Tick => true,
            SyncPolicy::Every(d) => clock::mono().since(self.synced) >= d,
        };
        if due && self.unsynced && self.pause.is_none() {
            self.sync();
        }
    }

    fn sync(&mut self) {
        let Some(w) = &self.writer else { return };
        let done = w.get_ref().sync();
        self.trouble(Trouble::Sync, done.err().map(|e| format!("cannot sync: {e}")));
        self.synced = clock::mono();
        self.unsynced = false;
    }

    /// Reports trouble, or its end.
    fn trouble(&mut self, what: Trouble, says: Option<String>) {
        let before = match says.clone() {
            Some(says) => self.troubles.insert(what, says),
            None => self.troubles.remove(&what),
        };
        if before != says {
            let all: Vec<&str> = self.troubles.values().map(String::as_str).collect();
            let says = (!all.is_empty()).then(|| all.join("; "));
            self.tell.send_modify(|s| s.trouble = says);
        }
    }

    fn rotate_if_due(&mut self, group_end: bool) {
        let now = clock::mono();
        let age = self.age_before + now.since(self.begun);
        let size = self.offset();
        // At the end of a group; in between when a group alone is too much.
        let over = |limit: u64| size >= limit && (group_end || size >= limit.saturating_mul(2));
        let due = self.options.part_size().is_some_and(over)
            || self.options.part_age().is_some_and(|a| age >= a);
        if due && now >= self.no_rotation {
            self.rotate();
        }
    }

    /// Closes the file; its size, and what went wrong.
    fn seal(&mut self) -> (u64, io::Result<()>) {
        let Some(mut w) = self.writer.take() else { return (0, Ok(())) };
        // Space for index and trailer was never promised: the file is just as good without them.
        if w.end_group().is_err() {
            let _ = rewind(&mut w);
        }
        let end = w.offset();
        let twin = w.get_ref().twin();
        match w.seal() {
            Ok(sink) => {
                if self.options.sync != SyncPolicy::Off {
                    let done = sink.sync();
                    self.trouble(Trouble::Sync, done.err().map(|e| format!("cannot sync: {e}")));
                }
                (sink.size().unwrap_or(end), Ok(()))
            }
            Err(e) => {
                if let Ok(mut sink) = twin {
                    let _ = sink.rewind(end);
                }
                (end, Err(e))
            }
        }
    }

    /// The end: says what is missing, closes the file.
    fn close(&mut self) {
        self.stop_thinning();
        self.look_at_name();
        if self.missing > 0
            && let Some(w) = self.writer.as_mut()
            && let Some(at) = w.last()
        {
            let why = std::mem::take(&mut self.why);
            let rewound = self.pause.is_none() || rewind(w).is_ok();
            if rewound && w.event(at, Event::Dropped { ticks: self.missing, why }).is_err() {
                let _ = rewind(w);
            }
        }
        let stream = self.is_stream();
        let before = self.offset();
        let (size, sealed) = self.seal();
        if let (true, Err(e)) = (stream, sealed) {
            return self.broken_pipe(&e);
        }
        self.written += size.saturating_sub(before);
        let all = size + self.parts.bytes();
        let written = self.written;
        self.tell.send_modify(|s| {
            (s.file, s.size, s.written) = (size, all, written);
            s.state = State::Ended(End::Closed);
        });
    }
}

/// What is written at a time.
enum Load<'a> {
    Tick(&'a Tick, &'a TickSummary),
    Group(&'a EncodedGroup),
}

impl Load<'_> {
    fn ticks(&self) -> u64 {
        match self {
            Self::Tick(..) => 1,
            Self::Group(g) => g.ticks(),
        }
    }
    /// Its first tick.
    fn first(&self) -> Stamp {
        match self {
            Self::Tick(tick, _) => Stamp::of(tick),
            Self::Group(g) => g.first(),
        }
    }
}

/// Cuts off everything after the last complete block.
fn rewind(w: &mut Writer<Sink>) -> io::Result<()> {
    let end = w.offset();
    w.get_mut().rewind(end)
}

fn broken(stream: bool, e: &io::Error) -> End {
    if stream && e.kind() == io::ErrorKind::BrokenPipe {
        End::ReaderGone
    } else {
        End::Failed(e.to_string())
    }
}

/// Will it end when somebody frees space?
fn is_space(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Is the file as long as `ulimit -f` or its file system lets it be?
fn is_size_limit(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::FileTooLarge
}
