//! An incident as data: what the page and its Markdown both print, in this order. Every text in it
//! has passed [`clean`]: it is one line, and moves no cursor and no reading direction. What HTML or
//! Markdown would obey is still in it; whoever prints it escapes that.

use crate::diagnose::Severity;
use crate::text::sanitize;

/// Longest text that is printed, in characters: paths from the kernel are at most 4096 bytes.
const MAX_TEXT: usize = 4096;

/// Makes a text from the kernel, or from a file, harmless.
pub(super) fn clean(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((at, _)) => format!("{}...", sanitize(text.get(..at).unwrap_or_default())),
        None => sanitize(text).into_owned(),
    }
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Document {
    pub(super) title: String,
    /// Host and time.
    pub(super) subtitle: String,
    pub(super) conclusion: Conclusion,
    pub(super) culprits: Vec<Culprit>,
    pub(super) timeline: Timeline,
    pub(super) findings: Vec<Section>,
    /// Those for which there is no room to be told in full.
    pub(super) others: Vec<Brief>,
    /// How many there are beyond those.
    pub(super) left_out: usize,
    /// Not findings, but worth knowing.
    pub(super) annotations: Vec<String>,
    pub(super) moment: Option<Moment>,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) coverage: Coverage,
    pub(super) glossary: Vec<Entry>,
}

/// The worst finding, or that there is none.
#[derive(Clone, Debug, Default)]
pub(super) struct Conclusion {
    pub(super) severity: Option<Severity>,
    /// One sentence: what, and when.
    pub(super) what: String,
    pub(super) who: Option<String>,
    pub(super) to_do: Option<String>,
    /// The first command to type.
    pub(super) command: Option<String>,
    /// What else there is.
    pub(super) rest: String,
    /// Its section.
    pub(super) section: Option<usize>,
}

/// Who uses what others wait for.
#[derive(Clone, Debug)]
pub(super) struct Culprit {
    pub(super) who: String,
    /// How much of what, and how it is scheduled.
    pub(super) share: String,
    /// In which findings: section and rule.
    pub(super) of: Vec<(usize, &'static str)>,
}

/// Where something is on the width of a plot: 0 is the start of the recording, 100 the end.
pub(super) type Percent = f64;

/// Findings over all of the recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// Labels of times.
    pub(super) ticks: Vec<(Percent, String)>,
    pub(super) rows: Vec<Row>,
    /// Findings without a row.
    pub(super) more: usize,
    pub(super) holes: Vec<Gap>,
    pub(super) marks: Vec<Mark>,
    /// Figures of the host, and those that never changed, in words.
    pub(super) host: Vec<Plot>,
    pub(super) flat: String,
    /// Ticks that are missing, and how many there are.
    pub(super) missing: u64,
    pub(super) all: u64,
}

/// One finding on the timeline.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) section: Option<usize>,
    pub(super) severity: Severity,
    pub(super) rule: &'static str,
    pub(super) subject: String,
    pub(super) bars: Vec<Bar>,
}

/// A time in which a finding was there.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) from: Percent,
    pub(super) to: Percent,
    pub(super) severity: Severity,
    pub(super) label: String,
}

/// A time without ticks.
#[derive(Clone, Debug)]
pub(super) struct Gap {
    pub(super) from: Percent,
    pub(super) to: Percent,
    pub(super) label: String,
}

/// Something on the timeline that is no finding.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) at: Percent,
    pub(super) label: String,
}

/// A finding.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// Number on the page.
    pub(super) id: usize,
    /// With its consequences.
    pub(super) severity: Severity,
    pub(super) rule: &'static str,
    pub(super) summary: String,
    pub(super) subject: String,
    pub(super) is_suspected: bool,
    pub(super) is_over: bool,
    /// Since when, until when, for how long.
    pub(super) when: String,
    /// What of it is affected: some by name.
    pub(super) scope: String,
    /// What else is to be said of its severity or its cause.
    pub(super) remarks: Vec<String>,
    pub(super) evidence: Vec<Number>,
    pub(super) plots: Vec<Plot>,
    /// Who causes it, and with how much of what.
    pub(super) by: Vec<(String, String)>,
    pub(super) ruled_out: Vec<(String, String)>,
    pub(super) missing: Vec<String>,
    pub(super) commands: Vec<String>,
    pub(super) consequences: Vec<Section>,
}

/// A line of evidence.
#[derive(Clone, Debug)]
pub(super) struct Number {
    pub(super) field: String,
    pub(super) value: String,
    pub(super) limit: String,
    pub(super) text: String,
}

/// A figure over all of the recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Plot {
    pub(super) name: String,
    /// What it is of, and from where.
    pub(super) note: String,
    /// Place, least and greatest value; a new piece where nothing was measured in between.
    pub(super) pieces: Vec<Vec<(Percent, f64, f64)>>,
    /// Whether it is always the same, as far as its words tell.
    pub(super) is_flat: bool,
    /// The value at the upper end.
    pub(super) top: f64,
    /// That value, the least and the greatest one in words.
    pub(super) top_label: String,
    pub(super) range: String,
    /// Where the threshold is, and that in words.
    pub(super) limit: Option<(f64, String)>,
    /// When the finding was there.
    pub(super) shaded: Vec<(Percent, Percent)>,
    pub(super) holes: Vec<(Percent, Percent)>,
    pub(super) ticks: Vec<(Percent, String)>,
}

/// A finding in a line.
#[derive(Clone, Debug)]
pub(super) struct Brief {
    pub(super) severity: Severity,
    pub(super) rule: &'static str,
    pub(super) summary: String,
    pub(super) when: String,
}

/// The worst moment.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// Whether anything was wrong then; else it is the busiest one.
    pub(super) is_bad: bool,
    pub(super) when: String,
    pub(super) tables: Vec<Table>,
}

/// The first rows of a list.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) title: &'static str,
    /// How many there are, and how they are ordered; why it is empty.
    pub(super) note: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<(Option<Severity>, Vec<String>)>,
}

/// A column of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// What a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Words,
    Number,
}

/// What was measured, and what was not.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    /// As `check` says it.
    pub(super) verdict: String,
    /// What was not checked and what that takes, why, what would help.
    pub(super) blind: Vec<[String; 3]>,
    /// Thresholds that are not the default.
    pub(super) thresholds: Vec<String>,
    /// Rules that did not judge, by reason.
    pub(super) not_judged: Vec<(String, Vec<&'static str>)>,
    /// What could not be read.
    pub(super) unread: Vec<String>,
    /// Signals: name, source, how well, why, what would help.
    pub(super) signals: Vec<[String; 5]>,
}

/// What a rule means.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) rule: &'static str,
    pub(super) title: &'static str,
    pub(super) condition: &'static str,
    pub(super) look_alikes: &'static str,
    pub(super) remedy: &'static str,
    pub(super) sources: &'static str,
}

impl Document {
    /// What stands in place of culprits.
    pub(super) fn nobody(&self) -> &'static str {
        if self.findings.is_empty() {
            "None: nothing was found."
        } else {
            "No process or cgroup of this host was found to cause any of it."
        }
    }
}

impl Conclusion {
    /// How bad, in a word.
    pub(super) fn verdict(&self) -> &'static str {
        self.severity.map_or("Nothing was found.", |s| match s {
            Severity::Crit => "Critical:",
            Severity::Warn => "Warning:",
            Severity::Info => "Worth knowing:",
        })
    }
}

impl Moment {
    /// What to call it.
    pub(super) fn title(&self) -> String {
        let which = if self.is_bad { "worst" } else { "busiest" };
        format!("The {which} moment: {}", self.when)
    }
}

/// How bad, in a word.
pub(super) fn word(s: Severity) -> &'static str {
    match s {
        Severity::Crit => "Critical",
        Severity::Warn => "Warning",
        Severity::Info => "Worth knowing",
    }
}

/// `1 tick`, `2 ticks`, `2 processes`.
pub(super) fn counted(n: u64, what: &str) -> String {
    let ending = match n {
        1 => "",
        _ if what.ends_with('s') => "es",
        _ => "s",
    };
    format!("{n} {what}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_of_bounded_length() {
        assert_eq!(clean("a\n\u{1b}[2J\u{202e}b"), "a\u{FFFD}\u{FFFD}[2J\u{FFFD}b");
        let long = clean(&"\u{e9}".repeat(10_000));
        assert_eq!(long.chars().count(), MAX_TEXT + 3);
        assert_eq!(clean(&"x".repeat(MAX_TEXT)).len(), MAX_TEXT);
        assert_eq!([counted(1, "tick"), counted(2, "process")], ["1 tick", "2 processes"]);
    }
}
