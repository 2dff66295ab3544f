//! Processes of a directory that looks like `/proc`, and live ones.

use std::path::Path;
use std::process::{Command, Stdio};

use super::*;
use crate::clock;
use crate::sample::{Interest, SignalStatus};

/// A `/proc` of files.
struct Proc(tempfile::TempDir);

impl Proc {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let this = Self(dir);
        this.put(1, 0, 10, [0; 3]);
        // Ours is number 1.
        std::os::unix::fs::symlink("1", this.path().join("self")).unwrap();
        this
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("proc")
    }

    fn put(&self, pid: u32, parent: u32, start: u64, io: [u64; 3]) {
        self.put_kind(pid, parent, start, 0, io);
    }

    fn put_kind(&self, pid: u32, parent: u32, start: u64, flags: u64, [r, w, c]: [u64; 3]) {
        let dir = self.path().join(pid.to_string());
        std::fs::create_dir_all(&dir).unwrap();
        let io = format!(
            "rchar: 9\nwchar: 9\nsyscr: {r}\nsyscw: {w}\nread_bytes: {r}\nwrite_bytes: {w}\n\
             cancelled_write_bytes: {c}\n"
        );
        std::fs::write(dir.join("io"), io).unwrap();
        let between = "0 0 0 0 0 0 0 0 20 0 1 0";
        let stat = format!("{pid} (p) S {parent} 1 1 0 -1 {flags} {between} {start} 0 0 0\n");
        std::fs::write(dir.join("stat"), stat).unwrap();
        std::fs::write(dir.join("cgroup"), "3:cpu:/a\n2:blkio:/db\n0::/u\n").unwrap();
    }

    /// As in `/proc`, nothing can be read any more through a file that is still open.
    fn end(&self, pid: u32) {
        std::fs::write(self.path().join(format!("{pid}/io")), "").unwrap();
        std::fs::remove_dir_all(self.path().join(pid.to_string())).unwrap();
    }

    fn collector(&self) -> ProcessIoCollector {
        open(&HostFs::at(self.0.path()))
    }
}

fn open(host: &HostFs) -> ProcessIoCollector {
    ProcessIoCollector::open(host, &CollectOptions::default()).unwrap()
}

fn sample(c: &mut ProcessIoCollector, at: MonoNs) -> ProcessIoSample {
    let interest = Interest::default();
    let interval = Duration::from_secs(1);
    c.sample(&SampleContext { at, interval, interest: &interest }).unwrap()
}

fn at(s: u64) -> MonoNs {
    MonoNs(1_000_000_000 * s)
}

/// Process, bytes read and written, and what they are compared with.
type Row = (u32, u64, u64, u32, Option<u32>);

fn rows(s: &ProcessIoSample) -> Vec<Row> {
    let row = |p: &ProcessIo| (p.task.pid, p.read_bytes, p.write_bytes, p.still_ms, p.zero_ms);
    s.processes.iter().map(row).collect()
}

#[test]
fn a_row_says_since_when_its_bytes_count() {
    let proc = Proc::new();
    proc.put(7, 1, 50, [0; 3]);
    proc.put(8, 1, 50, [100, 0, 0]);
    let mut c = proc.collector();
    // 8 may have read at any time, 7 has not, and number 1 looks. However long a listing took on this
    // machine, everybody is listed again after half a minute.
    assert_eq!(rows(&sample(&mut c, at(0))), [(8, 100, 0, 0, None)]);
    assert_eq!(rows(&sample(&mut c, at(31))), []);
    // 7 begins; 9 was not there.
    proc.put(7, 1, 50, [0, 4096, 0]);
    proc.put(9, 1, 70, [0, 300_000, 0]);
    let s = sample(&mut c, at(2 * 31));
    assert_eq!(rows(&s), [(7, 0, 4096, 0, Some(31_000)), (9, 0, 300_000, 0, Some(31_000))]);
    let cgroups: Vec<_> = s.processes.iter().map(|p| p.cgroup.as_deref()).collect();
    assert_eq!(cgroups, [None, Some("/db")], "read where much is moved");
    // 7 goes on, 8 moves after it had been still.
    proc.put(7, 1, 50, [0, 8192, 0]);
    proc.put(8, 1, 50, [150, 0, 0]);
    assert_eq!(
        rows(&sample(&mut c, at(3 * 31))),
        [(7, 0, 8192, 0, None), (8, 150, 0, 31_000, None)]
    );
    assert_eq!(rows(&sample(&mut c, at(4 * 31))), []);
}

#[test]
fn a_number_that_another_process_has_is_another_process() {
    let proc = Proc::new();
    proc.put(7, 1, 50, [0, 1000, 0]);
    let mut c = proc.collector();
    sample(&mut c, at(0));
    proc.put(7, 1, 99, [0, 5000, 0]);
    // Noticed when its bytes have moved, and read as a new one at once or in the next round.
    let found: Vec<ProcessIo> = (1..=3).flat_map(|s| sample(&mut c, at(s)).processes).collect();
    let starts: Vec<_> = found.iter().map(|p| (p.task.start, p.write_bytes, p.zero_ms)).collect();
    assert_eq!(starts, [(99, 5000, None)]);
}

/// The kernel adds what a child did to the counters of the parent that has waited for it.
#[test]
fn what_a_child_did_is_not_counted_twice() {
    let proc = Proc::new();
    proc.put(7, 1, 50, [0, 0, 0]);
    proc.put(8, 7, 60, [0, 0, 0]);
    let mut c = proc.collector();
    sample(&mut c, at(0));
    proc.put(8, 7, 60, [1000, 9000, 500]);
    assert_eq!(rows(&sample(&mut c, at(1))), [(8, 1000, 9000, 0, Some(1000))]);
    // The child wrote some more before it ended, and the shell a little.
    proc.end(8);
    proc.put(7, 1, 50, [1000, 9700, 500]);
    let s = sample(&mut c, at(2));
    let of = |p: &ProcessIo| (p.task.pid, p.children_read_bytes, p.children_write_bytes);
    assert_eq!(s.processes.iter().map(of).collect::<Vec<_>>(), [(7, 1000, 8500)]);
    // One that was too short-lived to be read: all that there is of it.
    proc.put(7, 1, 50, [1000, 19_700, 500]);
    let s = sample(&mut c, at(3));
    assert_eq!(s.processes.iter().map(of).collect::<Vec<_>>(), [(7, 1000, 8500)]);
}

/// Nobody waited for the child: the parent's bytes are its own.
#[test]
fn a_parent_that_takes_nothing_over_is_charged_for_its_own() {
    let proc = Proc::new();
    proc.put(7, 1, 50, [0, 0, 0]);
    proc.put(8, 7, 60, [0, 0, 0]);
    let mut c = proc.collector();
    sample(&mut c, at(0));
    proc.put(8, 7, 60, [0, 9000, 0]);
    sample(&mut c, at(1));
    proc.end(8);
    proc.put(7, 1, 50, [0, 4000, 0]);
    let s = sample(&mut c, at(2));
    assert_eq!(s.processes.first().map(|p| p.children_write_bytes), Some(0));
    // Long after that.
    proc.put(7, 1, 50, [0, 400_000, 0]);
    let s = sample(&mut c, at(20));
    assert_eq!(s.processes.first().map(|p| p.children_write_bytes), Some(0));
}

#[test]
fn threads_of_the_kernel_have_no_row() {
    let proc = Proc::new();
    proc.put_kind(2, 0, 1, 0x0020_0000, [0, 7000, 0]);
    let mut c = proc.collector();
    for s in 0..3 {
        proc.put_kind(2, 0, 1, 0x0020_0000, [0, 7000 + 1000 * s, 0]);
        assert_eq!(rows(&sample(&mut c, at(s))), []);
    }
}

/// Who they are is asked once, not in each round.
#[test]
fn threads_of_the_kernel_stay_aside() {
    let proc = Proc::new();
    proc.put_kind(2, 0, 1, 0x0020_0000, [0; 3]);
    let mut c = proc.collector();
    for s in 0..4 {
        sample(&mut c, at(s));
    }
    // Not looked at again so soon.
    proc.put(2, 1, 99, [0, 5000, 0]);
    assert_eq!(rows(&sample(&mut c, at(8))), []);
    let found: Vec<_> = (32..36).flat_map(|s| rows(&sample(&mut c, at(s)))).collect();
    assert_eq!(found, [(2, 0, 5000, 0, None)], "the number is another's by now");
}

/// Whether its number is the highest or numbers have wrapped.
#[test]
fn a_live_process_that_has_just_begun_is_read_in_the_next_round() {
    let Some(dir) = on_disk() else { return crate::collect::testing::skip("no disk to write to") };
    let mut c = open(&HostFs::live());
    let start = clock::mono();
    sample(&mut c, start);
    let mut found = false;
    for n in 1..=3 {
        let script = "printf %300000s x >f; read x";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(dir.path()).stdin(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let deadline = clock::mono() + Duration::from_secs(10);
        let size = || std::fs::metadata(dir.path().join("f")).map_or(0, |m| m.len());
        while size() < 300_000 && clock::mono() < deadline {
            clock::sleep_until(clock::mono() + Duration::from_millis(5));
        }
        // The clock of the rounds stands nearly still: nobody is listed anew.
        let s = sample(&mut c, start + Duration::from_millis(n));
        let row = s.processes.iter().find(|p| p.task.pid == child.id());
        found = row.is_some_and(|p| p.zero_ms == Some(1) && p.write_bytes >= 300_000);
        drop(child.stdin.take());
        child.wait().unwrap();
        std::fs::remove_file(dir.path().join("f")).unwrap();
        if found {
            break;
        }
    }
    assert!(found);
}

#[test]
fn a_kernel_without_the_file_says_so() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
    let e = ProcessIoCollector::open(&HostFs::at(dir.path()), &CollectOptions::default()).err();
    assert!(e.is_some_and(|e| e.reason.contains("CONFIG_TASK_IO_ACCOUNTING")));
}

/// Where files are written to a disk: not to memory.
fn on_disk() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in(Path::new(env!("CARGO_MANIFEST_DIR"))).ok()?;
    let magic = rustix::fs::statfs(dir.path()).ok()?.f_type;
    // tmpfs, ramfs and overlayfs, which may be upon one.
    let memory = [0x0102_1994, 0x8584_58f6, 0x794c_7630];
    (!memory.contains(&(magic as u64))).then_some(dir)
}

/// A shell starts one `dd` after the other: each writes 1 MiB and ends before it is read, as a
/// rule. All of it is in the rows of the shell and of those that were seen.
#[test]
fn live_bytes_of_short_lived_children_are_those_of_the_shell() {
    let Some(dir) = on_disk() else { return crate::collect::testing::skip("no disk to write to") };
    let host = HostFs::live();
    if host.read("proc/self/io").is_err() {
        return crate::collect::testing::skip("no /proc/PID/io");
    }
    let mut c = open(&host);
    sample(&mut c, clock::mono());
    let script = "read x; for i in 1 2 3 4 5 6 7 8; do \
        dd if=/dev/zero of=f$i bs=64k count=16 2>/dev/null; done; echo; read x";
    let mut shell = Command::new("bash")
        .args(["-c", script])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let first = sample(&mut c, clock::mono()).processes;
    std::io::Write::write_all(shell.stdin.as_mut().unwrap(), b"\n").unwrap();
    let mut all: HashMap<u32, ProcessIo> = HashMap::new();
    let mut line = [0];
    std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line).unwrap();
    for _ in 0..40 {
        for p in sample(&mut c, clock::mono()).processes {
            all.insert(p.task.pid, p);
        }
        if all.contains_key(&shell.id()) {
            break;
        }
        clock::sleep_until(clock::mono() + Duration::from_millis(100));
    }
    drop(shell.stdin.take());
    shell.wait().unwrap();
    let p = all.get(&shell.id()).unwrap();
    assert_eq!(p.comm, "bash");
    assert!(p.write_bytes - p.children_write_bytes >= 8 << 20, "{p:?}");
    // Where it had to be read from the disk itself, it had a row before.
    let is_known = first.iter().any(|f| f.task.pid == shell.id());
    assert!(is_known || p.zero_ms.is_some() || p.still_ms > 0, "{p:?}");
}

/// The refusal is told with what would help.
#[test]
fn a_process_that_is_not_ours_is_counted() {
    let proc = Proc::new();
    proc.put(7, 1, 50, [0; 3]);
    let io = proc.path().join("7/io");
    let mut mode = std::fs::metadata(&io).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0);
    std::fs::set_permissions(&io, mode).unwrap();
    // Root may read any file: this thread no more.
    let mut sets = rustix::thread::capabilities(None).unwrap();
    sets.effective = rustix::thread::CapabilitySet::empty();
    rustix::thread::set_capabilities(None, sets).unwrap();
    assert!(std::fs::read(&io).is_err());
    let mut c = proc.collector();
    assert_eq!(sample(&mut c, at(0)).denied, 1);
    let mut out = Vec::new();
    c.signals(&mut out);
    assert!(matches!(&out[0].status, SignalStatus::Degraded { reason, .. }
        if reason.starts_with("1 process ")));
}
