//! The collector: which file systems there are, who is asked when, what is told of it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::asker::{Answer, Asker, DEADLINE, Probe, statvfs};
use super::deleted::Search;
use super::mounts::{Mount, parse_mounts, together};
use crate::clock;
use crate::collect::permission::{self, Right};
use crate::collect::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::sample::filesystems::{FilesystemRow, FilesystemsSample};
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Extent, Signal};

/// They are listed and asked again after this time ...
const ROUND: Duration = Duration::from_secs(5);
/// ... or later, where listing and asking would take more than this share of a core.
const SHARE: f64 = 0.0003;
/// Longest time between two rounds.
const LONGEST: Duration = Duration::from_secs(120);
/// What it costs to ask one, about; measured on 6.18: open, statx, fstatfs, close in 4 us, and
/// two messages between threads.
const PRICE: Duration = Duration::from_micros(15);
/// So many are asked.
const MAX_MOUNTS: usize = 256;

const MORE_THREADS: &str =
    "raise the limit of processes: pids.max of the cgroup (TasksMax=), or ulimit -u";
const NAME: &str = "file systems";
const SOURCE: &str = "mountinfo, statvfs";

/// Reads it. See the module head.
pub struct FilesystemsCollector {
    host: HostFs,
    asker: Asker,
    mounts: Vec<Mount>,
    left_out: u32,
    /// File systems that process 1 has mounted, and that are out of our reach.
    beyond: u32,
    /// The last answer of each, by the number of the mount.
    answers: HashMap<u64, Answer>,
    due: MonoNs,
    sample: FilesystemsSample,
    at: MonoNs,
    /// Why nobody can be asked.
    trouble: Option<String>,
    search: Search,
}

impl Collector for FilesystemsCollector {
    type Sample = FilesystemsSample;
    const ID: CollectorId = CollectorId::Filesystems;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        Self::with(host, Arc::new(statvfs))
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<FilesystemsSample, CollectError> {
        self.at = cx.at;
        let asked = self.take(cx.at);
        if cx.at >= self.due {
            self.list(cx.at)?;
            let asked = asked.and_then(|()| self.asker.ask(self.mounts.iter()));
            self.trouble = asked.err().map(|e| format!("cannot start a thread: {e}"));
        }
        self.refresh();
        self.search.round(&self.host, cx.at, &self.sample.filesystems);
        self.sample.deleted = self.search.told();
        Ok(self.sample.clone())
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        let why = "free inodes only, not who uses them";
        out.push(Signal::degraded("file creation", "statvfs", why, ""));
        let hang: Vec<&FilesystemRow> =
            self.sample.filesystems.iter().filter(|r| r.waits_since.is_some()).collect();
        out.push(if let Some(why) = &self.trouble {
            Signal::degraded(NAME, SOURCE, why, MORE_THREADS)
        } else if let Some(first) = hang.first() {
            let waits = first.waits_since.map_or(Duration::ZERO, |t| self.at.since(t));
            let more = match hang.len() {
                1 => String::new(),
                n => format!(", and {} more", n - 1),
            };
            let why = format!("{} has not responded for {} s{more}", first.mount, waits.as_secs());
            Signal::degraded(NAME, SOURCE, why, "check its server, or unmount it (umount -l)")
                .unseen("file system", Extent::Exactly(hang.len() as u32))
        } else if self.left_out > 0 {
            let why = format!("{} more file systems are not queried", self.left_out);
            Signal::degraded(NAME, SOURCE, why, "")
                .unseen("file system", Extent::Exactly(self.left_out))
        } else if self.beyond > 0 {
            let r = permission::refusal(&self.host, Right::Ptrace);
            let why = format!("{} that process 1 has cannot be reached{}", self.beyond, r.why);
            Signal::degraded(NAME, SOURCE, why, r.remedy)
                .unseen("file system", Extent::Exactly(self.beyond))
        } else {
            Signal::ok(NAME, SOURCE)
        });
    }
}

impl FilesystemsCollector {
    fn with(host: &HostFs, probe: Probe) -> Result<Self, Unavailable> {
        host.read("proc/self/mountinfo").map_err(|e| {
            Unavailable::because("/proc/self/mountinfo", &e, "mount the host's /proc")
        })?;
        Ok(Self {
            host: host.clone(),
            asker: Asker::new(probe),
            mounts: Vec::new(),
            left_out: 0,
            beyond: 0,
            answers: HashMap::new(),
            due: MonoNs(0),
            sample: FilesystemsSample::default(),
            at: MonoNs(0),
            trouble: None,
            search: Search::default(),
        })
    }

    /// The kernel tells of a file system that it turned read-only nowhere else: the list is read
    /// in every round.
    fn list(&mut self, at: MonoNs) -> Result<(), CollectError> {
        let before = clock::thread_cpu();
        let path = "proc/self/mountinfo";
        let text = self.host.read(path).map_err(|e| CollectError::read(path, e))?;
        self.mounts = self.below("", parse_mounts(&text));
        self.beyond = 0;
        if let Ok(other) = self.host.read("proc/1/mountinfo")
            && other != text
        {
            self.add(parse_mounts(&other));
        }
        self.left_out = self.mounts.len().saturating_sub(MAX_MOUNTS) as u32;
        self.mounts.truncate(MAX_MOUNTS);
        self.answers.retain(|id, _| self.mounts.iter().any(|m| m.id == *id));
        let cost = clock::thread_cpu().saturating_sub(before) + PRICE * self.mounts.len() as u32;
        self.due = at + cost.div_f64(SHARE).clamp(ROUND, LONGEST);
        Ok(())
    }

    /// What process 1 has mounted, if it may be reached.
    fn add(&mut self, first: Vec<Mount>) {
        let own = std::mem::take(&mut self.mounts);
        // The dot: it is the directory that must be there, and not the link to it.
        if self.host.path("proc/1/root/.").exists() {
            self.mounts = together(self.below("proc/1/root", first), own);
            return;
        }
        let is_elsewhere = |m: &&Mount| own.iter().all(|o| o.row.dev != m.row.dev);
        self.beyond = first.iter().filter(is_elsewhere).count() as u32;
        self.mounts = own;
    }

    /// Mounts, with paths through a root below ours: that of process 1, or of captured files. The
    /// path of a root itself ends in a slash, without which it is a link.
    fn below(&self, root: &str, mut mounts: Vec<Mount>) -> Vec<Mount> {
        for m in &mut mounts {
            if let Ok(below) = m.path.strip_prefix("/") {
                m.path = self.host.path(Path::new(root).join(below));
            }
        }
        mounts
    }

    fn take(&mut self, now: MonoNs) -> std::io::Result<()> {
        let answers = &mut self.answers;
        self.asker.take(now, |id, answer| {
            answers.insert(id, answer);
        })
    }

    /// Makes the rows anew; those of the last tick stay where nothing has changed.
    fn refresh(&mut self) {
        let late = |id: u64| {
            let mut all = self.asker.waiting();
            let since = all.find(|w| w.0 == id)?.1;
            (self.at.since(since) >= DEADLINE).then_some(since)
        };
        let row = |m: &Mount| {
            let answer = self.answers.get(&m.id);
            FilesystemRow {
                space: answer.and_then(|a| a.ok()),
                errno: answer.and_then(|a| a.err()),
                waits_since: late(m.id),
                ..m.row.clone()
            }
        };
        let rows: Vec<FilesystemRow> = self.mounts.iter().map(row).collect();
        if *self.sample.filesystems != rows {
            self.sample.filesystems = Arc::new(rows);
        }
        self.sample.left_out = self.left_out;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sample::filesystems::Space;
    use crate::sample::{Interest, SignalStatus};
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    fn sample(c: &mut FilesystemsCollector, at: MonoNs) -> FilesystemsSample {
        let interest = Interest::default();
        c.sample(&SampleContext { at, interval: Duration::from_secs(1), interest: &interest })
            .unwrap()
    }

    /// Samples until `is_there`, at real times from now on.
    fn until(
        c: &mut FilesystemsCollector,
        is_there: impl Fn(&FilesystemsSample) -> bool,
    ) -> FilesystemsSample {
        let end = clock::mono() + Duration::from_secs(20);
        loop {
            let at = clock::mono();
            let s = sample(c, at);
            assert!(clock::mono().since(at) < DEADLINE, "a tick waits");
            if is_there(&s) {
                return s;
            }
            assert!(clock::mono() < end, "{s:?}");
            clock::sleep_until(clock::mono() + Duration::from_millis(5));
        }
    }

    fn row<'a>(s: &'a FilesystemsSample, mount: &str) -> &'a FilesystemRow {
        s.filesystems.iter().find(|r| &*r.mount == mount).unwrap()
    }

    fn host(mounts: &[&str]) -> (tempfile::TempDir, HostFs) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        let line =
            |(i, m): (usize, &&str)| format!("{} 1 8:{i} / {m} rw - ext4 /dev/sd{i} rw\n", i + 100);
        let text: String = mounts.iter().enumerate().map(line).collect();
        std::fs::write(dir.path().join("proc/self/mountinfo"), text).unwrap();
        let host = HostFs::at(dir.path());
        (dir, host)
    }

    #[test]
    fn the_live_root_has_the_size_that_the_kernel_says() {
        let mut c =
            FilesystemsCollector::open(&HostFs::live(), &CollectOptions::default()).unwrap();
        let s = until(&mut c, |s| row(s, "/").space.is_some());
        let now = rustix::fs::statvfs("/").unwrap();
        let root = row(&s, "/").space.unwrap();
        assert_eq!((root.blocks, root.block), (now.f_blocks, now.f_frsize));
        assert!(root.avail <= root.free && root.files_free <= root.files);
        let mut signals = Vec::new();
        c.signals(&mut signals);
        let own = signals.iter().find(|s| s.signal == NAME).unwrap();
        assert_eq!(own.status, SignalStatus::Ok);
        // Nothing changes: the rows are the same ones.
        let (a, b) = (sample(&mut c, clock::mono()), sample(&mut c, clock::mono()));
        assert!(a != b || Arc::ptr_eq(&a.filesystems, &b.filesystems));
    }

    /// Two of four hang. Each tick comes at once, the other two are asked, and those that hang
    /// are told with the time for which they do; when one comes back, so do its numbers.
    #[test]
    fn one_that_hangs_keeps_nobody_but_itself_waiting() {
        let (_dir, host) = host(&["/", "/hangs", "/too", "/well"]);
        let (release, held) = channel::<()>();
        let held = Mutex::new(held);
        let probe = move |path: &std::path::Path, _| {
            if path.ends_with("too") {
                loop {
                    std::thread::park();
                }
            }
            if path.ends_with("hangs") {
                let _ = held.lock().unwrap().recv();
            }
            Ok(Space { block: 1, blocks: 7, ..Space::default() })
        };
        let mut c = FilesystemsCollector::with(&host, Arc::new(probe)).unwrap();
        let start = clock::mono();
        let s = until(&mut c, |s| {
            s.filesystems.iter().filter(|r| r.waits_since.is_some()).count() == 2
                && s.filesystems.iter().filter(|r| r.space.is_some()).count() == 2
        });
        assert!(clock::mono().since(start) >= 2 * DEADLINE, "each had its time");
        let late = row(&s, "/hangs").waits_since.unwrap();
        assert!(late >= start && row(&s, "/too").waits_since.unwrap() > late);
        assert!(row(&s, "/").space.is_some() && row(&s, "/well").space.is_some());
        let mut signals = Vec::new();
        c.signals(&mut signals);
        let own = signals.iter().find(|s| s.signal == NAME).unwrap();
        let SignalStatus::Degraded { reason, .. } = &own.status else { panic!() };
        assert!(reason.starts_with("/hangs has not responded for "), "{reason}");
        assert!(reason.ends_with(" s, and 1 more"), "{reason}");

        release.send(()).unwrap();
        let s = until(&mut c, |s| row(s, "/hangs").waits_since.is_none());
        assert_eq!(row(&s, "/hangs").space.unwrap().blocks, 7);
        assert!(row(&s, "/too").waits_since.is_some());
    }

    /// As in a container: `/` is a layer of its own, `/data` is the host's but read-only, and
    /// `/scratch` is ours alone.
    #[test]
    fn those_of_process_1_are_seen_from_a_mount_namespace_of_our_own() {
        let (dir, host) = host(&[]);
        let own = "900 1 0:50 / / rw - overlay overlay rw\n\
            901 900 8:2 /shared /data ro - ext4 /dev/sdb rw\n\
            902 900 0:51 / /scratch rw - tmpfs tmpfs rw\n";
        let first = "20 1 8:1 / / rw - ext4 /dev/sda rw\n\
            21 20 8:2 / /srv/data rw - ext4 /dev/sdb rw\n\
            22 20 8:3 / /home rw - ext4 /dev/sdc rw\n";
        std::fs::write(dir.path().join("proc/self/mountinfo"), own).unwrap();
        std::fs::create_dir_all(dir.path().join("proc/1")).unwrap();
        std::fs::write(dir.path().join("proc/1/mountinfo"), first).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let probe = move |path: &Path, id| {
            seen.lock().unwrap().push((id, path.to_owned()));
            Ok(Space::default())
        };
        let open = || FilesystemsCollector::with(&host, Arc::new(probe.clone())).unwrap();
        let mounts = |s: &FilesystemsSample| -> Vec<String> {
            s.filesystems.iter().map(|r| r.mount.to_string()).collect()
        };
        let own_signal = |c: &FilesystemsCollector| {
            let mut signals = Vec::new();
            c.signals(&mut signals);
            signals.into_iter().find(|s| s.signal == NAME).unwrap()
        };

        // Its root is out of reach.
        let mut c = open();
        let s = until(&mut c, |s| s.filesystems.iter().all(|r| r.space.is_some()));
        assert_eq!(mounts(&s), ["/", "/data", "/scratch"]);
        let signal = own_signal(&c);
        let SignalStatus::Degraded { reason, .. } = &signal.status else { panic!() };
        assert!(reason.starts_with("2 that process 1 has cannot be reached"), "{reason}");

        std::fs::create_dir_all(dir.path().join("proc/1/root/home")).unwrap();
        asked.lock().unwrap().clear();
        let mut c = open();
        let s = until(&mut c, |s| s.filesystems.iter().all(|r| r.space.is_some()));
        assert_eq!(mounts(&s), ["/", "/srv/data", "/home", "/scratch"]);
        assert!(!row(&s, "/srv/data").mounted_read_only());
        assert_eq!(own_signal(&c).status, SignalStatus::Ok);
        let path = |below: &str| dir.path().join(below);
        let mut asked = asked.lock().unwrap().clone();
        asked.sort();
        asked.dedup();
        let want = [
            (20, path("proc/1/root/")),
            (21, path("proc/1/root/srv/data")),
            (22, path("proc/1/root/home")),
            (902, path("scratch")),
        ];
        assert_eq!(asked, want);
        assert!(asked[0].1.as_os_str().as_encoded_bytes().ends_with(b"/"), "not the link itself");
    }

    #[test]
    fn one_that_refuses_has_no_numbers_and_says_why() {
        let (dir, host) = host(&["/", "/secret"]);
        let probe = |path: &std::path::Path, _| {
            if path.ends_with("secret") { Err(13) } else { Ok(Space::default()) }
        };
        let mut c = FilesystemsCollector::with(&host, Arc::new(probe)).unwrap();
        let s = until(&mut c, |s| s.filesystems.iter().any(|r| r.errno.is_some()));
        assert_eq!((row(&s, "/secret").errno, row(&s, "/secret").space), (Some(13), None));
        // Unmounted by now.
        std::fs::write(dir.path().join("proc/self/mountinfo"), "").unwrap();
        let s = sample(&mut c, clock::mono() + LONGEST);
        assert!(s.filesystems.is_empty());
    }
}
