//! What a recording says without decoding its ticks: the payloads of index, trailer and event
//! blocks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::format::GROUP_TICKS;
use super::limits::{MAX_GROUPS, MAX_NAMED, MAX_NOTED, clip};
use crate::recording::codec::Stamp;
use crate::sample::time::{MonoNs, Seq, WallNs};

/// What the recorder knows about a tick besides its data, for timelines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TickSummary {
    /// One figure per line of the timeline, by a stable name such as `runq.p99-us`.
    pub figures: Vec<(Cow<'static, str>, f64)>,
    /// Findings that are active at this tick.
    pub findings: Vec<ActiveFinding>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActiveFinding {
    pub rule: String,
    pub subject: String,
    /// `info`, `warn` or `crit`.
    pub severity: String,
}

/// Something other than a tick that belongs on the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Ticks that the source left out before this one: the consumer was too slow.
    Gap {
        ticks: u32,
    },
    /// Ticks that were not recorded: the queue or the disk was full.
    Dropped {
        ticks: u64,
        why: String,
    },
    ClockStep {
        /// By how much, ns.
        by_ns: i64,
    },
    /// A collector failed that had not failed in the previous tick.
    CollectorError {
        collector: String,
        error: String,
    },
    Mark {
        text: String,
    },
    /// Of a later version.
    #[serde(other)]
    Unknown,
}

impl Event {
    /// Ticks that are missing because of it.
    pub fn missing(&self) -> u64 {
        match self {
            Self::Gap { ticks } => u64::from(*ticks),
            Self::Dropped { ticks, .. } => *ticks,
            _ => 0,
        }
    }

    /// With its texts no longer than a reader takes them.
    pub(super) fn clipped(mut self) -> Self {
        match &mut self {
            Self::Dropped { why: text, .. } | Self::Mark { text } => clip(text),
            Self::CollectorError { collector, error } => {
                clip(collector);
                clip(error);
            }
            Self::Gap { .. } | Self::ClockStep { .. } | Self::Unknown => {}
        }
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EventAt {
    pub at: Stamp,
    #[serde(flatten)]
    pub event: Event,
}

impl EventAt {
    /// Bytes that it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let texts = match &self.event {
            Event::Dropped { why: text, .. } | Event::Mark { text } => text.len(),
            Event::CollectorError { collector, error } => collector.len() + error.len(),
            Event::Gap { .. } | Event::ClockStep { .. } | Event::Unknown => 0,
        };
        size_of::<Self>() + texts
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickRef {
    pub at: Stamp,
    /// Offset of its block from the keyframe of its group.
    pub offset: u32,
}

/// Least, most and sum of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub min: f64,
    pub max: f64,
    /// Of all ticks that have it.
    pub sum: f64,
    pub n: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupFinding {
    #[serde(flatten)]
    pub note: ActiveFinding,
    /// First tick of the group in which it is active.
    pub first: Seq,
    /// Last tick of the group in which it is active.
    pub last: Seq,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupIndex {
    #[serde(serialize_with = "put_ticks", deserialize_with = "get_ticks")]
    pub ticks: Vec<TickRef>,
    #[serde(deserialize_with = "few_named")]
    pub figures: BTreeMap<String, Figure>,
    /// Findings in the order in which they came.
    #[serde(deserialize_with = "few::<_, _, MAX_NOTED>")]
    pub findings: Vec<GroupFinding>,
    /// Events in the order in which they came.
    #[serde(deserialize_with = "few::<_, _, MAX_NOTED>")]
    pub events: Vec<EventAt>,
    /// Hashes of the last tick's sections, to verify what was rebuilt from differences.
    #[serde(deserialize_with = "few::<_, _, MAX_NAMED>")]
    pub state: Vec<(String, u32)>,
}

impl ActiveFinding {
    /// Bytes that it takes in memory, with what a list of all findings says of it.
    pub(crate) fn bytes(&self) -> usize {
        // A name for it in the list, and one to find it again.
        2 * (size_of::<GroupFinding>() + self.rule.len() + self.subject.len()) + 64
    }
}

impl GroupIndex {
    /// Bytes that it takes in memory, at most: its lists, and texts no longer than its JSON. Two
    /// bytes of JSON (`{}`) may be a hundred here.
    pub(crate) fn bytes(&self, json: usize) -> usize {
        json + self.ticks.len() * size_of::<TickRef>()
            + self.figures.len() * 2 * size_of::<(String, Figure)>()
            + self.findings.len() * size_of::<GroupFinding>()
            + self.events.len() * size_of::<EventAt>()
            + self.state.len() * size_of::<(String, u32)>()
    }
    /// Takes in what is known of a tick.
    pub fn note(&mut self, tick: TickRef, note: &TickSummary) {
        self.ticks.push(tick);
        // JSON has no infinities, and they say nothing on a timeline either.
        for (name, v) in note.figures.iter().filter(|f| f.1.is_finite()) {
            self.figure(name, Figure { min: *v, max: *v, sum: *v, n: 1 });
        }
        for f in &note.findings {
            self.finding(f, tick.at.seq, tick.at.seq);
        }
    }
    /// Takes in what another group says of all its ticks.
    pub(crate) fn note_group(&mut self, other: &Self) {
        for (name, f) in &other.figures {
            self.figure(name, *f);
        }
        for f in &other.findings {
            self.finding(&f.note, f.first, f.last);
        }
    }
    fn figure(&mut self, name: &str, more: Figure) {
        let Some(f) = self.figures.get_mut(name) else {
            self.figures.insert(name.to_owned(), more);
            return;
        };
        f.min = f.min.min(more.min);
        f.max = f.max.max(more.max);
        f.sum += more.sum;
        f.n = f.n.saturating_add(more.n);
    }
    fn finding(&mut self, note: &ActiveFinding, first: Seq, last: Seq) {
        match self.findings.iter_mut().find(|known| known.note == *note) {
            Some(known) => known.last = last,
            None => self.findings.push(GroupFinding { note: note.clone(), first, last }),
        }
    }
}

/// A group, as the trailer knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupEntry {
    /// Offset of its keyframe.
    pub offset: u64,
    /// Offset of its index; `None` for a group that was cut off.
    pub index: Option<u64>,
    /// Offset after its last block.
    pub end: u64,
    pub ticks: u32,
    pub first: Stamp,
    pub last: Stamp,
    /// Number of its segment in the file, from 0.
    pub segment: u32,
}

/// All groups of a file that was closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trailer {
    /// In the order of the file.
    #[serde(deserialize_with = "few::<_, _, MAX_GROUPS>")]
    pub groups: Vec<GroupEntry>,
    /// Offsets of the segments' headers. Each has a group at least.
    #[serde(deserialize_with = "few::<_, _, MAX_GROUPS>")]
    pub segments: Vec<u64>,
}

/// Each tick as its distance from the one before: offset, seq, mono, and wall minus mono.
fn put_ticks<S: Serializer>(ticks: &[TickRef], s: S) -> Result<S::Ok, S::Error> {
    let mut last = TickRef::default();
    s.collect_seq(ticks.iter().map(|t| {
        let d = (
            t.offset.wrapping_sub(last.offset),
            t.at.seq.0.wrapping_sub(last.at.seq.0),
            t.at.mono.0.wrapping_sub(last.at.mono.0),
            drift(t.at).wrapping_sub(drift(last.at)),
        );
        last = *t;
        d
    }))
}

fn get_ticks<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<TickRef>, D::Error> {
    let steps: Vec<(u32, u64, u64, i64)> = few::<_, _, { GROUP_TICKS as usize }>(d)?;
    let (mut t, mut off) = (TickRef::default(), 0i64);
    Ok(steps
        .into_iter()
        .map(|(offset, seq, mono, wall)| {
            off = off.wrapping_add(wall);
            t.offset = t.offset.wrapping_add(offset);
            t.at.seq = Seq(t.at.seq.0.wrapping_add(seq));
            t.at.mono = MonoNs(t.at.mono.0.wrapping_add(mono));
            t.at.wall = WallNs(off.wrapping_add_unsigned(t.at.mono.0));
            t
        })
        .collect())
}

/// A list of limited length: what is written in a few bytes may take a hundred in memory.
fn few<'de, D, T, const MOST: usize>(d: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Few<T, const MOST: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Few<T, MOST> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST}")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Vec<T>, A::Error> {
            let mut out = Vec::new();
            while let Some(next) = all.next_element()? {
                if out.len() >= MOST {
                    return Err(A::Error::invalid_length(MOST + 1, &self));
                }
                out.push(next);
            }
            Ok(out)
        }
    }
    d.deserialize_seq(Few::<T, MOST>(PhantomData))
}

/// The same of what has names.
fn few_named<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    d: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    struct Few<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
        type Value = BTreeMap<String, T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MAX_NAMED} names")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut out = BTreeMap::new();
            while let Some((name, value)) = all.next_entry()? {
                out.insert(name, value);
                if out.len() > MAX_NAMED {
                    return Err(A::Error::invalid_length(out.len(), &self));
                }
            }
            Ok(out)
        }
    }
    d.deserialize_map(Few(PhantomData))
}

/// Wall clock minus monotonic clock.
pub(super) fn drift(at: Stamp) -> i64 {
    at.wall.0.wrapping_sub_unsigned(at.mono.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_index_comes_back() {
        let mut index = GroupIndex::default();
        for n in 0..5u64 {
            let at = Stamp {
                seq: Seq(n * 2 + 7),
                mono: MonoNs(n * 1_000_000_007),
                wall: WallNs(1_700_000_000_000_000_000 + n as i64 * 999_999_999),
            };
            let f =
                ActiveFinding { rule: "r".into(), subject: "s".into(), severity: "warn".into() };
            let note = TickSummary {
                figures: vec![("a".into(), n as f64 - 1.0), ("nan".into(), f64::NAN)],
                findings: if n % 2 == 1 { vec![f] } else { Vec::new() },
            };
            index.note(TickRef { at, offset: n as u32 * 100 }, &note);
            index.events.push(EventAt { at, event: Event::Gap { ticks: 3 } });
        }
        let text = serde_json::to_string(&index).unwrap();
        assert_eq!(serde_json::from_str::<GroupIndex>(&text).unwrap(), index);
        assert_eq!(index.figures.len(), 1);
        let f = index.figures["a"];
        assert_eq!((f.min, f.max, f.sum, f.n), (-1.0, 3.0, 5.0, 5));
        assert_eq!((index.findings[0].first, index.findings[0].last), (Seq(9), Seq(13)));
    }

    /// 49 kB of JSON, 1.4 MB in memory: that is what a cache must count.
    #[test]
    fn an_index_is_as_large_as_its_lists() {
        let json = format!(r#"{{"findings":[{}]}}"#, vec!["{}"; MAX_NOTED].join(","));
        let index: GroupIndex = serde_json::from_str(&json).unwrap();
        assert_eq!(index.findings.len(), MAX_NOTED);
        assert!(json.len() < 50_000);
        assert!(index.bytes(json.len()) >= MAX_NOTED * size_of::<GroupFinding>());
        let most = format!(r#"{{"segments":[{}]}}"#, vec!["1"; MAX_GROUPS + 1].join(","));
        assert!(serde_json::from_str::<Trailer>(&most).is_err());
    }

    #[test]
    fn events_of_later_versions_are_no_error() {
        let r: Event = serde_json::from_str(r#"{"event":"eclipse","of":"the sun"}"#).unwrap();
        assert_eq!(r, Event::Unknown);
    }
}
