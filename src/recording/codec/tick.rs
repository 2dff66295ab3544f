//! The payload of a tick: what writer and reader both remember within a group.

mod room;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::delta::Recent;
use super::flat::{Flat, FlatError, Names, from_flat_within, put_varint, to_flat, varint};
use crate::recording::file::format::{COMPACT, SQUEEZED, Segment, Stamp};
use crate::recording::file::limits;
use super::squeeze::{self, Model};
use crate::collect::registry::{AnySample, SampleMaker, SampleVisitor};
use crate::collect::{CollectorId, Samples, Shared, Signal, Stamped};
use crate::model::tick::{CollectorHealth, Gap, HealthState, Tick};
use crate::model::time::{MonoNs, Span};

/// Sections that are no collector's.
const HOST: &str = "host";
const HEALTH: &str = "health";
const SIGNALS: &str = "signals";
/// Sections of one group: there are some twenty.
const MAX_SECTIONS: usize = 1024;
/// Names of fields in one group: there are some hundreds.
const MAX_NAMES: usize = 1 << 16;
/// Bytes of memory that wait for the next payload at most.
pub(crate) const SPARE: usize = 256 << 10;

/// State and gap of a tick. Collectors by name: a reader passes over those that it lacks.
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
    /// Units of the sample.
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

/// Writes payloads.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    names: Names,
    /// Names that the group has been told.
    told: usize,
    sections: Vec<Section>,
    tick: u64,
    before: Samples,
    health: (Health, Signals),
    out: Vec<u8>,
    /// End of the reading in the section before.
    last_end: u64,
    /// Of small differences.
    model: Option<Box<Model>>,
    /// Units of the samples of this tick so far.
    room: usize,
    /// Collectors whose sample has no room, in this tick and in the one before.
    oversized: Vec<CollectorId>,
    left_out: Vec<CollectorId>,
}

impl Encoder {
    /// Begins a group.
    pub(crate) fn restart(&mut self) {
        *self = Self { out: std::mem::take(&mut self.out), ..Self::default() };
    }

    /// Takes a payload back, to write the next one into its memory. That of a keyframe of many
    /// sockets is given up: none of its size comes for a minute.
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
    ) -> Result<Vec<u8>, FlatError> {
        self.tick += 1;
        self.out.clear();
        self.room = 0;
        self.left_out = std::mem::take(&mut self.oversized);
        self.last_end = tick.mono.0;
        if let Some(segment) = host {
            let json = serde_json::to_vec(segment).map_err(|e| FlatError(e.to_string()))?;
            let (_, start) = self.open(HOST, false);
            self.out.extend_from_slice(&json);
            self.close(start);
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
        let mut head = Vec::new();
        let fresh = self.names.list().get(self.told..).unwrap_or_default();
        put_varint(&mut head, fresh.len() as u64);
        for name in fresh {
            put_varint(&mut head, name.len() as u64);
            head.extend_from_slice(name.as_bytes());
        }
        self.told = self.names.list().len();
        self.out.splice(0..0, head);
        Ok(std::mem::take(&mut self.out))
    }

    /// The payload of the last tick in the form that it is stored in, when it is a small one.
    pub(crate) fn squeeze(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        if self.tick == 1 {
            return squeeze::pack_keyframe(payload);
        }
        if !squeeze::is_small(payload) {
            return None;
        }
        self.model.get_or_insert_default().pack(payload)
    }

    /// State of the last tick.
    pub(crate) fn hash(&self) -> StateHash {
        hash(&self.sections, self.tick)
    }

    /// Ticks of this group so far.
    pub(crate) fn ticks(&self) -> u64 {
        self.tick
    }

    fn section(&mut self, name: &str) -> usize {
        if let Some(i) = self.sections.iter().position(|s| s.name == name) {
            return i;
        }
        self.sections.push(Section { name: name.to_owned(), ..Section::default() });
        self.sections.len() - 1
    }

    /// Begins a section; its number, and where its bytes begin.
    fn open(&mut self, name: &str, sample: bool) -> (usize, usize) {
        let known = self.sections.len();
        let i = self.section(name);
        let number = if i < known { i as u64 + 1 } else { 0 };
        put_varint(&mut self.out, number << 1 | u64::from(sample));
        if i >= known {
            put_varint(&mut self.out, name.len() as u64);
            self.out.extend_from_slice(name.as_bytes());
        }
        if let Some(s) = self.sections.get_mut(i) {
            s.present = self.tick;
        }
        (i, self.out.len())
    }

    /// Ends a section: puts its length before its bytes.
    fn close(&mut self, start: usize) {
        let mut len = Vec::new();
        put_varint(&mut len, self.out.len().saturating_sub(start) as u64);
        self.out.splice(start..start, len);
    }

    fn same(&mut self, name: &str, sample: bool) {
        let (_, start) = self.open(name, sample);
        self.close(start);
    }

    fn value<T: Serialize>(&mut self, name: &str, v: &T) -> Result<(), FlatError> {
        let flat = to_flat(v, &mut self.names)?;
        let (i, start) = self.open(name, false);
        self.encode(i, flat);
        self.close(start);
        Ok(())
    }

    /// Appends a sample.
    fn encode(&mut self, section: usize, flat: Flat) {
        if let Some(s) = self.sections.get_mut(section) {
            s.recent.encode(flat, &mut self.out);
        }
    }
}

impl SampleVisitor for Encoder {
    type Error = FlatError;
    fn visit<S: AnySample>(
        &mut self,
        id: CollectorId,
        sample: &Shared<S>,
        before: Option<&Shared<S>>,
    ) -> Result<(), FlatError> {
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
        let (span, cpu) = (sample.span, sample.cpu);
        let took = span.end.0.wrapping_sub(span.start.0);
        let (section, start) = self.open(id.name(), true);
        // Of the first one from the tick: it ends in steps too.
        let from = step_of(self.last_end);
        let stamps = [span.start.0.wrapping_sub(from), took, nanos(cpu)];
        let whole = stamps.iter().all(|d| d.cast_signed() % STEP == 0);
        let unit = if whole { STEP } else { 1 };
        put_varint(&mut self.out, u64::from(whole));
        for d in stamps {
            put_varint(&mut self.out, zigzag((d.cast_signed() / unit).cast_unsigned()));
        }
        self.last_end = span.end.0;
        self.encode(section, flat);
        self.close(start);
        Ok(())
    }
}

/// The steps in which collectors stamp, as the format has them.
const STEP: i64 = 10_000;

fn step_of(ns: u64) -> u64 {
    ns - ns % STEP.unsigned_abs()
}

/// Nanoseconds of a CPU time: 584 years fit.
fn nanos(d: Duration) -> u64 {
    d.as_nanos() as u64
}

fn zigzag(d: u64) -> u64 {
    let d = d.cast_signed();
    ((d << 1) ^ (d >> 63)).cast_unsigned()
}

fn unzigzag(z: u64) -> u64 {
    (z >> 1) ^ (z & 1).wrapping_neg()
}

/// A part of a payload that has not been decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawSection<'p> {
    /// Number plus 1, or a new name.
    pub(crate) name: Result<usize, &'p str>,
    pub(crate) sample: bool,
    pub(crate) bytes: &'p [u8],
}

/// Cuts a payload: new names of fields, sections.
pub(crate) fn cut(payload: &[u8]) -> Result<(Vec<&str>, Vec<RawSection<'_>>), FlatError> {
    let mut at = 0;
    let count = length(payload, &mut at)?;
    if count > MAX_NAMES {
        return Err(FlatError("too many names".to_owned()));
    }
    let mut names = Vec::new();
    for _ in 0..count {
        let len = length(payload, &mut at)?;
        names.push(text(payload, &mut at, len)?);
    }
    let mut sections = Vec::new();
    while at < payload.len() {
        let head = length(payload, &mut at)?;
        let name = if let Some(i) = (head >> 1).checked_sub(1) {
            Ok(i)
        } else {
            let len = length(payload, &mut at)?;
            Err(text(payload, &mut at, len)?)
        };
        let len = length(payload, &mut at)?;
        let bytes = part(payload, &mut at, len)?;
        sections.push(RawSection { name, sample: head & 1 == 1, bytes });
        if sections.len() > MAX_SECTIONS {
            return Err(FlatError("too many sections".to_owned()));
        }
    }
    Ok((names, sections))
}

fn twice() -> FlatError {
    FlatError("a section that comes twice".to_owned())
}

fn torn() -> FlatError {
    FlatError("the tick ends too early".to_owned())
}

fn length(bytes: &[u8], at: &mut usize) -> Result<usize, FlatError> {
    let n = varint(bytes, at).ok_or_else(torn)?;
    usize::try_from(n).map_err(|_| torn())
}

fn part<'b>(bytes: &'b [u8], at: &mut usize, len: usize) -> Result<&'b [u8], FlatError> {
    let end = at.checked_add(len).ok_or_else(torn)?;
    let out = bytes.get(*at..end).ok_or_else(torn)?;
    *at = end;
    Ok(out)
}

fn text<'b>(bytes: &'b [u8], at: &mut usize, len: usize) -> Result<&'b str, FlatError> {
    std::str::from_utf8(part(bytes, at, len)?)
        .map_err(|_| FlatError("a name that is not UTF-8".to_owned()))
}

/// What a block stores of a tick.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) features: u16,
    /// Bytes that it takes in the file.
    pub(crate) len: usize,
    pub(crate) bytes: Vec<u8>,
}

/// Reads payloads of one group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoder {
    names: Names,
    sections: Vec<Section>,
    tick: u64,
    at: Stamp,
    segment: Option<Segment>,
    health: (Health, Signals),
    made: Samples,
    /// Of squeezed differences.
    model: Option<Box<Model>>,
    /// Bytes that the ticks so far take in the file: they say how large the samples may be.
    stored: usize,
    /// Units of the samples now.
    units: usize,
    /// What may still be done to make the tick.
    work: usize,
}

impl Decoder {
    /// The payload of the next tick.
    pub(crate) fn open(&mut self, stored: Stored) -> Result<Vec<u8>, FlatError> {
        self.stored = self.stored.saturating_add(stored.len);
        match self.tick {
            _ if stored.features & SQUEEZED == 0 => Ok(stored.bytes),
            0 => squeeze::unpack_keyframe(&stored.bytes),
            _ => self.model.get_or_insert_default().unpack(&stored.bytes),
        }
    }

    /// Takes in the next tick's payload, of a block with these features. Cheap: no sample is
    /// made.
    pub(crate) fn apply(
        &mut self,
        at: Stamp,
        features: u16,
        payload: &[u8],
    ) -> Result<(), FlatError> {
        let in_steps = features & COMPACT != 0;
        self.tick += 1;
        self.at = at;
        self.work = limits::work(self.stored);
        let most = limits::units(self.stored);
        let (names, sections) = cut(payload)?;
        if self.names.list().len() + names.len() > MAX_NAMES {
            return Err(FlatError("too many names".to_owned()));
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
                        return Err(twice());
                    }
                    self.sections.push(Section { name: name.to_owned(), ..Section::default() });
                    self.sections.len() - 1
                }
            };
            let Some(s) = self.sections.get_mut(i).filter(|_| i < MAX_SECTIONS) else {
                return Err(FlatError("a section without a name".to_owned()));
            };
            if s.present == self.tick {
                return Err(twice());
            }
            s.present = self.tick;
            if raw.bytes.is_empty() {
                continue;
            }
            s.changed = self.tick;
            let mut from = 0;
            if raw.sample {
                s.stamps(in_steps, raw.bytes, &mut from, &mut last_end)?;
            }
            if s.name == HOST {
                self.segment = serde_json::from_slice(raw.bytes).ok();
            } else if s.error.is_none() && s.is_known() {
                self.units = self.units.saturating_sub(s.units);
                let most = most.saturating_sub(self.units);
                match s.recent.decode_within(most, raw.bytes, &mut from) {
                    Ok(now) => s.units = now.units(),
                    Err(e) => {
                        s.error = Some(e.to_string());
                        // Nothing of it is asked for again.
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

    /// Host of the group.
    pub(crate) fn segment(&self) -> Option<&Segment> {
        self.segment.as_ref()
    }
    /// State of the tick that was taken in last.
    pub(crate) fn hash(&self) -> StateHash {
        hash(&self.sections, self.tick)
    }
    /// Name of a section.
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
    fn stamps(
        &mut self,
        in_steps: bool,
        b: &[u8],
        at: &mut usize,
        last_end: &mut u64,
    ) -> Result<(), FlatError> {
        let whole = in_steps && varint(b, at).ok_or_else(torn)? == 1;
        let unit = if whole { STEP.unsigned_abs() } else { 1 };
        let from = if in_steps { step_of(*last_end) } else { *last_end };
        let mut next = || varint(b, at).map(|z| unzigzag(z).wrapping_mul(unit)).ok_or_else(torn);
        let start = from.wrapping_add(next()?);
        let took = next()?;
        let cpu = next()?;
        let cpu = if in_steps { cpu } else { took.wrapping_sub(cpu) };
        let end = start.wrapping_add(took);
        self.span = Span { start: MonoNs(start), end: MonoNs(end) };
        self.cpu = Duration::from_nanos(cpu);
        *last_end = end;
        Ok(())
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
