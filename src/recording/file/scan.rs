//! Finds the groups of a recording: by its trailer, by the chain of its indexes, by hopping from
//! header to header, and after damage by scanning for the next marker.

use std::collections::{BTreeMap, HashSet};

use super::blocks::{Blocks, WINDOW};
use super::damage::{Damage, MAX_DAMAGE, ReadError};
use super::format::{BlockHeader, END, GROUP_TICKS, HEADER, HeaderError, Kind};
use super::index::{EventAt, GroupEntry, GroupIndex, TickRef, Trailer};
use super::limits::{self, MAX_GROUPS, MAX_LOOSE};
use crate::recording::codec::{Segment, Stamp};

/// How far a file is searched for a first block before it is rejected.
pub const SEARCH: u64 = 64 << 20;
/// Bytes that are searched for blocks after damage: a file may be a hole of any size.
const MAX_SCAN: u64 = 2 << 30;
/// Chains of indexes that are followed: each costs a window.
const CHAINS: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) groups: Vec<GroupEntry>,
    /// Ticks of groups without an index, by the group's offset.
    pub(super) loose: BTreeMap<u64, Vec<TickRef>>,
    pub(super) segments: Vec<(u64, Segment)>,
    /// Events that no index holds.
    pub(super) events: Vec<EventAt>,
    pub(super) damage: Vec<Damage>,
    /// End of the last whole block.
    pub(super) end: u64,
    /// Ends with a trailer.
    pub(super) sealed: bool,
    /// The last group has no index yet: more deltas may come.
    open: bool,
    /// Events that came before that group.
    before_group: usize,
    /// Where the last trailer begins and ends.
    trailer: Option<(u64, u64)>,
    /// No block begins between the end and this offset.
    searched: u64,
    /// Bytes that were searched for a block.
    scanned: u64,
    /// Not everything was searched: there may be more than was found.
    pub(super) gave_up: bool,
    /// Bytes of JSON that were unpacked to get here.
    unpacked: u64,
    /// Blocks of later versions.
    pub(super) unknown: u64,
}

impl Layout {
    pub(super) fn find(b: &mut Blocks<'_>) -> Result<Self, ReadError> {
        let size = b.src.size()?;
        let start = first_block(b, size)?;
        let mut out = Self::default();
        let known = match out.by_trailer(b, size)? {
            Some(groups) => groups,
            None => out.by_chain(b, size)?,
        };
        if start > 0 {
            out.hurt(0, start, "no block begins here");
            out.end = start;
        }
        for g in known {
            if g.offset < out.end {
                continue;
            }
            out.hop(b, g.offset, false)?;
            out.open = false;
            out.end = g.end;
            out.add(g);
        }
        out.hop(b, size, true)?;
        Ok(out)
    }

    /// Reads what has been written since.
    pub(super) fn refresh(&mut self, b: &mut Blocks<'_>) -> Result<bool, ReadError> {
        let (size, before) = (b.src.size()?, self.end);
        if size > self.end {
            self.hop(b, size, true)?;
        }
        Ok(self.end > before)
    }

    /// Reserves the space that the payload of such a block needs; false: more of the file would be
    /// unpacked before it is used than a recording ever needs.
    fn afford(&mut self, b: &Blocks<'_>, h: &BlockHeader) -> Result<bool, ReadError> {
        let sum = self.unpacked.saturating_add(u64::from(h.raw));
        // What does not fit is refused unread, and costs nothing.
        if !limits::fits(h) {
            return Ok(true);
        }
        let is_fine = sum <= limits::opened(b.src.size()?);
        if is_fine {
            self.unpacked = sum;
        }
        Ok(is_fine)
    }

    fn json<T: serde::de::DeserializeOwned>(
        &mut self,
        b: &mut Blocks<'_>,
        at: u64,
        h: &BlockHeader,
    ) -> Result<Option<T>, ReadError> {
        Ok(if self.afford(b, h)? { b.json(at, h) } else { None })
    }

    fn add(&mut self, g: GroupEntry) {
        let segment = (self.segments.len() as u32).saturating_sub(1);
        self.groups.push(GroupEntry { segment, ..g });
    }

    fn hurt(&mut self, from: u64, to: u64, what: &str) {
        if self.damage.len() >= MAX_DAMAGE {
            return;
        }
        let after = self.groups.last().map(|g| g.last);
        self.damage.push(Damage { after, ..Damage::at(from, to.saturating_sub(from), what) });
    }

    /// From header to header, from the end of what is known to `to`.
    fn hop(&mut self, b: &mut Blocks<'_>, to: u64, tail: bool) -> Result<(), ReadError> {
        while self.end < to {
            let at = self.end;
            if let Some(trailer) = b.end_at(at)? {
                // In a file that was put together from several its offset counts from where its
                // own part began.
                let is_right = |(begin, end): (u64, u64)| end == at && trailer <= begin;
                self.sealed = self.trailer.is_some_and(is_right);
                self.end = at + END as u64;
                if !self.sealed {
                    self.hurt(at, self.end, "an end without its trailer");
                }
                continue;
            }
            let found = b.header(at)?;
            if let Ok(h) = found
                && at.saturating_add(h.total()) <= to
            {
                self.take(b, at, &h)?;
                self.end = at + h.total();
                continue;
            }
            let Some(next) = self.search(b, at + 1, to)? else {
                if !tail {
                    self.hurt(at, to, "blocks that cannot be read");
                    self.end = to;
                }
                return Ok(());
            };
            self.hurt(at, next, "blocks that cannot be read");
            self.end = next;
        }
        Ok(())
    }

    /// The next block in `from..to`. What was searched before is not searched again: a torn end is
    /// checked each time somebody asks whether there is more.
    fn search(&mut self, b: &Blocks<'_>, from: u64, to: u64) -> Result<Option<u64>, ReadError> {
        let from = from.max(self.searched);
        let room = MAX_SCAN.saturating_sub(self.scanned);
        let until = to.min(from.saturating_add(room));
        let found = b.scan(from, until)?;
        self.scanned += found.unwrap_or(until).saturating_sub(from);
        self.gave_up |= found.is_none() && until < to;
        if found.is_none() {
            // A header may be there only in part.
            self.searched = from.max(until.saturating_sub(HEADER as u64));
        }
        Ok(found)
    }

    fn take(&mut self, b: &mut Blocks<'_>, at: u64, h: &BlockHeader) -> Result<(), ReadError> {
        self.sealed = false;
        if !h.is_known() {
            self.unknown += 1;
            return Ok(());
        }
        let end = at + h.total();
        let mine =
            self.open && self.groups.last().is_some_and(|g| g.offset + u64::from(h.back) == at);
        match h.kind {
            Kind::Segment => {
                self.open = false;
                match self.json(b, at, h)? {
                    Some(s) => self.segments.push((at, s)),
                    None => self.hurt(at, end, "a damaged segment header"),
                }
            }
            Kind::Keyframe if self.groups.len() >= MAX_GROUPS => {
                self.open = false;
                self.hurt(at, end, "more groups than a recording can hold");
            }
            Kind::Keyframe => {
                self.open = true;
                self.before_group = self.events.len();
                let (first, last) = (h.at, h.at);
                let g = GroupEntry { offset: at, end, ticks: 1, first, last, ..Default::default() };
                self.add(g);
                self.loose.insert(at, vec![TickRef { at: h.at, offset: 0 }]);
            }
            Kind::Delta if mine => self.delta(h, end),
            Kind::Index if mine => {
                self.open = false;
                let found = if self.afford(b, h)? { b.index(at, h) } else { None };
                match found {
                    Some(index) => self.indexed(at, end, &index),
                    None => self.hurt(at, end, "a damaged index"),
                }
            }
            Kind::Delta => self.hurt(at, end, "a tick whose keyframe is lost"),
            Kind::Index => self.hurt(at, end, "an index whose keyframe is lost"),
            Kind::Event if self.events.len() >= MAX_LOOSE => {
                self.hurt(at, end, "more events than a recording can hold");
            }
            Kind::Event => match self.json(b, at, h)? {
                Some(r) => self.events.push(r),
                None => self.hurt(at, end, "a damaged event"),
            },
            Kind::Trailer => self.trailer = Some((at, end)),
            Kind::Unknown(_) => {}
        }
        Ok(())
    }

    fn delta(&mut self, h: &BlockHeader, end: u64) {
        let Some(g) = self.groups.last_mut() else { return };
        let ticks = self.loose.entry(g.offset).or_default();
        g.end = end;
        if h.link as usize != ticks.len() || h.link >= GROUP_TICKS {
            return self.hurt(end - h.total(), end, "a tick after a lost one");
        }
        ticks.push(TickRef { at: h.at, offset: h.back });
        g.ticks += 1;
        g.last = h.at;
    }

    /// The open group got its index.
    fn indexed(&mut self, at: u64, end: u64, index: &GroupIndex) {
        let Some(g) = self.groups.last_mut() else { return };
        g.end = end;
        g.index = Some(at);
        g.ticks = index.ticks.len() as u32;
        g.last = index.ticks.last().map_or(g.last, |t| t.at);
        self.loose.remove(&g.offset);
        // They are in the index; those before the group are not.
        let known: HashSet<&EventAt> = index.events.iter().collect();
        let own = self.events.split_off(self.before_group.min(self.events.len()));
        self.events.extend(own.into_iter().filter(|r| !known.contains(r)));
    }

    /// The groups from the trailer, if the file ends with a plausible one.
    fn by_trailer(
        &mut self,
        b: &mut Blocks<'_>,
        size: u64,
    ) -> Result<Option<Vec<GroupEntry>>, ReadError> {
        let Some(at) = size.checked_sub(END as u64) else { return Ok(None) };
        let Some(offset) = b.end_at(at)? else { return Ok(None) };
        let Ok(h) = b.header(offset)? else { return Ok(None) };
        if h.kind != Kind::Trailer || offset.saturating_add(h.total()) != at {
            return Ok(None);
        }
        let Some(trailer) = self.json::<Trailer>(b, offset, &h)? else { return Ok(None) };
        let mut last = 0;
        for g in &trailer.groups {
            let sane = g.offset >= last && g.index.is_none_or(|i| i > g.offset && i < g.end);
            let fits = g.end > g.offset && g.end <= offset && (1..=GROUP_TICKS).contains(&g.ticks);
            if !sane || !fits {
                return Ok(None);
            }
            last = g.end;
        }
        // Groups without an index are scanned header by header: their ticks are recorded nowhere
        // else.
        Ok(Some(trailer.groups.into_iter().filter(|g| g.index.is_some()).collect()))
    }

    /// The groups by the chains of their indexes, from the last one back; what no chain reaches is
    /// left to hopping.
    fn by_chain(&mut self, b: &mut Blocks<'_>, size: u64) -> Result<Vec<GroupEntry>, ReadError> {
        let mut out = Vec::new();
        let mut next = b.last_index(0, size)?;
        // A file that was put together from several has a chain in each, and a damaged index breaks
        // one: the next one may end right before. Hopping costs less than reading everything.
        for _ in 0..CHAINS {
            let Some(at) = next else { break };
            let known = out.len();
            self.chain(b, at, &mut out)?;
            let to = out.get(known..).and_then(<[_]>::last).map_or(at, |g: &GroupEntry| g.offset);
            next = b.last_index(to.saturating_sub(WINDOW as u64), to)?;
        }
        out.reverse();
        Ok(out)
    }

    /// The groups of the chain that ends with the index at `at`, the last one first.
    fn chain(
        &mut self,
        b: &mut Blocks<'_>,
        at: u64,
        out: &mut Vec<GroupEntry>,
    ) -> Result<(), ReadError> {
        let mut next = Some(at);
        while let Some(at) = next {
            let Ok(h) = b.header(at)? else { break };
            if out.len() >= MAX_GROUPS || !self.afford(b, &h)? {
                break;
            }
            let Some(index) = b.index(at, &h) else { break };
            let Some(offset) = at.checked_sub(u64::from(h.back)) else { break };
            let start = b.header(offset)?;
            if !start.is_ok_and(|k| k.kind == Kind::Keyframe && h.back > 0) {
                break;
            }
            let stamp = |t: Option<&TickRef>| t.map_or(Stamp::default(), |t| t.at);
            out.push(GroupEntry {
                offset,
                index: Some(at),
                end: at + h.total(),
                ticks: index.ticks.len() as u32,
                first: stamp(index.ticks.first()),
                last: stamp(index.ticks.last()),
                segment: 0,
            });
            next = if h.link == 0 { None } else { at.checked_sub(u64::from(h.link)) };
            if next.is_some_and(|n| n >= offset) {
                break;
            }
        }
        Ok(())
    }
}

/// Where the first block begins.
fn first_block(b: &Blocks<'_>, size: u64) -> Result<u64, ReadError> {
    if size == 0 {
        return Err(ReadError::Empty);
    }
    let found = b.header(0)?;
    if found.is_ok_and(|h| h.total() <= size) {
        return Ok(0);
    }
    match (b.scan(1, size.min(SEARCH))?, found) {
        (Some(at), _) => Ok(at),
        (None, Err(HeaderError::Version(v))) => Err(ReadError::Version(v)),
        (None, Err(HeaderError::NotABlock)) => Err(ReadError::NotARecording),
        (None, _) => Err(ReadError::Truncated),
    }
}
