//! A rule in full, from its own documentation: what `stallscope rules ID` prints.

use crate::diagnose::{LIMITS, RULES, RuleId};
use crate::sample::rule_settings::RuleSettings;
use crate::view::text;
use crate::view::vm::{Line, Tone};

pub(super) fn lines(id: RuleId, rules: &RuleSettings, w: u16) -> Vec<Line> {
    let Some(doc) = RULES.iter().find(|r| r.id() == id).map(|r| r.doc) else {
        return vec![Line::of(format!(" no rule {id}"), Tone::Dim)];
    };
    let wide = usize::from(w).saturating_sub(4).max(10);
    let mut out = vec![
        Line::of(format!(" {id}"), Tone::Strong),
        Line::of(format!("    {}", doc.title), Tone::Plain),
    ];
    let limit = LIMITS.iter().find(|l| l.rule == id);
    let own = limit.and_then(|l| Some((l, l.configured(rules)?)));
    let own = own.map(|(l, n)| {
        let text =
            format!("At {n} instead of {}: {}. Clears at {:.1}.", l.warn, l.of, l.at(n).clear);
        text.replace(".0.", ".")
    });
    for (heading, words) in [
        (" fires when", doc.condition),
        (" configured for this host", own.as_deref().unwrap_or_default()),
        (" look-alikes", doc.look_alikes),
        (" what to do", doc.remedy),
        (" sources", doc.sources),
    ] {
        if words.is_empty() {
            continue;
        }
        out.push(Line::of(heading, Tone::Accent));
        let lines = text::wrap(words, wide).into_iter();
        out.extend(lines.map(|l| Line::of(format!("    {l}"), Tone::Plain)));
    }
    out
}
