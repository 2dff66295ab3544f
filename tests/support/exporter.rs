//! Runs `stallscope serve` on a port of its own, and asks it over plain sockets.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use stallscope::clock;

use super::program::program;

const DEADLINE: Duration = Duration::from_secs(60);

/// A server that is killed when dropped.
pub struct Exporter {
    child: Option<Child>,
    stderr: BufReader<ChildStderr>,
    /// What it said when it was ready.
    pub said: String,
    /// Where it listens.
    pub at: SocketAddr,
}

impl Exporter {
    /// Light: no eBPF, one namespace.
    pub fn start(args: &[&str]) -> Self {
        let mut c = program();
        c.args(["serve", "--no-bpf", "--netns", "self"]).args(args);
        if !args.contains(&"--listen") {
            c.args(["--listen", "127.0.0.1:0"]);
        }
        Self::of(c)
    }

    /// This command.
    pub fn of(mut c: Command) -> Self {
        let mut child = c.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        stderr.read_line(&mut said).unwrap();
        let at = said.split("http://").nth(1).and_then(|s| s.split('/').next());
        let at: SocketAddr = at.and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("{said:?}"));
        let at = if at.ip().is_unspecified() { ([127, 0, 0, 1], at.port()).into() } else { at };
        Self { child: Some(child), stderr, said, at }
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Sends this on a new connection and reads to its end.
    pub fn send(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // It may have answered and closed before it read everything.
        let _ = stream.write_all(bytes);
        to_end(&mut stream)
    }

    /// Asks for a path once, on a connection of its own.
    pub fn get(&self, path: &str, headers: &str) -> Answer {
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        Answer::read(&self.send(head.as_bytes()))
    }

    /// The page in OpenMetrics, once there is one.
    pub fn metrics(&self, headers: &str) -> Answer {
        let begun = clock::mono();
        loop {
            let headers = format!("Accept: application/openmetrics-text\r\n{headers}");
            let a = self.get("/metrics", &headers);
            if a.status != 503 {
                return a;
            }
            assert!(clock::mono().since(begun) < DEADLINE, "never: the first sample");
            clock::sleep_until(clock::mono() + Duration::from_millis(20));
        }
    }

    pub fn signal(&self, s: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, s).unwrap();
    }

    /// Exit code (`None`: killed) and what it said after its first line.
    pub fn end(&mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        let status = self.child.take().unwrap().wait().unwrap();
        (status.code(), said)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if let Some(mut c) = self.child.take() {
            let _ = c.kill();
            let _ = c.wait();
        }
    }
}

/// What is left on a connection; whoever closes it may reset it.
pub fn to_end(stream: &mut TcpStream) -> String {
    let mut out = Vec::new();
    let mut block = [0; 8 << 10];
    loop {
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(n) => out.extend_from_slice(&block[..n]),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
            Err(e) => panic!("{e}: {}", String::from_utf8_lossy(&out)),
        }
    }
    String::from_utf8(out).unwrap()
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// The only one in `text`.
    #[track_caller]
    pub fn read(text: &str) -> Self {
        let (one, rest) = Self::first(text);
        assert_eq!(rest, "", "more than one answer");
        one
    }

    /// The first one in `text`, and what follows.
    #[track_caller]
    pub fn first(text: &str) -> (Self, &str) {
        let (head, rest) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let mut words = head.split(' ');
        assert!(words.next().is_some_and(|v| v.starts_with("HTTP/1.")), "{head}");
        let status = words.next().unwrap().parse().unwrap();
        let head = format!("{head}\r\n");
        let answer = Self { status, head, body: String::new() };
        let length = answer.header("content-length").map_or(0, |n| n.parse().unwrap());
        let (body, rest) = rest.split_at(length.min(rest.len()));
        (Self { body: body.to_owned(), ..answer }, rest)
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|l| l.split_once(": "));
        lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }
}

/// A file with a token that is a secret.
pub fn secret(path: &Path, token: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, token).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
