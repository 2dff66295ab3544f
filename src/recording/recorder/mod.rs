//! The recorder: takes ticks and writes them on a separate thread. Whatever the disk does, a tick
//! is never delayed: [`Recorder::push`] puts it into a bounded queue and returns. If the queue is
//! full, the tick is dropped from the recording only, and the recording says so.
//!
//! A full disk pauses the recording at its last complete block; it resumes with the first tick for
//! which there is space. A recorder of a file ends only when told to; one of a pipe also when the
//! reader goes away.

mod incident_files;
mod parts;
mod ring;
mod target;
mod worker;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::time::Duration;

use tokio::sync::watch;

use crate::amount;
use crate::clock;
use crate::recording::codec::Stamp;
use crate::recording::file::home::Home;
use crate::recording::file::index::TickSummary;
use crate::recording::file::writer::group::EncodedGroup;
use crate::recording::tools::thin::Tiers;
use crate::rights::{self, Duty};
use crate::sample::heap::tick_bytes;
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::{MonoNs, WallNs};

pub use incident_files::IncidentFiles;
pub use ring::{Held, Keep, Ring};
pub use target::{Existing, Target};
use worker::Worker;

/// Maximum number of ticks that wait for the disk.
const QUEUE: usize = 120;
/// Bytes that they hold at most; one tick is let through whatever its size.
const QUEUE_BYTES: usize = 64 << 20;
/// How long opening may take before a caller who waits for it gets an error.
const OPEN_PATIENCE: Duration = Duration::from_secs(10);

/// When written data are forced to the disk. Without it a crash of the machine (not of the
/// program) loses what the kernel has not written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    Tick,
    /// After the first tick that comes this long after the last time.
    Every(Duration),
    Off,
}

impl Default for SyncPolicy {
    fn default() -> Self {
        Self::Every(Duration::from_secs(5))
    }
}

impl FromStr for SyncPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tick" => Ok(Self::Tick),
            "off" => Ok(Self::Off),
            t => {
                let range = Duration::from_millis(100)..=Duration::from_secs(3600);
                amount::duration(t, range, "100ms to 1h")
                    .map(Self::Every)
                    .map_err(|e| format!("{e}, or tick, or off"))
            }
        }
    }
}

/// When FILE is set aside and a new one begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotate {
    Size(u64),
    Age(Duration),
}

/// Bytes of the smallest part or recording that may be asked for.
pub const LEAST_SIZE: u64 = 1 << 20;

impl FromStr for Rotate {
    type Err = String;

    /// Times first: `10m` is ten minutes, as everywhere else; sizes have capital letters.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(d) = amount::days(text, Duration::ZERO, "") {
            return if d >= Duration::from_secs(10) {
                Ok(Self::Age(d))
            } else {
                Err("out of range; expected 10s to 366d, or 1M or more".to_owned())
            };
        }
        match amount::bytes(text) {
            Some(n) if n >= LEAST_SIZE => Ok(Self::Size(n)),
            Some(_) => Err("out of range; expected 1M or more, or 10s to 366d".to_owned()),
            None => Err("expected a size such as 100M or a duration such as 1h".to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What to do with a file that exists.
    pub existing: Existing,
    /// When to force data to the disk.
    pub sync: SyncPolicy,
    /// When to begin a new file.
    pub rotate: Option<Rotate>,
    /// Bytes of FILE and its parts together; the oldest parts are deleted.
    pub max_size: Option<u64>,
    /// Age from which parts are deleted.
    pub max_age: Option<Duration>,
    /// Steps of older ticks. Not together with parts.
    pub thin: Option<Tiers>,
}

impl Options {
    /// Size at which FILE is set aside. A limit on the total needs parts that are small in
    /// comparison, because only whole parts are deleted.
    fn part_size(&self) -> Option<u64> {
        let asked = if let Some(Rotate::Size(s)) = self.rotate { Some(s) } else { None };
        asked.into_iter().chain(self.max_size.map(|m| m / 8)).min()
    }
    /// Age at which FILE is set aside.
    fn part_age(&self) -> Option<Duration> {
        let asked = if let Some(Rotate::Age(a)) = self.rotate { Some(a) } else { None };
        asked.into_iter().chain(self.max_age.map(|m| m / 10)).min()
    }
    pub fn rotates(&self) -> bool {
        self.part_size().is_some() || self.part_age().is_some()
    }
    /// May parts be deleted? Only if the user set a limit.
    fn may_delete(&self) -> bool {
        self.max_size.is_some() || self.max_age.is_some()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Opening,
    Recording,
    /// Cannot write now; retries with each tick.
    Paused {
        why: String,
        since: MonoNs,
    },
    Ended(End),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was told to, and closed the file.
    Closed,
    /// The reader of the pipe went away.
    ReaderGone,
    /// Could not open, or the pipe broke.
    Failed(String),
}

/// State of the recorder; see [`Recorder::status`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub state: State,
    /// Where the file is, once it is open: a number may have been added to its name.
    pub path: Option<PathBuf>,
    pub ticks: u64,
    pub written: u64,
    /// Bytes of FILE alone ...
    pub file: u64,
    /// ... and with its parts, or with the files of earlier incidents.
    pub size: u64,
    pub lost: u64,
    /// Ticks that wait to be written.
    pub waiting: usize,
    /// How long the last tick took to write, syncing included.
    pub latency: Duration,
    pub worst: Duration,
    /// Start of a write that has not returned yet.
    pub writing_since: Option<MonoNs>,
    /// Trouble other than with writing, such as syncing or rotating. The recording continues.
    pub trouble: Option<String>,
}

impl Status {
    /// How long the recorder has been waiting for the disk: the current write, or the last one.
    pub fn delay(&self, now: MonoNs) -> Duration {
        self.writing_since.map_or(self.latency, |s| now.since(s).max(self.latency))
    }
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, State::Ended(_))
    }
}

struct Item {
    what: What,
    /// Ticks that were dropped before this one.
    skipped: u64,
    bytes: usize,
}

enum What {
    Tick(Arc<Tick>, TickSummary),
    /// Ticks that are encoded already.
    Group(Arc<EncodedGroup>),
    Mark(Stamp, String),
}

/// What a recording begins with, and what is deleted for it.
#[derive(Default)]
struct Before {
    ticks: Vec<(Arc<Tick>, TickSummary)>,
    held: Held,
    incident_files: Option<IncidentFiles>,
}

/// What both sides of the queue count with.
#[derive(Default)]
struct Counts {
    /// Bytes in the queue.
    held: AtomicUsize,
    /// Ticks dropped since the last one that got into the queue.
    skipped: AtomicU64,
}

/// A recording under way. Dropping it closes the file in the background.
pub struct Recorder {
    target: Target,
    queue: Option<SyncSender<Item>>,
    counts: Arc<Counts>,
    lost: u64,
    /// Marks that found the queue full.
    marks: Vec<(Stamp, String)>,
    last: Stamp,
    opened: Receiver<Result<(), String>>,
    status: watch::Receiver<Status>,
    done: Receiver<()>,
}

impl Recorder {
    /// Starts the thread; it opens `target` and writes `backlog` first.
    /// What is wrong with `target` comes from [`Self::ready`].
    pub fn start(
        target: Target,
        host: &HostInfo,
        options: Options,
        backlog: Vec<(Arc<Tick>, TickSummary)>,
    ) -> std::io::Result<Self> {
        let last = backlog.last().map_or_else(Stamp::default, |(t, _)| Stamp::of(t));
        let before = Before { ticks: backlog, ..Before::default() };
        Self::start_after(target, host, options, before, last)
    }

    /// Starts the thread; it makes the file of an incident, under a name that is free, writes what
    /// is held of the time before, and deletes the oldest of `incident_files` for it.
    pub fn incident(
        file: PathBuf,
        host: &HostInfo,
        sync: SyncPolicy,
        held: Held,
        incident_files: IncidentFiles,
    ) -> std::io::Result<Self> {
        let last = held.span().map_or_else(Stamp::default, |s| s.1);
        let options = Options { existing: Existing::Number, sync, ..Options::default() };
        let before = Before { held, incident_files: Some(incident_files), ..Before::default() };
        Self::start_after(Target::File(file), host, options, before, last)
    }

    fn start_after(
        target: Target,
        host: &HostInfo,
        options: Options,
        before: Before,
        last: Stamp,
    ) -> std::io::Result<Self> {
        let (queue, inbox) = sync_channel(QUEUE);
        let (open_tx, opened) = channel();
        let (done_tx, done) = channel();
        let (tell, status) = watch::channel(Status::default());
        let counts = Arc::new(Counts::default());
        let (to, host, its_counts) = (target.clone(), host.clone(), counts.clone());
        std::thread::Builder::new().name("recorder".into()).spawn(move || {
            rights::restrict(Duty::Recorder);
            // Last of all, whatever happens in between.
            let _done = done_tx;
            let Before { ticks, held, incident_files } = before;
            let (worker, opened) = match Worker::open(to, host, options, incident_files, tell) {
                Ok(w) => (Some(w), Ok(())),
                Err(End::Failed(why)) => (None, Err(why)),
                // Nobody wants it any more, which is not an error.
                Err(End::ReaderGone | End::Closed) => (None, Ok(())),
            };
            let _ = open_tx.send(opened);
            if let Some(mut w) = worker {
                w.run(ticks, held, &inbox, &its_counts);
            }
        })?;
        Ok(Self {
            target,
            queue: Some(queue),
            counts,
            lost: 0,
            marks: Vec::new(),
            last,
            opened,
            status,
            done,
        })
    }

    /// Waits until the target is open.
    /// The error is one line with the target's name and what is wrong with it.
    pub fn ready(&mut self) -> Result<(), String> {
        let name = self.target.name();
        match self.opened.recv_timeout(OPEN_PATIENCE) {
            Ok(opened) => opened.map_err(|why| format!("{name}: {why}")),
            Err(RecvTimeoutError::Timeout) => Err(format!("{name}: opening it takes too long")),
            Err(RecvTimeoutError::Disconnected) => {
                Err(format!("{name}: the recorder's thread died"))
            }
        }
    }

    /// Hands over a tick. Returns immediately.
    pub fn push(&mut self, tick: &Arc<Tick>, note: TickSummary) {
        self.last = Stamp::of(tick);
        for (at, text) in std::mem::take(&mut self.marks) {
            self.send_mark(at, text);
        }
        let bytes = tick_bytes(tick);
        let held = self.counts.held.load(Ordering::Acquire);
        let skipped = self.counts.skipped.load(Ordering::Acquire);
        let item = Item { what: What::Tick(tick.clone(), note), skipped, bytes };
        let fits = held == 0 || held.saturating_add(bytes) <= QUEUE_BYTES;
        if fits && self.send(item).is_ok() {
            self.counts.skipped.store(0, Ordering::Release);
        } else if self.queue.is_some() && self.status.borrow().is_alive() {
            self.counts.skipped.fetch_add(1, Ordering::AcqRel);
            self.lost += 1;
        }
    }

    /// Writes a mark of the user.
    pub fn mark(&mut self, text: impl Into<String>) {
        // Between two ticks: number of the one before, time of now.
        let at = Stamp { mono: clock::mono(), wall: clock::wall(), ..self.last };
        self.send_mark(at, text.into());
    }

    fn send_mark(&mut self, at: Stamp, text: String) {
        let item = Item { what: What::Mark(at, text), skipped: 0, bytes: 0 };
        if let Err(Some(Item { what: What::Mark(at, text), .. })) = self.send(item)
            && self.marks.len() < QUEUE
        {
            self.marks.push((at, text));
        }
    }

    /// The item comes back when the queue is full.
    fn send(&self, item: Item) -> Result<(), Option<Item>> {
        let queue = self.queue.as_ref().ok_or(None)?;
        let bytes = item.bytes;
        self.counts.held.fetch_add(bytes, Ordering::AcqRel);
        queue.try_send(item).map_err(|e| {
            self.counts.held.fetch_sub(bytes, Ordering::AcqRel);
            match e {
                TrySendError::Full(item) => Some(item),
                TrySendError::Disconnected(_) => None,
            }
        })
    }

    pub fn status(&self) -> Status {
        let mut s = self.status.borrow().clone();
        s.lost = s.lost.saturating_add(self.lost);
        s
    }
    /// Wakes when the recorder has ended by itself.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Takes no more ticks; what is queued is written and the file closed, in the background.
    pub fn stop(&mut self) {
        for (at, text) in std::mem::take(&mut self.marks) {
            self.send_mark(at, text);
        }
        self.queue = None;
    }

    /// After [`Self::stop`]: waits for the end, but no longer than this; the state then.
    pub fn wait(&self, patience: Duration) -> Status {
        let _ = self.done.recv_timeout(patience);
        self.status()
    }

    /// [`Self::stop`], then waits for the end, but no longer than this; `None`: the disk does not
    /// answer, and the file ends with its last complete block.
    pub fn finish(mut self, patience: Duration) -> Option<Status> {
        self.stop();
        match self.done.recv_timeout(patience) {
            Err(RecvTimeoutError::Timeout) => None,
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Some(self.status()),
        }
    }
}

/// `stallscope-HOST-YYYYMMDDTHHMMSSZ.stall` in `dir`; further ones in the same second get a number.
pub fn named(dir: &Path, hostname: &str, now: WallNs, number: usize) -> PathBuf {
    let host = plain_host(hostname);
    let stamp = parts::stamp(now);
    let twin = if number > 1 { format!("-{number}") } else { String::new() };
    dir.join(format!("stallscope-{host}-{stamp}{twin}.stall"))
}

/// The name of a host as a part of a file's name.
fn plain_host(hostname: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    hostname.chars().take(64).map(plain).collect()
}

/// Whether a file can be made in a directory: makes one without a name, or under one that nobody
/// can guess where that is impossible, and lets it go. A full disk is no reason: that may change.
pub fn can_make_files(dir: &Path) -> std::io::Result<()> {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    match Home::open(&dir.join("file")).and_then(|home| home.our_user()) {
        Err(e) if !matches!(e.kind(), StorageFull | QuotaExceeded) => Err(e),
        _ => Ok(()),
    }
}

/// The first of these names that nothing has. Looks at the disk.
pub fn default_file(dir: &Path, hostname: &str, now: WallNs) -> PathBuf {
    let mut names = (1..1000).map(|n| named(dir, hostname, now, n));
    let free = names.find(|path| path.symlink_metadata().is_err());
    free.unwrap_or_else(|| named(dir, hostname, now, 1000))
}
