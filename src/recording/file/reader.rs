//! Reads a recording: its contents without decoding, and any tick. Memory is bounded whatever the
//! file says; damage is reported, but is never a reason to stop.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::ahead::Ahead;
use super::blocks::Blocks;
use super::cursor::{Cursor, Made, Place};
use super::damage::{Damage, MAX_DAMAGE, ReadError, intact};
use super::index::{EventAt, GroupEntry, GroupIndex, TickRef};
use super::scan::Layout;
use super::source::{ReadAt, open};
use super::writer::Resume;
use crate::recording::codec::tick::{Decoder, Stored};
use crate::recording::codec::{Segment, Stamp};
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::{MonoNs, WallNs};

/// Indexes that are kept in memory, and bytes that they take: those of days.
const CACHE: usize = 4096;
const CACHE_BYTES: usize = 32 << 20;
/// Groups that are searched for something readable: the host if no segment has it, a tick near
/// damaged ones.
const ASKED: usize = 64;

pub struct Reader {
    src: Arc<dyn ReadAt>,
    zip: zstd::bulk::Decompressor<'static>,
    /// The same for all readers of the same bytes, until one takes in more.
    layout: Arc<Layout>,
    /// Ticks before each group.
    before: Vec<u64>,
    indexes: HashMap<u64, Arc<GroupIndex>>,
    /// Bytes that they take.
    index_bytes: usize,
    /// The position of decoding; none while the next tick is decoded in advance.
    cursor: Option<Cursor>,
    last: Option<Last>,
    ahead: Option<Ahead>,
    damage: Vec<Damage>,
    /// Their places.
    hurt: HashSet<u64>,
    /// The last damage found, so that asking for the next tick of the group does not decode up to
    /// there again.
    broken: Option<(Place, Damage)>,
}

/// The tick that was made last.
struct Last {
    number: u64,
    place: Place,
    tick: Arc<Tick>,
}

impl Reader {
    /// Opens a file. See [`open`] for what is refused.
    pub fn file(path: &Path) -> Result<Self, ReadError> {
        Self::new(Arc::new(open(path)?))
    }

    /// Opens what is in `src`, such as a [`super::source::Spool`].
    pub fn new(src: Arc<dyn ReadAt>) -> Result<Self, ReadError> {
        let mut zip = zstd::bulk::Decompressor::new()?;
        let layout = Layout::find(&mut Blocks { src: &*src, zip: &mut zip })?;
        let mut out = Self::over(src, Arc::new(layout), zip);
        out.count();
        out.adopt_host()?;
        Ok(out)
    }

    fn over(
        src: Arc<dyn ReadAt>,
        layout: Arc<Layout>,
        zip: zstd::bulk::Decompressor<'static>,
    ) -> Self {
        Self {
            src,
            zip,
            layout,
            before: Vec::new(),
            indexes: HashMap::new(),
            index_bytes: 0,
            cursor: None,
            last: None,
            ahead: None,
            damage: Vec::new(),
            hurt: HashSet::new(),
            broken: None,
        }
    }

    /// Another reader of the same bytes, which need not be searched again.
    pub fn again(&self) -> Result<Self, ReadError> {
        let zip = zstd::bulk::Decompressor::new()?;
        Ok(Self {
            before: self.before.clone(),
            indexes: self.indexes.clone(),
            index_bytes: self.index_bytes,
            damage: self.damage.clone(),
            hurt: self.hurt.clone(),
            ..Self::over(self.src.clone(), self.layout.clone(), zip)
        })
    }

    /// A file whose segment headers are all damaged: the keyframes have the host too.
    fn adopt_host(&mut self) -> Result<(), ReadError> {
        if !self.layout.segments.is_empty() {
            return Ok(());
        }
        for g in 0..self.layout.groups.len().min(ASKED) {
            if let Some(s) = self.segment_of(g)? {
                let offset = self.layout.groups.get(g).map_or(0, |g| g.offset);
                Arc::make_mut(&mut self.layout).segments.push((offset, s));
                break;
            }
        }
        Ok(())
    }

    fn count(&mut self) {
        self.before.clear();
        let mut sum = 0;
        for g in &self.layout.groups {
            self.before.push(sum);
            sum += u64::from(g.ticks);
        }
        self.before.push(sum);
    }

    /// What does not change, of the first segment.
    pub fn host(&self) -> HostInfo {
        self.host_of(0).cloned().unwrap_or_default()
    }
    /// The same of another one.
    pub fn host_of(&self, segment: u32) -> Option<&HostInfo> {
        self.layout.segments.get(segment as usize).map(|s| &s.1.host)
    }
    /// Segments with their offsets: another boot or another run of the recorder each.
    pub fn segments(&self) -> &[(u64, Segment)] {
        &self.layout.segments
    }
    /// Groups, in the order of the file.
    pub fn groups(&self) -> &[GroupEntry] {
        &self.layout.groups
    }
    pub fn len(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn is_sealed(&self) -> bool {
        self.layout.sealed
    }
    /// End of the last whole block.
    pub fn end(&self) -> u64 {
        self.layout.end
    }
    /// Bytes of the file.
    pub fn size(&self) -> Result<u64, ReadError> {
        Ok(self.src.size()?)
    }
    /// Is there damage so long that nothing after it was searched for?
    pub fn gave_up(&self) -> bool {
        self.layout.gave_up
    }
    /// Blocks of newer versions that were skipped.
    pub fn unknown_blocks(&self) -> u64 {
        self.layout.unknown
    }
    pub fn may_grow(&self) -> bool {
        self.src.may_grow()
    }
    /// Damage that was seen so far: between groups when opening, inside groups when reading.
    pub fn damage(&self) -> impl Iterator<Item = &Damage> {
        self.layout.damage.iter().chain(&self.damage)
    }
    /// Events that no index holds: of the group that is being written, and between groups.
    pub fn loose_events(&self) -> &[EventAt] {
        &self.layout.events
    }

    /// Reads what has been written since; true if there was something.
    pub fn refresh(&mut self) -> Result<bool, ReadError> {
        let mut b = Blocks { src: &*self.src, zip: &mut self.zip };
        let more =
            self.layout.end < b.src.size()? && Arc::make_mut(&mut self.layout).refresh(&mut b)?;
        if more {
            self.broken = None;
            self.count();
        }
        Ok(more)
    }

    /// What a writer needs to continue this file.
    pub fn resume(&self) -> Resume {
        Resume {
            offset: self.layout.end,
            groups: self.layout.groups.clone(),
            segments: self.layout.segments.iter().map(|s| s.0).collect(),
        }
    }

    /// What a group says without its ticks. A group without an index: only its ticks.
    pub fn index(&mut self, group: usize) -> Result<Arc<GroupIndex>, ReadError> {
        let g = *self.layout.groups.get(group).ok_or(ReadError::NoSuchTick)?;
        let Some(offset) = g.index else {
            let ticks = self.layout.loose.get(&g.offset).cloned().unwrap_or_default();
            return Ok(Arc::new(GroupIndex { ticks, ..GroupIndex::default() }));
        };
        if let Some(known) = self.indexes.get(&offset) {
            return Ok(known.clone());
        }
        let mut b = Blocks { src: &*self.src, zip: &mut self.zip };
        let header = b.header(offset)?.ok();
        let Some((h, index)) = header.and_then(|h| Some((h, b.index(offset, &h)?))) else {
            let what = Damage::at(offset, 0, "a damaged index");
            return Err(self.hurt(Damage { after: Some(g.last), ..what }));
        };
        let is_its_own = offset.checked_sub(u64::from(h.back)) == Some(g.offset);
        if !is_its_own || index.ticks.len() != g.ticks as usize {
            return Err(self.hurt(Damage::at(offset, h.total(), "an index of another group")));
        }
        let bytes = index.bytes(h.raw as usize);
        self.index_bytes += bytes;
        if self.indexes.len() >= CACHE || self.index_bytes > CACHE_BYTES {
            self.indexes.clear();
            self.index_bytes = bytes;
        }
        let index = Arc::new(index);
        self.indexes.insert(offset, index.clone());
        Ok(index)
    }

    fn hurt(&mut self, d: Damage) -> ReadError {
        self.note(d.clone());
        ReadError::Damaged(d)
    }

    /// Remembers damage, once per place.
    pub(crate) fn note(&mut self, d: Damage) {
        if self.damage.len() < MAX_DAMAGE && self.hurt.insert(d.offset) {
            self.damage.push(d);
        }
    }

    /// End of the block at `offset`, if one can be read there.
    pub(crate) fn end_of(&mut self, offset: u64) -> Option<u64> {
        let blocks = Blocks { src: &*self.src, zip: &mut self.zip };
        Some(offset + blocks.header(offset).ok()?.ok()?.total())
    }

    /// The group of a tick, and its place in it.
    pub fn locate(&self, tick: u64) -> Option<(usize, usize)> {
        if tick >= self.len() {
            return None;
        }
        let group = self.before.partition_point(|b| *b <= tick).checked_sub(1)?;
        Some((group, usize::try_from(tick - self.before.get(group)?).ok()?))
    }
    /// Number of the first tick of a group.
    pub fn first_of(&self, group: usize) -> Option<u64> {
        self.before.get(group).copied()
    }

    /// Where and when a tick is.
    pub fn tick_ref(&mut self, tick: u64) -> Result<TickRef, ReadError> {
        let (group, place) = self.locate(tick).ok_or(ReadError::NoSuchTick)?;
        self.index(group)?.ticks.get(place).copied().ok_or(ReadError::NoSuchTick)
    }

    /// The last tick at or before a wall-clock time (the first one when all are later).
    pub fn at_wall(&mut self, wall: WallNs) -> Option<u64> {
        self.search(0, self.layout.groups.len(), |at| at.wall <= wall)
    }
    /// The last tick at or before a monotonic time within a segment's groups.
    pub fn at_mono(&mut self, segment: u32, mono: MonoNs) -> Option<u64> {
        let groups = &self.layout.groups;
        let from = groups.partition_point(|g| g.segment < segment);
        let to = groups.partition_point(|g| g.segment <= segment);
        self.search(from, to, |at| at.mono <= mono)
    }
    fn search(&mut self, from: usize, to: usize, before: impl Fn(Stamp) -> bool) -> Option<u64> {
        let groups = self.layout.groups.get(from..to).filter(|g| !g.is_empty())?;
        let group = from + groups.partition_point(|g| before(g.first)).saturating_sub(1);
        let first = self.first_of(group)?;
        let place = self.index(group).map_or(0, |i| i.ticks.partition_point(|t| before(t.at)));
        Some(first + place.saturating_sub(1) as u64)
    }

    /// Decodes a tick. The next one is cheap; any other one costs its group from the keyframe.
    /// When it is damaged the others can still be read.
    pub fn tick(&mut self, tick: u64) -> Result<Arc<Tick>, ReadError> {
        let (group, place) = self.locate(tick).ok_or(ReadError::NoSuchTick)?;
        let entry = *self.layout.groups.get(group).ok_or(ReadError::NoSuchTick)?;
        let here = (entry.offset, place);
        if let Some(last) = self.last.as_ref().filter(|l| l.place == here) {
            return Ok(last.tick.clone());
        }
        let known = self.broken.as_ref().filter(|(at, _)| at.0 == here.0 && at.1 <= here.1);
        if let Some((_, d)) = known {
            return Err(ReadError::Damaged(d.clone()));
        }
        let next = self.last.take().and_then(|l| match tick {
            t if t == l.number + 1 => Some(t + 1),
            t if t + 1 == l.number => t.checked_sub(1),
            _ => None,
        });
        let made = match self.ahead.as_mut().and_then(|a| a.take(here)) {
            Some(made) => made,
            None => self.decode(group, here)?,
        };
        for what in made.broken {
            let _ = self.hurt(Damage::at(entry.offset, 0, what));
        }
        self.cursor = Some(made.cursor);
        self.last = Some(Last { number: tick, place: here, tick: made.tick.clone() });
        if let Some(next) = next {
            self.look_ahead(next);
        }
        Ok(made.tick)
    }

    /// A readable tick near this one: the last before it, else the first after it.
    pub fn near(&mut self, tick: u64) -> Option<u64> {
        let (group, _) = self.locate(tick)?;
        let before = (0..=group).rev().take(ASKED);
        for g in before.chain((group + 1..self.layout.groups.len()).take(ASKED)) {
            let (first, end) = (*self.before.get(g)?, *self.before.get(g + 1)?);
            let last = if g > group { first } else { tick.min(end.saturating_sub(1)) };
            if let Some(t) = [last, first].into_iter().find(|t| self.tick(*t).is_ok()) {
                return Some(t);
            }
        }
        None
    }

    fn decode(&mut self, group: usize, (offset, place): Place) -> Result<Made, ReadError> {
        let index = match self.index(group) {
            Err(ReadError::Damaged(d)) => {
                self.broken = Some(((offset, 0), d.clone()));
                return Err(ReadError::Damaged(d));
            }
            index => index?,
        };
        let cursor = Cursor::towards((offset, place), self.cursor.take());
        let mut blocks = Blocks { src: &*self.src, zip: &mut self.zip };
        cursor.make(&mut blocks, &index, place).map_err(|(e, n)| match e {
            ReadError::Damaged(mut d) => {
                d.after = n.checked_sub(1).and_then(|n| index.ticks.get(n)).map(|t| t.at);
                self.broken = Some(((offset, n), d.clone()));
                self.hurt(d)
            }
            e => e,
        })
    }

    /// From now on a thread prepares the next tick for stepping in either direction.
    pub fn read_ahead(&mut self) {
        self.ahead = Ahead::start(self.src.clone());
    }

    fn look_ahead(&mut self, tick: u64) {
        if self.ahead.is_none() {
            return;
        }
        let Some((group, place)) = self.locate(tick) else { return };
        let Some(offset) = self.layout.groups.get(group).map(|g| g.offset) else { return };
        let Ok(index) = self.index(group) else { return };
        if let (Some(a), Some(cursor)) = (&mut self.ahead, self.cursor.take()) {
            a.begin((offset, place), index, cursor);
        }
    }

    /// Takes a tick into the decoder of its group, which begins at `group`.
    pub(crate) fn take_in(
        &mut self,
        decoder: &mut Decoder,
        group: u64,
        t: &TickRef,
        place: usize,
    ) -> Result<Stored, ReadError> {
        Blocks { src: &*self.src, zip: &mut self.zip }.take_in(decoder, group, t, place)
    }

    /// Host of a group, by its keyframe.
    /// Damage is `None`, not an error.
    pub fn segment_of(&mut self, group: usize) -> Result<Option<Segment>, ReadError> {
        let g = *self.layout.groups.get(group).ok_or(ReadError::NoSuchTick)?;
        let keyframe = TickRef { at: g.first, offset: 0 };
        let mut decoder = Decoder::default();
        let read = intact(self.take_in(&mut decoder, g.offset, &keyframe, 0))?;
        Ok(read.and_then(|_| decoder.segment().cloned()))
    }

    /// The bytes of a group as they are in the file, for [`super::writer::Writer::copy_group`].
    pub fn raw_group(&self, group: usize) -> Result<RawGroup<'_>, ReadError> {
        let g = self.layout.groups.get(group).ok_or(ReadError::NoSuchTick)?;
        Ok(RawGroup { src: &*self.src, at: g.offset, end: g.end })
    }
}

/// A group, read piece by piece: what a trailer claims may be a hole in the file, of any size.
pub struct RawGroup<'r> {
    src: &'r dyn ReadAt,
    at: u64,
    end: u64,
}

impl io::Read for RawGroup<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = buf.len().min(left);
        let n = self.src.read_at(buf.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}
