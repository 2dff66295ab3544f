//! What `stallscope help` explains besides the commands: one source for the terminal and for
//! rustdoc, where [`TOPICS`] shows every page.
//!
//! A topic is a file `help/NAME.md` and a line in the list below. The file is Markdown, which
//! [`Topic::page`] turns into plain text of 80 columns. What the program itself knows (keys, rules,
//! exit codes) is not repeated there but appended from its own tables.

use std::fmt::Write as _;

use crate::diagnose::RULES;
use crate::exit::Exit;
use crate::openmetrics;
use crate::report::rules;
use crate::report::table::TABLES;
use crate::view::keymap::{GROUPS, KEYMAP, key_names};
use crate::view::state::ViewState;
use crate::view::text::wrap;

/// Columns of a page.
const WIDTH: usize = 80;

/// A page of help that is not about one command.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// What follows `stallscope help`.
    pub name: &'static str,
    /// One line for the list of topics.
    pub about: &'static str,
    /// The file: Markdown.
    pub text: &'static str,
    /// Tables that the program appends to it.
    pub tables: &'static [fn() -> String],
}

/// Each line: name of the file, line in the list, tables to append.
macro_rules! topics {
    ($($name:literal: $about:literal, [$($table:path),*];)*) => {
        /// Every topic, in the order in which `stallscope help` lists them.
        ///
        $(#[doc = include_str!(concat!("help/", $name, ".md"))])*
        pub const TOPICS: &[Topic] = &[$(Topic {
            name: $name,
            about: $about,
            text: include_str!(concat!("help/", $name, ".md")),
            tables: &[$($table),*],
        }),*];
    };
}

topics! {
    "keys": "every key of the console, and how to filter", [key_table];
    "findings": "how to read a finding, and what \"no findings\" covers", [];
    "rules": "every rule, with what it means", [rule_table];
    "why": "why a process is slow: the classes, and how exact they are", [];
    "recording": "writing recordings: guarantees, limits, flight recorder", [];
    "replay": "moving in a recording; exporting and redacting", [];
    "explain": "diagnosing pasted text: which tools it reads", [];
    "metrics": "metrics for Prometheus: scraping, tokens, every metric", [metric_table];
    "json": "the fields of --format json", [];
    "tables": "exporting figures as tables: formats, DuckDB, every column", [columns_of_tables];
    "exit-codes": "what the exit code tells a script", [exit_codes];
    "permissions": "what works without root, and what root adds", [];
    "containers": "running in a container, and what each flag is for", [];
    "ebpf": "what eBPF adds, what it needs, how exact it is", [];
    "costs": "CPU, memory and bytes, as measured", [];
}

impl Topic {
    /// The topic of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TOPICS.iter().find(|t| t.name == name)
    }

    /// The page as printed: headings in capitals, code indented, tables appended.
    #[must_use]
    pub fn page(&self) -> String {
        let mut out = String::new();
        let mut in_code = false;
        for line in self.text.lines() {
            if line.starts_with("```") {
                in_code = !in_code;
                continue;
            }
            match line.strip_prefix('#') {
                Some(heading) if !in_code => {
                    out.push_str(&heading.trim_start_matches('#').trim().to_uppercase());
                }
                _ if in_code && !line.is_empty() => {
                    out.push_str("    ");
                    out.push_str(line);
                }
                _ => out.push_str(line),
            }
            out.push('\n');
        }
        for table in self.tables {
            out.push('\n');
            out.push_str(&table());
        }
        out
    }
}

/// The topics with a line on each.
#[must_use]
pub fn list() -> String {
    columns(TOPICS.iter().map(|t| (t.name.to_owned(), t.about)).collect())
}

/// The exit codes with a line on each.
#[must_use]
pub fn exit_codes() -> String {
    columns(Exit::ALL.map(|e| ((e as u8).to_string(), e.meaning())).to_vec())
}

/// The keymap by its headings.
fn key_table() -> String {
    let v = ViewState::default();
    let width = KEYMAP.iter().map(|b| key_names(&v, b).len()).max().unwrap_or(0);
    let mut out = String::new();
    for group in GROUPS {
        let blank = if out.is_empty() { "" } else { "\n" };
        let _ = writeln!(out, "{blank}{group}");
        for b in KEYMAP.iter().filter(|b| b.group == *group) {
            row(&mut out, &key_names(&v, b), width, b.help);
        }
    }
    out
}

/// What `stallscope rules` lists, wrapped.
fn rule_table() -> String {
    let list = rules::list(RULES);
    let rows = list.lines().filter_map(|l| l.split_once(' '));
    columns(rows.map(|(id, title)| (id.to_owned(), title)).collect())
}

/// The columns of every table of `export`.
fn columns_of_tables() -> String {
    let all = || TABLES.iter().flat_map(|t| t.columns());
    let width = all().map(|c| c.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for table in TABLES {
        let blank = if out.is_empty() { "" } else { "\n" };
        out.push_str(blank);
        for line in wrap(&format!("{}: {}", table.name, table.about), WIDTH) {
            let _ = writeln!(out, "{line}");
        }
        for c in table.columns() {
            let unit = if c.unit.is_empty() { String::new() } else { format!(", {}", c.unit) };
            let text = format!("{}{unit}: {}", c.kind.name(), c.about);
            row(&mut out, c.name, width, &text);
        }
    }
    out
}

/// Every metric, and below it what it means.
fn metric_table() -> String {
    openmetrics::listed(|text| wrap(text, WIDTH - 4))
}

fn columns(rows: Vec<(String, &str)>) -> String {
    let width = rows.iter().map(|r| r.0.len()).max().unwrap_or(0);
    let mut out = String::new();
    for (left, right) in rows {
        row(&mut out, &left, width, right);
    }
    out
}

/// A row of a table: `right` is wrapped beside `left`.
fn row(out: &mut String, left: &str, width: usize, right: &str) {
    let mut left = left;
    for line in wrap(right, WIDTH - width - 4) {
        let _ = writeln!(out, "  {left:<width$}  {line}");
        left = "";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> String {
        "table\n".to_owned()
    }

    #[test]
    fn a_page_is_plain_text() {
        let text = "# One `x`\n\na [b]\n\n## Two\n\n```sh\n# not a heading\n\nls\n```\nend\n";
        let topic = Topic { name: "x", about: "", text, tables: &[table] };
        let want = "ONE `X`\n\na [b]\n\nTWO\n\n    # not a heading\n\n    ls\nend\n\ntable\n";
        assert_eq!(topic.page(), want);
    }

    #[test]
    fn a_row_is_wrapped_beside_its_name() {
        let long = "x".repeat(70);
        let want = format!("  key  {long}\n       tail\n  k    short\n");
        let first = format!("{long} tail");
        assert_eq!(columns(vec![("key".to_owned(), &first), ("k".to_owned(), "short")]), want);
    }
}
