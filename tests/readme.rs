//! The README's tables are the program's own: keys from the keymap, findings from the rules,
//! exit codes from the enum, commands that exist.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use stallscope::collect::bpf::TESTED_KERNELS;
use stallscope::diagnose::RULES;
use stallscope::report::rules;
use stallscope::run::Exit;
use stallscope::view::keymap;

fn readme() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap()
}

#[test]
fn the_tables_are_generated() {
    let text = readme();
    for (what, table) in [("keys", keymap::markdown()), ("rules", rules::markdown(RULES))] {
        assert!(text.contains(table.trim()), "README: the table of {what} should read\n\n{table}");
    }
}

#[test]
fn every_exit_code_is_listed() {
    let text = readme();
    for code in [Exit::Ok, Exit::Findings, Exit::Usage, Exit::CannotCollect] {
        assert!(text.contains(&format!("| {} |", code as u8)), "{code:?}");
    }
}

#[test]
fn the_kernels_tested_live_are_listed() {
    let [first @ .., last] = TESTED_KERNELS;
    let claim = format!("tested live on Linux {} and {last} ", first.join(", "));
    assert!(readme().contains(&claim), "{claim}");
}

/// Commands of the README parse: each is run with `--help`, which reads nothing.
#[test]
fn every_command_exists() {
    let text = readme();
    let shell = text.split("```").filter_map(|block| block.strip_prefix("sh\n"));
    let lines: Vec<&str> =
        shell.flat_map(str::lines).filter(|l| l.starts_with("stallscope ")).collect();
    assert!(lines.len() >= 4, "{lines:?}");
    for line in lines {
        let words = line.split('#').next().unwrap().split_whitespace().skip(1);
        let out = Command::new(env!("CARGO_BIN_EXE_stallscope"))
            .args(words.filter(|w| !w.starts_with('|')))
            .arg("--help")
            .output()
            .unwrap();
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// The pasted text of the README gives the report below it.
#[test]
fn the_paste_is_explained_as_shown() {
    use std::io::Write as _;
    let text = readme();
    let blocks: Vec<&str> =
        text.split("```").filter_map(|block| block.strip_prefix("text\n")).collect();
    let at = blocks.iter().position(|b| b.starts_with("State Recv-Q")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stallscope"))
        .arg("explain")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(blocks[at].as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let shown = String::from_utf8(out.stdout).unwrap();
    // The list of rules without input grows with the rules.
    let cut = |t: &str| t.split("Not judged").next().unwrap().to_owned();
    assert_eq!(cut(blocks[at + 1]), cut(&shown), "README should show\n\n{shown}");
}
