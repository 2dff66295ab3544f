//! `--record` and `--append`, and how every command opens and closes the recorder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::output::say;
use crate::exit::Stop;
use crate::recording::Recorder;
use crate::recording::recorder::{End, Existing, Options, State, Status, Target};
use crate::sample::tick::HostInfo;
use crate::source::live;

/// How long closing the file may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A recording beside what a command is for.
#[derive(Args, Debug)]
pub(crate) struct Beside {
    /// Also record, into this new file.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Append to the file of --record if it exists.
    #[arg(long, requires = "record")]
    append: bool,
}

impl Beside {
    /// The recorder, open; `None` when it was not asked for.
    pub(crate) fn open(&self, host: &HostInfo) -> anyhow::Result<Option<Recorder>> {
        let Some(path) = &self.record else { return Ok(None) };
        if path == Path::new("-") {
            return Err(Stop::usage("--record -: standard output is in use; give a file"));
        }
        let options = Options { existing: existing(self.append), ..Options::default() };
        open(Target::File(path.clone()), host, options).map(Some)
    }
}

/// What `--append` means.
pub(crate) fn existing(append: bool) -> Existing {
    if append { Existing::Append } else { Existing::Refuse }
}

/// Starts a recorder and waits until it can write.
pub(crate) fn open(target: Target, host: &HostInfo, options: Options) -> anyhow::Result<Recorder> {
    let mut recorder = Recorder::start(target, host, options, Vec::new())
        .map_err(|e| Stop::cannot(format!("cannot start a thread: {e}; {}", live::MORE_THREADS)))?;
    recorder.ready().map_err(Stop::cannot)?;
    Ok(recorder)
}

/// Ends a recorder; an error says what the file lacks.
pub(crate) fn close(recorder: Recorder) -> anyhow::Result<Status> {
    let name = recorder.target().name();
    let before = recorder.status();
    let Some(status) = recorder.finish(PATIENCE) else {
        return Err(Stop::cannot(format!(
            "{name}: the disk is not responding; the recording ends with its last complete block"
        )));
    };
    match (&status.state, &before.state) {
        (State::Ended(End::Failed(why)), _) => Err(Stop::cannot(format!("{name}: {why}"))),
        (State::Ended(_), State::Paused { why, .. }) => Err(Stop::cannot(format!(
            "{name}: {why}; {} ticks are not in the recording",
            status.lost
        ))),
        _ => Ok(status),
    }
}

/// [`close`] for callers that showed nothing before: also reports trouble other than with writing.
pub(crate) fn close_and_tell(recorder: Recorder) -> anyhow::Result<Status> {
    let name = recorder.target().name();
    let status = close(recorder)?;
    if let Some(t) = &status.trouble {
        say(&format!("{name}: {t}"));
    }
    Ok(status)
}
