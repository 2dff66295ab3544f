//! Which process holds a socket: `/proc/PID/fd/N` links to `socket:[INODE]`. There is no
//! index; one link costs some 5 us, so a host with 100k descriptors takes half a second.
//!
//! Hence: only inodes that somebody asked for; what was found is kept and validated with one
//! `readlink`; the search runs in slices of a time budget, goes on in the next reading where
//! it stopped, and begins with the processes that held wanted sockets before. What a whole
//! search did not find is not searched again for a while.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{CWD, Dir, Mode, OFlags, openat, readlinkat_raw};

use crate::collect::HostFs;
use crate::sample::sockets::{Life, Owner};
use crate::sample::time::MonoNs;
use crate::{clock, parse};

/// Descriptors that are remembered; beyond this everything is forgotten and found again.
const MAX_KNOWN: usize = 1 << 18;
/// Inodes that are looked for in one reading.
pub const MAX_WANTED: usize = 512;
/// How long an inode that no process holds is left alone.
const RETRY: Duration = Duration::from_secs(30);
/// Processes that are searched first.
const MAX_RECENT: usize = 64;
/// Directory entries between two looks at the clock.
const STRIDE: u32 = 32;

/// Finds owners. One per thread; host-wide, so it serves all namespaces.
#[derive(Debug)]
pub struct OwnerResolver {
    pub(super) host: HostFs,
    /// Where each socket inode was seen.
    pub(super) known: HashMap<u32, Held>,
    /// Names of processes, valid for one reading.
    names: HashMap<u32, Option<Process>>,
    /// Inodes that a whole search did not find, with the time of its end.
    nobody: HashMap<u32, MonoNs>,
    /// Processes that held wanted sockets, latest last.
    recent: Vec<u32>,
    search: Option<Search>,
    /// Processes whose descriptors the latest search could not read.
    denied: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) pid: u32,
    pub(super) fd: u32,
    /// Start time of the process, clock ticks since boot.
    start: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) comm: String,
    pub(super) life: Life,
    pub(super) parent: u32,
    start: u64,
}

/// A search that may span several readings.
#[derive(Debug)]
struct Search {
    /// Processes still to come, next one last.
    pids: Vec<u32>,
    at: Option<(u32, u64, OwnedFd, Dir)>,
    /// What it was begun for. Only of these can its end say that nobody holds them: a socket
    /// wanted later may be held by a process that was passed before it opened it.
    wanted: Vec<u32>,
    began: MonoNs,
    denied: u32,
}

impl OwnerResolver {
    /// Searches below `host`.
    #[must_use]
    pub fn new(host: HostFs) -> Self {
        Self {
            host,
            known: HashMap::new(),
            names: HashMap::new(),
            nobody: HashMap::new(),
            recent: Vec::new(),
            search: None,
            denied: 0,
        }
    }

    /// Processes whose descriptors may not be read.
    #[must_use]
    pub fn denied(&self) -> u32 {
        self.denied
    }

    /// Owners of the `wanted` inodes, as far as they can be found within `budget`. At most
    /// [`MAX_WANTED`] are looked for, the first ones first.
    pub fn resolve(&mut self, wanted: &[u32], budget: Duration) -> Vec<Owner> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let deadline = clock::mono() + budget;
        self.names.clear();
        let mut out = Vec::new();
        let mut open = Vec::new();
        let mut asked: Vec<u32> = Vec::with_capacity(wanted.len().min(MAX_WANTED));
        for inode in wanted.iter().copied().filter(|i| *i != 0) {
            if asked.len() < MAX_WANTED && !asked.contains(&inode) {
                asked.push(inode);
            }
        }
        for inode in asked {
            match self.validated(inode) {
                Some(owner) => out.push(owner),
                None => open.push(inode),
            }
        }
        let now = clock::mono();
        self.nobody.retain(|_, since| now.since(*since) < RETRY);
        open.retain(|inode| !self.nobody.contains_key(inode));
        open.sort_unstable();
        if !open.is_empty() {
            self.search(&mut open, deadline, &mut out);
        }
        out
    }

    /// The remembered owner, if its descriptor still links to the socket.
    fn validated(&mut self, inode: u32) -> Option<Owner> {
        let held = *self.known.get(&inode)?;
        let path = self.host.path(format!("proc/{}/fd/{}", held.pid, held.fd));
        let same = link_inode(CWD, path.as_path()) == Some(inode)
            && self.process(held.pid).is_some_and(|p| p.start == held.start);
        if same {
            return self.owner(inode, held.pid);
        }
        self.known.remove(&inode);
        None
    }

    fn owner(&mut self, inode: u32, pid: u32) -> Option<Owner> {
        let process = self.process(pid)?;
        let owner = Owner { life: process.life, ..Owner::new(inode, pid, process.comm.clone()) };
        if self.recent.last() != Some(&pid) {
            self.recent.retain(|p| *p != pid);
            self.recent.push(pid);
            if self.recent.len() > MAX_RECENT {
                self.recent.remove(0);
            }
        }
        Some(owner)
    }

    pub(super) fn process(&mut self, pid: u32) -> Option<&Process> {
        let host = &self.host;
        self.names.entry(pid).or_insert_with(|| process_of(host, pid)).as_ref()
    }

    fn search(&mut self, open: &mut Vec<u32>, deadline: MonoNs, out: &mut Vec<Owner>) {
        // One that nobody wanted to go on with for long knows too little of the present.
        let now = clock::mono();
        let running = self.search.take().filter(|s| now.since(s.began) < RETRY);
        let mut search = running.unwrap_or_else(|| self.begin(open, now));
        loop {
            if open.is_empty() {
                return;
            }
            if clock::mono() >= deadline {
                self.search = Some(search);
                return;
            }
            if search.at.is_none() {
                let Some(pid) = search.pids.pop() else { break };
                search.at = self.enter(pid, &mut search.denied);
                continue;
            }
            let Some((pid, start, dirfd, dir)) = search.at.as_mut() else { continue };
            let (pid, start) = (*pid, *start);
            let mut ended = false;
            for _ in 0..STRIDE {
                let Some(Ok(entry)) = dir.next() else {
                    ended = true;
                    break;
                };
                let name = entry.file_name();
                let Some(fd) = parse::number(name.to_bytes()) else { continue };
                let Some(inode) = link_inode(dirfd.as_fd(), name) else { continue };
                if self.known.len() >= MAX_KNOWN {
                    self.known.clear();
                }
                self.known.insert(inode, Held { pid, fd: fd as u32, start });
                if let Ok(i) = open.binary_search(&inode) {
                    open.remove(i);
                    out.extend(self.owner(inode, pid));
                }
            }
            if ended {
                search.at = None;
            }
        }
        self.denied = search.denied;
        let now = clock::mono();
        open.retain(|inode| search.wanted.binary_search(inode).is_ok());
        self.nobody.extend(open.drain(..).map(|inode| (inode, now)));
    }

    fn begin(&self, open: &[u32], began: MonoNs) -> Search {
        let mut pids: Vec<u32> = self
            .host
            .list("proc")
            .unwrap_or_default()
            .iter()
            .filter_map(|n| parse::number(n.as_bytes()))
            .filter_map(|n| u32::try_from(n).ok())
            .collect();
        // Popped from the end: recent owners, then young processes.
        pids.sort_unstable();
        pids.retain(|pid| !self.recent.contains(pid));
        pids.extend(&self.recent);
        Search { pids, at: None, wanted: open.to_vec(), began, denied: 0 }
    }

    fn enter(&mut self, pid: u32, denied: &mut u32) -> Option<(u32, u64, OwnedFd, Dir)> {
        let start = self.process(pid)?.start;
        let path = self.host.path(format!("proc/{pid}/fd"));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, &path, flags, Mode::empty())
            .and_then(|fd| Dir::read_from(&fd).map(|dir| (fd, dir)));
        match opened {
            Ok((fd, dir)) => Some((pid, start, fd, dir)),
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
                *denied += 1;
                None
            }
            Err(_) => None,
        }
    }
}

/// The inode of a link to `socket:[INODE]`.
pub(super) fn link_inode<P: rustix::path::Arg>(dir: impl AsFd, path: P) -> Option<u32> {
    let mut buf = [MaybeUninit::<u8>::uninit(); 40];
    let (target, _) = readlinkat_raw(dir, path, &mut buf[..]).ok()?;
    let digits = target.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    u32::try_from(parse::number(digits)?).ok()
}

/// `comm` and start time of `/proc/PID/stat`. The name is in parentheses and may hold any
/// byte, so the last parenthesis ends it.
fn process_of(host: &HostFs, pid: u32) -> Option<Process> {
    let stat = host.read(format!("proc/{pid}/stat")).ok()?;
    let open = stat.iter().position(|b| *b == b'(')?;
    let close = stat.iter().rposition(|b| *b == b')')?;
    let comm = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
    // Fields 3, 4 and 22.
    let mut rest = parse::fields(stat.get(close + 1..)?);
    let life = Life::of(*rest.next()?.first()?);
    let parent = rest.next().and_then(parse::number).and_then(|n| u32::try_from(n).ok())?;
    let start = rest.nth(17).and_then(parse::number)?;
    Some(Process { comm, life, parent, start })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::fd::AsRawFd;

    const AMPLE: Duration = Duration::from_secs(20);

    fn inode_of(socket: &impl AsRawFd) -> u32 {
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        link_inode(CWD, path.as_str()).unwrap()
    }

    #[test]
    fn our_own_socket_is_ours_until_it_is_closed() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let inode = inode_of(&socket);
        let us = std::process::id();
        // A test beside this one may have forked: until its child runs its program, it has our socket.
        let is_fork = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent = stat.rsplit(')').next().and_then(|s| s.split_whitespace().nth(1));
            stat.is_empty() || parent == Some(&us.to_string())
        };
        let (mut resolver, first) = loop {
            let mut resolver = OwnerResolver::new(HostFs::live());
            let first = resolver.resolve(&[0, inode, inode], AMPLE);
            assert_eq!(first.len(), 1);
            if first[0].pid == us || !is_fork(first[0].pid) {
                break (resolver, first);
            }
        };
        assert_eq!((first[0].inode, first[0].pid), (inode, us));
        // From memory: no search.
        assert_eq!(resolver.resolve(&[inode], Duration::ZERO).len(), 1);
        drop(socket);
        assert_eq!(resolver.resolve(&[inode], AMPLE), []);
    }

    #[test]
    fn a_search_without_time_goes_on_in_the_next_reading() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let inode = inode_of(&socket);
        let mut resolver = OwnerResolver::new(HostFs::live());
        assert_eq!(resolver.resolve(&[inode], Duration::ZERO), []);
        assert!(resolver.search.is_some() && resolver.nobody.is_empty());
        assert_eq!(resolver.resolve(&[inode], AMPLE).len(), 1);
    }

    #[test]
    fn what_nobody_holds_is_not_searched_again() {
        let mut resolver = OwnerResolver::new(HostFs::live());
        assert_eq!(resolver.resolve(&[u32::MAX - 7], AMPLE), []);
        assert!(resolver.nobody.contains_key(&(u32::MAX - 7)));
        assert_eq!(resolver.resolve(&[u32::MAX - 7], AMPLE), []);
        assert!(resolver.search.is_none());
    }

    #[test]
    fn a_name_with_parentheses_and_blanks_is_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/7")).unwrap();
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        std::fs::write(dir.path().join("proc/7/stat"), stat).unwrap();
        let got = process_of(&HostFs::at(dir.path()), 7).unwrap();
        assert_eq!((got.comm.as_str(), got.start), ("a) b (c", 4242));
        assert_eq!((got.life, got.parent), (Life::Normal, 1));
    }
}
