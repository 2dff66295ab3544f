//! `findings`: what `check` reports, as far as it was in the time that is exported.

use super::{Rows, Table, columns};
use crate::diagnose::Finding;
use crate::diagnose::finding::Confidence;
use crate::report::json::kind;

pub(super) static TABLE: Table = Table {
    name: "findings",
    about: "what check reports, a row for each finding from its beginning to its end",
    time: "when it began, UTC",
    own: COLUMNS,
    rows: Rows::OfFinding(|f, out| out.row(|line| put(line, f))),
};

columns! {
    |f: &Finding|
    rule: text, "stable name of its rule" = f.rule.0;
    severity: text, "info, warn or crit" = f.fire.severity.name();
    confidence: text, "confirmed, or suspected if an input is missing"
        = match f.fire.confidence {
            Confidence::Confirmed => "confirmed",
            Confidence::Suspected => "suspected",
        };
    subject_kind: text, "host, peer, listener, disk, cpu, cgroup, task, ..."
        = kind(&f.subject).as_str();
    subject: text, "what is affected" = f.subject.to_string().as_str();
    count: integer, "how many of it, such as connections to a peer" = f.fire.count;
    last_seen: time, "when it was seen last, UTC" = f.last_seen;
    lasted_s: float ("s"), "from its beginning until then" = lasted(f);
    active: boolean, "whether it still lasted at the end" = f.active;
    summary: text, "one sentence" = f.fire.summary.as_str();
    cause_rule: text, "rule of the finding that explains it" = f.cause.as_ref().map(|c| c.0.0);
    cause_subject: text, "subject of that" = f.cause.as_ref().map(|c| c.1.to_string()).as_deref();
    by: text, "who uses what the others wait for, most first" = by(f).as_deref();
}

/// Missing where the clock was set back in between.
fn lasted(f: &Finding) -> Option<f64> {
    let ns = f.last_seen - f.first_seen;
    (ns >= 0).then_some(ns as f64 / 1e9)
}

fn by(f: &Finding) -> Option<String> {
    let all: Vec<String> = f.fire.by.iter().map(ToString::to_string).collect();
    (!all.is_empty()).then(|| all.join("; "))
}
