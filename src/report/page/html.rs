//! A [`Document`] as one HTML page. `maud` escapes every text; nothing is loaded, nothing runs, and
//! the policy in its head says so to the browser.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::document::{
    Brief, Conclusion, Coverage, Document, Entry, Kind, Moment, Section, Table, Timeline, counted,
    word,
};
use super::plot::{class, plot, ribbon, times, track};
use crate::diagnose::Severity;

/// How it looks. It closes no element: a test says so.
const STYLE: &str = include_str!("page.css");

/// Nothing but this style, which is named by its hash.
const POLICY: &str = concat!(
    "default-src 'none'; style-src '",
    include_str!("page.css.sha256"),
    "'; base-uri 'none'; form-action 'none'"
);

/// The page.
#[must_use]
pub fn html(d: &Document) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                meta name="generator" content=(concat!("stallscope ", env!("CARGO_PKG_VERSION")));
                title { (d.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    header {
                        h1 { (d.title) }
                        p.dim { (d.subtitle) }
                    }
                    (conclusion(&d.conclusion))
                    (culprits(d))
                    (timeline(&d.timeline))
                    (findings(d))
                    @if let Some(m) = &d.moment { (moment(m)) }
                    (environment(&d.environment))
                    (coverage(&d.coverage))
                    (glossary(&d.glossary))
                }
            }
        }
    };
    page.into_string()
}

fn badge(s: Severity) -> Markup {
    html! { span.badge.(class(s)) { (word(s)) } }
}

fn link(id: usize, text: &str) -> Markup {
    html! { a href={ "#f" (id) } { (text) } }
}

fn conclusion(c: &Conclusion) -> Markup {
    let look = c.severity.map_or("calm", class);
    html! {
        section.conclusion.(look) {
            h2 { "Conclusion" }
            p.what { b { (c.verdict()) } " " (c.what) }
            @if let Some(who) = &c.who { p { b { "Who: " } (who) } }
            @if let Some(to_do) = &c.to_do { p { b { "What to do: " } (to_do) } }
            @if let Some(command) = &c.command { (command_line(command)) }
            p.dim {
                @if let Some(id) = c.section { (link(id, "Its evidence")) ". " }
                (c.rest)
            }
        }
    }
}

fn command_line(text: &str) -> Markup {
    html! { pre.cmd { code { (text) } } }
}

fn culprits(d: &Document) -> Markup {
    html! {
        section {
            h2 { "Culprits" }
            @if d.culprits.is_empty() {
                p { (d.nobody()) }
            } @else {
                div.scroll { table {
                    thead { tr { th { "who" } th { "with" } th { "in" } } }
                    tbody { @for b in &d.culprits { tr {
                        td.name { (b.who) }
                        td.text { (b.share) }
                        td.name { @for (i, (id, rule)) in b.of.iter().enumerate() {
                            @if i > 0 { ", " }
                            (link(*id, rule))
                        } }
                    } } }
                } }
            }
        }
    }
}

fn timeline(t: &Timeline) -> Markup {
    html! {
        section {
            h2 { "Timeline" }
            div.timeline {
                div.label { "recording" }
                (ribbon(&t.holes, &t.marks, &t.ticks))
                @for r in &t.rows {
                    div.label {
                        span.dot.(class(r.severity)) { (r.severity.mark()) } " "
                        @if let Some(id) = r.section { (link(id, r.rule)) } @else { (r.rule) }
                        " " span.dim { (r.subject) }
                    }
                    (track(&r.bars, &t.holes, &t.ticks))
                }
                div.label.dim { "UTC" }
                (times(&t.ticks))
            }
            @if t.more > 0 { p.dim { "And " (counted(t.more as u64, "finding")) " more." } }
            p.dim { (legend(t)) }
            @if !t.holes.is_empty() {
                details {
                    summary { (counted(t.holes.len() as u64, "gap")) " in the recording" }
                    ul { @for h in &t.holes { li { (h.label) } } }
                }
            }
            @if !t.marks.is_empty() {
                details open {
                    summary { "Marked in the recording" }
                    ul { @for m in &t.marks { li { (m.label) } } }
                }
            }
            @if !t.host.is_empty() { div.plots { @for p in &t.host { (plot(p)) } } }
            @if !t.flat.is_empty() { p.dim { (t.flat) } }
        }
    }
}

/// What the bars say.
fn legend(t: &Timeline) -> String {
    let bars = if t.rows.is_empty() {
        ""
    } else {
        "High bars are critical, medium ones warnings, low ones worth knowing. "
    };
    let ticks = counted(t.all, "tick");
    match t.missing {
        0 => format!("{bars}{ticks}, none missing."),
        n => format!("{bars}{ticks}; {n} missing, where the recording is crossed out."),
    }
}

fn findings(d: &Document) -> Markup {
    html! {
        section {
            h2 { "Findings" }
            @if d.findings.is_empty() { p { "None." } }
            @for s in &d.findings { (finding(s)) }
            @if !d.others.is_empty() { (others(&d.others, d.left_out)) }
            @if !d.annotations.is_empty() {
                h3 { "Beside that" }
                ul { @for a in &d.annotations { li { (a) } } }
            }
        }
    }
}

fn others(list: &[Brief], left_out: usize) -> Markup {
    html! {
        h3 { "More findings" }
        div.scroll { table {
            thead { tr { th { "severity" } th { "rule" } th { "what" } th { "when" } } }
            tbody { @for b in list { tr {
                td { (badge(b.severity)) } td.name { (b.rule) } td { (b.summary) } td { (b.when) }
            } } }
        } }
        @if left_out > 0 {
            p.dim { "And " (counted(left_out as u64, "finding")) " more: stallscope check lists them." }
        }
    }
}

fn finding(s: &Section) -> Markup {
    html! {
        article id={ "f" (s.id) } class=(class(s.severity)) {
            h3 { (badge(s.severity)) " " span.rule { (s.rule) } " " (s.summary) }
            p.dim {
                (s.subject) ", "
                @if s.is_suspected { "suspected, " }
                (s.when)
                @if s.is_over { " (ended)" }
            }
            @for r in &s.remarks { p { (r) } }
            @if !s.by.is_empty() {
                h4 { "Caused by" }
                ul { @for (who, share) in &s.by { li { b { (who) } " with " (share) } } }
            }
            @if !s.commands.is_empty() {
                h4 { "Type next" }
                @for c in &s.commands { (command_line(c)) }
            }
            @if !s.evidence.is_empty() { h4 { "Evidence" } (evidence(s)) }
            @if !s.plots.is_empty() { div.plots { @for p in &s.plots { (plot(p)) } } }
            @if !s.ruled_out.is_empty() {
                h4 { "Ruled out" }
                ul { @for (rule, because) in &s.ruled_out { li { b { (rule) } ": " (because) } } }
            }
            @if !s.missing.is_empty() {
                h4 { "Cannot tell" }
                ul { @for m in &s.missing { li { (m) } } }
            }
            @if !s.scope.is_empty() { h4 { "Affected" } p.scope { (s.scope) } }
            @if !s.consequences.is_empty() {
                details {
                    summary { (counted(s.consequences.len() as u64, "consequence")) }
                    @for c in &s.consequences { (finding(c)) }
                }
            }
        }
    }
}

/// Columns without any value are left out.
fn evidence(s: &Section) -> Markup {
    let has_value = s.evidence.iter().any(|n| !n.value.is_empty());
    let has_limit = s.evidence.iter().any(|n| !n.limit.is_empty());
    html! {
        div.scroll { table {
            thead { tr {
                th { "field" }
                @if has_value { th.number { "value" } }
                @if has_limit { th.number { "threshold" } }
                th { "what it says" }
            } }
            tbody { @for n in &s.evidence { tr {
                td.name { (n.field) }
                @if has_value { td.number { (n.value) } }
                @if has_limit { td.number { (n.limit) } }
                td.text { (n.text) }
            } } }
        } }
    }
}

fn moment(m: &Moment) -> Markup {
    html! {
        section {
            h2 { (m.title()) }
            @for t in &m.tables { (table(t)) }
        }
    }
}

fn table(t: &Table) -> Markup {
    let look = |kind| if kind == Kind::Number { "number" } else { "name" };
    html! {
        h3 { (t.title) " " span.dim { (t.note) } }
        @if !t.rows.is_empty() {
            div.scroll { table {
                thead { tr { th {} @for c in &t.columns { th class=(look(c.kind)) { (c.name) } } } }
                tbody { @for (severity, cells) in &t.rows { tr {
                    td { @if let Some(s) = severity { span.dot.(class(*s)) { (s.mark()) } } }
                    @for (c, cell) in t.columns.iter().zip(cells) {
                        td class=(look(c.kind)) { (cell) }
                    }
                } } }
            } }
        }
    }
}

fn environment(list: &[(&'static str, String)]) -> Markup {
    html! {
        section {
            h2 { "Environment" }
            dl { @for (name, value) in list { div { dt { (name) } dd { (value) } } } }
        }
    }
}

fn coverage(c: &Coverage) -> Markup {
    html! {
        section {
            h2 { "Coverage" }
            p { (c.verdict) }
            @if !c.blind.is_empty() {
                h3 { "Not seen" }
                (rows(["what", "why", "what would help"], &c.blind))
            }
            @if !c.unread.is_empty() {
                h3 { "Not readable in this recording" }
                ul { @for u in &c.unread { li { (u) } } }
            }
            @if !c.thresholds.is_empty() {
                h3 { "Thresholds that are not the default" }
                ul { @for t in &c.thresholds { li { (t) } } }
            }
            @if !c.not_judged.is_empty() {
                h3 { "Rules that could not judge" }
                ul { @for (why, rules) in &c.not_judged { li { b { (why) } ": " (rules.join(", ")) } } }
            }
            @if !c.signals.is_empty() {
                details {
                    summary { "All " (counted(c.signals.len() as u64, "signal")) }
                    (rows(["signal", "source", "state", "why", "what would help"], &c.signals))
                }
            }
        }
    }
}

/// Columns that no row fills are left out.
fn rows<const N: usize>(heads: [&str; N], list: &[[String; N]]) -> Markup {
    let shown: Vec<usize> = (0..N).filter(|i| list.iter().any(|r| !r[*i].is_empty())).collect();
    html! {
        div.scroll { table {
            thead { tr { @for i in &shown { th { (heads[*i]) } } } }
            tbody { @for cells in list { tr { @for i in &shown { td { (cells[*i]) } } } } }
        } }
    }
}

fn glossary(list: &[Entry]) -> Markup {
    html! {
        @if !list.is_empty() {
            section {
                h2 { "What the rules mean" }
                @for e in list {
                    details id={ "rule-" (e.rule) } {
                        summary { b { (e.rule) } ": " (e.title) }
                        dl {
                            div { dt { "Fires when" } dd { (e.condition) } }
                            div { dt { "Looks the same" } dd { (e.look_alikes) } }
                            div { dt { "What to do" } dd { (e.remedy) } }
                            div { dt { "Sources" } dd { (e.sources) } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_closes_no_element() {
        assert!(!STYLE.contains('<') && !STYLE.contains("url(") && !STYLE.contains("@import"));
    }
}
