//! A finding as a section of the page: what `check` says of it, in the same words, with the numbers
//! of its evidence in columns and over time.

use std::time::Duration;

use super::axis::Axis;
use super::document::{Bar, Number, Plot, Row, Section, clean};
use super::seen::{Key, Seen};
use crate::diagnose::culprit::Culprit;
use crate::diagnose::{Confidence, Evidence, Finding};
use crate::report::CheckReport;
use crate::report::text::scope;
use crate::sample::time::WallNs;
use crate::view::units;

/// Plots of one finding at most.
const MAX_PLOTS: usize = 4;
/// Bars on one row of the timeline.
const MAX_BARS: usize = 100;

/// What a section is made of.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) report: &'a CheckReport,
    pub(super) seen: &'a Seen,
    pub(super) axis: Axis,
    /// Where the recording ends.
    pub(super) end: WallNs,
}

/// Whether a section has plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plots {
    Drawn,
    LeftOut,
}

pub(super) fn key(f: &Finding) -> Key {
    (f.rule, f.subject.clone())
}

/// The section of a finding, without its consequences.
pub(super) fn section(s: &Context<'_>, f: &Finding, id: usize, plots: Plots) -> Section {
    let texts = |list: &[String]| list.iter().map(|t| clean(t)).collect::<Vec<_>>();
    Section {
        id,
        severity: s.report.severity(f),
        rule: f.rule.0,
        summary: clean(&f.fire.summary),
        subject: clean(&f.subject.to_string()),
        is_suspected: f.fire.confidence == Confidence::Suspected,
        is_over: !f.active,
        when: when(s, f),
        scope: clean(&scope(f)),
        remarks: remarks(s, f),
        evidence: f.fire.evidence.iter().map(number).collect(),
        plots: if plots == Plots::Drawn { drawn(s, f) } else { Vec::new() },
        by: f.fire.by.iter().map(blamed).collect(),
        ruled_out: f.fire.ruled_out.iter().map(|r| (clean(&r.rule), clean(&r.because))).collect(),
        missing: texts(&f.fire.missing),
        commands: texts(&f.fire.next),
        consequences: Vec::new(),
    }
}

/// From when to when, and for how long.
pub(super) fn when(s: &Context<'_>, f: &Finding) -> String {
    let from = s.axis.time(f.first_seen);
    if f.active {
        let lasted = between(f.first_seen, s.end);
        return format!("since {from}, for {lasted}, and still there at the end");
    }
    let lasted = between(f.first_seen, f.last_seen);
    format!("from {from} to {}, for {lasted}", s.axis.time(f.last_seen))
}

fn between(from: WallNs, to: WallNs) -> String {
    let lasted = Duration::from_nanos(to.0.saturating_sub(from.0).max(0).unsigned_abs());
    units::age(Duration::from_secs(lasted.as_secs_f64().round() as u64))
}

fn remarks(s: &Context<'_>, f: &Finding) -> Vec<String> {
    let mut out = Vec::new();
    let (own, all) = (f.fire.severity, s.report.severity(f));
    if own < all {
        out.push(format!(
            "Its consequences raise it to {}; on its own it is {}.",
            all.name(),
            own.name()
        ));
    }
    if let (None, Some((rule, subject))) = (&f.cause, s.seen.cause(&key(f))) {
        out.push(clean(&format!("While it was there it was a consequence of {rule} ({subject}).")));
    }
    out
}

/// Who, and with how much of what: the words of a culprit in two parts.
fn blamed(c: &Culprit) -> (String, String) {
    let (all, who) = (c.to_string(), c.who.to_string());
    let share = all.strip_prefix(&who).and_then(|r| r.strip_prefix(" with ")).unwrap_or_default();
    (clean(&who), clean(share))
}

/// A number of the evidence in columns.
fn number(e: &Evidence) -> Number {
    let value = e.value.map(|v| units::quantity(v, e.unit)).unwrap_or_default();
    let limit = e.value.zip(e.threshold).map_or_else(String::new, |(v, t)| {
        let sign = if v >= t { '>' } else { '<' };
        let short = units::quantity(t, e.unit);
        // 99.9% is over 99.5%, not 100% over 100%.
        let is_same = v != t && short == value;
        let exact = || if e.unit == "%" { format!("{t:.1}%") } else { format!("{t} {}", e.unit) };
        format!("{sign} {}", if is_same { exact() } else { short })
    });
    Number { field: clean(&e.field), value: clean(&value), limit, text: clean(&e.text) }
}

/// The series behind its evidence: those with a threshold first.
fn drawn(s: &Context<'_>, f: &Finding) -> Vec<Plot> {
    let key = key(f);
    let shaded: Vec<_> = s
        .seen
        .episodes(&key)
        .iter()
        .take(MAX_BARS)
        .map(|p| (s.axis.percent(p.from), s.axis.percent(p.to)))
        .collect();
    let mut all: Vec<(Worth, Plot)> = Vec::new();
    for (i, e) in f.fire.evidence.iter().enumerate() {
        let Some(known) = s.seen.behind(&key, i) else { continue };
        // Evidence that the rule said earlier in another place is another number.
        if e.value.is_none() {
            continue;
        }
        let field = clean(&e.field);
        let plot = s.axis.plot(s.seen, known.series, (&field, e.unit), e.threshold);
        let Some(mut plot) = plot else { continue };
        let points: usize = plot.pieces.iter().map(Vec::len).sum();
        let worth = match (plot.is_flat, e.threshold) {
            _ if points < 3 => continue,
            (false, Some(_)) => Worth::Crossing,
            (false, None) => Worth::Moving,
            (true, Some(_)) => Worth::Flat,
            (true, None) => continue,
        };
        plot.note = if known.is_partial {
            "while the finding was there".to_owned()
        } else {
            clean(&format!("of {}", f.subject))
        };
        plot.shaded.clone_from(&shaded);
        all.push((worth, plot));
    }
    all.sort_by_key(|(worth, _)| *worth);
    // A flat line says no more than the number in the table, unless there is nothing else.
    let moving = all.iter().filter(|(w, _)| *w != Worth::Flat).count();
    all.truncate(if moving == 0 { 1 } else { moving.min(MAX_PLOTS) });
    all.into_iter().map(|(_, p)| p).collect()
}

/// What a plot shows, the most telling first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    Crossing,
    Moving,
    Flat,
}

/// Its row on the timeline.
pub(super) fn row(s: &Context<'_>, f: &Finding, section: Option<usize>) -> Row {
    let episodes = s.seen.episodes(&key(f));
    let mut bars: Vec<Bar> = Vec::new();
    for episode in episodes.iter().take(MAX_BARS) {
        let label = format!(
            "{} to {}, for {}",
            s.axis.time(episode.from),
            s.axis.time(episode.to),
            between(episode.from, episode.to)
        );
        for (i, (from, severity)) in episode.steps.iter().enumerate() {
            let to = episode.steps.get(i + 1).map_or(episode.to, |n| n.0);
            let label = label.clone();
            let (from, to) = (s.axis.percent(*from), s.axis.percent(to.max(*from)));
            bars.push(Bar { from, to, severity: *severity, label });
        }
    }
    if bars.is_empty() {
        let (from, to) = (s.axis.percent(f.first_seen), s.axis.percent(f.last_seen));
        bars.push(Bar { from, to, severity: f.fire.severity, label: when(s, f) });
    }
    Row {
        section,
        severity: s.report.severity(f),
        rule: f.rule.0,
        subject: clean(&f.subject.to_string()),
        bars,
    }
}
