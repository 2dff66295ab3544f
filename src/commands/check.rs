//! `stallscope check [FILE]`: watches for a while, or plays a recording, and prints the findings.

use std::path::{Path, PathBuf};
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
use super::shared::wait::{Ended, Ticks, runtime};
use crate::amount;
use crate::analysis::Analysis;
use crate::diagnose::Engine;
use crate::exit::{Exit, Stop};
use crate::metrics::history::DEFAULT_BUDGET;
use crate::playback::tape::Tape;
use crate::playback::whole::whole;
use crate::recording::Recorder;
use crate::report::text::Unjudged;
use crate::report::{self, CheckReport, Observed};
use crate::rights::Duty;
use crate::session::Session;
use crate::source::{Event, Feed};

/// Check this host or a recording, non-interactively, and print the findings.
#[derive(Args, Debug)]
pub(super) struct Check {
    /// Recording to check instead of this host; - for a pipe.
    #[arg(
        value_name = "FILE",
        conflicts_with_all = ["interval", "netns", "no_bpf", "duration", "record", "append"]
    )]
    file: Option<PathBuf>,
    /// What to read.
    #[command(flatten)]
    live: Live,
    /// How long to watch, 1s to 24h.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = watch_time)]
    duration: Duration,
    /// Name the rules that could not judge, and what they lacked.
    #[arg(long)]
    verbose: bool,
    /// Whether to record.
    #[command(flatten)]
    to: Beside,
    /// How to print.
    #[command(flatten)]
    output: Output,
}

fn watch_time(text: &str) -> Result<Duration, String> {
    amount::duration(text, Duration::from_secs(1)..=Duration::from_secs(86_400), "1s to 24h")
}

impl Run for Check {
    fn reads_kernel(&self) -> bool {
        self.file.is_none()
    }

    fn run(&self) -> anyhow::Result<Exit> {
        match &self.file {
            Some(file) => self.played(file),
            None => self.live(),
        }
    }
}

impl Check {
    fn live(&self) -> anyhow::Result<Exit> {
        let interval = self.live.interval;
        if self.duration < interval {
            return Err(Stop::usage(format!(
                "--duration {:?} is shorter than --interval {interval:?}: one tick gives no rates",
                self.duration
            )));
        }
        limits::ready_to_read()?;
        let this = self.live.host()?;
        let recorder = self.to.open(&this)?;
        // Before the readers, which open as many files as they may.
        let runtime = runtime()?;
        let Feed { host, events, interest, .. } = self.live.feed(&this, Duty::Figures)?;
        let run = Analysis::new(host, Engine::default(), DEFAULT_BUDGET);
        let mut session = Session::new(run).with_sink(recorder).read_by(interest);
        let observed = runtime.block_on(self.watch(events, &mut session));
        let recorded = session.sink.take().map(close_and_tell).transpose();
        let exit = self.tell(&CheckReport::new(session.run(), "live", observed?))?;
        recorded?;
        Ok(exit)
    }

    /// Takes in ticks for as long as was asked; an interrupt ends it early with what was seen.
    async fn watch(
        &self,
        events: mpsc::Receiver<Event>,
        session: &mut Session<Option<Recorder>>,
    ) -> anyhow::Result<Observed> {
        let (duration, interval) = (self.duration, self.live.interval);
        let mut seen = Observed { interval, ..Observed::default() };
        let mut first = None;
        let mut ticks = Ticks::new(events, (duration, interval), session.sink.as_ref())?;
        let mut line = StatusLine::new();
        loop {
            let tick = match ticks.next(&mut session.sink).await {
                Ok(tick) => tick,
                Err(Ended::Asked) => return if_any(seen, "stopped before the first reading"),
                Err(Ended::Silent) => {
                    let why = "no reading arrived; `stallscope doctor` shows which signal hangs";
                    return if_any(seen, why);
                }
            };
            let start = *first.get_or_insert(tick.mono);
            seen.first_wall.get_or_insert(tick.wall);
            seen.ticks += 1;
            seen.duration = tick.mono.since(start);
            session.push(tick);
            let found = session.run().latest().map_or(0, |m| m.findings.all().count());
            line.draw(|| {
                format!("checking this host: {}, {}", so_far(seen.duration, duration), count(found))
            });
            // Half an interval of slack: 15 ticks of 1 s span 14.99 s now and then.
            if seen.duration + interval / 2 >= duration {
                return Ok(seen);
            }
        }
    }

    /// The same report, over all of a recording.
    fn played(&self, file: &Path) -> anyhow::Result<Exit> {
        let mut tape = Tape::new(open_whole(file)?);
        let mut line = StatusLine::new();
        let name = named(file);
        let whole = whole(&mut tape, |done, all| {
            line.draw(|| format!("checking {name}: {}", ticks_so_far(done, all)));
        });
        line.clear();
        let Some(all) = whole else {
            let why = tape.reader().damage().next().map_or_else(
                || "has no ticks: nothing was recorded".to_owned(),
                |d| format!("no tick can be read: {d}"),
            );
            return Err(Stop::cannot(format!("{name}: {why}")));
        };
        let observed = Observed {
            first_wall: all.first_wall,
            duration: all.duration,
            interval: all.analysis.host().interval,
            ticks: all.ticks,
        };
        let mut unread: Vec<String> = tape.reader().damage().map(ToString::to_string).collect();
        unread.dedup();
        let mut report = CheckReport::new(&all.analysis, "recording", observed);
        report.earlier_rules = all.earlier_rules;
        self.tell(&report.beyond(&all.over, all.blind, unread))
    }

    fn tell(&self, report: &CheckReport) -> anyhow::Result<Exit> {
        let unjudged = if self.verbose { Unjudged::Listed } else { Unjudged::Counted };
        self.output.print_findings(
            || report::text::render(report, unjudged),
            || report::json::render(report),
        )?;
        Ok(if report.has_findings() { Exit::Findings } else { Exit::Ok })
    }
}

fn count(findings: usize) -> String {
    if findings == 1 { "1 finding".to_owned() } else { format!("{findings} findings") }
}

/// The result, if there was any tick: no tick is not an all-clear.
fn if_any(seen: Observed, why: &str) -> anyhow::Result<Observed> {
    if seen.ticks == 0 { Err(Stop::cannot(why)) } else { Ok(seen) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_watch_is_bounded() {
        assert_eq!(watch_time("2m"), Ok(Duration::from_secs(120)));
        assert!(watch_time("500ms").is_err() && watch_time("25h").is_err());
    }
}
