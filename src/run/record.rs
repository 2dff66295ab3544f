//! `record`: the live source into a file, without a screen; and what `--record` of the other
//! commands shares with it.

use std::collections::{BTreeSet, VecDeque};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Exit, Stop, feed, limits, runtime};
use crate::analysis::Analysis;
use crate::cli::{RecordArgs, RecordTo, RotateArg, SyncArg};
use crate::clock;
use crate::collect::HostFs;
use crate::diagnose::Engine;
use crate::diagnose::blind::{self, BlindSpot, blind_spots};
use crate::metrics::coverage::coverage;
use crate::recording::Recorder;
use crate::recording::recorder::{
    End, Existing, Options, Rotate, State, Status, SyncPolicy, Target, default_file,
};
use crate::recording::tools::thin::{Tier, Tiers};
use crate::rights::Duty;
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::MonoNs;
use crate::signals::is_ignored;
use crate::source::{Event, Feed, live};
use crate::text::sanitize;
use crate::view::units;

/// History for the findings; nobody scrolls back here. Of a small box it holds the five minutes
/// that rules look back.
const BUDGET: usize = 16 << 20;
/// How long closing the file may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Findings that are counted.
const MAX_FINDINGS: usize = 10_000;
/// A disk that is full on and off says so this often.
const QUIET: Duration = Duration::from_secs(60);

pub(super) fn record(args: &RecordArgs) -> anyhow::Result<Exit> {
    limits::ready_to_read()?;
    let host = live::host_info(&HostFs::live(), args.live.interval);
    let target = match &args.output {
        Some(p) if p == Path::new("-") => Target::Stdout,
        Some(p) => Target::File(p.clone()),
        None => Target::File(default_file(Path::new("."), &host.hostname, clock::wall())),
    };
    let options = options(args);
    if target == Target::Stdout && (options.rotates() || options.thin.is_some() || args.append) {
        let what = "--append, --rotate, --max-size, --max-age and --thin need a file";
        return Err(Stop::usage(what));
    }
    let recorder = open(target, &host, options)?;
    // Before the readers, which open as many files as they may.
    let runtime = runtime()?;
    let feed = feed(&args.live, Duty::Figures)?;
    runtime.block_on(watch(feed, recorder, args))
}

fn options(args: &RecordArgs) -> Options {
    Options {
        existing: if args.append { Existing::Append } else { Existing::Refuse },
        sync: match args.sync {
            SyncArg::Tick => SyncPolicy::Tick,
            SyncArg::Every(d) => SyncPolicy::Every(d),
            SyncArg::Off => SyncPolicy::Off,
        },
        rotate: args.rotate.map(|r| match r {
            RotateArg::Size(s) => Rotate::Size(s),
            RotateArg::Age(a) => Rotate::Age(a),
        }),
        max_size: args.max_size,
        max_age: args.max_age,
        thin: args.thin.as_ref().and_then(|t| {
            let tiers: Vec<Tier> =
                t.0.iter().map(|(step, until)| Tier { step: *step, until: *until }).collect();
            Tiers::new(&tiers)
        }),
    }
}

/// The recorder of `--record`, open; `None` when it was not asked for.
pub(super) fn beside(to: &RecordTo, host: &HostInfo) -> anyhow::Result<Option<Recorder>> {
    let Some(path) = &to.record else { return Ok(None) };
    if path == Path::new("-") {
        return Err(Stop::usage("--record - : the output is taken; name a file"));
    }
    let existing = if to.append { Existing::Append } else { Existing::Refuse };
    let options = Options { existing, ..Options::default() };
    open(Target::File(path.clone()), host, options).map(Some)
}

fn open(target: Target, host: &HostInfo, options: Options) -> anyhow::Result<Recorder> {
    let mut recorder = Recorder::start(target, host, options, Vec::new())
        .map_err(|e| Stop::cannot(format!("cannot start a thread: {e}; {}", live::MORE_THREADS)))?;
    recorder.ready().map_err(Stop::cannot)?;
    Ok(recorder)
}

/// Ends a recorder and says in an error what the file lacks.
pub(super) fn close(recorder: Recorder) -> anyhow::Result<Status> {
    let name = recorder.target().name();
    let before = recorder.status();
    let Some(status) = recorder.finish(PATIENCE) else {
        return Err(Stop::cannot(format!(
            "{name}: the disk does not answer; the recording ends with its last whole block"
        )));
    };
    match (&status.state, &before.state) {
        (State::Ended(End::Failed(why)), _) => Err(Stop::cannot(format!("{name}: {why}"))),
        (State::Ended(_), State::Paused { why, .. }) => Err(Stop::cannot(format!(
            "{name}: {why}; {} ticks are not in the recording",
            status.lost
        ))),
        _ => Ok(status),
    }
}

/// [`close`] for who shows nothing of it before: also says what went wrong beside the writing.
pub(super) fn close_and_tell(recorder: Recorder) -> anyhow::Result<Status> {
    let name = recorder.target().name();
    let status = close(recorder)?;
    if let Some(t) = &status.trouble {
        say(&format!("{name}: {t}"));
    }
    Ok(status)
}

struct Signals {
    int: Signal,
    term: Signal,
    hup: Option<Signal>,
    mark: Signal,
}

impl Signals {
    fn watch() -> std::io::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup: hup()?,
            mark: signal(SignalKind::user_defined1())?,
        })
    }
}

/// HUP, unless it was ignored when we started, as under nohup.
pub(super) fn hup() -> std::io::Result<Option<Signal>> {
    if is_ignored(rustix::process::Signal::HUP) {
        return Ok(None);
    }
    signal(SignalKind::hangup()).map(Some)
}

/// The next signal of a kind; of one that is not watched, none ever.
pub(super) async fn next(s: &mut Option<Signal>) {
    match s {
        Some(s) => _ = s.recv().await,
        None => std::future::pending().await,
    }
}

async fn watch(mut feed: Feed, mut recorder: Recorder, args: &RecordArgs) -> anyhow::Result<Exit> {
    let mut signals = Signals::watch().context("signals")?;
    let mut analysis = Analysis::lean(feed.host.clone(), Engine::default(), BUDGET);
    let mut ended = recorder.watch();
    let mut screen = Screen::new(recorder.target().name());
    let mut start = None;
    let first = tokio::time::sleep(args.live.interval * 3 + Duration::from_secs(10));
    tokio::pin!(first);
    loop {
        let event = tokio::select! {
            e = feed.events.recv() => e,
            _ = signals.int.recv() => break,
            _ = signals.term.recv() => break,
            () = next(&mut signals.hup) => break,
            _ = signals.mark.recv() => {
                recorder.mark("SIGUSR1");
                continue;
            }
            _ = ended.wait_for(|s| !s.is_alive()) => break,
            () = &mut first, if start.is_none() => None,
        };
        let Some(Event::Tick(tick)) = event else {
            let seen = start.is_some();
            close(recorder)?;
            return Err(Stop::cannot(if seen {
                "the sampler stopped; what was recorded is closed"
            } else {
                "no reading arrived; `stallscope doctor` shows which signal hangs"
            }));
        };
        let begun = *start.get_or_insert(tick.mono);
        analysis.push(tick.clone());
        let note = analysis.latest().map(|m| m.note()).unwrap_or_default();
        recorder.push(&tick, note);
        let interest = Arc::new(analysis.interest());
        feed.interest.send_if_modified(|old| {
            let changed = **old != *interest;
            *old = interest;
            changed
        });
        screen.tick(&tick, &analysis, &recorder.status());
        if args.duration.is_some_and(|d| tick.mono.since(begun) + args.live.interval / 2 >= d) {
            break;
        }
    }
    let end = close(recorder);
    screen.end(end.as_ref().ok());
    let status = end?;
    // What was noticed when the file was closed.
    if let Some(t) = status.trouble.as_ref().filter(|t| screen.trouble.as_ref() != Some(t)) {
        say(&format!("{}: {t}", screen.name));
    }
    let reader_gone = status.state == State::Ended(End::ReaderGone);
    if status.lost > 0 && !reader_gone {
        say(&format!("{} ticks are not in the recording", status.lost));
    }
    Ok(Exit::Ok)
}

/// What the user sees: one line on a terminal, errors everywhere.
struct Screen {
    name: String,
    terminal: bool,
    gaps: u64,
    findings: BTreeSet<(&'static str, String)>,
    /// Times and bytes of the last minute.
    recent: VecDeque<(MonoNs, u64)>,
    begun: Option<MonoNs>,
    /// The pause that was told, and when something was told last.
    told: bool,
    told_at: Option<MonoNs>,
    trouble: Option<String>,
    /// As of the last tick.
    blind: Vec<BlindSpot>,
}

impl Screen {
    fn new(name: String) -> Self {
        Self {
            name,
            terminal: std::io::stderr().is_terminal(),
            gaps: 0,
            findings: BTreeSet::new(),
            recent: VecDeque::new(),
            begun: None,
            told: false,
            told_at: None,
            trouble: None,
            blind: Vec::new(),
        }
    }

    fn tick(&mut self, tick: &Tick, analysis: &Analysis, status: &Status) {
        self.gaps += u64::from(tick.gap.is_some());
        self.warn(tick.mono, status);
        if !self.terminal {
            return;
        }
        self.begun.get_or_insert(tick.mono);
        self.blind = blind_spots(&coverage(&tick.health));
        if let Some(now) = analysis.latest() {
            for f in now.findings.all() {
                if self.findings.len() < MAX_FINDINGS {
                    self.findings.insert((f.rule.0, f.subject.to_string()));
                }
            }
        }
        self.recent.push_back((tick.mono, status.written));
        while self.recent.front().is_some_and(|r| tick.mono.since(r.0) > Duration::from_secs(60)) {
            self.recent.pop_front();
        }
        Self::draw(&self.line(tick.mono, status));
    }

    /// Once per trouble, and not more than once a minute.
    fn warn(&mut self, now: MonoNs, status: &Status) {
        let due = self.told_at.is_none_or(|t| now.since(t) >= QUIET);
        let says = match &status.state {
            State::Paused { why, .. } if !self.told && due => {
                self.told = true;
                format!("{}: {why}; the recording pauses until it can go on", self.name)
            }
            State::Recording if self.told => {
                self.told = false;
                format!("{}: the recording goes on; {} ticks are missing", self.name, status.lost)
            }
            _ if status.trouble != self.trouble && due => {
                self.trouble.clone_from(&status.trouble);
                let Some(t) = &self.trouble else { return };
                format!("{}: {t}", self.name)
            }
            _ => return,
        };
        self.told_at = Some(now);
        if self.terminal {
            Self::draw("");
        }
        say(&says);
    }

    fn line(&self, now: MonoNs, s: &Status) -> String {
        let ran = self.begun.map_or(Duration::ZERO, |b| now.since(b)).as_secs();
        let (h, m, sec) = (ran / 3600, ran / 60 % 60, ran % 60);
        let rate = self.recent.front().zip(self.recent.back()).and_then(|(a, b)| {
            let dt = b.0.since(a.0).as_secs_f64();
            (dt > 0.0).then(|| b.1.saturating_sub(a.1) as f64 / dt)
        });
        let rate = rate.map_or_else(|| "-".to_owned(), |r| format!("{}/s", units::bytes(r)));
        let plural = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let mut line = format!(
            "{h:02}:{m:02}:{sec:02}  {}  {}  {rate}  {}  {}",
            plural(s.ticks, "tick"),
            units::bytes(s.size as f64),
            plural(self.gaps, "gap"),
            plural(self.findings.len() as u64, "finding"),
        );
        let rules: BTreeSet<&str> = self.findings.iter().map(|f| f.0).collect();
        if !rules.is_empty() {
            let rules: Vec<&str> = rules.into_iter().collect();
            line = format!("{line} ({})", rules.join(", "));
        }
        match &s.state {
            State::Paused { why, since } => {
                line = format!("PAUSED {}: {why}  {line}", units::age(now.since(*since)));
            }
            _ if s.delay(now) > Duration::from_secs(1) => {
                line = format!("the disk takes {}  {line}", units::duration(s.delay(now)));
            }
            _ => {}
        }
        if s.lost > 0 {
            line = format!("{} not recorded  {line}", plural(s.lost, "tick"));
        }
        line
    }

    /// Over the line before. A terminal that takes nothing (Ctrl-S) must not hold up ticks.
    fn draw(line: &str) {
        let err = std::io::stderr();
        let mut fds = [PollFd::new(&err, PollFlags::OUT)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(poll(&mut fds, Some(&now)), Ok(1)) {
            return;
        }
        let width = rustix::termios::tcgetwinsize(&err).map_or(0, |w| usize::from(w.ws_col));
        let width = if width == 0 { 80 } else { width };
        let cut: String = line.chars().take(width.saturating_sub(1).max(20)).collect();
        let _ = write!(err.lock(), "\r{cut}\x1b[K");
    }

    fn end(&self, status: Option<&Status>) {
        if !self.terminal {
            return;
        }
        Self::draw("");
        if let Some(s) = status {
            let size = units::bytes(s.size as f64);
            let name = sanitize(&self.name);
            let blind = blind::clause(&self.blind, blind::SHOWN);
            let blind = if blind.is_empty() { blind } else { format!("; not looked at: {blind}") };
            let _ = writeln!(std::io::stderr(), "{} ticks, {size} in {name}{blind}", s.ticks);
        }
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "stallscope: {}", sanitize(line));
}
