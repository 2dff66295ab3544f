//! The log: findings that are active and those that ended, the latest first, each with how long it
//! lasted.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::diagnose::Finding;
use crate::view::context::Cx;
use crate::view::table::tone_of;
use crate::view::vm::{Line, Tone};
use crate::view::{text, units};

pub(super) fn lines(cx: &Cx<'_>, w: u16) -> Vec<Line> {
    let f = cx.now.findings;
    let mut all: Vec<&Arc<Finding>> = f.all().chain(&f.cleared).collect();
    all.sort_by_key(|f| (Reverse(f.since), f.rule));
    if all.is_empty() {
        return vec![Line::of(" no findings so far", Tone::Dim)];
    }
    let active = all.iter().filter(|f| f.active).count();
    let mut out = vec![Line::of(
        format!(" {active} active, {} ended in the last hour", all.len() - active),
        Tone::Dim,
    )];
    out.extend(all.into_iter().map(|f| line(cx, f, w)));
    out
}

/// ` !! 14:03:20   26s  tcp-rto-storm  3 connections ...`
fn line(cx: &Cx<'_>, f: &Finding, w: u16) -> Line {
    let s = cx.now.findings.severity(f);
    let (mark, tone) = if f.active { (s.mark(), tone_of(s)) } else { ("", Tone::Dim) };
    let lasted = if f.active {
        cx.mono().since(f.since)
    } else {
        let ns = f.last_seen.0.saturating_sub(f.first_seen.0);
        std::time::Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
    };
    let word = if f.active { "active" } else { "ended" };
    let mut line = Line::of(format!(" {mark:<2} "), tone);
    line.add(format!("{} {:>6} {word:<6} ", cx.clock(f.first_seen), units::age(lasted)), Tone::Dim);
    line.add(format!("{} ", f.rule), if f.active { Tone::Strong } else { Tone::Plain });
    if w >= 60 {
        line.add(text::clean(&f.fire.summary).into_owned(), Tone::Plain);
    }
    line
}
