//! The network namespaces of the host, by inode of `/proc/PID/ns/net`, each with a member
//! process and a name to show.

use std::collections::BTreeMap;
use std::path::PathBuf;

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

/// Our own namespace.
pub fn own(host: &HostFs) -> Option<NetnsId> {
    inode_of_link(&host.link("proc/self/ns/net").ok()?)
}

/// All namespaces that a process or a mount holds, own first, then by inode.
pub fn list(host: &HostFs) -> Vec<Namespace> {
    let mut found: BTreeMap<NetnsId, Namespace> = BTreeMap::new();
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
        let Some(id) = host.link(&handle).ok().and_then(|t| inode_of_link(&t)) else { continue };
        found.entry(id).or_insert_with(|| Namespace {
            id,
            member: Some(pid),
            handle,
            label: host.read_trimmed(format!("proc/{pid}/comm")).unwrap_or_default(),
        });
    }
    for dir in MOUNT_DIRS {
        for name in host.list(dir).unwrap_or_default() {
            let handle = PathBuf::from(dir).join(&name);
            let Some(id) = inode_of_file(host, &handle) else { continue };
            found
                .entry(id)
                .and_modify(|n| n.label.clone_from(&name))
                .or_insert_with(|| Namespace { id, member: None, handle, label: name.clone() });
        }
    }
    let own = own(host);
    let mut out: Vec<Namespace> = found.into_values().collect();
    if let Some(n) = out.iter_mut().find(|n| Some(n.id) == own) {
        "host".clone_into(&mut n.label);
    }
    out.sort_by_key(|n| (Some(n.id) != own, n.id));
    out
}

fn inode_of_link(target: &str) -> Option<NetnsId> {
    let digits = target.strip_prefix("net:[")?.strip_suffix(']')?;
    parse::number(digits.as_bytes()).map(NetnsId)
}

/// A mount of nsfs shows the namespace's inode as its own.
fn inode_of_file(host: &HostFs, rel: &std::path::Path) -> Option<NetnsId> {
    const PROC_SUPER_MAGIC: i64 = 0x9fa0;
    const NSFS_MAGIC: i64 = 0x6e73_6673;
    let path = host.path(rel);
    let fs = rustix::fs::statfs(&path).ok()?;
    if ![NSFS_MAGIC, PROC_SUPER_MAGIC].contains(&(fs.f_type as i64)) {
        return None;
    }
    Some(NetnsId(rustix::fs::stat(&path).ok()?.st_ino))
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
    fn our_own_namespace_is_listed_first() {
        let host = HostFs::live();
        let all = list(&host);
        assert_eq!(all.first().map(|n| n.id), own(&host));
    }
}
