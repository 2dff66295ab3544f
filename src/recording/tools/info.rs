//! `stallscope info`: the contents of a recording, as text and as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::verify::Survey;
use crate::recording::file::damage::{Damage, ReadError};
use crate::recording::file::index::{Event, EventAt, GroupFinding};
use crate::recording::file::limits::Gathered;
use crate::recording::file::reader::Reader;
use crate::sample::tick::HostInfo;
use crate::sample::time::WallNs;
use crate::text::sanitize;

/// Version of the JSON; fields may be added.
pub const SCHEMA: u32 = 1;
/// Events and damaged places that the text lists.
const LISTED: usize = 20;

/// One line, whatever the names contain.
macro_rules! line {
    ($to:expr, $($arg:tt)*) => {{
        $to.push_str(&sanitize(&format!($($arg)*)));
        $to.push('\n');
    }};
}

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
    /// Reads everything, to the last block.
    pub fn gather(r: &mut Reader, file: &str) -> Result<Self, ReadError> {
        let content = r.survey()?;
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

    /// As text. Host names and texts from users are made safe to show.
    pub fn text(&self) -> String {
        let mut o = String::new();
        let state =
            if self.sealed { "closed" } else { "not closed (still being written, or killed)" };
        line!(o, "{}: recording, format {}, {state}", self.file, self.format);
        let (first, last) = (self.first.as_deref(), self.last.as_deref());
        line!(o, "  time      {} to {}", first.unwrap_or("-"), last.unwrap_or("-"));
        let c = &self.content;
        let (ticks, groups, gaps, lost) = (c.ticks, self.groups, self.missing_ticks, c.lost);
        line!(o, "  ticks     {ticks} in {groups} groups; {gaps} missing, {lost} lost to damage");
        let per = (c.keyframe_bytes + c.delta_bytes).checked_div(c.ticks).unwrap_or(0);
        line!(o, "  size      {} bytes, {per} per tick", self.size);
        for s in &self.segments {
            let HostInfo { hostname, kernel, cpus, tool, interval, thinned_from, .. } = &s.host;
            let (boot, ticks) = (boot(&s.host.boot_id), s.ticks);
            let of =
                thinned_from.map_or_else(String::new, |d| format!(" (downsampled from {d:?})"));
            let from = s.first.as_deref().unwrap_or("-");
            line!(
                o,
                "  host      {hostname}, kernel {kernel}, {cpus} CPUs, boot {boot}, by {tool}: \
                 {ticks} ticks, each {interval:?}{of}, from {from}"
            );
        }
        self.lists(&mut o);
        sections(c, &mut o);
        o
    }

    fn lists(&self, o: &mut String) {
        if self.findings.is_empty() {
            line!(o, "  findings  none noted");
        }
        for f in self.findings.iter().take(LISTED) {
            let at = f.first.as_deref().unwrap_or("-");
            let (rule, subject) = (&f.rule, &f.subject);
            let ticks = f.last_tick - f.first_tick + 1;
            line!(o, "  finding   {at} {} {rule}: {subject}, {ticks} ticks", f.severity);
        }
        more(o, self.findings.len(), self.findings_left_out);
        for r in self.events.iter().take(LISTED) {
            line!(o, "  event     {} {}", time(r.at.wall), words(&r.event));
        }
        more(o, self.events.len(), self.events_left_out);
        if self.unknown_blocks > 0 {
            line!(o, "  unknown   {} blocks of a newer version", self.unknown_blocks);
        }
        for d in self.damage.iter().take(LISTED) {
            let after = d.after.map_or_else(String::new, |a| format!(", after {}", time(a.wall)));
            line!(o, "  damage    {d}{after}");
        }
        more(o, self.damage.len(), 0);
        if self.torn_bytes > 0 {
            line!(o, "  torn end  {} bytes of a block", self.torn_bytes);
        }
    }
}

fn more(o: &mut String, have: usize, left_out: u64) {
    let more = have.saturating_sub(LISTED) as u64 + left_out;
    if more > 0 {
        line!(o, "            and {more} more");
    }
}

fn sections(c: &Survey, o: &mut String) {
    let (key, delta, other) = (c.keyframe_bytes, c.delta_bytes, c.other_bytes);
    line!(o, "  bytes     keyframes {key}, deltas {delta}, other {other}");
    let checked = c.states_verified + c.states_wrong;
    line!(o, "  state     {} of {checked} groups verified", c.states_verified);
    let mut list: Vec<_> = c.sections.iter().collect();
    list.sort_by_key(|s| std::cmp::Reverse(*s.1));
    line!(o, "  sections  bytes per tick before compression:");
    for (name, bytes) in list {
        let per = bytes.checked_div(c.ticks).unwrap_or(0);
        line!(o, "    {name:<16} {per:>8}");
    }
}

/// Enough of the kernel's id to distinguish boots; a pseudonym is short enough.
fn boot(id: &str) -> &str {
    match id.get(..8) {
        _ if id.is_empty() => "unknown",
        Some(start) if !id.starts_with(super::redact::BOOT) => start,
        _ => id,
    }
}

/// An event as a sentence fragment.
pub fn words(r: &Event) -> String {
    match r {
        Event::Gap { ticks } => format!("gap: {ticks} ticks are missing"),
        Event::Dropped { ticks, why } => format!("gap: {ticks} ticks were not recorded: {why}"),
        Event::ClockStep { by_ns } => {
            format!("the wall clock was set by {:+.3} s", *by_ns as f64 / 1e9)
        }
        Event::CollectorError { collector, error } => format!("{collector} failed: {error}"),
        Event::Mark { text } => format!("mark: {text}"),
        Event::Unknown => "an event of a newer version".to_owned(),
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
fn time(t: WallNs) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(t.0))
        .map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        .unwrap_or_default()
}
