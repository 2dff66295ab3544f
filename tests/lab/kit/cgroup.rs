//! cgroup v1 groups for CPU quota and block throttling.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::net::PREFIX;
use super::undo::{Undo, retry};

/// A group of one v1 controller, removed when dropped.
pub struct Cgroup {
    dir: PathBuf,
    pub name: String,
    _undo: Undo,
}

impl Cgroup {
    /// Creates a group under `/sys/fs/cgroup/CONTROLLER`.
    pub fn new(controller: &str, label: &str) -> Self {
        // Tests beside each other may choose the same label.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mount = Path::new("/sys/fs/cgroup").join(controller);
        let probe = mount.join("cgroup.procs");
        assert!(probe.exists(), "no v1 hierarchy of {controller} at {}", mount.display());
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self::below(&mount, format!("{PREFIX}{}-{label}{number}", std::process::id()))
    }

    /// A group below this one; to be dropped before it.
    pub fn child(&self, name: &str) -> Self {
        Self::below(&self.dir, name.to_owned())
    }

    fn below(parent: &Path, name: String) -> Self {
        let dir = parent.join(&name);
        std::fs::create_dir(&dir).unwrap();
        let mut undo = Undo::default();
        let gone = dir.clone();
        undo.then(move || {
            // The kernel keeps the group until its last task is reaped.
            retry(|| std::fs::remove_dir(&gone).map_err(|e| format!("{}: {e}", gone.display())));
        });
        Self { dir, name, _undo: undo }
    }

    pub fn set(&self, file: &str, value: &str) {
        let path = self.dir.join(file);
        std::fs::write(&path, value).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// The number after `key` in a file of `key value` lines.
    pub fn stat(&self, file: &str, key: &str) -> Option<u64> {
        let text = std::fs::read_to_string(self.dir.join(file)).ok()?;
        text.lines().find_map(|l| l.strip_prefix(key)?.trim().parse().ok())
    }

    /// A shell line that enters the group and becomes `command`.
    pub fn enter_and(&self, command: &str) -> String {
        format!("echo $$ > {}/cgroup.procs && exec {command}", self.dir.display())
    }
}
