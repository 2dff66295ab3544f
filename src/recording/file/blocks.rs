//! Access to the blocks of a file: reads the header at an offset, checks and reads a payload, finds
//! the next or last offset where a block begins.

use memchr::memmem;

use super::damage::{Damage, ReadError};
use super::format::{
    BlockHeader, END, GROUP_TICKS, HEADER, HeaderError, Kind, MAX_FRAME, marker, parse_end,
};
use super::index::{GroupIndex, TickRef};
use super::limits;
use super::source::ReadAt;
use crate::recording::codec::tick::{Decoder, Stored};

/// Bytes that are scanned at a time, and at first: usually a block begins nearby.
pub(super) const WINDOW: usize = 1 << 20;
const FIRST_WINDOW: usize = 1 << 12;
/// Bytes that are searched backwards for an index: there is one every 60 ticks.
const MAX_BACK: u64 = 256 << 20;

pub(super) struct Blocks<'s> {
    pub(super) src: &'s dyn ReadAt,
    pub(super) zip: &'s mut zstd::bulk::Decompressor<'static>,
}

impl Blocks<'_> {
    pub(super) fn header(
        &self,
        offset: u64,
    ) -> Result<Result<BlockHeader, HeaderError>, ReadError> {
        let mut buf = [0; HEADER];
        let n = self.src.read_at(&mut buf, offset)?;
        Ok(BlockHeader::parse(buf.get(..n).unwrap_or_default()))
    }

    /// The payload of a block; checks before it takes memory.
    pub(super) fn payload(&mut self, offset: u64, h: &BlockHeader) -> Result<Vec<u8>, ReadError> {
        let hurt = |what: &str| ReadError::Damaged(Damage::at(offset, h.total(), what));
        if !h.is_known() {
            return Err(hurt("a block that needs a newer version"));
        }
        let from = offset.saturating_add(u64::from(h.size));
        if !limits::fits(h) {
            return Err(hurt("a block that unpacks to more than its kind allows"));
        }
        if h.stored as usize > MAX_FRAME
            || from.saturating_add(u64::from(h.stored)) > self.src.size()?
        {
            return Err(hurt("a block that was cut off"));
        }
        let mut frame = vec![0; h.stored as usize];
        let n = self.src.read_at(&mut frame, from)?;
        if n < frame.len() || crc32fast::hash(&frame) != h.crc {
            return Err(hurt("a damaged block"));
        }
        let payload = self.zip.decompress(&frame, h.raw as usize);
        match payload {
            Ok(p) if p.len() == h.raw as usize => Ok(p),
            _ => Err(hurt("a block that does not decompress to its stated length")),
        }
    }

    pub(super) fn json<T: serde::de::DeserializeOwned>(
        &mut self,
        offset: u64,
        h: &BlockHeader,
    ) -> Option<T> {
        serde_json::from_slice(&self.payload(offset, h).ok()?).ok()
    }

    /// What the block at `offset` says, if it is an index and whole.
    pub(super) fn index(&mut self, offset: u64, h: &BlockHeader) -> Option<GroupIndex> {
        let index: Option<GroupIndex> =
            if h.kind == Kind::Index { self.json(offset, h) } else { None };
        index.filter(|i| ordered(&i.ticks, h.back))
    }

    /// Takes the next tick of a group into its decoder. It has this place in the group that begins
    /// at `group`.
    pub(super) fn take_in(
        &mut self,
        decoder: &mut Decoder,
        group: u64,
        t: &TickRef,
        place: usize,
    ) -> Result<Stored, ReadError> {
        let offset = group + u64::from(t.offset);
        let hurt = |what: &str| ReadError::Damaged(Damage::at(offset, 0, what));
        let h = self.header(offset)?.map_err(|e| hurt(&e.to_string()))?;
        let kind = if place == 0 { Kind::Keyframe } else { Kind::Delta };
        if h.kind != kind || h.link as usize != place || h.back != t.offset || h.at != t.at {
            return Err(hurt("not the tick that the index names"));
        }
        let stored = Stored { len: h.stored as usize, payload: self.payload(offset, &h)? };
        decoder.apply(t.at, &stored).map_err(|e| hurt(&e.0))?;
        Ok(stored)
    }

    /// The next offset in `from..to` where a block begins.
    pub(super) fn scan(&self, mut from: u64, to: u64) -> Result<Option<u64>, ReadError> {
        let marker = marker();
        let (mut buf, mut window) = (Vec::new(), FIRST_WINDOW);
        while from < to {
            let want = usize::try_from(to - from).unwrap_or(window).min(window);
            buf.resize(want, 0);
            window = (window * 2).min(WINDOW);
            let n = self.src.read_at(buf.get_mut(..want).unwrap_or_default(), from)?;
            let have = buf.get(..n).unwrap_or_default();
            for at in memmem::find_iter(have, &marker) {
                if self.header(from + at as u64)?.is_ok() {
                    return Ok(Some(from + at as u64));
                }
            }
            if n < want || n <= marker.len() {
                return Ok(None);
            }
            from += (n - marker.len() + 1) as u64;
        }
        Ok(None)
    }

    /// The last index block in `least..size`: windows from the end.
    pub(super) fn last_index(&self, least: u64, size: u64) -> Result<Option<u64>, ReadError> {
        let marker = marker();
        let least = least.max(size.saturating_sub(MAX_BACK));
        let mut to = size;
        let mut buf = Vec::new();
        while to > least {
            let from = to.saturating_sub(WINDOW as u64).max(least);
            let want = (to - from) as usize;
            buf.resize(want, 0);
            let n = self.src.read_at(buf.get_mut(..want).unwrap_or_default(), from)?;
            for at in memmem::rfind_iter(buf.get(..n).unwrap_or_default(), &marker) {
                let at = from + at as u64;
                if self.header(at)?.is_ok_and(|h| h.kind == Kind::Index && at + h.total() <= size) {
                    return Ok(Some(at));
                }
            }
            if from == least {
                break;
            }
            to = from + marker.len() as u64 - 1;
        }
        Ok(None)
    }

    /// The offset of the trailer, if an end is at `at`.
    pub(super) fn end_at(&self, at: u64) -> Result<Option<u64>, ReadError> {
        let mut buf = [0; END];
        let n = self.src.read_at(&mut buf, at)?;
        Ok(parse_end(buf.get(..n).unwrap_or_default()))
    }
}

/// Plausible ticks: within the group, with ascending offsets and numbers.
fn ordered(ticks: &[TickRef], back: u32) -> bool {
    ticks.len() <= GROUP_TICKS as usize
        && ticks.first().is_some_and(|t| t.offset == 0)
        && ticks.last().is_some_and(|t| t.offset < back)
        && ticks.windows(2).all(|w| w[0].offset < w[1].offset)
}
