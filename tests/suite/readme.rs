//! The README is short, and what it shows and names is the program's own: its screen, its rules,
//! its topics, commands that exist.

use stallscope::diagnose::RULES;
use stallscope::help::TOPICS;
use stallscope::ui::Theme;
use stallscope::view::keymap::{self, KEYMAP};
use stallscope::view::panes::PANES;
use stallscope::view::vm::Size;

use crate::support::console::Console;
use crate::support::files::DEMO;
use crate::support::program::{program, stderr};
use crate::support::svg::svg;

/// What a newcomer reads in five minutes.
const MAX_WORDS: usize = 1500;

/// A console with three faults, of which the README shows some lines.
const SCREEN: &str = include_str!("ui/snapshots/suite__ui__screens__faults@120x36.snap");

fn readme() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap()
}

/// Text between backticks, outside of code blocks.
fn quoted(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(|q| q.replace('\n', " ")).collect()
}

#[test]
fn it_is_read_in_five_minutes() {
    let words = readme().split_whitespace().count();
    assert!(words <= MAX_WORDS, "{words} words; move details into a topic below src/help");
}

/// CI and everybody's first minute depend on them.
#[test]
fn one_command_runs_it_and_one_tests_it() {
    let text = readme();
    let start = text.split("## Start").nth(1).unwrap();
    let block = start.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let commands: Vec<&str> = block.lines().map(|l| l.split('#').next().unwrap().trim()).collect();
    assert_eq!(commands, ["cargo run --release", "cargo test"]);
}

/// Rows were left out, none was invented.
#[test]
fn the_screen_is_the_consoles() {
    let text = readme();
    let block = text.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let mut drawn = SCREEN.lines();
    for line in block.lines() {
        assert!(
            drawn.any(|l| l == line),
            "not in tests/suite/ui/snapshots (faults@120x36):\n{line}"
        );
    }
}

/// The pictures are the console's, too. What they should be is written beside the tests.
#[test]
fn the_pictures_are_the_consoles() {
    let mut differ = Vec::new();
    for (name, keys) in [("landing", ""), ("finding", "f<enter>")] {
        // Two of the three faults of the tour go on.
        let mut c = Console::over(DEMO, Size::new(120, 36), 84);
        let drawn = svg(&c.keys(keys).draw(Theme::default()));
        let path = format!("{}/assets/{name}.svg", env!("CARGO_MANIFEST_DIR"));
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        if drawn != known {
            let new = format!("{}/{name}.svg", env!("CARGO_TARGET_TMPDIR"));
            std::fs::write(&new, drawn).unwrap();
            differ.push(format!("cp {new} {path}"));
        }
        assert!(readme().contains(&format!("assets/{name}.svg")), "{name}");
    }
    assert!(differ.is_empty(), "not what the console shows: {differ:#?}");
}

#[test]
fn the_rules_that_it_names_exist() {
    let text = readme();
    let section = text.split("## Findings").nth(1).unwrap().split("\n## ").next().unwrap();
    let named = quoted(section);
    let ids = named.iter().filter(|q| !q.contains(' '));
    let unknown: Vec<_> = ids.clone().filter(|q| RULES.iter().all(|r| r.id().0 != **q)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(ids.count() >= 12, "{named:?}");
    assert!(RULES.len() > 70, "the README says: more than seventy rules");
}

#[test]
fn every_topic_is_named() {
    let text = readme();
    let named = quoted(&text);
    for t in TOPICS {
        let command = format!("stallscope help {}", t.name);
        let is_named = |q: &String| *q == command || *q == t.name;
        assert!(named.iter().any(is_named) || text.contains(&command), "{}", t.name);
    }
}

#[test]
fn the_keys_that_it_names_are_bound() {
    let named = quoted(&readme());
    let last = PANES.len().to_string();
    for key in ["?", "q", "1", &last, "Enter", "Esc", "z", "f", "/", "s", "r", "space", "}", "+"] {
        assert!(named.iter().any(|q| q == key), "{key} is not named");
        let bound = |b: &keymap::Binding| b.keys.iter().any(|k| keymap::key_name(*k) == key);
        assert!(KEYMAP.iter().any(bound), "{key} is not bound");
    }
}

/// Commands of the README and of the topics parse: each is run with `--help`, which reads
/// nothing.
#[test]
fn every_command_exists() {
    let readme = readme();
    let mut found = 0;
    for (name, text) in TOPICS.iter().map(|t| (t.name, t.text)).chain([("README", &*readme)]) {
        let shell = text.split("```").filter_map(|block| block.strip_prefix("sh\n"));
        for line in shell.flat_map(str::lines).filter(|l| l.starts_with("stallscope ")) {
            let words = line.split(['#', '|']).next().unwrap().split_whitespace().skip(1);
            let out = program().args(words).arg("--help").output().unwrap();
            assert!(out.status.success(), "{name}: {line}: {}", stderr(&out));
            found += 1;
        }
    }
    assert!(found >= 20, "{found}");
}
