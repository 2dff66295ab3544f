//! `stallscope record --on-finding`: the last minutes in memory, and a file around each finding.
//!
//! One thread takes the ticks, folds them and encodes them once, into memory; while an incident is
//! under way, its recorder's thread encodes and writes them too. Nothing here waits for the disk.

mod exec;
mod incidents;
mod line;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use self::exec::{Program, Runner};
use self::incidents::{Incidents, Place};
use self::line::Line;
use super::{BUDGET, Record};
use crate::amount;
use crate::analysis::Analysis;
use crate::commands::shared::limits;
use crate::commands::shared::output::say;
use crate::commands::shared::wait::{Signals, runtime};
use crate::commands::shared::wakeups::{Wakeup, Wakeups};
use crate::diagnose::{Engine, Kind, RULES, Rule, RuleId, Severity};
use crate::exit::{Exit, Stop};
use crate::incident::{Settings, Trigger};
use crate::recording::recorder::{IncidentFiles, Keep, Ring, can_make_files};
use crate::rights::Duty;
use crate::sample::tick::HostInfo;
use crate::session::Session;
use crate::source::{Feed, live};
use crate::typo::{nearest, question};

/// Letters that a typo may have wrong.
const LETTERS: usize = 3;
/// Bytes of memory for the time before a finding.
const ROOM: usize = 64 << 20;
/// The longest incident.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// Files only around findings.
#[derive(Args, Debug)]
#[command(next_help_heading = "Flight recorder")]
pub(super) struct Flight {
    /// Keep the last minutes in memory, and write a file into the directory of -o when a finding
    /// begins: one of severity warn or worse, or one of these rules at any severity.
    #[arg(
        long,
        value_name = "RULE,..",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    on_finding: Option<Named>,
    /// How much of the time before the finding is kept, 1s to 1h; at most 64 MiB.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        value_parser = before,
        requires = "on_finding"
    )]
    before: Duration,
    /// How long to record after the last finding began, 1s to 30m; at most 30m in all.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2m",
        value_parser = after,
        requires = "on_finding"
    )]
    after: Duration,
    /// No other file for the same rule and subject until this long after the last one; 0s for no
    /// limit.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10m",
        value_parser = quiet,
        requires = "on_finding"
    )]
    quiet: Duration,
    /// Run this program after each file is closed, without a shell, with JSON about the incident
    /// on its standard input.
    #[arg(long, value_name = "PROGRAM", requires = "on_finding")]
    exec: Option<PathBuf>,
    /// An argument for the program; may be repeated.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, requires = "exec")]
    exec_arg: Vec<String>,
    /// Kill the program after this time, 1s to 1h.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "60s",
        value_parser = time_limit,
        requires = "exec"
    )]
    exec_timeout: Duration,
}

fn before(text: &str) -> Result<Duration, String> {
    amount::duration(text, Duration::from_secs(1)..=Duration::from_secs(3600), "1s to 1h")
}

fn after(text: &str) -> Result<Duration, String> {
    amount::duration(text, Duration::from_secs(1)..=LONGEST, "1s to 30m")
}

fn quiet(text: &str) -> Result<Duration, String> {
    amount::days(text, Duration::ZERO, "0s to 366d")
}

fn time_limit(text: &str) -> Result<Duration, String> {
    amount::duration(text, Duration::from_secs(1)..=Duration::from_secs(3600), "1s to 1h")
}

/// The value of `--on-finding`.
#[derive(Clone, Debug)]
struct Named(Trigger);

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(Trigger::Severity(Severity::Warn)));
        }
        text.split(',').map(rule).collect::<Result<_, _>>().map(|r| Self(Trigger::Rules(r)))
    }
}

fn rule(id: &str) -> Result<RuleId, String> {
    let known = RULES.iter().find(|r| r.id().0 == id.trim());
    match known {
        Some(Rule { kind: Kind::Annotation, .. }) => {
            Err(format!("rule '{id}' only annotates and never raises a finding"))
        }
        Some(rule) => Ok(rule.id()),
        None => {
            let near = nearest(id, RULES.iter().map(|r| r.id().0), LETTERS);
            let hint = question(&near).unwrap_or("`stallscope rules` lists them".to_owned());
            Err(format!("no rule '{id}'; {hint}"))
        }
    }
}

impl Flight {
    /// What begins a file, if it is a flight recorder.
    pub(super) fn trigger(&self) -> Option<&Trigger> {
        self.on_finding.as_ref().map(|n| &n.0)
    }

    fn program(&self) -> anyhow::Result<Option<Program>> {
        let Some(path) = &self.exec else { return Ok(None) };
        let args = self.exec_arg.iter().map(Into::into).collect();
        Program::find(path, args, self.exec_timeout)
            .map(Some)
            .map_err(|why| Stop::cannot(format!("--exec {}: {why}", path.display())))
    }

    fn settings(&self, trigger: &Trigger) -> Settings {
        Settings {
            trigger: trigger.clone(),
            after: self.after,
            longest: LONGEST,
            quiet: self.quiet,
        }
    }
}

/// Watches until it is told to end.
pub(super) fn run(r: &Record, trigger: &Trigger) -> anyhow::Result<Exit> {
    let dir = r.output.as_deref();
    for (given, flag) in [
        (r.append, "--append"),
        (r.rotate.is_some(), "--rotate"),
        (r.max_age.is_some(), "--max-age"),
        (r.thin.is_some(), "--thin"),
        (dir == Some(Path::new("-")), "-o -"),
    ] {
        if given {
            return Err(Stop::usage(format!(
                "--on-finding and {flag}: each incident is a new file in the directory of -o"
            )));
        }
    }
    let Some(dir) = dir else {
        return Err(Stop::usage("--on-finding needs -o DIR, the directory for its files"));
    };
    limits::ready_to_read()?;
    let host = r.live.host()?;
    let program = r.flight.program()?;
    let dir = directory(dir).map_err(|why| Stop::cannot(format!("{}: {why}", dir.display())))?;
    let incidents = open(r, trigger, (dir, program), &host)?;
    // Before the readers, which open as many files as they may.
    let runtime = runtime()?;
    let feed = r.live.feed(&host, Duty::Console)?;
    runtime.block_on(watch(r, feed, incidents))
}

fn open(
    r: &Record,
    trigger: &Trigger,
    (dir, program): (PathBuf, Option<Program>),
    host: &HostInfo,
) -> anyhow::Result<Incidents> {
    let rules = RULES.iter().map(|r| r.id().0).collect();
    let incident_files = IncidentFiles::new(&host.hostname, rules, r.max_size);
    // Half of what all files may take is for the time after the finding.
    let room = r.max_size.map_or(ROOM, |m| ROOM.min((m / 2) as usize));
    let ring = Ring::new(host, Keep { time: r.flight.before, bytes: room })
        .map_err(|e| Stop::cannot(format!("cannot encode: {e}")))?;
    let runner = program
        .map(Runner::start)
        .transpose()
        .map_err(|e| Stop::cannot(format!("cannot start a thread: {e}; {}", live::MORE_THREADS)))?;
    let place = Place { dir, incident_files, sync: r.sync, most: r.max_size };
    Ok(Incidents::new(host.clone(), place, r.flight.settings(trigger), ring, runner))
}

async fn watch(r: &Record, feed: Feed, incidents: Incidents) -> anyhow::Result<Exit> {
    let Feed { host, events, interest, .. } = feed;
    let signals = Signals::watch(true)?;
    let mut wakeups = Wakeups::new(events, signals, r.live.interval, r.duration);
    let run = Analysis::lean(host, Engine::default(), BUDGET);
    let mut session = Session::new(run).with_sink(incidents).read_by(interest);
    let mut line = Line::new();
    let end = loop {
        match wakeups.next().await {
            Wakeup::End => break Ok(Exit::Ok),
            Wakeup::Mark => session.sink.mark("SIGUSR1"),
            Wakeup::Silent => break Err(wakeups.silence("")),
            Wakeup::Tick(tick) => {
                session.push(tick.clone());
                let (run, incidents) = session.parts();
                if let Some(now) = run.latest() {
                    incidents.judge(now.tick, now.findings);
                }
                line.tell(incidents.look(tick.mono));
                line.draw(&tick, run, incidents);
                if wakeups.is_last(&tick) {
                    break Ok(Exit::Ok);
                }
            }
        }
    };
    line.clear();
    session.sink.finish().iter().for_each(|says| say(says));
    end
}

/// The directory for the files, made if it does not exist; without symbolic links, so that what is
/// told of a file holds wherever it is read.
fn directory(dir: &Path) -> Result<PathBuf, String> {
    let said = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => "the directory above it does not exist".to_owned(),
        _ => format!("{e}"),
    };
    if dir.symlink_metadata().is_err() {
        DirBuilder::new().mode(0o700).create(dir).map_err(said)?;
    }
    let full = dir.canonicalize().map_err(said)?;
    if !full.is_dir() {
        return Err("is not a directory; --on-finding writes its files into one".to_owned());
    }
    can_make_files(&full).map_err(|e| format!("no file can be made in it: {e}"))?;
    Ok(full)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rules_are_named_as_they_are_listed() {
        let of = |text: &str| text.parse::<Named>().map(|n| n.0);
        assert_eq!(of(""), Ok(Trigger::Severity(Severity::Warn)));
        let two = vec![RuleId("fs-full"), RuleId("fd-limit")];
        assert_eq!(of("fs-full,fd-limit"), Ok(Trigger::Rules(two)));
        let wrong = of("fs-full,tcp-zero-windo-stall").unwrap_err();
        assert!(wrong.contains("did you mean tcp-zero-window-stall"), "{wrong}");
        assert!(of("fs-full,").is_err() && of("nonsense").is_err());
        for r in RULES.iter().filter(|r| r.kind == Kind::Annotation) {
            assert!(of(r.id().0).unwrap_err().contains("only annotates"), "{}", r.id());
        }
    }

    #[test]
    fn times_have_limits() {
        assert_eq!(before("5m"), Ok(Duration::from_secs(300)));
        assert!(before("0s").is_err() && before("2h").is_err());
        assert!(after("31m").is_err() && after("30m").is_ok());
        assert_eq!(quiet("0s"), Ok(Duration::ZERO));
        assert_eq!(quiet("1d"), Ok(Duration::from_secs(86_400)));
        assert!(time_limit("500ms").is_err());
    }
}
