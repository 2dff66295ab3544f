//! The built program on a pseudo-terminal.
//!
//! Screens are polled with a deadline; nothing here waits for a fixed time.
#![allow(clippy::disallowed_methods, reason = "deadlines of the tests' own")]

use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};

use super::program::PROGRAM;

/// When a screen that has not come is given up.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The program and its terminal.
pub struct Session {
    pub child: Box<dyn Child + Send + Sync>,
    pub master: Box<dyn MasterPty + Send>,
    writer: Box<dyn Write + Send>,
    pub screen: Arc<Mutex<vt100::Parser>>,
    pub bytes: Arc<Mutex<Vec<u8>>>,
    /// Held: the terminal does not read.
    pub stalled: Arc<Mutex<()>>,
    reader: Option<JoinHandle<()>>,
}

impl Session {
    pub fn start(rows: u16, cols: u16, env: &[(&str, &str)], args: &[&str]) -> Self {
        let mut cmd = CommandBuilder::new(PROGRAM);
        cmd.args(args);
        Self::spawn(rows, cols, env, cmd)
    }

    /// In a directory that is empty but for what the program writes.
    pub fn within(dir: &Path, rows: u16, cols: u16, args: &[&str]) -> Self {
        let mut cmd = CommandBuilder::new(PROGRAM);
        cmd.args(args);
        cmd.cwd(dir);
        Self::spawn(rows, cols, &[], cmd)
    }

    pub fn spawn(rows: u16, cols: u16, env: &[(&str, &str)], mut cmd: CommandBuilder) -> Self {
        let size = PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        cmd.env_remove("NO_COLOR");
        cmd.env_remove("LC_ALL");
        cmd.env("TERM", "xterm-256color");
        cmd.env("LANG", "C.UTF-8");
        cmd.env("TZ", "UTC");
        // Nobody's settings.
        cmd.env("XDG_CONFIG_HOME", "/nonexistent");
        for (k, v) in env {
            cmd.env(k, v);
        }
        let child = pair.slave.spawn_command(cmd).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let writer = pair.master.take_writer().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, cols, 0)));
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let stalled = Arc::new(Mutex::new(()));
        let (s, b, stall) = (screen.clone(), bytes.clone(), stalled.clone());
        let reader = std::thread::spawn(move || {
            let mut buf = vec![0; 65_536];
            while let Ok(n) = reader.read(&mut buf) {
                if n == 0 {
                    break;
                }
                drop(stall.lock().unwrap());
                s.lock().unwrap().process(&buf[..n]);
                b.lock().unwrap().extend_from_slice(&buf[..n]);
            }
        });
        let reader = Some(reader);
        Self { child, master: pair.master, writer, screen, bytes, stalled, reader }
    }

    pub fn keys(&mut self, s: &str) -> &mut Self {
        self.writer.write_all(s.as_bytes()).unwrap();
        self.writer.flush().unwrap();
        self
    }

    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    pub fn alternate(&self) -> bool {
        self.screen.lock().unwrap().screen().alternate_screen()
    }

    /// Waits until `ready` holds for the screen.
    #[track_caller]
    pub fn until(&self, what: &str, ready: impl Fn(&Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !ready(self) {
            assert!(Instant::now() < end, "no {what} within {DEADLINE:?}:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    pub fn shows(&mut self, text: &str) -> &mut Self {
        self.until(text, |s| s.text().contains(text));
        self
    }

    #[track_caller]
    pub fn hides(&mut self, text: &str) -> &mut Self {
        self.until(&format!("screen without {text}"), |s| !s.text().contains(text));
        self
    }

    /// A row stands below the titles of the run queue.
    pub fn lists_threads(&self) -> bool {
        let text = self.text();
        let mut lines = text.lines().skip_while(|l| !l.contains("wait/s"));
        lines.nth(1).is_some_and(|l| l.contains('/'))
    }

    /// The pane of the disks names its source, with or without eBPF, and its age.
    pub fn has_aged_disks(&self) -> bool {
        let text = self.text();
        let mut after = text.split("diskstats").skip(1);
        after.any(|t| t.trim_start_matches(" + eBPF").starts_with(" 0."))
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.process_id().unwrap() as i32).unwrap()
    }

    /// Bytes of the program so far.
    pub fn said(&self, what: &str) -> bool {
        let bytes = self.bytes.lock().unwrap();
        bytes.windows(what.len()).any(|w| w == what.as_bytes())
    }

    pub fn signal(&self, s: Signal) {
        kill_process(self.pid(), s).unwrap();
    }

    /// State letter of a process.
    pub fn state(pid: Pid) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        stat.map_or('-', |s| s[s.rfind(')').unwrap()..].chars().nth(2).unwrap())
    }

    #[track_caller]
    pub fn exit(&mut self) -> ExitStatus {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(s) = self.child.try_wait().unwrap() {
                return s;
            }
            assert!(Instant::now() < end, "still running:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end; everything that was written to the terminal.
    #[track_caller]
    pub fn rest(&mut self) -> (ExitStatus, String) {
        let status = self.exit();
        // Nobody else has the terminal: its reader comes to an end.
        self.reader.take().unwrap().join().unwrap();
        let bytes = self.bytes.lock().unwrap();
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The terminal is as it was before, and every synchronized update was ended.
    pub fn assert_restored(&self) {
        self.until("return to the normal screen", |s| !s.alternate());
        assert!(!self.screen.lock().unwrap().screen().hide_cursor(), "the cursor is visible");
        let bytes = self.bytes.lock().unwrap();
        let count = |p: &[u8]| bytes.windows(p.len()).filter(|w| *w == p).count();
        let (on, off) = (count(b"\x1b[?2026h"), count(b"\x1b[?2026l"));
        assert!(on > 0 && off >= on, "{on} updates begun, {off} ended");
        let (on, off) = (count(b"\x1b[?2004h"), count(b"\x1b[?2004l"));
        assert!(on > 0 && off >= on, "bracketed paste switched on {on} times, off {off} times");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program as a shell would start it, after `before`.
pub fn shell(before: &str, args: &str) -> CommandBuilder {
    let mut cmd = CommandBuilder::new("/bin/sh");
    // No core files in the tree.
    cmd.args(["-c", &format!("ulimit -c 0; {before}; exec {PROGRAM} {args}")]);
    cmd
}
