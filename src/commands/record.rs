//! `stallscope record`: the live source into a file, without a screen.

mod flight;
mod progress;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use self::flight::Flight;
use self::progress::Progress;
use super::Run;
use super::shared::limits;
use super::shared::live::Live;
use super::shared::output::say;
use super::shared::recorder::{close, existing, open};
use super::shared::wait::{Signals, runtime};
use super::shared::wakeups::{Wakeup, Wakeups};
use crate::amount;
use crate::analysis::Analysis;
use crate::clock;
use crate::diagnose::Engine;
use crate::exit::{Exit, Stop};
use crate::recording::Recorder;
use crate::recording::recorder::{
    End, LEAST_SIZE, Options, Rotate, State, SyncPolicy, Target, default_file,
};
use crate::recording::tools::thin::{LEAST_AGE, Tiers};
use crate::rights::Duty;
use crate::session::Session;
use crate::source::Feed;

/// History for the findings; nobody scrolls back here. On a small machine it holds the five minutes
/// that rules look back.
const BUDGET: usize = 16 << 20;

/// Record everything that is measured, non-interactively.
///
/// Writes one tick per interval until it gets TERM, INT or HUP, then closes the file. If it is
/// killed or crashes, at most one tick is lost. USR1 adds a mark to the recording. On a
/// terminal, one line shows the progress; otherwise only errors are printed.
///
/// A slow disk never delays a tick: what cannot be written in time is dropped, and the
/// recording says so. While the disk is full, recording pauses.
///
/// With --on-finding it is a flight recorder: the last minutes stay in memory, and nothing is
/// written until a finding begins.
///
/// More: stallscope help recording
#[derive(Args, Debug)]
pub(super) struct Record {
    /// What to read.
    #[command(flatten)]
    live: Live,
    /// New file to write, readable only by you; - for a pipe. By default
    /// stallscope-HOST-TIME.stall in the working directory. With --on-finding: the directory for
    /// the files; created with mode 0700 if it does not exist.
    #[arg(short, long, value_name = "FILE|-")]
    output: Option<PathBuf>,
    /// Append to FILE if it exists, also after a crash or a reboot.
    #[arg(long)]
    append: bool,
    /// Stop after this time, such as 90s, 12h or 7d.
    #[arg(long, value_name = "DURATION", value_parser = long_time)]
    duration: Option<Duration>,
    /// How often to force data to the disk: after every tick, at this interval, or never. Only
    /// matters if the machine crashes.
    #[arg(long, value_name = "tick|DURATION|off", default_value = "5s")]
    sync: SyncPolicy,
    /// Keep FILE and its parts below this size by deleting the oldest parts; 1M or more. With
    /// --on-finding: all incident files of this host in the directory.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
    /// Delete parts that are older than this; 1m or more.
    #[arg(long, value_name = "DURATION", value_parser = age)]
    max_age: Option<Duration>,
    /// Start a new FILE at this size (10M is MiB) or age (10m is minutes), and rename the old one
    /// to a part that has the time in its name.
    #[arg(long, value_name = "SIZE|DURATION")]
    rotate: Option<Rotate>,
    /// Downsample older ticks to one per STEP, and delete what is older than the last AGE. By
    /// default: all ticks for an hour, one in 10 s for a day, one in 60 s for a week. Ages are
    /// minimum ages.
    #[arg(
        long,
        value_name = "STEP:AGE,..",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all:1h,10s:1d,60s:7d",
        conflicts_with_all = ["rotate", "max_size", "max_age"]
    )]
    thin: Option<Tiers>,
    /// Files only around findings.
    #[command(flatten)]
    flight: Box<Flight>,
}

fn long_time(text: &str) -> Result<Duration, String> {
    amount::days(text, Duration::from_secs(1), "1s to 366d")
}

fn age(text: &str) -> Result<Duration, String> {
    amount::days(text, LEAST_AGE, "1m to 366d")
}

fn size(text: &str) -> Result<u64, String> {
    let n = amount::bytes(text).ok_or("expected a size such as 500M or 2G")?;
    if n >= LEAST_SIZE { Ok(n) } else { Err("out of range; expected 1M or more".to_owned()) }
}

impl Run for Record {
    fn reads_kernel(&self) -> bool {
        true
    }

    fn run(&self) -> anyhow::Result<Exit> {
        if let Some(trigger) = self.flight.trigger() {
            return flight::run(self, trigger);
        }
        limits::ready_to_read()?;
        let host = self.live.host()?;
        let target = match &self.output {
            Some(p) if p == Path::new("-") => Target::Stdout,
            Some(p) => Target::File(p.clone()),
            None => Target::File(default_file(Path::new("."), &host.hostname, clock::wall())),
        };
        let options = self.options();
        let is_plain = !options.rotates() && options.thin.is_none() && !self.append;
        if target == Target::Stdout && !is_plain {
            let what = "--append, --rotate, --max-size, --max-age and --thin need a file";
            return Err(Stop::usage(what));
        }
        let recorder = open(target, &host, options)?;
        // Before the readers, which open as many files as they may.
        let runtime = runtime()?;
        let feed = self.live.feed(&host, Duty::Figures)?;
        runtime.block_on(self.watch(feed, recorder))
    }
}

impl Record {
    fn options(&self) -> Options {
        Options {
            existing: existing(self.append),
            sync: self.sync,
            rotate: self.rotate,
            max_size: self.max_size,
            max_age: self.max_age,
            thin: self.thin,
        }
    }

    async fn watch(&self, feed: Feed, recorder: Recorder) -> anyhow::Result<Exit> {
        let Feed { host, events, interest, .. } = feed;
        let signals = Signals::watch(true)?;
        let mut wakeups = Wakeups::new(events, signals, self.live.interval, self.duration);
        let mut ended = recorder.watch();
        let mut progress = Progress::new(recorder.target().name());
        let run = Analysis::lean(host, Engine::default(), BUDGET);
        let mut session = Session::new(run).with_sink(recorder).read_by(interest);
        loop {
            let wakeup = tokio::select! {
                wakeup = wakeups.next() => wakeup,
                _ = ended.wait_for(|s| !s.is_alive()) => Wakeup::End,
            };
            match wakeup {
                Wakeup::End => break,
                Wakeup::Mark => session.sink.mark("SIGUSR1"),
                Wakeup::Silent => {
                    close(session.sink)?;
                    return Err(wakeups.silence("; the recording is closed"));
                }
                Wakeup::Tick(tick) => {
                    session.push(tick.clone());
                    progress.tick(&tick, session.run(), &session.sink.status());
                    if wakeups.is_last(&tick) {
                        break;
                    }
                }
            }
        }
        finish(session.sink, &mut progress)
    }
}

/// Closes the file and says what it lacks.
fn finish(recorder: Recorder, progress: &mut Progress) -> anyhow::Result<Exit> {
    let end = close(recorder);
    progress.end(end.as_ref().ok());
    let status = end?;
    // Trouble noticed when the file was closed.
    if let Some(t) = status.trouble.as_ref().filter(|t| !progress.has_told(t)) {
        say(&format!("{}: {t}", progress.name()));
    }
    let reader_gone = status.state == State::Ended(End::ReaderGone);
    if status.lost > 0 && !reader_gone {
        say(&format!("{} ticks are not in the recording", status.lost));
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_a_least_value() {
        assert_eq!(size("1048576"), Ok(1 << 20));
        assert!(size("1000K").is_err() && size("lots").is_err());
        assert_eq!(age("2w"), Ok(Duration::from_secs(14 * 86_400)));
        assert!(age("59s").is_err() && age("99999999999999999999d").is_err());
        assert_eq!(long_time("90s"), Ok(Duration::from_secs(90)));
    }
}
