//! The network namespaces of the host, by inode of `/proc/PID/ns/net`, each with a member
//! process and a name to show.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::HostFs;
use crate::parse;
use crate::sample::subject::NetnsId;

/// Directories where mounts keep namespaces alive without a process.
const MOUNT_DIRS: [&str; 2] = ["run/netns", "var/run/docker/netns"];

/// Tells when a namespace gets or loses a mount, as `ip netns add` and container runtimes do: the
/// directory's time changes then. Two `stat`s, where a look at all processes costs a `readlink`
/// each.
#[derive(Debug, Default)]
pub struct MountDirs {
    times: Option<[Option<(i64, u64)>; 2]>,
    again: bool,
}

impl MountDirs {
    /// Has one of the directories changed since the last call? Once more at the call after that:
    /// the file comes first, and the namespace is mounted on it then.
    pub fn changed(&mut self, host: &HostFs) -> bool {
        let time = |dir: &str| {
            let stat = rustix::fs::stat(host.path(dir)).ok()?;
            #[allow(clippy::unnecessary_cast, reason = "the types differ between targets")]
            Some((stat.st_mtime as i64, stat.st_mtime_nsec as u64))
        };
        let now = Some(MOUNT_DIRS.map(time));
        let changed = self.times.is_some() && self.times != now;
        self.times = now;
        std::mem::replace(&mut self.again, changed) || changed
    }
}

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its inode.
    pub id: NetnsId,
    /// A process inside, lowest pid first.
    pub member: Option<u32>,
    /// A file that `setns` accepts, below the host root.
    pub handle: PathBuf,
    /// `host`, a mount's name, or `comm` of the member; raw.
    pub label: String,
}

/// What a look at all processes found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The namespaces, own first, then by inode.
    pub spaces: Vec<Namespace>,
    /// [`net_file`] of the namespaces whose processes may not be looked into. One that a mount
    /// holds too is among `spaces` as well.
    pub closed: BTreeSet<u64>,
    /// Processes of which not even that can be told: there may be more namespaces.
    pub unreadable: u32,
    /// Other users' processes are not listed at all.
    pub hidden: bool,
}

/// Our own namespace.
pub fn own(host: &HostFs) -> Option<NetnsId> {
    inode_of_link(&host.link("proc/self/ns/net").ok()?)
}

/// The namespace behind a path such as `/run/netns/blue` or `/proc/1/ns/net`, taken as it
/// is, not below a host root.
pub fn of_path(path: &Path) -> Option<NetnsId> {
    match std::fs::read_link(path) {
        // A magic link says what it is; one to another kind of namespace is none.
        Ok(target) if target.to_string_lossy().contains(":[") => {
            inode_of_link(&target.to_string_lossy())
        }
        _ => inode_of_file(path),
    }
}

/// All namespaces that a process or a mount holds, own first, then by inode.
pub fn list(host: &HostFs) -> Vec<Namespace> {
    walk(host).0
}

/// Is a namespace still what its handle leads to? One `readlink`, or two `stat`s for a
/// mount.
pub fn still_there(host: &HostFs, space: &Namespace) -> bool {
    let now = match space.member {
        Some(_) => host.link(&space.handle).ok().and_then(|t| inode_of_link(&t)),
        None => inode_of_file(&host.path(&space.handle)),
    };
    now == Some(space.id)
}

/// As [`list`], and how much of the host could not be seen.
///
/// The link of a foreign process is for those who may trace it, but what its `/proc/PID/net`
/// shows is for everybody, and the files in there are other ones in each namespace.
pub fn survey(host: &HostFs) -> Survey {
    let (spaces, refused) = walk(host);
    // Every pid namespace has a process 1: not to see it is the mark of hidepid=2.
    let hidden = !host.path("proc/1").exists();
    let mut out = Survey { spaces, closed: BTreeSet::new(), unreadable: 0, hidden };
    if refused.is_empty() {
        return out;
    }
    let members = out.spaces.iter().filter_map(|n| n.member);
    let known: BTreeSet<u64> =
        members.filter_map(|pid| net_file(host, &pid.to_string()).ok()).collect();
    for pid in refused {
        match net_file(host, &pid.to_string()) {
            Ok(file) if known.contains(&file) => {}
            Ok(file) => drop(out.closed.insert(file)),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => out.unreadable += 1,
            // Gone.
            Err(_) => {}
        }
    }
    out
}

/// Inode of a file that each network namespace has one of, as `/proc/PID/net` shows it; `pid`
/// may be `thread-self`.
pub fn net_file(host: &HostFs, pid: &str) -> io::Result<u64> {
    Ok(rustix::fs::stat(host.path(format!("proc/{pid}/net/dev")))?.st_ino)
}

/// The namespaces, and the processes whose link may not be read. Costs one `readlink` per
/// process; only the first member of a namespace is looked at closer.
fn walk(host: &HostFs) -> (Vec<Namespace>, Vec<u32>) {
    let mut found: BTreeMap<NetnsId, Namespace> = BTreeMap::new();
    let mut refused = Vec::new();
    let mut pids: Vec<u32> = host
        .list("proc")
        .unwrap_or_default()
        .iter()
        .filter_map(|n| parse::number(n.as_bytes()))
        .filter_map(|n| u32::try_from(n).ok())
        .collect();
    pids.sort_unstable();
    for pid in pids {
        let handle = PathBuf::from(format!("proc/{pid}/ns/net"));
        let id = match host.link(&handle) {
            Ok(target) => inode_of_link(&target),
            Err(e) => {
                if e.kind() == io::ErrorKind::PermissionDenied {
                    refused.push(pid);
                }
                None
            }
        };
        let Some(id) = id else { continue };
        found.entry(id).or_insert_with(|| Namespace {
            id,
            member: Some(pid),
            handle,
            label: name_of_member(host, pid),
        });
    }
    for dir in MOUNT_DIRS {
        for name in host.list(dir).unwrap_or_default() {
            let handle = PathBuf::from(dir).join(&name);
            let Some(id) = inode_of_file(&host.path(&handle)) else { continue };
            found
                .entry(id)
                .and_modify(|n| n.label.clone_from(&name))
                .or_insert_with(|| Namespace { id, member: None, handle, label: name.clone() });
        }
    }
    let own = own(host);
    let mut spaces: Vec<Namespace> = found.into_values().collect();
    if let Some(n) = spaces.iter_mut().find(|n| Some(n.id) == own) {
        "host".clone_into(&mut n.label);
    }
    spaces.sort_by_key(|n| (Some(n.id) != own, n.id));
    (spaces, refused)
}

/// The container of a process, or its `comm`.
fn name_of_member(host: &HostFs, pid: u32) -> String {
    let cgroups = host.read(format!("proc/{pid}/cgroup")).unwrap_or_default();
    container(&cgroups)
        .unwrap_or_else(|| host.read_trimmed(format!("proc/{pid}/comm")).unwrap_or_default())
}

/// The container that a cgroup path names, as the usual engines lay them out: a 64-digit id,
/// shown by its first twelve digits as their own tools do, or the name of an LXC container.
fn container(cgroups: &[u8]) -> Option<String> {
    const ENGINES: [&str; 5] = ["docker", "cri-containerd", "containerd", "crio", "libpod"];
    for group in parse::cgroups(cgroups) {
        let mut before = "";
        for part in group.pathname.split('/') {
            let name = part.strip_suffix(".scope").unwrap_or(part);
            let (engine, id) = name.rsplit_once('-').unwrap_or(("", name));
            let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
            if is_id {
                let by_parent = if ENGINES.contains(&before) { before } else { "container" };
                let engine = if ENGINES.contains(&engine) { engine } else { by_parent };
                return Some(format!("{engine} {}", id.get(..12)?));
            }
            let lxc = (before == "lxc" && !name.is_empty()).then_some(name);
            if let Some(name) = lxc.or_else(|| part.strip_prefix("lxc.payload.")) {
                return Some(format!("lxc {name}"));
            }
            before = part;
        }
    }
    None
}

fn inode_of_link(target: &str) -> Option<NetnsId> {
    let digits = target.strip_prefix("net:[")?.strip_suffix(']')?;
    parse::number(digits.as_bytes()).map(NetnsId)
}

/// A mount of nsfs (since 3.19) shows the namespace's inode as its own.
fn inode_of_file(path: &Path) -> Option<NetnsId> {
    const NSFS_MAGIC: i64 = 0x6e73_6673;
    if rustix::fs::statfs(path).ok()?.f_type as i64 != NSFS_MAGIC {
        return None;
    }
    Some(NetnsId(rustix::fs::stat(path).ok()?.st_ino))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn link_targets_give_the_inode() {
        assert_eq!(inode_of_link("net:[4026531840]"), Some(NetnsId(4_026_531_840)));
        assert_eq!(inode_of_link("net:[x]"), None);
        assert_eq!(inode_of_link("mnt:[1]"), None);
    }

    #[test]
    fn containers_are_named_after_their_cgroup() {
        let id = "0123456789abcdef".repeat(4);
        for (path, want) in [
            (format!("0::/system.slice/docker-{id}.scope"), Some("docker 0123456789ab")),
            (format!("12:cpu:/docker/{id}"), Some("docker 0123456789ab")),
            (
                format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
                Some("cri-containerd 0123456789ab"),
            ),
            (format!("1:name=systemd:/kubepods/pod7/{id}"), Some("container 0123456789ab")),
            ("3:memory:/lxc/web/init.scope".to_owned(), Some("lxc web")),
            ("0::/lxc.payload.web/init.scope".to_owned(), Some("lxc web")),
            ("0::/user.slice/user-0.slice/session-1.scope".to_owned(), None),
            ("0::/\n1:cpu:/".to_owned(), None),
            ("garbage".to_owned(), None),
        ] {
            let text = format!("{path}\n");
            assert_eq!(container(text.as_bytes()).as_deref(), want, "{path}");
        }
    }

    #[test]
    fn a_path_leads_to_its_namespace_and_other_files_to_none() {
        let host = HostFs::live();
        assert_eq!(of_path(Path::new("/proc/self/ns/net")), own(&host));
        assert_eq!(of_path(Path::new("/proc/self/ns/mnt")), None);
        assert_eq!(of_path(Path::new("/proc/self/status")), None);
        assert_eq!(of_path(Path::new("/nowhere")), None);
        assert!(list(&host).iter().all(|n| still_there(&host, n)));
    }

    #[test]
    fn a_mount_that_comes_or_goes_is_noticed_twice() {
        let dir = tempfile::tempdir().unwrap();
        let host = HostFs::at(dir.path());
        let mut mounts = MountDirs::default();
        let mut next_three = || [(); 3].map(|()| mounts.changed(&host));
        assert_eq!(next_three(), [false; 3]);
        std::fs::create_dir_all(dir.path().join("run/netns")).unwrap();
        assert_eq!(next_three(), [true, true, false]);
        std::fs::write(dir.path().join("run/netns/blue"), "").unwrap();
        // The clock of a file system ticks every few milliseconds.
        let old = std::time::UNIX_EPOCH;
        let netns = std::fs::File::open(dir.path().join("run/netns")).unwrap();
        netns.set_modified(old).unwrap();
        assert_eq!(next_three(), [true, true, false]);
    }

    /// Processes that we may not trace, in namespaces that we share, that others share, and that
    /// nothing can be told of.
    #[test]
    fn namespaces_of_processes_that_may_not_be_traced_are_counted() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        if rustix::process::geteuid().is_root() {
            // Root looks into every directory of ours; the lab has this case live.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let host = HostFs::at(dir.path());
        let at = |pid: u32, rest: &str| dir.path().join(format!("proc/{pid}/{rest}"));
        let allow = |pid: u32, rest: &str, mode: u32| {
            std::fs::set_permissions(at(pid, rest), PermissionsExt::from_mode(mode)).unwrap();
        };
        for (pid, space, closed) in
            [(1, "ours", true), (2, "ours", false), (3, "b", true), (4, "b", true), (5, "c", true)]
        {
            std::fs::create_dir_all(at(pid, "ns")).unwrap();
            std::fs::create_dir_all(at(pid, "net")).unwrap();
            symlink("net:[7]", at(pid, "ns/net")).unwrap();
            std::fs::write(dir.path().join(space), "").unwrap();
            std::fs::hard_link(dir.path().join(space), at(pid, "net/dev")).unwrap();
            allow(pid, "ns", if closed { 0 } else { 0o755 });
        }
        let s = survey(&host);
        assert_eq!((s.spaces.len(), s.closed.len(), s.unreadable, s.hidden), (1, 2, 0, false));
        allow(5, "net", 0);
        let s = survey(&host);
        assert_eq!((s.closed.len(), s.unreadable), (1, 1));
        // To be cleaned up.
        allow(5, "net", 0o755);
        (1..6).for_each(|pid| allow(pid, "ns", 0o755));
    }

    #[test]
    fn our_own_namespace_is_listed_first() {
        let host = HostFs::live();
        let all = list(&host);
        assert_eq!(all.first().map(|n| n.id), own(&host));
    }
}
