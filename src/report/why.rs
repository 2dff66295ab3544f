//! `why` as text, to be pasted into an incident channel, and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::json::finding;
use crate::diagnose::why::{Answer, Bound, Limit};
use crate::metrics::waits::Class;
use crate::sample::tick::HostInfo;
use crate::text::sanitize;

/// What was observed, beside the answer.
#[derive(Clone, Debug)]
pub struct WhyReport<'a> {
    /// The machine.
    pub host: &'a HostInfo,
    /// `live`, or `recording`.
    pub source: &'static str,
    /// What was asked for, as typed.
    pub asked: &'a str,
    /// From the first tick to the last.
    pub duration: Duration,
    /// The answer.
    pub answer: &'a Answer,
}

/// The conclusion first, as one paragraph; then what it rests on. Ends with a newline.
#[must_use]
pub fn text(r: &WhyReport<'_>) -> String {
    let a = r.answer;
    let mut out = format!("{}\n\n", sanitize(&a.conclusion));
    let samples =
        if a.samples == 0 { String::new() } else { format!(", {} samples of each", a.samples) };
    let _ = writeln!(
        out,
        "{} on {}: {} thread{}, {:.1} s{samples}",
        sanitize(r.asked),
        sanitize(&r.host.hostname),
        a.threads,
        if a.threads == 1 { "" } else { "s" },
        r.duration.as_secs_f64()
    );
    for (class, time) in &a.classes {
        let _ = writeln!(out, "  {:>5}  {class}", share(a, *time));
    }
    places(&mut out, a);
    threads(&mut out, a);
    limits(&mut out, a);
    for f in &a.findings {
        let _ = writeln!(
            out,
            "{:<2} {}: {}",
            f.fire.severity.mark(),
            f.rule,
            sanitize(&f.fire.summary)
        );
    }
    for m in &a.missing {
        let _ = writeln!(out, "cannot tell: {}", sanitize(m));
    }
    for n in &a.next {
        let _ = writeln!(out, "next: {}", sanitize(n));
    }
    out
}

fn share(a: &Answer, time: Duration) -> String {
    format!("{:.1}%", a.share(time) * 100.0)
}

fn places(out: &mut String, a: &Answer) {
    let listed = a.places.iter().filter(|p| p.class.is_wait());
    let rows: Vec<_> = listed.collect();
    if rows.is_empty() {
        return;
    }
    out.push_str("waits\n");
    for p in rows {
        let because = p.finding.as_ref().map(|f| format!(" -> {}", f.rule)).unwrap_or_default();
        let what = sanitize(&p.what);
        let _ = writeln!(out, "  {:>5}  {}: {what}{because}", share(a, p.time), p.class);
    }
}

fn threads(out: &mut String, a: &Answer) {
    if a.threads < 2 {
        return;
    }
    out.push_str("threads\n");
    for t in &a.worst {
        let busy = 100.0 * t.busy();
        let (comm, what) = (sanitize(&t.comm), sanitize(&t.what));
        let _ = writeln!(out, "  {busy:>4.0}%  {:>7}  {comm:<15}  {what}", t.task.tid);
    }
    if a.threads > a.worst.len() {
        let _ = writeln!(out, "  and {} more", a.threads - a.worst.len());
    }
}

fn limits(out: &mut String, a: &Answer) {
    if !a.limits.is_empty() {
        out.push_str("limits\n");
    }
    for l in &a.limits {
        let used = l.share().map_or_else(|| "-".to_owned(), |s| format!("{:.1}%", 100.0 * s));
        let _ = writeln!(out, "  {used:>5}  {}: {}", l.what.name(), sanitize(&l.text()));
    }
}

/// The same for programs.
#[must_use]
pub fn json(r: &WhyReport<'_>) -> Value {
    let a = r.answer;
    let class = |(c, t): &(Class, Duration)| json!({ "class": c, "share": a.share(*t), "s": t.as_secs_f64() });
    json!({
        "schema": 1,
        "tool": r.host.tool,
        "host": r.host.hostname,
        "kernel": r.host.kernel,
        "source": r.source,
        "asked": r.asked,
        "duration_s": r.duration.as_secs_f64(),
        "conclusion": a.conclusion,
        "processes": a.processes.iter().map(|p| json!({ "pid": p.pid, "comm": p.comm })).collect::<Vec<_>>(),
        "threads": a.threads,
        "samples": a.samples,
        "classes": a.classes.iter().map(class).collect::<Vec<_>>(),
        "places": a.places.iter().map(|p| json!({
            "class": p.class,
            "what": p.what,
            "wchan": p.wchan,
            "share": a.share(p.time),
            "finding": p.finding.as_ref().map(|f| f.rule),
        })).collect::<Vec<_>>(),
        "top_threads": a.worst.iter().map(|t| json!({
            "tid": t.task.tid,
            "pid": t.task.pid,
            "comm": t.comm,
            "classes": t.classes.iter().map(|(c, d)| json!({
                "class": c,
                "share": t.share(*d),
            })).collect::<Vec<_>>(),
            "what": t.what,
        })).collect::<Vec<_>>(),
        "limits": a.limits.iter().map(limit).collect::<Vec<_>>(),
        "findings": a.findings.iter().map(|f| finding(f)).collect::<Vec<_>>(),
        "missing": a.missing,
        "next": a.next,
    })
}

fn limit(l: &Limit) -> Value {
    let (used, limit, of, why) = match &l.bound {
        Bound::At { used, limit, of } => (*used, Some(*limit), Some(of), None),
        Bound::Unlimited => (None, None, None, None),
        Bound::Unknown(why) => (None, None, None, Some(why)),
    };
    json!({
        "what": l.what.key(),
        "known": why.is_none(),
        "used": used,
        "limit": limit,
        "unit": l.what.unit(),
        "of": of,
        "missing": why,
    })
}
