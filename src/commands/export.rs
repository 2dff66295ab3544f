//! `stallscope export FILE`: a part of a recording.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use jiff::tz::TimeZone;

use super::Run;
use super::shared::output::print;
use super::shared::recording::{anchor, named, open_whole, range};
use super::shared::status_line::{StatusLine, groups_so_far};
use crate::analysis::Analysis;
use crate::diagnose::Engine;
use crate::exit::{Exit, Stop};
use crate::metrics::history::DEFAULT_BUDGET;
use crate::recording::tools::export::{self, ExportError, Exported, Output};
use crate::recording::{Reader, TickSummary};
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::WallNs;
use crate::session::Session;
use crate::text::sanitize;
use crate::time_spec::TimeSpec;
use crate::view;

/// Copy part of a recording into a new one, to share it.
///
/// Copies groups of up to 60 ticks as they are, so the part may begin up to a group earlier and
/// end up to a group later than asked for.
#[derive(Args, Debug)]
pub(super) struct Export {
    /// The recording.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// First moment: 14:03:20, '2026-05-01 14:03', +5m from the start or -5m from the end. By
    /// default the start.
    #[arg(long, value_name = "TIME", value_parser = TimeSpec::parse, allow_hyphen_values = true)]
    from: Option<TimeSpec>,
    /// Last moment, likewise. By default the end.
    #[arg(long, value_name = "TIME", value_parser = TimeSpec::parse, allow_hyphen_values = true)]
    to: Option<TimeSpec>,
    /// New file to write, readable only by you.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Replace addresses, the host name, and the names of processes, cgroups, namespaces and
    /// volumes by others of the same kind, consistently. Rewrites every tick.
    #[arg(long)]
    redact: bool,
}

impl Run for Export {
    fn run(&self) -> anyhow::Result<Exit> {
        let mut reader = open_whole(&self.file)?;
        let name = named(&self.file);
        let Some(range) = range(&reader) else {
            return Err(Stop::cannot(format!("{name}: has no ticks: nothing was recorded")));
        };
        let tz = TimeZone::system();
        let span = self.span(range, &tz).map_err(|e| match e {
            OutOfSpan::Reversed => Stop::usage("--from is after --to"),
            OutOfSpan::Behind(t) => {
                Stop::cannot(format!("{name}: --from is after its last tick, {t}"))
            }
            OutOfSpan::Before(t) => {
                Stop::cannot(format!("{name}: --to is before its first tick, {t}"))
            }
        })?;
        let (bytes, done) = self.write(&mut reader, span)?;
        let span = done.span.map_or_else(String::new, |(a, b)| {
            format!(", {} to {}", dated(a.wall, &tz), view::context::clock(b.wall, &tz))
        });
        let lost =
            if done.lost > 0 { format!(", {} unreadable", done.lost) } else { String::new() };
        print(&format!(
            "{}: {} ticks in {} groups{span}{lost}, {}\n",
            sanitize(&self.output.to_string_lossy()),
            done.ticks,
            done.groups,
            view::units::bytes(bytes as f64),
        ))?;
        Ok(Exit::Ok)
    }
}

/// Why there is nothing between `--from` and `--to`.
enum OutOfSpan {
    Reversed,
    /// The last tick is before `--from`.
    Behind(String),
    /// The first one is after `--to`.
    Before(String),
}

impl Export {
    /// What `--from` and `--to` mean.
    fn span(&self, range: (WallNs, WallNs), tz: &TimeZone) -> Result<(WallNs, WallNs), OutOfSpan> {
        let resolve = |m: TimeSpec| m.resolve(anchor(m, range), range, tz);
        // Up to 14:03:20 includes all of that second.
        let to = self.to.map(|m| resolve(m).max(WallNs(m.end(resolve(m)).0 - 1)));
        match (self.from.map(resolve), to) {
            (Some(from), Some(to)) if from > to => Err(OutOfSpan::Reversed),
            (Some(from), _) if from > range.1 => Err(OutOfSpan::Behind(dated(range.1, tz))),
            (_, Some(to)) if to < range.0 => Err(OutOfSpan::Before(dated(range.0, tz))),
            (from, to) => Ok((from.unwrap_or(range.0), to.unwrap_or(range.1))),
        }
    }

    /// Writes the part: its bytes, and what it holds.
    fn write(
        &self,
        reader: &mut Reader,
        (from, to): (WallNs, WallNs),
    ) -> anyhow::Result<(u64, Exported)> {
        let out = Output::create(&self.output)
            .map_err(|e| Stop::cannot(format!("{}: {e}", self.output.display())))?;
        let (name, mut line) = (named(&self.file), StatusLine::new());
        let told = |done, all| {
            line.draw(|| format!("copying {name}: {}", groups_so_far(done, all)));
        };
        let made = if self.redact {
            let mut judge = Judgement::default();
            let note = |host: Option<&HostInfo>, tick: &Tick| judge.note(host, tick);
            export::redacted(reader, out.file(), from, to, note, told)
        } else {
            export::copy(reader, out.file(), from, to, told)
        };
        line.clear();
        let whole = made.and_then(|(file, done)| {
            file.sync_all()?;
            Ok((file.metadata()?.len(), done))
        });
        whole.map_err(|e| {
            // An incomplete copy is of no use.
            out.discard();
            let of = if matches!(e, ExportError::Write(_)) { &self.output } else { &self.file };
            Stop::cannot(format!("{}: {e}", of.display()))
        })
    }
}

fn dated(w: WallNs, tz: &TimeZone) -> String {
    format!("{} {}", view::context::day(w, tz), view::context::clock(w, tz))
}

/// Judges what is rewritten, so that its timeline shows findings.
#[derive(Default)]
struct Judgement(Option<Session<TickSummary>>);

impl Judgement {
    fn note(&mut self, host: Option<&HostInfo>, tick: &Tick) -> TickSummary {
        if let Some(h) = host {
            let run = Analysis::new(h.clone(), Engine::default(), DEFAULT_BUDGET);
            self.0 = Some(Session::new(run).with_sink(TickSummary::default()));
        }
        let Some(session) = &mut self.0 else { return TickSummary::default() };
        session.push(Arc::new(tick.clone()));
        std::mem::take(&mut session.sink)
    }
}
