//! The flight recorder: files around findings, as the real program makes them. The fault is a
//! UNIX socket whose backlog is full, which anybody can have anywhere: `unix-backlog-full` is
//! found within three seconds.

use std::io::BufRead as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stallscope::clock;
use stallscope::recording::recorder::IncidentFiles;
use stallscope::recording::{Event, Reader};
use stallscope::sample::time::{MonoNs, WallNs};

use crate::support::files::{DEMO, Dir};
use crate::support::program::{json, program, refused, run, stderr};
use crate::support::recorder::{pause, read};

const RULE: &str = "unix-backlog-full";
const DEADLINE: Duration = Duration::from_secs(60);

/// One test at a time: each recorder sees the sockets of all.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket with more connections waiting than its backlog allows.
struct Fault {
    path: PathBuf,
    begun: MonoNs,
    _held: Vec<OwnedFd>,
}

impl Fault {
    fn begin(dir: &Dir, name: &str) -> Self {
        let path = dir.file(name);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = || {
            let kind = SocketType::STREAM;
            rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap()
        };
        let addr = SocketAddrUnix::new(&path).unwrap();
        let listener = socket();
        rustix::net::bind(&listener, &addr).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let begun = clock::mono();
        let mut held = vec![listener];
        for _ in 0..3 {
            let client = socket();
            // The last of them is turned away.
            let _ = rustix::net::connect(&client, &addr);
            held.push(client);
        }
        Self { path, begun, _held: held }
    }

    fn end(self) {
        std::fs::remove_file(self.path).unwrap();
    }
}

/// A flight recorder that is killed when dropped, and the lines that it printed.
struct Flight {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Flight {
    fn start(dir: &Path, args: &[&str]) -> Self {
        let mut c = program();
        c.args(["record", "--no-bpf", "--netns", "self", "--interval", "200ms", "-o"]).arg(dir);
        c.arg(format!("--on-finding={RULE}")).args(args);
        let mut child = c.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (out, its) = (std::io::BufReader::new(child.stderr.take().unwrap()), lines.clone());
        let reader = std::thread::spawn(move || {
            for line in out.lines() {
                its.lock().unwrap().push(line.unwrap());
            }
        });
        Self { child, lines, reader: Some(reader) }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Waits for the next line after `from` lines that says this.
    fn says(&mut self, what: &str, from: usize) -> String {
        let end = clock::mono() + DEADLINE;
        loop {
            let lines = self.lines();
            if let Some(line) = lines.iter().skip(from).find(|l| l.contains(what)) {
                return line.clone();
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended before {what:?}: {lines:?}");
            assert!(clock::mono() < end, "never said {what:?}: {lines:?}");
            pause(Duration::from_millis(10));
        }
    }

    fn signal(&self, s: Signal) {
        kill_process(Pid::from_child(&self.child), s).unwrap();
    }

    /// Its exit code (`None`: killed) and what it printed.
    fn end(&mut self) -> (Option<i32>, Vec<String>) {
        let code = self.child.wait().unwrap().code();
        self.reader.take().unwrap().join().unwrap();
        (code, self.lines())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The files in a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

/// The finding about this socket in a report.
fn about<'a>(v: &'a Value, fault: &Fault) -> &'a Value {
    let path = fault.path.to_str().unwrap();
    let all = v["findings"].as_array().unwrap();
    all.iter().find(|f| f["rule"] == RULE && f["subject"]["path"] == path).unwrap_or(&Value::Null)
}

fn check(file: &Path) -> Value {
    json(&program().args(["check", "--format", "json"]).arg(file).output().unwrap())
}

#[test]
fn a_finding_makes_a_file_that_begins_before_it() {
    let _alone = alone();
    let (dir, other) = (Dir::new(), Dir::new());
    let place = dir.file("made");
    let told = other.file("told");
    let script = format!("cat > {0}.new && mv {0}.new {0}", told.display());
    let exec = ["--exec", "/bin/sh", "--exec-arg", "-c", "--exec-arg", &script];
    let args = [&["--before", "20s", "--after", "8s"][..], &exec].concat();
    let mut f = Flight::start(&place, &args);
    // The healthy time before.
    pause(Duration::from_secs(4));
    assert_eq!(files(&place), Vec::<PathBuf>::new(), "nothing is written without a finding");
    assert_eq!(place.metadata().unwrap().mode() & 0o7777, 0o700);
    let fault = Fault::begin(&other, "a.sock");
    f.says(": closed, ", 0);
    let [file] = &files(&place)[..] else { panic!("{:?}", files(&place)) };
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o600);
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("stallscope-") && name.contains(RULE), "{name}");

    let seen = read(file);
    assert!(seen.sealed && seen.damage == 0 && seen.segments == 1);
    assert!(seen.ticks[0].mono < fault.begun, "it begins before the fault");
    let steps = seen.ticks.windows(2).all(|w| w[1].seq.0 == w[0].seq.0 + 1);
    assert!(steps, "no tick is missing where memory and live ticks meet");
    seen.every_beat_is_accounted_for(Duration::from_millis(200));
    let mark = seen.events.iter().find_map(|e| match e {
        Event::Mark { text } => Some(text.clone()),
        _ => None,
    });
    let mark = mark.unwrap();
    assert!(mark.starts_with(&format!("incident: {RULE} ")), "{mark}");

    // Live is replay: the program was told what the file says.
    let end = clock::mono() + DEADLINE;
    while !told.exists() {
        assert!(clock::mono() < end, "the program never ran: {:?}", f.lines());
        pause(Duration::from_millis(10));
    }
    let told: Value = serde_json::from_slice(&std::fs::read(told).unwrap()).unwrap();
    assert_eq!(told["path"], file.to_str().unwrap());
    assert_eq!(told["bytes"], file.metadata().unwrap().len());
    assert_eq!((&told["end"], &told["ticks"]), (&"over".into(), &seen.ticks.len().into()));
    let replayed = check(file);
    let finding = about(&replayed, &fault);
    assert_eq!(&told["finding"], finding, "{replayed}");
    assert_eq!(finding["active"], true);

    // The same again: it cleared, began anew, and is not told a second time.
    let mut fault = Some(fault);
    let again = |f: &Flight| f.lines().iter().any(|l| l.contains("began again: no file, because"));
    // It clears after five seconds, of which a busy box may not see all.
    while !again(&f) {
        assert!(clock::mono() < end + DEADLINE, "never said: {:?}", f.lines());
        fault = if let Some(fault) = fault.take() {
            fault.end();
            pause(Duration::from_secs(8));
            None
        } else {
            let fault = Fault::begin(&other, "a.sock");
            pause(Duration::from_secs(5));
            Some(fault)
        };
    }
    f.signal(Signal::TERM);
    let (code, lines) = f.end();
    assert_eq!((code, files(&place).len()), (Some(0), 1), "{lines:?}");
    assert_eq!(lines.len(), 3, "{lines:?}");
}

#[test]
fn term_closes_the_file_and_lets_the_program_run() {
    let _alone = alone();
    let (dir, other) = (Dir::new(), Dir::new());
    let told = other.file("told");
    // It fails, too: that is a line, and nothing else.
    let script = format!("cat > {}; echo no mail >&2; exit 3", told.display());
    let exec = ["--exec", "/bin/sh", "--exec-arg", "-c", "--exec-arg", &script];
    let mut f = Flight::start(dir.path(), &[&["--before", "5s"][..], &exec].concat());
    let _fault = Fault::begin(&other, "a.sock");
    f.says("recording to ", 0);
    f.signal(Signal::USR1);
    f.signal(Signal::TERM);
    let (code, lines) = f.end();
    assert_eq!(code, Some(0), "{lines:?}");
    let last = lines.last().unwrap();
    assert!(last.ends_with("ended with exit code 3: no mail"), "{lines:?}");
    let told: Value = serde_json::from_slice(&std::fs::read(told).unwrap()).unwrap();
    assert_eq!(told["end"], "stopped");
    let seen = read(&files(dir.path())[0]);
    assert!(seen.sealed);
}

#[test]
fn a_kill_leaves_a_file_that_can_be_read() {
    let _alone = alone();
    let (dir, other) = (Dir::new(), Dir::new());
    let mut f = Flight::start(dir.path(), &["--before", "20s"]);
    pause(Duration::from_secs(2));
    let fault = Fault::begin(&other, "a.sock");
    f.says("recording to ", 0);
    let file = files(dir.path()).remove(0);
    let ticks = || Reader::file(&file).map_or(0, |r| r.len());
    let end = clock::mono() + DEADLINE;
    let had = ticks();
    while ticks() < had + 5 {
        assert!(clock::mono() < end, "no live tick: {:?}", f.lines());
        pause(Duration::from_millis(10));
    }
    let had = ticks();
    f.signal(Signal::KILL);
    assert_eq!(f.end().0, None);
    let seen = read(&file);
    assert!(!seen.sealed && seen.ticks.len() as u64 >= had);
    assert!(seen.ticks[0].mono < fault.begun);
    let replayed = check(&file);
    assert_eq!(about(&replayed, &fault)["rule"], RULE, "{replayed}");
}

#[test]
fn the_oldest_files_go_for_a_new_one() {
    let _alone = alone();
    let (dir, other) = (Dir::new(), Dir::new());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let incident_files = IncidentFiles::new(host.trim(), vec!["fs-full"], None);
    // One fits beside what the incident takes, two do not.
    let limit = 1 << 20;
    let demo = std::fs::read(DEMO).unwrap();
    let demo = demo.repeat(limit / demo.len() / 2 + 1);
    assert!(2 * demo.len() > limit && demo.len() < limit * 3 / 4, "{}", demo.len());
    let old =
        |n: i64| dir.file(&incident_files.file_name("fs-full", WallNs(n * 86_400_000_000_000)));
    let (first, second) = (old(1), old(2));
    std::fs::write(&first, &demo).unwrap();
    std::fs::write(&second, &demo).unwrap();
    let letter = dir.with("stallscope-fs-full-19700104T000000Z.stall", "dear mother");
    let theirs = old(3);
    std::fs::write(&theirs, "dear mother").unwrap();
    let mut f = Flight::start(dir.path(), &["--before", "2s", "--after", "1s", "--max-size", "1M"]);
    let _fault = Fault::begin(&other, "a.sock");
    f.says(": closed, ", 0);
    let left = files(dir.path());
    assert!(!first.exists(), "the oldest is deleted: {left:?}");
    assert!(second.exists(), "what fits stays: {left:?}");
    assert!(letter.exists() && theirs.exists(), "what is no recording is left alone: {left:?}");
    f.signal(Signal::TERM);
    assert_eq!(f.end().0, Some(0));
    let sizes = files(dir.path()).iter().map(|p| p.metadata().unwrap().len()).sum::<u64>();
    assert!(sizes <= limit as u64 + 2 * "dear mother".len() as u64, "{sizes}");
}

/// The name of a file is taken, and its directory goes away: it goes on.
#[test]
fn trouble_with_the_directory_ends_nothing() {
    let _alone = alone();
    let (dir, other) = (Dir::new(), Dir::new());
    let place = dir.file("made");
    let mut f = Flight::start(&place, &["--before", "5s", "--after", "30s"]);
    pause(Duration::from_secs(2));
    std::fs::remove_dir(&place).unwrap();
    let fault = Fault::begin(&other, "a.sock");
    let line = f.says("cannot record ", 0);
    assert!(line.contains("its directory does not exist; trying again in 10s"), "{line}");
    std::fs::create_dir(&place).unwrap();
    f.says("recording to ", 0);
    f.signal(Signal::TERM);
    let (code, lines) = f.end();
    assert_eq!(code, Some(0), "{lines:?}");
    let replayed = check(&files(&place)[0]);
    assert_eq!(about(&replayed, &fault)["rule"], RULE, "{replayed}");
}

#[test]
fn what_makes_no_sense_is_refused_at_the_start() {
    let dir = Dir::new();
    let file = dir.with("file", "dear mother");
    let tool = dir.with("tool", "#!/bin/sh\n");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (place, file, tool) =
        (dir.path().to_str().unwrap(), file.to_str().unwrap(), tool.to_str().unwrap());
    let none = format!("{place}/none/made");
    for (code, says, args) in [
        (2, "--on-finding needs -o DIR", &[][..]),
        (2, "--on-finding and -o -", &["-o", "-"]),
        (2, "--on-finding and --append", &["-o", place, "--append"]),
        (2, "--on-finding and --rotate", &["-o", place, "--rotate", "1h"]),
        (2, "--on-finding and --max-age", &["-o", place, "--max-age", "1d"]),
        (2, "--on-finding and --thin", &["-o", place, "--thin"]),
        (3, "is not a directory", &["-o", file]),
        (3, "the directory above it does not exist", &["-o", &none]),
        (3, "no file can be made in it", &["-o", "/proc"]),
        (3, "no such file", &["-o", place, "--exec", "/nonexistent/notify"]),
        (3, "give the path of a program", &["-o", place, "--exec", "notify-not-here"]),
        (3, "cannot be run", &["-o", place, "--exec", tool]),
        (3, "is not a program", &["-o", place, "--exec", place]),
    ] {
        let o = run(["record", "--duration", "1s", "--on-finding"].iter().chain(args));
        refused(&o, code, says);
        assert_eq!(stderr(&o).lines().count(), 1, "{}", stderr(&o));
    }
    for (says, args) in [
        ("did you mean fs-full", &["--on-finding=fs-ful"][..]),
        ("no rule 'nonsense'; `stallscope rules` lists them", &["--on-finding=nonsense"]),
        ("--on-finding", &["--before", "1m"]),
        ("--on-finding", &["--exec", "/bin/true"]),
        ("--exec", &["--on-finding", "--exec-arg", "x"]),
        ("1s to 1h", &["--on-finding", "--before", "2h"]),
        ("1s to 30m", &["--on-finding", "--after", "0s"]),
    ] {
        refused(&run(["record", "-o", place].iter().chain(args)), 2, says);
    }
    assert_eq!(dir.count(), 2);
}
