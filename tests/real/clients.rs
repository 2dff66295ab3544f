//! Clients that a shell has no program for: such that ask at their leisure and wait.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::kit::net::{Ns, Pair};
use crate::kit::pause;
use crate::kit::sh::Held;
use crate::servers::{Home, inside};

/// Connections on each of which a thread asks, waits for the answer, and asks again.
pub struct Askers {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Askers {
    /// `n` of them, 20 ms between questions.
    pub fn start(ns: &Ns, to: SocketAddr, n: usize, question: &'static [u8]) -> Self {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let streams = connections(ns, to, n);
        let threads = streams.into_iter().map(|mut s| {
            let (stop, answers) = (stop.clone(), answers.clone());
            std::thread::spawn(move || {
                s.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
                while !stop.load(Ordering::Relaxed) && ask(&mut s, question, &stop) {
                    answers.fetch_add(1, Ordering::Relaxed);
                    pause(20);
                }
            })
        });
        let threads = threads.collect();
        Self { stop, answers, threads }
    }
    /// Answers so far.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }
}

/// False when there is nothing more to ask.
fn ask(s: &mut TcpStream, question: &[u8], stop: &AtomicBool) -> bool {
    if s.write_all(question).is_err() {
        return false;
    }
    let mut block = [0; 8192];
    loop {
        match s.read(&mut block) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if stop.load(Ordering::Relaxed) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
}

impl Drop for Askers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
    }
}

/// `n` connections.
pub fn connections(ns: &Ns, to: SocketAddr, n: usize) -> Vec<TcpStream> {
    ns.inside(|| (0..n).map(|_| TcpStream::connect(to).unwrap()).collect())
}

/// Threads in a namespace that do `step` over and over.
pub struct Restless {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Restless {
    pub fn start(ns: &Ns, n: usize, step: impl Fn() + Send + Sync + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let step = Arc::new(step);
        let threads = (0..n).map(|_| {
            let (stop, step) = (stop.clone(), step.clone());
            let file = std::fs::File::open(format!("/run/netns/{}", ns.name)).unwrap();
            std::thread::spawn(move || {
                use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
                use std::os::fd::AsFd;
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(file.as_fd(), kind).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    step();
                }
            })
        });
        let threads = threads.collect();
        Self { stop, threads }
    }
}

impl Drop for Restless {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
    }
}

/// A program on the near end.
pub fn client(net: &Pair, dir: &Path, argv: &[&str]) -> Held {
    inside(Home { ns: &net.a, dir, groups: &[] }, argv)
}
