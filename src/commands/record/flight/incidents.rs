//! The incidents of a flight recorder: the one under way, and those whose file is being closed.
//! Only the recorders' threads wait for the disk; nothing here does, except at the end.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::exec::Runner;
use crate::clock;
use crate::commands::record::progress::Trouble;
use crate::diagnose::{Finding, Findings};
use crate::incident::{Cause, Settings, Watch, Why};
use crate::recording::codec::Stamp;
use crate::recording::recorder::{End, IncidentFiles, Ring, State, Status, SyncPolicy};
use crate::recording::{Recorder, TickSummary};
use crate::report::json::{SCHEMA, finding, text};
use crate::report::rfc3339;
use crate::rights;
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::{MonoNs, WallNs};
use crate::session::TickSink;
use crate::text::sanitize;
use crate::view::units;

/// How long closing the files may take at the end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait with another attempt to make a file.
const RETRY: Duration = Duration::from_secs(10);
/// Findings that get no file are told at most this often.
const QUIET: Duration = Duration::from_secs(60);
/// Files that may be in the making at a time, on a disk that does not answer.
const MOST_CLOSING: usize = 4;
/// Findings that are told of an incident besides its cause.
const MOST_OTHERS: usize = 50;

/// Where its files are.
pub(super) struct Place {
    pub(super) dir: PathBuf,
    pub(super) incident_files: IncidentFiles,
    pub(super) sync: SyncPolicy,
    /// Bytes of all files, and so of one.
    pub(super) most: Option<u64>,
}

/// What is told of an incident.
struct About {
    cause: Cause,
    /// As of now.
    first: Arc<Finding>,
    /// What else began.
    others: Vec<Arc<Finding>>,
    /// How many began since the last incident without one.
    suppressed: u64,
    /// The first tick in the file.
    from: WallNs,
    begun: WallNs,
    ended: WallNs,
    why: Why,
}

struct Open {
    about: About,
    file: Option<Recorder>,
    /// The file is open, and that was told.
    told: bool,
    trouble: Trouble,
    /// When to try again to make it.
    retry: MonoNs,
}

/// A file that is complete but for its end.
struct Closing {
    about: About,
    file: Recorder,
}

/// All of them, and the minutes in memory.
pub(super) struct Incidents {
    host: HostInfo,
    place: Place,
    ring: Ring,
    watch: Watch,
    open: Option<Open>,
    closing: Vec<Closing>,
    runner: Option<Runner>,
    /// Of the last tick.
    last: Stamp,
    /// Files that were closed.
    files: u64,
    /// When it was told last that a finding got no file.
    told_quiet: Option<MonoNs>,
    news: Vec<String>,
}

impl TickSink for Incidents {
    fn keep(&mut self, tick: &Arc<Tick>, summary: impl FnOnce() -> TickSummary) {
        let note = summary();
        self.last = Stamp::of(tick);
        self.ring.push(tick, &note);
        if let Some(file) = self.open.as_mut().and_then(|o| o.file.as_mut()) {
            file.push(tick, note);
        }
    }
}

impl Incidents {
    pub(super) fn new(
        host: HostInfo,
        place: Place,
        settings: Settings,
        ring: Ring,
        runner: Option<Runner>,
    ) -> Self {
        Self {
            host,
            place,
            ring,
            watch: Watch::new(settings),
            open: None,
            closing: Vec::new(),
            runner,
            last: Stamp::default(),
            files: 0,
            told_quiet: None,
            news: Vec::new(),
        }
    }

    /// A mark of the user: in memory, and in the file of the incident under way.
    pub(super) fn mark(&mut self, text: &str) {
        let at = Stamp { mono: clock::mono(), wall: clock::wall(), ..self.last };
        self.ring.mark(at, text);
        if let Some(file) = self.open.as_mut().and_then(|o| o.file.as_mut()) {
            file.mark(text);
        }
    }

    /// Takes in the findings of the tick that was just kept.
    pub(super) fn judge(&mut self, tick: &Tick, findings: &Findings) {
        // The tick is in the file, whether the incident goes on or not.
        if let Some(about) = self.open.as_mut().map(|o| &mut o.about)
            && let Some(now) = about.cause.in_findings(findings)
        {
            about.first = now.clone();
        }
        let step = self.watch.push(tick.mono, findings);
        if let Some(f) = step.quiet.first() {
            self.tell_quiet(tick.mono, f);
        }
        if let Some(why) = step.end {
            self.close(why);
        }
        if let Some((first, suppressed)) = step.begin {
            self.open = Some(Open {
                about: About {
                    cause: Cause::of(&first),
                    first,
                    others: Vec::new(),
                    suppressed,
                    from: tick.wall,
                    begun: tick.wall,
                    ended: tick.wall,
                    why: Why::Stopped,
                },
                file: None,
                told: false,
                trouble: Trouble::default(),
                retry: tick.mono,
            });
        }
        let Some(open) = &mut self.open else { return };
        let room = MOST_OTHERS.saturating_sub(open.about.others.len());
        open.about.others.extend(step.joined.into_iter().take(room));
        if open.file.is_none() && tick.mono >= open.retry {
            self.start(tick.mono);
        } else if self.is_large() {
            self.watch.end(tick.mono);
            self.close(Why::Size);
        }
    }

    fn tell_quiet(&mut self, now: MonoNs, f: &Finding) {
        if self.told_quiet.is_none_or(|at| now.since(at) >= QUIET) {
            self.told_quiet = Some(now);
            let n = self.watch.suppressed();
            let so_far = if n == 1 { String::new() } else { format!(", {n} so far") };
            let what = subject(f);
            self.news.push(format!("{what} began again: no file, because of --quiet{so_far}"));
        }
    }

    /// Does the file alone take what all may take?
    fn is_large(&self) -> bool {
        let file = self.open.as_ref().and_then(|o| o.file.as_ref());
        let bytes = file.map_or(0, |f| f.status().file);
        self.place.most.is_some_and(|most| bytes >= most)
    }

    /// Begins the file: with what is in memory, and why there is a file.
    fn start(&mut self, now: MonoNs) {
        let Some(open) = &mut self.open else { return };
        open.retry = now + RETRY;
        if self.closing.len() >= MOST_CLOSING {
            self.news.push(format!(
                "{}: the disk is not responding; no file for {}",
                self.place.dir.display(),
                subject(&open.about.first)
            ));
            return;
        }
        let crowded = self.ring.is_crowded(now);
        let held = self.ring.held();
        open.about.from = held.span().map_or(open.about.begun, |s| s.0.wall);
        let name = self.place.incident_files.file_name(open.about.cause.rule.0, open.about.begun);
        let path = self.place.dir.join(name);
        let (sync, incident_files) = (self.place.sync, self.place.incident_files.clone());
        let made =
            rights::writing(|| Recorder::incident(path, &self.host, sync, held, incident_files));
        match made {
            Ok(mut file) => {
                file.mark(reason(&open.about, crowded.then(|| self.ring.span())));
                open.file = Some(file);
            }
            Err(e) => self.news.push(format!("cannot start a thread: {e}; trying again in 10s")),
        }
    }

    /// Ends the file of the incident under way; its thread closes it.
    fn close(&mut self, why: Why) {
        let Some(Open { mut about, file, .. }) = self.open.take() else { return };
        (about.ended, about.why) = (self.last.wall, why);
        if let Some(mut file) = file {
            file.stop();
            self.closing.push(Closing { about, file });
        }
    }

    /// What happened since: lines for the user.
    pub(super) fn look(&mut self, now: MonoNs) -> Vec<String> {
        self.look_at_open(now);
        let is_done = |c: &mut Closing| !c.file.status().is_alive();
        for c in self.closing.extract_if(.., is_done).collect::<Vec<_>>() {
            let status = c.file.status();
            self.closed(&c, &status);
        }
        self.news.extend(self.runner.iter_mut().flat_map(Runner::news));
        std::mem::take(&mut self.news)
    }

    fn look_at_open(&mut self, now: MonoNs) {
        let Some(open) = &mut self.open else { return };
        let Some(file) = &open.file else { return };
        let status = file.status();
        let name = path(file, &status);
        if let State::Ended(end) = &status.state {
            let why = if let End::Failed(why) = end { why.as_str() } else { "it was closed" };
            let what = subject(&open.about.first);
            self.news.push(format!("cannot record {what} to {name}: {why}; trying again in 10s"));
            (open.file, open.told) = (None, false);
            return;
        }
        if !open.told && status.state != State::Opening {
            open.told = true;
            self.watch.kept();
            let held = units::age(self.ring.span());
            let f = &open.about.first;
            let what = format!("{}: {}", subject(f), f.fire.summary);
            self.news.push(format!("recording to {name}, with the last {held}: {what}"));
        }
        self.news.extend(open.trouble.news(now, &name, &status));
    }

    /// Tells of a file that was closed, and runs the program.
    fn closed(&mut self, c: &Closing, status: &Status) {
        let name = path(&c.file, status);
        if let State::Ended(End::Failed(why)) = &status.state {
            self.news.push(format!("cannot record to {name}: {why}"));
            return;
        }
        if !matches!(status.state, State::Ended(_)) {
            self.news.push(format!(
                "{name}: the disk is not responding; the file ends with its last complete block"
            ));
            return;
        }
        self.files += 1;
        let lost = if status.lost > 0 { format!(", {} lost", status.lost) } else { String::new() };
        let trouble = status.trouble.as_ref().map_or_else(String::new, |t| format!("; {t}"));
        let size = units::bytes(status.file as f64);
        self.news.push(format!("{name}: closed, {} ticks{lost}, {size}{trouble}", status.ticks));
        if self.runner.is_some() {
            let about = text(&self.json(c, status, &name));
            self.news.extend(self.runner.as_mut().and_then(|r| r.submit(about, &name)));
        }
    }

    /// What the program reads.
    fn json(&self, c: &Closing, status: &Status, path: &str) -> Value {
        let a = &c.about;
        json!({
            "schema": SCHEMA,
            "tool": self.host.tool,
            "host": self.host.hostname,
            "path": path,
            "bytes": status.file,
            "ticks": status.ticks,
            "lost": status.lost,
            "from": rfc3339(a.from),
            "begun": rfc3339(a.begun),
            "ended": rfc3339(a.ended),
            "end": a.why.name(),
            "finding": finding(&a.first),
            "others": a.others.iter().map(|f| finding(f)).collect::<Vec<_>>(),
            "suppressed": a.suppressed,
        })
    }

    /// Closes everything, and lets the program run for what was closed; lines for the user.
    pub(super) fn finish(&mut self) -> Vec<String> {
        self.close(Why::Stopped);
        let end = clock::mono() + PATIENCE;
        for c in std::mem::take(&mut self.closing) {
            let status = c.file.wait(end.since(clock::mono()));
            self.closed(&c, &status);
        }
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.runner.take().into_iter().flat_map(Runner::finish));
        news
    }

    /// One line about the state.
    pub(super) fn state(&self, now: MonoNs) -> String {
        let bytes = units::bytes(self.ring.bytes() as f64);
        let memory = format!("last {} in {bytes} of memory", units::age(self.ring.span()));
        let plural = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let mut line = format!("{memory}  {}", plural(self.files, "file"));
        if self.watch.suppressed() > 0 {
            line = format!("{line}  {} without a file", self.watch.suppressed());
        }
        let Some(open) = &self.open else { return line };
        let left = self.watch.ends_at().map_or(Duration::ZERO, |at| at.since(now));
        let rule = open.about.cause.rule;
        let Some(file) = &open.file else { return format!("NO FILE for {rule}  {line}") };
        let s = file.status();
        let size = units::bytes(s.file as f64);
        format!("REC {rule} {size}, {} to go  {line}", units::age(left))
    }
}

/// Where the file is, as far as is known.
fn path(file: &Recorder, status: &Status) -> String {
    status.path.as_ref().map_or_else(|| file.target().name(), |p| p.display().to_string())
}

fn subject(f: &Finding) -> String {
    format!("{} {}", f.rule, sanitize(&f.subject.to_string()))
}

/// The mark with which a file says why it exists, and what it lacks; `held` is how much there was
/// room for.
fn reason(about: &About, held: Option<Duration>) -> String {
    let mut out = format!("incident: {}: {}", subject(&about.first), about.first.fire.summary);
    if let Some(held) = held {
        let _ = write!(out, "; the memory had room for the last {} only", units::age(held));
    }
    if about.suppressed > 0 {
        let n = about.suppressed;
        let findings = if n == 1 { "finding" } else { "findings" };
        let _ = write!(out, "; {n} {findings} before it got no file (--quiet)");
    }
    out
}
