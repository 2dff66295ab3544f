//! Who accepts on a listener that several processes hold.
//!
//! A server that forks its workers leaves the listener open in all of them, under one number. The
//! search of [`super::owners`] meets any one of them. From there the parent and the children are a
//! few links away: those that hold the same socket under the same number. Of these the one is
//! named that is stopped (connections that are handed to it wait for ever), else one that waits on
//! the listener: it sleeps in `accept()` or has it in an epoll set.

use std::os::fd::AsFd;

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};

use super::owners::{Held, OwnerResolver, link_inode};
use crate::sample::sockets::{Life, Owner};
use crate::sample::time::MonoNs;
use crate::{clock, parse};

/// Processes of one listener that are looked at.
const MAX_HOLDERS: usize = 64;
/// Of these, so many are asked what they wait for.
const MAX_ASKED: usize = 16;
/// Children of one process that are looked at: a server of sessions has many that do not matter.
const MAX_CHILDREN: usize = 256;
/// Descriptors per process that are looked at for an epoll set.
const MAX_FDS: usize = 256;
/// Where a thread sleeps that waits for a connection.
const ACCEPTING: [&str; 2] = ["inet_csk_accept", "inet_csk_wait_for_connect"];

impl OwnerResolver {
    /// Counts who else holds the listener, and names the one that matters, as far as that is
    /// found before the deadline.
    pub fn who_accepts(&mut self, owner: &mut Owner, deadline: MonoNs) {
        let Some(held) = self.known.get(&owner.inode).copied() else { return };
        let family = self.family(owner.inode, held, deadline);
        owner.holders = u16::try_from(family.len()).unwrap_or(u16::MAX);
        if family.len() < 2 {
            return;
        }
        let stopped = |s: &mut Self, pid: &u32| s.process(*pid).is_some_and(is_stopped);
        let chosen = family.iter().copied().find(|pid| stopped(self, pid)).or_else(|| {
            let mut asked = family.iter().copied().take(MAX_ASKED);
            asked.find(|pid| clock::mono() < deadline && self.waits_on(*pid, held.fd))
        });
        if let Some(pid) = chosen
            && let Some(p) = self.process(pid).cloned()
        {
            (owner.pid, owner.comm, owner.life) = (pid, p.comm, p.life);
        }
    }

    /// The processes that hold `inode` as `held` does: up to the first that opened it, and down
    /// from there. `held` itself comes first.
    fn family(&mut self, inode: u32, held: Held, deadline: MonoNs) -> Vec<u32> {
        let mut top = held.pid;
        for _ in 0..MAX_HOLDERS {
            let Some(parent) = self.process(top).map(|p| p.parent).filter(|p| *p > 1) else {
                break;
            };
            if !self.holds(parent, held.fd, inode) {
                break;
            }
            top = parent;
        }
        let mut all = vec![held.pid];
        let mut open = vec![top];
        while let Some(pid) = open.pop() {
            if pid != held.pid {
                all.push(pid);
            }
            for child in self.children(pid) {
                if all.len() + open.len() >= MAX_HOLDERS || clock::mono() >= deadline {
                    return all;
                }
                if self.holds(child, held.fd, inode) {
                    open.push(child);
                }
            }
        }
        all
    }

    fn holds(&self, pid: u32, fd: u32, inode: u32) -> bool {
        let path = self.host.path(format!("proc/{pid}/fd/{fd}"));
        link_inode(CWD, path.as_path()) == Some(inode)
    }

    /// Children of all threads; empty without `CONFIG_PROC_CHILDREN`.
    fn children(&self, pid: u32) -> Vec<u32> {
        let dir = format!("proc/{pid}/task");
        let threads = self.host.list(&dir).unwrap_or_default();
        let of = |t: &String| self.host.read(format!("{dir}/{t}/children")).unwrap_or_default();
        let texts = threads.iter().take(MAX_HOLDERS).map(of);
        let pids = |text: Vec<u8>| {
            let numbers = parse::fields(&text).filter_map(parse::number);
            numbers.filter_map(|n| u32::try_from(n).ok()).collect::<Vec<u32>>()
        };
        texts.flat_map(pids).take(MAX_CHILDREN).collect()
    }

    /// Does it sleep in accept(), or is the listener in one of its epoll sets?
    fn waits_on(&self, pid: u32, fd: u32) -> bool {
        let wchan = self.host.read_trimmed(format!("proc/{pid}/wchan")).unwrap_or_default();
        ACCEPTING.contains(&&*wchan) || self.polls(pid, fd)
    }

    fn polls(&self, pid: u32, fd: u32) -> bool {
        let path = self.host.path(format!("proc/{pid}/fd"));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(dirfd) = openat(CWD, &path, flags, Mode::empty()) else { return false };
        let Ok(dir) = Dir::read_from(&dirfd) else { return false };
        let names = dir.filter_map(Result::ok).take(MAX_FDS);
        let sets = names.filter_map(|e| {
            let set = parse::number(e.file_name().to_bytes())?;
            is_epoll(&dirfd, e.file_name()).then_some(set)
        });
        sets.into_iter().any(|set| {
            let text = self.host.read(format!("proc/{pid}/fdinfo/{set}")).unwrap_or_default();
            // "tfd:        6 events:       19 data: ..."
            text.split(|b| *b == b'\n').any(|line| {
                let mut fields = parse::fields(line);
                fields.next() == Some(b"tfd:".as_slice())
                    && fields.next().and_then(parse::number) == Some(u64::from(fd))
            })
        })
    }
}

fn is_stopped(p: &super::owners::Process) -> bool {
    matches!(p.life, Life::Stopped | Life::Traced)
}

fn is_epoll(dir: impl AsFd, name: &std::ffi::CStr) -> bool {
    rustix::fs::readlinkat(dir, name, Vec::new())
        .is_ok_and(|target| target.as_bytes() == b"anon_inode:[eventpoll]")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::collect::HostFs;

    /// `sleep`, with our listener as its standard input, or what begins several; killed when dropped,
    /// with its process group: whoever reads our output waits for all that hold it.
    struct Worker(Child);

    impl Worker {
        fn with(socket: &std::net::TcpListener) -> Self {
            let input = Stdio::from(std::os::fd::OwnedFd::from(socket.try_clone().unwrap()));
            Self::started(Command::new("sleep").arg("60").stdin(input))
        }
        fn started(command: &mut Command) -> Self {
            Self(command.process_group(0).spawn().unwrap())
        }
        fn pid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Worker {
        fn drop(&mut self) {
            let group = rustix::process::Pid::from_child(&self.0);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = self.0.wait();
        }
    }

    /// The owner, as soon as it is one of ours: a process that another test starts holds copies
    /// of our sockets between its fork and its exec.
    fn settled(inode: u32, names: &[&str]) -> (OwnerResolver, Owner) {
        let end = clock::mono() + Duration::from_secs(20);
        loop {
            let mut resolver = OwnerResolver::new(HostFs::live());
            let found = resolver.resolve(&[inode], Duration::from_secs(20)).pop();
            if let Some(mut owner) = found.filter(|o| names.contains(&&*o.comm)) {
                resolver.who_accepts(&mut owner, clock::mono() + Duration::from_secs(20));
                return (resolver, owner);
            }
            assert!(clock::mono() < end, "nobody holds {inode}");
        }
    }

    #[test]
    fn a_stopped_worker_is_named_before_the_others() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = socket.as_raw_fd();
        let inode = std::fs::metadata(format!("/proc/self/fd/{fd}")).unwrap().ino() as u32;
        // A shell that forks: all of its children hold the socket as 3.
        let input = Stdio::from(std::os::fd::OwnedFd::from(socket.try_clone().unwrap()));
        let mut shell = Worker::started(
            Command::new("sh")
                .args(["-c", "exec 3<&0 0</dev/null; sleep 60 & sleep 60 & echo $!; wait"])
                .stdin(input)
                .stdout(Stdio::piped()),
        );
        let mut line = String::new();
        let out = shell.0.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        let last: u32 = line.trim().parse().unwrap();
        // Ours is closed: only the family under the shell is left.
        drop(socket);
        let (mut resolver, owner) = settled(inode, &["sh", "sleep"]);
        assert_eq!(owner.holders, 3, "{owner:?}");
        assert_eq!(owner.life, Life::Normal);
        let target = rustix::process::Pid::from_raw(last as i32).unwrap();
        rustix::process::kill_process(target, rustix::process::Signal::STOP).unwrap();
        let stopped = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.contains(") T ")
        };
        while !stopped(last) {
            std::thread::yield_now();
        }
        let mut owner = resolver.resolve(&[inode], Duration::from_secs(20)).remove(0);
        resolver.who_accepts(&mut owner, clock::mono() + Duration::from_secs(20));
        assert_eq!((owner.pid, owner.life, owner.holders), (last, Life::Stopped, 3));
        rustix::process::kill_process(target, rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn one_that_polls_the_listener_is_known_by_its_epoll_set() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = socket.as_raw_fd() as u32;
        let resolver = OwnerResolver::new(HostFs::live());
        assert!(!resolver.polls(std::process::id(), fd));
        let set = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
        let (data, flags) =
            (rustix::event::epoll::EventData::new_u64(1), rustix::event::epoll::EventFlags::IN);
        rustix::event::epoll::add(&set, &socket, data, flags).unwrap();
        assert!(resolver.polls(std::process::id(), fd));
        assert!(!resolver.polls(std::process::id(), fd + 1000));
    }

    #[test]
    fn a_lone_holder_is_one() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let worker = Worker::with(&socket);
        drop(socket);
        let inode = std::fs::metadata(format!("/proc/{}/fd/0", worker.pid())).unwrap().ino() as u32;
        let (_, owner) = settled(inode, &["sleep"]);
        assert_eq!((owner.pid, owner.holders), (worker.pid(), 1));
    }
}
