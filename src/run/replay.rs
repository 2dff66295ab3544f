//! What is done with recordings: `replay`, `check FILE`, `export`, `info`.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::{Exit, Stop, limits, print};
use crate::analysis::Analysis;
use crate::cli::{ExportArgs, Format, InfoArgs, ReplayArgs};
use crate::clock;
use crate::config::{self, Environment};
use crate::diagnose::Engine;
use crate::metrics::history::DEFAULT_BUDGET;
use crate::moment::Moment;
use crate::recording::file::SEARCH;
use crate::recording::tools::export::{self, ExportError, Output};
use crate::recording::tools::info::Info;
use crate::recording::{Note, ReadAt as _, ReadError, Reader, Spool};
use crate::replay::player::{Origin, Player};
use crate::replay::whole::whole;
use crate::report::{self, CheckReport, Observed};
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::WallNs;
use crate::source::replay::Tape;
use crate::text::sanitize;
use crate::ui::{self, ExitReason};
use crate::view;

/// How often a pipe is looked at until there is a first block.
const GLANCE: Duration = Duration::from_millis(20);

fn wrong(file: &Path, e: &ReadError) -> anyhow::Error {
    Stop::cannot(format!("{}: {e}", named(file)))
}

fn named(file: &Path) -> String {
    if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() }
}

/// Opens a recording; of a pipe, waits for as much as `enough` wants.
fn open(file: &Path, enough: impl Fn(&Spool) -> bool) -> anyhow::Result<(Origin, Reader)> {
    if file != Path::new("-") {
        let origin = Origin::File(file.to_owned());
        let reader = origin.open().map_err(|e| wrong(file, &e))?;
        return Ok((origin, reader));
    }
    if std::io::stdin().is_terminal() {
        return Err(Stop::usage("- reads a recording from a pipe, and this is a terminal"));
    }
    let spool = Spool::start(std::io::stdin()).map_err(|e| wrong(file, &e.into()))?;
    let spool = Arc::new(spool);
    let mut looked = false;
    loop {
        // Looked at first: what comes between the two looks counts.
        let open = spool.may_grow();
        let is_enough = !open || enough(&spool);
        // Whoever waits for the end must not keep a pipe without one that is no recording.
        let is_suspect = !looked && spool.size().is_ok_and(|n| n >= SEARCH);
        if is_enough || is_suspect {
            looked |= is_suspect;
            match Reader::new(spool.clone()) {
                Ok(r) if !open || is_enough && !r.is_empty() => {
                    return Ok((Origin::Pipe(spool), r));
                }
                Ok(_) | Err(ReadError::Empty | ReadError::Truncated) if open => {}
                Ok(_) => {}
                Err(e) => return Err(wrong(file, &e)),
            }
        }
        clock::sleep_until(clock::mono() + GLANCE);
    }
}

/// `check FILE`: the same report as of a live run, over all of a recording.
pub(super) fn check(file: &Path, format: Format) -> anyhow::Result<Exit> {
    let (_, reader) = open(file, |_| false)?;
    let mut tape = Tape::new(reader);
    let Some(all) = whole(&mut tape) else {
        let why = tape.reader().damage().next().map_or_else(
            || "holds no tick: nothing was recorded".to_owned(),
            |d| format!("no tick can be read: {d}"),
        );
        return Err(Stop::cannot(format!("{}: {why}", named(file))));
    };
    let observed = Observed {
        first_wall: all.first_wall,
        duration: all.duration,
        interval: all.analysis.host().interval,
        ticks: all.ticks,
    };
    let mut unread: Vec<String> = tape.reader().damage().map(ToString::to_string).collect();
    unread.dedup();
    let report =
        CheckReport::new(&all.analysis, "recording", observed).beyond(&all.over, all.blind, unread);
    match format {
        Format::Text => print(&report::text::render(&report))?,
        Format::Json => print(&report::json::text(&report::json::render(&report)))?,
    }
    Ok(if report.has_findings() { Exit::Findings } else { Exit::Ok })
}

/// `info FILE`: what is inside, down to the last block.
pub(super) fn info(args: &InfoArgs) -> anyhow::Result<Exit> {
    let (_, mut reader) = open(&args.file, |_| false)?;
    let name = named(&args.file);
    let info = Info::gather(&mut reader, &name).map_err(|e| wrong(&args.file, &e))?;
    match args.format {
        Format::Text => print(&info.text())?,
        Format::Json => print(&report::json::text(&serde_json::to_value(&info)?))?,
    }
    Ok(Exit::Ok)
}

/// `replay FILE`: the console over a recording.
pub(super) fn replay(args: &ReplayArgs) -> anyhow::Result<Exit> {
    if !std::io::stdout().is_terminal() {
        return Err(Stop::usage(
            "replay needs a terminal; use `stallscope check FILE` for findings as text or JSON",
        ));
    }
    limits::room()?;
    let (origin, mut reader) = open(&args.file, |_| true)?;
    if reader.is_empty() {
        return Err(Stop::cannot(format!("{}: holds no tick yet", named(&args.file))));
    }
    let settings = config::replay(args, &Environment::read());
    let piped = matches!(origin, Origin::Pipe(_));
    let at = args.at.and_then(|at| {
        let (range, tz) = (range(&mut reader)?, &settings.tz);
        let from = at.resolve(anchor(at, range), range, tz);
        Some((from, at.end(from)))
    });
    let name =
        args.file.file_name().map_or_else(|| named(&args.file), |n| n.to_string_lossy().into());
    let follow = args.follow || piped;
    let player = Player::open(origin, name, follow).map_err(|e| wrong(&args.file, &e))?;
    let begin = ui::Begin { at, speed: args.speed };
    let out = ui::replay(player, begin, settings)
        .map_err(|e| Stop::cannot(format!("{e}; `stallscope check FILE` needs no terminal")))?;
    if out.reason != ExitReason::Hangup {
        print(&(out.lines.join("\n") + "\n"))?;
        for p in out.panics {
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("stallscope: a thread failed: {}\n", sanitize(&p)).as_bytes(),
            );
        }
    }
    Ok(Exit::Ok)
}

/// Wall clocks of the earliest and the latest tick.
fn range(reader: &mut Reader) -> Option<(WallNs, WallNs)> {
    let groups = reader.groups();
    // The clock may have been set back in between.
    let times = || groups.iter().flat_map(|g| [g.first.wall, g.last.wall]);
    Some((times().min()?, times().max()?))
}

/// What a relative time on the command line counts from: +5m from the start, -5m from the end.
fn anchor(at: Moment, range: (WallNs, WallNs)) -> WallNs {
    if matches!(at, Moment::Relative(ns) if ns < 0) { range.1 } else { range.0 }
}

/// `export FILE`: a part of a recording.
pub(super) fn export(args: &ExportArgs) -> anyhow::Result<Exit> {
    let (_, mut reader) = open(&args.file, |_| false)?;
    let name = named(&args.file);
    let Some(range) = range(&mut reader) else {
        return Err(Stop::cannot(format!("{name}: holds no tick: nothing was recorded")));
    };
    let tz = TimeZone::system();
    let (from, to) = span(args, range, &tz).map_err(|e| match e {
        OutOfSpan::Reversed => Stop::usage("--from is after --to"),
        OutOfSpan::Behind(t) => Stop::cannot(format!("{name}: --from is after its last tick, {t}")),
        OutOfSpan::Before(t) => Stop::cannot(format!("{name}: --to is before its first tick, {t}")),
    })?;
    let out = Output::create(&args.output)
        .map_err(|e| Stop::cannot(format!("{}: {e}", args.output.display())))?;
    let file = out.file();
    let made = if args.redact {
        let mut judge = Judgement::default();
        export::redacted(&mut reader, file, from, to, |host, tick| judge.note(host, tick))
    } else {
        export::copy(&reader, file, from, to)
    };
    let whole = made.and_then(|(file, done)| {
        file.sync_all()?;
        Ok((file.metadata()?.len(), done))
    });
    let (bytes, done) = match whole {
        Ok(whole) => whole,
        Err(e) => {
            // A part of a part is of no use to anybody.
            out.discard();
            let of = if matches!(e, ExportError::Write(_)) { &args.output } else { &args.file };
            return Err(Stop::cannot(format!("{}: {e}", of.display())));
        }
    };
    let span = done.span.map_or_else(String::new, |(a, b)| {
        format!(", {} to {}", dated(a.wall, &tz), view::context::clock(b.wall, &tz))
    });
    let lost = if done.lost > 0 { format!(", {} unreadable", done.lost) } else { String::new() };
    print(&format!(
        "{}: {} ticks in {} groups{span}{lost}, {}\n",
        sanitize(&args.output.to_string_lossy()),
        done.ticks,
        done.groups,
        view::units::bytes(bytes as f64),
    ))?;
    Ok(Exit::Ok)
}

/// Why there is nothing between `--from` and `--to`.
enum OutOfSpan {
    Reversed,
    /// The last tick is before `--from`.
    Behind(String),
    /// The first one is after `--to`.
    Before(String),
}

/// What `--from` and `--to` mean.
fn span(
    args: &ExportArgs,
    range: (WallNs, WallNs),
    tz: &TimeZone,
) -> Result<(WallNs, WallNs), OutOfSpan> {
    let resolve = |m: Moment| m.resolve(anchor(m, range), range, tz);
    // Up to 14:03:20 is up to what a clock calls so.
    let to = args.to.map(|m| resolve(m).max(WallNs(m.end(resolve(m)).0 - 1)));
    match (args.from.map(resolve), to) {
        (Some(from), Some(to)) if from > to => Err(OutOfSpan::Reversed),
        (Some(from), _) if from > range.1 => Err(OutOfSpan::Behind(dated(range.1, tz))),
        (_, Some(to)) if to < range.0 => Err(OutOfSpan::Before(dated(range.0, tz))),
        (from, to) => Ok((from.unwrap_or(range.0), to.unwrap_or(range.1))),
    }
}

fn dated(w: WallNs, tz: &TimeZone) -> String {
    format!("{} {}", view::context::day(w, tz), view::context::clock(w, tz))
}

/// Judges what is written anew, so that its timeline shows findings.
#[derive(Default)]
struct Judgement(Option<Analysis>);

impl Judgement {
    fn note(&mut self, host: Option<&HostInfo>, tick: &Tick) -> Note {
        if let Some(h) = host {
            self.0 = Some(Analysis::new(h.clone(), Engine::default(), DEFAULT_BUDGET));
        }
        let Some(run) = &mut self.0 else { return Note::default() };
        run.push(Arc::new(tick.clone()));
        run.latest().map(|m| m.note()).unwrap_or_default()
    }
}
