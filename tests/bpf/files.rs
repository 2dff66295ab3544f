//! Who creates files: every attempt, with its process and file system, failed or not.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, major, minor, mknodat};
use rustix::thread::{CpuSet, sched_setaffinity};
use stallscope::collect::HostFs;
use stallscope::collect::bpf::files::FilesBpf;
use stallscope::sample::bpf::files::{Creates, FilesBpfSample, MAX_CREATORS};
use stallscope::sample::subject::DiskId;

use crate::kit::block::{Dir, Loop};
use crate::kit::gate::lab;
use crate::kit::sh::run;
use crate::kit::undo::Undo;
use crate::lab::{open, options, sample};

/// An ext4 with 16 inodes, of which 5 are to be had.
struct Small {
    path: PathBuf,
    dev: DiskId,
    _mount: Undo,
    _disk: Loop,
    _dir: Dir,
}

impl Small {
    fn new() -> Self {
        let dir = Dir::new();
        let image = dir.image("fs.img", 16);
        run(&["mkfs.ext4", "-q", "-F", "-N", "16", &image]);
        let disk = Loop::new(&image, false);
        let path = dir.path.join("mnt");
        std::fs::create_dir(&path).unwrap();
        let to = path.to_str().unwrap();
        run(&["mount", &disk.dev, to]);
        let mut mount = Undo::default();
        mount.command(&["umount", to]);
        let dev = std::fs::metadata(&path).unwrap().dev();
        let dev = DiskId { major: major(dev), minor: minor(dev) };
        Self { path, dev, _mount: mount, _disk: disk, _dir: dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn of<'a>(&self, s: &'a FilesBpfSample) -> Option<&'a Creates> {
        s.filesystems.iter().find(|c| c.dev == self.dev)
    }
}

/// A shell that tries to create `n` files each time that it is told to.
struct Other(Child);

impl Other {
    fn new(small: &Small, n: u32) -> Self {
        let script = format!(
            "while read _; do i=0; while [ $i -lt {n} ]; do true > {}/other-$i; i=$((i+1)); done \
             2>/dev/null; echo; done",
            small.path.display()
        );
        let mut sh = Command::new("sh");
        sh.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(sh.spawn().unwrap())
    }

    fn go(&mut self) {
        writeln!(self.0.stdin.as_mut().unwrap()).unwrap();
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const TOOLS: [&str; 5] = ["losetup", "mkfs.ext4", "mount", "umount", "sh"];

/// Every way to see them that this kernel has.
fn ways() -> Vec<FilesBpf> {
    let part = |ext4| FilesBpf::open_part(&HostFs::live(), &options(), ext4);
    let mut all: Vec<FilesBpf> = vec![open(), part(true).unwrap()];
    match part(false) {
        Ok(functions) => all.push(functions),
        // The guests have them.
        Err(e) => println!("no programs at functions: {}", e.reason),
    }
    all
}

/// Is it the count of so many attempts that failed? ext4 requests an inode up to four times.
fn is_of(count: u64, attempts: u64, s: &FilesBpfSample) -> bool {
    let times = if s.ext4 { 4 } else { 1 };
    (attempts..=times * attempts).contains(&count)
}

/// Two processes try, and all but five attempts fail for want of inodes.
#[test]
fn attempts_are_counted_by_process() {
    lab(&TOOLS, || ways().into_iter().for_each(two_processes));
}

fn two_processes(mut files: FilesBpf) {
    let small = Small::new();
    let mut other = Other::new(&small, 40);
    sample(&mut files);
    let mut made = 0;
    for n in 0..60 {
        made += u32::from(File::create(small.path(&format!("own-{n}"))).is_ok());
    }
    assert_eq!(made, 5);
    for n in 0..10 {
        std::fs::create_dir(small.path(&format!("dir-{n}"))).unwrap_err();
        std::os::unix::fs::symlink("x", small.path(&format!("link-{n}"))).unwrap_err();
        let fifo = small.path(&format!("fifo-{n}"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap_err();
    }
    other.go();
    let s = sample(&mut files);
    println!("{s:?}");
    let here = small.of(&s).unwrap();
    let own = std::fs::read_to_string("/proc/self/comm").unwrap();
    let want = [(std::process::id(), own.trim_end(), 90), (other.0.id(), "sh", 40)];
    assert_eq!(here.creators.len(), want.len());
    for (c, (pid, comm, attempts)) in here.creators.iter().zip(want) {
        assert_eq!((c.pid, c.comm.as_deref()), (pid, Some(comm)));
        assert!(is_of(c.count, attempts, &s), "{c:?}");
    }
    assert_eq!(here.count, here.creators.iter().map(|c| c.count).sum::<u64>());
    // Only what is new is told again.
    assert_eq!(small.of(&sample(&mut files)), None);
    other.go();
    let s = sample(&mut files);
    let again = small.of(&s).unwrap();
    assert_eq!((again.creators.len(), again.creators[0].pid), (1, other.0.id()));
    assert!(is_of(again.count, 40, &s), "{again:?}");
}

/// Opening what there is creates nothing, and each file system counts for itself.
#[test]
fn opening_is_no_attempt() {
    lab(&TOOLS, || {
        let (small, next) = (Small::new(), Small::new());
        File::create(small.path("there")).unwrap();
        for mut files in ways() {
            sample(&mut files);
            for _ in 0..50 {
                File::open(small.path("there")).unwrap();
                // With O_CREAT.
                File::create(small.path("there")).unwrap();
            }
            let new = next.path("new");
            File::create(&new).unwrap();
            std::fs::remove_file(&new).unwrap();
            let s = sample(&mut files);
            assert_eq!((next.of(&s).unwrap().count, small.of(&s)), (1, None));
        }
    });
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).unwrap();
}

/// More processes than a CPU has rows: who goes on is not lost.
#[test]
fn who_goes_on_keeps_a_row() {
    lab(&TOOLS, || {
        let small = Small::new();
        let mut files: FilesBpf = open();
        sample(&mut files);
        // With its children: each CPU has rows of its own.
        pin(0);
        let mut failed = 0;
        for n in 0..200 {
            let name = small.path(&format!("short-{n}"));
            Command::new("sh").args(["-c", ": > \"$0\" 2>/dev/null"]).arg(&name).status().unwrap();
            let own = (0..5).map(|i| small.path(&format!("own-{n}-{i}")));
            failed += own.filter(|p| File::create(p).is_err()).count() as u64;
        }
        let s = sample(&mut files);
        let here = small.of(&s).unwrap();
        println!("{failed} failed: {here:?}");
        let first = &here.creators[0];
        assert_eq!((first.pid, here.creators.len()), (std::process::id(), MAX_CREATORS));
        assert!(failed >= 995 && is_of(first.count, 1000, &s), "{first:?}");
        // Those whose rows were given away are in the count of all.
        assert_eq!(s.unlisted, 0);
        assert!(is_of(here.count, 1200, &s), "{here:?}");
    });
}
