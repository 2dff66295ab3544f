//! The last minutes of a recording in memory, encoded as they would be in a file: whole groups of
//! ticks, the oldest of which fall out. Everything is done when a tick is taken in; nothing here
//! waits for anything.
//!
//! A group ends early when it spans a fifth of the time that is kept, so that what is kept is
//! at most that much longer than was asked for, whatever the interval.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::recording::codec::Stamp;
use crate::recording::file::index::{Event, TickSummary};
use crate::recording::file::writer::Writer;
use crate::recording::file::writer::group::EncodedGroup;
use crate::sample::CollectorId;
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::MonoNs;

/// Parts of the time, and of the bytes, that a group may take.
const GROUPS: u32 = 5;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// For how long.
    pub time: Duration,
    /// In how many bytes; one group is kept whatever its size.
    pub bytes: usize,
}

/// The groups, and the one that is being written.
pub struct Ring {
    keep: Keep,
    writer: Writer<Vec<u8>>,
    groups: VecDeque<Arc<EncodedGroup>>,
    /// Bytes of the groups.
    bytes: usize,
    /// First and last tick of the group that is being written.
    open: Option<(MonoNs, MonoNs)>,
    /// Ticks that could not be encoded since the last one that could.
    missing: u64,
    /// The last tick that fell out before its time.
    crowded: Option<MonoNs>,
}

/// What a recording begins with that continues a ring.
#[derive(Clone, Debug, Default)]
pub struct Held {
    pub(super) groups: Vec<Arc<EncodedGroup>>,
    /// Collectors of which it says that they fail.
    pub(super) failed: Vec<CollectorId>,
}

impl Held {
    /// Its first tick and its last.
    pub fn span(&self) -> Option<(Stamp, Stamp)> {
        Some((self.groups.first()?.first(), self.groups.last()?.last()))
    }
    pub fn ticks(&self) -> u64 {
        self.groups.iter().map(|g| g.ticks()).sum()
    }
}

impl Ring {
    /// An empty one.
    pub fn new(host: &HostInfo, keep: Keep) -> io::Result<Self> {
        let mut writer = Writer::new(Vec::new(), host)?;
        writer.forget();
        Ok(Self {
            keep,
            writer,
            groups: VecDeque::new(),
            bytes: 0,
            open: None,
            missing: 0,
            crowded: None,
        })
    }

    /// Takes in the next tick.
    pub fn push(&mut self, tick: &Tick, note: &TickSummary) {
        if self.try_push(tick, note).is_err() {
            self.missing += 1;
        }
        self.collect();
        let first = self.open.map_or(tick.mono, |o| o.0);
        let long = tick.mono.since(first) >= self.keep.time / GROUPS;
        if long || self.writer.get_ref().len() > self.keep.bytes / GROUPS as usize {
            self.end_group();
        }
        self.forget(tick.mono);
    }

    fn try_push(&mut self, tick: &Tick, note: &TickSummary) -> io::Result<()> {
        let at = Stamp::of(tick);
        if self.missing > 0 {
            let why = "too large to encode".to_owned();
            self.writer.event(at, Event::Dropped { ticks: self.missing, why })?;
            self.missing = 0;
        }
        let written = self.writer.tick(tick, note)?;
        let first = if written.keyframe { tick.mono } else { self.open.map_or(tick.mono, |o| o.0) };
        self.open = (!written.group_end).then_some((first, tick.mono));
        Ok(())
    }

    /// Takes in a mark of the user.
    pub fn mark(&mut self, at: Stamp, text: &str) {
        let _ = self.writer.event(at, Event::Mark { text: text.to_owned() });
    }

    fn end_group(&mut self) {
        // Memory takes what is written; what it was does not get better by another attempt.
        let _ = self.writer.end_group();
        self.open = None;
        self.collect();
    }

    /// Takes over what the writer has completed.
    fn collect(&mut self) {
        for g in self.writer.take_groups() {
            self.bytes += g.len();
            self.groups.push_back(Arc::new(g));
        }
    }

    /// Drops what is older than is kept, and what does not fit.
    fn forget(&mut self, now: MonoNs) {
        while let Some(oldest) = self.groups.front() {
            let old = now.since(oldest.last().mono) > self.keep.time;
            let alone = self.groups.len() == 1 && self.open.is_none();
            if alone || !old && self.bytes() <= self.keep.bytes {
                break;
            }
            if !old {
                self.crowded = Some(oldest.last().mono);
            }
            self.bytes -= oldest.len();
            self.groups.pop_front();
        }
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes + self.writer.get_ref().len()
    }

    /// From its first tick to its last.
    pub fn span(&self) -> Duration {
        let first = self.groups.front().map(|g| g.first().mono).or(self.open.map(|o| o.0));
        let last = self.open.map(|o| o.1).or(self.groups.back().map(|g| g.last().mono));
        last.zip(first).map_or(Duration::ZERO, |(l, f)| l.since(f))
    }

    /// Whether ticks that should still be here fell out for lack of room.
    pub fn is_crowded(&self, now: MonoNs) -> bool {
        self.crowded.is_some_and(|at| now.since(at) <= self.keep.time)
    }

    /// Everything that is kept. It stays here too, for the next one.
    pub fn held(&mut self) -> Held {
        self.end_group();
        Held {
            groups: self.groups.iter().cloned().collect(),
            failed: self.writer.failed().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;
    use crate::recording::Reader;
    use crate::sample::tick::{CollectorHealth, HealthState};
    use crate::sample::time::{Seq, WallNs};

    const SECOND: Duration = Duration::from_secs(1);

    fn tick(n: u64, interval: Duration) -> Tick {
        let at = 1_000_000_000 + n * interval.as_nanos() as u64;
        Tick {
            seq: Seq(n),
            mono: MonoNs(at),
            wall: WallNs(1_700_000_000_000_000_000 + at as i64),
            ..Tick::default()
        }
    }

    /// One that takes about so many bytes, which no compression makes less.
    fn noisy(n: u64, bytes: usize) -> Tick {
        let mut x = n + 1;
        let noise = std::iter::repeat_with(|| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + (x >> 33) as u8 % 64)
        });
        let state = HealthState::Failed { error: noise.take(bytes).collect() };
        let health = CollectorHealth { id: CollectorId::Cpu, state, signals: Vec::new() };
        Tick { health: vec![health], ..tick(n, SECOND) }
    }

    fn ring(seconds: u64, bytes: usize) -> Ring {
        let keep = Keep { time: Duration::from_secs(seconds), bytes };
        Ring::new(&HostInfo::default(), keep).unwrap()
    }

    /// The ticks of a recording that begins with what is held.
    fn written(held: &Held) -> Vec<u64> {
        let mut w = Writer::new(Vec::new(), &HostInfo::default()).unwrap();
        for g in &held.groups {
            w.append(g).unwrap();
        }
        let bytes = w.seal().unwrap();
        let sealed = read(bytes.clone());
        // As a kill leaves it: without the trailer.
        let end = bytes.len() - crate::recording::file::format::END;
        assert_eq!(read(bytes[..end].to_vec()), sealed);
        sealed
    }

    fn read(bytes: Vec<u8>) -> Vec<u64> {
        let mut r = Reader::new(Arc::new(bytes)).unwrap();
        let all = (0..r.len()).map(|i| r.tick(i).unwrap().seq.0).collect();
        assert_eq!(r.damage().count(), 0);
        all
    }

    #[test]
    fn it_holds_what_was_asked_for_and_at_most_a_fifth_more() {
        for (interval, ticks) in [(SECOND, 1000), (SECOND / 10, 5000), (60 * SECOND, 100)] {
            let mut r = ring(300, 64 << 20);
            for n in 0..ticks {
                r.push(&tick(n, interval), &TickSummary::default());
                let most = Duration::from_secs(360) + interval;
                assert!(r.span() <= most, "{interval:?}: {:?} after {n}", r.span());
            }
            assert!(r.span() + interval > Duration::from_secs(300), "{interval:?}: {:?}", r.span());
            assert!(!r.is_crowded(tick(ticks - 1, interval).mono));
            let held = r.held();
            let seen = written(&held);
            assert_eq!(seen.last(), Some(&(ticks - 1)));
            assert!(seen.windows(2).all(|w| w[1] == w[0] + 1), "{seen:?}");
            assert_eq!(held.ticks(), seen.len() as u64);
            let (first, last) = held.span().unwrap();
            assert_eq!((first.seq.0, last.seq.0), (seen[0], ticks - 1));
        }
    }

    #[test]
    fn it_goes_on_after_it_was_read() {
        let mut r = ring(300, 64 << 20);
        for n in 0..400 {
            r.push(&tick(n, SECOND), &TickSummary::default());
            if n % 7 == 0 {
                assert_eq!(written(&r.held()).last(), Some(&n));
            }
        }
        let seen = written(&r.held());
        assert!(seen.len() >= 300 && seen.windows(2).all(|w| w[1] == w[0] + 1), "{}", seen.len());
    }

    #[test]
    fn what_does_not_fit_falls_out_and_is_known_to_be_missing() {
        let mut r = ring(300, 1 << 20);
        for n in 0..200 {
            r.push(&noisy(n, 40_000), &TickSummary::default());
            assert!(r.bytes() <= 1 << 20, "{} after {n}", r.bytes());
        }
        assert!(r.is_crowded(noisy(199, 0).mono));
        let seen = written(&r.held());
        // 64 letters are 6 bits of 8: 40,000 of them take 30,000 bytes.
        assert!((20..36).contains(&seen.len()), "{} ticks", seen.len());
        assert_eq!(seen.last(), Some(&199));
        // One that alone is too large is kept all the same.
        let mut r = ring(300, 10_000);
        r.push(&noisy(0, 40_000), &TickSummary::default());
        r.push(&noisy(1, 40_000), &TickSummary::default());
        assert_eq!(written(&r.held()), [1]);
    }

    #[test]
    fn marks_and_failures_are_kept_with_their_group() {
        let mut r = ring(300, 64 << 20);
        let failing = noisy(0, 10);
        r.mark(Stamp::of(&failing), "before the first");
        for n in 0..100 {
            r.push(&noisy(n, 10), &TickSummary::default());
            if n == 70 {
                r.mark(Stamp::of(&noisy(n, 10)), "here");
            }
        }
        let held = r.held();
        assert_eq!(held.failed, [CollectorId::Cpu]);
        let mut w = Writer::new(Vec::new(), &HostInfo::default()).unwrap();
        for g in &held.groups {
            w.append(g).unwrap();
        }
        let mut reader = Reader::new(Arc::new(w.seal().unwrap())).unwrap();
        let mut events: Vec<Event> =
            reader.loose_events().iter().map(|e| e.event.clone()).collect();
        for g in 0..reader.groups().len() {
            events.extend(reader.index(g).unwrap().events.iter().map(|e| e.event.clone()));
        }
        let marks = events.iter().filter(|e| matches!(e, Event::Mark { .. })).count();
        let failures = events.iter().filter(|e| matches!(e, Event::CollectorError { .. })).count();
        assert_eq!((marks, failures), (2, 1), "{events:?}");
    }
}
