//! Who may run the lab, and beside whom.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError, RwLock};

/// Faults disturb each other (a pinned spinner slows a sender), so tests take turns, but for those
/// that stay in their place.
static TURN: RwLock<()> = RwLock::new(());
/// Room for tests that run beside others, by [`Place`]. Most of a test is waiting; as the disks take
/// longest one by one, more room for the others would shorten nothing.
static PLACES: (Mutex<[u8; 3]>, Condvar) = (Mutex::new([3, 1, 2]), Condvar::new());

/// Where a test breaks things, and nowhere else.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "not every suite has such tests")]
pub enum Place {
    /// Between network namespaces of its own.
    Network = 0,
    /// On a loop device or a file system of its own.
    Disk = 1,
    /// Where it neither disturbs others nor minds them: few processes, little work.
    Anywhere = 2,
}

/// A place that is taken.
struct Taken(Place);

impl Taken {
    fn take(place: Place) -> Self {
        let (free, changed) = &PLACES;
        let free = free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = changed
            .wait_while(free, |free| free[place as usize] == 0)
            .unwrap_or_else(PoisonError::into_inner);
        free[place as usize] -= 1;
        Self(place)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        PLACES.0.lock().unwrap_or_else(PoisonError::into_inner)[self.0 as usize] += 1;
        PLACES.1.notify_all();
    }
}

/// Runs `test` if this machine allows it, alone. Without `STALLSCOPE_LAB=1` the whole suite
/// is skipped, so that `cargo test` passes for everybody; with it, and with `CI=true`, a
/// missing tool or missing root fails instead of skipping.
pub fn lab(tools: &[&str], test: impl FnOnce()) {
    suite("STALLSCOPE_LAB", tools, test);
}

/// As [`lab`], for a suite that another variable asks for.
pub fn suite(variable: &str, tools: &[&str], test: impl FnOnce()) {
    if asked_for(variable) {
        alone(by_root(tools), test);
    }
}

/// As [`lab`], beside other tests.
#[allow(dead_code, reason = "not every suite has such tests")]
pub fn beside(place: Place, tools: &[&str], test: impl FnOnce()) {
    if asked_for("STALLSCOPE_LAB") && may_run(by_root(tools)) {
        let _taken = Taken::take(place);
        let _turn = TURN.read().unwrap_or_else(PoisonError::into_inner);
        test();
    }
}

/// Runs `test` if the tools it compares with are installed; needs no root.
pub fn with_tools(tools: &[&str], test: impl FnOnce()) {
    alone(present(tools), test);
}

fn alone(allowed: Result<(), String>, test: impl FnOnce()) {
    if may_run(allowed) {
        let _turn = TURN.write().unwrap_or_else(PoisonError::into_inner);
        test();
    }
}

fn asked_for(variable: &str) -> bool {
    let asked = std::env::var(variable).as_deref() == Ok("1");
    if !asked {
        say(&format!("privileged suite (set {variable}=1, needs root)"));
    }
    asked
}

fn by_root(tools: &[&str]) -> Result<(), String> {
    if rustix::process::geteuid().is_root() { present(tools) } else { Err("not root".into()) }
}

fn may_run(allowed: Result<(), String>) -> bool {
    let Err(why) = allowed else { return true };
    assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run in CI: {why}");
    say(&why);
    false
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
