//! Commands: run to the end, or held as a child that dies with its test.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

fn command(argv: &[&str]) -> Command {
    let mut c = Command::new(argv[0]);
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    c.args(&argv[1..]).env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null());
    c
}

/// Runs a command; its standard output, or what went wrong.
pub fn attempt(argv: &[&str]) -> Result<String, String> {
    let shown = argv.join(" ");
    let out = command(argv).output().map_err(|e| format!("{shown}: {e}"))?;
    if out.status.success() {
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    } else {
        Err(format!("{shown}: {}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim()))
    }
}

/// Runs a command that must work.
#[track_caller]
pub fn run(argv: &[&str]) -> String {
    attempt(argv).unwrap_or_else(|e| panic!("{e}"))
}

/// A process that is killed and reaped when dropped, and by the kernel when the lab dies.
pub struct Held {
    child: Child,
}

impl Held {
    /// Starts it. `setpriv` sets the parent-death signal, which outlives `exec`.
    pub fn start(argv: &[&str]) -> Self {
        let full = [&["setpriv", "--pdeathsig", "KILL", "--"], argv].concat();
        let child = command(&full)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", argv.join(" ")));
        Self { child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// It has not ended. A load generator that died makes the verdict worthless.
    #[track_caller]
    pub fn assert_running(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            let mut err = String::new();
            if let Some(mut e) = self.child.stderr.take() {
                let _ = std::io::Read::read_to_string(&mut e, &mut err);
            }
            panic!("the load ended early: {status}: {err}");
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The group, so that nothing that a shell started in it survives.
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = group.map(|g| kill_process_group(g, Signal::KILL));
        let _ = self.child.wait();
    }
}
