//! The figures of a recording as tables.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum as _;
use jiff::tz::TimeZone;

use super::outlet::{Outlet, Replace};
use super::{Export, Format};
use crate::analysis::Analysis;
use crate::commands::shared::output::{print, say};
use crate::commands::shared::recording::{named, open_whole};
use crate::commands::shared::span::{ticks, told};
use crate::commands::shared::status_line::{StatusLine, ticks_so_far};
use crate::diagnose::Finding;
use crate::exit::{Exit, Stop};
use crate::playback::tape::{Played, Tape};
use crate::playback::whole::{Observer, Whole, part};
use crate::recording::Reader;
use crate::recording::tools::redact::Redactor;
use crate::report::table::{self, TABLES, Table, Tables, Written};
use crate::sample::time::WallNs;
use crate::text::sanitize;
use crate::typo::{nearest, question};
use crate::view;

/// Letters that a typo may have wrong.
const LETTERS: usize = 2;

/// Why it ended early.
enum Failure {
    Write(io::Error),
    Other(String),
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        Self::Write(e)
    }
}

impl Export {
    pub(super) fn as_tables(&self) -> anyhow::Result<Exit> {
        let format = self.table_format()?;
        let chosen = self.chosen()?;
        let places = self.places(&chosen, format)?;
        let reader = open_whole(&self.file)?;
        let tz = TimeZone::system();
        let span = self.span.of(&reader, &named(&self.file), &tz)?;
        let made = self.make_directory(&places)?;
        let result = self.written(reader, span, &chosen, &places, format, &tz);
        if result.is_err() && made {
            // Only if it is empty.
            let _ = std::fs::remove_dir(&self.output);
        }
        result
    }

    fn table_format(&self) -> anyhow::Result<table::Format> {
        match self.format {
            Format::Jsonl => Ok(table::Format::JsonLines),
            Format::Parquet => parquet(),
            Format::Csv | Format::Stall => Ok(table::Format::Csv),
        }
    }

    /// The tables that were named, once each.
    fn chosen(&self) -> anyhow::Result<Vec<&'static Table>> {
        let all = || TABLES.iter().map(|t| t.name).collect::<Vec<_>>().join(", ");
        if self.tables.is_empty() {
            let format = self.format.to_possible_value();
            return Err(Stop::usage(format!(
                "--format {} needs --table: all, or some of {}",
                format.as_ref().map_or("", |f| f.get_name()),
                all()
            )));
        }
        let mut out: Vec<&'static Table> = Vec::new();
        for name in &self.tables {
            let found = match (name.as_str(), Table::named(name)) {
                ("all", _) => TABLES.to_vec(),
                (_, Some(table)) => vec![table],
                (_, None) => {
                    let near = nearest(name, TABLES.iter().map(|t| t.name), LETTERS);
                    let hint = question(&near).map_or_else(String::new, |q| format!(" {q}"));
                    let what = format!("no table '{name}';{hint} all: {}", all());
                    return Err(Stop::usage(what));
                }
            };
            let new: Vec<_> = found.into_iter().filter(|t| !is_in(&out, t)).collect();
            out.extend(new);
        }
        Ok(out)
    }

    /// The file of each table; `None` is standard output.
    fn places(
        &self,
        chosen: &[&'static Table],
        format: table::Format,
    ) -> anyhow::Result<Vec<Option<PathBuf>>> {
        let out = &self.output;
        if out == Path::new("-") {
            if chosen.len() > 1 {
                return Err(Stop::usage("- takes one table; several need a directory"));
            }
            if self.format == Format::Parquet && io::stdout().is_terminal() {
                return Err(Stop::usage("Parquet is not for a terminal: give a file to -o"));
            }
            return Ok(vec![None]);
        }
        if !(out.as_os_str().as_bytes().ends_with(b"/") || out.is_dir()) {
            if chosen.len() > 1 {
                return Err(Stop::usage(format!(
                    "{}: several tables need a directory: end it with /",
                    out.display()
                )));
            }
            return Ok(vec![Some(out.clone())]);
        }
        let file = |t: &&Table| Some(out.join(format!("{}.{}", t.name, format.extension())));
        Ok(chosen.iter().map(file).collect())
    }

    /// Makes the directory that files go into; true if it was not there.
    fn make_directory(&self, places: &[Option<PathBuf>]) -> anyhow::Result<bool> {
        let goes_into = |p: &Option<PathBuf>| p.as_ref().is_some_and(|p| *p != self.output);
        if !places.iter().any(goes_into) || self.output.is_dir() {
            return Ok(false);
        }
        std::fs::create_dir(&self.output)
            .map(|()| true)
            .map_err(|e| Stop::cannot(format!("{}: {e}", self.output.display())))
    }

    fn written(
        &self,
        reader: Reader,
        span: (WallNs, WallNs),
        chosen: &[&'static Table],
        places: &[Option<PathBuf>],
        format: table::Format,
        tz: &TimeZone,
    ) -> anyhow::Result<Exit> {
        let replace = if self.force { Replace::Forced } else { Replace::Never };
        let outlet = |p: &Option<PathBuf>| match p {
            Some(path) => Outlet::file(path, replace),
            None => Ok(Outlet::Stdout),
        };
        let outlets = places.iter().map(outlet).collect::<anyhow::Result<Vec<_>>>()?;
        let mut tape = Tape::new(reader);
        let played = self.play(&mut tape, span, chosen, &outlets, format);
        let (done, ends) = match played {
            Ok(done) => done,
            Err(failure) => {
                outlets.into_iter().for_each(Outlet::discard);
                return match failure {
                    // Who read it has seen enough.
                    Failure::Write(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Ok),
                    Failure::Write(e) => Err(Stop::cannot(e.to_string())),
                    Failure::Other(why) => Err(Stop::cannot(why)),
                };
            }
        };
        let lost = self.lost(&tape);
        let mut report = String::new();
        let spent = told(ends, tz);
        for ((outlet, rows), table) in outlets.into_iter().zip(&done.rows).zip(chosen) {
            let name = outlet.name();
            let bytes = outlet.publish().map_err(|e| Stop::cannot(e.to_string()))?;
            let Some(bytes) = bytes else { continue };
            let _ = writeln!(
                report,
                "{}: {rows} rows of {}, {} ticks{spent}, {}",
                sanitize(&name),
                table.name,
                done.ticks,
                view::units::bytes(bytes as f64),
            );
        }
        print(&report)?;
        for line in &lost {
            say(line);
        }
        Ok(Exit::Ok)
    }

    /// Plays the recording into the tables: what was written, and the first and the last tick.
    fn play(
        &self,
        tape: &mut Tape,
        span: (WallNs, WallNs),
        chosen: &[&'static Table],
        outlets: &[Outlet],
        format: table::Format,
    ) -> Result<(Written, Option<(WallNs, WallNs)>), Failure> {
        let begin = |(t, o): (&&'static Table, &Outlet)| Ok((*t, o.encoder(format, t)?));
        let encoders = chosen.iter().zip(outlets).map(begin).collect::<io::Result<Vec<_>>>()?;
        let mut writer = Writer {
            tables: Tables::new(span, encoders),
            redactor: self.redact.then(Redactor::default),
            name: named(&self.file),
            line: StatusLine::new(),
            ends: None,
            span,
        };
        let (first, until) = ticks(tape, span);
        tape.seek(tape.start(first));
        let whole = part(tape, until, &mut writer)?;
        writer.line.clear();
        let ends = writer.ends;
        if let (Some(Whole { analysis, .. }), Some(_)) = (&whole, ends) {
            let active: Vec<Arc<Finding>> = analysis
                .latest()
                .map(|now| now.findings.all().cloned().collect())
                .unwrap_or_default();
            writer.tables.ended(analysis, &active)?;
        }
        if ends.is_none() {
            return Err(Failure::Other(match tape.reader().damage().next() {
                Some(d) => format!("{}: no tick in that time can be read: {d}", writer.name),
                None => format!("{}: has no ticks in that time", writer.name),
            }));
        }
        Ok((writer.tables.finish()?, ends))
    }

    /// What could not be read.
    fn lost(&self, tape: &Tape) -> Vec<String> {
        let (name, reader) = (named(&self.file), tape.reader());
        let all = reader.damage().map(|d| format!("{name}: not in the tables: {d}"));
        let mut all: Vec<String> = all.collect();
        all.dedup();
        let torn = reader.size().map_or(0, |size| size.saturating_sub(reader.end()));
        if torn > 0 {
            all.push(format!(
                "{name}: not in the tables: the last {torn} bytes, where the recording was cut off"
            ));
        }
        all
    }
}

fn is_in(all: &[&'static Table], table: &Table) -> bool {
    all.iter().any(|t| t.name == table.name)
}

#[cfg(feature = "parquet")]
#[allow(clippy::unnecessary_wraps, reason = "without the feature it fails")]
fn parquet() -> anyhow::Result<table::Format> {
    Ok(table::Format::Parquet)
}

#[cfg(not(feature = "parquet"))]
fn parquet() -> anyhow::Result<table::Format> {
    Err(Stop::usage(
        "this program was built without Parquet: build it with --features parquet, or use csv or \
         jsonl",
    ))
}

/// Writes what it sees.
struct Writer {
    tables: Tables,
    redactor: Option<Redactor>,
    name: String,
    line: StatusLine,
    span: (WallNs, WallNs),
    /// The first and the last tick that was asked for.
    ends: Option<(WallNs, WallNs)>,
}

impl Observer for Writer {
    type Error = Failure;

    /// What is judged is what is written: names in findings are replaced, too.
    fn played(&mut self, p: Played) -> Result<Played, Failure> {
        Ok(match (p, &mut self.redactor) {
            (Played::Segment(host), Some(r)) => {
                self.tables.begin();
                Played::Segment(r.host(&host))
            }
            (Played::Segment(host), None) => {
                self.tables.begin();
                Played::Segment(host)
            }
            (Played::Tick(tick), Some(r)) => {
                let tick = r.tick(&tick).map_err(|e| Failure::Other(e.to_string()))?;
                Played::Tick(Arc::new(tick))
            }
            (other, _) => other,
        })
    }

    fn moment(&mut self, run: &Analysis) -> Result<(), Failure> {
        let now = run.latest().map(|m| m.tick.wall);
        if let Some(t) = now.filter(|t| (self.span.0..=self.span.1).contains(t)) {
            self.ends = Some((self.ends.map_or(t, |e| e.0), t));
        }
        Ok(self.tables.moment(run)?)
    }

    fn ended(&mut self, run: &Analysis, findings: &[Arc<Finding>]) -> Result<(), Failure> {
        Ok(self.tables.ended(run, findings)?)
    }

    fn told(&mut self, done: u64, all: u64) {
        let name = &self.name;
        self.line.draw(|| format!("exporting {name}: {}", ticks_so_far(done, all)));
    }
}
