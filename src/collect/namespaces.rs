//! The network namespaces of the host, by inode of `/proc/PID/ns/net`, each with a member
//! process and a name to show.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{HostFs, parse};
use crate::model::subject::NetnsId;

/// Directories where mounts keep namespaces alive without a process.
const MOUNT_DIRS: [&str; 2] = ["run/netns", "var/run/docker/netns"];

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
    /// Processes whose namespace may not be read: there may be more namespaces.
    pub unreadable: u32,
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
    survey(host).spaces
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

/// As [`list`], and how much of the host could not be seen. Costs one `readlink` per
/// process; only the first member of a namespace is looked at closer.
pub fn survey(host: &HostFs) -> Survey {
    let mut found: BTreeMap<NetnsId, Namespace> = BTreeMap::new();
    let mut unreadable = 0;
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
                unreadable += u32::from(e.kind() == std::io::ErrorKind::PermissionDenied);
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
    Survey { spaces, unreadable }
}

/// The container of a process, or its `comm`.
fn name_of_member(host: &HostFs, pid: u32) -> String {
    let cgroups = host.read(format!("proc/{pid}/cgroup")).unwrap_or_default();
    container(&String::from_utf8_lossy(&cgroups))
        .unwrap_or_else(|| host.read_trimmed(format!("proc/{pid}/comm")).unwrap_or_default())
}

/// The container that a cgroup path names, as the usual engines lay them out: a 64-digit id,
/// shown by its first twelve digits as their own tools do, or the name of an LXC container.
fn container(cgroups: &str) -> Option<String> {
    const ENGINES: [&str; 5] = ["docker", "cri-containerd", "containerd", "crio", "libpod"];
    for path in cgroups.lines().filter_map(|l| l.splitn(3, ':').nth(2)) {
        let mut before = "";
        for part in path.split('/') {
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
            assert_eq!(container(&path).as_deref(), want, "{path}");
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
    fn our_own_namespace_is_listed_first() {
        let host = HostFs::live();
        let all = list(&host);
        assert_eq!(all.first().map(|n| n.id), own(&host));
    }
}
