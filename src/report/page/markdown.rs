//! A [`Document`] as Markdown, for a ticket: the same in the same order, without plots. Whatever
//! comes from the kernel or a file is text there, whichever signs it has.

use std::fmt::Write as _;

use super::document::{Coverage, Document, Section, Table, counted, word};
use super::incident::prefix;

/// The text.
#[must_use]
pub fn markdown(d: &Document) -> String {
    let mut out = format!("# {}\n\n{}\n", escaped(&d.title), escaped(&d.subtitle));
    conclusion(&mut out, d);
    culprits(&mut out, d);
    timeline(&mut out, d);
    findings(&mut out, d);
    if let Some(m) = &d.moment {
        let _ = write!(out, "\n## {}\n", escaped(&m.title()));
        m.tables.iter().for_each(|t| moment(&mut out, t));
    }
    out.push_str("\n## Environment\n\n");
    let rows = d.environment.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]);
    table(&mut out, &["", ""], rows);
    coverage(&mut out, &d.coverage);
    glossary(&mut out, d);
    out
}

/// Text that Markdown, and HTML in it, leaves as it is.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut is_start = true;
    let mut is_number = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // Some trackers notify whoever is called so.
            '@' => out.push_str("&#64;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '~' | '|' | '#' | '!' | '$' | '^' => {
                out.push('\\');
                out.push(c);
            }
            // Lists and rules begin with these, and only there.
            '-' | '+' | '=' if is_start => {
                out.push('\\');
                out.push(c);
            }
            '.' | ')' if is_number && chars.peek().is_none_or(|n| *n == ' ') => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
        is_number = (is_start || is_number) && c.is_ascii_digit();
        is_start = is_start && c == ' ';
    }
    // A link would be made of it.
    out.replace("://", ":&#47;&#47;").replace("www.", "www&#46;")
}

/// A command in a block whose fence is longer than any in it.
fn command(out: &mut String, text: &str) {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = write!(out, "\n{fence}sh\n{text}\n{fence}\n");
}

fn item(out: &mut String, text: &str) {
    let _ = writeln!(out, "- {}", escaped(text));
}

/// With what is above it; nothing where there is none.
fn list(out: &mut String, head: &str, items: Vec<String>) {
    if !items.is_empty() {
        let _ = write!(out, "\n{head}\n\n");
        for i in &items {
            item(out, i);
        }
    }
}

fn table(out: &mut String, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let _ = writeln!(out, "| {} |", heads.join(" | "));
    let _ = writeln!(out, "|{}", " --- |".repeat(heads.len()));
    for cells in rows {
        let cells: Vec<String> = cells.iter().map(|c| escaped(c)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
}

fn conclusion(out: &mut String, d: &Document) {
    let c = &d.conclusion;
    let _ = write!(out, "\n## Conclusion\n\n**{}** {}\n", c.verdict(), escaped(&c.what));
    if let Some(who) = &c.who {
        let _ = write!(out, "\n**Who:** {}\n", escaped(who));
    }
    if let Some(to_do) = &c.to_do {
        let _ = write!(out, "\n**What to do:** {}\n", escaped(to_do));
    }
    if let Some(c) = &c.command {
        command(out, c);
    }
    let _ = write!(out, "\n{}\n", escaped(&c.rest));
}

fn culprits(out: &mut String, d: &Document) {
    out.push_str("\n## Culprits\n\n");
    if d.culprits.is_empty() {
        let _ = writeln!(out, "{}", d.nobody());
        return;
    }
    let rows = d.culprits.iter().map(|b| {
        let rules: Vec<&str> = b.of.iter().map(|o| o.1).collect();
        vec![b.who.clone(), b.share.clone(), rules.join(", ")]
    });
    table(out, &["who", "with", "in"], rows);
}

fn timeline(out: &mut String, d: &Document) {
    let t = &d.timeline;
    out.push_str("\n## Timeline\n\n");
    if !t.rows.is_empty() {
        let rows = t.rows.iter().flat_map(|r| {
            r.bars.iter().map(|b| {
                vec![
                    b.severity.name().to_owned(),
                    r.rule.to_owned(),
                    r.subject.clone(),
                    b.label.clone(),
                ]
            })
        });
        table(out, &["severity", "rule", "what", "when"], rows);
        out.push('\n');
    }
    if t.more > 0 {
        let _ = writeln!(out, "And {} more.\n", counted(t.more as u64, "finding"));
    }
    let _ = match t.missing {
        0 => writeln!(out, "{}, none missing.", counted(t.all, "tick")),
        n => writeln!(out, "{}, {n} missing.", counted(t.all, "tick")),
    };
    if !t.holes.is_empty() || !t.marks.is_empty() {
        out.push('\n');
    }
    t.holes.iter().for_each(|h| item(out, &h.label));
    t.marks.iter().for_each(|m| item(out, &m.label));
}

fn findings(out: &mut String, d: &Document) {
    out.push_str("\n## Findings\n");
    if d.findings.is_empty() {
        out.push_str("\nNone.\n");
    }
    d.findings.iter().for_each(|s| finding(out, s, 3));
    if !d.others.is_empty() {
        out.push_str("\n### More findings\n\n");
        let rows = d.others.iter().map(|b| {
            vec![b.severity.name().to_owned(), b.rule.to_owned(), b.summary.clone(), b.when.clone()]
        });
        table(out, &["severity", "rule", "what", "when"], rows);
        if d.left_out > 0 {
            let more = counted(d.left_out as u64, "finding");
            let _ = write!(out, "\nAnd {more} more: `stallscope check` lists them.\n");
        }
    }
    if !d.annotations.is_empty() {
        out.push_str("\n### Beside that\n\n");
        d.annotations.iter().for_each(|a| item(out, a));
    }
}

fn finding(out: &mut String, s: &Section, depth: usize) {
    let severity = prefix(Some(s.severity));
    let head = "#".repeat(depth);
    let _ = write!(out, "\n{head} {severity}{}: {}\n\n", s.rule, escaped(&s.summary));
    let suspected = if s.is_suspected { "suspected, " } else { "" };
    let ended = if s.is_over { " (ended)" } else { "" };
    let _ = writeln!(out, "{}, {suspected}{}{ended}", escaped(&s.subject), escaped(&s.when));
    for r in &s.remarks {
        let _ = write!(out, "\n{}\n", escaped(r));
    }
    list(
        out,
        "**Caused by**",
        s.by.iter().map(|(who, share)| format!("{who} with {share}")).collect(),
    );
    if !s.commands.is_empty() {
        out.push_str("\n**Type next**\n");
        s.commands.iter().for_each(|c| command(out, c));
    }
    if !s.evidence.is_empty() {
        out.push_str("\n**Evidence**\n\n");
        let rows = s
            .evidence
            .iter()
            .map(|n| vec![n.field.clone(), n.value.clone(), n.limit.clone(), n.text.clone()]);
        table(out, &["field", "value", "threshold", "what it says"], rows);
    }
    list(
        out,
        "**Ruled out**",
        s.ruled_out.iter().map(|(rule, why)| format!("{rule}: {why}")).collect(),
    );
    list(out, "**Cannot tell**", s.missing.clone());
    if !s.scope.is_empty() {
        let _ = write!(out, "\n**Affected:** {}\n", escaped(&s.scope));
    }
    if !s.consequences.is_empty() {
        let n = counted(s.consequences.len() as u64, "consequence");
        let _ = write!(out, "\n**{n}**\n");
        s.consequences.iter().for_each(|c| finding(out, c, depth + 1));
    }
}

fn moment(out: &mut String, t: &Table) {
    let _ = write!(out, "\n### {}\n\n", t.title);
    if !t.note.is_empty() {
        let _ = write!(out, "{}\n\n", escaped(&t.note));
    }
    if t.rows.is_empty() {
        return;
    }
    let heads: Vec<&str> = std::iter::once("").chain(t.columns.iter().map(|c| c.name)).collect();
    let rows = t.rows.iter().map(|(severity, cells)| {
        let mark = severity.map_or_else(String::new, |s| word(s).to_owned());
        std::iter::once(mark).chain(cells.iter().cloned()).collect()
    });
    table(out, &heads, rows);
}

fn coverage(out: &mut String, c: &Coverage) {
    let _ = write!(out, "\n## Coverage\n\n{}\n", escaped(&c.verdict));
    if !c.blind.is_empty() {
        out.push_str("\n### Not seen\n\n");
        let rows = c.blind.iter().map(|b| b.to_vec());
        table(out, &["what", "why", "what would help"], rows);
    }
    list(out, "### Not readable in this recording", c.unread.clone());
    list(out, "### Thresholds that are not the default", c.thresholds.clone());
    let not_judged = c.not_judged.iter().map(|(why, rules)| format!("{why}: {}", rules.join(", ")));
    list(out, "### Rules that could not judge", not_judged.collect());
    if !c.signals.is_empty() {
        out.push_str("\n### Signals\n\n");
        let rows = c.signals.iter().map(|s| s.to_vec());
        table(out, &["signal", "source", "state", "why", "what would help"], rows);
    }
}

fn glossary(out: &mut String, d: &Document) {
    if d.glossary.is_empty() {
        return;
    }
    out.push_str("\n## What the rules mean\n");
    for e in &d.glossary {
        let _ = write!(out, "\n### {}: {}\n\n", e.rule, escaped(e.title));
        item(out, &format!("Fires when: {}", e.condition));
        item(out, &format!("Looks the same: {}", e.look_alikes));
        item(out, &format!("What to do: {}", e.remedy));
        item(out, &format!("Sources: {}", e.sources));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_obeyed() {
        for (text, want) in [
            ("a_b*c", r"a\_b\*c"),
            ("<script>&", "&lt;script&gt;&amp;"),
            ("[x](y)", r"\[x\](y)"),
            ("# head", r"\# head"),
            ("- item", r"\- item"),
            ("a - b", "a - b"),
            ("12. item", r"12\. item"),
            ("1.5 ms", "1.5 ms"),
            ("7)", r"7\)"),
            ("a 1.5", "a 1.5"),
            ("a|b", r"a\|b"),
            ("`x`", r"\`x\`"),
            ("@all", "&#64;all"),
            ("http://x", "http:&#47;&#47;x"),
            ("=== x", r"\=== x"),
        ] {
            assert_eq!(escaped(text), want);
        }
    }

    #[test]
    fn a_command_ends_where_it_ends() {
        let mut out = String::new();
        command(&mut out, "echo ```` x");
        assert_eq!(out, "\n`````sh\necho ```` x\n`````\n");
    }
}
