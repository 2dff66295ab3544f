//! A recording as a tape: its ticks, in order or from anywhere, as the live source gave them.
//!
//! Time comes out of the ticks. What a live run does not have is made to look like what it
//! does: a tick's number is its place in the file, so that it is unique over all segments, and
//! ticks that were dropped by the recorder or lost to damage are a gap before the next one. A
//! new segment is another run, perhaps of another boot: whoever judges starts anew there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::recording::file::damage::Damage;
use crate::recording::{ReadError, Reader, Stamp};
use crate::sample::sockets::{NetnsTable, SocketsSample};
use crate::sample::tick::{Gap, HostInfo, Tick};
use crate::sample::time::{MonoNs, Seq, WallNs};
use crate::sample::{Shared, Stamped};

/// What comes next.
#[derive(Clone, Debug)]
pub enum Played {
    /// Another run begins; not told when the playing begins within one.
    Segment(HostInfo),
    /// A tick.
    Tick(Arc<Tick>),
    /// Some bytes cannot be read; the next tick says how many ticks that cost.
    Lost(Damage),
    /// The end, for now.
    End,
}

/// A recording with a place in it.
pub struct Tape {
    reader: Reader,
    at: u64,
    /// Segment of the tick that was read last.
    segment: Option<u32>,
    /// The tick before the next one, in its own run.
    before: Option<Stamp>,
    /// In the segment the ticks are so far apart, and their numbers further.
    step: Option<Duration>,
    /// The tick that was read last.
    last: Option<Arc<Tick>>,
}

impl Tape {
    /// At the beginning.
    #[must_use]
    pub fn new(reader: Reader) -> Self {
        Self { reader, at: 0, segment: None, before: None, step: None, last: None }
    }

    /// The recording.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }
    /// The same, to look at indexes.
    pub fn reader_mut(&mut self) -> &mut Reader {
        &mut self.reader
    }
    /// Number of ticks.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.reader.len()
    }
    /// No ticks?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reader.is_empty()
    }
    /// Number of the tick that comes next.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }
    /// Goes to a tick.
    pub fn seek(&mut self, tick: u64) {
        if tick == self.at {
            return;
        }
        (self.at, self.segment, self.before, self.last) = (tick, None, None, None);
        // What is missing before this tick is told wherever the playing begins.
        if let Some(before) = tick.checked_sub(1).filter(|b| self.segment(*b) == self.segment(tick))
        {
            self.before = self.stamp(before);
            self.segment = self.segment(tick);
            self.step = self.segment.and_then(|s| step(&self.host(s)));
        }
    }

    /// Takes in what was written since; true when there was something.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn refresh(&mut self) -> Result<bool, ReadError> {
        self.reader.refresh()
    }

    /// Number of the segment of a tick.
    #[must_use]
    pub fn segment(&self, tick: u64) -> Option<u32> {
        let (group, _) = self.reader.locate(tick)?;
        Some(self.reader.groups().get(group)?.segment)
    }
    /// Host of a segment; of the first one, where its header was lost.
    #[must_use]
    pub fn host(&self, segment: u32) -> HostInfo {
        let known = self.reader.segments().get(segment as usize);
        known.map_or_else(|| self.reader.host(), |s| s.1.host.clone())
    }
    /// First tick of the segment of a tick.
    #[must_use]
    pub fn start(&self, tick: u64) -> u64 {
        let segment = self.segment(tick);
        let groups = self.reader.groups();
        let first = groups.partition_point(|g| Some(g.segment) < segment);
        self.reader.first_of(first).unwrap_or(0)
    }
    /// When a tick was, without reading it.
    #[must_use]
    pub fn stamp(&mut self, tick: u64) -> Option<Stamp> {
        self.reader.tick_ref(tick).ok().map(|t| t.at)
    }
    /// The last tick at or before a time of day.
    pub fn at_wall(&mut self, wall: WallNs) -> Option<u64> {
        self.reader.at_wall(wall)
    }
    /// The last tick of a segment at or before a time; its first one when all are later.
    pub fn at_mono(&mut self, segment: u32, mono: MonoNs) -> Option<u64> {
        self.reader.at_mono(segment, mono)
    }

    /// What comes next; never fails: what cannot be read is passed over.
    pub fn play(&mut self) -> Played {
        let Some(segment) = self.segment(self.at) else { return Played::End };
        if self.segment != Some(segment) {
            (self.segment, self.before, self.last) = (Some(segment), None, None);
            let host = self.host(segment);
            self.step = step(&host);
            return Played::Segment(host);
        }
        let n = self.at;
        self.at += 1;
        match self.reader.tick(n) {
            Ok(tick) => Played::Tick(self.dress(n, &tick)),
            Err(ReadError::Damaged(d)) => Played::Lost(d),
            Err(e) => {
                let what = e.to_string();
                Played::Lost(Damage { offset: 0, bytes: 0, what, after: None })
            }
        }
    }

    /// The recorded tick as the source gives it.
    fn dress(&mut self, n: u64, raw: &Arc<Tick>) -> Arc<Tick> {
        let own = Stamp { seq: raw.seq, mono: raw.mono, wall: raw.wall };
        let old = self.last.take();
        let missing = self.before.map_or(0, |before| {
            // Thinned ticks are the first of each step: two steps may lie between two of them.
            let apart = match self.step {
                Some(d) => own.mono.since(before.mono).as_nanos() / d.as_nanos().max(1),
                None => u128::from(own.seq.0.saturating_sub(before.seq.0)),
            };
            u32::try_from(apart.saturating_sub(1)).unwrap_or(u32::MAX)
        });
        let mut tick = (**raw).clone();
        tick.seq = Seq(n);
        if missing > 0 {
            let more = tick.gap.map_or(0, |g| g.ticks);
            tick.gap = Some(Gap { ticks: more.saturating_add(missing) });
        }
        if let Some(old) = &old {
            let s = &mut tick.samples;
            share(&mut s.sockets, old.samples.sockets.as_ref());
            share(&mut s.netns_sockets, old.samples.netns_sockets.as_ref());
        }
        let tick = Arc::new(tick);
        (self.before, self.last) = (Some(own), Some(tick.clone()));
        tick
    }
}

/// Distance of the ticks of a segment that was thinned.
fn step(host: &HostInfo) -> Option<Duration> {
    host.thinned_from.map(|_| host.interval)
}

/// A namespace that was not due is the reading before: as in a live run, it is there once.
fn share(now: &mut Option<Shared<SocketsSample>>, before: Option<&Shared<SocketsSample>>) {
    let (Some(new), Some(old)) = (now.as_ref(), before) else { return };
    if Arc::ptr_eq(new, old) {
        return;
    }
    let known: HashMap<_, _> = old.data.spaces.iter().map(|o| (o.netns, o)).collect();
    let same = |t: &Arc<NetnsTable>| {
        let old = known.get(&t.netns).copied();
        old.filter(|o| o.span == t.span && o.inet.len() == t.inet.len())
    };
    if !new.data.spaces.iter().any(|t| same(t).is_some()) {
        return;
    }
    let spaces = new.data.spaces.iter().map(|t| same(t).unwrap_or(t).clone()).collect();
    let data = SocketsSample { spaces, unread: new.data.unread.clone() };
    *now = Some(Arc::new(Stamped { span: new.span, cpu: new.cpu, data }));
}
