//! What remains on the normal screen after quitting: the findings in about ten lines.

use jiff::tz::TimeZone;

use crate::analysis::Analysis;
use crate::diagnose::blind;
use crate::metrics::coverage::coverage;
use crate::view::context::clock;
use crate::view::{text, units};

/// Lines at most.
const LINES: usize = 10;

/// Findings that were active at the end, then those that had ended, one line each.
#[must_use]
pub fn summary(a: &Analysis, tz: &TimeZone) -> Vec<String> {
    let host = a.host();
    let mut out = Vec::new();
    let name = text::clean(&host.hostname).into_owned();
    let Some(last) = a.latest() else {
        return vec![format!("stallscope {name}: quit before the first sample")];
    };
    let first = a.history().first().map_or(last.tick.mono, |m| m.tick.mono);
    let watched = units::age(last.tick.mono.since(first));
    let n = last.findings.active.len();
    let blind = blind::blind_spots(&coverage(&last.tick.health));
    let found = match n {
        0 if blind.is_empty() => "no findings".to_owned(),
        0 => "no findings in what is readable".to_owned(),
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    let kernel = text::clean(&host.kernel).into_owned();
    let until = clock(last.tick.wall, tz);
    out.push(format!("stallscope {name} {kernel}: {found} at {until}, watched for {watched}"));
    let all: Vec<_> = last.findings.active.iter().chain(&last.findings.cleared).collect();
    if !blind.is_empty() {
        out.push(format!("   not checked: {}", blind::clause(&blind, blind::SHOWN)));
    }
    let room = LINES - out.len();
    let shown = if all.len() > room { room - 1 } else { all.len() };
    for f in all.iter().take(shown) {
        let when = if f.active {
            format!("since {}", clock(f.first_seen, tz))
        } else {
            format!("{} to {}, ended", clock(f.first_seen, tz), clock(f.last_seen, tz))
        };
        let summary = text::clean(&f.fire.summary).into_owned();
        out.push(format!("{:<2} {}: {summary} ({when})", last.findings.severity(f).mark(), f.rule));
    }
    if all.len() > shown {
        out.push(format!("   and {} more", all.len() - shown));
    }
    out
}
