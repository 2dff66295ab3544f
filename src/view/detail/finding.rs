//! A finding: summary, start, confidence, evidence over time with thresholds, who causes it,
//! what was ruled out, related findings, next commands.

use std::sync::Arc;
use std::time::Duration;

use crate::diagnose::{Confidence, Evidence, Finding};
use crate::view::chrome::is;
use crate::view::context::Cx;
use crate::view::lines::field;
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

pub(super) fn lines(cx: &Cx<'_>, key: &FindingKey, w: u16) -> Vec<Line> {
    let Some(f) = find(cx, key) else {
        return vec![
            Line::of(format!(" {}", key.rule), Tone::Strong),
            Line::of(" does not exist at the time shown", Tone::Dim),
        ];
    };
    let wide = usize::from(w).saturating_sub(4).max(10);
    let mut out = Vec::new();
    let s = cx.now.findings.severity(f);
    let mut head = Line::of(format!(" {:<2} {}  ", s.mark(), s.name()), tone_of(s));
    head.add(f.rule.0, Tone::Strong);
    head.add(format!("  {}", text::clean(&f.subject.to_string())), Tone::Plain);
    if f.fire.count > 1 {
        head.add(format!("  x{}", f.fire.count), Tone::Plain);
    }
    out.push(head);
    for l in text::wrap(&text::clean(&f.fire.summary), wide) {
        out.push(Line::of(format!("    {l}"), Tone::Plain));
    }
    out.push(Line::new());
    out.push(since(cx, f));
    out.push(confidence(f));
    if !f.fire.evidence.is_empty() {
        out.push(heading("evidence"));
        for (i, e) in f.fire.evidence.iter().enumerate() {
            evidence(cx, key, i, e, wide, &mut out);
        }
    }
    if !f.fire.examples.is_empty() {
        out.push(heading("examples"));
        out.extend(items(&f.fire.examples, wide, Tone::Plain));
    }
    if !f.fire.by.is_empty() {
        out.push(heading("by"));
        let by: Vec<String> = f.fire.by.iter().map(ToString::to_string).collect();
        out.extend(items(&by, wide, Tone::Strong));
    }
    if !f.fire.ruled_out.is_empty() {
        out.push(heading("ruled out"));
        for r in &f.fire.ruled_out {
            let mut line = Line::of(format!("    {}: ", text::clean(&r.rule)), Tone::Dim);
            line.add(text::clean(&r.because).into_owned(), Tone::Plain);
            out.push(line);
        }
    }
    story(cx, f, &mut out);
    if !f.fire.next.is_empty() {
        out.push(heading("next"));
        out.extend(items(&f.fire.next, wide, Tone::Strong));
    }
    out.push(Line::new());
    out.push(Line::of(format!(" full explanation: stallscope rules {}", f.rule), Tone::Dim));
    out
}

/// What explains it, and what it explains.
fn story(cx: &Cx<'_>, f: &Finding, out: &mut Vec<Line>) {
    let line = |f: &Finding| {
        let s = cx.now.findings.severity(f);
        let mut line = Line::of(format!("    {:<2} ", s.mark()), tone_of(s));
        line.add(format!("{}  ", f.rule), Tone::Strong);
        line.with(text::clean(&f.fire.summary).into_owned(), Tone::Plain)
    };
    if let Some(cause) = cx.now.findings.cause_of(f) {
        out.push(heading("a consequence of"));
        out.push(line(cause));
    }
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
        out.extend(folded.map(|f| line(f)));
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

fn since(cx: &Cx<'_>, f: &Finding) -> Line {
    let lasted = cx.mono().since(f.since);
    let mut s = format!("{}, for {}", cx.clock(f.first_seen), units::age(lasted));
    if !f.active {
        s = format!("{} until {} (ended)", cx.clock(f.first_seen), cx.clock(f.last_seen));
    }
    field("since", s)
}

fn confidence(f: &Finding) -> Line {
    let missing = f.fire.missing.join("; ");
    let missing = text::clean(&missing);
    let s = match (f.fire.confidence, f.fire.missing.is_empty()) {
        (Confidence::Confirmed, true) => "confirmed: all inputs available".to_owned(),
        (Confidence::Confirmed, false) => format!("confirmed; cannot tell: {missing}"),
        (Confidence::Suspected, true) => "suspected".to_owned(),
        (Confidence::Suspected, false) => format!("suspected; cannot tell: {missing}"),
    };
    field("confidence", s)
}

/// One number over time. A finding keeps its evidence in the same order from tick to tick.
fn evidence(
    cx: &Cx<'_>,
    key: &FindingKey,
    index: usize,
    e: &Evidence,
    wide: usize,
    out: &mut Vec<Line>,
) {
    let name = text::cut(&text::clean(&e.field), 13).into_owned();
    let mut line = Line::of(format!("    {name:<14}"), Tone::Dim);
    if let Some(v) = e.value {
        let n = (wide / 5).clamp(6, 30);
        let b = Buckets::new(cx.mono(), Duration::from_secs(60), cx.analysis.host().interval, n);
        let values = over_time(cx, key, index, &e.field, b);
        let top = series::greatest(&values).unwrap_or(0.0).max(v).max(e.threshold.unwrap_or(0.0));
        line.push(Piece::Spark(series::levels(&values, top), Tone::Plain));
        line.add(format!(" {:>11}  ", quantity(v, e.unit)), Tone::Strong);
        if let Some(t) = e.threshold {
            let word = if v >= t { "over" } else { "under" };
            // Thresholds are round numbers.
            let limit = quantity(t, e.unit).replace(".00s", "s");
            line.add(format!("{word} {limit}  "), Tone::Dim);
        }
    }
    let room = wide.saturating_sub(line.width());
    let words = text::clean(&e.text).into_owned();
    if text::width(&words) <= room {
        line.add(words, Tone::Plain);
        out.push(line);
        return;
    }
    out.push(line);
    for l in text::wrap(&words, wide.saturating_sub(14).max(10)) {
        out.push(Line::of(format!("    {:14}{l}", ""), Tone::Plain));
    }
}

/// The value of evidence with its unit, as people write it: `13.1s`, not `13.1k ms`.
fn quantity(v: f64, unit: &str) -> String {
    match unit {
        "" => units::count(v),
        "%" => format!("{}%", units::pct(v)),
        "s" => units::secs(v),
        "ms" => units::millis(v),
        "us" => units::secs(v / 1e6),
        "ms/s" => format!("{}/s", units::millis(v)),
        "bytes" => units::bytes(v),
        "kB/s" => format!("{}/s", units::bytes(v * 1024.0)),
        "/s" => format!("{}/s", units::count(v)),
        // An errno is a name, not a quantity.
        "errno" => format!("errno {v:.0}"),
        other => format!("{} {other}", units::count(v)),
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

#[cfg(test)]
mod tests {
    use super::quantity;

    #[test]
    fn numbers_have_the_units_that_people_say() {
        for (v, unit, want) in [
            (13_100.0, "ms", "13.1s"),
            (6.53, "s", "6.53s"),
            (50_000.0, "us", "50ms"),
            (272.0, "ms/s", "272ms/s"),
            (65_160.0, "bytes", "64K"),
            (12_288.0, "kB/s", "12M/s"),
            (16_800.0, "/s", "16.8k/s"),
            (91.2, "%", "91%"),
            (113.0, "errno", "errno 113"),
            (11.0, "segments", "11 segments"),
            (1.5, "CPUs", "1.5 CPUs"),
            (37.0, "", "37"),
        ] {
            assert_eq!(quantity(v, unit), want, "{v} {unit}");
        }
    }
}
