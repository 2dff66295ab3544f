//! Who may run the lab, and one test at a time.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Faults disturb each other (a pinned spinner slows a sender), so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `test` if this machine allows it, alone. Without `STALLSCOPE_LAB=1` the whole suite
/// is skipped, so that `cargo test` passes for everybody; with it, and with `CI=true`, a
/// missing tool or missing root fails instead of skipping.
pub fn lab(tools: &[&str], test: impl FnOnce()) {
    suite("STALLSCOPE_LAB", tools, test);
}

/// As [`lab`], for a suite that another variable asks for.
pub fn suite(variable: &str, tools: &[&str], test: impl FnOnce()) {
    if std::env::var(variable).as_deref() != Ok("1") {
        return say(&format!("privileged suite (set {variable}=1, needs root)"));
    }
    let root = rustix::process::geteuid().is_root();
    alone(if root { present(tools) } else { Err("not root".into()) }, test);
}

/// Runs `test` if the tools it compares with are installed; needs no root.
pub fn with_tools(tools: &[&str], test: impl FnOnce()) {
    alone(present(tools), test);
}

fn alone(allowed: Result<(), String>, test: impl FnOnce()) {
    if let Err(why) = allowed {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run in CI: {why}");
        return say(&why);
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    test();
}

/// `eprintln!` would be swallowed with the output of the passing test.
fn say(why: &str) {
    let test = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", test.name().unwrap_or_default());
}

fn present(tools: &[&str]) -> Result<(), String> {
    match tools.iter().find(|t| !installed(t)) {
        Some(missing) => Err(format!("`{missing}` is not installed")),
        None => Ok(()),
    }
}

fn installed(tool: &str) -> bool {
    // Root's PATH may lack sbin when started by a service.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':').any(|dir| Path::new(dir).join(tool).exists())
}
