//! Paths of cgroup ids: sock_diag sends the id of a socket's cgroup2 directory (since 5.8),
//! which is its inode. Names come from one walk over the hierarchy, only when an unknown id
//! turns up, in slices of a time budget. `getdents` tells the inodes, no `stat` is needed.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock;
use crate::collect::HostFs;
use crate::sample::sockets::{InetRows, NO_CGROUP};
use crate::sample::time::MonoNs;

/// Where cgroup2 is mounted: alone, or beside v1.
const MOUNTS: [&str; 2] = ["sys/fs/cgroup/unified", "sys/fs/cgroup"];
/// Between two walks for ids that no directory has: cgroups that were removed while their
/// sockets live on.
const RETRY: Duration = Duration::from_secs(15);
/// Directories that are remembered.
const MAX_KNOWN: usize = 1 << 16;

/// Finds paths. One per thread.
#[derive(Debug)]
pub struct CgroupNames {
    root: Option<PathBuf>,
    known: HashMap<u64, String>,
    /// Directories of the running walk, next one last.
    stack: Vec<PathBuf>,
    walked: Option<MonoNs>,
    distinct: HashSet<u64>,
}

impl CgroupNames {
    /// Finds the mount below `host`.
    #[must_use]
    pub fn new(host: &HostFs) -> Self {
        let root = MOUNTS
            .iter()
            .map(|m| host.path(m))
            .find(|root| root.join("cgroup.controllers").exists());
        Self {
            root,
            known: HashMap::new(),
            stack: Vec::new(),
            walked: None,
            distinct: HashSet::new(),
        }
    }

    /// The paths of all cgroup ids in `rows` that are known by now.
    pub fn resolve(&mut self, rows: &InetRows, budget: Duration) -> Vec<(u64, String)> {
        self.distinct.clear();
        let mut last = NO_CGROUP;
        for id in &rows.cgroup {
            // Neighbours in a dump rarely differ much: most rows end here.
            if *id != last && *id != NO_CGROUP {
                self.distinct.insert(*id);
            }
            last = *id;
        }
        if self.distinct.iter().any(|id| !self.known.contains_key(id)) {
            self.walk(budget);
        }
        let mut out: Vec<(u64, String)> = self
            .distinct
            .iter()
            .filter_map(|id| Some((*id, self.known.get(id)?.clone())))
            .collect();
        out.sort_unstable();
        out
    }

    fn walk(&mut self, budget: Duration) {
        let Some(root) = &self.root else { return };
        let now = clock::mono();
        if self.stack.is_empty() {
            if self.walked.is_some_and(|t| now.since(t) < RETRY) {
                return;
            }
            self.walked = Some(now);
            self.known.clear();
            if let Ok(meta) = std::fs::metadata(root) {
                self.known.insert(meta.ino(), "/".to_owned());
            }
            self.stack.push(root.clone());
        }
        let deadline = now + budget;
        while let Some(dir) = self.stack.pop() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|t| t.is_dir()) || self.known.len() >= MAX_KNOWN {
                    continue;
                }
                let path = entry.path();
                self.known.insert(entry.ino(), below(root, &path));
                self.stack.push(path);
            }
            if clock::mono() >= deadline {
                return;
            }
        }
    }
}

fn below(root: &Path, path: &Path) -> String {
    let rel = path.strip_prefix(root).unwrap_or(path);
    format!("/{}", rel.to_string_lossy())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ids_become_paths() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("sys/fs/cgroup");
        std::fs::create_dir_all(root.join("a.slice/b.service")).unwrap();
        std::fs::write(root.join("cgroup.controllers"), "").unwrap();
        let ino = |p: &Path| std::fs::metadata(p).unwrap().ino();
        let (top, leaf) = (ino(&root), ino(&root.join("a.slice/b.service")));
        let rows = InetRows { cgroup: vec![leaf, leaf, 0, top, u64::MAX], ..InetRows::default() };
        let mut names = CgroupNames::new(&HostFs::at(dir.path()));
        let got = names.resolve(&rows, Duration::from_secs(5));
        let mut want = vec![(top, "/".to_owned()), (leaf, "/a.slice/b.service".to_owned())];
        want.sort_unstable();
        assert_eq!(got, want);
    }
}
