//! The console's recordings: the one in progress, and those still being closed. Only the recorder's
//! thread waits for the disk; nothing here does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::analysis::Analysis;
use crate::clock;
use crate::recording::recorder::{End, Options, State, Status, Target, named};
use crate::recording::{Recorder, TickSummary};
use crate::sample::tick::Tick;
use crate::sample::time::WallNs;
use crate::session::TickSink;
use crate::text::sanitize;
use crate::view::state::{Rec, RecState};
use crate::view::units;

/// How long closing may take when the console ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is being recorded.
#[derive(Default)]
pub(super) struct Recordings {
    running: Option<Recorder>,
    closing: Vec<Recorder>,
    /// First name in the second in which one was started, and how many there were in it.
    named: Option<(PathBuf, usize)>,
    /// Marks so far.
    marks: u64,
    /// Trouble other than with writing, as already shown to the user.
    trouble: Option<String>,
}

impl TickSink for Recordings {
    fn keep(&mut self, tick: &Arc<Tick>, summary: impl FnOnce() -> TickSummary) {
        self.running.keep(tick, summary);
    }
}

impl Recordings {
    pub(super) fn new(running: Option<Recorder>) -> Self {
        Self { running, ..Self::default() }
    }

    /// Starts, with what is in memory first, or stops; what to tell the user.
    pub(super) fn toggle(&mut self, a: &Analysis, dir: &Path) -> String {
        if let Some(mut r) = self.running.take() {
            r.stop();
            let says = format!("closing {}", r.target().name());
            self.closing.push(r);
            return says;
        }
        let path = self.name(dir, &a.host().hostname, clock::wall());
        // The header says one interval for all.
        let fitting = a.history().iter().filter(|m| a.is_of_this_interval(m));
        let seen = fitting.filter_map(|m| {
            let note = a.at(m.tick.seq)?.summary();
            Some((m.tick.clone(), note))
        });
        let backlog: Vec<_> = seen.collect();
        let n = backlog.len();
        let target = Target::File(path.clone());
        match Recorder::start(target, a.host(), Options::default(), backlog) {
            Ok(r) => {
                self.trouble = None;
                self.running = Some(r);
                format!("recording to {}, starting with the last {n} ticks", path.display())
            }
            Err(e) => format!("cannot record: {e}"),
        }
    }

    /// A name that we have not used; whether it exists already is for the recorder's thread to find
    /// out, because the directory may be on a disk that does not answer.
    fn name(&mut self, dir: &Path, host: &str, now: WallNs) -> PathBuf {
        let first = named(dir, host, now, 1);
        let number = match &self.named {
            Some((same, n)) if *same == first => n + 1,
            _ => 1,
        };
        self.named = Some((first, number));
        named(dir, host, now, number)
    }

    /// Adds a mark to the recording in progress, with a name or the next number. Returns its text,
    /// or why there is none.
    pub(super) fn mark(&mut self, name: Option<&str>) -> Result<String, String> {
        let Some(r) = &mut self.running else {
            return Err("no recording in progress: r starts one".to_owned());
        };
        match r.status().state {
            State::Paused { why, .. } => Err(format!("no mark: the recording is paused ({why})")),
            State::Ended(_) => Err("no mark: the recording has ended".to_owned()),
            State::Opening | State::Recording => {
                let name = if let Some(name) = name {
                    name.to_owned()
                } else {
                    self.marks += 1;
                    format!("console {}", self.marks)
                };
                r.mark(name.as_str());
                Ok(name)
            }
        }
    }

    /// State of the recording in progress, and news of all.
    pub(super) fn look(&mut self) -> (Option<Rec>, Vec<String>) {
        let mut news = Vec::new();
        if let Some(r) = &self.running
            && let State::Ended(end) = r.status().state
        {
            news.push(told(r, &end));
            self.running = None;
        }
        if let Some(r) = &self.running {
            let trouble = r.status().trouble;
            if let Some(t) = trouble.as_ref().filter(|_| trouble != self.trouble) {
                news.push(format!("{}: {t}", r.target().name()));
            }
            self.trouble = trouble;
        }
        self.closing.retain(|r| {
            let state = r.status().state;
            if let State::Ended(end) = &state {
                news.push(told(r, end));
            }
            !matches!(state, State::Ended(_))
        });
        (self.running(), news)
    }

    /// State of the recording in progress.
    pub(super) fn running(&self) -> Option<Rec> {
        self.running.as_ref().map(|r| shown(&r.status()))
    }

    /// Closes all; a line for each.
    pub(super) fn finish(&mut self) -> Vec<String> {
        let all = self.running.take().into_iter().chain(std::mem::take(&mut self.closing));
        let end = clock::mono() + PATIENCE;
        all.map(|r| {
            let name = sanitize(&r.target().name()).into_owned();
            match r.finish(end.since(clock::mono())) {
                None => format!(
                    "{name}: the disk is not responding; the file ends with its last complete block"
                ),
                Some(s) => match &s.state {
                    State::Ended(end) => line(&name, &s, end),
                    _ => format!("{name}: not closed"),
                },
            }
        })
        .collect()
    }
}

fn told(r: &Recorder, end: &End) -> String {
    line(&r.target().name(), &r.status(), end)
}

fn line(name: &str, s: &Status, end: &End) -> String {
    match end {
        End::Closed | End::ReaderGone => {
            let lost = if s.lost > 0 { format!(", {} dropped", s.lost) } else { String::new() };
            let trouble = s.trouble.as_ref().map_or_else(String::new, |t| format!("; {t}"));
            let size = units::bytes(s.size as f64);
            sanitize(&format!("recorded {} ticks{lost}, {size} in {name}{trouble}", s.ticks)).into()
        }
        End::Failed(why) => sanitize(&format!("cannot record to {name}: {why}")).into(),
    }
}

fn shown(s: &Status) -> Rec {
    let latency = s.delay(clock::mono());
    let state = match &s.state {
        State::Paused { why, .. } => RecState::Paused(why.clone()),
        _ if s.lost > 0 || latency > Duration::from_secs(1) => RecState::Behind(s.lost),
        _ => RecState::Ok,
    };
    Rec { size: s.size, latency, state }
}
