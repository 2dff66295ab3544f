//! The payload of a tick, and what writer and reader remember within a group.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::flat::{Flat, Names, from_flat_within, to_flat};
use super::limits::{self, MAX_ROWS, MAX_UNITS};
use super::recent::Recent;
use super::section::{self, MAX_NAMES, MAX_SECTIONS, cut, put_names, put_stamps, read_stamps};
use super::wire::{CodecError, Input};
use crate::sample::tick::{CollectorHealth, Gap, HealthState, HostInfo, Tick};
use crate::sample::time::{MonoNs, Seq, Span, WallNs};
use crate::sample::{
    AnySample, CollectorId, SampleMaker, SampleVisitor, Samples, Shared, Signal, Stamped,
};

/// When something was: all three clocks of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    pub seq: Seq,
    /// `CLOCK_MONOTONIC`, ns.
    pub mono: MonoNs,
    /// `CLOCK_REALTIME`, ns.
    pub wall: WallNs,
}

impl Stamp {
    pub(crate) fn of(t: &Tick) -> Self {
        Self { seq: t.seq, mono: t.mono, wall: t.wall }
    }
}

/// What does not change until the next segment. Each keyframe holds it too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Segment {
    /// Host, boot, kernel, tool, interval, distance of the clocks.
    pub host: HostInfo,
}

/// Sections that do not belong to a collector.
const HOST: &str = "host";
const HEALTH: &str = "health";
const SIGNALS: &str = "signals";
/// Bytes of memory that wait for the next payload at most.
pub(crate) const SPARE: usize = 256 << 10;

/// State and gap of a tick. Collectors by name: a reader skips those that it does not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Health {
    gap: Option<Gap>,
    states: Vec<(String, HealthState)>,
}

/// What the collectors offer: changes rarely.
type Signals = Vec<(String, Vec<Signal>)>;

fn taken_apart(tick: &Tick) -> (Health, Signals) {
    let name = |h: &CollectorHealth| h.id.name().to_owned();
    let states = tick.health.iter().map(|h| (name(h), h.state.clone())).collect();
    let signals = tick.health.iter().map(|h| (name(h), h.signals.clone())).collect();
    (Health { gap: tick.gap, states }, signals)
}

fn put_together(health: &Health, signals: &Signals) -> Vec<CollectorHealth> {
    let offers = |name: &str| signals.iter().find(|s| s.0 == name).map(|s| s.1.clone());
    let states = health.states.iter();
    states
        .filter_map(|(name, state)| {
            let id = CollectorId::named(name)?;
            let signals = offers(name).unwrap_or_default();
            Some(CollectorHealth { id, state: state.clone(), signals })
        })
        .collect()
}

/// A part of the ticks of a group.
#[derive(Clone, Debug, Default)]
struct Section {
    name: String,
    recent: Recent,
    /// Number of the last tick that has it.
    present: u64,
    /// Number of the last tick that changed it.
    changed: u64,
    /// Reader: number of the tick for which a sample was made of it.
    made: u64,
    /// Reader: stamps of the sample.
    span: Span,
    cpu: Duration,
    units: usize,
    /// Reader: damaged since.
    error: Option<String>,
}

/// Hash of a section's state, to verify what was rebuilt.
pub(crate) type StateHash = Vec<(String, u32)>;

fn hash(sections: &[Section], tick: u64) -> StateHash {
    let here = sections.iter().filter(|s| s.present == tick && s.error.is_none());
    here.filter_map(|s| Some((s.name.clone(), s.recent.current()?.hash()))).collect()
}

#[derive(Debug, Default)]
pub(crate) struct Encoder {
    names: Names,
    /// Names known in the group.
    told: usize,
    sections: Vec<Section>,
    tick: u64,
    before: Samples,
    health: (Health, Signals),
    out: Vec<u8>,
    /// End of the reading in the section before.
    last_end: u64,
    /// Units of the samples of this tick so far.
    room: usize,
    /// Collectors whose sample did not fit, in this tick and in the previous one.
    oversized: Vec<CollectorId>,
    left_out: Vec<CollectorId>,
}

impl Encoder {
    pub(crate) fn restart(&mut self) {
        *self = Self { out: std::mem::take(&mut self.out), ..Self::default() };
    }

    /// Takes a payload back to reuse its memory for the next one. That of a keyframe with many
    /// sockets is freed: the next one of its size is a minute away.
    pub(crate) fn recycle(&mut self, payload: Vec<u8>) {
        if payload.capacity() <= SPARE {
            self.out = payload;
        }
    }

    /// The payload of the next tick of the group; with the host, of a keyframe.
    pub(crate) fn payload(
        &mut self,
        tick: &Tick,
        host: Option<&Segment>,
    ) -> Result<Vec<u8>, CodecError> {
        self.tick += 1;
        self.out.clear();
        self.room = 0;
        self.left_out = std::mem::take(&mut self.oversized);
        self.last_end = tick.mono.0;
        if let Some(segment) = host {
            let json = serde_json::to_vec(segment).map_err(|e| CodecError(e.to_string()))?;
            let (_, start) = self.open(HOST, false);
            self.out.extend_from_slice(&json);
            section::close(start, &mut self.out);
        }
        let (health, signals) = taken_apart(tick);
        if self.tick > 1 && health == self.health.0 {
            self.same(HEALTH, false);
        } else {
            self.value(HEALTH, &health)?;
        }
        if self.tick > 1 && signals == self.health.1 {
            self.same(SIGNALS, false);
        } else {
            self.value(SIGNALS, &signals)?;
        }
        self.health = (health, signals);
        let before = std::mem::take(&mut self.before);
        tick.samples.visit(&before, self)?;
        self.before = tick.samples.clone();
        put_names(self.names.list().get(self.told..).unwrap_or_default(), &mut self.out);
        self.told = self.names.list().len();
        Ok(std::mem::take(&mut self.out))
    }

    pub(crate) fn hash(&self) -> StateHash {
        hash(&self.sections, self.tick)
    }

    /// Ticks of this group so far.
    pub(crate) fn ticks(&self) -> u64 {
        self.tick
    }

    /// Begins a section; its number, and where its bytes begin.
    fn open(&mut self, name: &str, is_sample: bool) -> (usize, usize) {
        let known = self.sections.iter().position(|s| s.name == name);
        let i = known.unwrap_or_else(|| {
            self.sections.push(Section { name: name.to_owned(), ..Section::default() });
            self.sections.len() - 1
        });
        if let Some(s) = self.sections.get_mut(i) {
            s.present = self.tick;
        }
        (i, section::open(known.ok_or(name), is_sample, &mut self.out))
    }

    fn same(&mut self, name: &str, is_sample: bool) {
        let (_, start) = self.open(name, is_sample);
        section::close(start, &mut self.out);
    }

    fn value<T: Serialize>(&mut self, name: &str, v: &T) -> Result<(), CodecError> {
        let flat = to_flat(v, &mut self.names)?;
        let (i, start) = self.open(name, false);
        self.encode(i, flat);
        section::close(start, &mut self.out);
        Ok(())
    }

    fn encode(&mut self, section: usize, flat: Flat) {
        if let Some(s) = self.sections.get_mut(section) {
            s.recent.encode(flat, &mut self.out);
        }
    }
}

/// What a tick of a recording may hold: the writer keeps to what a reader accepts.
impl Encoder {
    /// Units of the last tick, as a reader counts them: on the way from the tick before, each
    /// section may be as large then or as now.
    pub(crate) fn units(&mut self) -> usize {
        let mut sum = 0usize;
        for s in &mut self.sections {
            let Some(flat) = s.recent.current() else { continue };
            let units = flat.units();
            sum = sum.saturating_add(units.max(s.units));
            s.units = units;
        }
        sum.min(MAX_UNITS)
    }

    /// Collectors whose sample is not in the last tick, because no reader would accept it.
    pub(crate) fn oversized(&self) -> &[CollectorId] {
        &self.oversized
    }

    /// Reserves the space that a sample needs; false if there is none.
    fn has_room(&mut self, flat: &Flat) -> bool {
        let sum = self.room.saturating_add(flat.units());
        let fits = sum <= MAX_UNITS && flat.columns.iter().all(|c| c.rows() <= MAX_ROWS);
        if fits {
            self.room = sum;
        }
        fits
    }
}

impl SampleVisitor for Encoder {
    type Error = CodecError;
    fn visit<S: AnySample>(
        &mut self,
        id: CollectorId,
        sample: &Shared<S>,
        before: Option<&Shared<S>>,
    ) -> Result<(), CodecError> {
        if before.is_some_and(|b| std::sync::Arc::ptr_eq(b, sample)) {
            if self.left_out.contains(&id) {
                self.oversized.push(id);
                return Ok(());
            }
            let known = self.sections.iter().find(|s| s.name == id.name());
            self.room = self.room.saturating_add(known.map_or(0, |s| s.units));
            self.same(id.name(), true);
            return Ok(());
        }
        let flat = to_flat(&sample.data, &mut self.names)?;
        if !self.has_room(&flat) {
            self.oversized.push(id);
            return Ok(());
        }
        let (section, start) = self.open(id.name(), true);
        put_stamps(sample.span, sample.cpu, &mut self.last_end, &mut self.out);
        self.encode(section, flat);
        section::close(start, &mut self.out);
        Ok(())
    }
}

/// The payload of a tick, as a file holds it.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Bytes that it takes in the file.
    pub(crate) len: usize,
    pub(crate) payload: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Decoder {
    names: Names,
    sections: Vec<Section>,
    tick: u64,
    at: Stamp,
    segment: Option<Segment>,
    health: (Health, Signals),
    made: Samples,
    /// Bytes that the ticks so far take in the file: they say how large the samples may be.
    stored: usize,
    units: usize,
    /// What may still be done to make the tick.
    work: usize,
}

impl Decoder {
    /// Takes in the next tick. Cheap: no sample is made.
    pub(crate) fn apply(&mut self, at: Stamp, stored: &Stored) -> Result<(), CodecError> {
        self.stored = self.stored.saturating_add(stored.len);
        self.tick += 1;
        self.at = at;
        self.work = limits::work(self.stored);
        let most = limits::units(self.stored);
        let (names, sections) = cut(&stored.payload)?;
        if self.names.list().len() + names.len() > MAX_NAMES {
            return Err(CodecError("too many names".to_owned()));
        }
        for name in names {
            self.names.append(name.to_owned());
        }
        let mut last_end = at.mono.0;
        for raw in sections {
            let i = match raw.name {
                Ok(i) => i,
                Err(name) => {
                    if self.sections.iter().any(|s| s.name == name) {
                        return Err(CodecError("a duplicate section".to_owned()));
                    }
                    self.sections.push(Section { name: name.to_owned(), ..Section::default() });
                    self.sections.len() - 1
                }
            };
            let Some(s) = self.sections.get_mut(i).filter(|_| i < MAX_SECTIONS) else {
                return Err(CodecError("a section without a name".to_owned()));
            };
            if s.present == self.tick {
                return Err(CodecError("a duplicate section".to_owned()));
            }
            s.present = self.tick;
            if raw.bytes.is_empty() {
                continue;
            }
            s.changed = self.tick;
            let mut input = Input::new(raw.bytes);
            if raw.is_sample {
                (s.span, s.cpu) = read_stamps(&mut last_end, &mut input)?;
            }
            if s.name == HOST {
                self.segment = serde_json::from_slice(raw.bytes).ok();
            } else if s.error.is_none() && s.is_known() {
                self.units = self.units.saturating_sub(s.units);
                let most = most.saturating_sub(self.units);
                match s.recent.decode_within(most, &mut input) {
                    Ok(now) => s.units = now.units(),
                    Err(e) => {
                        s.error = Some(e.to_string());
                        // It is not needed again.
                        (s.recent, s.units) = (Recent::default(), 0);
                    }
                }
                self.units = self.units.saturating_add(s.units);
            }
        }
        Ok(())
    }

    /// Numbers that it remembers.
    pub(crate) fn cells(&self) -> usize {
        self.sections.iter().map(|s| s.recent.cells()).sum()
    }

    /// The tick that was taken in last.
    pub(crate) fn make(&mut self) -> Tick {
        let before = std::mem::take(&mut self.made);
        let samples = Samples::make(&before, self).unwrap_or_default();
        self.made = samples.clone();
        self.heal();
        let Stamp { seq, mono, wall } = self.at;
        let health = put_together(&self.health.0, &self.health.1);
        Tick { seq, mono, wall, samples, health, gap: self.health.0.gap }
    }

    /// Brings health and signals up to date.
    fn heal(&mut self) {
        let (names, tick) = (&self.names, self.tick);
        let mut changed = |name: &str| {
            let s = self.sections.iter_mut().find(|s| s.name == name)?;
            if s.made >= s.changed || s.present != tick {
                return None;
            }
            s.made = s.changed;
            Some((s.recent.current()?.clone(), names))
        };
        if let Some((flat, names)) = changed(HEALTH) {
            self.health.0 = from_flat_within(&flat, names, &mut self.work).unwrap_or_default();
        }
        if let Some((flat, names)) = changed(SIGNALS) {
            self.health.1 = from_flat_within(&flat, names, &mut self.work).unwrap_or_default();
        }
    }

    pub(crate) fn segment(&self) -> Option<&Segment> {
        self.segment.as_ref()
    }
    /// State of the tick that was taken in last.
    pub(crate) fn hash(&self) -> StateHash {
        hash(&self.sections, self.tick)
    }
    pub(crate) fn name(&self, section: usize) -> Option<&str> {
        self.sections.get(section).map(|s| s.name.as_str())
    }
    /// Sections that could not be decoded, and why.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sections.iter().filter_map(|s| Some((s.name.as_str(), s.error.as_deref()?)))
    }
}

impl Section {
    fn is_known(&self) -> bool {
        self.name == HEALTH || self.name == SIGNALS || CollectorId::named(&self.name).is_some()
    }
}

impl SampleMaker for Decoder {
    type Error = std::convert::Infallible;
    fn make<S: AnySample>(
        &mut self,
        id: CollectorId,
        before: Option<&Shared<S>>,
    ) -> Result<Option<Shared<S>>, Self::Error> {
        let (names, tick) = (&self.names, self.tick);
        let found = self.sections.iter_mut().find(|s| s.name == id.name());
        let Some(s) = found.filter(|s| s.present == tick && s.error.is_none()) else {
            return Ok(None);
        };
        if s.made == s.changed
            && let Some(before) = before
        {
            return Ok(Some(before.clone()));
        }
        let Some(flat) = s.recent.current() else { return Ok(None) };
        match from_flat_within::<S>(flat, names, &mut self.work) {
            Ok(mut data) => {
                // Names and tables that the tick before has are in memory once, as when live.
                data.settle(before.map(|b| &b.data));
                s.made = s.changed;
                Ok(Some(std::sync::Arc::new(Stamped { span: s.span, cpu: s.cpu, data })))
            }
            Err(e) => {
                s.error = Some(e.to_string());
                Ok(None)
            }
        }
    }
}
