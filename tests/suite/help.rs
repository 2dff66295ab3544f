//! What `stallscope help` and `--help` print: every page as a snapshot at 80 columns, and the
//! facts in the topics against the program.

use std::collections::BTreeSet;

use serde_json::{Value, json as value};
use stallscope::commands;
use stallscope::diagnose::RULES;
use stallscope::exit::Exit;
use stallscope::help::{TOPICS, Topic};
use stallscope::sample::bpf::TESTED_KERNELS;
use stallscope::view::keymap::{KEYMAP, key_names};

use crate::support::files::DEMO;
use crate::support::program::{fed, json, run, stdout};

const WIDTH: usize = 80;

/// What it prints on a pipe of 80 columns.
#[track_caller]
fn said(args: &[&str]) -> String {
    let o = run(args);
    assert_eq!((o.status.code(), &*o.stderr), (Some(0), &b""[..]), "{args:?}");
    let text = stdout(&o);
    assert!(text.ends_with('\n') && !text.contains('\x1b'), "{args:?}: {text:?}");
    text
}

fn topic(name: &str) -> &'static Topic {
    Topic::named(name).unwrap()
}

/// The code blocks of a topic that are marked so.
fn blocks(name: &str, mark: &str) -> Vec<&'static str> {
    let mark = format!("{mark}\n");
    topic(name).text.split("```").filter_map(|b| b.strip_prefix(&mark)).collect()
}

/// Words in one line: tables wrap.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn topics() {
    for t in TOPICS {
        let page = said(&["help", t.name]);
        // A new rule is no new page.
        let shown = match (t.name, page.rsplit_once("\n\n")) {
            ("rules", Some((text, _))) => format!("{text}\n\n(a row for each rule)\n"),
            _ => page,
        };
        insta::assert_snapshot!(format!("topic-{}", t.name), shown);
    }
}

#[test]
fn commands() {
    insta::assert_snapshot!("stallscope", said(&["--help"]));
    for c in commands::names() {
        insta::assert_snapshot!(format!("command-{c}"), said(&[c, "--help"]));
    }
}

#[test]
fn help_of_a_command_is_that_of_clap() {
    assert_eq!(said(&["help"]), said(&["--help"]));
    for c in commands::names() {
        let (usage, help) = (said(&[c, "--help"]), said(&["help", c]));
        let page = Topic::named(c).map(|t| format!("\n{}", t.page())).unwrap_or_default();
        assert_eq!(help, usage + &page, "{c}");
    }
}

#[test]
fn the_list_names_every_topic() {
    let list = said(&["help"]);
    for t in TOPICS {
        assert!(unwrapped(&list).contains(&format!("{} {}", t.name, t.about)), "{}", t.name);
    }
    let names: BTreeSet<&str> = TOPICS.iter().map(|t| t.name).collect();
    assert_eq!(names.len(), TOPICS.len(), "a name is taken twice");
}

#[test]
fn an_unknown_topic_names_those_that_exist() {
    let o = run(["help", "nonsense"]);
    assert_eq!(o.status.code(), Some(2));
    let err = unwrapped(&String::from_utf8(o.stderr).unwrap());
    for name in commands::names().chain(TOPICS.iter().map(|t| t.name)) {
        assert!(err.contains(&format!(" {name},")) || err.contains(&format!(" {name}]")), "{err}");
    }
    assert!(o.stdout.is_empty());
}

/// Output that is shown as it was, and no other line, may be wider than a terminal.
#[test]
fn pages_fit_a_terminal_of_80_columns() {
    for t in TOPICS {
        assert!(t.text.starts_with("# ") && t.text.ends_with('\n'), "{}", t.name);
        let mut code = None;
        for line in t.text.lines() {
            if let Some(mark) = line.strip_prefix("```") {
                // Unmarked, rustdoc takes it for Rust.
                assert!(
                    code.is_some() || !mark.is_empty(),
                    "{}: a code block without mark",
                    t.name
                );
                code = if code.is_some() { None } else { Some(mark) };
                continue;
            }
            let indent = if code.is_some() { 4 } else { 0 };
            let fits = line.chars().count() + indent <= WIDTH;
            let verbatim = matches!(code, Some("console" | "json"));
            assert!(fits || verbatim, "{}: {line}", t.name);
        }
        assert_eq!(code, None, "{}", t.name);
        for table in t.tables {
            assert!(table().lines().all(|l| l.chars().count() <= WIDTH), "{}", t.name);
        }
    }
    for c in commands::names() {
        for line in said(&[c, "--help"]).lines() {
            assert!(line.chars().count() <= WIDTH, "{c}: {line}");
        }
    }
}

#[test]
fn every_key_is_listed_once() {
    let page = said(&["help", "keys"]);
    for b in KEYMAP.iter() {
        let row =
            format!("{} {}", key_names(&stallscope::view::state::ViewState::default(), b), b.help);
        assert!(unwrapped(&page).contains(&row), "{row}\n{page}");
    }
    let table = topic("keys").tables[0]();
    let rows = table.lines().filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    assert_eq!(rows.count(), KEYMAP.len());
}

#[test]
fn every_rule_is_listed() {
    let page = unwrapped(&said(&["help", "rules"]));
    for line in said(&["rules"]).lines() {
        assert!(page.contains(&unwrapped(line)), "{line}");
    }
    assert_eq!(said(&["rules"]).lines().count(), RULES.len());
}

#[test]
fn every_exit_code_is_listed() {
    for page in [said(&["help", "exit-codes"]), said(&["--help"])] {
        for code in [Exit::Ok, Exit::Findings, Exit::Usage, Exit::CannotCollect] {
            let row = format!("  {}  {}\n", code as u8, code.meaning());
            assert!(page.contains(&row), "{row}{page}");
        }
    }
}

#[test]
fn the_kernels_tested_live_are_listed() {
    let [first @ .., last] = TESTED_KERNELS;
    let claim = format!("been run on Linux {} and {last}.", first.join(", "));
    assert!(unwrapped(topic("ebpf").text).contains(&claim), "{claim}");
}

/// The pasted text of the topic gives the report below it.
#[test]
fn the_paste_is_explained_as_shown() {
    let [paste, report] = blocks("explain", "console")[..] else { panic!("two blocks") };
    let shown = stdout(&fed(&["explain"], paste.as_bytes()));
    // The list of rules without input grows with the rules.
    let cut = |t: &str| t.split("Not judged").next().unwrap().to_owned();
    assert_eq!(cut(report), cut(&shown), "help/explain.md should show\n\n{shown}");
}

/// The finding that the topic dissects is one of the demo recording.
#[test]
fn the_finding_is_shown_as_reported() {
    let shown = blocks("findings", "console")[0];
    let report = stdout(&run(["check", DEMO]));
    assert!(report.contains(shown), "help/findings.md should show one of\n\n{report}");
}

/// The example and the lists of fields name what a report has, no more and no less.
#[test]
fn the_fields_of_json_are_listed() {
    let mut real = json(&run(["check", "--format", "json", DEMO]));
    // Where some are configured; see cli::thresholds.
    real["thresholds"] = value!({});
    real["earlier_thresholds"] = value!([]);
    let example: Value = serde_json::from_str(blocks("json", "json")[0]).unwrap();
    let keys = |v: &Value| -> BTreeSet<String> { v.as_object().unwrap().keys().cloned().collect() };
    // The example is live.
    let mut report = keys(&real);
    assert!(report.remove("unread"));
    report.retain(|k| !["thresholds", "earlier_thresholds"].contains(&&**k));
    assert_eq!(keys(&example), report);
    let (ours, theirs) = (&example["findings"][0], &real["findings"][0]);
    assert_eq!(keys(ours), keys(theirs));
    assert_eq!(keys(&ours["evidence"][0]), keys(&theirs["evidence"][0]));
    assert_eq!(keys(&ours["ruled_out"][0]), BTreeSet::from(["because".into(), "rule".into()]));

    let listed = |block: &str| -> BTreeSet<String> {
        let rows = block.lines().filter(|l| !l.starts_with(' '));
        rows.flat_map(|l| l.split("  ").next().unwrap().split(", ").map(str::to_owned)).collect()
    };
    let [report, finding, why] = blocks("json", "text")[..] else { panic!("three lists") };
    assert_eq!(listed(report), keys(&real));
    assert_eq!(listed(finding), keys(ours));
    let own = std::process::id().to_string();
    let answer = json(&run(["why", &own, "--format", "json", "--duration", "2s", "--no-bpf"]));
    let mut all = keys(&answer);
    for same_as_above in ["schema", "tool", "host", "kernel", "source"] {
        assert!(all.remove(same_as_above), "{same_as_above}");
    }
    assert_eq!(listed(why), all);
}
