//! Whole groups as bytes: taken out of a writer to memory, and appended to another recording as
//! they are.

use std::io::{self, Write};

use super::{Writer, Written};
use crate::recording::codec::Stamp;
use crate::recording::file::index::GroupEntry;
use crate::sample::CollectorId;

/// A whole group as it will be in a file: its events from before the keyframe, keyframe, deltas,
/// index. It holds its host, so it needs nothing of what was written before it.
#[derive(Clone, Debug)]
pub(crate) struct EncodedGroup {
    bytes: Box<[u8]>,
    /// Its offsets are from the first of the bytes.
    entry: GroupEntry,
}

impl EncodedGroup {
    /// Bytes that it takes, in memory and in a file.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
    pub(crate) fn ticks(&self) -> u64 {
        u64::from(self.entry.ticks)
    }
    pub(crate) fn first(&self) -> Stamp {
        self.entry.first
    }
    pub(crate) fn last(&self) -> Stamp {
        self.entry.last
    }
}

impl Writer<Vec<u8>> {
    /// Takes out the groups that are complete.
    pub(crate) fn take_groups(&mut self) -> Vec<EncodedGroup> {
        let base = self.offset - self.out.len() as u64;
        let mut out = Vec::new();
        let mut from = 0;
        for entry in std::mem::take(&mut self.trailer.groups) {
            let end = (entry.end - base) as usize;
            let bytes = self.out.get(from..end).unwrap_or_default();
            let begin = base + from as u64;
            let place = |offset: u64| offset - begin;
            let entry = GroupEntry {
                offset: place(entry.offset),
                index: entry.index.map(place),
                end: place(entry.end),
                ..entry
            };
            out.push(EncodedGroup { bytes: bytes.into(), entry });
            from = end;
        }
        self.out.drain(..from);
        out
    }

    /// Forgets what it wrote so far: the segment, which each group repeats.
    pub(crate) fn forget(&mut self) {
        self.out.clear();
    }
}

impl<W: Write> Writer<W> {
    /// Writes a group of another writer of the same segment.
    pub(crate) fn append(&mut self, group: &EncodedGroup) -> io::Result<Written> {
        self.end_group()?;
        let at = self.offset;
        self.write(&group.bytes)?;
        let e = &group.entry;
        self.trailer.groups.push(GroupEntry {
            offset: at + e.offset,
            index: e.index.map(|i| at + i),
            end: self.offset,
            segment: self.segment_number(),
            ..*e
        });
        self.last = Some(e.last);
        Ok(Written { bytes: group.bytes.len() as u64, keyframe: false, group_end: true })
    }

    /// Collectors that failed in the last tick: their failure has been told.
    pub(crate) fn failed(&self) -> &[CollectorId] {
        &self.failed
    }

    /// Continues a recording in which that has been told.
    pub(crate) fn have_failed(&mut self, failed: Vec<CollectorId>) {
        self.failed = failed;
    }
}
