//! The groups that we know, and how new ones are found.
//!
//! A directory of cgroupfs has two links more than it has children, so one `stat` tells whether
//! it must be listed again.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, RawDir};

use super::read::{Limits, OpenFiles};
use crate::parse::{lines, number};
use crate::sample::limits::TaskOwners;
use crate::sample::subject::CgroupId;
use crate::sample::time::MonoNs;

/// Groups that we keep track of; more are counted as unread.
pub(super) const MAX_GROUPS: usize = 32_768;

/// A group, between ticks.
#[derive(Debug)]
pub(super) struct Group {
    /// Index of its hierarchy.
    pub hierarchy: usize,
    pub id: CgroupId,
    /// Below the mount point; `/` for the root.
    pub path: Arc<str>,
    /// Directory below the host root.
    pub dir: PathBuf,
    pub limits: Limits,
    pub open: OpenFiles,
    /// When its directory and limits were looked at.
    pub checked_at: Option<MonoNs>,
    /// Links of the directory when it was listed.
    pub links: Option<u64>,
    /// Whose its tasks are, and when that was looked at; only where its limit is near.
    pub tasks: Option<(MonoNs, TaskOwners)>,
}

impl Group {
    pub(super) fn root(hierarchy: usize, dir: &Path) -> Self {
        Self::new(hierarchy, "/".into(), dir.to_owned())
    }

    fn new(hierarchy: usize, path: Arc<str>, dir: PathBuf) -> Self {
        Self {
            hierarchy,
            id: CgroupId(0),
            path,
            dir,
            limits: Limits::default(),
            open: Vec::new(),
            checked_at: None,
            links: None,
            tasks: None,
        }
    }

    pub(super) fn is_root(&self) -> bool {
        &*self.path == "/"
    }

    pub(super) fn parent(&self) -> Arc<str> {
        match self.path.rsplit_once('/') {
            Some((up, _)) if !up.is_empty() => up.into(),
            _ => "/".into(),
        }
    }
}

/// Paths that are known, per hierarchy, and directories that lost a child.
#[derive(Debug, Default)]
pub(super) struct Known {
    paths: HashSet<(usize, Arc<str>)>,
    stale: HashSet<(usize, Arc<str>)>,
}

impl Known {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.paths.len()
    }

    pub(super) fn add(&mut self, group: &Group) -> bool {
        self.paths.len() < MAX_GROUPS && self.paths.insert((group.hierarchy, group.path.clone()))
    }

    /// Forgets a group that is gone; its parent is to be listed again, since another one may
    /// have taken its place without changing the link count.
    pub(super) fn forget(&mut self, group: &Group) {
        self.paths.remove(&(group.hierarchy, group.path.clone()));
        self.stale.insert((group.hierarchy, group.parent()));
    }

    /// Looks at the directory of `group`: its inode, and the children that are not known yet.
    /// An error means that it is gone.
    pub(super) fn look(
        &mut self,
        root: &Path,
        group: &mut Group,
        buf: &mut Vec<u8>,
    ) -> io::Result<Vec<Group>> {
        let path = root.join(&group.dir);
        let stat = rustix::fs::stat(&path)?;
        let id = CgroupId(stat.st_ino);
        if group.id != id {
            // Removed and made again since: nothing of the old one holds.
            group.open.clear();
            group.links = None;
            group.checked_at = None;
            group.id = id;
        }
        #[allow(clippy::unnecessary_cast, reason = "st_nlink is u32 on some targets")]
        let links = stat.st_nlink as u64;
        let stale = self.stale.remove(&(group.hierarchy, group.path.clone()));
        // Some filesystems of captured trees do not count children.
        if group.links == Some(links) && links >= 2 && !stale {
            return Ok(Vec::new());
        }
        group.links = Some(links);
        let mut found = Vec::new();
        subdirectories(&path, buf, |name| {
            let up = group.path.trim_end_matches('/');
            let child: Arc<str> = format!("{up}/{name}").into();
            let child = Group::new(group.hierarchy, child, group.dir.join(name));
            if self.add(&child) {
                found.push(child);
            }
        })?;
        Ok(found)
    }
}

/// The processes of a group and of those below it, as its number of tasks counts them.
pub(super) fn members(root: &Path, dir: &Path, buf: &mut Vec<u8>) -> Vec<u32> {
    let mut todo = vec![root.join(dir)];
    let mut pids = Vec::new();
    while let Some(dir) = todo.pop() {
        if let Ok(bytes) = std::fs::read(dir.join("cgroup.procs")) {
            pids.extend(lines(&bytes).filter_map(|l| u32::try_from(number(l)?).ok()));
        }
        if todo.len() < MAX_GROUPS {
            // What goes away meanwhile has no members.
            let _ = subdirectories(&dir, buf, |name| todo.push(dir.join(name)));
        }
    }
    // 0: not of our PID namespace.
    pids.retain(|pid| *pid > 0);
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Calls `visit` with each subdirectory whose name is text.
fn subdirectories(path: &Path, buf: &mut Vec<u8>, mut visit: impl FnMut(&str)) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    buf.clear();
    buf.reserve(16 << 10);
    let mut raw = RawDir::new(&dir, buf.spare_capacity_mut());
    while let Some(entry) = raw.next() {
        let entry = entry?;
        if entry.file_type() != FileType::Directory {
            continue;
        }
        match entry.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => visit(name),
        }
    }
    Ok(())
}
