//! `stallscope info`: the contents of a recording.

use std::collections::BTreeMap;

use serde::Serialize;

use super::verify::Survey;
use crate::recording::file::damage::{Damage, ReadError};
use crate::recording::file::index::{EventAt, GroupFinding};
use crate::recording::file::limits::Gathered;
use crate::recording::file::reader::Reader;
use crate::sample::tick::HostInfo;
use crate::sample::time::WallNs;

/// Version of the JSON; fields may be added.
pub const SCHEMA: u32 = 1;
#[derive(Debug, Serialize)]
pub struct Info {
    pub schema: u32,
    pub file: String,
    pub format: u8,
    pub size: u64,
    /// Bytes after the last complete block: a torn end, or one that is being written.
    pub torn_bytes: u64,
    pub sealed: bool,
    pub segments: Vec<SegmentInfo>,
    pub groups: usize,
    /// Time of the first tick, RFC 3339, UTC.
    pub first: Option<String>,
    /// Time of the last tick.
    pub last: Option<String>,
    /// Ticks that are missing, according to the events.
    pub missing_ticks: u64,
    pub events: Vec<EventAt>,
    /// Number of further events, if there are too many.
    pub events_left_out: u64,
    /// Findings, by rule and subject, with their ticks.
    pub findings: Vec<FindingSpan>,
    /// Mentions of other findings, if there are too many.
    pub findings_left_out: u64,
    /// Blocks of a newer version that were skipped.
    pub unknown_blocks: u64,
    pub content: Survey,
    pub damage: Vec<Damage>,
}

#[derive(Debug, Serialize)]
pub struct SegmentInfo {
    /// Offset of its header.
    pub offset: u64,
    pub host: HostInfo,
    pub ticks: u64,
    pub first: Option<String>,
    pub last: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct FindingSpan {
    pub rule: String,
    pub subject: String,
    /// The worst severity that it had.
    pub severity: String,
    /// Number in the file of the first tick in which it was active.
    pub first_tick: u64,
    pub last_tick: u64,
    pub first: Option<String>,
}

impl Info {
    /// Reads everything, to the last block, and tells how many groups of ticks are done.
    pub fn gather(
        r: &mut Reader,
        file: &str,
        told: impl FnMut(usize, usize),
    ) -> Result<Self, ReadError> {
        let content = r.survey_telling(told)?;
        let size = r.size()?;
        let said = r.events()?;
        let (findings, findings_left_out) = findings(r);
        let groups = r.groups();
        Ok(Self {
            schema: SCHEMA,
            file: file.to_owned(),
            format: crate::recording::file::format::VERSION,
            size,
            torn_bytes: size.saturating_sub(r.end()),
            sealed: r.is_sealed(),
            segments: segments(r),
            groups: groups.len(),
            first: groups.first().map(|g| time(g.first.wall)),
            last: groups.last().map(|g| time(g.last.wall)),
            missing_ticks: said.missing,
            events: said.list,
            events_left_out: said.left_out,
            findings,
            findings_left_out,
            unknown_blocks: r.unknown_blocks(),
            damage: r.damage().cloned().collect(),
            content,
        })
    }
}

fn segments(r: &Reader) -> Vec<SegmentInfo> {
    let list = r.segments().iter().enumerate();
    list.map(|(n, (offset, s))| {
        let place = |n: usize| r.groups().partition_point(|g| (g.segment as usize) < n);
        let mine = r.groups().get(place(n)..place(n + 1)).unwrap_or_default();
        SegmentInfo {
            offset: *offset,
            host: s.host.clone(),
            ticks: mine.iter().map(|g| u64::from(g.ticks)).sum(),
            first: mine.first().map(|g| time(g.first.wall)),
            last: mine.last().map(|g| time(g.last.wall)),
        }
    })
    .collect()
}

/// Findings of all groups, each once, and how often others were mentioned for which there is no
/// room.
fn findings(r: &mut Reader) -> (Vec<FindingSpan>, u64) {
    let mut known: BTreeMap<(String, String), FindingSpan> = BTreeMap::new();
    let mut all = Gathered::default();
    for g in 0..r.groups().len() {
        let (Ok(index), Some(base)) = (r.index(g), r.first_of(g)) else { continue };
        for GroupFinding { note, first, last } in &index.findings {
            let place = |seq| index.ticks.iter().position(|t| t.at.seq == seq).unwrap_or(0);
            let (from, to) = (place(*first), place(*last));
            let wall = index.ticks.get(from).map(|t| time(t.at.wall));
            let key = (note.rule.clone(), note.subject.clone());
            if !known.contains_key(&key) && !all.has_room(note.bytes()) {
                continue;
            }
            let f = known.entry(key).or_insert_with(|| FindingSpan {
                rule: note.rule.clone(),
                subject: note.subject.clone(),
                severity: note.severity.clone(),
                first_tick: base + from as u64,
                last_tick: 0,
                first: wall,
            });
            f.last_tick = f.last_tick.max(base + to as u64);
            if rank(&note.severity) > rank(&f.severity) {
                f.severity.clone_from(&note.severity);
            }
        }
    }
    let mut out: Vec<_> = known.into_values().collect();
    out.sort_by_key(|f| f.first_tick);
    (out, all.left_out)
}

/// `None` for the lowest.
fn rank(severity: &str) -> Option<usize> {
    ["warn", "crit"].iter().position(|s| *s == severity)
}

/// RFC 3339 in UTC, to the second.
pub fn time(t: WallNs) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(t.0))
        .map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        .unwrap_or_default()
}
