//! The recorder on disks that fail it: full, full on and off, frozen.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use stallscope::clock;
use stallscope::recording::recorder::{Options, Recorder, Rotate, State, Target};
use stallscope::recording::{Event, Reader, TickSummary};
use stallscope::sample::tick::{HostInfo, Tick};
use stallscope::sample::time::{MonoNs, Seq, WallNs};

use crate::kit::block::Dir;
use crate::kit::console::Console;
use crate::kit::gate::{Place, beside, lab};
use crate::kit::sh::run;
use crate::kit::undo::Undo;
use crate::kit::{secs, wait_for};

const INTERVAL: Duration = Duration::from_millis(200);

/// A small file system in memory, unmounted when dropped.
fn tmpfs(dir: &Dir, size: &str) -> (PathBuf, Undo) {
    let path = dir.path.join("tmpfs");
    std::fs::create_dir(&path).unwrap();
    let text = path.to_str().unwrap();
    run(&["mount", "-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", text]);
    let mut undo = Undo::default();
    undo.command(&["umount", text]);
    (path, undo)
}

/// A file system on a loop device, unmounted when dropped.
fn ext4(dir: &Dir) -> (PathBuf, Undo) {
    let image = dir.image("disk.img", 16);
    let path = dir.path.join("mnt");
    std::fs::create_dir(&path).unwrap();
    let text = path.to_str().unwrap();
    run(&["mkfs.ext4", "-q", "-F", &image]);
    run(&["mount", "-o", "loop", &image, text]);
    let mut undo = Undo::default();
    undo.command(&["umount", text]);
    (path, undo)
}

/// It takes nothing until `thaw` is dropped.
fn freeze(mnt: &Path, thaw: &mut Undo) {
    let text = mnt.to_str().unwrap();
    run(&["fsfreeze", "-f", text]);
    thaw.command(&["fsfreeze", "-u", text]);
}

/// `record`, killed when dropped.
struct Recording {
    child: Child,
    file: PathBuf,
    err: PathBuf,
}

impl Recording {
    fn start(file: PathBuf, err: PathBuf) -> Self {
        Self::with(file, err, &[])
    }
    fn with(file: PathBuf, err: PathBuf, args: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_stallscope"))
            .args(["record", "--interval", "200ms", "--no-bpf", "--netns", "self", "-o"])
            .arg(&file)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&err).unwrap())
            .spawn()
            .unwrap();
        Self { child, file, err }
    }
    fn ticks(&self) -> u64 {
        Reader::file(&self.file).map_or(0, |r| r.len())
    }
    fn says(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap()
    }
    #[track_caller]
    fn wait_for(&mut self, ticks: u64) {
        wait_for("ticks in the file", secs(20), || (self.ticks() >= ticks).then_some(()));
        assert_eq!(self.child.try_wait().unwrap(), None, "{}", self.says());
    }
    fn end(mut self) -> (Option<i32>, Vec<(Seq, MonoNs)>, u64) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let code = self.child.wait().unwrap().code();
        let (ticks, dropped) = contents(&self.file);
        assert!(Reader::file(&self.file).unwrap().is_sealed());
        (code, ticks, dropped)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All ticks, and how many others the recording says are missing.
fn contents(file: &Path) -> (Vec<(Seq, MonoNs)>, u64) {
    let mut r = Reader::file(file).unwrap();
    let ticks: Vec<_> = (0..r.len())
        .map(|i| r.tick(i).unwrap_or_else(|e| panic!("tick {i}: {e}")))
        .map(|t| (t.seq, t.mono))
        .collect();
    let mut events: Vec<Event> = r.loose_events().iter().map(|x| x.event.clone()).collect();
    for g in 0..r.groups().len() {
        events.extend(r.index(g).unwrap().events.iter().map(|x| x.event.clone()));
    }
    let dropped = events.iter().map(|r| match r {
        Event::Dropped { ticks, why } => {
            assert_eq!(why, "no space left");
            *ticks
        }
        _ => 0,
    });
    let dropped = dropped.sum();
    assert_eq!(r.damage().count(), 0);
    (ticks, dropped)
}

/// Takes all the space there is.
fn fill(dir: &Path) -> PathBuf {
    let path = dir.join("filler");
    let mut f = std::fs::File::create(&path).unwrap();
    let e = std::io::copy(&mut std::io::repeat(0), &mut f).unwrap_err();
    assert_eq!(e.kind(), std::io::ErrorKind::StorageFull);
    path
}

#[test]
fn a_full_disk_pauses_and_two_ticks_later_it_goes_on() {
    lab(&["mount", "umount"], || {
        let dir = Dir::new();
        let (mnt, _mount) = tmpfs(&dir, "1m");
        let mut r = Recording::start(mnt.join("a.stall"), dir.path.join("err"));
        r.wait_for(3);
        let filler = fill(&mnt);
        wait_for("the pause", secs(20), || r.says().contains("no space left").then_some(()));
        let before = r.ticks();
        // Some twenty ticks without room.
        clock::sleep_until(clock::mono() + secs(4));
        assert_eq!(r.says().lines().count(), 1, "{}", r.says());
        assert_eq!(r.ticks(), before);
        let (ticks, _) = contents(&r.file);
        let last = ticks.last().unwrap().0;
        let freed = clock::mono();
        std::fs::remove_file(filler).unwrap();
        r.wait_for(before + 3);
        wait_for("a word", secs(20), || r.says().contains("recording resumed").then_some(()));
        let says = r.says();
        let (code, ticks, dropped) = r.end();
        assert_eq!(code, Some(0));
        let resumed = ticks.iter().find(|t| t.0 > last).unwrap();
        let after = resumed.1.since(freed);
        eprintln!("lab: full disk: {dropped} ticks left out, resumed {after:?} after");
        assert!(after <= INTERVAL * 2, "{after:?}");
        assert!(dropped >= 15, "{dropped}");
        // Nothing else is missing, and everything that is missing is said.
        let all = ticks.last().unwrap().0.0 + 1;
        assert_eq!(ticks.len() as u64 + dropped, all);
        assert_eq!(says.lines().count(), 2, "{says}");
    });
}

#[test]
fn a_disk_that_is_full_on_and_off_fills_no_log() {
    beside(Place::Anywhere, &["mount", "umount"], || {
        let dir = Dir::new();
        let (mnt, _mount) = tmpfs(&dir, "1m");
        let mut r = Recording::start(mnt.join("a.stall"), dir.path.join("err"));
        for _ in 0..6 {
            let more = r.ticks() + 1;
            r.wait_for(more);
            let filler = fill(&mnt);
            clock::sleep_until(clock::mono() + secs(2));
            std::fs::remove_file(filler).unwrap();
        }
        let more = r.ticks() + 1;
        r.wait_for(more);
        let says = r.says();
        assert!(says.lines().count() <= 2, "{says}");
        let (code, ticks, dropped) = r.end();
        assert_eq!(code, Some(0));
        assert!(dropped > 0);
        assert_eq!(ticks.len() as u64 + dropped, ticks.last().unwrap().0.0 + 1);
    });
}

/// No room even for the first block, and at the end of the run.
#[test]
fn a_disk_that_is_full_from_the_start_or_at_the_end() {
    beside(Place::Anywhere, &["mount", "umount"], || {
        let dir = Dir::new();
        let (mnt, _mount) = tmpfs(&dir, "1m");
        let filler = fill(&mnt);
        let mut r = Recording::start(mnt.join("a.stall"), dir.path.join("err"));
        assert_eq!(r.child.wait().unwrap().code(), Some(3));
        assert!(r.says().contains("No space left") && r.says().lines().count() == 1);
        drop(r);
        std::fs::remove_file(filler).unwrap();
        std::fs::remove_file(mnt.join("a.stall")).unwrap();
        let mut r = Recording::start(mnt.join("a.stall"), dir.path.join("err"));
        r.wait_for(3);
        fill(&mnt);
        wait_for("the pause", secs(20), || r.says().contains("no space left").then_some(()));
        kill_process(Pid::from_child(&r.child), Signal::TERM).unwrap();
        assert_eq!(r.child.wait().unwrap().code(), Some(3));
        assert!(r.says().contains("not in the recording"), "{}", r.says());
        let (ticks, _) = contents(&r.file);
        assert!(ticks.len() >= 3);
    });
}

/// An incident begins while there is no room for its file: it is tried again, and leaves no empty
/// files behind. What happened before the finding is not lost.
#[test]
fn a_flight_recorder_tries_again_on_a_full_disk() {
    beside(Place::Anywhere, &["mount", "umount"], || {
        let dir = Dir::new();
        let (mnt, _mount) = tmpfs(&dir, "1m");
        let filler = fill(&mnt);
        let (place, err) = (mnt.join("made"), dir.path.join("err"));
        std::fs::create_dir(&place).unwrap();
        let on = ["--on-finding=unix-backlog-full"];
        let mut r = Recording::with(place.clone(), err, &on);
        let path = dir.path.join("a.sock");
        let socket = || {
            use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
        };
        let addr = rustix::net::SocketAddrUnix::new(&path).unwrap();
        let listener = socket();
        rustix::net::bind(&listener, &addr).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        // The healthy time before.
        clock::sleep_until(clock::mono() + secs(3));
        let begun = clock::mono();
        let clients = [socket(), socket(), socket()];
        let _waiting = clients.each_ref().map(|c| rustix::net::connect(c, &addr));
        wait_for("an error", secs(60), || r.says().contains("No space left").then_some(()));
        wait_for("another", secs(60), || {
            (r.says().matches("trying again in 10s").count() == 2).then_some(())
        });
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "{}", r.says());
        std::fs::remove_file(filler).unwrap();
        wait_for("a file", secs(60), || r.says().contains("recording to ").then_some(()));
        kill_process(Pid::from_child(&r.child), Signal::TERM).unwrap();
        assert_eq!(r.child.wait().unwrap().code(), Some(0), "{}", r.says());
        let file = std::fs::read_dir(&place).unwrap().next().unwrap().unwrap().path();
        let (ticks, dropped) = contents(&file);
        assert_eq!((ticks[0].0, dropped), (Seq(0), 0), "{}", r.says());
        assert!(ticks[0].1 < begun, "{}", r.says());
    });
}

/// With a limit set, parts of our own make room.
#[test]
fn old_parts_make_room_on_a_full_disk() {
    beside(Place::Anywhere, &["mount", "umount"], || {
        let dir = Dir::new();
        let (mnt, _mount) = tmpfs(&dir, "200k");
        let options = Options {
            rotate: Some(Rotate::Size(16 << 10)),
            max_size: Some(100 << 20),
            ..Options::default()
        };
        let host = HostInfo::default();
        let target = Target::File(mnt.join("box.stall"));
        let mut r = Recorder::start(target, &host, options, Vec::new()).unwrap();
        r.ready().unwrap();
        let total = 6000;
        for n in 0..total {
            let mono = MonoNs(n * 1_000_000_000);
            let wall = WallNs(1_700_000_000_000_000_000 + mono.0 as i64);
            let tick = Tick { seq: Seq(n), mono, wall, ..Tick::default() };
            r.push(&Arc::new(tick), TickSummary::default());
            // Fewer than wait in the queue at most.
            if n % 100 == 99 {
                wait_for("the ticks", secs(10), || (r.status().ticks > n).then_some(()));
                assert_eq!(r.status().state, State::Recording, "tick {n}");
            }
        }
        let end = r.finish(secs(10)).unwrap();
        assert_eq!((end.ticks, end.lost), (total, 0));
        assert!(end.written > 400 << 10, "more than the disk holds: {}", end.written);
        let mut files: Vec<_> =
            std::fs::read_dir(&mnt).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        let all: Vec<u64> =
            files.iter().flat_map(|f| contents(f).0.into_iter().map(|t| t.0.0)).collect();
        assert_eq!(all.last(), Some(&(total - 1)));
        assert!(all.windows(2).all(|w| w[1] == w[0] + 1), "the youngest, without a hole");
    });
}

/// The disk that is recorded to is the incident: it takes nothing for three seconds.
#[test]
fn a_frozen_disk_delays_no_tick() {
    beside(Place::Anywhere, &["losetup", "mkfs.ext4", "mount", "fsfreeze"], || {
        let dir = Dir::new();
        let (mnt, _mount) = ext4(&dir);
        let mut r = Recording::start(mnt.join("a.stall"), dir.path.join("err"));
        let mut thaw = Undo::default();
        r.wait_for(3);
        freeze(&mnt, &mut thaw);
        clock::sleep_until(clock::mono() + secs(3));
        drop(thaw);
        let more = r.ticks() + 3;
        r.wait_for(more);
        let says = r.says();
        let (code, ticks, dropped) = r.end();
        assert_eq!((code, dropped, says.as_str()), (Some(0), 0, ""));
        let worst = ticks.windows(2).map(|w| w[1].1.since(w[0].1)).max().unwrap();
        eprintln!("lab: frozen disk: {} ticks, {worst:?} apart at most", ticks.len());
        assert!(worst < Duration::from_secs(1), "{worst:?}");
        assert!(ticks.windows(2).all(|w| w[1].0.0 == w[0].0.0 + 1));
    });
}

/// The disk of the working directory does not answer while panes are written to it and a recording
/// is begun there: the console goes on, and obeys.
#[test]
fn a_console_on_a_frozen_disk_obeys() {
    beside(Place::Anywhere, &["losetup", "mkfs.ext4", "mount", "fsfreeze"], || {
        let dir = Dir::new();
        let (mnt, _mount) = ext4(&dir);
        let mut console = Console::start(&["--netns", "self", "--no-bpf"], &mnt);
        let mut thaw = Undo::default();
        console.shows("Sockets");
        freeze(&mnt, &mut thaw);
        console.keys("wwwww");
        console.shows("still writing 4 panes");
        console.keys("r");
        console.shows("recording to");
        let mut seen = std::collections::BTreeSet::new();
        wait_for("ticks that go on", secs(20), || {
            seen.extend(console.clock());
            (seen.len() > 3).then_some(())
        });
        console.keys("?");
        console.shows("Keys");
        console.keys("\x03");
        wait_for("the shell's screen", secs(5), || console.has_left().then_some(()));
        drop(thaw);
        wait_for("the end", secs(20), || console.child.try_wait().unwrap());
        let panes = std::fs::read_dir(&mnt).unwrap().flatten();
        let written = panes.filter(|e| e.file_name().to_string_lossy().ends_with(".txt")).count();
        assert_eq!(written, 4, "{}", console.text());
    });
}
