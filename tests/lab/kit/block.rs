//! Loop devices over files in the target directory, and what is below them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::net::PREFIX;
use super::sh::{Held, run};
use super::undo::Undo;

/// A directory for images, removed when dropped.
pub struct Dir {
    pub path: PathBuf,
    _undo: Undo,
}

impl Dir {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        let mut undo = Undo::default();
        let gone = path.clone();
        undo.then(move || {
            if let Err(e) = std::fs::remove_dir_all(&gone) {
                eprintln!("lab: clean-up: {}: {e}", gone.display());
            }
        });
        Self { path, _undo: undo }
    }

    /// A file of `mib` MiB with every block written: a hole would be filled by the file
    /// system during the test and disturb the latency.
    pub fn image(&self, name: &str, mib: u32) -> String {
        let path = self.path.join(name).to_str().unwrap().to_owned();
        let (of, count) = (format!("of={path}"), format!("count={mib}"));
        run(&["dd", "if=/dev/zero", &of, "bs=1M", &count, "conv=fsync", "status=none"]);
        path
    }

    /// `major:minor` and name of the whole disk that holds the directory.
    pub fn lower_disk(&self) -> (String, String) {
        let dev = std::fs::metadata(&self.path).unwrap().dev();
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let link = format!("/sys/dev/block/{major}:{minor}");
        let mut node = std::fs::canonicalize(&link)
            .unwrap_or_else(|e| panic!("{link}: {e}: the target directory must be on a disk"));
        if node.join("partition").exists() {
            node.pop();
        }
        let number = std::fs::read_to_string(node.join("dev")).unwrap().trim().to_owned();
        (number, node.file_name().unwrap().to_str().unwrap().to_owned())
    }
}

/// A loop device, detached when dropped.
pub struct Loop {
    /// `/dev/loopN`.
    pub dev: String,
    undo: Undo,
}

impl Loop {
    pub fn new(image: &str, direct_io: bool) -> Self {
        let direct = if direct_io { "--direct-io=on" } else { "--direct-io=off" };
        let dev = run(&["losetup", "-f", "--show", direct, image]).trim().to_owned();
        let mut undo = Undo::default();
        undo.command(&["losetup", "-d", &dev]);
        Self { dev, undo }
    }

    /// `loopN`: how the product names it.
    pub fn name(&self) -> &str {
        self.dev.trim_start_matches("/dev/")
    }

    /// Sets an attribute of its queue, until it is dropped: the number of a loop device is used
    /// again, and its queue stays as it is.
    pub fn set(&mut self, attribute: &str, value: &str) {
        let path = format!("/sys/block/{}/queue/{attribute}", self.name());
        let old = std::fs::read_to_string(&path).unwrap();
        // The scheduler in use is the one in brackets.
        let old = old.split_once('[').and_then(|(_, r)| r.split_once(']')).map_or(&*old, |r| r.0);
        let old = old.trim().to_owned();
        std::fs::write(&path, value).unwrap_or_else(|e| panic!("{path}: {e}"));
        self.undo.then(move || {
            if let Err(e) = std::fs::write(&path, &old) {
                eprintln!("lab: clean-up: {path}: {e}");
            }
        });
    }

    /// `major:minor`.
    pub fn number(&self) -> String {
        let path = format!("/sys/block/{}/dev", self.name());
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    }

    /// The eleven counters after the name in `/proc/diskstats`.
    pub fn counters(&self) -> Vec<u64> {
        let text = std::fs::read_to_string("/proc/diskstats").unwrap();
        let line = text.lines().find(|l| l.split_whitespace().nth(2) == Some(self.name()));
        line.unwrap().split_whitespace().skip(3).map(|n| n.parse().unwrap()).collect()
    }
}

/// A loop device whose file lies on a frozen file system: a write goes in and never comes out.
///
/// Dropped in the order of its fields: thawed first, or no writer can end.
pub struct FrozenDisk {
    _thaw: Undo,
    /// Those who write to it.
    pub writers: Vec<Held>,
    /// The device.
    pub disk: Loop,
    _mount: Undo,
    /// Below it.
    _dir: Dir,
}

impl FrozenDisk {
    pub fn new() -> Self {
        let dir = Dir::new();
        let lower = dir.image("lower.img", 64);
        let mnt = dir.path.join("mnt").to_str().unwrap().to_owned();
        std::fs::create_dir(&mnt).unwrap();
        run(&["mkfs.ext4", "-q", "-F", &lower]);
        run(&["mount", "-o", "loop", &lower, &mnt]);
        let mut mount = Undo::default();
        mount.command(&["umount", &mnt]);
        let upper = format!("{mnt}/upper.img");
        run(&["dd", "if=/dev/zero", &format!("of={upper}"), "bs=1M", "count=16", "status=none"]);
        run(&["sync", "-f", &upper]);
        let disk = Loop::new(&upper, false);
        run(&["fsfreeze", "-f", &mnt]);
        let mut thaw = Undo::default();
        thaw.command(&["fsfreeze", "-u", &mnt]);
        Self { _thaw: thaw, writers: Vec::new(), disk, _mount: mount, _dir: dir }
    }

    /// Writes 4 KiB at block `at`, past the page cache.
    pub fn write(&mut self, at: usize) {
        let (of, seek) = (format!("of={}", self.disk.dev), format!("seek={at}"));
        let dd = ["dd", "if=/dev/zero", &of, "bs=4k", "count=1", &seek, "oflag=direct"];
        self.writers.push(Held::start(&dd));
    }
}

/// What is under writeback now, bytes.
pub fn writeback() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("Writeback:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// Random O_DIRECT writes of the kind that `options` describe, until dropped.
pub fn load(dev: &str, options: &str, enter: impl Fn(&str) -> String) -> Held {
    let fio = format!(
        "fio --name=w --filename={dev} --direct=1 --rw=randwrite --time_based --runtime=600 \
         --thread --eta=never {options}"
    );
    Held::start(&["sh", "-c", &enter(&fio)])
}

/// Random 4 KiB O_DIRECT writes at a fixed depth until dropped; `enter` makes the shell line
/// that starts fio, so that a cgroup can be entered first.
pub fn writer(dev: &str, depth: u32, enter: impl Fn(&str) -> String) -> Held {
    load(dev, &format!("--bs=4k --ioengine=libaio --iodepth={depth}"), enter)
}
