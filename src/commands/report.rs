//! `stallscope report [FILE] -o OUT`: an incident as one page.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;
use tokio::sync::mpsc;

use super::Run;
use super::shared::limits;
use super::shared::live::Live;
use super::shared::new_file::{Existing, NewFile};
use super::shared::output::{print, say};
use super::shared::recording::{named, open_whole, range};
use super::shared::span::{Span, ticks};
use super::shared::status_line::{StatusLine, so_far, ticks_so_far};
use super::shared::wait::{Ended, Ticks, runtime};
use crate::amount;
use crate::analysis::Analysis;
use crate::diagnose::Engine;
use crate::exit::{Exit, Stop};
use crate::metrics::history::DEFAULT_BUDGET;
use crate::playback::outline::outline;
use crate::playback::tape::{Played, Tape};
use crate::playback::timeline::Sign;
use crate::playback::whole::{Observer, Whole, part};
use crate::recording::tools::redact::{RedactError, Redactor};
use crate::report::page::{self, About, Seen};
use crate::report::{CheckReport, Observed};
use crate::rights::Duty;
use crate::sample::time::WallNs;
use crate::session::Session;
use crate::source::{Event, Feed};
use crate::text::sanitize;
use crate::view;

const EXAMPLES: &str = "\
Examples:
  stallscope report box.stall -o incident.html
  stallscope report box.stall --from 14:00 --to 14:10 -o incident.html
  stallscope report box.stall --redact -o public.html
  stallscope report box.stall -o - --format md | xclip     for a ticket
  stallscope report --duration 60s -o now.html             watch this host first";

/// Write an incident report: one page to mail, print or attach to a ticket.
///
/// About a recording, or about this host after watching it for a while. The page has the
/// conclusion first, then who causes it, a timeline, every finding with its evidence, plots and
/// next commands, the worst moment, and what was not seen. It is one file that has no script and
/// loads nothing.
///
/// Says the same as `check`, and exits like it: with 1 if a finding is warn or worse.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Report {
    /// Recording to report on instead of this host; - for a pipe.
    #[arg(
        value_name = "FILE",
        conflicts_with_all = ["interval", "netns", "no_bpf", "duration"]
    )]
    file: Option<PathBuf>,
    /// What to read.
    #[command(flatten)]
    live: Live,
    /// How long to watch, 1s to 24h.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = watch_time)]
    duration: Duration,
    /// What of the recording.
    #[command(flatten)]
    span: Span,
    /// File to write, readable only by you; - for standard output.
    #[arg(short, long, value_name = "OUT|-")]
    output: PathBuf,
    /// Output format. By default the one that OUT ends in, or html.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Replace OUT if it exists.
    #[arg(long)]
    force: bool,
    /// Replace addresses, the host name, and the names of processes, cgroups, namespaces and
    /// volumes by others of the same kind, consistently.
    #[arg(long)]
    redact: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One page with plots.
    Html,
    /// Markdown, without plots.
    Md,
}

fn watch_time(text: &str) -> Result<Duration, String> {
    amount::duration(text, Duration::from_secs(1)..=Duration::from_secs(86_400), "1s to 24h")
}

impl Run for Report {
    fn reads_kernel(&self) -> bool {
        self.file.is_none()
    }

    fn run(&self) -> anyhow::Result<Exit> {
        let existing = if self.force { Existing::Replaced } else { Existing::Kept };
        let out = match self.output.as_path() {
            p if p == Path::new("-") => None,
            p => Some(NewFile::at(p, existing)?),
        };
        let (report, seen, about) = match &self.file {
            Some(file) => self.played(file)?,
            None => self.live()?,
        };
        let document = page::document(&report, &seen, &about);
        let text = match self.format() {
            Format::Html => page::html(&document),
            Format::Md => page::markdown(&document),
        };
        match out {
            None => print(&text)?,
            Some(out) => {
                out.write(text.as_bytes())?;
                print(&self.written(&report, text.len()))?;
            }
        }
        report.unread.iter().flatten().for_each(|u| say(&format!("not in the report: {u}")));
        Ok(if report.has_findings() { Exit::Findings } else { Exit::Ok })
    }
}

/// What the page is made of.
type Judged = (CheckReport, Seen, About);

impl Report {
    fn format(&self) -> Format {
        let extension = self.output.extension().map(OsStr::to_ascii_lowercase);
        let is_md = extension.is_some_and(|e| e == "md" || e == "markdown");
        self.format.unwrap_or(if is_md { Format::Md } else { Format::Html })
    }

    fn written(&self, r: &CheckReport, bytes: usize) -> String {
        let n = r.findings.len();
        format!(
            "{}: {n} finding{}, {} tick{}, {}\n",
            sanitize(&self.output.to_string_lossy()),
            if n == 1 { "" } else { "s" },
            r.ticks,
            if r.ticks == 1 { "" } else { "s" },
            view::units::bytes(bytes as f64),
        )
    }

    fn live(&self) -> anyhow::Result<Judged> {
        let interval = self.live.interval;
        if self.span.is_given() {
            return Err(Stop::usage("--from and --to are for a recording; give its FILE"));
        }
        if self.duration < interval {
            return Err(Stop::usage(format!(
                "--duration {:?} is shorter than --interval {interval:?}: one tick gives no rates",
                self.duration
            )));
        }
        limits::ready_to_read()?;
        let this = self.live.host()?;
        // Before the readers, which open as many files as they may.
        let runtime = runtime()?;
        let Feed { host, events, interest, .. } = self.live.feed(&this, Duty::Figures)?;
        let mut names = self.redact.then(Redactor::default);
        let host = names.as_mut().map_or_else(|| host.clone(), |n| n.host(&host));
        let run = Analysis::new(host, Engine::default(), DEFAULT_BUDGET);
        let mut session = Session::new(run).read_by(interest);
        let seen = runtime.block_on(self.watch(events, &mut session, names.as_mut()))?;
        let about = About { is_live: true, is_redacted: self.redact, ..About::default() };
        Ok((CheckReport::new(session.run(), "live", observed(&seen)), seen, about))
    }

    /// Takes in ticks for as long as was asked; an interrupt ends it early with what was seen.
    async fn watch(
        &self,
        events: mpsc::Receiver<Event>,
        session: &mut Session,
        mut names: Option<&mut Redactor>,
    ) -> anyhow::Result<Seen> {
        let (duration, interval) = (self.duration, self.live.interval);
        let mut seen = Seen::new(interval);
        let mut ticks = Ticks::new(events, (duration, interval), None)?;
        let mut line = StatusLine::new();
        let if_any = |seen: Seen, why: &str| {
            if seen.ticks() == 0 { Err(Stop::cannot(why)) } else { Ok(seen) }
        };
        loop {
            let tick = match ticks.next(&mut None).await {
                Ok(tick) => tick,
                Err(Ended::Asked) => return if_any(seen, "stopped before the first reading"),
                Err(Ended::Silent) => {
                    let why = "no reading arrived; `stallscope doctor` shows which signal hangs";
                    return if_any(seen, why);
                }
            };
            session.push(match &mut names {
                Some(names) => Arc::new(names.tick(&tick)?),
                None => tick,
            });
            seen.look(session.run());
            line.draw(|| format!("watching this host: {}", so_far(seen.duration(), duration)));
            // Half an interval of slack: 15 ticks of 1 s span 14.99 s now and then.
            if seen.duration() + interval / 2 >= duration {
                return Ok(seen);
            }
        }
    }

    fn played(&self, file: &Path) -> anyhow::Result<Judged> {
        let mut tape = Tape::new(open_whole(file)?);
        let name = named(file);
        let damage = tape.reader().damage().next().map(ToString::to_string);
        let Some(range) = range(tape.reader()) else {
            return Err(nothing(&name, damage));
        };
        let asked = self.span.is_given();
        let span = asked.then(|| self.span.within(range, &name, &TimeZone::system()));
        let span = span.transpose()?;
        let (start, until) = span.map_or((0, tape.len()), |s| played(&mut tape, s));
        tape.seek(start);
        let mut watcher = Watcher {
            seen: Seen::new(tape.host(tape.segment(start).unwrap_or(0)).interval),
            names: self.redact.then(Redactor::default),
            span,
            name: name.clone(),
            line: StatusLine::new(),
        };
        let whole = part(&mut tape, until, &mut watcher)?;
        watcher.line.clear();
        let seen = watcher.seen;
        let Some(whole) = whole.filter(|_| seen.ticks() > 0) else {
            if asked && damage.is_none() {
                return Err(Stop::cannot(format!("{name}: has no ticks in that time")));
            }
            return Err(nothing(&name, damage));
        };
        let about = self.about(file, &mut tape, span);
        let mut unread: Vec<String> = tape.reader().damage().map(ToString::to_string).collect();
        unread.dedup();
        Ok((report(whole, &seen, span, unread), seen, about))
    }

    /// What the recording says of itself.
    fn about(&self, file: &Path, tape: &mut Tape, span: Option<(WallNs, WallNs)>) -> About {
        let is_inside = |at: WallNs| span.is_none_or(|(from, to)| (from..=to).contains(&at));
        let posts = outline(tape.reader_mut()).posts.into_iter();
        let notes = posts.filter(|p| p.sign != Sign::Hole && is_inside(WallNs(p.at)));
        let mut n = 0;
        let words = |sign, text: String| match sign {
            _ if !self.redact => text,
            Sign::Mark => {
                n += 1;
                format!("mark {n}")
            }
            _ => "a note of the recorder".to_owned(),
        };
        let mut words = words;
        let name = file.file_name().map(|n| n.to_string_lossy().into_owned());
        About {
            file: name.filter(|n| !self.redact && n != "-"),
            is_live: false,
            is_redacted: self.redact,
            marks: notes.map(|p| (WallNs(p.at), words(p.sign, p.text))).collect(),
        }
    }
}

fn nothing(name: &str, damage: Option<String>) -> anyhow::Error {
    let why = damage.map_or_else(
        || "has no ticks: nothing was recorded".to_owned(),
        |d| format!("no tick can be read: {d}"),
    );
    Stop::cannot(format!("{name}: {why}"))
}

fn observed(seen: &Seen) -> Observed {
    Observed {
        first_wall: seen.first_wall(),
        duration: seen.duration(),
        interval: seen.interval(),
        ticks: seen.ticks(),
    }
}

/// What `check` would say of it, without findings that ended before the part that was asked for.
fn report(
    all: Whole,
    seen: &Seen,
    span: Option<(WallNs, WallNs)>,
    unread: Vec<String>,
) -> CheckReport {
    // Rules have seen all that was played.
    let played = Observed { duration: all.duration, ticks: all.ticks, ..observed(seen) };
    let mut report = CheckReport::new(&all.analysis, "recording", played);
    report.earlier_rules = all.earlier_rules;
    let mut report = report.beyond(&all.over, all.blind, unread);
    (report.duration, report.ticks) = (seen.duration(), seen.ticks());
    if let Some((from, _)) = span {
        report.findings.retain(|f| f.active || f.last_seen >= from);
    }
    report
}

/// The tick to begin with, so that everything is known that was before the part, and the one after
/// its last. Where the clock was set back, of whole groups: no search finds one tick of two times.
fn played(tape: &mut Tape, span: (WallNs, WallNs)) -> (u64, u64) {
    let groups = tape.reader().groups();
    let goes_on = groups.iter().all(|g| g.first.wall <= g.last.wall)
        && groups.is_sorted_by(|a, b| a.last.wall <= b.first.wall);
    let (first, until) = if goes_on {
        (tape.at_wall(span.0).unwrap_or(0), tape.at_wall(span.1).map_or(0, |t| t + 1))
    } else {
        ticks(tape, span)
    };
    (tape.start(first), until)
}

/// Looks at a recording being played.
struct Watcher {
    seen: Seen,
    names: Option<Redactor>,
    span: Option<(WallNs, WallNs)>,
    name: String,
    line: StatusLine,
}

impl Observer for Watcher {
    type Error = RedactError;

    /// What is judged is what is told: names in findings are replaced, too.
    fn played(&mut self, p: Played) -> Result<Played, RedactError> {
        Ok(match (p, &mut self.names) {
            (Played::Segment(host), Some(names)) => Played::Segment(names.host(&host)),
            (Played::Tick(tick), Some(names)) => Played::Tick(Arc::new(names.tick(&tick)?)),
            (other, _) => other,
        })
    }

    fn moment(&mut self, run: &Analysis) -> Result<(), RedactError> {
        let at = run.latest().map(|m| m.tick.wall);
        if self.span.zip(at).is_none_or(|((from, to), at)| (from..=to).contains(&at)) {
            self.seen.look(run);
        }
        Ok(())
    }

    fn told(&mut self, done: u64, all: u64) {
        let name = &self.name;
        self.line.draw(|| format!("reading {name}: {}", ticks_so_far(done, all)));
    }
}
