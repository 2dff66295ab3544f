//! Which processes somebody means by a number, a name or a cgroup.

use std::path::Path;

use crate::collect::HostFs;
use crate::collect::cgroups;
use crate::collect::tasks::stat::parse_stat;
use crate::parse::{lines, number};

/// Whom to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process, or the one of this thread.
    Pid(u32),
    /// All processes whose `comm` this is.
    Comm(String),
    /// All processes of a cgroup and of those below it: its path as in `/proc/PID/cgroup`, or below
    /// `/sys/fs/cgroup`.
    Cgroup(String),
}

impl Target {
    /// What was typed: digits are a process, a slash begins a cgroup, all else is a name.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match text.parse() {
            Ok(pid) => Self::Pid(pid),
            Err(_) if text.starts_with('/') => Self::Cgroup(text.to_owned()),
            Err(_) => Self::Comm(text.to_owned()),
        }
    }

    /// The processes that it means now, in the order of their numbers. Never this one.
    #[must_use]
    pub fn processes(&self, host: &HostFs) -> Vec<u32> {
        let mut out = match self {
            Self::Pid(pid) => process_of(host, *pid).into_iter().collect(),
            Self::Comm(name) => called(host, name),
            Self::Cgroup(path) => members(host, path),
        };
        let own = host.link("proc/self").ok().and_then(|pid| pid.parse().ok());
        out.retain(|pid| Some(*pid) != own);
        out.sort_unstable();
        out.dedup();
        out
    }
}

/// The number of a thread is not in the list of `/proc`, but can be looked up there.
fn process_of(host: &HostFs, tid: u32) -> Option<u32> {
    let status = host.read(format!("proc/{tid}/status")).ok()?;
    let tgid = lines(&status).find_map(|l| l.strip_prefix(b"Tgid:"))?;
    number(tgid.trim_ascii()).and_then(|n| u32::try_from(n).ok())
}

/// The kernel cuts names at 15 bytes: so is what was typed.
fn called(host: &HostFs, name: &str) -> Vec<u32> {
    let name = name.as_bytes();
    let name = name.get(..15).unwrap_or(name);
    let all = host.list("proc").unwrap_or_default();
    let pids = all.iter().filter_map(|n| n.parse::<u32>().ok());
    pids.filter(|pid| {
        let stat = host.read(format!("proc/{pid}/stat"));
        stat.is_ok_and(|b| parse_stat(&b).is_some_and(|s| s.comm == name))
    })
    .collect()
}

fn members(host: &HostFs, path: &str) -> Vec<u32> {
    let below_root = path.trim_start_matches('/').trim_end_matches('/');
    let mut out = Vec::new();
    for root in cgroups::roots(host) {
        // As typed from a shell, mount point and all.
        let inside = Path::new(below_root).strip_prefix(&root).unwrap_or(Path::new(below_root));
        collect(host, &root.join(inside), &mut out);
    }
    out
}

fn collect(host: &HostFs, dir: &Path, out: &mut Vec<u32>) {
    let Ok(procs) = host.read(dir.join("cgroup.procs")) else { return };
    out.extend(lines(&procs).filter_map(number).filter_map(|n| u32::try_from(n).ok()));
    for name in host.list(dir).unwrap_or_default() {
        let child = dir.join(name);
        if host.path(&child).is_dir() {
            collect(host, &child, out);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_typed_says_what_it_means() {
        assert_eq!(Target::new("699"), Target::Pid(699));
        assert_eq!(Target::new("postgres"), Target::Comm("postgres".into()));
        assert_eq!(Target::new("/system.slice"), Target::Cgroup("/system.slice".into()));
        assert_eq!(Target::new("7zip"), Target::Comm("7zip".into()));
    }

    #[test]
    fn processes_are_found_by_name_number_and_cgroup() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (pid, comm) in [(7, "a b"), (8, "a-long-name-of-")] {
            write(&format!("proc/{pid}/stat"), &format!("{pid} ({comm}) S {}\n", "1 ".repeat(49)));
            write(&format!("proc/{pid}/status"), &format!("Name:\t{comm}\nTgid:\t{pid}\n"));
        }
        write("proc/9/status", "Name:\tworker\nTgid:\t8\n");
        write("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        write("proc/self/mountinfo", "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("sys/fs/cgroup/cgroup.controllers", "cpu io\n");
        write("sys/fs/cgroup/s.slice/cgroup.procs", "7\n");
        write("sys/fs/cgroup/s.slice/d.service/cgroup.procs", "8\n9\n");
        let host = HostFs::at(dir.path());
        let of = |t: &str| Target::new(t).processes(&host);
        assert_eq!(of("7"), [7]);
        assert_eq!(of("9"), [8], "the process of a thread");
        assert_eq!(of("a b"), [7]);
        assert_eq!(of("a-long-name-of-a-program"), [8], "the kernel keeps 15 bytes");
        assert_eq!(of("/s.slice"), [7, 8, 9]);
        assert_eq!(of("/sys/fs/cgroup/s.slice/d.service/"), [8, 9]);
        assert!(of("4711").is_empty() && of("nobody").is_empty() && of("/none").is_empty());
    }
}
