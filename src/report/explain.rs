//! `explain`: the report of pasted text. The findings are those of `check`; added are what was
//! understood, what was not, and the figures that a reader would compute by hand.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::CheckReport;
use super::text;
use crate::analysis::Analysis;
use crate::metrics::disks::DiskFigures;
use crate::paste::understood::Understood;
use crate::sample::subject::DiskId;
use crate::text::sanitize;

/// Disks whose figures are printed, the longest queue first.
const DISKS: usize = 8;
/// Disks that are considered.
const MAX_DISKS: usize = 2000;

/// The last figures of each disk that did something, the longest queue first.
#[must_use]
pub fn disks(analysis: &Analysis) -> Vec<DiskFigures> {
    let mut seen: HashSet<DiskId> = HashSet::new();
    let mut out: Vec<DiskFigures> = Vec::new();
    for m in analysis.history().iter().rev() {
        for d in m.derived.disks.iter().flat_map(|d| d.iter()) {
            if out.len() < MAX_DISKS && seen.insert(d.id) {
                out.push(d.clone());
            }
        }
    }
    out.retain(|d| d.completed > 0 || d.in_flight.is_some_and(|n| n > 0));
    out.sort_by(|a, b| b.aqu_sz.total_cmp(&a.aqu_sz).then(a.name.cmp(&b.name)));
    out
}

/// One line that says that nothing was recognised, and what would be.
#[must_use]
pub fn nothing(name: &str, u: &Understood) -> String {
    let what = if u.lines == 0 {
        " is empty".to_owned()
    } else {
        format!(": nothing recognised ({} line{} read)", u.lines, plural(u.lines))
    };
    format!(
        "{name}{what}; paste output of ss -tinmo, iostat -x, nstat -az, netstat -s, dmesg, top -b, \
         df, free, conntrack -S, mpstat, pidstat, sar, vmstat, /proc/net/softnet_stat, \
         /proc/diskstats or fio's disk stats"
    )
}

/// The report as text; ends with a newline.
#[must_use]
pub fn render(
    r: &CheckReport,
    u: &Understood,
    disks: &[DiskFigures],
    figures: &[String],
) -> String {
    let mut out = String::from("stallscope explain  pasted text");
    for (name, value) in [("host", &r.host.hostname), ("kernel", &r.host.kernel)] {
        if !value.is_empty() {
            let _ = write!(out, "  {name} {}", sanitize(value));
        }
    }
    let _ = writeln!(out, "  {} lines, {} sample{}", u.lines, r.ticks, plural(r.ticks));
    for f in &r.findings {
        // Consequences are not folded here.
        text::finding(&mut out, f, f.fire.severity);
    }
    let verdict = match r.findings.len() {
        0 => "No findings in these samples; a longer run may show more.".to_owned(),
        1 => "1 finding, only suspected: single samples cannot show that it lasts.".to_owned(),
        n => {
            format!("{n} findings, all only suspected: single samples cannot show that they last.")
        }
    };
    let _ = writeln!(out, "{verdict}");
    let formats: Vec<String> = u
        .formats
        .iter()
        .map(|f| match f.items {
            0 => format!("{} ({} line{})", f.format, f.lines, plural(f.lines)),
            n => format!(
                "{} {n} {}{} in {} sample{} ({} line{})",
                f.format,
                f.item,
                plural(n),
                f.samples,
                plural(f.samples),
                f.lines,
                plural(f.lines)
            ),
        })
        .collect();
    let _ = writeln!(out, "Understood: {}.", formats.join(", "));
    if u.not_understood > 0 {
        let _ =
            write!(out, "Not understood: {} line{}", u.not_understood, plural(u.not_understood));
        let first: Vec<String> =
            u.examples.iter().map(|(no, t)| format!("{no} \"{}\"", sanitize(t))).collect();
        let more = if u.not_understood > u.examples.len() as u64 { ", ..." } else { "" };
        let _ = writeln!(out, ": {}{more}.", first.join(", "));
    }
    for d in disks.iter().take(DISKS) {
        let _ = writeln!(out, "Disk {}", disk_line(d));
    }
    for text in figures {
        let _ = writeln!(out, "{}.", sanitize(text));
    }
    for n in &u.notes {
        let _ = writeln!(out, "Note: {}.", sanitize(n));
    }
    if !r.not_judged.is_empty() {
        let _ = writeln!(out, "Not judged: {}.", text::not_judged(&r.not_judged));
    }
    out
}

fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// `vdb: 24397/s, await 1.37 ms, queue 33.5, util 27.9%`, with a note on odd numbers.
fn disk_line(d: &DiskFigures) -> String {
    if d.untimed.is_some() {
        return untimed_line(d);
    }
    let mut out = format!("{}: {:.0}/s", sanitize(&d.name), d.iops());
    if d.unaccounted {
        out.push_str(", time unaccounted (md before Linux 5.14): busy, not idle");
        return out;
    }
    match d.await_ms {
        Some(r) => {
            let _ = write!(out, ", await {r:.2} ms");
        }
        None => out.push_str(", nothing completed"),
    }
    let _ = write!(out, ", queue {:.2}, util {:.1}%", d.aqu_sz, d.util_shown());
    if d.queue_counters_disagree() {
        let _ = write!(
            out,
            "; the tool shows a queue of {:.2}: field 11 of diskstats is wrong on this kernel; use \
             rate * await",
            d.aqu_sz_weighted
        );
    }
    out
}

/// `sdb: 512 writes of 1220.70 ms, util 99.5%; rate and queue unknown (no run time)`.
fn untimed_line(d: &DiskFigures) -> String {
    let done = d.untimed.map_or((0, 0), |n| (n.reads, n.writes));
    let means = [("read", done.0, d.r_await), ("write", done.1, d.w_await)];
    let means: Vec<String> = means
        .into_iter()
        .filter_map(|(what, n, each)| Some(format!("{n} {what}{} of {:.2} ms", plural(n), each?)))
        .collect();
    let (name, means) = (sanitize(&d.name), means.join(", "));
    format!("{name}: {means}, util {:.1}%; rate and queue unknown (no run time)", d.util_shown())
}

/// The report as JSON: that of `check`, with `understood` and `disks`.
#[must_use]
pub fn json(r: &CheckReport, u: &Understood, disks: &[DiskFigures], figures: &[String]) -> Value {
    let mut v = super::json::render(r);
    if let Value::Object(map) = &mut v {
        // The samples have no timestamps.
        map.insert("duration_s".into(), Value::Null);
        // Pasted text covers what was pasted; what else there was is unknown.
        map.remove("verdict");
        map.remove("blind_spots");
        map.insert("interval_s".into(), Value::Null);
        let examples: Vec<Value> =
            u.examples.iter().map(|(no, t)| json!({"line": no, "text": t})).collect();
        map.insert(
            "understood".into(),
            json!({
                "lines": u.lines,
                "bytes": u.bytes,
                "formats": u.formats,
                "not_understood": u.not_understood,
                "examples": examples,
                "notes": u.notes,
            }),
        );
        let disks: Vec<Value> = disks.iter().take(100).map(disk_json).collect();
        map.insert("disks".into(), disks.into());
        map.insert("figures".into(), json!(figures));
    }
    v
}

fn disk_json(d: &DiskFigures) -> Value {
    let known = |v: f64| d.untimed.is_none().then_some(v);
    json!({
        "name": &*d.name,
        "iops": known(d.iops()),
        "kb_s": known(d.kb_s()),
        "await_ms": d.await_ms,
        "aqu_sz": known(d.aqu_sz),
        "aqu_sz_shown": known(d.aqu_sz_weighted),
        "util": d.util_shown(),
        "unaccounted": d.unaccounted,
    })
}
