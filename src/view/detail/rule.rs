//! A rule in full, from its own documentation: what `stallscope rules ID` prints.

use crate::diagnose::{RULES, RuleId};
use crate::view::text;
use crate::view::vm::{Line, Tone};

pub(super) fn lines(id: RuleId, w: u16) -> Vec<Line> {
    let Some(doc) = RULES.iter().find(|r| r.id() == id).map(|r| r.doc) else {
        return vec![Line::of(format!(" no rule {id}"), Tone::Dim)];
    };
    let wide = usize::from(w).saturating_sub(4).max(10);
    let mut out = vec![
        Line::of(format!(" {id}"), Tone::Strong),
        Line::of(format!("    {}", doc.title), Tone::Plain),
    ];
    for (heading, words) in [
        (" fires when", doc.condition),
        (" look-alikes", doc.look_alikes),
        (" what to do", doc.remedy),
        (" sources", doc.sources),
    ] {
        out.push(Line::of(heading, Tone::Accent));
        let lines = text::wrap(words, wide).into_iter();
        out.extend(lines.map(|l| Line::of(format!("    {l}"), Tone::Plain)));
    }
    out
}
