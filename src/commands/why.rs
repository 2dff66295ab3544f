//! `stallscope why WHAT`: watches a process, or plays a recording in which one was watched, and says
//! where its time goes.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc;

use super::Run;
use super::shared::limits;
use super::shared::live::Live;
use super::shared::output::Output;
use super::shared::recorder::{Beside, close_and_tell};
use super::shared::recording::{named, open_whole};
use super::shared::status_line::{StatusLine, so_far, ticks_so_far};
use super::shared::wait::{Ticks, runtime};
use crate::amount;
use crate::analysis::{Analysis, youngest_tables};
use crate::collect::HostFs;
use crate::collect::waits::Target;
use crate::diagnose::why::{Account, Answer, Known};
use crate::diagnose::{Engine, Findings, Severity};
use crate::exit::{Exit, Stop};
use crate::metrics::history::DEFAULT_BUDGET;
use crate::metrics::waits::WaitFigures;
use crate::playback::tape::{Played, Tape};
use crate::recording::Recorder;
use crate::report::why::{self, WhyReport};
use crate::rights::Duty;
use crate::sample::tick::Tick;
use crate::sample::time::WallNs;
use crate::session::Session;
use crate::source::{Event, Feed};

/// Ticks of a recording from one word about the progress to the next.
const STEP: u64 = 256;

/// Say why a process is slow: where its threads spend their time, and what they wait for.
///
/// Looks at every thread ten times a second, less often where that would cost more than 1% of a
/// core. Time on a CPU and waiting for one is exact; the rest is divided by what the thread was
/// found to sleep in.
///
/// The first paragraph is the conclusion. Exits with 1 if a finding at warn or worse explains a
/// wait.
///
/// More: stallscope help why
#[derive(Args, Debug)]
pub(super) struct Why {
    /// A process or thread id, a name as `ps -o comm` shows it, a cgroup path that begins with /,
    /// or a recording.
    #[arg(value_name = "PID|COMM|CGROUP|FILE")]
    what: String,
    /// Of a recording, only this process.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// What to read.
    #[command(flatten)]
    live: Live,
    /// How long to watch, 1s to 1h.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = watch_time)]
    duration: Duration,
    /// Whether to record.
    #[command(flatten)]
    to: Beside,
    /// How to print.
    #[command(flatten)]
    output: Output,
}

fn watch_time(text: &str) -> Result<Duration, String> {
    amount::duration(text, Duration::from_secs(1)..=Duration::from_secs(3600), "1s to 1h")
}

impl Run for Why {
    fn reads_kernel(&self) -> bool {
        self.file().is_none()
    }

    fn run(&self) -> anyhow::Result<Exit> {
        match self.file() {
            Some(file) => self.played(&file),
            None => self.live(),
        }
    }
}

impl Why {
    /// A recording: `-`, or a file. A process that is called like a file is found by its number.
    fn file(&self) -> Option<PathBuf> {
        let path = Path::new(&self.what);
        let is_number = self.what.bytes().all(|b| b.is_ascii_digit());
        (self.what == "-" || !is_number && path.is_file()).then(|| path.to_owned())
    }

    fn live(&self) -> anyhow::Result<Exit> {
        if self.pid.is_some() {
            return Err(Stop::usage(format!(
                "--pid is for a recording, and there is no file {}; give the process id alone",
                self.what
            )));
        }
        let interval = self.live.interval;
        if self.duration < interval * 2 {
            return Err(Stop::usage(format!(
                "--duration {:?} is shorter than two intervals of {interval:?}: nothing to compare",
                self.duration
            )));
        }
        limits::ready_to_read()?;
        let target = Target::new(&self.what);
        if target.processes(&HostFs::live()).is_empty() {
            return Err(Stop::cannot(self.nobody(&target)));
        }
        let this = self.live.host()?;
        let recorder = self.to.open(&this)?;
        let runtime = runtime()?;
        let Feed { host, events, interest, .. } = self.live.feed(&this, Duty::Figures)?;
        let run = Analysis::new(host, Engine::default(), DEFAULT_BUDGET);
        let mut session = Session::new(run).with_sink(recorder).read_by(interest);
        let watched = runtime.block_on(self.watch(events, &mut session, &target));
        // Whatever came of it, what was recorded is closed.
        let recorded = session.sink.take().map(close_and_tell).transpose();
        let exit = self.tell(session.run(), &watched?, "live")?;
        recorded?;
        Ok(exit)
    }

    fn nobody(&self, target: &Target) -> String {
        let asked = &self.what;
        match target {
            Target::Pid(_) => format!("{asked}: no such process"),
            Target::Cgroup(_) => {
                format!("{asked}: no cgroup with processes, and no recording, of that name")
            }
            Target::Comm(_) => format!(
                "{asked}: no process is called that (`ps -eo pid,comm` lists them), and there is \
                 no recording of that name"
            ),
        }
    }

    /// Takes in ticks for as long as was asked; an interrupt ends it early with what was seen.
    async fn watch(
        &self,
        events: mpsc::Receiver<Event>,
        session: &mut Session<Option<Recorder>>,
        target: &Target,
    ) -> anyhow::Result<Watched> {
        let host = HostFs::live();
        let (duration, interval) = (self.duration, self.live.interval);
        let (mut watched, mut first) = (Watched::default(), None);
        let mut ticks = Ticks::new(events, (duration, interval), session.sink.as_ref())?;
        let mut line = StatusLine::new();
        loop {
            let processes = target.processes(&host);
            if processes.is_empty() {
                break;
            }
            session.watch(processes);
            let Ok(tick) = ticks.next(&mut session.sink).await else { break };
            let (at, wall) = (tick.mono, tick.wall);
            session.push(tick);
            let latest = session.run().latest().and_then(|m| m.derived.waits.clone());
            if let Some(figures) = &latest {
                let time = wall.back(interval)..=wall;
                if watched.push(figures, time, |pid| figures.asked.contains(&pid)) {
                    watched.last = Last::of(session.run());
                }
            }
            // The first figures need two readings, and the processes were not known at the first.
            if !watched.account.is_empty() {
                watched.duration = at.since(*first.get_or_insert(at)) + interval;
            }
            line.draw(|| format!("watching {}: {}", self.what, so_far(watched.duration, duration)));
            if watched.duration + interval / 2 >= duration {
                break;
            }
            // A process that ended is listed for as long as its parent does not ask how.
            let is_over = latest.is_some_and(|f| {
                let is_there = f.threads.iter().any(|t| f.asked.contains(&t.task.pid));
                !is_there && !f.gone.is_empty()
            });
            let of_others = |pid: &u32| watched.account.successor(*pid).is_some();
            let is_reused = matches!(&target, Target::Pid(pid) if of_others(pid));
            if (is_over || is_reused) && !watched.account.is_empty() {
                break;
            }
        }
        if watched.account.is_empty() {
            let why = "it ended, or cannot be read, before two readings of it were there; \
                       `stallscope doctor` shows what is missing here";
            return Err(Stop::cannot(format!("{}: {why}", self.what)));
        }
        Ok(watched)
    }

    /// The same, over a recording.
    fn played(&self, file: &Path) -> anyhow::Result<Exit> {
        let mut tape = Tape::new(open_whole(file)?);
        let mut watched = Watched::default();
        let mut run: Option<Session> = None;
        let (mut before, mut everyone) = (None, false);
        let (mut line, name) = (StatusLine::new(), named(file));
        loop {
            if tape.at().is_multiple_of(STEP) {
                line.draw(|| format!("reading {name}: {}", ticks_so_far(tape.at(), tape.len())));
            }
            match tape.play() {
                Played::Segment(host) => {
                    run =
                        Some(Session::new(Analysis::new(host, Engine::default(), DEFAULT_BUDGET)));
                    before = None;
                }
                Played::Tick(tick) => {
                    let Some(run) = &mut run else { continue };
                    let at = (tick.mono, tick.wall);
                    run.push(tick);
                    let figures = run.run().latest().and_then(|m| m.derived.waits.clone());
                    if let Some(figures) =
                        figures.filter(|f| !f.threads.is_empty() || !f.gone.is_empty())
                    {
                        let (mono, wall) = before.unwrap_or(at);
                        let is_there = watched.push(&figures, wall..=at.1, |pid| match self.pid {
                            Some(p) => p == pid,
                            // Of the others there are only the threads that wait.
                            None => figures.is_asked(pid),
                        });
                        everyone |= figures.everyone;
                        if is_there {
                            watched.duration += at.0.since(mono);
                            watched.last = Last::of(run.run());
                        }
                    }
                    before = Some(at);
                }
                Played::Lost(_) => {}
                Played::End => break,
            }
        }
        line.clear();
        let Some(run) = run.filter(|_| !watched.account.is_empty()) else {
            return Err(Stop::cannot(format!("{name}: {}", self.unseen(everyone))));
        };
        self.tell(run.run(), &watched, "recording")
    }

    /// Why a recording has nothing to say.
    fn unseen(&self, everyone: bool) -> String {
        const BOTH: &str = "`stallscope why PID --record FILE` does both";
        match (self.pid, everyone) {
            (Some(p), true) => format!(
                "no thread of process {p} waited for anything while it was recorded: those that are \
                 idle are recorded only if somebody asks about the process"
            ),
            (Some(p), false) => {
                format!("process {p} was not watched while it was recorded; {BOTH}")
            }
            (None, true) => format!(
                "no process was watched while it was recorded; name one with --pid, or {BOTH}"
            ),
            (None, false) => format!("no process was watched while it was recorded; {BOTH}"),
        }
    }

    fn tell(
        &self,
        run: &Analysis,
        watched: &Watched,
        source: &'static str,
    ) -> anyhow::Result<Exit> {
        let Watched { account, duration, time, last } = watched;
        let Some(last) = last else { return Err(Stop::cannot("no reading arrived")) };
        let known = Known {
            findings: &last.findings,
            time: time.clone(),
            tables: youngest_tables(last.ticks.iter().map(|t| &**t)),
            // A recording may be longer than the memory.
            window: last.ticks.first().and_then(|t| run.window(t.seq)),
        };
        let answer = Answer::of(account, &known);
        let asked = self.pid.map_or_else(|| self.what.clone(), |p| format!("{} {p}", self.what));
        let report = WhyReport {
            host: run.host(),
            source,
            asked: &asked,
            duration: *duration,
            answer: &answer,
        };
        self.output.print_findings(|| why::text(&report), || why::json(&report))?;
        let is_explained = answer.findings.iter().any(|f| f.fire.severity >= Severity::Warn);
        Ok(if is_explained { Exit::Findings } else { Exit::Ok })
    }
}

/// What was seen of the processes that were asked about.
struct Watched {
    account: Account,
    /// For how long.
    duration: Duration,
    /// When; empty: not yet.
    time: RangeInclusive<WallNs>,
    /// Its end.
    last: Option<Last>,
}

/// What was known when they were seen last. A recording may go on for hours.
struct Last {
    findings: Arc<Findings>,
    /// The latest ticks, youngest first.
    ticks: Vec<Arc<Tick>>,
}

impl Last {
    fn of(run: &Analysis) -> Option<Self> {
        let findings = run.latest()?.findings.clone();
        Some(Self { findings, ticks: run.recent().cloned().collect() })
    }
}

impl Default for Watched {
    fn default() -> Self {
        let time = WallNs(i64::MAX)..=WallNs(i64::MIN);
        Self { account: Account::default(), duration: Duration::ZERO, time, last: None }
    }
}

impl Watched {
    /// Adds the figures of one tick, which cover `time`. False: there are none.
    fn push(
        &mut self,
        figures: &WaitFigures,
        time: RangeInclusive<WallNs>,
        wanted: impl Fn(u32) -> bool,
    ) -> bool {
        let is_there = self.account.push(figures, wanted);
        if is_there {
            let (from, to) = (self.time.start().min(time.start()), self.time.end().max(time.end()));
            self.time = *from..=*to;
        }
        is_there
    }
}
