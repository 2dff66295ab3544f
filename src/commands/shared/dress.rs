//! A report on a terminal: long lines go on below where their text begins, and findings have the
//! colour of their severity. What goes into a pipe or a file stays as it is.

use std::io::IsTerminal as _;

use super::environment::Environment;
use crate::diagnose::Severity;
use crate::ui::theme::{ColorChoice, ColorMode};
use crate::view::text::width;

/// Columns of a mark and the blank after it.
const MARK: usize = 3;

/// For standard output, if that is a terminal.
pub(super) fn for_stdout(text: String) -> String {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return text;
    }
    let env = Environment::read();
    let term = env.term.as_deref();
    let mode = ColorMode::resolve(ColorChoice::Auto, env.no_color.as_deref(), term);
    let columns = rustix::termios::tcgetwinsize(&out).map_or(0, |w| usize::from(w.ws_col));
    dressed(&text, if columns == 0 { 80 } else { columns.max(20) }, mode != ColorMode::Mono)
}

fn dressed(text: &str, columns: usize, in_colour: bool) -> String {
    let mut out = String::with_capacity(text.len() + 256);
    for line in text.lines() {
        let severity = severity(line);
        let wrapped = wrap(line, columns, severity.is_some());
        match severity.filter(|_| in_colour) {
            Some(s) => out.push_str(&coloured(&wrapped, s)),
            None => out.push_str(&wrapped),
        }
        out.push('\n');
    }
    out
}

/// Of the first line of a finding.
fn severity(line: &str) -> Option<Severity> {
    let all = [Severity::Crit, Severity::Warn, Severity::Info];
    all.into_iter().find(|s| line.starts_with(&format!("{:<2} ", s.mark())))
}

/// Mark and rule.
fn coloured(line: &str, s: Severity) -> String {
    // Of the 16 named ones, as the console has them.
    let colour = match s {
        Severity::Crit => 31,
        Severity::Warn => 33,
        Severity::Info => 36,
    };
    let rule = line.get(MARK..).and_then(|l| l.find(' ')).map_or(line.len(), |n| MARK + n);
    match line.split_at_checked(rule) {
        Some((head, rest)) => format!("\x1b[1;{colour}m{head}\x1b[0m{rest}"),
        None => line.to_owned(),
    }
}

/// Breaks a line at blanks. What stands in front of its text stays as it is.
fn wrap(line: &str, columns: usize, is_finding: bool) -> String {
    let indent = line.len() - line.trim_start().len();
    // The head has blanks of its own, and a command is copied in one piece.
    if width(line) <= columns || line.trim_start().starts_with("next: ") {
        return line.to_owned();
    }
    let (start, below) = if is_finding {
        let text = line.get(MARK..).and_then(|l| l.find(' ')).map_or(MARK, |n| MARK + n);
        let blanks = line.len() - text - line[text..].trim_start().len();
        (text + blanks, 2 * MARK)
    } else {
        (indent, if indent == 0 { 0 } else { indent + 2 })
    };
    let (head, text) = line.split_at_checked(start).unwrap_or(("", line));
    let mut out = head.to_owned();
    let (mut used, mut is_first) = (width(head), true);
    for word in text.split(' ') {
        let w = width(word);
        if !is_first && used + 1 + w > columns {
            out.push('\n');
            out.push_str(&" ".repeat(below));
            (used, is_first) = (below, true);
        }
        if !is_first {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        (used, is_first) = (used + w, false);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
stallscope check  vm  6.18  15 s
!! tcp-rto-storm         3 connections to 10.9.0.2:5000 retransmit without an answer, since 14:00
   by: java/7 with 100% of the connections that nobody answers here
   next: ss -tinmoe dst 10.9.0.2:5000 and some more of a command that is long
1 finding. Not judged: a-rule, another-rule (needs 60 s of observation).
";

    #[test]
    fn long_lines_go_on_below_their_text_and_commands_stay_whole() {
        let want = "\
stallscope check  vm  6.18  15 s
!! tcp-rto-storm         3 connections to 10.9.0.2:5000
      retransmit without an answer, since 14:00
   by: java/7 with 100% of the connections that nobody
     answers here
   next: ss -tinmoe dst 10.9.0.2:5000 and some more of a command that is long
1 finding. Not judged: a-rule, another-rule (needs 60 s of
observation).
";
        assert_eq!(dressed(REPORT, 58, false), want);
        assert_eq!(dressed(REPORT, 200, false), REPORT);
    }

    #[test]
    fn a_finding_has_the_colour_of_its_severity() {
        let shown = dressed("!  fs-full               / is full\n   by: x\n", 80, true);
        assert!(shown.ends_with("               / is full\n   by: x\n"), "{shown:?}");
        assert!(shown.starts_with('\x1b') && shown.contains("!  fs-full\x1b"), "{shown:?}");
        let odd = "!! \u{e9}\n!!\n-  \n\n   \n";
        assert_eq!(dressed(odd, 20, false), odd);
        dressed(odd, 20, true);
    }

    proptest::proptest! {
        #[test]
        fn any_text_keeps_its_words(text in "([!\\- ]{0,3}[a-z数é]{0,12} ?){0,12}") {
            let words = |t: &str| t.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            proptest::prop_assert_eq!(words(&dressed(&text, 20, false)), words(&text));
            dressed(&text, 20, true);
        }
    }
}
