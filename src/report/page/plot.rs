//! Plots as SVG without a script: as wide as there is room, places in percent, so that no text in
//! them is stretched. What a colour says is said by a height or a word, too.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::document::{Bar, Gap, Mark, Percent, Plot};
use crate::diagnose::Severity;

/// Least width of a bar, so that a short finding in a long recording is seen.
const LEAST: Percent = 0.4;

/// The colour of a severity, by its class.
pub(super) fn class(s: Severity) -> &'static str {
    s.name()
}

fn percent(p: Percent) -> String {
    format!("{p:.2}%")
}

fn width(from: Percent, to: Percent) -> String {
    percent((to - from).max(LEAST))
}

/// Where a bar begins: one at the end is not outside.
fn start(from: Percent) -> String {
    percent(from.min(100.0 - LEAST))
}

/// The row of a finding.
pub(super) fn track(bars: &[Bar], holes: &[Gap], ticks: &[(Percent, String)]) -> Markup {
    html! {
        svg.track width="100%" height="22" {
            (grid(ticks))
            @for h in holes {
                rect.hole x=(start(h.from)) width=(width(h.from, h.to)) y="0" height="100%" {}
            }
            @for b in bars {
                @let (y, height) = match b.severity {
                    Severity::Crit => ("3", "16"),
                    Severity::Warn => ("5", "12"),
                    Severity::Info => ("8", "6"),
                };
                rect class=(class(b.severity)) x=(start(b.from)) width=(width(b.from, b.to))
                    y=(y) height=(height) { title { (b.label) ", " (b.severity.name()) } }
            }
        }
    }
}

/// The row of the recording itself: where it has ticks, and what was marked in it.
pub(super) fn ribbon(holes: &[Gap], marks: &[Mark], ticks: &[(Percent, String)]) -> Markup {
    html! {
        svg.track width="100%" height="22" {
            (grid(ticks))
            rect.there x="0" width="100%" y="8" height="6" {}
            @for h in holes {
                rect.gap x=(start(h.from)) width=(width(h.from, h.to)) y="2" height="18" {
                    title { (h.label) }
                }
            }
            @for m in marks {
                line.mark x1=(percent(m.at)) x2=(percent(m.at)) y1="1" y2="21" {
                    title { (m.label) }
                }
            }
        }
    }
}

fn grid(ticks: &[(Percent, String)]) -> Markup {
    html! {
        @for (at, _) in ticks {
            line.grid x1=(percent(*at)) x2=(percent(*at)) y1="0" y2="100%" {}
        }
    }
}

/// Times below a plot.
pub(super) fn times(ticks: &[(Percent, String)]) -> Markup {
    html! {
        svg.times width="100%" height="16" {
            @for (at, text) in ticks {
                @let anchor = match *at {
                    p if p < 6.0 => "start",
                    p if p > 94.0 => "end",
                    _ => "middle",
                };
                text x=(percent(*at)) y="12" text-anchor=(anchor) { (text) }
            }
        }
    }
}

/// A figure over time.
pub(super) fn plot(p: &Plot) -> Markup {
    let limit = p.limit.as_ref().map(|(v, text)| (height(*v, p.top), text));
    html! {
        figure {
            figcaption {
                b { (p.name) } " " (p.range)
                @if let Some((_, text)) = &limit { ", " span.limit { "threshold " (text) } }
                @if !p.note.is_empty() { " " span.dim { (p.note) } }
            }
            svg.plot width="100%" height="84" role="img" aria-label=(format!("{} {}", p.name, p.range)) {
                @for (from, to) in &p.shaded {
                    rect.shade x=(start(*from)) width=(width(*from, *to)) y="0" height="100%" {}
                }
                (grid(&p.ticks))
                @for (from, to) in &p.holes {
                    rect.hole x=(start(*from)) width=(width(*from, *to)) y="0" height="100%" {}
                }
                svg x="0" y="0" width="100%" height="100%" viewBox="0 0 1000 100"
                    preserveAspectRatio="none" {
                    path.line d=(path(p)) vector-effect="non-scaling-stroke" {}
                }
                @if let Some((y, _)) = limit {
                    @let y = format!("{y:.1}%");
                    line.limit x1="0" x2="100%" y1=(y) y2=(y) {}
                }
                text.scale x="4" y="12" { (p.top_label) }
                text.scale x="4" y="80" { "0" }
            }
            (times(&p.ticks))
        }
    }
}

/// From the top, in hundredths of the height; a line at either end is inside.
fn height(v: f64, top: f64) -> f64 {
    let share = if top > 0.0 { (v / top).clamp(0.0, 1.0) } else { 0.0 };
    98.0 - 95.0 * share
}

fn path(p: &Plot) -> String {
    let mut out = String::new();
    for piece in &p.pieces {
        let mut command = 'M';
        for (at, low, high) in piece {
            let x = at * 10.0;
            let _ = write!(out, "{command}{x:.1} {:.1}", height(*low, p.top));
            command = 'L';
            if low != high {
                let _ = write!(out, "V{:.1}", height(*high, p.top));
            }
        }
        if piece.len() == 1 {
            out.push_str("h2");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_every_value_and_a_gap_where_there_is_none() {
        let pieces = vec![vec![(0.0, 0.0, 0.0), (50.0, 5.0, 10.0)], vec![(100.0, 2.0, 2.0)]];
        let p = Plot { pieces, top: 10.0, ..Plot::default() };
        assert_eq!(path(&p), "M0.0 98.0L500.0 50.5V3.0M1000.0 79.0h2");
    }

    #[test]
    fn a_short_bar_is_seen_and_none_is_outside() {
        let label = "<b>".to_owned();
        let bar = Bar { from: 100.0, to: 100.0, severity: Severity::Crit, label };
        let text = track(&[bar], &[], &[]).into_string();
        assert!(text.contains(r#"x="99.60%" width="0.40%""#), "{text}");
        assert!(text.contains("<title>&lt;b&gt;, crit</title>"), "{text}");
    }
}
