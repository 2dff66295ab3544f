//! From a judged recording to a [`Document`]: the report of `check` in the order in which somebody
//! reads it who was not there.

use std::collections::BTreeSet;

use super::axis::{Axis, in_utc};
use super::document::{
    Brief, Conclusion, Coverage, Culprit, Document, Entry, Mark, Moment, Section, Timeline, clean,
    counted, word,
};
use super::section::{Context, Plots, key, row, section, when};
use super::seen::{HOST, Key, Seen};
use super::tables::tables;
use crate::diagnose::{Confidence, Finding, RULES, RuleDoc, RuleId, Severity, blind, limits};
use crate::report::CheckReport;
use crate::report::text::verdict;
use crate::sample::SignalStatus;
use crate::sample::time::WallNs;
use crate::view::units;

/// Findings that are told in full, consequences included.
const MAX_SECTIONS: usize = 100;
/// Those of them with plots.
const MAX_PLOTTED: usize = 30;
/// Findings that are told in a line.
const MAX_BRIEF: usize = 300;
/// Rows of the timeline.
const MAX_ROWS: usize = 40;
/// Lines of any other list.
const MAX_LINES: usize = 60;

/// What the report does not know of itself.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The file; `None` for what is watched live, or has no name that may be told.
    pub file: Option<String>,
    /// Whether it was watched live.
    pub is_live: bool,
    /// Whether names were replaced.
    pub is_redacted: bool,
    /// What was marked in it, and when.
    pub marks: Vec<(WallNs, String)>,
}

/// The document of a finished run.
#[must_use]
pub fn document(report: &CheckReport, seen: &Seen, about: &About) -> Document {
    let axis = Axis::of(seen);
    let end = seen.span.map_or(WallNs(0), |s| s.1);
    let context = Context { report, seen, axis, end };
    let top = folded(&report.findings);
    let (findings, others, left_out) = sections(&context, &top);
    let worst = worst(report, seen);
    let place = worst.and_then(|w| findings.iter().find(|s| is_of(s, w)).map(|s| s.id));
    Document {
        title: title(report, seen),
        subtitle: subtitle(report, seen),
        conclusion: conclusion(&context, worst, place),
        culprits: culprits(&findings),
        timeline: timeline(&context, &findings, about),
        annotations: report
            .annotations
            .iter()
            .take(MAX_LINES)
            .map(|a| clean(&format!("{}: {}", a.rule, a.fire.summary)))
            .collect(),
        moment: seen.worst().map(|l| Moment {
            is_bad: l.findings.worst().is_some(),
            when: axis.time(l.wall),
            tables: tables(l),
        }),
        environment: environment(report, seen, about),
        coverage: coverage(report),
        glossary: glossary(report),
        findings,
        others,
        left_out,
    }
}

fn title(r: &CheckReport, seen: &Seen) -> String {
    let day = seen.first_wall().map_or_else(String::new, |w| in_utc(w, ", %Y-%m-%d"));
    clean(&format!("Incident report: {}{day}", r.host.hostname))
}

fn subtitle(r: &CheckReport, seen: &Seen) -> String {
    let (from, to) = seen.span.unwrap_or_default();
    let time = |w| in_utc(w, "%Y-%m-%d %H:%M:%SZ");
    let (from, to) = (time(from), time(to));
    let all = counted(seen.ticks(), "tick");
    clean(&format!("{} from {from} to {to}, {} in {all}", r.host.hostname, length(seen)))
}

fn length(seen: &Seen) -> String {
    let s = seen.duration().as_secs_f64();
    if s < 120.0 { format!("{s:.0} s") } else { units::age(seen.duration()) }
}

/// A finding with what it explains.
type Folded<'a> = (&'a Finding, Vec<&'a Finding>);

/// Consequences below their causes, in the order of the report. One whose cause is not there stands
/// for itself.
fn folded(all: &[std::sync::Arc<Finding>]) -> Vec<Folded<'_>> {
    let mut out: Vec<Folded<'_>> = Vec::new();
    for f in all {
        let of = |c: &Key| {
            let mut back = out.iter();
            back.rposition(|(f, _)| f.rule == c.0 && f.subject == c.1)
        };
        let at = f.cause.as_ref().and_then(of);
        match at.and_then(|i| out.get_mut(i)) {
            Some((_, consequences)) => consequences.push(f),
            None => out.push((f, Vec::new())),
        }
    }
    out
}

fn sections(s: &Context<'_>, top: &[Folded<'_>]) -> (Vec<Section>, Vec<Brief>, usize) {
    let (mut out, mut brief, mut id) = (Vec::new(), Vec::new(), 0);
    let mut next = |f: &Finding| {
        id += 1;
        let plots = if id <= MAX_PLOTTED { Plots::Drawn } else { Plots::LeftOut };
        (id <= MAX_SECTIONS).then(|| section(s, f, id, plots)).ok_or_else(|| Brief {
            severity: s.report.severity(f),
            rule: f.rule.0,
            summary: clean(&f.fire.summary),
            when: when(s, f),
        })
    };
    for (cause, consequences) in top {
        match next(cause) {
            Ok(mut section) => {
                for c in consequences {
                    match next(c) {
                        Ok(c) => section.consequences.push(c),
                        Err(line) => brief.push(line),
                    }
                }
                out.push(section);
            }
            Err(line) => {
                brief.push(line);
                brief.extend(consequences.iter().filter_map(|c| next(c).err()));
            }
        }
    }
    let left_out = brief.len().saturating_sub(MAX_BRIEF);
    brief.truncate(MAX_BRIEF);
    (out, brief, left_out)
}

fn is_of(s: &Section, f: &Finding) -> bool {
    s.rule == f.rule.0 && s.subject == clean(&f.subject.to_string())
}

/// The worst finding that no other one explains: the surest, then the longest.
fn worst<'a>(r: &'a CheckReport, seen: &Seen) -> Option<&'a Finding> {
    let lasted = |f: &Finding| {
        let end = if f.active { seen.span.map_or(f.last_seen, |s| s.1) } else { f.last_seen };
        end.0.saturating_sub(f.first_seen.0)
    };
    let rank = |f: &Finding| {
        let is_cause = f.cause.is_none() && seen.cause(&key(f)).is_none();
        let is_sure = f.fire.confidence == Confidence::Confirmed;
        (r.severity(f), is_cause, is_sure, lasted(f))
    };
    // Of equals the first.
    r.findings.iter().rev().map(|f| &**f).max_by_key(|f| rank(f))
}

fn conclusion(s: &Context<'_>, worst: Option<&Finding>, place: Option<usize>) -> Conclusion {
    let r = s.report;
    let Some(f) = worst else {
        let watched = format!(
            "Watched for {} in {}; {}.{}",
            length(s.seen),
            counted(s.seen.ticks(), "tick"),
            not_judged_in_short(r),
            if is_all_read(r) { ALL_READ } else { " What was not seen is listed below." }
        );
        let what = sentence(&blind::all_clear(&r.blind, usize::MAX));
        return Conclusion { what, rest: watched, ..Conclusion::default() };
    };
    let doc = doc(f.rule);
    let suspected = match f.fire.confidence {
        Confidence::Confirmed => "",
        Confidence::Suspected => " (suspected)",
    };
    let what = format!("{}{suspected}, {}.", clean(&f.fire.summary), when(s, f));
    let who = match f.fire.by.split_first() {
        Some((first, [])) => format!("{}.", clean(&first.to_string())),
        Some((first, more)) => {
            let more: Vec<String> = more.iter().map(|c| clean(&c.to_string())).collect();
            format!("{}; then {}.", clean(&first.to_string()), more.join("; "))
        }
        None => "no process or cgroup of this host was found to cause it.".to_owned(),
    };
    let others = r.findings.len().saturating_sub(1);
    let rest = match others {
        0 => "It is the only finding.".to_owned(),
        1 => "There is one more finding, below.".to_owned(),
        n => format!("There are {n} more findings, below."),
    };
    Conclusion {
        severity: Some(r.severity(f)),
        what,
        who: Some(who),
        to_do: doc.map(|d| d.remedy.to_owned()),
        command: f.fire.next.first().map(|c| clean(c)),
        rest,
        section: place,
    }
}

fn not_judged_in_short(r: &CheckReport) -> String {
    let rules: BTreeSet<&str> = r.not_judged.iter().map(|n| n.rule.0).collect();
    match rules.len() {
        0 => "every rule could judge".to_owned(),
        n => format!("{} could not judge, see below", counted(n as u64, "rule")),
    }
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut out = clean(text);
    out.get_mut(..1).map(str::make_ascii_uppercase);
    out.push('.');
    out
}

fn doc(rule: RuleId) -> Option<&'static RuleDoc> {
    RULES.iter().find(|r| r.id() == rule).map(|r| r.doc)
}

/// Who is to culprit, the worst first, each once.
fn culprits(sections: &[Section]) -> Vec<Culprit> {
    let mut out: Vec<Culprit> = Vec::new();
    let mut all: Vec<&Section> =
        sections.iter().flat_map(|s| std::iter::once(s).chain(&s.consequences)).collect();
    all.sort_by_key(|s| std::cmp::Reverse(s.severity));
    for s in all {
        for (who, share) in &s.by {
            let of = (s.id, s.rule);
            let is_full = out.len() >= MAX_LINES;
            match out.iter_mut().find(|b| b.who == *who && b.share == *share) {
                Some(known) => known.of.push(of),
                None if !is_full => {
                    out.push(Culprit { who: who.clone(), share: share.clone(), of: vec![of] });
                }
                None => {}
            }
        }
    }
    out
}

fn timeline(s: &Context<'_>, sections: &[Section], about: &About) -> Timeline {
    let mut rows = Vec::new();
    let mut known: BTreeSet<Key> = BTreeSet::new();
    let mut more = 0;
    for f in &s.report.findings {
        if !known.insert(key(f)) {
            continue;
        }
        if rows.len() == MAX_ROWS {
            more += 1;
            continue;
        }
        let mut all = sections.iter().flat_map(|s| std::iter::once(s).chain(&s.consequences));
        let place = all.find(|s| is_of(s, f)).map(|s| s.id);
        rows.push(row(s, f, place));
    }
    let mark = |(at, text): &(WallNs, String)| {
        let label = format!("{} {}", s.axis.time(*at), clean(text));
        Mark { at: s.axis.percent(*at), label }
    };
    let all = HOST.iter().enumerate().filter_map(|(i, (name, unit, _))| {
        let mut plot = s.axis.plot(s.seen, s.seen.host(i)?, (name, unit), None)?;
        "of the host".clone_into(&mut plot.note);
        (plot.pieces.iter().map(Vec::len).sum::<usize>() > 1).then_some(plot)
    });
    let (flat, host): (Vec<_>, Vec<_>) = all.partition(|p| p.is_flat);
    let flat: Vec<String> = flat.iter().map(|p| format!("{} {}", p.name, p.range)).collect();
    let flat =
        if flat.is_empty() { String::new() } else { format!("All the time: {}.", flat.join(", ")) };
    Timeline {
        ticks: s.axis.labels(),
        rows,
        more,
        holes: s.axis.holes(&s.seen.holes),
        marks: about.marks.iter().take(MAX_LINES).map(mark).collect(),
        host,
        flat,
        missing: s.seen.missing,
        all: s.seen.ticks(),
    }
}

fn environment(r: &CheckReport, seen: &Seen, about: &About) -> Vec<(&'static str, String)> {
    let h = &r.host;
    let time = |w| in_utc(w, "%Y-%m-%d %H:%M:%SZ");
    let (from, to) = seen.span.unwrap_or_default();
    let thinned = h.thinned_from.map_or_else(String::new, |d| format!(", downsampled from {d:?}"));
    let source = match (&about.file, about.is_live) {
        (Some(file), _) => file.clone(),
        (None, true) => "watched live".to_owned(),
        (None, false) => "a recording".to_owned(),
    };
    let names = "replaced by others, consistently".to_owned();
    let missing = match seen.missing {
        0 => String::new(),
        n => format!(", {n} missing"),
    };
    let known = |n: u64, text: String| if n == 0 { units::UNKNOWN.to_owned() } else { text };
    let mut out = vec![
        ("Host", h.hostname.clone()),
        ("Kernel", h.kernel.clone()),
        ("CPUs", known(u64::from(h.cpus), h.cpus.to_string())),
        ("Memory", known(h.memory_bytes, units::bytes(h.memory_bytes as f64))),
        ("Source", source),
        ("From", time(from)),
        ("To", time(to)),
        ("Length", length(seen)),
        ("Ticks", format!("{}{missing}", seen.ticks())),
        ("Interval", format!("{:?}{thinned}", h.interval)),
        ("Measured by", h.tool.clone()),
        ("Judged by", concat!("stallscope ", env!("CARGO_PKG_VERSION")).to_owned()),
    ];
    if about.is_redacted {
        out.push(("Names", names));
    }
    out.into_iter().map(|(name, value)| (name, clean(&value))).collect()
}

fn coverage(r: &CheckReport) -> Coverage {
    let mut thresholds: Vec<String> =
        limits::configured(&r.host.rules).map(|t| clean(&t)).into_iter().collect();
    for earlier in &r.earlier_rules {
        let rules = limits::configured(earlier).unwrap_or_else(|| "none".to_owned());
        thresholds.push(clean(&format!("earlier in this recording: {rules}")));
    }
    let mut not_judged: Vec<(String, Vec<&'static str>)> = Vec::new();
    for n in &r.not_judged {
        let why = clean(&n.why);
        let is_full = not_judged.len() >= MAX_LINES;
        match not_judged.iter_mut().find(|g| g.0 == why) {
            Some(g) if g.1.contains(&n.rule.0) => {}
            Some(g) => g.1.push(n.rule.0),
            None if !is_full => not_judged.push((why, vec![n.rule.0])),
            None => {}
        }
    }
    let blind = r.blind.iter().take(MAX_LINES).map(|b| {
        let lack = blind::clause(std::slice::from_ref(b), 1);
        [&lack, &b.reason, &b.remedy].map(|t| clean(t))
    });
    let signals = r.coverage.iter().take(MAX_LINES).map(|s| {
        let (how, reason, remedy) = match &s.status {
            SignalStatus::Ok => ("ok", "", ""),
            SignalStatus::Degraded { reason, remedy } => ("degraded", &**reason, &**remedy),
            SignalStatus::Missing { reason, remedy } => ("missing", &**reason, &**remedy),
        };
        [&s.signal, &s.source, how, reason, remedy].map(clean)
    });
    let mut unread: Vec<String> = r.unread.iter().flatten().map(|u| clean(u)).collect();
    let more = unread.len().saturating_sub(MAX_LINES);
    unread.truncate(MAX_LINES);
    if more > 0 {
        unread.push(format!("and {more} more"));
    }
    Coverage {
        verdict: covered(r),
        blind: blind.collect(),
        thresholds,
        not_judged,
        unread,
        signals: signals.collect(),
    }
}

/// What `check` says at its end, and that nothing was left out if that is so.
fn covered(r: &CheckReport) -> String {
    let verdict = sentence(&verdict(r, usize::MAX));
    if is_all_read(r) { verdict + ALL_READ } else { verdict }
}

/// Where nothing is a blind spot.
const ALL_READ: &str = " Everything that findings rest on was read.";

fn is_all_read(r: &CheckReport) -> bool {
    r.blind.is_empty() && !r.coverage.is_empty() && r.unread.iter().flatten().next().is_none()
}

/// The rules that are named above, by name.
fn glossary(r: &CheckReport) -> Vec<Entry> {
    let fired: BTreeSet<RuleId> = r.findings.iter().chain(&r.annotations).map(|f| f.rule).collect();
    let entry = |rule: &RuleId| {
        let d = doc(*rule)?;
        Some(Entry {
            rule: d.id.0,
            title: d.title,
            condition: d.condition,
            look_alikes: d.look_alikes,
            remedy: d.remedy,
            sources: d.sources,
        })
    };
    fired.iter().filter_map(entry).collect()
}

/// `Critical: `, for where there is no colour.
pub(super) fn prefix(s: Option<Severity>) -> String {
    s.map_or_else(String::new, |s| format!("{}: ", word(s)))
}
