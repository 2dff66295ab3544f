//! `rules [ID]`: what the rules mean, from their own documentation.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::diagnose::{Explains, Kind, LIMITS, Rule};

/// One line per rule, id first.
#[must_use]
pub fn list(rules: &[&Rule]) -> String {
    let width = rules.iter().map(|r| r.id().0.len()).max().unwrap_or(0);
    rules.iter().fold(String::new(), |mut out, r| {
        let _ = writeln!(out, "{:<width$}  {}", r.id().0, r.doc.title);
        out
    })
}

/// The full explanation of one rule.
#[must_use]
pub fn page(rule: &Rule, all: &[&Rule]) -> String {
    let doc = rule.doc;
    let hold = if doc.hold.need == 0 {
        "immediately: the rule counts events".to_owned()
    } else {
        format!("true for {} of the last {} s", doc.hold.need, doc.hold.of)
    };
    let mut links = String::new();
    let mut section = |title: &str, mut list: Vec<String>| {
        list.sort_unstable();
        if !list.is_empty() {
            let _ = write!(links, "\n\n{title}\n  {}", list.join("\n  "));
        }
    };
    let link = |id, l: &Explains| format!("{id}, {}", l.scope.name());
    section("explains", rule.explains.iter().map(|l| link(l.rule, l)).collect());
    let by = all
        .iter()
        .flat_map(|r| r.explains.iter().filter(|l| l.rule == doc.id).map(|l| link(r.id(), l)));
    section("may be explained by", by.collect());
    let limit = LIMITS.iter().find(|l| l.rule == doc.id);
    let configured = limit.map_or_else(String::new, |l| {
        let (least, most) = l.range;
        format!(
            "\n\nconfiguration\n  {} = {} in [thresholds]: {}, {least} to {most}; it clears in \
             proportion",
            l.rule, l.warn, l.of
        )
    });
    let kind = match rule.kind {
        Kind::Rule => "",
        Kind::Annotation => "\n  an annotation: shown, never counted as a finding",
    };
    format!(
        "{}\n  {}{kind}\n\nfires when\n  {}\n\ntiming\n  {hold}; clears after {} s of calm{configured}\n\nlook-alikes\n  {}\n\nwhat to do\n  {}\n\nsources\n  {}{links}\n",
        doc.id, doc.title, doc.condition, doc.hold.clear, doc.look_alikes, doc.remedy, doc.sources
    )
}

/// Rules as JSON.
#[must_use]
pub fn json(rules: &[&Rule]) -> Value {
    let one = |r: &Rule| {
        let d = r.doc;
        let explains: Vec<Value> =
            r.explains.iter().map(|l| json!({"rule": l.rule, "scope": l.scope.name()})).collect();
        let limit = LIMITS.iter().find(|l| l.rule == d.id);
        json!({
            "id": d.id, "title": d.title, "condition": d.condition, "look_alikes": d.look_alikes,
            "remedy": d.remedy, "sources": d.sources,
            "hold_s": d.hold.need, "of_s": d.hold.of, "clear_s": d.hold.clear,
            "needs_time_s": d.needs_time.as_secs(), "explains": explains,
            "annotation": r.kind == Kind::Annotation,
            "limit": limit.map(|l| json!({"of": l.of, "warn": l.warn, "range": l.range})),
        })
    };
    json!({"schema": super::json::SCHEMA, "rules": rules.iter().map(|r| one(r)).collect::<Vec<_>>()})
}
