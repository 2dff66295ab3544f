//! Runs the recorder and looks at what it wrote.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use stallscope::clock;
use stallscope::recording::{Event, Reader, Stamp};

use super::program::{PROGRAM, program, stderr};

const DEADLINE: Duration = Duration::from_secs(60);

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Waits for a time that is part of the test's fault.
pub fn pause(d: Duration) {
    clock::sleep_until(clock::mono() + d);
}

/// What is in a recording.
pub struct Seen {
    pub ticks: Vec<Stamp>,
    pub events: Vec<Event>,
    pub segments: usize,
    pub sealed: bool,
    pub damage: usize,
}

impl Seen {
    /// From the first tick to the last.
    pub fn span(&self) -> Duration {
        self.ticks[self.ticks.len() - 1].mono.since(self.ticks[0].mono)
    }

    /// Every deadline between the first tick and the last has its tick, or is in a gap: a box
    /// that is too busy for some of them says how many. A tick stands for the last deadline
    /// before it, so two of them lie less than one interval closer or further apart.
    pub fn every_beat_is_accounted_for(&self, interval: Duration) {
        let gaps = self.events.iter().map(|r| match r {
            Event::Gap { ticks } => u64::from(*ticks),
            Event::Dropped { ticks, .. } => *ticks,
            _ => 0,
        });
        let beats = (self.ticks.len() as u64 - 1 + gaps.sum::<u64>()) as i128;
        let off = self.span().as_nanos() as i128 - beats * interval.as_nanos() as i128;
        let (n, span) = (self.ticks.len(), self.span());
        assert!(
            off.unsigned_abs() < interval.as_nanos(),
            "{n} ticks, {beats} beats and {span:?} from the first to the last: {:?}",
            self.events,
        );
    }
}

/// Reads all of it; every tick must decode.
pub fn read(path: &Path) -> Seen {
    let mut r = Reader::file(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut events: Vec<Event> = r.loose_events().iter().map(|x| x.event.clone()).collect();
    for g in 0..r.groups().len() {
        events.extend(r.index(g).unwrap().events.iter().map(|x| x.event.clone()));
    }
    let mut ticks = Vec::new();
    for i in 0..r.len() {
        let t = r.tick(i).unwrap_or_else(|e| panic!("{}: tick {i}: {e}", path.display()));
        assert_eq!(r.tick_ref(i).unwrap().at.seq, t.seq);
        ticks.push(Stamp { seq: t.seq, mono: t.mono, wall: t.wall });
    }
    let (segments, sealed) = (r.segments().len(), r.is_sealed());
    Seen { ticks, events, segments, sealed, damage: r.damage().count() }
}

/// A recorder that is killed when dropped.
pub struct Running {
    child: Option<Child>,
    path: PathBuf,
}

/// True when whoever started the tests ignores hangups (`nohup` does): programs inherit that.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
}

/// Starts one into `path`, light: no eBPF, one namespace.
pub fn record(path: &Path, args: &[&str]) -> Running {
    let mut c = program();
    if ignores_hangups() {
        c = Command::new("env");
        c.args(["--default-signal=HUP", PROGRAM]).stdin(Stdio::null());
        c.env_remove("RUST_BACKTRACE");
    }
    c.args(["record", "--no-bpf", "--netns", "self", "-o"]).arg(path).args(args);
    Running::start(c, path)
}

impl Running {
    pub fn start(mut c: Command, path: &Path) -> Self {
        let child = c.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child: Some(child), path: path.to_owned() }
    }
    fn child(&mut self) -> &mut Child {
        self.child.as_mut().unwrap()
    }
    pub fn signal(&mut self, s: Signal) {
        let pid = Pid::from_child(self.child());
        kill_process(pid, s).unwrap();
    }
    /// Ticks in the file now.
    pub fn ticks(&self) -> u64 {
        Reader::file(&self.path).map_or(0, |r| r.len())
    }
    pub fn wait_for_ticks(&mut self, n: u64) {
        self.until(&format!("{n} ticks"), |s| s.ticks() >= n);
    }
    pub fn until(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> bool) {
        let begun = clock::mono();
        while !look(self) {
            if let Some(status) = self.child().try_wait().unwrap() {
                panic!("ended before {what}: {status}: {}", self.end().1);
            }
            assert!(clock::mono().since(begun) < DEADLINE, "never: {what}");
            pause(Duration::from_millis(5));
        }
    }
    /// Exit code (`None`: killed) and what it said.
    pub fn end(&mut self) -> (Option<i32>, String) {
        let begun = clock::mono();
        while self.child().try_wait().unwrap().is_none() {
            assert!(clock::mono().since(begun) < DEADLINE, "never: its end");
            pause(Duration::from_millis(5));
        }
        let o = self.child.take().unwrap().wait_with_output().unwrap();
        (o.status.code(), stderr(&o))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut c) = self.child.take() {
            let _ = c.kill();
            let _ = c.wait();
        }
    }
}
