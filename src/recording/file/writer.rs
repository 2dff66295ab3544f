//! Turns ticks into blocks and writes them. Knows nothing about files: syncing, rotation, full
//! disks and queues are the recorder's job.
//!
//! A block goes out in one `write_all`, so that a kill tears at most the last one. After a failed
//! write [`Writer::offset`] is still the end of the last complete block: truncate the file to it,
//! seek there, and continue; the next tick begins a new group, and the ticks of the broken one that
//! were written are indexed first.

pub(crate) mod group;

use std::io::{self, Read, Write};

use super::format::{BlockHeader, GROUP_TICKS, HEADER, Kind, MAX_PAYLOAD, end};
use super::index::{
    Event, EventAt, GroupEntry, GroupFinding, GroupIndex, TickRef, TickSummary, Trailer, drift,
};
use super::limits::{self, MAX_INDEX, MAX_NOTED};
use crate::recording::codec::limits::least_group;
use crate::recording::codec::tick::{Encoder, SPARE};
use crate::recording::codec::wire::CodecError;
use crate::recording::codec::{Segment, Stamp};
use crate::sample::CollectorId;
use crate::sample::tick::{HealthState, HostInfo, Tick};
use crate::sample::time::Seq;

/// Difference of wall and monotonic clock between two ticks that counts as a step: no slewing
/// does that much.
const CLOCK_STEP_NS: i64 = 100_000_000;
/// A group ends when it is this long: offsets within it are 32 bits.
const MAX_GROUP: u64 = 1 << 30;
/// Magic of a skippable frame that is not a block.
const PADDING: u32 = 0x184D_2A50;
/// zstd level: beyond 3 costs more CPU than it saves bytes.
const LEVEL: i32 = 3;

/// What a file holds before a writer continues it; from [`super::reader::Reader::resume`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// End of the last whole block: truncate to it and write on from there.
    pub offset: u64,
    pub groups: Vec<GroupEntry>,
    /// Offsets of the segments so far.
    pub segments: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes, all blocks together.
    pub bytes: u64,
    /// It began a group.
    pub keyframe: bool,
    /// It ended a group: whole groups end here, a good place to rotate.
    pub group_end: bool,
}

pub struct Writer<W: Write> {
    out: W,
    offset: u64,
    segment: Segment,
    encoder: Encoder,
    zip: zstd::bulk::Compressor<'static>,
    trailer: Trailer,
    /// The group that is open, or that failed and was not indexed yet.
    group: Option<Group>,
    /// Time of the last tick.
    last: Option<Stamp>,
    /// Collectors that failed in the last tick.
    failed: Vec<CollectorId>,
    /// Collectors whose sample was too large in the last tick.
    oversized: Vec<CollectorId>,
}

#[derive(Debug, Default)]
struct Group {
    offset: u64,
    keyframe: u32,
    /// Bytes of its ticks.
    stored: usize,
    /// No more deltas: a write failed, or they do not pay.
    closed: bool,
    /// The encoder is ahead of what was written.
    broken: bool,
    index: GroupIndex,
}

impl<W: Write> Writer<W> {
    /// Begins a new recording.
    pub fn new(out: W, host: &HostInfo) -> io::Result<Self> {
        Self::resume(out, host, Resume::default())
    }

    /// Continues one: `out` writes at `resume.offset`. Another boot is another segment.
    pub fn resume(out: W, host: &HostInfo, resume: Resume) -> io::Result<Self> {
        let mut w = Self {
            out,
            offset: resume.offset,
            segment: Segment::default(),
            encoder: Encoder::default(),
            zip: compressor()?,
            trailer: Trailer { groups: resume.groups, segments: resume.segments },
            group: None,
            last: None,
            failed: Vec::new(),
            oversized: Vec::new(),
        };
        w.segment(host)?;
        Ok(w)
    }

    /// Begins another segment: what follows is of another boot or another run.
    pub fn segment(&mut self, host: &HostInfo) -> io::Result<()> {
        self.end_group()?;
        self.segment = Segment { host: host.clone() };
        let json = json_line(&self.segment)?;
        let block = self.block(Kind::Segment, Stamp::default(), (0, 0), &json, 0)?;
        let at = self.offset;
        self.write(&block)?;
        self.trailer.segments.push(at);
        self.last = None;
        Ok(())
    }

    /// Bytes of whole blocks so far: the good end of the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }
    /// Groups that are complete.
    pub fn groups(&self) -> &[GroupEntry] {
        &self.trailer.groups
    }
    /// The last tick that is in the file.
    pub fn last(&self) -> Option<Stamp> {
        self.last
    }
    pub fn get_ref(&self) -> &W {
        &self.out
    }
    /// Where it writes to, for sync and truncate.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes a tick. Writes events for gaps, clock steps and collector errors that follow from
    /// it. See the module head for how to continue after an error.
    pub fn tick(&mut self, tick: &Tick, note: &TickSummary) -> io::Result<Written> {
        let at = Stamp::of(tick);
        let from = self.offset;
        if self.group.as_ref().is_some_and(|g| g.closed) {
            self.end_group()?;
        }
        for event in self.events(tick, at) {
            self.event(at, event)?;
        }
        let keyframe = self.group.is_none();
        self.tick_block(tick, note).inspect_err(|_| self.broken())?;
        self.tell_oversized(at)?;
        let full = self.encoder.ticks() >= u64::from(GROUP_TICKS)
            || self.group.as_ref().is_some_and(|g| self.offset - g.offset > MAX_GROUP);
        if full {
            self.end_group()?;
        }
        Ok(Written { bytes: self.offset - from, keyframe, group_end: full })
    }

    fn tick_block(&mut self, tick: &Tick, note: &TickSummary) -> io::Result<()> {
        let at = Stamp::of(tick);
        let keyframe = self.group.is_none();
        if keyframe {
            self.encoder.restart();
        }
        let host = keyframe.then_some(&self.segment);
        let payload = self.encoder.payload(tick, host)?;
        let units = self.encoder.units();
        let (kind, start, place, stored) = match &self.group {
            Some(g) => (Kind::Delta, g.offset, self.encoder.ticks() as u32 - 1, g.stored),
            None => (Kind::Keyframe, self.offset, 0, 0),
        };
        let back = (self.offset - start) as u32;
        let least = least_group(units).saturating_sub(stored);
        let block = self.block(kind, at, (back, place), &payload, least)?;
        if payload.len() > SPARE {
            // A compressor keeps what its largest input took.
            self.zip = compressor()?;
        }
        self.encoder.recycle(payload);
        self.write(&block)?;
        let stored = block.len() as u32;
        let g = self.group.get_or_insert_with(|| Group {
            offset: start,
            keyframe: stored,
            ..Group::default()
        });
        g.stored += block.len() - HEADER;
        g.index.note(TickRef { at, offset: back }, note);
        // The differences do not pay off: a new keyframe is as small, and faster to seek to.
        g.closed |= !keyframe && stored > g.keyframe / 2 && stored > 64 << 10;
        self.last = Some(at);
        Ok(())
    }

    /// What the tick itself says that the timeline should show.
    fn events(&mut self, tick: &Tick, at: Stamp) -> Vec<Event> {
        let mut out = Vec::new();
        if let Some(gap) = tick.gap {
            out.push(Event::Gap { ticks: gap.ticks });
        }
        let step = self.last.map_or(0, |l| drift(at).wrapping_sub(drift(l)));
        if step.unsigned_abs() >= CLOCK_STEP_NS.unsigned_abs() {
            out.push(Event::ClockStep { by_ns: step });
        }
        let mut failed = Vec::new();
        for h in &tick.health {
            let HealthState::Failed { error } = &h.state else { continue };
            if !self.failed.contains(&h.id) {
                out.push(lacking(h.id, error));
            }
            failed.push(h.id);
        }
        self.failed = failed;
        out
    }

    /// Reports once which samples are too large for a recording.
    fn tell_oversized(&mut self, at: Stamp) -> io::Result<()> {
        let now = self.encoder.oversized().to_vec();
        let before = std::mem::replace(&mut self.oversized, now.clone());
        for id in now.iter().filter(|id| !before.contains(id)) {
            let error = "its sample is too large to record and was left out";
            self.event(at, lacking(*id, error))?;
        }
        Ok(())
    }

    /// Writes an event: a mark of the user, dropped ticks.
    pub fn event(&mut self, at: Stamp, event: Event) -> io::Result<Written> {
        let from = self.offset;
        let at = EventAt { at, event: event.clipped() };
        let json = json_line(&at)?;
        let back = self.group.as_ref().map_or(0, |g| (self.offset - g.offset) as u32);
        let block = self.block(Kind::Event, at.at, (back, 0), &json, 0)?;
        self.write(&block).inspect_err(|_| self.broken())?;
        // Between groups no index holds it: the block itself is found.
        if let Some(g) = &mut self.group {
            g.index.events.push(at);
        }
        Ok(Written { bytes: self.offset - from, ..Written::default() })
    }

    /// Ends the open group early: before a rotation, or to have everything indexed.
    /// May be tried again after an error.
    pub fn end_group(&mut self) -> io::Result<()> {
        let Some(mut g) = self.group.take() else { return Ok(()) };
        let (Some(first), Some(last)) = (g.index.ticks.first(), g.index.ticks.last()) else {
            return Ok(());
        };
        let (first, last) = (first.at, last.at);
        if !g.broken {
            g.index.state = self.encoder.hash();
        }
        let at = self.offset;
        let before = self.trailer.groups.iter().rev().find_map(|e| e.index);
        let link = before.map_or(0, |b| u32::try_from(at - b).unwrap_or(0));
        let json = index_json(&mut g.index)?;
        let back = (at - g.offset) as u32;
        let block = self.block(Kind::Index, first, (back, link), &json, 0)?;
        if let Err(e) = self.write(&block) {
            self.group = Some(g);
            self.broken();
            return Err(e);
        }
        self.trailer.groups.push(GroupEntry {
            offset: g.offset,
            index: Some(at),
            end: self.offset,
            ticks: g.index.ticks.len() as u32,
            first,
            last,
            segment: self.segment_number(),
        });
        Ok(())
    }

    /// Ends the recording: index, trailer, end. A file without them is just as good, but opens a
    /// little more slowly.
    pub fn seal(mut self) -> io::Result<W> {
        self.end_group()?;
        let json = json_line(&self.trailer)?;
        let at = self.offset;
        let last = self.last.unwrap_or_default();
        let mut block = self.block(Kind::Trailer, last, (0, 0), &json, 0)?;
        block.extend_from_slice(&end(at));
        self.write(&block)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Copies a whole group of another recording as it is; `raw` gives it from its keyframe to
    /// its end.
    pub fn copy_group(&mut self, mut raw: impl Read, entry: &GroupEntry) -> io::Result<()> {
        self.end_group()?;
        let at = self.offset;
        self.offset += io::copy(&mut raw, &mut self.out)?;
        let moved = |o: u64| at + o.saturating_sub(entry.offset);
        self.trailer.groups.push(GroupEntry {
            offset: at,
            index: entry.index.map(moved),
            end: self.offset,
            segment: self.segment_number(),
            ..*entry
        });
        self.last = Some(entry.last);
        Ok(())
    }

    fn segment_number(&self) -> u32 {
        (self.trailer.segments.len() as u32).saturating_sub(1)
    }

    /// Continues after the last tick of another writer, whose recording this one is a copy of.
    pub fn follow<V: Write>(&mut self, other: &Writer<V>) {
        self.last = other.last;
        self.failed.clone_from(&other.failed);
    }

    /// Ticks of the group that is open.
    pub fn open_ticks(&self) -> usize {
        self.group.as_ref().map_or(0, |g| g.index.ticks.len())
    }

    /// Writes a tick of another recording that is thinned: the events that follow from it were
    /// written there.
    pub fn coarse_tick(&mut self, tick: &Tick) -> io::Result<()> {
        self.tick_block(tick, &TickSummary::default())
    }

    /// Ends a group of such ticks; `all` has the figures and findings of all ticks that it stands
    /// for.
    pub fn end_coarse(&mut self, all: GroupIndex) -> io::Result<()> {
        if let Some(g) = &mut self.group {
            let ticks = &g.index.ticks;
            // A finding began at a tick that is left, or behind one.
            let left = |seq: Seq| {
                let i = ticks.partition_point(|t| t.at.seq <= seq).saturating_sub(1);
                ticks.get(i).map_or(seq, |t| t.at.seq)
            };
            let findings = all.findings.into_iter().map(|f| {
                let (first, last) = (left(f.first), left(f.last));
                GroupFinding { first, last, ..f }
            });
            let findings: Vec<_> = findings.collect();
            (g.index.figures, g.index.findings) = (all.figures, findings);
        }
        self.end_group()
    }

    /// The chain of differences has a hole: no more deltas in this group.
    fn broken(&mut self) {
        if let Some(g) = &mut self.group {
            (g.closed, g.broken) = (true, true);
        }
    }

    /// A block whose frame has at least this many bytes.
    fn block(
        &mut self,
        kind: Kind,
        at: Stamp,
        (back, link): (u32, u32),
        payload: &[u8],
        least: usize,
    ) -> io::Result<Vec<u8>> {
        if payload.len() > MAX_PAYLOAD {
            return Err(io::Error::other("a tick that is too large to record"));
        }
        let mut frame = self.zip.compress(payload)?;
        pad(&mut frame, least.max(limits::least_frame(kind, payload.len())));
        let header = BlockHeader {
            kind,
            features: 0,
            at,
            raw: payload.len() as u32,
            stored: frame.len() as u32,
            back,
            link,
            crc: crc32fast::hash(&frame),
            size: HEADER as u32,
        };
        let mut block = Vec::with_capacity(HEADER + frame.len());
        block.extend_from_slice(&header.to_bytes());
        block.extend_from_slice(&frame);
        Ok(block)
    }

    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        self.out.write_all(block)?;
        self.offset += block.len() as u64;
        Ok(())
    }
}

/// The JSON of an index, no larger than a reader takes it. What is left out of a list is the
/// later half: a group has so much to say only where everything fails in every tick.
fn index_json(index: &mut GroupIndex) -> io::Result<Vec<u8>> {
    index.findings.truncate(MAX_NOTED);
    index.events.truncate(MAX_NOTED);
    loop {
        let json = json_line(index)?;
        let (findings, events) = (index.findings.len(), index.events.len());
        if json.len() <= MAX_INDEX || findings + events == 0 {
            return Ok(json);
        }
        index.findings.truncate(findings / 2);
        index.events.truncate(events / 2);
    }
}

/// A line, so that `zstd -dc` prints one per block.
fn json_line(v: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    let mut json = serde_json::to_vec(v)?;
    json.push(b'\n');
    Ok(json)
}

/// Pads a frame to the length that a reader requires for its contents: zeros in a skippable frame
/// after it, which every zstd skips. No real host has such ticks; a program that opens identical
/// sockets comes close.
fn pad(frame: &mut Vec<u8>, least: usize) {
    let Some(lacks) = least.checked_sub(frame.len()).filter(|n| *n > 0) else { return };
    let zeros = u32::try_from(lacks).unwrap_or(0);
    frame.extend_from_slice(&PADDING.to_le_bytes());
    frame.extend_from_slice(&zeros.to_le_bytes());
    frame.resize(frame.len() + zeros as usize, 0);
}

/// The sample of a collector is not in the tick.
fn lacking(id: CollectorId, error: &str) -> Event {
    Event::CollectorError { collector: id.name().to_owned(), error: error.to_owned() }
}

fn compressor() -> io::Result<zstd::bulk::Compressor<'static>> {
    let mut zip = zstd::bulk::Compressor::new(LEVEL)?;
    zip.include_checksum(false)?;
    Ok(zip)
}

impl From<CodecError> for io::Error {
    fn from(e: CodecError) -> Self {
        Self::other(e)
    }
}
