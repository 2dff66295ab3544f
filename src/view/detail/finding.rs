//! A finding: what it says, who causes it, what to type next; then the evidence over time with
//! thresholds, what was ruled out, what belongs to it.

use std::sync::Arc;
use std::time::Duration;

use crate::diagnose::{Confidence, Evidence, Finding, RuledOut};
use crate::metrics::bpf::{EventKey, EventRow};
use crate::sample::subject::Subject;
use crate::view::chrome::is;
use crate::view::context::Cx;
use crate::view::lines::{GAP, beside, finding};
use crate::view::panes::events;
use crate::view::series::Buckets;
use crate::view::state::FindingKey;
use crate::view::table::tone_of;
use crate::view::vm::{Line, Piece, Tone};
use crate::view::{series, text, units};

/// The finding at the time shown: active, else cleared.
pub(super) fn find<'a>(cx: &Cx<'a>, key: &FindingKey) -> Option<&'a Arc<Finding>> {
    let f = cx.now.findings;
    f.all().chain(&f.annotations).chain(&f.cleared).find(|f| is(f, key))
}

/// The finding, as many as there are, and its place among them: `2 of 3`.
pub(super) fn title(cx: &Cx<'_>, key: &FindingKey) -> String {
    let active = &cx.now.findings.active;
    match active.iter().position(|f| is(f, key)) {
        Some(at) if active.len() > 1 => format!("Finding {} of {}", at + 1, active.len()),
        _ => "Finding".to_owned(),
    }
}

/// Columns from which on parts of the page stand beside each other.
const WIDE: u16 = 110;

/// Where the right one of two parts begins, if both are to stand beside each other. The right part
/// has more room: commands and what was ruled out are longer than names and what is missing.
pub(super) fn split(w: u16) -> Option<usize> {
    (w >= WIDE).then(|| usize::from(w) * 2 / 5)
}

/// What it says, who is to blame and what to type come first: a small screen shows nothing else.
/// `split` is where the right one of two parts begins; without it they are below each other.
pub(super) fn lines(cx: &Cx<'_>, key: &FindingKey, w: u16, split: Option<usize>) -> Vec<Line> {
    let Some(f) = find(cx, key) else {
        return vec![
            Line::of(format!(" {}", key.rule), Tone::Strong),
            Line::of(" does not exist at the time shown", Tone::Dim),
        ];
    };
    let wide = room(usize::from(w));
    let mut out = head(cx, f, w);
    for l in text::wrap(&text::clean(&f.fire.summary), wide) {
        out.push(Line::of(format!("    {l}"), Tone::Strong));
    }
    consequence_of(cx, f, &mut out);
    // A command is to be read as a whole: where a part of the page cuts a word of it in two, or
    // needs more than two lines for it, the commands have the full width.
    let readable = |c: &String, wide| {
        let c = text::clean(c);
        c.split(' ').all(|word| text::width(word) <= wide) && text::wrap(&c, wide).len() <= 2
    };
    let whole = |at: &usize| {
        let wide = room(usize::from(w).saturating_sub(*at));
        f.fire.next.iter().all(|c| readable(c, wide))
    };
    out.extend(two(w, split.filter(whole), |wide| by(f, wide), |wide| next(f, wide)));
    if !f.fire.evidence.is_empty() {
        evidence(cx, key, f, wide, &mut out);
    }
    out.extend(two(w, split, |wide| cannot_tell(f, wide), |wide| ruled_out(f, wide)));
    explains(cx, f, &mut out);
    if !f.fire.examples.is_empty() {
        out.push(heading("examples"));
        out.extend(items(&f.fire.examples, wide, Tone::Plain));
    }
    out.extend(events(cx, f, wide));
    out
}

/// Columns for text on a page, or half a page, of `w` columns.
fn room(w: usize) -> usize {
    w.saturating_sub(4).max(10)
}

/// Two parts, each made for the room that it has: beside each other, unless one is empty or
/// wrapping makes the page longer than it is with the second below the first.
fn two(
    w: u16,
    split: Option<usize>,
    first: impl Fn(usize) -> Vec<Line>,
    second: impl Fn(usize) -> Vec<Line>,
) -> Vec<Line> {
    let w = usize::from(w);
    let (mut below, last) = (first(room(w)), second(room(w)));
    let all = below.len() + last.len();
    if let (Some(at), false, false) = (split, below.is_empty(), last.is_empty()) {
        let left = first(room(at.saturating_sub(GAP)));
        let both = beside(left, second(room(w.saturating_sub(at))), at);
        if both.len() <= all {
            return both;
        }
    }
    below.extend(last);
    below
}

/// Who causes it.
fn by(f: &Finding, wide: usize) -> Vec<Line> {
    let list: Vec<String> = f.fire.by.iter().map(ToString::to_string).collect();
    part(heading("by"), items(&list, wide, Tone::Strong))
}

/// What to type.
fn next(f: &Finding, wide: usize) -> Vec<Line> {
    let head = heading("next").with("  y copies the first", Tone::Dim);
    part(head, items(&f.fire.next, wide, Tone::Strong))
}

fn cannot_tell(f: &Finding, wide: usize) -> Vec<Line> {
    part(heading("cannot tell"), items(&f.fire.missing, wide, Tone::Plain))
}

fn ruled_out(f: &Finding, wide: usize) -> Vec<Line> {
    let each = |r: &RuledOut| {
        let all = format!("{}: {}", text::clean(&r.rule), text::clean(&r.because));
        hanging(&all, wide, Tone::Plain)
    };
    part(heading("ruled out"), f.fire.ruled_out.iter().flat_map(each).collect())
}

/// Lines below their heading; nothing where there are none.
fn part(head: Line, lines: Vec<Line>) -> Vec<Line> {
    if lines.is_empty() { lines } else { std::iter::once(head).chain(lines).collect() }
}

/// Rule, subject, and since when; the latter on a line of its own where there is no room.
fn head(cx: &Cx<'_>, f: &Finding, w: u16) -> Vec<Line> {
    let s = cx.now.findings.severity(f);
    let mut head = Line::of(format!(" {:<2} {}  ", s.mark(), s.name()), tone_of(s));
    head.add(f.rule.0, Tone::Strong);
    head.add(format!("  {}", text::clean(&f.subject.to_string())), Tone::Plain);
    if f.fire.count > 1 {
        head.add(format!("  x{}", f.fire.count), Tone::Plain);
    }
    let confidence = match f.fire.confidence {
        Confidence::Confirmed => "confirmed",
        Confidence::Suspected => "suspected",
    };
    let since = format!("{confidence}, {}", since(cx, f));
    if head.width() + since.len() + 2 <= usize::from(w) {
        return vec![head.right(since + " ", Tone::Dim)];
    }
    vec![head, Line::of(format!("    {since}"), Tone::Dim)]
}

fn consequence_of(cx: &Cx<'_>, f: &Finding, out: &mut Vec<Line>) {
    if let Some(cause) = cx.now.findings.cause_of(f) {
        out.push(heading("a consequence of"));
        out.push(finding(cx, cause, "    "));
    }
}

/// What it explains.
fn explains(cx: &Cx<'_>, f: &Finding, out: &mut Vec<Line>) {
    let mut folded = cx.now.findings.consequences(f).peekable();
    if folded.peek().is_some() {
        let (own, all) = (f.fire.severity, cx.now.findings.severity(f));
        out.push(if own < all {
            heading("explains").with(
                format!("  these raise it to {}; {} on its own", all.name(), own.name()),
                Tone::Dim,
            )
        } else {
            heading("explains")
        });
        out.extend(folded.map(|f| finding(cx, f, "    ")));
    }
}

fn heading(s: &'static str) -> Line {
    Line::of(format!(" {s}"), Tone::Accent)
}

fn items(list: &[String], wide: usize, tone: Tone) -> Vec<Line> {
    list.iter()
        .flat_map(|s| text::wrap(&text::clean(s), wide))
        .map(|l| Line::of(format!("    {l}"), tone))
        .collect()
}

/// One text, continued below its beginning.
fn hanging(s: &str, wide: usize, tone: Tone) -> Vec<Line> {
    let lines = text::wrap(s, wide.saturating_sub(2).max(8)).into_iter().enumerate();
    let indent = |i| if i == 0 { "    " } else { "      " };
    lines.map(|(i, l)| Line::of(format!("{}{l}", indent(i)), tone)).collect()
}

fn since(cx: &Cx<'_>, f: &Finding) -> String {
    if f.active {
        let lasted = units::age(cx.mono().since(f.since));
        return format!("since {}, for {lasted}", cx.clock(f.first_seen));
    }
    format!("{} until {} (ended)", cx.clock(f.first_seen), cx.clock(f.last_seen))
}

/// Columns of the table of evidence.
struct Widths {
    name: usize,
    limit: usize,
    chart: usize,
}

/// Each number with its limit and the last minute, and below it what it says. A finding keeps its
/// evidence in the same order from tick to tick.
fn evidence(cx: &Cx<'_>, key: &FindingKey, f: &Finding, wide: usize, out: &mut Vec<Line>) {
    let all = &f.fire.evidence;
    let limits = all.iter().filter_map(|e| Some(text::width(&limit(e.value?, e)?)));
    let names = all.iter().map(|e| text::width(&text::clean(&e.field)));
    let widths = Widths {
        name: names.max().unwrap_or(0).clamp(8, 18),
        limit: limits.max().unwrap_or(0),
        chart: (wide / 5).clamp(6, 30),
    };
    let Widths { name, limit: over, chart } = widths;
    let mut head = heading("evidence");
    head.fit(4 + name);
    head.add(format!("{:>11}  ", "now"), Tone::Dim);
    if over > 0 {
        head.add(format!("{:<over$}  ", "limit"), Tone::Dim);
    }
    head.add(format!("{:<chart$}", "last minute"), Tone::Dim);
    out.push(if all.iter().any(|e| e.value.is_some()) { head } else { heading("evidence") });
    for (i, e) in all.iter().enumerate() {
        row(cx, key, i, e, &widths, wide, out);
    }
}

/// `> 5.00/s`: how it stands to its threshold.
fn limit(v: f64, e: &Evidence) -> Option<String> {
    let t = e.threshold?;
    let sign = if v >= t { '>' } else { '<' };
    // Thresholds are round numbers.
    Some(format!("{sign} {}", units::quantity(t, e.unit).replace(".00s", "s")))
}

fn row(
    cx: &Cx<'_>,
    key: &FindingKey,
    index: usize,
    e: &Evidence,
    widths: &Widths,
    wide: usize,
    out: &mut Vec<Line>,
) {
    let Widths { name: width, limit: over, chart } = *widths;
    let name = text::cut(&text::clean(&e.field), width).into_owned();
    let mut line = Line::of(format!("    {name:<width$}"), Tone::Dim);
    if let Some(v) = e.value {
        line.add(format!("{:>11}  ", units::quantity(v, e.unit)), Tone::Strong);
        if over > 0 {
            line.add(format!("{:<over$}  ", limit(v, e).unwrap_or_default()), Tone::Dim);
        }
        let interval = cx.analysis.host().interval;
        let b = Buckets::new(cx.mono(), Duration::from_secs(60), interval, chart);
        let values = over_time(cx, key, index, &e.field, b);
        let top = series::greatest(&values).unwrap_or(0.0).max(v).max(e.threshold.unwrap_or(0.0));
        line.push(Piece::Spark(series::levels(&values, top), Tone::Plain));
    }
    line.add("  ", Tone::Plain);
    let words = text::clean(&e.text).into_owned();
    if line.width() + text::width(&words) <= wide + 4 {
        line.add(words, Tone::Plain);
        out.push(line);
        return;
    }
    out.push(line);
    for l in text::wrap(&words, wide.saturating_sub(2).max(10)) {
        out.push(Line::of(format!("      {l}"), Tone::Plain));
    }
}

fn over_time(
    cx: &Cx<'_>,
    key: &FindingKey,
    index: usize,
    field: &str,
    b: Buckets,
) -> Vec<Option<f64>> {
    series::maxima(cx, b, |m| {
        let then = cx.analysis.at(m.tick.seq)?;
        let f = then.findings.all().chain(&then.findings.annotations).find(|f| is(f, key))?;
        let e = f.fire.evidence.get(index).filter(|e| e.field == field);
        e.or_else(|| f.fire.evidence.iter().find(|e| e.field == field))?.value
    })
}

/// Rows of events about the network that are shown with a finding.
const EVENTS: usize = 4;

/// What the kernel did at the same time to the same connections, and which packets it dropped: a drop
/// is the cause of many a retransmit.
fn events(cx: &Cx<'_>, f: &Finding, wide: usize) -> Vec<Line> {
    let remote = match &f.subject {
        Subject::Peer { remote, .. } => Some(*remote),
        Subject::Listener { .. } | Subject::Netns { .. } | Subject::Link { .. } => None,
        _ if f.fire.sockets.is_empty() => return Vec::new(),
        _ => None,
    };
    let rows = cx.events.map_or(&[][..], |e| e.value);
    let belongs = |r: &EventRow| match &r.key {
        EventKey::Drop { .. } => true,
        EventKey::Flow { ends, .. } => {
            r.socket.is_some_and(|s| f.fire.sockets.contains(&s))
                || remote.is_some_and(|to| ends.is_some_and(|(_, e)| e == to))
        }
    };
    let mut rows: Vec<&Arc<EventRow>> =
        rows.iter().filter(|r| r.last >= f.since && belongs(r)).collect();
    rows.sort_by_key(|r| (std::cmp::Reverse(r.total), r.id));
    let more = rows.len().saturating_sub(EVENTS);
    let mut out: Vec<Line> = Vec::new();
    for r in rows.into_iter().take(EVENTS) {
        let kind = events::kind_name(&r.key);
        let mut line = Line::of(format!("    {:>7} {kind:<11} ", units::int(r.total)), Tone::Plain);
        let last = format!("  last {}", cx.clock(cx.wall_of(r.last)));
        let room = wide.saturating_sub(line.width() + last.len()).max(20);
        line.add(events::subject(r, room), Tone::Plain);
        out.push(line.with(last, Tone::Dim));
    }
    if !out.is_empty() {
        out.insert(0, heading("events at the same time"));
    }
    if more > 0 {
        out.push(Line::of(format!("    + {more} more in the pane Events"), Tone::Dim));
    }
    out
}
