//! The contents of a recording as text.

use crate::diagnose::limits;
use crate::recording::Event;
use crate::recording::tools::info::{Info, time};
use crate::recording::tools::redact::BOOT;
use crate::recording::tools::verify::Survey;
use crate::sample::tick::HostInfo;
use crate::text::sanitize;

/// Events and damaged places that the text lists.
const LISTED: usize = 20;

/// One line, whatever the names contain.
macro_rules! line {
    ($to:expr, $($arg:tt)*) => {{
        $to.push_str(&sanitize(&format!($($arg)*)));
        $to.push('\n');
    }};
}

/// As text. Host names and texts from users are made safe to show.
pub fn text(info: &Info) -> String {
    let mut o = String::new();
    let state = if info.sealed { "closed" } else { "not closed (still being written, or killed)" };
    line!(o, "{}: recording, format {}, {state}", info.file, info.format);
    let (first, last) = (info.first.as_deref(), info.last.as_deref());
    line!(o, "  time      {} to {}", first.unwrap_or("-"), last.unwrap_or("-"));
    let c = &info.content;
    let (ticks, groups, gaps, lost) = (c.ticks, info.groups, info.missing_ticks, c.lost);
    line!(o, "  ticks     {ticks} in {groups} groups; {gaps} missing, {lost} lost to damage");
    let per = (c.keyframe_bytes + c.delta_bytes).checked_div(c.ticks).unwrap_or(0);
    line!(o, "  size      {} bytes, {per} per tick", info.size);
    for s in &info.segments {
        let HostInfo { hostname, kernel, cpus, tool, interval, thinned_from, .. } = &s.host;
        let (boot, ticks) = (boot(&s.host.boot_id), s.ticks);
        let of = thinned_from.map_or_else(String::new, |d| format!(" (downsampled from {d:?})"));
        let from = s.first.as_deref().unwrap_or("-");
        line!(
            o,
            "  host      {hostname}, kernel {kernel}, {cpus} CPUs, boot {boot}, by {tool}: \
             {ticks} ticks, each {interval:?}{of}, from {from}"
        );
        if let Some(rules) = limits::configured(&s.host.rules) {
            line!(o, "            configured thresholds: {rules}");
        }
    }
    lists(info, &mut o);
    sections(c, &mut o);
    o
}

fn lists(info: &Info, o: &mut String) {
    if info.findings.is_empty() {
        line!(o, "  findings  none noted");
    }
    for f in info.findings.iter().take(LISTED) {
        let at = f.first.as_deref().unwrap_or("-");
        let (rule, subject) = (&f.rule, &f.subject);
        let ticks = f.last_tick - f.first_tick + 1;
        line!(o, "  finding   {at} {} {rule}: {subject}, {ticks} ticks", f.severity);
    }
    more(o, info.findings.len(), info.findings_left_out);
    for r in info.events.iter().take(LISTED) {
        line!(o, "  event     {} {}", time(r.at.wall), words(&r.event));
    }
    more(o, info.events.len(), info.events_left_out);
    if info.unknown_blocks > 0 {
        line!(o, "  unknown   {} blocks of a newer version", info.unknown_blocks);
    }
    for d in info.damage.iter().take(LISTED) {
        let after = d.after.map_or_else(String::new, |a| format!(", after {}", time(a.wall)));
        line!(o, "  damage    {d}{after}");
    }
    more(o, info.damage.len(), 0);
    if info.torn_bytes > 0 {
        line!(o, "  torn end  {} bytes of a block", info.torn_bytes);
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
        Some(start) if !id.starts_with(BOOT) => start,
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
