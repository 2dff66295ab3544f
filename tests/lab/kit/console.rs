//! A console on a terminal of its own.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use super::{secs, wait_for};

/// A console on a terminal that somebody reads.
pub struct Console {
    pub child: Box<dyn Child + Send + Sync>,
    screen: Arc<Mutex<vt100::Parser>>,
    keys: Box<dyn Write + Send>,
    _master: Box<dyn MasterPty + Send>,
}

impl Console {
    pub fn start(args: &[&str], dir: &Path) -> Self {
        let size = PtySize { rows: 40, cols: 120, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut cmd = CommandBuilder::new(env!("CARGO_BIN_EXE_stallscope"));
        cmd.args(args);
        cmd.cwd(dir.canonicalize().unwrap());
        cmd.env("TERM", "xterm-256color");
        cmd.env("LANG", "C.UTF-8");
        let child = pair.slave.spawn_command(cmd).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(40, 120, 0)));
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut buf = vec![0; 65_536];
            while let Ok(n) = reader.read(&mut buf) {
                if n == 0 {
                    break;
                }
                shown.lock().unwrap().process(&buf[..n]);
            }
        });
        let keys = pair.master.take_writer().unwrap();
        Self { child, screen, keys, _master: pair.master }
    }

    pub fn proc(&self, file: &str) -> String {
        let pid = self.child.process_id().unwrap();
        fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap()
    }

    /// `utime` and `stime` of `/proc/PID/stat`.
    pub fn cpu(&self) -> Duration {
        let stat = self.proc("stat");
        let mut fields = stat[stat.rfind(')').unwrap() + 2..].split(' ').skip(11);
        let mut next = || fields.next().unwrap().parse::<u64>().unwrap();
        let ticks = next() + next();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    /// Without the pages of the program's file, which are more in a build for tests, and do not
    /// grow.
    pub fn rss(&self) -> u64 {
        let status = self.proc("status");
        let kb = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
        kb.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }

    /// `self 12% 81M` of the header: % of a core.
    pub fn says(&self) -> Option<f64> {
        let text = self.text();
        text.lines().next()?.split("self ").nth(1)?.split('%').next()?.parse().ok()
    }

    pub fn clock(&self) -> Option<String> {
        let text = self.text();
        Some(text.lines().next()?.split_whitespace().last()?.to_owned())
    }
}

/// What somebody at the terminal does and sees.
impl Console {
    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }
    pub fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }
    #[track_caller]
    pub fn shows(&self, text: &str) {
        wait_for(text, secs(20), || self.text().contains(text).then_some(()));
    }
    /// Has it gone back to the screen of the shell?
    pub fn has_left(&self) -> bool {
        !self.screen.lock().unwrap().screen().alternate_screen()
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
