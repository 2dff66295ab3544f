//! A recording that was named on the command line: a file, or `-` for a pipe.

use std::fs::File;
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::exit::Stop;
use crate::playback::player::Origin;
use crate::recording::file::SEARCH;
use crate::recording::file::format::{BlockHeader, HEADER};
use crate::recording::{ReadAt as _, ReadError, Reader, Spool};
use crate::sample::time::WallNs;
use crate::time_spec::TimeSpec;

/// How often a pipe is checked until there is a first block.
const GLANCE: Duration = Duration::from_millis(20);

/// Why it cannot be read.
pub(crate) fn wrong(file: &Path, e: &ReadError) -> anyhow::Error {
    Stop::cannot(format!("{}: {e}", named(file)))
}

/// What it is called.
pub(crate) fn named(file: &Path) -> String {
    if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() }
}

/// Opens a recording; of a pipe, waits until it ends.
pub(crate) fn open_whole(file: &Path) -> anyhow::Result<Reader> {
    open(file, |_| false).map(|(_, reader)| reader)
}

/// Opens a recording; of a pipe, waits for the first tick.
pub(crate) fn open_begun(file: &Path) -> anyhow::Result<(Origin, Reader)> {
    open(file, |_| true)
}

/// Opens a recording; on a pipe, waits for as much as `enough` asks for.
fn open(file: &Path, enough: impl Fn(&Spool) -> bool) -> anyhow::Result<(Origin, Reader)> {
    if file != Path::new("-") {
        let origin = Origin::File(file.to_owned());
        let reader = origin.open().map_err(|e| wrong(file, &e))?;
        return Ok((origin, reader));
    }
    if std::io::stdin().is_terminal() {
        return Err(Stop::usage(
            "- reads a recording from a pipe, but standard input is a terminal",
        ));
    }
    let spool = Spool::start(std::io::stdin()).map_err(|e| wrong(file, &e.into()))?;
    let spool = Arc::new(spool);
    let mut looked = false;
    loop {
        // Checked first, so that what comes between the two checks counts.
        let open = spool.may_grow();
        let is_enough = !open || enough(&spool);
        // Waiting for the end must not keep an endless pipe that is not a recording.
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

/// Whether this file is a recording, or was one. What cannot be read is none.
pub(crate) fn is_recording(file: &Path) -> bool {
    let mut head = [0; HEADER];
    let read = File::open(file).and_then(|mut f| f.read_exact(&mut head));
    read.is_ok() && BlockHeader::parse(&head).is_ok()
}

/// Wall clocks of the earliest and the latest tick.
pub(crate) fn range(reader: &Reader) -> Option<(WallNs, WallNs)> {
    let groups = reader.groups();
    // The clock may have been set back in between.
    let times = || groups.iter().flat_map(|g| [g.first.wall, g.last.wall]);
    Some((times().min()?, times().max()?))
}

/// The base of a relative time on the command line: +5m from the start, -5m from the end.
pub(crate) fn anchor(at: TimeSpec, range: (WallNs, WallNs)) -> WallNs {
    if matches!(at, TimeSpec::Relative(ns) if ns < 0) { range.1 } else { range.0 }
}
