//! Copies part of a recording to a new one: groups as they are, or every tick rewritten without
//! anything that identifies the host.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::redact::Redactor;
use crate::recording::codec::Stamp;
use crate::recording::file::damage::ReadError;
use crate::recording::file::home::Home;
use crate::recording::file::index::{EventAt, GroupEntry, TickSummary};
use crate::recording::file::reader::Reader;
use crate::recording::file::writer::Writer;
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::WallNs;

#[derive(Clone, Copy, Debug, Default)]
pub struct Exported {
    pub groups: u64,
    pub ticks: u64,
    /// The first and the last one.
    pub span: Option<(Stamp, Stamp)>,
    /// Ticks that could not be read, and are missing.
    pub lost: u64,
}

impl Exported {
    fn add(&mut self, ticks: u32, first: Stamp, last: Stamp) {
        self.ticks += u64::from(ticks);
        self.span = Some((self.span.map_or(first, |s| s.0), last));
    }
}

/// Why it could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Reading.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// Writing.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    #[error("{0}")]
    Redact(#[from] super::redact::RedactError),
    #[error("has no ticks in that time")]
    Nothing,
    #[error("none of its {0} ticks in that time can be read")]
    Unreadable(u64),
}

pub struct Output {
    home: Home,
    file: File,
}

impl Output {
    /// Creates it: never overwrites a file, readable only by its owner.
    pub fn create(path: &Path) -> io::Result<Self> {
        let home = Home::open(path)?;
        let file = home.create(home.name())?;
        Ok(Self { home, file })
    }
    pub fn file(&self) -> &File {
        &self.file
    }
    /// Deletes it, unless another file has its name by now.
    pub fn discard(self) {
        let _ = self.home.remove(self.home.name(), &self.file);
    }
}

/// The groups that have ticks in a time span.
fn chosen(r: &Reader, from: WallNs, to: WallNs) -> Vec<(usize, GroupEntry)> {
    let all = r.groups().iter().copied().enumerate();
    all.filter(|(_, g)| g.last.wall >= from && g.first.wall <= to).collect()
}

fn host(r: &Reader, g: &GroupEntry) -> HostInfo {
    r.host_of(g.segment).cloned().unwrap_or_else(|| r.host())
}

/// Copies the groups of a time span as they are, and tells how many are done. Reads nothing but their
/// bytes.
pub fn copy<W: Write>(
    r: &Reader,
    out: W,
    from: WallNs,
    to: WallNs,
    mut told: impl FnMut(usize, usize),
) -> Result<(W, Exported), ExportError> {
    let groups = chosen(r, from, to);
    let first = groups.first().ok_or(ExportError::Nothing)?;
    let mut w = Writer::new(out, &host(r, &first.1))?;
    let mut done = Exported::default();
    let mut segment = first.1.segment;
    let mut events = r.loose_events().iter().filter(|m| inside(m, from, to)).peekable();
    for (i, g) in &groups {
        if g.segment != segment {
            segment = g.segment;
            w.segment(&host(r, g))?;
        }
        while let Some(m) = events.next_if(|m| m.at.wall <= g.first.wall) {
            w.event(m.at, m.event.clone())?;
        }
        w.copy_group(r.raw_group(*i)?, g)?;
        done.groups += 1;
        done.add(g.ticks, g.first, g.last);
        told(done.groups as usize, groups.len());
    }
    for m in events {
        w.event(m.at, m.event.clone())?;
    }
    Ok((w.seal()?, done))
}

fn inside(m: &EventAt, from: WallNs, to: WallNs) -> bool {
    m.at.wall >= from && m.at.wall <= to
}

/// Rewrites the ticks of a time span, redacted, and tells how many groups are done. `judge` gives the note of each from the redacted
/// tick, so that findings use the pseudonyms.
pub fn redacted<W: Write>(
    r: &mut Reader,
    out: W,
    from: WallNs,
    to: WallNs,
    mut judge: impl FnMut(Option<&HostInfo>, &Tick) -> TickSummary,
    mut told: impl FnMut(usize, usize),
) -> Result<(W, Exported), ExportError> {
    let groups = chosen(r, from, to);
    let first = groups.first().ok_or(ExportError::Nothing)?.1;
    let mut redactor = Redactor::default();
    let begins_on = redactor.host(&host(r, &first));
    let mut w = Writer::new(out, &begins_on)?;
    let mut fresh = Some(begins_on);
    let mut done = Exported::default();
    let mut segment = first.segment;
    for (i, g) in &groups {
        if g.segment != segment {
            segment = g.segment;
            let h = redactor.host(&host(r, g));
            w.segment(&h)?;
            fresh = Some(h);
        }
        let index = r.index(*i).unwrap_or_default();
        let events: Vec<_> = index.events.iter().filter_map(|m| redactor.event(m)).collect();
        let mut events = events.into_iter().peekable();
        let begin = r.first_of(*i).unwrap_or(0);
        for n in begin..begin + u64::from(g.ticks) {
            let Ok(raw) = r.tick(n) else {
                done.lost += 1;
                continue;
            };
            let tick = redactor.tick(&raw)?;
            while let Some(m) = events.next_if(|m| m.at.mono <= tick.mono) {
                w.event(m.at, m.event)?;
            }
            let note = judge(fresh.take().as_ref(), &tick);
            w.tick(&tick, &note)?;
            done.add(1, Stamp::of(&tick), Stamp::of(&tick));
        }
        for m in events {
            w.event(m.at, m.event)?;
        }
        w.end_group()?;
        done.groups += 1;
        told(done.groups as usize, groups.len());
    }
    if done.ticks == 0 {
        return Err(ExportError::Unreadable(done.lost));
    }
    let loose = r.loose_events().iter().filter(|m| inside(m, from, to));
    for m in loose.filter_map(|m| redactor.event(m)) {
        w.event(m.at, m.event)?;
    }
    Ok((w.seal()?, done))
}
