//! A part of a recording as a new one.

use std::sync::Arc;

use jiff::tz::TimeZone;

use super::Export;
use crate::analysis::Analysis;
use crate::commands::shared::output::print;
use crate::commands::shared::recording::{named, open_whole};
use crate::commands::shared::span::told;
use crate::commands::shared::status_line::{StatusLine, groups_so_far};
use crate::diagnose::Engine;
use crate::exit::{Exit, Stop};
use crate::metrics::history::DEFAULT_BUDGET;
use crate::recording::tools::export::{self, ExportError, Exported, Output};
use crate::recording::{Reader, TickSummary};
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::WallNs;
use crate::session::Session;
use crate::text::sanitize;
use crate::view;

impl Export {
    pub(super) fn part(&self) -> anyhow::Result<Exit> {
        let mut reader = open_whole(&self.file)?;
        let tz = TimeZone::system();
        let span = self.span.of(&reader, &named(&self.file), &tz)?;
        let (bytes, done) = self.write(&mut reader, span)?;
        let span = told(done.span.map(|(a, b)| (a.wall, b.wall)), &tz);
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
