//! The payload of a tick, and what writer and reader remember within a group.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::de::from_tree;
use super::limits::{self, MAX_ROWS, MAX_UNITS};
use super::names::Names;
use super::schema::Tree;
use super::section::{self, MAX_SECTIONS, cut, put_names, put_stamps, read_stamps};
use super::ser::to_tree;
use super::series::Series;
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Segment {
    /// Host, boot, kernel, tool, interval, distance of the clocks.
    pub host: HostInfo,
}

/// Sections that do not belong to a collector: JSON.
const HOST: &str = "host";
const HEALTH: &str = "health";
const SIGNALS: &str = "signals";
/// Longest of them: there are some twenty collectors.
const MAX_JSON: usize = 1 << 20;
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
    series: Series,
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
    /// Writer: units that it takes to read the sample besides it.
    extra: usize,
    /// Reader: damaged since.
    error: Option<String>,
}

/// Hash of a section's state, to verify what was rebuilt.
pub(crate) type StateHash = Vec<(String, u32)>;

fn hash(sections: &[Section], tick: u64) -> StateHash {
    let here = sections.iter().filter(|s| s.present == tick && s.error.is_none());
    here.filter_map(|s| Some((s.name.clone(), s.series.last()?.hash()))).collect()
}

#[derive(Debug, Default)]
pub(crate) struct Encoder {
    names: Names,
    /// Texts that the group has.
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
            self.json(HOST, segment, true)?;
        }
        let (health, signals) = taken_apart(tick);
        self.json(HEALTH, &health, self.tick == 1 || health != self.health.0)?;
        // Only those of collectors that offer something else now.
        let is_new = |s: &&(String, Vec<Signal>)| self.tick == 1 || !self.health.1.contains(s);
        let changed: Vec<_> = signals.iter().filter(is_new).collect();
        self.json(SIGNALS, &changed, !changed.is_empty())?;
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

    /// Begins a section; where its bytes begin.
    fn open(&mut self, name: &str, is_sample: bool) -> usize {
        let (known, present) = (self.sections.iter().position(|s| s.name == name), self.tick);
        if let Some(s) = known.and_then(|i| self.sections.get_mut(i)) {
            s.present = present;
        } else {
            let name = name.to_owned();
            self.sections.push(Section { name, present, ..Section::default() });
        }
        section::open(known.ok_or(name), is_sample, &mut self.out)
    }

    fn section(&mut self, of: CollectorId) -> Option<&mut Section> {
        self.sections.iter_mut().find(|s| s.name == of.name())
    }

    fn json<T: Serialize>(&mut self, name: &str, v: &T, is_new: bool) -> Result<(), CodecError> {
        let start = self.open(name, false);
        if is_new {
            let json = serde_json::to_vec(v).map_err(|e| CodecError(e.to_string()))?;
            self.out.extend_from_slice(&json);
        }
        section::close(start, &mut self.out);
        Ok(())
    }
}

/// What a tick of a recording may hold: the writer keeps to what a reader accepts.
impl Encoder {
    /// Units of the last tick, as a reader counts them: on the way from the tick before, each
    /// section may be as large then or as now.
    pub(crate) fn units(&mut self) -> usize {
        let mut sum = 0usize;
        for s in &mut self.sections {
            let units = s.series.units().saturating_add(s.extra);
            sum = sum.saturating_add(units.max(s.units));
            s.units = units;
        }
        sum.max(self.names.units()).min(MAX_UNITS)
    }

    /// Collectors whose sample is not in the last tick, because no reader would accept it.
    pub(crate) fn oversized(&self) -> &[CollectorId] {
        &self.oversized
    }

    /// Reserves the space that a sample needs; false if there is none.
    fn has_room(&mut self, tree: &Tree) -> bool {
        let sum = self.room.saturating_add(tree.units());
        let fits = sum <= MAX_UNITS && tree.columns.iter().all(|c| c.rows() <= MAX_ROWS);
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
            let units = self.section(id).map_or(0, |s| s.units);
            self.room = self.room.saturating_add(units);
            let start = self.open(id.name(), true);
            section::close(start, &mut self.out);
            return Ok(());
        }
        let mut series =
            self.section(id).map(|s| std::mem::take(&mut s.series)).unwrap_or_default();
        let tree = to_tree(&sample.data, &mut series.schema, &mut self.names)?;
        let mut extra = 0;
        if self.has_room(&tree) {
            let start = self.open(id.name(), true);
            put_stamps(sample.span, sample.cpu, &mut self.last_end, &mut self.out);
            extra = series.encode(tree, &mut self.out)?;
            section::close(start, &mut self.out);
        } else {
            self.oversized.push(id);
        }
        if let Some(s) = self.section(id) {
            (s.series, s.extra) = (series, extra);
        }
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
        for name in names {
            self.names.append(name.to_owned());
            if self.names.units() > most {
                return Err(CodecError("too many names".to_owned()));
            }
        }
        let mut last_end = at.mono.0;
        for raw in sections {
            let i = raw.name.unwrap_or(self.sections.len());
            let twice = || CodecError("a duplicate section".to_owned());
            if let Err(name) = raw.name {
                if self.sections.iter().any(|s| s.name == name) {
                    return Err(twice());
                }
                self.sections.push(Section { name: name.to_owned(), ..Section::default() });
            }
            let Some(s) = self.sections.get_mut(i).filter(|_| i < MAX_SECTIONS) else {
                return Err(CodecError("a section without a name".to_owned()));
            };
            if s.present == self.tick {
                return Err(twice());
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
            match s.name.as_str() {
                HOST | HEALTH | SIGNALS if raw.bytes.len() > MAX_JSON => {}
                HOST => self.segment = serde_json::from_slice(raw.bytes).ok(),
                HEALTH => self.health.0 = serde_json::from_slice(raw.bytes).unwrap_or_default(),
                SIGNALS => {
                    let mut changed: Signals =
                        serde_json::from_slice(raw.bytes).unwrap_or_default();
                    changed.retain(|s| CollectorId::named(&s.0).is_some());
                    self.health.1.retain(|old| changed.iter().all(|new| new.0 != old.0));
                    self.health.1.extend(changed);
                }
                _ => {}
            }
            if s.error.is_none() && CollectorId::named(&s.name).is_some() {
                self.units = self.units.saturating_sub(s.units);
                let most = most.saturating_sub(self.units);
                match s.series.decode(most, &mut input) {
                    Ok(now) => s.units = now.units(),
                    Err(e) => {
                        s.error = Some(e.to_string());
                        // It is not needed again.
                        (s.series, s.units) = (Series::default(), 0);
                    }
                }
                self.units = self.units.saturating_add(s.units);
            }
        }
        Ok(())
    }

    /// Numbers that it remembers.
    pub(crate) fn cells(&self) -> usize {
        self.sections.iter().filter_map(|s| Some(s.series.last()?.cells())).sum()
    }

    /// The tick that was taken in last.
    pub(crate) fn make(&mut self) -> Tick {
        let before = std::mem::take(&mut self.made);
        let samples = Samples::make(&before, self).unwrap_or_default();
        self.made = samples.clone();
        let Stamp { seq, mono, wall } = self.at;
        let health = put_together(&self.health.0, &self.health.1);
        Tick { seq, mono, wall, samples, health, gap: self.health.0.gap }
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
        let Some(tree) = s.series.last() else { return Ok(None) };
        match from_tree::<S>(tree, &s.series.schema, names, &mut self.work) {
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
