//! The mounted hierarchies, from `/proc/self/mountinfo`.

use std::iter;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use procfs_core::process::MountInfo;

use crate::collect::{HostFs, Unavailable};
use crate::parse::{fields, lines, number, unescape, whole_lines};

/// Ancestors of ours that are asked for their mounts.
const MAX_ANCESTORS: usize = 8;

/// Controllers of a hierarchy that we read.
#[allow(clippy::struct_excessive_bools, reason = "a set; any of them may be mounted together")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Controllers {
    pub cpu: bool,
    pub cpuacct: bool,
    pub blkio: bool,
    pub memory: bool,
    pub pids: bool,
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// Mount point, as the user sees it.
    pub mount: Arc<str>,
    /// Mount point below the host root.
    pub dir: PathBuf,
    /// The unified hierarchy; which of its controllers are on differs per group.
    pub v2: bool,
    /// Of a v1 hierarchy.
    pub v1: Controllers,
    /// Of the unified hierarchy, at its root; all until `cgroup.controllers` was read.
    pub v2_offers: Controllers,
}

impl Hierarchy {
    /// Is it seen through the root of another process?
    pub(super) fn is_borrowed(&self) -> bool {
        self.dir.starts_with("proc")
    }
}

/// The hierarchies of the host. `ip netns exec` mounts a `/sys` of its own, which has none: then
/// they are looked for through the root of process 1, or of an ancestor of ours, which is whoever
/// typed that command.
pub(super) fn hierarchies(host: &HostFs) -> Result<Vec<Hierarchy>, Unavailable> {
    let mounts = host
        .read("proc/self/mountinfo")
        .map_err(|e| Unavailable::because("/proc/self/mountinfo", &e, "mount the host's /proc"))?;
    let own = parse_mountinfo(&mounts);
    if !own.is_empty() {
        return Ok(own);
    }
    let ancestors = iter::successors(parent(host, "self"), |p| parent(host, &p.to_string()));
    let others = iter::once(1).chain(ancestors.take_while(|p| *p > 1).take(MAX_ANCESTORS));
    let found = others.map(|pid| seen_by(host, pid)).find(|all| !all.is_empty());
    Ok(found.unwrap_or_default())
}

/// What another process has mounted, if we may look there.
fn seen_by(host: &HostFs, pid: u64) -> Vec<Hierarchy> {
    let Ok(mounts) = host.read(format!("proc/{pid}/mountinfo")) else { return Vec::new() };
    let mut all = parse_mountinfo(&mounts);
    for h in &mut all {
        h.mount = format!("/proc/{pid}/root{}", h.mount).into();
        h.dir = PathBuf::from(format!("proc/{pid}/root")).join(&h.dir);
    }
    all.retain(|h| host.path(&h.dir).is_dir());
    all
}

/// The parent of a process: the field behind the state, which follows the last parenthesis.
fn parent(host: &HostFs, pid: &str) -> Option<u64> {
    let stat = host.read(format!("proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|b| *b == b')')?;
    number(fields(stat.get(end + 1..)?).nth(1)?)
}

/// Hierarchies with a controller that we read, one per device number.
pub(super) fn parse_mountinfo(bytes: &[u8]) -> Vec<Hierarchy> {
    let mut out = Vec::new();
    let mut seen = Vec::new();
    for line in lines(whole_lines(bytes)) {
        let Some((dev, hierarchy)) = parse_line(line) else { continue };
        if !seen.contains(&dev) {
            seen.push(dev);
            out.push(hierarchy);
        }
    }
    out
}

/// A hierarchy with its device number. The crate leaves escapes as they are.
fn parse_line(line: &[u8]) -> Option<(String, Hierarchy)> {
    let info = MountInfo::from_line(&String::from_utf8_lossy(line)).ok()?;
    let path = unescape(info.mount_point.as_os_str().as_bytes());
    let mount = String::from_utf8_lossy(&path).into_owned();
    let has = |name: &str| info.super_options.contains_key(name);
    let v2 = info.fs_type == "cgroup2";
    let v1 = Controllers {
        cpu: has("cpu"),
        cpuacct: has("cpuacct"),
        blkio: has("blkio"),
        memory: has("memory"),
        pids: has("pids"),
    };
    if !(v2 || (info.fs_type == "cgroup" && v1 != Controllers::default())) {
        return None;
    }
    let v1 = if v2 { Controllers::default() } else { v1 };
    let dir = PathBuf::from(mount.trim_start_matches('/'));
    let v2_offers = Controllers { cpu: v2, cpuacct: false, blkio: v2, memory: v2, pids: v2 };
    Some((info.majmin, Hierarchy { mount: mount.into(), dir, v2, v1, v2_offers }))
}

/// Parses `cgroup.controllers`: those that v1 does not hold.
pub(super) fn parse_controllers(bytes: &[u8]) -> Controllers {
    let has = |name: &[u8]| fields(bytes).any(|f| f == name);
    Controllers {
        cpu: has(b"cpu"),
        cpuacct: false,
        blkio: has(b"io"),
        memory: has(b"memory"),
        pids: has(b"pids"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hierarchies_of_both_versions_are_found_once() {
        let text = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
            38 31 0:35 / /sys/fs/cgroup/blk\\040io rw - cgroup cgroup rw,blkio\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n\
            60 31 0:40 / /torn rw master: - cgroup2 cgroup2 rw\n\
            50 31 0:38 / /run/again rw - cgroup2 cgroup2 rw\n";
        let found = parse_mountinfo(text);
        let mounts: Vec<&str> = found.iter().map(|h| &*h.mount).collect();
        let want =
            ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/blk io", "/sys/fs/cgroup/unified"];
        assert_eq!(mounts, want);
        assert!(found[0].v1.cpu && found[0].v1.cpuacct && !found[0].v2);
        assert!(found[1].v1.blkio && !found[1].v1.cpu);
        assert_eq!((found[2].v2, found[2].v1), (true, Controllers::default()));
        assert_eq!(found[1].dir, PathBuf::from("sys/fs/cgroup/blk io"));
    }

    #[test]
    fn a_hybrid_host_leaves_little_to_the_unified_hierarchy() {
        assert_eq!(parse_controllers(b"hugetlb\n"), Controllers::default());
        let all = parse_controllers(b"cpuset cpu io memory hugetlb pids\n");
        assert!(all.cpu && all.blkio && all.memory);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_mountinfo(&bytes);
        }
    }
}
