//! Reads a recording from end to end: what takes up space, and whether everything is intact.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::recording::codec::section::cut;
use crate::recording::codec::tick::Decoder;
use crate::recording::file::damage::{Damage, ReadError, intact};
use crate::recording::file::index::EventAt;
use crate::recording::file::limits::Gathered;
use crate::recording::file::reader::Reader;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Survey {
    pub ticks: u64,
    /// Ticks that are listed but lost.
    pub lost: u64,
    /// Bytes of keyframes in the file.
    pub keyframe_bytes: u64,
    /// Bytes of deltas in the file.
    pub delta_bytes: u64,
    /// Bytes of all else: headers of segments, indexes, events, trailers.
    pub other_bytes: u64,
    /// Bytes of each section before compression, all ticks together.
    pub sections: BTreeMap<String, u64>,
    /// Bytes of ticks before compression.
    pub raw_bytes: u64,
    /// Groups whose rebuilt state has the hash that was written.
    pub states_verified: u64,
    /// Groups whose state has another one.
    pub states_wrong: u64,
    pub damage: usize,
}

/// What a recording says besides its ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// In the order of time within each segment.
    pub list: Vec<EventAt>,
    /// Number of further ones: a list of all of them would be too large.
    pub left_out: u64,
    /// Ticks that are missing, by all of them.
    pub missing: u64,
}

impl Events {
    fn add(&mut self, r: &EventAt, all: &mut Gathered) {
        self.missing = self.missing.saturating_add(r.event.missing());
        if all.has_room(r.bytes()) {
            self.list.push(r.clone());
        }
    }
}

impl Reader {
    /// Reads every tick. Damage that it meets is in [`Reader::damage`] afterwards.
    pub fn survey(&mut self) -> Result<Survey, ReadError> {
        self.survey_telling(|_, _| ())
    }

    /// The same, and tells how many groups of how many are done.
    pub fn survey_telling(
        &mut self,
        mut told: impl FnMut(usize, usize),
    ) -> Result<Survey, ReadError> {
        let mut out = Survey::default();
        let all = self.groups().len();
        for group in 0..all {
            self.survey_group(group, &mut out)?;
            told(group + 1, all);
        }
        let ticks = out.keyframe_bytes + out.delta_bytes;
        out.other_bytes = self.end().saturating_sub(ticks);
        out.damage = self.damage().count();
        Ok(out)
    }

    fn survey_group(&mut self, group: usize, out: &mut Survey) -> Result<(), ReadError> {
        let Some(&entry) = self.groups().get(group) else { return Ok(()) };
        let Some(index) = intact(self.index(group))? else {
            out.lost += u64::from(entry.ticks);
            return Ok(());
        };
        let mut decoder = Decoder::default();
        for (n, t) in index.ticks.iter().enumerate() {
            let offset = entry.offset + u64::from(t.offset);
            let stored = match self.take_in(&mut decoder, entry.offset, t, n) {
                Ok(stored) => stored,
                Err(ReadError::Damaged(d)) => {
                    self.note(d);
                    out.lost += (index.ticks.len() - n) as u64;
                    return Ok(());
                }
                Err(e) => return Err(e),
            };
            out.ticks += 1;
            out.raw_bytes += stored.payload.len() as u64;
            let next = match index.ticks.get(n + 1) {
                Some(next) => entry.offset + u64::from(next.offset),
                None => self.end_of(offset).unwrap_or(entry.end),
            };
            let bytes = next.saturating_sub(offset);
            *if n == 0 { &mut out.keyframe_bytes } else { &mut out.delta_bytes } += bytes;
            sections(&stored.payload, &decoder, out);
        }
        let state = decoder.hash();
        if !index.state.is_empty() {
            // An unknown section has no hash here.
            let known = |name: &String| state.iter().find(|s| s.0 == *name).map(|s| s.1);
            if index.state.iter().any(|(name, h)| known(name).is_some_and(|k| k != *h)) {
                out.states_wrong += 1;
                self.note(Damage::at(entry.offset, 0, "a group that decodes to another state"));
            } else {
                out.states_verified += 1;
            }
        }
        Ok(())
    }

    /// All events.
    pub fn events(&mut self) -> Result<Events, ReadError> {
        let (mut out, mut all) = (Events::default(), Gathered::default());
        for g in 0..self.groups().len() {
            let index = intact(self.index(g))?.unwrap_or_default();
            index.events.iter().for_each(|r| out.add(r, &mut all));
        }
        self.loose_events().iter().for_each(|r| out.add(r, &mut all));
        out.left_out = all.left_out;
        out.list.sort_by_key(|r| (r.at.wall, r.at.seq));
        Ok(out)
    }
}

/// Adds up the sections of a payload.
fn sections(payload: &[u8], decoder: &Decoder, out: &mut Survey) {
    let Ok((_, sections)) = cut(payload) else { return };
    for s in sections {
        let name = s.name.map_or_else(|new| new, |i| decoder.name(i).unwrap_or_default());
        let bytes = s.bytes.len() as u64;
        if let Some(sum) = out.sections.get_mut(name) {
            *sum += bytes;
        } else if out.sections.len() < 1000 {
            out.sections.insert(name.to_owned(), bytes);
        }
    }
}
