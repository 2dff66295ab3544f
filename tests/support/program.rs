//! The built program, run to its end.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_stallscope");

/// What a user of a terminal of 80 columns starts, whatever whoever runs the tests has set.
fn plain(mut c: Command) -> Command {
    c.stdin(Stdio::null()).env("TZ", "UTC").env("COLUMNS", "80");
    // Nobody's settings.
    c.env("XDG_CONFIG_HOME", "/nonexistent");
    c.env_remove("RUST_BACKTRACE").env_remove("NO_COLOR");
    c
}

pub fn program() -> Command {
    plain(Command::new(PROGRAM))
}

pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    program().args(args).output().unwrap()
}

/// Under what a shell does before: `ulimit -n 10`, `trap '' HUP`.
pub fn after(before: &str, args: &[&str]) -> Command {
    let mut c = Command::new("/bin/sh");
    // No core files in the tree.
    c.args(["-c", &format!("ulimit -c 0; {before} && exec \"$0\" \"$@\""), PROGRAM]).args(args);
    plain(c)
}

/// Runs it with `text` on standard input.
pub fn fed(args: &[&str], text: &[u8]) -> Output {
    let mut c = program();
    c.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = c.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The program may have answered and closed its end before it read everything.
    let _ = stdin.write_all(text);
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[track_caller]
pub fn stdout(o: &Output) -> String {
    String::from_utf8(o.stdout.clone()).unwrap()
}

#[track_caller]
pub fn stderr(o: &Output) -> String {
    String::from_utf8(o.stderr.clone()).unwrap()
}

#[track_caller]
pub fn json(o: &Output) -> Value {
    serde_json::from_slice(&o.stdout).unwrap_or_else(|e| panic!("{e}: {o:?}"))
}

/// Exit code, one clear message on stderr, nothing on stdout, no panic.
#[track_caller]
pub fn refused(o: &Output, code: i32, says: &str) {
    let err = stderr(o);
    assert_eq!(o.status.code(), Some(code), "{err}");
    assert!(err.contains(says), "should say {says:?}: {err}");
    assert!(!err.contains("panicked"), "{err}");
    assert_eq!(stdout(o), "", "an error belongs on stderr");
    assert!(
        err.bytes().all(|b| b == b'\n' || (b >= 0x20 && b != 0x7f)),
        "control bytes reach the terminal: {err:?}"
    );
}

/// What a user sees of these commands: each as it was typed, what it printed, how it ended.
pub fn transcript(commands: &[&[&str]]) -> String {
    let mut out = String::new();
    for args in commands {
        let o = run(*args);
        let plain = |a: &str| !a.is_empty() && !a.contains(' ');
        let typed = args.iter().map(|a| if plain(a) { format!(" {a}") } else { format!(" '{a}'") });
        writeln!(out, "$ stallscope{}", typed.collect::<String>()).unwrap();
        out += &stdout(&o);
        out.extend(stderr(&o).lines().map(|l| format!("stderr: {l}\n")));
        writeln!(out, "[{}]\n", o.status).unwrap();
    }
    out
}
