//! The program of `--exec`: one at a time, without a shell, on a thread of its own, because even
//! starting it waits for the disk that it is on. It inherits no capability and no file of ours,
//! gets a minimal environment, and is killed with its process group after its time.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, MemfdFlags, accessat, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::clock;
use crate::rights::{self, Duty};

/// Runs that may wait.
const QUEUE: usize = 8;
/// How often to look whether it has ended.
const GLANCE: Duration = Duration::from_millis(50);
/// Bytes of its standard error that are kept for the line about a failure.
const ERRORS: usize = 400;
/// Beyond its time, what ending it may take.
const SLACK: Duration = Duration::from_secs(5);
/// Where programs are found that it runs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What is run, and for how long at most.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
    args: Vec<OsString>,
    limit: Duration,
}

impl Program {
    /// One that exists and that we may run; its path from here on is absolute.
    pub(super) fn find(path: &Path, args: Vec<OsString>, limit: Duration) -> Result<Self, String> {
        let full = path.canonicalize().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound if !path.as_os_str().as_encoded_bytes().contains(&b'/') => {
                "no such file here; give the path of a program".to_owned()
            }
            io::ErrorKind::NotFound => "no such file".to_owned(),
            _ => e.to_string(),
        })?;
        if !full.is_file() {
            return Err("is not a program".to_owned());
        }
        accessat(CWD, &full, Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|e| format!("cannot be run: {}", io::Error::from(e)))?;
        // Not `full`: a link may choose by its name what the program does.
        let path = std::path::absolute(path).map_err(|e| e.to_string())?;
        Ok(Self { path, args, limit })
    }
}

/// What the program is to read, and the file that it is about.
struct Job {
    text: String,
    name: String,
}

/// Runs it for one incident after another.
pub(super) struct Runner {
    program: Program,
    queue: SyncSender<Job>,
    news: Receiver<String>,
    /// Closed when the thread has ended.
    done: Receiver<()>,
    /// Ends what runs.
    stop: Arc<AtomicBool>,
}

impl Runner {
    pub(super) fn start(program: Program) -> io::Result<Self> {
        let (queue, jobs) = sync_channel::<Job>(QUEUE);
        let (tell, news) = channel();
        let (done_tx, done) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (its, asked) = (program.clone(), stop.clone());
        std::thread::Builder::new().name("exec".into()).spawn(move || {
            rights::restrict(Duty::Figures);
            let _done: std::sync::mpsc::Sender<()> = done_tx;
            for job in jobs {
                let ended = if asked.load(Ordering::Acquire) {
                    Err("not run: there was no time for it".to_owned())
                } else {
                    run(&its, &job.text, &asked)
                };
                if let Err(why) = ended {
                    let _ =
                        tell.send(format!("--exec {} for {}: {why}", its.path.display(), job.name));
                }
            }
        })?;
        Ok(Self { program, queue, news, done, stop })
    }

    /// Has it run with `text` on its standard input; what to tell if it will not be.
    pub(super) fn submit(&mut self, text: String, name: &str) -> Option<String> {
        match self.queue.try_send(Job { text, name: name.to_owned() }) {
            Ok(()) => None,
            Err(e) => {
                let why = match e {
                    TrySendError::Full(_) => format!("{QUEUE} others wait"),
                    TrySendError::Disconnected(_) => "its thread died".to_owned(),
                };
                let path = self.program.path.display();
                Some(format!("--exec {path} for {name}: not run: {why}"))
            }
        }
    }

    /// Failures since.
    pub(super) fn news(&mut self) -> Vec<String> {
        self.news.try_iter().collect()
    }

    /// Waits for what runs, no longer than one run may take; then kills it.
    pub(super) fn finish(self) -> Vec<String> {
        let Self { program, queue, news, done, stop } = self;
        drop(queue);
        if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = done.recv_timeout(program.limit) {
            stop.store(true, Ordering::Release);
            let _ = done.recv_timeout(SLACK);
        }
        news.try_iter().collect()
    }
}

/// Runs it once; why it failed.
fn run(p: &Program, text: &str, stop: &AtomicBool) -> Result<(), String> {
    let input = input(text).map_err(|e| format!("cannot hold its input: {e}"))?;
    let mut child = Command::new(&p.path)
        .args(&p.args)
        .env_clear()
        .envs([("PATH", PATH), ("LANG", "C.UTF-8")])
        .current_dir("/")
        .stdin(Stdio::from(input))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut errors = Errors::of(child.stderr.take());
    let end = wait(&mut child, p.limit, stop, &mut errors);
    errors.read();
    let said = errors.first_line();
    match end {
        End::Ended(status) if status.success() => Ok(()),
        End::Ended(status) => Err(format!("{}{said}", told(status))),
        End::Killed => Err(format!("killed: still running after {:?}{said}", p.limit)),
        End::Stopped => Err("killed: the recorder ended".to_owned()),
        End::Lost(e) => Err(e.to_string()),
    }
}

/// A file without a name: nobody has to wait until the program reads.
fn input(text: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create("incident", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

enum End {
    Ended(ExitStatus),
    Killed,
    Stopped,
    Lost(io::Error),
}

fn wait(child: &mut Child, limit: Duration, stop: &AtomicBool, errors: &mut Errors) -> End {
    let end = clock::mono() + limit;
    let late = loop {
        errors.read();
        match child.try_wait() {
            Ok(Some(status)) => return End::Ended(status),
            Ok(None) => {}
            Err(e) => return End::Lost(e),
        }
        let now = clock::mono();
        if stop.load(Ordering::Acquire) {
            break End::Stopped;
        }
        if now >= end {
            break End::Killed;
        }
        clock::sleep_until((now + GLANCE).min(end));
    };
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    // One that hangs in the kernel is left to init.
    let patience = clock::mono() + SLACK / 2;
    while matches!(child.try_wait(), Ok(None)) && clock::mono() < patience {
        clock::sleep_until(clock::mono() + GLANCE);
    }
    late
}

fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// What it says on standard error: the beginning is kept, all is read, so that it never waits.
struct Errors {
    pipe: Option<ChildStderr>,
    kept: Vec<u8>,
}

impl Errors {
    fn of(pipe: Option<ChildStderr>) -> Self {
        let pipe = pipe.filter(|p| rustix::io::ioctl_fionbio(p, true).is_ok());
        Self { pipe, kept: Vec::new() }
    }

    /// What has arrived, at most a megabyte at a time.
    fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut buf = [0; 4096];
        for _ in 0..256 {
            let Ok(n @ 1..) = pipe.read(&mut buf) else { return };
            let room = ERRORS.saturating_sub(self.kept.len()).min(n);
            self.kept.extend_from_slice(buf.get(..room).unwrap_or_default());
        }
    }

    fn first_line(&self) -> String {
        let text = String::from_utf8_lossy(&self.kept);
        let line = text.lines().find(|l| !l.trim().is_empty());
        line.map_or_else(String::new, |l| format!(": {}", l.trim()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sh(script: &str, limit: Duration) -> Program {
        let args = ["-c", script].map(OsString::from).to_vec();
        Program::find(Path::new("/bin/sh"), args, limit).unwrap()
    }

    fn once(script: &str) -> Result<(), String> {
        run(&sh(script, Duration::from_secs(60)), "{\"a\":1}\n", &AtomicBool::new(false))
    }

    #[test]
    fn it_reads_what_it_is_given_and_nothing_else_is_open() {
        assert_eq!(once("read line; test \"$line\" = '{\"a\":1}'"), Ok(()));
        // Descriptors 0 to 2 and the one with which the shell lists them.
        let list = "for f in /proc/self/fd/*; do case ${f##*/} in 0|1|2) ;; *) echo ${f##*/} \
                    $(readlink $f) >&2; esac; done; exit 1";
        let said = once(list).unwrap_err();
        assert!(!said.contains("socket") && !said.contains("memfd"), "{said}");
        assert_eq!(once("test \"$(env | grep -cv '^_=\\|^PWD=\\|^SHLVL=')\" = 2"), Ok(()));
        assert_eq!(once("test \"$PWD\" = /"), Ok(()));
    }

    #[test]
    fn a_failure_is_one_line() {
        assert_eq!(once("exit 3"), Err("ended with exit code 3".to_owned()));
        let said = once("echo >&2; echo no mail today >&2; echo more >&2; exit 1");
        assert_eq!(said, Err("ended with exit code 1: no mail today".to_owned()));
        assert_eq!(once("kill -9 $$"), Err("killed by signal 9".to_owned()));
        // More than a pipe holds, to both.
        assert_eq!(once("yes | head -c 300000 >&2; yes | head -c 300000"), Ok(()));
    }

    #[test]
    fn it_is_killed_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let limit = Duration::from_secs(2);
        let said = run(&sh(&script, limit), "", &AtomicBool::new(false));
        assert_eq!(said, Err("killed: still running after 2s".to_owned()));
        let pid = std::fs::read_to_string(&file).unwrap();
        // A zombie until init takes it, but no longer running.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        assert!(stat.is_err() || stat.is_ok_and(|s| s.contains(") Z ")));
        let said = run(&sh("sleep 600", Duration::from_secs(600)), "", &AtomicBool::new(true));
        assert_eq!(said, Err("killed: the recorder ended".to_owned()));
    }

    #[test]
    fn one_runs_at_a_time_and_few_wait() {
        let dir = tempfile::tempdir().unwrap();
        let go = dir.path().join("go");
        let script = format!("while ! test -e {}; do sleep 0.05; done; exit 7", go.display());
        let mut r = Runner::start(sh(&script, Duration::from_secs(60))).unwrap();
        // One may have been taken from the queue.
        let full = (0..QUEUE + 2).filter_map(|n| r.submit(String::new(), &format!("f{n}"))).last();
        let want = format!("--exec /bin/sh for f{}: not run: 8 others wait", QUEUE + 1);
        assert_eq!(full, Some(want));
        std::fs::write(go, "").unwrap();
        let said = r.finish();
        assert!((QUEUE..=QUEUE + 1).contains(&said.len()), "{said:?}");
        assert!(said.iter().all(|s| s.ends_with("ended with exit code 7")), "{said:?}");
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let of = |path: &str| Program::find(Path::new(path), Vec::new(), GLANCE).unwrap_err();
        assert_eq!(of("/nonexistent/notify"), "no such file");
        assert!(of("notify-that-is-not-here").contains("give the path"), "a name is not looked up");
        assert_eq!(of("/"), "is not a program");
        assert!(of("/proc/version").starts_with("cannot be run"), "{}", of("/proc/version"));
    }
}
